"""From an address to a ledger."""

from __future__ import annotations

import re
from pathlib import Path

import sqlalchemy as sa

from depsue.errors import ConfigError, FileError, require, short
from depsue.ledger.database import Database
from depsue.ledger.ledger import Ledger
from depsue.ledger.migrations import migrate

WAIT = 30.0
"""Seconds that a write waits for its turn."""


def open_ledger(address: str | Path, *, create: bool = True, wait: float = WAIT) -> Ledger:
    """Open a ledger; an older one is brought to the newest version first.

    Args:
        address: a path or sqlite:///path for SQLite, ":memory:" for one that ends with the
            process, postgresql://user:password@host/database for PostgreSQL.
        create: whether to make a ledger where there is none.
        wait: seconds that a write waits for its turn.
    """
    url = _url(address)
    require(wait > 0, "wait must be positive seconds", found=short(wait))
    database = Database(url, wait)
    if database.kind == "sqlite" and not create and not Path(url.database or "").exists():
        raise FileError(
            "there must be a ledger",
            found=f"no file {database.name}",
            cure="check the address, or create a campaign there first",
        )
    migrate(database, create=create)
    return Ledger(database)


def _url(address: str | Path) -> sa.URL:
    text = str(address)
    require(bool(text.strip()), "a ledger has an address", found=short(text), cure="name a file")
    scheme = re.match(r"[A-Za-z0-9+]+(?=://)", text)
    if isinstance(address, Path) or scheme is None:
        return _file(None if text == ":memory:" else text)
    try:
        url = sa.make_url(text)
    except Exception:  # whatever it says may quote the password
        url = None
    if url is not None and url.drivername == "sqlite" and not url.query and not url.host:
        return _file(None if url.database in (None, "", ":memory:") else url.database)
    if url is not None and url.drivername in ("postgres", "postgresql", "postgresql+psycopg"):
        return url.set(drivername="postgresql+psycopg")
    raise ConfigError(
        "a ledger's address is a path, sqlite:///path or postgresql://user@host/database",
        found=f"{scheme[0]}://...",
        cure="write / @ : in a password as %2F %40 %3A",
    ) from None


def _file(path: str | None) -> sa.URL:
    if path is None:
        return sa.URL.create("sqlite")
    require(
        not path.startswith("file:") and "\0" not in path,
        "a ledger's file is named by a plain path",
        found=short(path),
    )
    return sa.URL.create("sqlite", database=str(Path(path).absolute()))
