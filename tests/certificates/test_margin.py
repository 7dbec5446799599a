"""The margin: its lower bound covers what was earned, whatever the rounds were like."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from depsue.certificates import Ceiling, Served, Stake, clopper_pearson, earned, surplus
from depsue.data import Catalogue, LoggedData
from depsue.data.checks import FloatArray
from depsue.data.logs import ErasedRows
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
ABSOLUTE, RELATIVE = Promise(Floor(ratio=None, absolute=0.475)), Promise(Floor(0.95))
TOP = Ceiling(0.5, 0.01, 100, "other rows")
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
    """Three rounds with other means; of the last, some decisions were not observed."""
    sizes = ((150, 150), (150, 150), (140, 150))
    return [served(draw, pi, *size) for pi, size in zip(ROUNDS, sizes, strict=True)]


def truth(floor: float, decisions: int) -> float:
    return sum(150 * (float(pi @ Q) - floor) for pi in ROUNDS) / decisions


def covers(wrong: int, *, sharp: bool = True) -> None:
    """Too high as often as delta allows, and not never: else the test would see no mistake."""
    assert binomial_tail(wrong, RUNS, DELTA) > 1e-3, f"{wrong} of {RUNS} too high"
    assert wrong > RUNS / 200 or not sharp


def test_it_covers_with_means_that_change() -> None:
    draw, wrong = np.random.default_rng(1), 0
    stake = Stake.of(RELATIVE, served(draw, PI0, 500, 500).logs, 450, DELTA)
    for _ in range(RUNS):
        rounds = campaign(draw)
        credit = earned(RELATIVE, rounds, decisions=100, delta=DELTA, ceiling=TOP, stake=stake)
        wrong += credit.value > truth(0.475, 100)
    covers(wrong)


def test_it_covers_when_each_row_is_paired_with_pi0() -> None:
    draw, wrong = np.random.default_rng(2), 0
    for _ in range(RUNS):
        credit = earned(
            RELATIVE,
            [replace(part, decisions=len(part.logs)) for part in campaign(draw)],
            decisions=100,
            delta=DELTA,
            logging_policy=LOGGING,
            largest=5.0,
        )
        part = 140 * (float(ROUNDS[2] @ Q) - 0.475)
        wrong += credit.value > truth(0.475, 100) - 10 / 140 * part / 100
    covers(wrong)


def test_it_covers_when_the_next_policy_depends_on_what_was_earned() -> None:
    draw, wrong = np.random.default_rng(3), 0
    for _ in range(RUNS):
        first = served(draw, PI0, 200, 200)
        bold = first.logs.mean_reward() > 0.5
        second = ROUNDS[1] if bold else ROUNDS[2]
        both = [first, served(draw, second, 200, 200)]
        credit = earned(RELATIVE, both, decisions=200, delta=DELTA, ceiling=TOP)
        wrong += credit.value > 0.025 + float(second @ Q) - 0.475
    covers(wrong)


def test_after_one_round_of_binary_rewards_the_limit_is_exact() -> None:
    """Clopper and Pearson: as often too high as delta allows, and higher than the constant bet."""
    draw, runs, wrong, exact, bets = np.random.default_rng(10), 400, 0, [], []
    stake = Stake.of(RELATIVE, served(draw, PI0, 500, 500).logs, 300, DELTA)
    assert stake.binary
    for _ in range(runs):
        rounds = [served(draw, ROUNDS[2], 300, 300)]
        credit = earned(RELATIVE, rounds, decisions=300, delta=DELTA, ceiling=TOP, stake=stake)
        wrong += credit.value > float(ROUNDS[2] @ Q) - 0.475
        exact.append(credit.value)
        ended = [replace(rounds[0], fixed_length=False)]  # when its results looked good, say
        by_choice = earned(RELATIVE, ended, decisions=300, delta=DELTA, ceiling=TOP, stake=stake)
        bets.append(by_choice.value)
    assert binomial_tail(wrong, runs, DELTA) > 1e-3 and wrong > 0.4 * runs, f"{wrong} of {runs}"
    assert np.mean(exact) > np.mean(bets) + 0.01 and min(np.subtract(exact, bets)) > 0


@pytest.mark.parametrize(("hits", "n"), [(0, 7), (1, 5), (5, 5), (3, 100), (7000, 20_000)])
@pytest.mark.parametrize("delta", [0.001, 0.05, 0.5])
def test_clopper_pearson_is_as_in_scipy(hits: int, n: int, delta: float) -> None:
    expected = float(stats.beta.ppf(delta, hits, n - hits + 1)) if hits else 0.0
    assert clopper_pearson(hits, n, delta) == pytest.approx(expected, rel=1e-9)
    with pytest.raises(ConfigError, match=r"at most as many as trials.*9 of 8"):
        clopper_pearson(9, 8, delta)


def test_an_absolute_floor_has_an_exact_margin_that_costs_no_delta() -> None:
    draw = np.random.default_rng(4)
    rounds = [served(draw, pi, 4000, 4000) for pi in ROUNDS]
    credit = earned(ABSOLUTE, rounds, decisions=6000, delta=0.05)
    realised = sum(float(part.logs.reward.sum()) for part in rounds)
    assert credit.value == pytest.approx((realised - 12_000 * 0.475) / 6000)
    assert (credit.delta, credit.decisions, credit.fewest) == (0.0, 6000, None)
    assert earned(ABSOLUTE, rounds, decisions=12_000, delta=0.05).value == pytest.approx(
        credit.value / 2
    )


def test_rows_of_the_coming_verdict_count_at_a_sum_that_is_fixed_before() -> None:
    draw, kept, counted = np.random.default_rng(11), 0, []
    for _ in range(300):
        whole = served(draw, ROUNDS[2], 400, 400)
        readable, rest = whole.logs.take(slice(0, 200)), whole.logs.take(slice(200, 400))
        credit = earned(ABSOLUTE, [Served(readable, 400, 200)], decisions=400, delta=0.05)
        fewest, total = credit.fewest or 0.0, surplus(ABSOLUTE, rest)
        kept += total >= fewest
        counted.append(fewest)
        assert credit.value == pytest.approx((surplus(ABSOLUTE, readable) + fewest) / 400)
    assert 285 <= kept < 300  # some two standard errors
    assert np.mean(counted) == pytest.approx(200 * 0.105 - 2 * np.sqrt(2 * 200 * 0.244), rel=0.1)


def test_it_nears_the_truth_with_many_rows() -> None:
    draw = np.random.default_rng(4)
    many = [served(draw, pi, 40_000, 40_000) for pi in ROUNDS]
    credit = earned(RELATIVE, many, decisions=40_000, delta=0.05, ceiling=TOP)
    exact = sum(float(pi @ Q) - 0.475 for pi in ROUNDS)
    assert exact - 0.05 < credit.value < exact and credit.delta == 0.05


@pytest.mark.parametrize(
    ("promise", "more", "kept_of_pi0", "worst"),
    [
        (ABSOLUTE, {}, 1.0, -0.475),
        (RELATIVE, {"ceiling": TOP}, 1.0, -0.475),
        (RELATIVE, {"logging_policy": LOGGING, "largest": 1.25}, 0.8, -(0.95 - 0.8)),
        (RELATIVE, {"logging_policy": LOGGING, "largest": 1.25}, 0.0, -0.95),
        (RELATIVE, {"logging_policy": LOGGING, "largest": 1.25}, 1.0, 0.0),
    ],
)
def test_what_was_served_and_not_observed_counts_at_its_worst(
    promise: Promise, more: dict[str, Any], kept_of_pi0: float, worst: float
) -> None:
    """Nine of ten decisions of a good round without rows are a debt, not more of the same.

    They may be of any policy that was deployed in the round, whatever the rows say.
    """
    draw = np.random.default_rng(5)
    good = served(draw, np.array([0.6, 0.4, 0.0]), 2000, 2000)
    good = replace(good, pi0_kept=kept_of_pi0)
    kept = earned(promise, [good], decisions=2000, delta=0.05, **more)
    longer = [replace(good, decisions=20_000)]
    owed = earned(promise, longer, decisions=2000, delta=0.05, **more)
    assert owed.value - kept.value == pytest.approx(9 * worst, abs=1e-4)
    by_pi0 = [replace(good, decisions=20_000, by_pi0=18_000)]  # a holdout, say
    own = earned(promise, by_pi0, decisions=2000, delta=0.05, **more)
    assert own.value - kept.value == pytest.approx(9 * worst if promise is ABSOLUTE else 0.0)


@pytest.mark.parametrize("fixed_length", [True, False])
def test_users_who_are_erased_for_their_rewards_do_not_raise_the_margin(fixed_length: bool) -> None:
    """All without a reward: the limit is of all rows, not of those that are left."""
    draw, wrong, runs, delta = np.random.default_rng(13), 0, 600, 0.05
    stake = Stake.of(RELATIVE, served(draw, PI0, 500, 500).logs, 300, delta)
    for _ in range(runs):
        logs = served(draw, PI0, 300, 300).logs
        kept = np.flatnonzero(logs.reward > 0)
        gone = 300 - len(kept)
        erased = (ErasedRows("", gone, (), gone, 0, ""),)
        part = Served(replace(logs.take(kept), erased=erased), 300, fixed_length=fixed_length)
        more: dict[str, Any] = {"ceiling": TOP, "stake": stake}
        credit = earned(RELATIVE, [part], decisions=300, delta=delta, **more)
        wrong += credit.value > 0.5 - 0.475
    assert binomial_tail(wrong, runs, delta) > 1e-3, f"{wrong} of {runs} too high"


def test_the_debt_of_a_later_round_is_not_forgiven() -> None:
    """A round whose rows cannot be paired with pi0, between two that keep nearly all of it."""
    certain, bad = 0.95 * PI0 + np.array([0.0, 0.0, 0.05]), np.array([0.0, 0.1, 0.9])
    floor = 0.95 * float(PI0 @ Q)
    truth = sum(float(pi @ Q) - floor for pi in (certain, bad, certain))
    draw, wrong = np.random.default_rng(12), 0
    more: dict[str, Any] = {"logging_policy": LOGGING, "largest": 1 / 0.95}
    for _ in range(50):
        near = [replace(served(draw, certain, 1000, 1000), pi0_kept=0.95) for _ in range(2)]
        lost = replace(served(draw, bad, 1000, 1000), paired=False)
        for rounds in ([near[0], lost, near[1]], [lost, *near]):
            credit = earned(RELATIVE, rounds, decisions=1000, delta=0.025, **more)
            wrong += credit.value > truth
    assert wrong == 0


def test_a_ceiling_stands_for_the_value_of_pi0() -> None:
    draw = np.random.default_rng(7)
    rounds = [served(draw, ROUNDS[2], 5000, 5000)]
    top = Ceiling(0.5, 0.01, 100, "other rows")
    with_top = earned(Promise(), rounds, decisions=5000, delta=0.05, ceiling=top)
    realised = earned(ABSOLUTE, rounds, decisions=5000, delta=0.05).value
    assert realised - 0.05 < with_top.value < realised


def test_other_rewards_and_segments_have_margins_of_their_own() -> None:
    draw = np.random.default_rng(8)
    columns = {"minutes": np.full(4000, 8.0), "new": np.arange(4000) % 4 == 0}
    rounds = [served(draw, PI0, 4000, 4000, columns=columns)]
    minutes = Promise(Floor(None, 5.0), "minutes", "minutes", 10.0, ("new", True))
    credit = earned(minutes, rounds, decisions=4000, delta=0.05)
    assert credit.value == pytest.approx(3.0)  # per decision of the segment
    nothing = earned(ABSOLUTE, [], decisions=10, delta=0.05)
    assert (nothing.value, nothing.delta) == (0.0, 0.0)


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
