"""The database under a ledger: one writer at a time, on SQLite and on PostgreSQL.

SQLite runs with the rollback journal, not WAL: versions before 3.51.3 can corrupt a database in
WAL mode when several connections write. A ledger writes rarely, so each call opens a connection of
its own: after a lost server or a full disk the next call starts afresh.
"""

from __future__ import annotations

import hashlib
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool, StaticPool

from depsue.errors import ConfigError, FileError
from depsue.files import hold_file, hold_thread

_PRAGMAS = (
    "journal_mode = DELETE",
    "synchronous = EXTRA",  # FULL, and the folder is synced too once the journal is gone
    "foreign_keys = ON",
    "recursive_triggers = ON",  # so that REPLACE meets the trigger that refuses to delete
)
_AGAIN = "and try again: what was written is found, not written twice"
_PROBLEMS = (  # words of the driver, the rule, the cure
    (("not a database", "malformed"), "a ledger's file must be a whole SQLite database",
     "check the path, or restore the file from a copy; it was not touched"),
    (("readonly", "read-only", "unable to open", "permission denied", "attempt to write"),
     "a ledger must be where it can be written to", f"check the folder and its rights, {_AGAIN}"),
    (("disk is full", "disk i/o", "no space left"), "there must be room on the disk",
     f"make room or mend the disk, {_AGAIN}"),
    (("database is locked", "lock timeout"), "one process writes to a ledger at a time",
     "wait for the other one, and try again"),
)  # fmt: skip


class Database:
    """An address, and connections to it.

    Args:
        url: SQLite (a file, or memory without a name) or PostgreSQL.
        wait: seconds that a write waits for its turn.
    """

    kind: Literal["memory", "sqlite", "postgresql"]

    def __init__(self, url: sa.URL, wait: float) -> None:
        self.url, self.wait = url, wait
        self.name = shown(url)
        if url.get_backend_name() == "postgresql":
            self.kind = "postgresql"
            if "connect_timeout" not in url.query:
                url = url.update_query_dict({"connect_timeout": "10"})
            settings: dict[str, Any] = {
                "poolclass": NullPool,
                "isolation_level": "READ COMMITTED",  # after waiting, a statement sees the others
            }
        else:
            self.kind = "sqlite" if url.database else "memory"
            settings = {
                "poolclass": NullPool if url.database else StaticPool,
                "connect_args": {"timeout": wait, "check_same_thread": False},
            }
        memory = self.kind == "memory"
        self._turn: AbstractContextManager[Any] = threading.RLock() if memory else nullcontext()
        try:
            self._engine = sa.create_engine(url, **settings)
        except ModuleNotFoundError as problem:
            raise ConfigError(
                "a ledger on PostgreSQL needs psycopg",
                found=str(problem),
                cure="pip install 'depsue[postgres]'",
            ) from problem
        if self.kind != "postgresql":
            sa.event.listen(self._engine, "connect", _prepare)
            sa.event.listen(self._engine, "begin", _begin)

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """A transaction that reads."""
        with self._turn, self._telling(), self._engine.connect() as connection:
            with connection.begin():
                yield connection

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """A transaction that writes, alone: all of it is on disk afterwards, or none."""
        with self._turn, self._telling(), self._engine.connect() as connection:
            connection = connection.execution_options(depsue_writing=True)
            with connection.begin():
                if self.kind == "postgresql":
                    self._take_turn(connection)
                yield connection

    @contextmanager
    def hold(self, what: str) -> Iterator[bool]:
        """Hold something by name until the block, or the process, ends; False if another does."""
        with ExitStack() as stack:
            with self._telling():
                held = stack.enter_context(self._holding(what))
            yield held

    def _holding(self, what: str) -> AbstractContextManager[bool]:
        if self.kind == "memory":
            return hold_thread(f"{id(self)} {what}")
        if self.kind == "sqlite":
            return hold_file(f"{self.url.database}.{_number(what):x}.lock")
        return self._hold_session(what)

    @contextmanager
    def _hold_session(self, what: str) -> Iterator[bool]:
        with self._engine.connect() as connection:
            connection.execution_options(isolation_level="AUTOCOMMIT")
            lock = sa.func.pg_try_advisory_lock(_number(what))
            yield bool(connection.scalar(sa.select(lock)))

    def close(self) -> None:
        """Close what is open."""
        self._engine.dispose()

    def _take_turn(self, connection: sa.Connection) -> None:
        """Wait for other writers; and have commits wait for the disk, whatever the default is."""
        lazy = "current_setting('synchronous_commit') IN ('off', 'local')"
        timeout = f"set_config('lock_timeout', '{max(1, round(self.wait * 1000))}ms', true)"
        connection.exec_driver_sql(f"SELECT {timeout}")
        connection.exec_driver_sql(
            f"SELECT set_config('synchronous_commit', 'on', true) WHERE {lazy}"
        )
        turn = sa.func.pg_advisory_xact_lock(_number("depsue ledger"))
        connection.execute(sa.select(turn))

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """Turn what a driver says into the rule, the value and the cure."""
        try:
            yield
        except (SQLAlchemyError, sqlite3.Error, OSError) as problem:
            words = " ".join(str(getattr(problem, "orig", None) or problem).split())[:200]
            rule = "the ledger's database must answer"
            cure = f"check that it runs and that the address is right, {_AGAIN}"
            for said, broken, mended in _PROBLEMS:
                if any(one in words.lower() for one in said):
                    rule, cure = broken, mended
                    break
            raise FileError(rule, found=f"{self.name}: {words}", cure=cure) from problem


def shown(url: sa.URL) -> str:
    """An address without its password."""
    if url.get_backend_name() == "sqlite":
        return url.database or "memory"
    hidden = {name: "hidden" for name in url.query if "password" in name}
    return url.update_query_dict(hidden).render_as_string(hide_password=True)


def _number(name: str) -> int:
    """A name as a number of 63 bits."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") >> 1


def _prepare(connection: Any, _: object) -> None:
    connection.isolation_level = None  # transactions begin where `_begin` says so
    for pragma in _PRAGMAS:
        connection.execute(f"PRAGMA {pragma}").fetchall()


def _begin(connection: sa.Connection) -> None:
    writing = connection.get_execution_options().get("depsue_writing", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writing else "BEGIN")
