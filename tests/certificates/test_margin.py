"""The margin: its lower bound covers what was earned, whatever the rounds were like."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from depsue.certificates import Ceiling, Served, earned
from depsue.data import Catalogue, LoggedData
from depsue.data.checks import FloatArray
from depsue.errors import ConfigError
from depsue.policies import OwnPolicy, ScoreTable
from depsue.promises import Floor, Promise
from depsue.testing.bounds import binomial_tail

RUNS, DELTA = 1000, 0.5
"""Smoothing is cautious: at this level a mistake of some size still shows."""
CATALOGUE = Catalogue.of(range(3), novel=[2])
CONTEXT = np.zeros((1, 1), dtype=np.float32)
Q = np.array([0.6, 0.4, 0.1])
PI0 = np.array([0.5, 0.5, 0.0])  # V(pi0) = 0.5
LOGGING = OwnPolicy(ScoreTable(CONTEXT, PI0[None]), 3)
ABSOLUTE = Promise(Floor(ratio=None, absolute=0.475))
ROUNDS = (np.array([0.7, 0.3, 0.0]), np.array([0.4, 0.3, 0.3]), np.array([0.9, 0.1, 0.0]))


def served(
    draw: np.random.Generator, pi: FloatArray, n: int, decisions: int, **more: Any
) -> Served:
    action = draw.choice(3, size=n, p=pi)
    logs = LoggedData(
        catalogue=CATALOGUE,
        contexts=CONTEXT,
        context=np.zeros(n, dtype=np.int64),
        action=action.astype(np.int32),
        reward=(draw.random(n) < Q[action]).astype(float),
        propensity=pi[action],
        round=np.ones(n, dtype=np.int16),
        r_max=1.0,
        **more,
    )
    return Served(logs, decisions)


def campaign(draw: np.random.Generator) -> list[Served]:
    """Three rounds with other means; the last is logged in part only."""
    sizes = ((150, 150), (150, 150), (60, 150))
    return [served(draw, pi, *size) for pi, size in zip(ROUNDS, sizes, strict=True)]


def truth(floor: float, decisions: int) -> float:
    return sum(150 * (float(pi @ Q) - floor) for pi in ROUNDS) / decisions


def test_it_covers_with_means_that_change() -> None:
    draw, wrong = np.random.default_rng(1), 0
    for _ in range(RUNS):
        credit = earned(ABSOLUTE, campaign(draw), decisions=100, delta=DELTA)
        wrong += credit.value > truth(0.475, 100)
    assert binomial_tail(wrong, RUNS, DELTA) > 1e-3, f"{wrong} of {RUNS} too high"
    assert wrong > RUNS / 200


def test_it_covers_when_each_row_is_paired_with_pi0() -> None:
    draw, wrong = np.random.default_rng(2), 0
    for _ in range(RUNS):
        credit = earned(
            Promise(),
            campaign(draw),
            decisions=100,
            delta=DELTA,
            logging_policy=LOGGING,
            largest=5.0,
        )
        wrong += credit.value > truth(0.475, 100)
    assert binomial_tail(wrong, RUNS, DELTA) > 1e-3, f"{wrong} of {RUNS} too high"
    assert wrong > RUNS / 200


def test_it_covers_when_the_next_policy_depends_on_what_was_earned() -> None:
    draw, wrong = np.random.default_rng(3), 0
    for _ in range(RUNS):
        first = served(draw, PI0, 200, 200)
        bold = first.logs.mean_reward() > 0.5
        second = ROUNDS[1] if bold else ROUNDS[2]
        both = [first, served(draw, second, 200, 200)]
        credit = earned(ABSOLUTE, both, decisions=200, delta=DELTA)
        wrong += credit.value > 0.025 + float(second @ Q) - 0.475
    assert binomial_tail(wrong, RUNS, DELTA) > 1e-3, f"{wrong} of {RUNS} too high"


def test_it_nears_the_truth_with_many_rows() -> None:
    draw = np.random.default_rng(4)
    many = [served(draw, pi, 40_000, 40_000) for pi in ROUNDS]
    credit = earned(ABSOLUTE, many, decisions=40_000, delta=0.05)
    exact = sum(float(pi @ Q) - 0.475 for pi in ROUNDS)
    assert exact - 0.05 < credit.value < exact and credit.delta == 0.05
    assert earned(ABSOLUTE, many, decisions=80_000, delta=0.05).value == pytest.approx(
        credit.value / 2
    )


def test_rows_stand_for_what_was_served() -> None:
    """A round of which a tenth was logged counts ten times as much a row."""
    draw = np.random.default_rng(5)
    good, bad = served(draw, ROUNDS[2], 20_000, 20_000), served(draw, ROUNDS[1], 2000, 20_000)
    credit = earned(ABSOLUTE, [good, bad], decisions=20_000, delta=0.05)
    exact = sum(float(pi @ Q) - 0.475 for pi in (ROUNDS[2], ROUNDS[1]))
    assert exact - 0.15 < credit.value < exact


def test_a_loss_is_a_debt_and_nothing_served_is_nothing_earned() -> None:
    draw = np.random.default_rng(6)
    debt = earned(ABSOLUTE, [served(draw, ROUNDS[1], 5000, 5000)], decisions=5000, delta=0.05)
    assert debt.value < -0.05
    nothing = earned(ABSOLUTE, [], decisions=10, delta=0.05)
    assert (nothing.value, nothing.delta) == (0.0, 0.0)


def test_a_ceiling_stands_for_the_value_of_pi0() -> None:
    draw = np.random.default_rng(7)
    rounds = [served(draw, ROUNDS[2], 5000, 5000)]
    top = Ceiling(0.5, 0.01, 100, "other rows")
    with_top = earned(Promise(), rounds, decisions=5000, delta=0.05, ceiling=top)
    assert with_top.value == pytest.approx(
        earned(ABSOLUTE, rounds, decisions=5000, delta=0.05).value
    )


def test_other_rewards_and_segments_have_margins_of_their_own() -> None:
    draw = np.random.default_rng(8)
    columns = {"minutes": np.full(4000, 8.0), "new": np.arange(4000) % 4 == 0}
    rounds = [served(draw, PI0, 4000, 4000, columns=columns)]
    minutes = Promise(Floor(None, 5.0), "minutes", "minutes", 10.0, ("new", True))
    credit = earned(minutes, rounds, decisions=4000, delta=0.05)
    assert 2.5 < credit.value < 3.0


def test_what_breaks_a_rule_is_refused() -> None:
    draw = np.random.default_rng(9)
    rounds = [served(draw, ROUNDS[1], 100, 100)]
    with pytest.raises(ConfigError, match=r"at least one decision.*0 to come.*Served\("):
        earned(ABSOLUTE, rounds, decisions=0, delta=0.05)
    with pytest.raises(ConfigError, match=r"all that it logged.*\(50, 100\).*fallback"):
        earned(ABSOLUTE, [Served(rounds[0].logs, 50)], decisions=10, delta=0.05)
    with pytest.raises(ConfigError, match=r"a paired margin needs pi0.*None.*ceiling"):
        earned(Promise(), rounds, decisions=10, delta=0.05)
    with pytest.raises(ConfigError, match=r"pi0 / p must stay below.*declared 1.*1 / share"):
        earned(Promise(), rounds, decisions=10, delta=0.05, logging_policy=LOGGING)
