"""The databases under the ledger and the store: connections, durable commits, schema versions.

**Durability.** SQLite versions before 3.51.3 can corrupt a database in WAL mode when several
connections write and checkpoint. So a database that several processes write to runs with the
rollback journal (`ROLLBACK_JOURNAL`), and one that a single connection writes to may run with the
write-ahead log (`WRITE_AHEAD_LOG`) while everybody else opens it read-only. Both sync each commit.
On PostgreSQL commits wait for the disk, whatever the server's default is.

**Connections.** None is pooled: after a lost server or a full disk the next call starts afresh.

**Errors.** Whatever a driver raises becomes a `FileError` with rule, value and cure. Passwords
never stand in one.

**Versions.** A migration and the record of it share one transaction. Version i of a schema is what
its first i migrations make. A migration that was released is never edited: a change of the schema
is a new one at the end. A database of a newer version, or a file that holds something else, is
refused and not touched.
"""

from __future__ import annotations

import errno
import hashlib
import re
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy.exc import DataError, IntegrityError, SQLAlchemyError
from sqlalchemy.pool import NullPool, Pool, StaticPool

from depsue._version import __version__
from depsue.errors import ConfigError, FileError, require, short
from depsue.files import file_id, hold_file, hold_thread

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


class Unstorable(FileError):
    """What was to be written is what no such database, or file, can hold; it works as before."""


def refuses(problem: BaseException) -> bool:
    """Whether a database refused what was to be written, rather than fail itself."""
    return isinstance(problem, IntegrityError | DataError)


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
        self._file: tuple[int, int] | None = None
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
            if writing and self.kind == "sqlite":
                self._file = file_id(self.url.database or "")
            return connection.execution_options(**_WRITING) if writing else connection

    def require_file(self, *, same: bool = True) -> None:
        """Refuse to go on where the file was removed or replaced: SQLite would not notice.

        What is committed to a file without a name is gone with the process. Only a connection that
        writes (`connect`) makes the file one to be held to.

        Args:
            same: whether it must be the file that was connected to; else any of its name will do.
        """
        if self._file is None:
            return
        now = file_id(self.url.database or "")
        if now is None or (same and now != self._file):
            raise self.profile.error(
                f"the file of a {self.profile.what} stays where it is while it is written to",
                found=f"{self.name} was {'removed' if now is None else 'replaced'}",
                cure="put the file back where it was" + self.profile.again,
            )

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
            if refuses(problem):
                rule = f"the {self.profile.what} must be able to hold what is written to it"
                cure = "send other values; nothing was written"
                words = str(cause).partition("\n")[0][:200]  # more lines may quote the row
                raise Unstorable(rule, found=f"{self.name}: {words}", cure=cure) from problem
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


@dataclass(frozen=True)
class Schema:
    """The tables of one kind of database, version by version.

    Args:
        versions: the table with a row for each migration that was run.
        migrations: in their order.
        unversioned: tables that were made before there were versions; the first migration takes
            them over as they are.
        finish: is called after each migration, with the names of the tables that it made.
        absent: what to do where there is none, in a message.
    """

    versions: sa.TableClause
    migrations: tuple[Migration, ...]
    unversioned: frozenset[str] = frozenset()
    finish: Callable[[sa.Connection, list[str]], None] | None = None
    absent: str = "check the address"


@dataclass(frozen=True)
class Migration:
    """The statements that lead from one version to the next.

    `{counter}` stands for a counted key that never repeats, `{serial}` for one that is cheaper and
    may repeat the key of a newest row that was deleted, `{without_rowid}` for the end of a SQLite
    table that is stored by its primary key.

    Args:
        both: run on both databases, first.
        sqlite, postgresql: run on one of them, afterwards.
    """

    both: tuple[str, ...] = ()
    sqlite: tuple[str, ...] = ()
    postgresql: tuple[str, ...] = ()

    def statements(self, backend: str) -> list[str]:
        """What runs on this database."""
        chosen = (*self.both, *(self.postgresql if backend == "postgresql" else self.sqlite))
        for name, value in _WORDS[backend].items():
            chosen = tuple(text.replace(name, value) for text in chosen)
        return list(chosen)


_WORDS = {
    "sqlite": {
        "{counter}": "INTEGER PRIMARY KEY AUTOINCREMENT",
        "{serial}": "INTEGER PRIMARY KEY",
        "{without_rowid}": "WITHOUT ROWID",
    },
    "postgresql": {
        "{counter}": "BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY",
        "{serial}": "BIGSERIAL PRIMARY KEY",
        "{without_rowid}": "",
    },
}


def table(name: str, columns: str) -> sa.TableClause:
    """A table as queries see it: its name, and the names of its columns in one text."""
    return sa.table(name, *(sa.column(column) for column in columns.split()))


def migrate(database: Database, schema: Schema, *, create: bool = True) -> None:
    """Bring a database to the newest version.

    Args:
        database: where.
        schema: its tables.
        create: whether to make the tables where there are none.
    """
    newest = len(schema.migrations)
    for step in range(schema_version(database, schema, create=create), newest):
        with database.writing() as connection:  # another process may have been faster
            if _version(connection, database, schema, create) == step:
                _apply(connection, schema, step)


def schema_version(database: Database, schema: Schema, *, create: bool = False) -> int:
    """The version of a database; refuses one that is newer, or that holds something else.

    Args:
        database: where.
        schema: its tables.
        create: whether a database without tables is fine, too; its version is 0.
    """
    with database.reading() as connection:
        return _version(connection, database, schema, create)


def _version(connection: sa.Connection, database: Database, schema: Schema, create: bool) -> int:
    what, newest = database.profile.what, len(schema.migrations)
    tables = set(sa.inspect(connection).get_table_names())
    if schema.versions.name in tables:
        version = int(connection.scalar(sa.select(sa.func.max(schema.versions.c.version))) or 0)
        if version > newest:
            raise FileError(
                f"a {what} must be of a version that this depsue knows, {newest} or older",
                found=f"version {version} in {database.name}",
                cure=f"install a newer depsue; the {what} was not touched",
            )
        return version
    if not create and not tables & schema.unversioned:
        raise database.profile.error(
            f"there must be a {what}", found=f"none in {database.name}", cure=schema.absent
        )
    others = sorted(tables - schema.unversioned)
    if others and database.kind != "postgresql":
        raise FileError(
            f"a {what} has its file to itself",
            found=f"{database.name} holds {', '.join(others[:3])}",
            cure="name another file; this one was not touched",
        )
    return 0


def _apply(connection: sa.Connection, schema: Schema, step: int) -> None:
    """Run the migration from version `step` to the next, and record it."""
    before = set(sa.inspect(connection).get_table_names())
    if step == 0:
        connection.exec_driver_sql(
            f"CREATE TABLE {schema.versions.name} (version INTEGER NOT NULL PRIMARY KEY,"
            " at TEXT NOT NULL, depsue TEXT NOT NULL)"
        )
    for statement in schema.migrations[step].statements(connection.dialect.name):
        connection.exec_driver_sql(statement)
    if schema.finish is not None:
        new_tables = sorted(set(sa.inspect(connection).get_table_names()) - before)
        schema.finish(connection, new_tables)
    now = datetime.now(UTC).isoformat(timespec="microseconds")
    row = {"version": step + 1, "at": now, "depsue": __version__}
    connection.execute(schema.versions.insert().values(**row))


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
