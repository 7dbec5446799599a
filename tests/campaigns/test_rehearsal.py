"""A rehearsal says how likely a pass is, and reads no certifying row."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from depsue import RewardSettings, SyntheticSettings, synthetic_world
from depsue.campaigns.dry_runs import Rehearsal, rehearse
from depsue.certificates import Reads
from depsue.data.logs import LoggedData
from depsue.exploration.round import (
    FrozenCandidate,
    RoundInputs,
    certify_round,
    look_ahead,
)
from depsue.exploration.settings import ExploreSettings
from depsue.promises import Floor, Promise
from depsue.testing.splits import split

SETTINGS = ExploreSettings(
    promises=(Promise(Floor(0.95)),),
    deployments=1,
    objective="most novelty",
    rewards=RewardSettings(members=1, max_epochs=2),
)
WORLD = synthetic_world(SyntheticSettings(users=80, supported=12, novel=4, d=3), seed=3)


def candidate_of(logs: LoggedData, name: str) -> tuple[FrozenCandidate, RoundInputs]:
    inputs = RoundInputs(split(logs, name), WORLD.logging_policy)
    return look_ahead(inputs, SETTINGS, seed=0).frozen(), inputs


def test_chances_come_true_about_as_often_as_they_say() -> None:
    chances, passes = [], []
    for seed in range(10):
        logs = WORLD.deploy(WORLD.logging_policy, 3000, round=100 + seed)
        logs = replace(logs, round=np.zeros(len(logs), dtype=np.int16))
        candidate, inputs = candidate_of(logs, f"rehearsed {seed}")
        chances.append(rehearse(candidate, inputs, 0.05).chance)
        explored = certify_round(candidate, inputs, SETTINGS, reads=Reads())
        passes.append(explored.certificate.passed)
    spread = 3 * np.sqrt(np.sum(np.multiply(chances, np.subtract(1, chances))) + 1)
    assert abs(sum(chances) - sum(passes)) <= spread
    assert 0.05 < np.mean(chances) < 0.999  # worlds in which something is open


def test_certifying_rewards_change_nothing() -> None:
    logs = WORLD.deploy(WORLD.logging_policy, 4000, round=0)
    candidate, inputs = candidate_of(logs, "unread")
    certify = inputs.folds.certify
    spoiled = replace(certify, reward=certify.reward[::-1].copy())
    other = replace(inputs, folds=replace(inputs.folds, certify=spoiled))
    assert rehearse(candidate, inputs, 0.05) == rehearse(candidate, other, 0.05)


def test_bolder_levels_are_less_likely_and_a_smaller_delta_is_harder() -> None:
    logs = WORLD.deploy(WORLD.logging_policy, 8000, round=0)
    candidate, inputs = candidate_of(logs, "bold")
    rehearsal = rehearse(candidate, inputs, 0.05)
    assert list(rehearsal.chances) == sorted(rehearsal.chances, reverse=True)
    harder = rehearse(candidate, inputs, 0.0005)
    assert sum(harder.chances) < sum(rehearsal.chances)


@pytest.mark.parametrize(
    ("chances", "words"),
    [
        ((0.999, 0.3), "very likely (more than 99%)"),
        ((0.5, 0.2), "open (50%)"),
        ((0.001, 0.0), "unlikely (less than 1%)"),
    ],
)
def test_it_says_so_in_words(chances: tuple[float, float], words: str) -> None:
    text = str(Rehearsal((0.02, 0.1), chances, values=200, certifying=2400, delta=0.05))
    assert words in text and "none of them was read here" in text
    assert ("likely to pass" in text) == (chances[0] >= 0.75)
