"""`certify` counts by the ledger as it is; and the ledger alone needs no torch."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from depsue import Certificate, SyntheticSettings, Uniform, synthetic_world
from depsue.certificates import Folds, MixtureLadder, Rules, certify
from depsue.errors import ConfigError
from depsue.ledger import Ledger, open_ledger
from depsue.savable import hash_of
from depsue.testing.splits import split

RULES = Rules(delta=0.08, clip=5.0)


def _prepared(retries: bool) -> tuple[Ledger, Folds, list[MixtureLadder], list[str]]:
    world = synthetic_world(SyntheticSettings(users=50, supported=8, novel=2, d=3), seed=1)
    logs = world.deploy(world.logging_policy, 2_000, round=0)
    parts = (world.logging_policy, Uniform(world.catalogue.novel))
    levels = [MixtureLadder(parts, [[1 - nu, nu]]) for nu in (0.9, 0.01)]  # type: ignore[arg-type]
    hashes = [hash_of(ladder.policy(0)) or "" for ladder in levels]
    ledger = open_ledger(":memory:")
    ledger.create_campaign("spring", rounds=1, settings={}, retries=retries, by="ana")
    rows = {"data_hash": logs.hash, "rows": len(logs), "source": "may", "summary": {}}
    ledger.observe("spring", 0, **rows, by="ana")  # type: ignore[arg-type]
    for policy in hashes:
        fixed = {"delta": RULES.delta}
        known = {"policy_hash": policy, "folder": "p", "trained_on": [logs.hash], "fixed": fixed}
        ledger.record_candidate("spring", 1, **known, by="ana")  # type: ignore[arg-type]
    return ledger, split(logs, "spring"), levels, hashes


def _certified(ledger: Ledger, folds: Folds, levels: MixtureLadder, policy: str) -> Certificate:
    with ledger.reads("spring", 1, policy, by="ana") as counted:
        reads: Any = counted
        made = certify(levels, folds, RULES, reads)
        stored = counted.finish(made)
    assert stored.certificate is not None
    assert Certificate.from_json(stored.certificate) == made
    assert (stored.certified, stored.passed) == (policy, made.passed)
    return made


def test_a_crash_before_the_verdict_changes_neither_level_nor_count() -> None:
    ledger, folds, levels, hashes = _prepared(retries=True)
    with ledger.reads("spring", 1, hashes[0], by="ana") as reads:
        reads.begin(folds.data)  # and here the process dies
    first = _certified(ledger, folds, levels[0], hashes[0])
    again = _certified(ledger, folds, levels[0], hashes[0])
    assert (first.attempt, first.delta, first.retries) == (1, 0.04, True)
    assert again == first and ledger.count_reads(folds.data) == 1


def test_the_next_candidate_is_tested_at_half_the_level() -> None:
    ledger, folds, levels, hashes = _prepared(retries=True)
    _certified(ledger, folds, levels[0], hashes[0])
    second = _certified(ledger, folds, levels[1], hashes[1])
    assert (second.attempt, second.delta) == (2, 0.02)


def test_without_retries_there_is_one_verdict() -> None:
    ledger, folds, levels, hashes = _prepared(retries=False)
    assert _certified(ledger, folds, levels[0], hashes[0]).delta == 0.08
    with pytest.raises(ConfigError, match="read by one verdict"):
        _certified(ledger, folds, levels[1], hashes[1])


def test_the_ledger_loads_without_torch() -> None:
    code = "import sys, depsue.ledger; sys.exit('torch' in sys.modules or 'psycopg' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
