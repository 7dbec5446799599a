"""The tables: append-only, as queries see them, and as earlier versions left them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from tests.database.conftest import Server, load_sqlite

from depsue.errors import FileError
from depsue.ledger import Ledger, open_ledger, schema
from depsue.testing.ledger_steps import (
    begin_erasure,
    finish,
    observe,
    observe_more,
    record,
    refused,
    sha,
    start,
)

DATA = Path(__file__).parent / "data"

TABLES = (schema.SCHEMA.versions, schema.identity, *schema.RECORDS)
ALL = tuple(table.name.removeprefix("depsue_") for table in TABLES)


def _full(address: str) -> Ledger:
    ledger = open_ledger(address)
    ledger.create_campaign("spring", rounds=2, settings={}, by="ana")
    observe(ledger, "spring", 0, "d0")
    observe_more(ledger, "spring", 0, "more of d0")
    for policy in ("p1", "p2"):
        record(ledger, "spring", 1, policy)
    ledger.create_campaign("autumn", rounds=1, settings={}, by="ana")
    ledger.declare_family("all", shares={"spring": 0.5, "autumn": 0.5}, floor=None, by="ana")
    finish(ledger, "spring", 1, "p1", "more of d0", passed=True)
    ledger.deploy("spring", 1, sha("p1"), by="ana")
    begin_erasure(ledger, 0, "more of d0", "left")
    ledger.finish_erasure("spring", unit=sha("u"), counts={"rows": 2}, by="ana")
    return ledger


def _content(ledger: Ledger) -> list[list[tuple[object, ...]]]:
    with ledger.database.reading() as connection:
        content = [connection.execute(sa.select(table)).all() for table in TABLES]
    return [[tuple(row) for row in rows] for rows in content]


def _try_all(ledger: Ledger, statements: list[str]) -> None:
    before = _content(ledger)
    assert all(before), "every table has a row to lose"
    for statement in statements:
        with pytest.raises(FileError, match="append-only"), ledger.database.writing() as connection:
            connection.exec_driver_sql(statement)
    assert _content(ledger) == before


def test_postgres_refuses(postgres: Server) -> None:
    ledger = _full(postgres.new_schema())
    changes = [f"UPDATE depsue_{name} SET at = ''" for name in ("schema", "journal")]
    changes += [f"UPDATE depsue_{name} SET id = id" for name in ALL[1:]]
    changes += [f"DELETE FROM depsue_{name}" for name in ALL]
    changes += [f"TRUNCATE depsue_{name} CASCADE" for name in ALL]
    _try_all(ledger, changes)


def test_sqlite_refuses(tmp_path: Path) -> None:
    ledger = _full(str(tmp_path / "ledger.db"))
    changes = [f"UPDATE depsue_{name} SET rowid = rowid" for name in ALL]
    changes += [f"DELETE FROM depsue_{name}" for name in ALL]
    changes += [f"REPLACE INTO depsue_{name} SELECT * FROM depsue_{name}" for name in ALL]
    _try_all(ledger, changes)


@pytest.mark.parametrize("name", ALL)
def test_sqlite_refuses_other_tools_too(tmp_path: Path, name: str) -> None:
    path = tmp_path / "ledger.db"
    before = _content(_full(str(path)))
    connection = sqlite3.connect(path)  # no pragma of ours
    for statement in (
        f"UPDATE depsue_{name} SET rowid = rowid",
        f"DELETE FROM depsue_{name}",
        f"REPLACE INTO depsue_{name} SELECT * FROM depsue_{name}",
    ):
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            connection.execute(statement)
    connection.close()
    assert _content(open_ledger(path)) == before


def test_sqlite_refuses_to_replace_by_a_second_key(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    _full(str(path))
    connection = sqlite3.connect(path)
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        connection.execute(
            "REPLACE INTO depsue_campaigns (id, name, rounds, retries, settings) "
            "VALUES (99, 'spring', 9, 1, '{}')"
        )
    connection.close()


def test_no_record_without_its_line_in_the_journal(postgres: Server, tmp_path: Path) -> None:
    for address in (postgres.new_schema(), str(tmp_path / "ledger.db")):
        ledger = open_ledger(address)
        with pytest.raises(FileError, match="(?i)foreign key"):
            with ledger.database.writing() as connection:
                connection.execute(
                    schema.campaigns.insert().values(
                        id=1, name="spring", rounds=1, retries=0, settings="{}"
                    )
                )
        assert ledger.campaigns() == ()


@pytest.fixture(params=["sqlite", "postgresql"])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def address(backend: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if backend == "sqlite":
        return str(tmp_path / "ledger.db")
    server: Server = request.getfixturevalue("postgres")
    return server.new_schema()


@pytest.fixture
def old(backend: str, request: pytest.FixtureRequest, tmp_path: Path) -> Ledger:
    """A ledger that was written by the first version of the schema."""
    dump = DATA / f"ledger-1.{backend}.sql"
    if backend == "sqlite":
        return open_ledger(load_sqlite(dump, tmp_path / "old.db"), create=False)
    server: Server = request.getfixturevalue("postgres")
    return open_ledger(server.load(dump), create=False)


def test_queries_know_the_columns_that_migrations_make(address: str) -> None:
    ledger = open_ledger(address)
    with ledger.database.reading() as connection:
        inspector = sa.inspect(connection)
        for table in TABLES:
            made = [column["name"] for column in inspector.get_columns(table.name)]
            assert made == [column.name for column in table.c]
        assert set(inspector.get_table_names()) == {table.name for table in TABLES}


def test_a_ledger_of_version_1_reads_as_it_was_written(old: Ledger, backend: str) -> None:
    expected = json.loads((DATA / f"ledger-1.{backend}.json").read_text())
    for campaign in ("spring", "autumn"):  # what later versions added
        for observation in expected[campaign]["observations"]:
            observation["erased"] = []
        for attempt in expected[campaign]["attempts"]:
            attempt["family"] = attempt["data_hash"]
        for deployment in expected[campaign]["deployments"]:
            deployment["declared"] = {}
            deployment["secret"] = ""  # of the fourth
    assert _plain(old.campaigns()) == expected.pop("campaigns")
    assert _plain(old.journal()) == expected.pop("journal")
    for campaign, records in expected.items():
        for kind in ("observations", "candidates", "attempts", "deployments"):
            assert _plain(getattr(old, kind)(campaign)) == records[kind]
    assert [attempt.state for attempt in old.attempts("spring")] == [
        "failed",
        "abandoned",
        "passed",
        "open",
    ]


def test_a_campaign_of_older_rules_is_read_and_rolled_back_not_certified(old: Ledger) -> None:
    lines = old.journal()
    with refused("observation never changes|by ana at"):
        observe(old, "spring", 1, "other")
    record(old, "autumn", 1, "first")
    for campaign, k, data, policy in (
        ("spring", 2, "july", "fourth"),
        ("autumn", 1, "june", "first"),
    ):
        with refused("older rules|hung on the campaign's name|rolled back|begin a new campaign"):
            old.begin_read(campaign, k, sha(data), sha(policy), "ana")
        with refused("older rules"):
            old.registration(campaign, k - 1)
    old.abandon_read("spring", 2, sha("fourth"), why="older rules", by="ana")
    old.deploy("spring", 2, sha("first"), "rollback", by="ana")
    assert old.deployments("spring")[-1].kind == "rollback"
    since = [line.what for line in old.journal()[len(lines) :]]
    assert since == ["policy", "verdict", "rollback"]
    assert old.journal()[: len(lines)] == lines


def test_rows_that_were_read_by_older_rules_are_read(old: Ledger) -> None:
    old.create_campaign("new", rounds=1, settings={}, by="ana")
    observe(old, "new", 0, "may")
    record(old, "new", 1, "first")
    assert old.count_reads(sha("may"), "new") == 3
    with refused("read by one verdict|without retries"):
        old.begin_read("new", 1, sha("may"), sha("first"), "ana")


def test_an_older_ledger_goes_on_with_new_campaigns(old: Ledger) -> None:
    start(old, "new")
    assert finish(old, "new", 1, "p1", "d0", passed=True).attempt == 1
    old.deploy("new", 1, sha("p1"), by="ana")
    with pytest.raises(FileError, match="append-only"), old.database.writing() as connection:
        connection.exec_driver_sql("DELETE FROM depsue_journal")


def _plain(records: Iterable[Any]) -> object:
    return json.loads(json.dumps([asdict(record) for record in records], default=_iso))


def _iso(value: object) -> str:
    assert isinstance(value, datetime)
    return value.isoformat()
