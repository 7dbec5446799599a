"""Old ledgers are brought up to date, newer ones are left alone, and nothing is done by halves."""

from __future__ import annotations

import hashlib
import sqlite3
from pathlib import Path

import pytest
import sqlalchemy as sa
from tests.ledger.conftest import Server

from depsue.errors import FileError
from depsue.ledger import Ledger, open_ledger, tables
from depsue.ledger.migrations import MIGRATIONS, migrate
from depsue.testing.ledgers import start

NEXT = (
    "ALTER TABLE depsue_campaigns ADD COLUMN colour TEXT",
    "CREATE TABLE depsue_extras (id {key}, word TEXT)",
)
BROKEN = (NEXT[0], "CREATE TABLE depsue_extras (id nonsense of a kind that is no kind)")


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "ledger.db")
    server: Server = request.getfixturevalue("postgres")
    return server.new_schema()


def _versions(ledger: Ledger) -> list[int]:
    with ledger.database.reading() as connection:
        return list(connection.scalars(sa.select(tables.schema.c.version)))


def test_queries_know_the_columns_that_migrations_make(address: str) -> None:
    ledger = open_ledger(address)
    with ledger.database.reading() as connection:
        inspector = sa.inspect(connection)
        for table in (tables.schema, *tables.RECORDS):
            made = [column["name"] for column in inspector.get_columns(table.name)]
            assert made == [column.name for column in table.c]
        names = {table.name for table in (tables.schema, *tables.RECORDS)}
        assert set(inspector.get_table_names()) == names


def test_an_older_ledger_is_migrated_and_keeps_its_rows(address: str) -> None:
    ledger = open_ledger(address)
    start(ledger)
    before = ledger.journal()
    migrate(ledger.database, create=False, migrations=(*MIGRATIONS, NEXT))
    migrate(ledger.database, create=False, migrations=(*MIGRATIONS, NEXT))
    assert _versions(ledger) == [1, 2] and ledger.journal() == before
    with ledger.database.writing() as connection:
        connection.exec_driver_sql("INSERT INTO depsue_extras (word) VALUES ('a')")
    with pytest.raises(FileError, match="append-only"), ledger.database.writing() as connection:
        connection.exec_driver_sql("DELETE FROM depsue_extras")


def test_a_migration_that_fails_leaves_nothing_behind(address: str) -> None:
    ledger = open_ledger(address)
    start(ledger)
    broken = BROKEN if "postgres" in address else (*BROKEN[:1], "CREATE TABLE broken (")
    with pytest.raises(FileError):
        migrate(ledger.database, create=False, migrations=(*MIGRATIONS, broken))
    assert _versions(ledger) == [1]
    with ledger.database.reading() as connection:
        names = [c["name"] for c in sa.inspect(connection).get_columns("depsue_campaigns")]
    assert "colour" not in names
    migrate(ledger.database, create=False, migrations=(*MIGRATIONS, NEXT))
    assert _versions(ledger) == [1, 2]


def test_a_newer_ledger_is_refused_and_not_touched(address: str, tmp_path: Path) -> None:
    ledger = open_ledger(address)
    start(ledger)
    with ledger.database.writing() as connection:
        connection.execute(tables.schema.insert().values(version=7, at="later", depsue="9.0"))
    before = _bytes(tmp_path)
    with pytest.raises(FileError, match=r"knows, 1 or older\. Found: version 7 in .*newer depsue"):
        open_ledger(address)
    assert _bytes(tmp_path) == before
    assert _versions(ledger) == [1, 7]


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
