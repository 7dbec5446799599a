"""Moving a ledger: every row as it is, and it goes on from there."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.ledger.conftest import Server

from depsue.errors import ConfigError
from depsue.ledger import copy_ledger, open_ledger
from depsue.testing.ledgers import finish, sha, start


def test_to_postgres_and_back(postgres: Server, tmp_path: Path) -> None:
    source = open_ledger(tmp_path / "ledger.db")
    start(source)
    finish(source, "spring", 1, "p1", "d0", passed=True)
    ledgers = [source]
    for address in (postgres.new_schema(), str(tmp_path / "back.db")):
        target = open_ledger(address)
        assert copy_ledger(ledgers[-1], target) == 6
        ledgers.append(target)
    for target in ledgers:
        assert target.journal() == source.journal()
        assert target.attempts("spring") == source.attempts("spring")
    for target in ledgers:
        target.deploy("spring", 1, sha("p1"), by="bo")
        assert [line.id for line in target.journal()] == [1, 2, 3, 4, 5, 6, 7]


def test_only_into_an_empty_one(tmp_path: Path) -> None:
    source, target = open_ledger(":memory:"), open_ledger(tmp_path / "ledger.db")
    start(source)
    start(target)
    with pytest.raises(ConfigError, match="into an empty one. Found: 4 entries"):
        copy_ledger(source, target)
    assert len(target.journal()) == 4
