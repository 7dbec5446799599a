"""Eq. 4, worked out again in plain Python."""

from __future__ import annotations

import math

import numpy as np
import pytest

from depsue.bounds import (
    Hcope,
    Partition,
    RewardedRows,
    hcope_from_rewarded,
    rewarded_rows,
    tuning_rows,
)
from depsue.bounds.hcope import TAUS, best_tau, empirical_bernstein, tuning_and_rest
from depsue.bounds.hcope import eq4 as eq4_of
from depsue.data.terms import ConservativeTerms, WeightedTerms
from depsue.errors import ConfigError, NotConservative


def eq4(z: list[float], n: int, z_max: float, delta: float) -> float:
    """Eq. 4 with the moments of z and the size n."""
    mean = math.fsum(z) / len(z)
    variance = math.fsum((one - mean) ** 2 for one in z) / len(z)
    log = math.log(2 / delta)
    return mean - math.sqrt(2 * log * variance / (n - 1)) - 7 * z_max * log / (3 * (n - 1))


def plain_hcope(values: list[list[tuple[float, float]]], r_max: float, delta: float) -> list[float]:
    """[bound, tau, mean of z] from values, each a list of rows (weight, reward)."""

    def clipped(tau: float, which: list[int]) -> list[float]:
        return [sum(min(w, tau) * r for w, r in values[i]) / len(values[i]) for i in which]

    tuning = [int(i) for i in tuning_rows(len(values))]
    rest = sorted(set(range(len(values))) - set(tuning))
    grid = [2 ** (k / 2) for k in range(-4, 33)]
    tau = max(grid, key=lambda t: eq4(clipped(t, tuning), len(rest), t * r_max, delta))
    z = clipped(tau, rest)
    return [eq4(z, len(rest), tau * r_max, delta), tau, sum(z) / len(z)]


def draw(seed: int, n: int, spread: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    weights = np.exp(spread * rng.standard_normal(n) - spread**2 / 2)
    return weights, 2.0 * rng.random(n) * (rng.random(n) < 0.4)


def test_the_formula_by_hand() -> None:
    # log(2/delta) = 1: 0.5 - sqrt(2 * 0.25 / 50) - 7 * 3 / 150
    assert empirical_bernstein(0.5, 0.25, 51, 3.0, 2 / math.e) == pytest.approx(0.5 - 0.1 - 0.14)


@pytest.mark.parametrize(("seed", "n", "spread"), [(0, 400, 0.3), (1, 3_000, 1.0), (2, 3_001, 2.0)])
def test_rows_agree_with_plain_python(seed: int, n: int, spread: float) -> None:
    weights, rewards = draw(seed, n, spread)
    terms = WeightedTerms.of(weights, rewards, r_max=2.0)
    bound = Hcope().lower(terms, 0.1)
    rows = [[row] for row in zip(weights.tolist(), rewards.tolist(), strict=True)]
    value, tau, mean = plain_hcope(rows, 2.0, 0.1)
    assert bound.constants["tau"] == tau
    assert bound.mean == pytest.approx(mean, rel=1e-12)
    assert bound.value == pytest.approx(max(value, 0), rel=1e-12)
    assert bound.n == n - n // 20


def test_units_agree_with_plain_python() -> None:
    weights, rewards = draw(3, 4_000, 1.5)
    rng = np.random.default_rng(4)
    unit = np.concatenate([np.arange(900), rng.integers(0, 900, 3_100)])
    units: list[list[tuple[float, float]]] = [[] for _ in range(900)]
    for u, w, r in zip(unit.tolist(), weights.tolist(), rewards.tolist(), strict=True):
        units[u].append((w, r))
    bound = Hcope().lower(WeightedTerms.of(weights, rewards, r_max=2.0, unit=unit), 0.1)
    value, tau, mean = plain_hcope(units, 2.0, 0.1)
    assert bound.constants["tau"] == tau
    assert bound.mean == pytest.approx(mean, rel=1e-12)
    assert bound.value == pytest.approx(value, rel=1e-12)
    assert bound.n == 900 - 45


def test_a_declared_tau_uses_every_row() -> None:
    weights, rewards = draw(5, 500)
    bound = Hcope(tau=3.0).lower(WeightedTerms.of(weights, rewards, r_max=2.0), 0.1)
    z = [min(w, 3.0) * r for w, r in zip(weights.tolist(), rewards.tolist(), strict=True)]
    assert bound.value == pytest.approx(eq4(z, 500, 6.0, 0.1), rel=1e-12)
    assert bound.n == 500
    assert bound.constants["tau_from"] == "declared"


def test_z_max_is_declared_and_not_the_largest_term() -> None:
    weights, rewards = draw(6, 2_000, 0.2)
    one, ten = (
        Hcope(tau=8.0).lower(WeightedTerms.of(weights, rewards, r_max=r_max), 0.05)
        for r_max in (2.0, 20.0)
    )
    assert one.constants["z_max"] == 16.0
    expected = 7 * (160 - 16) * math.log(40) / (3 * 1_999)
    assert one.value - ten.value == pytest.approx(min(expected, one.value))


def test_constant_terms() -> None:
    n, delta = 2_000, 0.05
    bound = Hcope().lower(WeightedTerms.of(np.ones(n), np.full(n, 0.5), r_max=1.0), delta)
    assert bound.constants["tau"] == 1.0  # the smallest tau that clips nothing
    assert bound.value == pytest.approx(0.5 - 7 * math.log(2 / delta) / (3 * 1_899), rel=1e-12)


def test_the_unit_of_rewards_does_not_matter() -> None:
    weights, rewards = draw(7, 2_000)
    one = Hcope().lower(WeightedTerms.of(weights, rewards, r_max=2.0), 0.05)
    ten = Hcope().lower(WeightedTerms.of(weights, 10 * rewards, r_max=20.0), 0.05)
    assert ten.value == pytest.approx(10 * one.value)


def test_a_negative_value_is_reported_as_0() -> None:
    weights, rewards = draw(8, 60)
    terms = WeightedTerms.of(weights, rewards, r_max=2.0)
    assert Hcope().lower(terms, 0.05).value == 0
    assert eq4_of(RewardedRows.of(terms, 60).moments(4.0), 4.0, r_max=2.0, delta=0.05).value < 0


def test_the_kernel_on_rewarded_rows_is_the_class() -> None:
    n = 5_000
    weights, rewards = draw(9, n)
    first, second = rewarded_rows(rewards)
    tuning = RewardedRows(weights[first], rewards[first], len(tuning_rows(n)))
    rest = RewardedRows(weights[second], rewards[second], n - tuning.n)
    kernel = hcope_from_rewarded(tuning, rest, r_max=2.0, delta=0.05)
    bound = Hcope().lower(WeightedTerms.of(weights, rewards, r_max=2.0), 0.05)
    assert (kernel.value, kernel.tau, kernel.mean) == (
        bound.value,
        bound.constants["tau"],
        bound.mean,
    )


def test_tuning_never_reads_the_rest() -> None:
    weights, rewards = draw(10, 4_000)
    others = np.ones(4_000, dtype=bool)
    others[tuning_rows(4_000)] = False
    changed = np.where(others, 100 * weights, weights)
    taus = [
        Hcope().lower(WeightedTerms.of(w, rewards, r_max=2.0), 0.05).constants["tau"]
        for w in (weights, changed)
    ]
    assert taus[0] == taus[1]


def test_tau_grows_with_the_rows_to_come() -> None:
    weights, rewards = draw(11, 1_000, 2.0)
    sums = RewardedRows(weights, rewards, 1_000).sums(TAUS)
    taus = [best_tau(sums, 1_000, n, r_max=2.0, delta=0.05) for n in (100, 10_000, 1_000_000)]
    assert taus[0] < taus[1] < taus[2]
    assert set(taus) <= set(TAUS.tolist())


def test_the_grid_is_the_documented_one() -> None:
    assert (TAUS[0], TAUS[-1], len(TAUS)) == (0.25, 2.0**16, 37)
    with pytest.raises(ValueError, match="read-only"):
        TAUS[0] = 1.0


def test_astronomic_weights_are_clipped_without_a_warning() -> None:
    weights, rewards = np.full(100, 1e300), np.ones(100)
    bound = Hcope().lower(WeightedTerms.of(weights, rewards, r_max=1.0), 0.05)
    assert math.isfinite(bound.value)


def test_refuses_too_few_values() -> None:
    terms = WeightedTerms.of(np.ones(39), np.ones(39), r_max=1.0)
    with pytest.raises(ConfigError, match=r"at least 40 values .* Found: 39\."):
        Hcope().lower(terms, 0.05)
    units = WeightedTerms.of(np.ones(80), np.ones(80), r_max=1.0, unit=np.repeat(np.arange(20), 4))
    with pytest.raises(ConfigError, match=r"at least 40 values .* Found: 20\."):
        Hcope().lower(units, 0.05)


def test_refuses_terms_without_weights() -> None:
    terms = ConservativeTerms(np.ones(100), 0.0, proof="declared")
    with pytest.raises(ConfigError, match="weights and rewards apart.*ConservativeTerms.*IPS"):
        Hcope().lower(terms, 0.05)


def test_refuses_what_is_not_conservative_and_names_the_cure() -> None:
    with pytest.raises(NotConservative, match="proof.*Found: float.*Cure: .*clipped IPS"):
        Hcope().lower(0.5, 0.05)  # type: ignore[arg-type]


@pytest.mark.parametrize("tau", [0.0, -1.0, math.inf, math.nan])
def test_refuses_a_tau_that_is_not_positive(tau: float) -> None:
    with pytest.raises(ConfigError, match="tau must be a positive number"):
        Hcope(tau=tau)


def test_rewarded_rows_split_the_rewarded() -> None:
    rewards = np.random.default_rng(0).random(1_000) * (np.arange(1_000) % 3 == 0)
    first, second = rewarded_rows(rewards)
    tuning = set(tuning_rows(1_000).tolist())
    wanted = np.flatnonzero(rewards).tolist()
    assert first.tolist() == [row for row in wanted if row in tuning]
    assert second.tolist() == [row for row in wanted if row not in tuning]


@pytest.mark.parametrize("units", [False, True])
def test_sums_over_the_grid_are_sums_at_each_tau(units: bool) -> None:
    rng = np.random.default_rng(1)
    weights = np.r_[np.exp(3 * rng.standard_normal(500)), TAUS]  # ties with the grid too
    sample = RewardedRows(
        weights, rng.random(len(weights)), 1_000, np.arange(len(weights)) // 4 if units else None
    )
    total, squares = sample.sums(TAUS)
    for place, tau in enumerate(TAUS.tolist()):
        z = np.minimum(weights, tau) * sample.rewards
        if units:
            z = np.array([z[i : i + 4].sum() for i in range(0, len(z), 4)])
        assert total[place] == pytest.approx(z.sum())
        assert squares[place] == pytest.approx((z**2).sum())


def test_parts_with_units_keep_units_whole() -> None:
    rng = np.random.default_rng(2)
    unit = np.repeat(np.arange(100), 5)
    terms = WeightedTerms.of(rng.random(500), rng.random(500), r_max=1.0, unit=unit)
    tuning, rest = tuning_and_rest(Partition(terms), 100)
    assert (tuning.n, rest.n) == (5, 95)
    assert tuning.unit is not None and rest.unit is not None
    assert set(tuning.unit.tolist()) == set(tuning_rows(100).tolist())
    assert not set(tuning.unit.tolist()) & set(rest.unit.tolist())
    means = np.r_[tuning.clipped(9.0), rest.clipped(9.0)]
    assert sorted(means) == pytest.approx(sorted(terms.per_unit(terms.values)))
