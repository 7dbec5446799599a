"""The database itself refuses to change, delete or replace a row, on both backends."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
import sqlalchemy as sa
from tests.ledger.conftest import Server

from depsue.errors import FileError
from depsue.ledger import Ledger, open_ledger, tables
from depsue.testing.ledgers import finish, sha, start

ALL = ("schema", *(table.name.removeprefix("depsue_") for table in tables.RECORDS))


def _full(address: str) -> Ledger:
    ledger = open_ledger(address)
    start(ledger)
    finish(ledger, "spring", 1, "p1", "d0", passed=True)
    ledger.deploy("spring", 1, sha("p1"), by="ana")
    return ledger


def _content(ledger: Ledger) -> list[list[tuple[object, ...]]]:
    with ledger.database.reading() as connection:
        found = [connection.execute(sa.select(table)).all() for table in tables.RECORDS]
    return [[tuple(row) for row in rows] for rows in found]


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
                    tables.campaigns.insert().values(
                        id=1, name="spring", rounds=1, retries=0, settings="{}"
                    )
                )
        assert ledger.campaigns() == ()
