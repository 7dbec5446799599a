"""One suite over memory, a SQLite file and a real PostgreSQL."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.ledger.conftest import Server

from depsue.ledger import Ledger, open_ledger
from depsue.testing.ledgers import DurableConformance, LedgerConformance


class TestMemory(LedgerConformance):
    @pytest.fixture
    def ledger(self) -> Ledger:
        return open_ledger(":memory:")


class TestSqlite(LedgerConformance, DurableConformance):
    @pytest.fixture
    def address(self, tmp_path: Path) -> str:
        return str(tmp_path / "ledger.db")

    @pytest.fixture
    def ledger(self, address: str) -> Ledger:
        return open_ledger(address)


class TestPostgres(LedgerConformance, DurableConformance):
    @pytest.fixture
    def address(self, postgres: Server) -> str:
        return postgres.new_schema()

    @pytest.fixture
    def ledger(self, address: str) -> Ledger:
        return open_ledger(address)
