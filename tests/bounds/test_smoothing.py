"""Logarithmic smoothing: exact values, its own laws, and a world where it is nearly tight."""

from __future__ import annotations

import math

import numpy as np
import pytest

from depsue.bounds import Smoothing, log_sums, smoothing_from_sums
from depsue.bounds.smoothing import SMOOTHING_SCALES
from depsue.data.terms import ConservativeTerms, WeightedTerms
from depsue.errors import ConfigError, NotConservative


def draw(seed: int, n: int, spread: float = 1.0, rate: float = 0.3) -> WeightedTerms:
    rng = np.random.default_rng(seed)
    weights = np.exp(spread * rng.standard_normal(n) - spread**2 / 2)
    return WeightedTerms.of(weights, (rng.random(n) < rate) * 1.0, r_max=1.0)


def average_log_capital(z: list[float], m: float, scales: list[float], lower: float = 0.0) -> float:
    """log of the average over scales of the product of (1 + (z - l)/s) / (1 + (m - l)/s)."""
    logs = [
        math.fsum(math.log((1 + (one - lower) / s) / (1 + (m - lower) / s)) for one in z)
        for s in scales
    ]
    top = max(logs)
    return top + math.log(math.fsum(math.exp(log - top) for log in logs) / len(scales))


def test_one_scale_by_hand() -> None:
    # delta^(1/n) = 1/2 and (1 + 3/1) / 2 - 1 = 1
    terms = ConservativeTerms(np.full(10, 3.0), 0.0, proof="declared")
    assert Smoothing(scale=1.0).lower(terms, 2.0**-10).value == pytest.approx(1.0)


def test_one_scale_is_the_formula() -> None:
    terms = draw(0, 500)
    s, delta = 7.0, 0.1
    mean_log = math.fsum(math.log(1 + z / s) for z in terms.values.tolist()) / 500
    expected = s * (math.exp(mean_log - math.log(1 / delta) / 500) - 1)
    bound = Smoothing(scale=s).lower(terms, delta)
    assert bound.value == pytest.approx(expected, rel=1e-10)
    assert bound.constants["scales"] == [7.0]


@pytest.mark.parametrize(
    ("seed", "spread", "rate", "delta"),
    [(1, 0.2, 0.5, 0.05), (2, 2.0, 0.3, 0.05), (3, 1.0, 0.05, 0.5), (4, 0.5, 0.9, 1e-6)],
)
def test_the_grid_solves_for_the_average_capital(
    seed: int, spread: float, rate: float, delta: float
) -> None:
    terms = draw(seed, 800, spread, rate)
    bound = Smoothing().lower(terms, delta).value
    z, scales, target = terms.values.tolist(), SMOOTHING_SCALES.tolist(), math.log(1 / delta)
    assert bound > 0
    assert average_log_capital(z, bound, scales) == pytest.approx(target, abs=1e-6)
    assert average_log_capital(z, bound * (1 + 1e-6), scales) < target


def test_negative_terms_are_shifted_by_their_declared_limit() -> None:
    rng = np.random.default_rng(5)
    values = (rng.uniform(0.5, 2.5, 3_000) - 0.95) * (rng.random(3_000) < 0.5)
    terms = ConservativeTerms(values, -0.95, proof="paired")
    bound = Smoothing().lower(terms, 0.05)
    scales = [0.95 * 4.0**k for k in range(-1, 8)]
    capital = average_log_capital(values.tolist(), bound.value, scales, -0.95)
    assert capital == pytest.approx(math.log(20), abs=1e-6)
    one = Smoothing(scale=10.0).lower(terms, 0.05).value
    shifted = ConservativeTerms(values + 0.95, 0.0, proof="shifted")
    assert one == pytest.approx(Smoothing(scale=10.0).lower(shifted, 0.05).value - 0.95)


def test_shards_merge_by_addition() -> None:
    terms = draw(6, 3_000)
    scales = Smoothing().scales(terms)
    shards = [log_sums(part, scales) for part in np.split(terms.values, [100, 1_700])]
    merged = smoothing_from_sums(np.sum(shards, axis=0), 3_000, scales, 0.05)
    assert merged == pytest.approx(Smoothing().lower(terms, 0.05).value, rel=1e-9)


def test_sums_are_sums_of_logarithms() -> None:
    rng = np.random.default_rng(7)
    z = np.exp(8 * rng.standard_normal(5_000)) * (rng.random(5_000) < 0.6)  # 1e-12 .. 1e12
    z[:3] = 0.0, 1e280, 1e-280
    scales = np.array([1e-3, 1.0, 1e5])
    expected = [math.fsum(math.log1p(one / s) for one in z.tolist()) for s in scales.tolist()]
    assert log_sums(z, scales) == pytest.approx(expected, rel=1e-10)
    assert log_sums(np.zeros(4), scales).tolist() == [0, 0, 0]


def test_more_reward_never_lowers_the_bound() -> None:
    terms = draw(8, 400)
    before = Smoothing().lower(terms, 0.05).value
    for row in range(0, 400, 25):
        rewards = terms.rewards.copy()
        rewards[row] = 1.0
        more = WeightedTerms.of(terms.weights, rewards, r_max=1.0)
        assert Smoothing().lower(more, 0.05).value >= before * (1 - 1e-9)


def test_order_does_not_matter() -> None:
    terms = draw(9, 1_000)
    turned = WeightedTerms.of(terms.weights[::-1], terms.rewards[::-1], r_max=1.0)
    one, other = (Smoothing().lower(t, 0.05).value for t in (terms, turned))
    assert one == pytest.approx(other, rel=1e-9)


def test_the_grid_follows_r_max_then_the_lower_limit() -> None:
    weighted = WeightedTerms.of(np.ones(9), np.ones(9), r_max=5.0)
    assert Smoothing().scales(weighted) == pytest.approx(5 * SMOOTHING_SCALES)
    paired = ConservativeTerms(np.zeros(9), -2.0, proof="paired")
    assert Smoothing().scales(paired) == pytest.approx(2 * SMOOTHING_SCALES + 2)
    assert Smoothing(unit_scale=3.0).scales(paired) == pytest.approx(3 * SMOOTHING_SCALES + 2)


def test_the_unit_of_rewards_does_not_matter() -> None:
    terms = draw(10, 2_000)
    ten = WeightedTerms.of(terms.weights, 10 * terms.rewards, r_max=10.0)
    one = Smoothing().lower(terms, 0.05).value
    assert Smoothing().lower(ten, 0.05).value == pytest.approx(10 * one)


def test_nearly_tight_where_one_row_decides() -> None:
    """One row, z = 10 with probability 0.1 and else 0: V = 1, and exceeding it at z = 10 is a
    miss of probability 0.1. That is not allowed at level 0.1, and is taken at 0.102."""
    ten = WeightedTerms.of(np.array([10.0]), np.ones(1), r_max=1.0)
    bound = Smoothing(scale=0.01)
    assert bound.lower(ten, 0.1).value == pytest.approx(10.01 * 0.1 - 0.01)
    assert bound.lower(ten, 0.1).value < 1 < bound.lower(ten, 0.102).value


def test_refuses_what_is_not_conservative() -> None:
    with pytest.raises(NotConservative, match="smoothing.*proof.*Found: int.*clipped IPS"):
        Smoothing().lower(3, 0.05)  # type: ignore[arg-type]


def test_refuses_to_guess_a_scale() -> None:
    terms = ConservativeTerms(np.ones(9), 0.0, proof="declared")
    with pytest.raises(ConfigError, match="declared scale.*ConservativeTerms.*unit_scale"):
        Smoothing().lower(terms, 0.05)
    assert Smoothing(unit_scale=1.0).lower(terms, 0.05).value > 0


@pytest.mark.parametrize("scale", [0.0, -1.0, math.inf, math.nan])
def test_refuses_scales_that_are_not_positive(scale: float) -> None:
    with pytest.raises(ConfigError, match="scale must be a positive number"):
        Smoothing(scale=scale)
    with pytest.raises(ConfigError, match="unit_scale must be a positive number"):
        Smoothing(unit_scale=scale)


def test_refuses_both_kinds_of_scale() -> None:
    with pytest.raises(ConfigError, match="give one of them.*scale 1.0, unit_scale 2.0"):
        Smoothing(scale=1.0, unit_scale=2.0)
