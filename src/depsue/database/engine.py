"""From an address to connections: durable commits, one writer where one is wanted, clear errors.

**Durability.** SQLite versions before 3.51.3 can corrupt a database in WAL mode when several
connections write and checkpoint. So a database that several processes write to runs with the
rollback journal (`ROLLBACK_JOURNAL`), and one that a single connection writes to may run with the
write-ahead log (`WRITE_AHEAD_LOG`) while everybody else opens it read-only. Both sync each commit.
On PostgreSQL commits wait for the disk, whatever the server's default is.

**Connections.** None is pooled: after a lost server or a full disk the next call starts afresh.

**Errors.** Whatever a driver raises becomes a `FileError` with rule, value and cure. Passwords
never stand in one.
"""

from __future__ import annotations

import errno
import hashlib
import re
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool, Pool, StaticPool

from depsue.errors import ConfigError, FileError, require, short
from depsue.files import hold_file, hold_thread

ROLLBACK_JOURNAL = (
    "journal_mode = DELETE",
    "synchronous = EXTRA",  # FULL, and the folder is synced too once the journal is gone
    "foreign_keys = ON",
    "recursive_triggers = ON",  # so that REPLACE meets the trigger that refuses to delete
)
"""For several writers, one at a time, that write rarely."""

WRITE_AHEAD_LOG = (
    "journal_mode = WAL",
    "synchronous = FULL",
    "cache_size = -65536",
)
"""For one writing connection that commits all the time, and readers beside it."""


@dataclass(frozen=True)
class Profile:
    """How a kind of database is used, and what it is called in messages.

    Args:
        what: "ledger", say.
        pragmas: of SQLite, on every connection that may write.
        connect_timeout: seconds that PostgreSQL may take to answer, where the address says none.
        again: what a cure ends with: what happens once the database answers again.
        error: what is raised when it does not answer.
    """

    what: str
    pragmas: tuple[str, ...]
    connect_timeout: int
    again: str
    error: type[FileError] = FileError


class Database:
    """An address, and connections to it.

    Args:
        url: SQLite (a file, or memory without a name) or PostgreSQL, see `parse_address`.
        profile: how it is used.
        wait: seconds that a write waits for its turn.
        read_only: whether SQLite itself refuses to write.
    """

    kind: Literal["memory", "sqlite", "postgresql"]

    def __init__(
        self, url: sa.URL, profile: Profile, *, wait: float, read_only: bool = False
    ) -> None:
        self.url, self.profile, self.wait = url, profile, wait
        self.name = _without_password(url)
        self._turn: AbstractContextManager[Any] = nullcontext()
        if url.get_backend_name() == "postgresql":
            self.kind = "postgresql"
            self._engine = self._postgresql_engine()
        else:
            self.kind = "sqlite" if url.database else "memory"
            self._engine = self._sqlite_engine(read_only)

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """A transaction that reads, on a connection of its own."""
        with self._turn, self.translating(), self._engine.connect() as connection:
            with connection.begin():
                yield connection

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """A transaction that writes, alone: all of it is on disk afterwards, or none."""
        with self._turn, self.translating(), self._engine.connect() as connection:
            connection.execution_options(**_WRITING)
            with connection.begin():
                if self.kind == "postgresql":
                    self._take_turn(connection)
                yield connection

    def connect(self, *, writing: bool) -> sa.Connection:
        """A connection for many transactions; whoever asked closes it."""
        with self.translating():
            connection = self._engine.connect()
            return connection.execution_options(**_WRITING) if writing else connection

    @contextmanager
    def within(self, connection: sa.Connection) -> Iterator[None]:
        """One transaction on a connection that is kept; after a failure it is of no more use."""
        with self.translating():
            try:
                with connection.begin():
                    yield
            except (SQLAlchemyError, OSError):
                connection.invalidate()
                raise

    @contextmanager
    def hold(self, name: str) -> Iterator[bool]:
        """Hold a name until the block, or the process, ends; False if another does."""
        with ExitStack() as stack:
            with self.translating():
                held = stack.enter_context(self._holding(name))
            yield held

    def close(self) -> None:
        """Close what is open."""
        self._engine.dispose()

    @contextmanager
    def translating(self) -> Iterator[None]:
        """Turn what a driver says into the rule, the value and the cure."""
        try:
            yield
        except (SQLAlchemyError, sqlite3.Error, OSError) as problem:
            cause = getattr(problem, "orig", None) or problem
            words = " ".join(str(cause).split())[:200] or type(cause).__name__
            rule, cure = _rule_and_cure(cause, self.profile)
            raise self.profile.error(rule, found=f"{self.name}: {words}", cure=cure) from problem

    def _sqlite_engine(self, read_only: bool) -> sa.Engine:
        url, pragmas = self.url, self.profile.pragmas
        pool: type[Pool] = NullPool
        if self.kind == "memory":  # one connection, which threads share in turns
            pool, self._turn = StaticPool, threading.RLock()
        elif read_only:
            place = Path(self.name).as_uri()
            url, pragmas = url.set(database=place, query=_READ_ONLY), ("query_only = ON",)
        arguments = {"timeout": self.wait, "check_same_thread": False}
        engine = sa.create_engine(url, poolclass=pool, connect_args=arguments)
        sa.event.listen(engine, "connect", _prepare_sqlite(pragmas))
        sa.event.listen(engine, "begin", _begin_sqlite)
        return engine

    def _postgresql_engine(self) -> sa.Engine:
        url = self.url
        if "connect_timeout" not in url.query:
            url = url.update_query_dict({"connect_timeout": str(self.profile.connect_timeout)})
        try:
            # READ COMMITTED: after waiting for its turn, a statement sees what others wrote.
            engine = sa.create_engine(url, poolclass=NullPool, isolation_level="READ COMMITTED")
        except ModuleNotFoundError as problem:
            raise ConfigError(
                f"a {self.profile.what} on PostgreSQL needs psycopg",
                found=str(problem),
                cure="pip install 'depsue[postgres]'",
            ) from problem
        sa.event.listen(engine, "connect", _wait_for_the_disk)
        return engine

    def _holding(self, name: str) -> AbstractContextManager[bool]:
        if self.kind == "memory":
            return hold_thread(f"{id(self)} {name}")
        if self.kind == "sqlite":
            return hold_file(f"{self.url.database}.{_number(name):x}.lock")
        return self._hold_session(name)

    @contextmanager
    def _hold_session(self, name: str) -> Iterator[bool]:
        with self._engine.connect() as connection:
            connection.execution_options(isolation_level="AUTOCOMMIT")
            lock = sa.func.pg_try_advisory_lock(_number(name))
            yield bool(connection.scalar(sa.select(lock)))

    def _take_turn(self, connection: sa.Connection) -> None:
        """Wait for other writers, up to `wait` seconds."""
        timeout = f"set_config('lock_timeout', '{max(1, round(self.wait * 1000))}ms', true)"
        connection.exec_driver_sql(f"SELECT {timeout}")
        turn = sa.func.pg_advisory_xact_lock(_number(f"depsue {self.profile.what}"))
        connection.execute(sa.select(turn))


def parse_address(address: str | Path, what: str) -> sa.URL:
    """An address as a URL; a path becomes absolute, and no message shows a password.

    Args:
        address: a path or sqlite:///path for SQLite, ":memory:" for a database that ends with the
            process, postgresql://user:password@host/database for PostgreSQL.
        what: of what, for messages: "ledger", say.
    """
    text = str(address)
    require(bool(text.strip()), f"a {what} has an address", found=short(text), cure="name a file")
    scheme = re.match(r"[A-Za-z0-9+]+(?=://)", text)
    if isinstance(address, Path) or scheme is None:
        return _file(None if text == ":memory:" else text, what)
    try:
        url = sa.make_url(text)
    except Exception:  # whatever it says may quote the password
        url = None
    if url is not None and url.drivername == "sqlite" and not url.query and not url.host:
        return _file(None if url.database in (None, "", ":memory:") else url.database, what)
    if url is not None and url.drivername in ("postgres", "postgresql", "postgresql+psycopg"):
        return url.set(drivername="postgresql+psycopg")
    raise ConfigError(
        f"a {what}'s address is a path, sqlite:///path or postgresql://user@host/database",
        found=f"{scheme[0]}://...",
        cure="write / @ : in a password as %2F %40 %3A",
    ) from None


def _file(path: str | None, what: str) -> sa.URL:
    if path is None:
        return sa.URL.create("sqlite")
    require(
        not path.startswith("file:") and "\0" not in path,
        f"a {what}'s file is named by a plain path",
        found=short(path),
    )
    return sa.URL.create("sqlite", database=str(Path(path).absolute()))


def _without_password(url: sa.URL) -> str:
    if url.get_backend_name() == "sqlite":
        return url.database or "memory"
    hidden = {name: "hidden" for name in url.query if "password" in name}
    return url.update_query_dict(hidden).render_as_string(hide_password=True)


def _number(name: str) -> int:
    """A name as a number of 63 bits."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") >> 1


# The same trouble by the names of SQLite's result codes, of errno and of PostgreSQL's SQLSTATE.
_DAMAGED = {"SQLITE_NOTADB", "SQLITE_CORRUPT"}
_FORBIDDEN = {
    *("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM"),
    *("EACCES", "EPERM", "EROFS", "ENOENT", "ENOTDIR"),
    *("42501", "25006"),
}
_FULL = {"SQLITE_FULL", "SQLITE_IOERR", "ENOSPC", "EDQUOT", "53100"}
_LOCKED = {"SQLITE_BUSY", "SQLITE_LOCKED", "55P03"}


def _rule_and_cure(cause: BaseException, profile: Profile) -> tuple[str, str]:
    what, again, code = profile.what, profile.again, _code(cause)
    if code in _DAMAGED:
        return (
            f"a {what}'s file must be a whole SQLite database",
            "check the path, or restore the file from a copy; it was not touched",
        )
    if code in _FORBIDDEN:
        return (
            f"a {what} must be where it can be written to",
            f"check the folder and its rights{again}",
        )
    if code in _FULL:
        return "there must be room on the disk", f"make room or mend the disk{again}"
    if code in _LOCKED:
        return (
            f"one process writes to a {what} at a time",
            "wait for the other one, and try again",
        )
    return f"the {what} must answer", f"check that it runs and that the address is right{again}"


def _code(cause: BaseException) -> str:
    if isinstance(cause, OSError):
        return errno.errorcode.get(cause.errno or 0, "")
    if isinstance(cause, sqlite3.Error):  # SQLITE_IOERR_WRITE is one kind of SQLITE_IOERR
        return "_".join(getattr(cause, "sqlite_errorname", "").split("_")[:2])
    return getattr(cause, "sqlstate", None) or ""


_READ_ONLY = {"mode": "ro", "uri": "true"}
_WRITING: dict[str, Any] = {"depsue_writing": True}
"""The option that tells `_begin_sqlite` that a transaction will write."""


def _prepare_sqlite(pragmas: tuple[str, ...]) -> Any:
    def prepare(connection: Any, _: object) -> None:
        connection.isolation_level = None  # transactions begin where `_begin_sqlite` says so
        for pragma in pragmas:
            connection.execute(f"PRAGMA {pragma}").fetchall()

    return prepare


def _begin_sqlite(connection: sa.Connection) -> None:
    # A transaction that writes takes the lock at once: one that began by reading may find that
    # another has written meanwhile, and SQLite refuses it without waiting.
    writing = connection.get_execution_options().get("depsue_writing", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writing else "BEGIN")


def _wait_for_the_disk(connection: Any, _: object) -> None:
    lazy = "current_setting('synchronous_commit') IN ('off', 'local')"
    connection.execute(f"SELECT set_config('synchronous_commit', 'on', false) WHERE {lazy}")
    connection.commit()
