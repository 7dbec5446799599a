"""Betting: exact values against loops and a brute-force grid over m."""

from __future__ import annotations

import math

import numpy as np
import pytest

from depsue.bounds import Betting, best_bet, betting_lower, predictable_bets
from depsue.bounds.betting import shuffled
from depsue.data.terms import ConservativeTerms, WeightedTerms
from depsue.errors import ConfigError, NotConservative


def plain_bets(z: list[float], horizon: int, scale: float, delta: float) -> list[float]:
    """The bets of Waudby-Smith & Ramdas, one at a time."""
    bets: list[float] = []
    total, apart = scale / 2, scale**2 / 4
    for t, one in enumerate(z, start=1):
        variance = apart / t
        bets.append(math.sqrt(2 * math.log(1 / delta) / (horizon * variance)))
        total += one
        apart += (one - total / (t + 1)) ** 2
    return bets


def plain_log_capital(z: list[float], bets: list[float], m: float, cap: float) -> float:
    return math.fsum(
        math.log(1 + min(b, cap / m) * (one - m)) for one, b in zip(z, bets, strict=True)
    )


def draw(seed: int, n: int, spread: float = 0.8, rate: float = 0.3) -> WeightedTerms:
    rng = np.random.default_rng(seed)
    weights = np.exp(spread * rng.standard_normal(n) - spread**2 / 2)
    return WeightedTerms.of(weights, (rng.random(n) < rate) * 1.0, r_max=1.0)


def test_one_value_by_hand() -> None:
    # the bet is capped: 1 + (0.5 / m) (10 - m) = 2 at m = 10/3
    terms = ConservativeTerms(np.array([10.0]), 0.0, proof="declared")
    assert Betting(unit_scale=1.0).lower(terms, 0.5).value == pytest.approx(10 / 3)


def test_bets_agree_with_plain_python() -> None:
    z = draw(0, 300).values
    bets = predictable_bets(z, horizon=450, scale=2.0, delta=0.1)
    assert bets == pytest.approx(plain_bets(z.tolist(), 450, 2.0, 0.1), rel=1e-12)


def test_bets_are_predictable() -> None:
    z = draw(1, 200).values
    changed = np.r_[z[:120], z[120:] + 5]
    one, other = (predictable_bets(v, horizon=200, scale=1.0, delta=0.1) for v in (z, changed))
    assert np.array_equal(one[:121], other[:121])  # the bet on value 120 has not seen it
    assert not np.isclose(one[121], other[121])


@pytest.mark.parametrize(
    ("seed", "n", "spread", "rate", "cap", "delta"),
    [
        (2, 300, 0.3, 0.5, 0.5, 0.05),
        (3, 300, 2.0, 0.3, 0.5, 0.05),
        (4, 200, 0.5, 0.9, 0.75, 0.3),
        (5, 400, 1.0, 0.05, 0.25, 0.1),
    ],
)
def test_agrees_with_a_brute_force_grid_over_m(
    seed: int, n: int, spread: float, rate: float, cap: float, delta: float
) -> None:
    terms = draw(seed, n, spread, rate)
    z, target = terms.values.tolist(), math.log(1 / delta)
    bets = plain_bets(z, n, 1.0, delta)
    mean = sum(z) / n
    grid = [mean * k / 1_000 for k in range(1, 1_001)]
    rejected = [m for m in grid if plain_log_capital(z, bets, m, cap) >= target]
    bound = Betting(cap=cap).lower(terms, delta).value
    assert rejected[-1] <= bound < rejected[-1] + mean / 1_000
    assert plain_log_capital(z, bets, bound, cap) == pytest.approx(target, abs=1e-6)
    assert plain_log_capital(z, bets, bound * (1 + 1e-6), cap) < target


def test_bets_that_are_all_capped() -> None:
    z = draw(6, 500).values
    bound = betting_lower(z, np.full(500, 1e3), cap=0.2, delta=0.05)
    capital = plain_log_capital(z.tolist(), [1e3] * 500, bound, 0.2)
    assert capital == pytest.approx(math.log(20), abs=1e-6)


def test_terms_are_shifted_by_their_lower_limit() -> None:
    z = draw(7, 500).values
    terms = ConservativeTerms(z - 0.95, -0.95, proof="paired")
    bets = predictable_bets(z, horizon=500, scale=0.95, delta=0.05)
    expected = betting_lower(z, bets, cap=0.5, delta=0.05) - 0.95
    assert Betting().lower(terms, 0.05).value == pytest.approx(expected)


def test_the_order_matters_and_is_recorded() -> None:
    terms = draw(8, 500)
    turned = WeightedTerms.of(terms.weights[::-1], terms.rewards[::-1], r_max=1.0)
    one, other = (Betting().lower(t, 0.05) for t in (terms, turned))
    assert one.value != pytest.approx(other.value, rel=1e-6)
    assert one.constants["order"] == "as given"
    assert Betting(order="shuffled").lower(terms, 0.05).constants["order"] == "shuffled"


def test_shuffled_is_the_same_bound_on_another_order() -> None:
    terms = draw(9, 500)
    order = shuffled(500)
    assert sorted(order.tolist()) == list(range(500))
    moved = WeightedTerms.of(terms.weights[order], terms.rewards[order], r_max=1.0)
    one = Betting(order="shuffled").lower(terms, 0.05).value
    assert one == Betting().lower(moved, 0.05).value
    assert abs(np.corrcoef(order, np.arange(500))[0, 1]) < 0.1


def test_units_are_averaged_and_shuffled() -> None:
    terms = draw(10, 600)
    unit = np.random.default_rng(10).permutation(np.repeat(np.arange(200), 3))
    units = WeightedTerms.of(terms.weights, terms.rewards, r_max=1.0, unit=unit)
    means = [float(terms.values[unit == u].mean()) for u in range(200)]
    plain = ConservativeTerms(np.array(means), 0.0, proof="declared")
    bound = Betting().lower(units, 0.05)
    assert bound.n == 200
    assert bound.value == pytest.approx(
        Betting(unit_scale=1.0, order="shuffled").lower(plain, 0.05).value
    )
    assert bound.constants["order"] == "shuffled"


def test_the_unit_of_rewards_does_not_matter() -> None:
    terms = draw(11, 2_000)
    ten = WeightedTerms.of(terms.weights, 10 * terms.rewards, r_max=10.0)
    one = Betting().lower(terms, 0.05).value
    assert Betting().lower(ten, 0.05).value == pytest.approx(10 * one)


def test_one_huge_term_leaves_the_search_precise() -> None:
    z = [1.0] * 300 + [1e12] + [0.5] * 300
    terms = ConservativeTerms(np.array(z), 0.0, proof="declared")
    bound = Betting(unit_scale=1.0).lower(terms, 0.05).value
    capital = plain_log_capital(z, plain_bets(z, 601, 1.0, 0.05), bound, 0.5)
    assert capital == pytest.approx(math.log(20), abs=1e-6)


def test_astronomic_terms_pass_without_a_warning() -> None:
    terms = ConservativeTerms(np.r_[np.ones(200), 1e200, np.ones(200)], 0.0, proof="declared")
    assert 0 < Betting(unit_scale=1.0).lower(terms, 0.05).value < 1e200


def test_constants_name_every_setting() -> None:
    bound = Betting(cap=0.3, horizon=900, bets_for=0.1).lower(draw(12, 100), 0.05)
    assert bound.constants == {
        "bound": "betting",
        "cap": 0.3,
        "horizon": 900,
        "horizon_from": "declared",
        "bets_for": 0.1,
        "unit_scale": 1.0,
        "order": "as given",
        "lower": 0.0,
    }


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cap": 0.0}, "cap must lie in"),
        ({"cap": 1.0}, "cap must lie in"),
        ({"horizon": 0}, "horizon must be a positive number, or None. Found: 0"),
        ({"bets_for": 1.0}, "delta must lie in"),
        ({"unit_scale": -1.0}, "unit_scale must be a positive number"),
        ({"order": "sorted"}, "order must be one of 'as given', 'shuffled'. Found: 'sorted'"),
    ],
)
def test_refuses_bad_settings(settings: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Betting(**settings)  # type: ignore[arg-type]


def test_refuses_what_is_not_conservative() -> None:
    with pytest.raises(NotConservative, match="betting.*proof.*Found: list.*clipped IPS"):
        Betting().lower([1.0], 0.05)  # type: ignore[arg-type]


@pytest.mark.parametrize("bets", [(0.2,), (3.0,), (0.5, 0.05)])
@pytest.mark.parametrize("lower", [0.0, -0.5])
def test_constant_bets_are_the_largest_m_of_a_grid(bets: tuple[float, ...], lower: float) -> None:
    values = np.random.default_rng(14).exponential(0.5, 300) * (np.arange(300) % 3 > 0) + lower / 2
    bound = Betting(bets=bets).lower(ConservativeTerms(values, lower, proof="test"), 0.05)

    def capital(m: float) -> float:
        z, capitals = values - lower, []
        for bet in bets:
            size = min(bet, 0.5 / m)
            capitals.append(float(np.prod(1 + size * (z - m))))
        return float(np.mean(capitals))

    grid = np.linspace(1e-4, float((values - lower).mean()), 2_000)
    rejected = [m for m in grid.tolist() if capital(m) >= 20]
    assert bound.value - lower == pytest.approx(rejected[-1], abs=float(grid[1] - grid[0]))
    assert bound.constants == {"bound": "betting", "cap": 0.5, "bets": list(bets), "lower": lower}


def test_the_best_bet_is_near_the_best() -> None:
    values = (np.random.default_rng(15).random(5_000) < 0.3) * 1.0
    terms = ConservativeTerms(values, 0.0, proof="test")
    best = best_bet(0.21, 5_000, 0.05)
    at = [Betting(bets=(best * by,)).lower(terms, 0.05) for by in (0.5, 1.0, 2.0)]
    widths = [bound.mean - bound.value for bound in at]
    assert widths[1] < 0.85 * min(widths[0], widths[2])
    assert widths[1] < 2.5 * math.sqrt(0.21 / 5_000)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"bets": (0.0,)}, r"bets must be positive.*0.0.*variance"),
        ({"bets": (0.1,), "horizon": 10}, r"constant bets have no order.*horizon=10.*bets alone"),
        ({"bets": (0.1,), "order": "shuffled"}, r"constant bets have no order.*'shuffled'"),
    ],
)
def test_what_constant_bets_refuse(settings: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Betting(**settings)  # type: ignore[arg-type]
