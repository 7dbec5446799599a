"""The limits of a change: exact values, laws, and how often they fail."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from depsue.bounds import tuning_rows
from depsue.data.checks import FloatArray, IntArray, Mask
from depsue.diagnostics.drift import FEWEST_TO_TEST_DRIFT, DriftSide, change_between
from depsue.testing.bounds import binomial_tail

Draw = Callable[[np.random.Generator], tuple[DriftSide, DriftSide]]


def of_pi0(reward: FloatArray | Mask, ids: IntArray | None = None) -> DriftSide:
    return DriftSide(
        np.asarray(reward, dtype=np.float64), np.ones(len(reward)), True, 1.0, 1.0, ids
    )


PI0, P = np.array([0.6, 0.3, 0.1]), np.array([0.98, 0.02, 0.0])
CLIP = 3.0
SHARED = np.minimum(PI0, CLIP * P)
"""The part of pi0 that P shows often enough: it hardly shows the second action, never the third."""


def weighted(rng: np.random.Generator, n: int, q: FloatArray) -> DriftSide:
    """Rows of P; what it does not cover is not known."""
    action = rng.choice(3, n, p=P)
    reward = (rng.random(n) < q[action]).astype(np.float64)
    return DriftSide(reward, np.minimum(PI0, CLIP * P)[action] / P[action], False, CLIP, 1.0, None)


def both_shared(rng: np.random.Generator, n: int, q: FloatArray) -> tuple[DriftSide, DriftSide]:
    """Rows of pi0 and of P, on the part that both could show."""
    action = rng.choice(3, n, p=PI0)
    reward = (rng.random(n) < q[action]).astype(np.float64)
    before = DriftSide(reward, (SHARED / PI0)[action], True, 1.0, 1.0, None)
    return before, weighted(rng, n, q)._replace(shared=True)


def test_the_limits_are_those_of_the_formula() -> None:
    rng = np.random.default_rng(0)
    before, after = (rng.random(n) < p for n, p in ((400, 0.3), (800, 0.4)))
    change = change_between(of_pi0(before), of_pi0(after), 0.01)
    assert change is not None
    values = np.concatenate([before, after]).astype(np.float64)
    later = np.arange(1200) >= 400
    kept = np.ones(1200, dtype=bool)
    kept[tuning_rows(1200)] = False
    c = before[~kept[:400]].mean()
    n, log = kept.sum(), math.log(100)
    t = np.where(
        later, (values - c) * n / (later & kept).sum(), (c - values) * n / (~later & kept).sum()
    )
    least = -max(c * n / (later & kept).sum(), (1 - c) * n / (~later & kept).sum())
    bet = math.sqrt(2 * log / (n * t[~kept].var() + 2 * log * (least / 0.8) ** 2))
    low = (math.exp((np.log(1 + bet * t[kept]).sum() - log) / n) - 1) / bet
    assert change.low == pytest.approx(low, rel=1e-9)
    assert change.n == n == 1140
    assert change.before == pytest.approx(before.mean())
    assert change.after == pytest.approx(after.mean())


def test_exchanged_sides_exchange_the_limits() -> None:
    rng = np.random.default_rng(1)
    a, b = of_pi0(rng.random(500)), of_pi0(rng.random(500))
    one, two = change_between(a, b, 0.01), change_between(b, a, 0.01)
    assert one is not None and two is not None
    assert one.low < one.after - one.before < one.high
    assert -one.high == pytest.approx(two.low, abs=0.01)  # the pilot differs
    wider = change_between(a, b, 0.001)
    assert wider is not None
    assert wider.low < one.low and wider.high > one.high


def test_more_rows_see_smaller_changes() -> None:
    rng = np.random.default_rng(2)
    changes = [
        change_between(of_pi0(rng.random(n)), of_pi0(rng.random(n)), 0.01) for n in (500, 5000)
    ]
    few, many = (one.smallest for one in changes if one is not None)
    assert 2.5 < few / many < 4  # sqrt(10), and a little more where few rows hold the bet back


@pytest.mark.parametrize("q", [(0.2, 0.2, 0.2), (0.1, 0.9, 1.0), (0.3, 0.0, 0.0)])
def test_what_is_not_covered_only_widens(q: tuple[float, ...]) -> None:
    """Whatever the hidden actions are worth, both limits hold V(pi0) between them."""
    q_of, rng = np.array(q), np.random.default_rng(3)
    value = float(PI0 @ q_of)
    side = weighted(rng, 200_000, q_of)
    gain, least = side.gain(0.25)
    loss, most = side.loss(0.25)
    error = 4 * max(gain.std(), loss.std()) / 200_000**0.5
    assert gain.min() >= least and loss.min() >= most
    assert 0.25 + gain.mean() <= value + error
    assert 0.25 - loss.mean() >= value - error
    before = of_pi0(rng.random(20_000) < value)
    change = change_between(before, weighted(rng, 20_000, q_of), 0.005)
    assert change is not None
    assert change.low < 0 < change.high
    assert change.smallest > 0.3  # .34 of pi0 is hidden, or nearly so


@pytest.mark.parametrize("q", [(0.2, 0.2, 0.2), (0.1, 0.9, 1.0), (0.3, 0.0, 0.0)])
def test_on_the_shared_part_both_sides_have_one_mean(q: tuple[float, ...]) -> None:
    q_of, rng = np.array(q), np.random.default_rng(4)
    before, after = both_shared(rng, 100_000, q_of)
    for side in (before, after):
        gain, least = side.gain(0.25)
        loss, _ = side.loss(0.25)
        assert gain.min() >= least
        assert gain.mean() == pytest.approx(-loss.mean())
        expected = float(SHARED @ (q_of - 0.25))
        assert gain.mean() == pytest.approx(expected, abs=4 * gain.std() / 100_000**0.5)
    change = change_between(before, after, 0.005)
    assert change is not None
    assert change.low < 0 < change.high
    assert change.compared == pytest.approx(SHARED.sum(), abs=0.01)
    assert change.before == pytest.approx(float(SHARED @ q_of), abs=0.01)
    assert change.smallest < 0.02


def rewards_of_units(rng: np.random.Generator, units: int, rows: int, p: float) -> FloatArray:
    """Every user likes all or nothing, but for one row in ten."""
    likes = rng.random(units) < p
    return np.asarray(
        np.where(rng.random((units, rows)) < 0.1, rng.random((units, rows)) < p, likes[:, None]),
        dtype=np.float64,
    )


def rare(rng: np.random.Generator) -> tuple[DriftSide, DriftSide]:
    return of_pi0(rng.random(300) < 0.02), of_pi0(rng.random(150) < 0.02)


def skewed(rng: np.random.Generator) -> tuple[DriftSide, DriftSide]:
    return of_pi0(rng.random(200) ** 20), of_pi0(1 - rng.random(200) ** (1 / 20))


def hidden(rng: np.random.Generator) -> tuple[DriftSide, DriftSide]:
    return of_pi0(rng.random(300) < 0.18), weighted(rng, 300, np.array([0.3, 0.0, 0.0]))


def shared(rng: np.random.Generator) -> tuple[DriftSide, DriftSide]:
    return both_shared(rng, 200, np.array([0.1, 0.9, 1.0]))


def two_rounds_of_users(rng: np.random.Generator) -> tuple[DriftSide, DriftSide]:
    """Half of the users come back."""
    rewards = rewards_of_units(rng, 150, 8, 0.3)
    ids = np.repeat(np.arange(150), 4)
    first, second = ids < 100, ids >= 50
    return (
        of_pi0(rewards[:, :4].reshape(-1)[first], ids[first]),
        of_pi0(rewards[:, 4:].reshape(-1)[second], ids[second]),
    )


@pytest.mark.parametrize("draw", [rare, skewed, hidden, shared, two_rounds_of_users])
def test_limits_fail_no_more_often_than_delta(draw: Draw) -> None:
    runs, delta = 2000, 0.05
    rng = np.random.default_rng(5)
    failed = np.zeros(2, dtype=int)
    for _ in range(runs):
        change = change_between(*draw(rng), delta / 2)
        assert change is not None
        failed += [change.low > 0, change.high < 0]
    assert binomial_tail(int(failed.sum()), runs, delta) > 0.01, failed
    assert all(binomial_tail(int(one), runs, delta / 2) > 0.01 for one in failed), failed


def test_a_change_of_the_smallest_size_is_seen_nine_times_in_ten() -> None:
    rng, n, p = np.random.default_rng(6), 2000, 0.3
    known = change_between(of_pi0(rng.random(n) < p), of_pi0(rng.random(n) < p), 0.005)
    assert known is not None
    for sign in (1, -1):
        other = p + sign * known.smallest
        seen = 0
        for _ in range(300):
            change = change_between(of_pi0(rng.random(n) < p), of_pi0(rng.random(n) < other), 0.005)
            assert change is not None
            seen += change.low > 0 if sign > 0 else change.high < 0
        assert 0.82 < seen / 300 < 0.98


def test_too_few_values_on_a_side_are_not_tested() -> None:
    many = of_pi0(np.zeros(500))
    assert change_between(many, of_pi0(np.zeros(FEWEST_TO_TEST_DRIFT - 1)), 0.01) is None
    two_users = of_pi0(np.zeros(500), np.arange(500) % 2)
    assert change_between(of_pi0(np.zeros(500), np.arange(500)), two_users, 0.01) is None


def test_rewards_that_are_all_zero_or_all_one_show_no_change() -> None:
    for reward in (np.zeros(200), np.ones(200)):
        change = change_between(of_pi0(reward), of_pi0(reward), 0.01)
        assert change is not None
        assert change.low < 0 < change.high
