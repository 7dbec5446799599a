"""Old ledgers are brought up to date, newer ones are left alone, and nothing is done by halves."""

from __future__ import annotations

import hashlib
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa
from tests.database.conftest import Server

from depsue.database import Migration, migrate
from depsue.errors import FileError
from depsue.ledger import Ledger, open_ledger
from depsue.ledger.schema import SCHEMA
from depsue.testing.ledger_steps import start

FIRST = "ALTER TABLE depsue_campaigns ADD COLUMN colour TEXT"
NEXT = replace(
    SCHEMA,
    migrations=(
        *SCHEMA.migrations,
        Migration(both=(FIRST, "CREATE TABLE depsue_extras (id {counter}, word TEXT)")),
    ),
)
BROKEN = replace(
    SCHEMA,
    migrations=(
        *SCHEMA.migrations,
        Migration(
            both=(FIRST,),
            sqlite=("CREATE TABLE broken (",),
            postgresql=("CREATE TABLE broken (id of_no_kind)",),
        ),
    ),
)


KNOWN = list(range(1, len(SCHEMA.migrations) + 1))
"""The versions of a ledger that is up to date."""


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "ledger.db")
    server: Server = request.getfixturevalue("postgres")
    return server.new_schema()


def _versions(ledger: Ledger) -> list[int]:
    with ledger.database.reading() as connection:
        return list(connection.scalars(sa.select(SCHEMA.versions.c.version)))


def test_an_older_ledger_is_migrated_and_keeps_its_rows(address: str) -> None:
    ledger = open_ledger(address)
    start(ledger)
    before = ledger.journal()
    migrate(ledger.database, NEXT, create=False)
    migrate(ledger.database, NEXT, create=False)
    assert _versions(ledger) == [*KNOWN, len(KNOWN) + 1] and ledger.journal() == before
    with ledger.database.writing() as connection:
        connection.exec_driver_sql("INSERT INTO depsue_extras (word) VALUES ('a')")
    with pytest.raises(FileError, match="append-only"), ledger.database.writing() as connection:
        connection.exec_driver_sql("DELETE FROM depsue_extras")


def test_a_migration_that_fails_leaves_nothing_behind(address: str) -> None:
    ledger = open_ledger(address)
    start(ledger)
    with pytest.raises(FileError):
        migrate(ledger.database, BROKEN, create=False)
    assert _versions(ledger) == KNOWN
    with ledger.database.reading() as connection:
        names = [c["name"] for c in sa.inspect(connection).get_columns("depsue_campaigns")]
    assert "colour" not in names
    migrate(ledger.database, NEXT, create=False)
    assert _versions(ledger) == [*KNOWN, len(KNOWN) + 1]


def test_a_newer_ledger_is_refused_and_not_touched(address: str, tmp_path: Path) -> None:
    ledger = open_ledger(address)
    start(ledger)
    with ledger.database.writing() as connection:
        connection.execute(SCHEMA.versions.insert().values(version=99, at="later", depsue="9.0"))
    before = _bytes(tmp_path)
    with pytest.raises(
        FileError, match=rf"knows, {len(KNOWN)} or older\. Found: version 99 in .*newer depsue"
    ):
        open_ledger(address)
    assert _bytes(tmp_path) == before
    assert _versions(ledger) == [*KNOWN, 99]


def test_a_file_of_something_else_is_refused_and_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "photos.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE photos (name TEXT)")
    connection.close()
    before = _bytes(tmp_path)
    with pytest.raises(FileError, match="file to itself.*holds photos.*another file"):
        open_ledger(path)
    assert _bytes(tmp_path) == before


def test_a_database_may_be_shared_with_others(postgres: Server) -> None:
    address = postgres.new_database()
    url = sa.make_url(address).set(drivername="postgresql+psycopg")
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE photos (name TEXT)")
    engine.dispose()
    start(open_ledger(address))


def test_where_none_is_wanted_none_is_made(address: str, tmp_path: Path) -> None:
    with pytest.raises(FileError, match="there must be a ledger.*create a campaign"):
        open_ledger(address, create=False)
    assert list(tmp_path.iterdir()) == []


def _bytes(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}
