"""One suite over memory, a SQLite file and a real PostgreSQL; and moving between them."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.database.conftest import Server

from depsue.errors import ConfigError
from depsue.ledger import Ledger, copy_ledger, open_ledger
from depsue.testing.ledger_steps import finish, sha, start
from depsue.testing.ledgers import DurableConformance, LedgerConformance
from depsue.testing.registrations import RegistrationConformance


class TestMemory(LedgerConformance, RegistrationConformance):
    @pytest.fixture
    def ledger(self) -> Ledger:
        return open_ledger(":memory:")


class TestSqlite(LedgerConformance, RegistrationConformance, DurableConformance):
    @pytest.fixture
    def address(self, tmp_path: Path) -> str:
        return str(tmp_path / "ledger.db")

    @pytest.fixture
    def ledger(self, address: str) -> Ledger:
        return open_ledger(address)


class TestPostgres(LedgerConformance, RegistrationConformance, DurableConformance):
    @pytest.fixture
    def address(self, postgres: Server) -> str:
        return postgres.new_schema()

    @pytest.fixture
    def ledger(self, address: str) -> Ledger:
        return open_ledger(address)


def test_to_postgres_and_back(postgres: Server, tmp_path: Path) -> None:
    source = open_ledger(tmp_path / "ledger.db")
    start(source)
    finish(source, "spring", 1, "p1", "d0", passed=True)
    ledgers = [source]
    for address in (postgres.new_schema(), str(tmp_path / "back.db")):
        target = open_ledger(address)
        assert copy_ledger(ledgers[-1], target) == 7
        ledgers.append(target)
    for target in ledgers:
        assert target.journal() == source.journal()
        assert target.attempts("spring") == source.attempts("spring")
        assert target.registration("spring", 0) == source.registration("spring", 0)
    for target in ledgers:
        target.deploy("spring", 1, sha("p1"), by="bo")
        assert [line.id for line in target.journal()] == [1, 2, 3, 4, 5, 6, 7, 8]


def test_only_into_an_empty_one(tmp_path: Path) -> None:
    source, target = open_ledger(":memory:"), open_ledger(tmp_path / "ledger.db")
    start(source)
    start(target)
    with pytest.raises(ConfigError, match="into an empty one. Found: 5 entries"):
        copy_ledger(source, target)
    assert len(target.journal()) == 5
