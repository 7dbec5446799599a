"""A real PostgreSQL on 127.0.0.1 and a free port, and databases made from dumps."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from depsue.errors import FileError
from depsue_research.soak.servers import PASSWORD, postgres_binaries, postgres_server
from depsue_research.soak.servers import PostgresServer as Server

__all__ = ["PASSWORD", "Server", "load_sqlite", "postgres"]


def load_sqlite(dump: Path, path: Path) -> str:
    """Make a file from the statements of a dump; where it is."""
    connection = sqlite3.connect(path)
    connection.executescript(dump.read_text())
    connection.close()
    return str(path)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A server; skipped only where PostgreSQL is not installed."""
    try:
        postgres_binaries()
    except FileError as problem:
        pytest.skip(str(problem))
    with postgres_server() as server:
        yield server
