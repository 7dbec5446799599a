"""What goes wrong under a ledger: a clear error, nothing lost, and the next try works.

And addresses: which are taken, which refused, and that no password is ever shown.
"""

from __future__ import annotations

import errno
import os
import resource
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from sqlalchemy.exc import DBAPIError
from tests.database.conftest import PASSWORD, Server

from depsue.errors import ConfigError, DepsueError, FileError
from depsue.ledger import Ledger, open_ledger
from depsue.testing.ledger_steps import observe, sha, start


def _works(ledger: Ledger, name: str = "autumn") -> None:
    before = len(ledger.journal())
    start(ledger, name)
    assert len(ledger.journal()) == before + 5


# what drivers say


@pytest.mark.parametrize(
    ("problem", "rule", "cure"),
    [
        (OSError(errno.ENOSPC, "No space left"), "there must be room on the disk", "make room"),
        (psycopg.errors.DiskFull("no room"), "there must be room on the disk", "make room"),
        (OSError(errno.EACCES, "denied"), "a ledger must be where it can be", "check the folder"),
        (psycopg.errors.ReadOnlySqlTransaction("no"), "a ledger must be where", "check the folder"),
        (psycopg.errors.LockNotAvailable("no"), "one process writes to a ledger", "wait for the"),
        (psycopg.OperationalError("no answer"), "the ledger must answer", "check that it runs"),
    ],
)
def test_each_trouble_has_its_rule_and_cure(problem: Exception, rule: str, cure: str) -> None:
    said = problem if isinstance(problem, OSError) else DBAPIError("SELECT 1", {}, problem)
    with pytest.raises(FileError, match=rf"{rule}.*Found: memory: .*Cure: {cure}"):
        with open_ledger(":memory:").database.translating():
            raise said


# SQLite


def test_sqlite_runs_as_promised(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.close()
    with open_ledger(path, wait=7.0).database.writing() as inside:
        settings = {
            name: inside.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        }
    expected = {"journal_mode": "delete", "synchronous": 3, "foreign_keys": 1, "busy_timeout": 7000}
    assert settings == expected


@pytest.mark.parametrize("content", [b"these are holiday photos " * 99, b"SQLite format 3\0" * 99])
def test_no_database_is_refused_and_not_touched(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "photos"
    path.write_bytes(content)
    with pytest.raises(FileError, match="whole SQLite database.*restore"):
        open_ledger(path)
    assert path.read_bytes() == content and len(list(tmp_path.iterdir())) == 1


def test_a_damaged_ledger_is_told(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    start(open_ledger(path))
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    path.write_bytes(content)
    with pytest.raises(FileError, match="whole SQLite database.*from a copy"):
        open_ledger(path).journal()


def test_a_folder_that_is_missing_or_is_the_file(tmp_path: Path) -> None:
    for path in (tmp_path / "missing" / "ledger.db", tmp_path):
        with pytest.raises(FileError, match="can be written to.*check the folder"):
            open_ledger(path)


@contextmanager
def _as_nobody() -> Iterator[None]:
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


def test_a_read_only_folder_is_told_and_can_be_read() -> None:
    folder = Path(tempfile.mkdtemp(prefix="depsue-ledger-"))
    try:
        path = folder / "ledger.db"
        ledger = open_ledger(path)
        start(ledger)
        with ledger.hold("spring", 1):  # all modules are loaded by now
            pass
        path.chmod(0o444)
        folder.chmod(0o555)
        with _as_nobody():
            assert len(open_ledger(path).journal()) == 5
            with pytest.raises(FileError, match="can be written to.*rights"):
                _works(ledger)
            with pytest.raises(FileError, match="can be written to.*rights"):
                open_ledger(folder / "other.db")
            with pytest.raises(FileError, match="can be written to.*Permission denied"):
                with ledger.hold("spring", 1):
                    pass
        folder.chmod(0o755)
        path.chmod(0o644)
        _works(ledger)
    finally:
        shutil.rmtree(folder)


def test_a_full_disk_is_told_and_nothing_is_half_written(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    ledger = open_ledger(path)
    start(ledger)
    before, limits = ledger.journal(), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size, limits[1]))
    try:
        with pytest.raises(FileError, match="room on the disk.*try again"):
            ledger.create_campaign("big", rounds=1, settings={"a": "x" * 100_000}, by="ana")
        assert ledger.journal() == before
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert ledger.journal() == before
    _works(ledger)


def test_a_writer_that_stays_too_long_is_told(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    start(open_ledger(path))
    with open_ledger(path).database.writing():
        impatient = open_ledger(path, wait=0.05)
        assert len(impatient.journal()) == 5
        with pytest.raises(FileError, match="one process writes.*try again"):
            _works(impatient)
    _works(open_ledger(path))


# both


INSIDE = """
import sys
from depsue.ledger import open_ledger
from depsue.ledger import schema
from depsue.ledger.transaction import Transaction
with open_ledger(sys.argv[1]).database.writing() as connection:
    transaction = Transaction(connection, "child")
    for n in range(300):  # more than the cache keeps: pages are on disk
        values = {"name": f"half {n}", "rounds": 1, "retries": 0, "settings": "x" * 20_000}
        transaction.add(schema.campaigns, "campaign", "", values)
    print("inside", flush=True)
    sys.stdin.readline()
"""


@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
def test_kill_9_within_a_transaction_leaves_nothing_of_it(
    backend: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    address = str(tmp_path / "ledger.db")
    if backend == "postgres":
        server: Server = request.getfixturevalue("postgres")
        address = server.new_schema()
    ledger = open_ledger(address)
    start(ledger)
    before = ledger.journal()
    command = [sys.executable, "-c", INSIDE, address]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"inside\n"
        process.kill()
        process.wait()
    if backend == "sqlite":
        assert (tmp_path / "ledger.db-journal").exists(), "it was killed with pages on disk"
    assert open_ledger(address).journal() == before
    _works(ledger)


# PostgreSQL


def test_a_lost_connection_within_a_transaction(postgres: Server) -> None:
    ledger = open_ledger(postgres.new_schema())
    start(ledger)
    before = ledger.journal()
    with pytest.raises(FileError, match="must answer.*found, not written twice"):
        with ledger.database.writing() as connection:
            with ledger.database.reading() as other:
                pid = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar()
                other.exec_driver_sql(f"SELECT pg_terminate_backend({pid})")
            connection.exec_driver_sql("SELECT 1")
    assert ledger.journal() == before
    _works(ledger)


def test_a_server_that_crashes_and_comes_back(postgres: Server) -> None:
    ledger = open_ledger(postgres.new_schema())
    start(ledger)
    before = ledger.journal()
    with ledger.reads("spring", 1, sha("p1"), by="ana") as reads:
        assert reads.begin(sha("d0")) == 1
        postgres.stop()
        for call in (ledger.journal, lambda: observe(ledger, "spring", 0, "d0")):
            with pytest.raises(FileError, match="must answer.*refused.*try again"):
                call()
        postgres.start()
        assert reads.begin(sha("d0")) == 1
    assert ledger.journal()[:-2] == before
    assert [line.what for line in ledger.journal()[-2:]] == ["read", "read continued"]
    _works(ledger)


def test_a_postgres_writer_that_stays_too_long_is_told(postgres: Server) -> None:
    address = postgres.new_schema()
    start(open_ledger(address))
    with open_ledger(address).database.writing():
        with pytest.raises(FileError, match="one process writes.*try again"):
            _works(open_ledger(address, wait=0.05))
    _works(open_ledger(address))


def test_commits_wait_for_the_disk_whatever_the_default(postgres: Server) -> None:
    address = postgres.new_database() + "?options=-csynchronous_commit%3Doff"
    with open_ledger(address).database.writing() as connection:
        assert connection.exec_driver_sql("SHOW synchronous_commit").scalar() == "on"


def test_an_account_that_may_only_read_and_insert_is_enough(postgres: Server) -> None:
    address = postgres.new_database()
    owner = open_ledger(address)
    with owner.database.writing() as connection:
        connection.exec_driver_sql("DROP ROLE IF EXISTS clerk")
        connection.exec_driver_sql(f"CREATE ROLE clerk LOGIN PASSWORD '{PASSWORD}'")
        connection.exec_driver_sql("GRANT SELECT, INSERT ON ALL TABLES IN SCHEMA public TO clerk")
    clerk = open_ledger(address.replace("//depsue:", "//clerk:"))
    _works(clerk)
    with clerk.reads("autumn", 1, sha("p1"), by="cy") as reads:
        assert reads.begin(sha("d0")) == 1
    with pytest.raises(FileError, match="must be owner"):
        with clerk.database.writing() as connection:
            connection.exec_driver_sql("DROP TRIGGER append_only ON depsue_journal")
    with owner.database.writing() as connection:
        connection.exec_driver_sql("DROP OWNED BY clerk; DROP ROLE clerk")


# addresses


def test_a_path_and_its_url_are_the_same_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    start(open_ledger(Path("ledger.db")))
    for address in ("ledger.db", "sqlite:///ledger.db", f"sqlite:///{tmp_path}/ledger.db"):
        assert len(open_ledger(address, create=False).campaigns()) == 1


def test_a_relative_path_outlives_a_change_of_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ledger = open_ledger("ledger.db")
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    start(ledger)
    with ledger.hold("spring", 1):
        assert list((tmp_path / "below").iterdir()) == []
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["ledger.db"]


@pytest.mark.parametrize("address", [":memory:", "sqlite://", "sqlite:///:memory:"])
def test_memory_is_a_ledger_of_its_own(address: str, tmp_path: Path) -> None:
    first, second = open_ledger(address), open_ledger(address)
    start(first)
    assert second.campaigns() == () and repr(first) == "Ledger('memory')"


@pytest.mark.parametrize("name", ["a b?c#d%20.db", "ünï.db", "postgresql"])
def test_odd_names_of_files(name: str, tmp_path: Path) -> None:
    start(open_ledger(tmp_path / name))
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg"])
def test_schemes_of_postgres(scheme: str, postgres: Server) -> None:
    address = postgres.new_database().replace("postgresql", scheme)
    assert open_ledger(address).campaigns() == ()


@pytest.mark.parametrize(
    "address",
    [
        "mysql://ana:s3cret-word@host/db",
        "postgresql+psycopg2://ana:s3cret-word@host/db",
        "postgresql://ana:s3cret-word/with@host:99999x/db",
        "postgresql://ana:pa:s3cret-word@host:port/db",
        "sqlite://ana:s3cret-word@host/file.db",
        "sqlite:///file.db?key=s3cret-word",
    ],
)
def test_other_addresses_are_refused_without_a_password(address: str) -> None:
    with pytest.raises(ConfigError, match="path, sqlite:///path or postgresql://") as caught:
        open_ledger(address)
    assert "s3cret" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("address", ["", " ", "file:ledger.db?mode=ro", "a\0b"])
def test_no_path_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match="address|plain path"):
        open_ledger(address)


def test_an_error_of_the_server_shows_no_password(postgres: Server) -> None:
    right = postgres.new_database()
    for address in (
        right.replace(PASSWORD, "wr0ng-word"),
        right.replace(f":{PASSWORD}@", "@") + "?password=wr0ng-word",
        right.replace(str(postgres.port), "1"),
        right + "_missing",
    ):
        with pytest.raises(FileError, match="must answer.*Cure: check that it runs") as caught:
            open_ledger(address)
        said = "".join(traceback.format_exception(caught.value))
        assert "wr0ng" not in said and PASSWORD not in said
        assert "depsue:***@" in said or "password=hidden" in said
    assert PASSWORD not in repr(open_ledger(right)) + str(vars(open_ledger(right)))


def test_without_psycopg_the_cure_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ConfigError, match=r"needs psycopg.*pip install 'depsue\[postgres\]'"):
        open_ledger("postgresql://host/db")


def test_wait_is_positive() -> None:
    for wait in (0.0, -1.0, float("nan")):
        with pytest.raises(DepsueError, match="wait must be positive"):
            open_ledger(":memory:", wait=wait)
