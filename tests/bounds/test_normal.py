"""The normal bound, worked out again in plain Python; its laws; coverage where it is hard."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from statistics import NormalDist, fmean, pvariance

import numpy as np
import pytest

import depsue.bounds.normal as module
from depsue.bounds import Betting, Normal, tuning_rows
from depsue.bounds.normal import HANDOVERS, Spread, bernstein, distance, smoothed, spread_of
from depsue.data.terms import ConservativeTerms, WeightedTerms
from depsue.errors import ConfigError, DataError
from depsue.testing.bounds import RARE_WEIGHTS, binomial_tail

Draw = Callable[[np.random.Generator], np.ndarray]
PAIRS = [(0.4690, 0.0), (0.3322, 0.429), (0.3031, 0.646)]


def plain(values: np.ndarray, lower: float = 0.0) -> ConservativeTerms:
    return ConservativeTerms(np.asarray(values, dtype=float), lower, proof="a test's own terms")


# exact values


def slow_smoothed(z: list[float], bet: float, level: float) -> float:
    logs = math.fsum(math.log(1 + bet * one) for one in z)
    return (math.exp((logs - math.log(1 / level)) / len(z)) - 1) / bet


def slow_normal(x: list[float], low: float, high: float, delta: float) -> float:
    """The bound with loops, in the unit of the terms."""
    n, side, main = len(x), delta / 100, 0.96 * delta
    first = [int(i) for i in tuning_rows(n)]
    rest = [i for i in range(n) if i not in set(first)]
    centre, span = fmean(x[i] for i in first), high - low
    most = max(centre - low, high - centre)

    def power(rows: list[int], k: int) -> list[float]:
        return [abs(x[i] - centre) ** k for i in rows]

    def bet(k: int, scale: float) -> float:
        log = math.log(2_000)
        spread = len(rest) * pvariance(power(first, k))
        return math.sqrt(2 * log / (spread + 2 * log * scale**2))

    second = slow_smoothed(power(rest, 2), -bet(2, 1.05 * most**2), side)
    least = slow_smoothed(power(rest, 2), bet(2, fmean(power(first, 2)) or most**2), side)
    third = slow_smoothed(power(rest, 3), -bet(3, 1.05 * most**3), side)
    log = math.log(2 / side)
    off = abs(fmean(x) - centre) + math.sqrt(2 * second * log / n) + span * log / (3 * n)
    sd_most, sd_least = math.sqrt(second), math.sqrt(max(least - off**2, 0))
    beta = (third ** (1 / 3) + off) ** 3

    def by_normal(sd: float, factor: float, more: float) -> float:
        left = main - factor * (beta / sd**3 + more) / math.sqrt(n) if sd > 0 else 0
        if left <= 0:
            return math.inf
        return max(NormalDist().inv_cdf(1 - left), 0) * sd / math.sqrt(n)

    def by_bernstein(sd: float) -> float:
        return sd * math.sqrt(2 * math.log(1 / main) / n) + span * math.log(1 / main) / (3 * n)

    ways = [by_bernstein(sd_most)]
    for pair in PAIRS:
        ways.append(max(by_normal(sd_least, *pair), by_normal(sd_most, *pair)))
        for s in (span * 2 ** (k / 8) for k in range(-160, -7)):
            if sd_least < s < sd_most:
                ways.append(max(by_bernstein(s), by_normal(s, *pair), by_normal(sd_most, *pair)))
    return max(fmean(x) - min(ways), low)


@pytest.mark.parametrize(
    ("n", "delta", "by"),
    [
        (40, 0.3, "bernstein"),
        (800, 0.05, "berry-esseen and bernstein"),
        (2_000, 0.05, "berry-esseen"),
        (2_001, 0.001, "bernstein"),
        (2_000, 0.7, "berry-esseen"),
    ],
)
def test_rows_agree_with_plain_python(n: int, delta: float, by: str) -> None:
    x = np.random.default_rng(n).beta(0.5, 1.0, n) * 3 - 1
    bound = Normal(upper=2.0).lower(plain(x, -1.0), delta)
    assert bound.value == pytest.approx(slow_normal(x.tolist(), -1.0, 2.0, delta), rel=1e-9)
    assert bound.constants["by"] == by
    assert bound.mean == pytest.approx(fmean(x.tolist()))
    assert bound.n == n


def test_weights_are_clipped_and_units_averaged_as_in_plain_python() -> None:
    rng = np.random.default_rng(1)
    weights, rewards = rng.lognormal(0, 1, 3_000), 2 * rng.random(3_000)
    unit = np.r_[np.arange(900), rng.integers(0, 900, 2_100)]
    terms = WeightedTerms.of(weights, rewards, r_max=2.0, unit=unit)
    bound = Normal(tau=3.0).lower(terms, 0.1)
    units: list[list[float]] = [[] for _ in range(900)]
    for u, w, r in zip(unit.tolist(), weights.tolist(), rewards.tolist(), strict=True):
        units[u].append(min(w, 3.0) * r)
    means = [fmean(one) for one in units]
    assert bound.value == pytest.approx(slow_normal(means, 0.0, 6.0, 0.1), rel=1e-9)
    assert bound.n == 900
    assert (bound.constants["upper"], bound.constants["r_max"]) == (6.0, 2.0)
    assert bound.constants["upper_from"] == "tau r_max"


def test_many_rows_cost_what_the_central_limit_theorem_does() -> None:
    n = 200_000
    x = (np.random.default_rng(2).random(n) < 0.3) * 1.0
    bound = Normal(upper=1.0).lower(plain(x), 0.05)
    errors = (bound.mean - bound.value) / (x.std() / math.sqrt(n))
    assert NormalDist().inv_cdf(1 - 0.048) < errors < 1.69
    betting = Betting(unit_scale=1.0).lower(plain(x), 0.05)
    assert bound.value > betting.value


def test_smoothed_by_hand() -> None:
    z = np.array([0.0, 1.0])
    # (exp((log 1.5)/2 - log(4)/2) - 1) / 0.5 and (1 - exp((log .5)/2 - log(4)/2)) / 0.5
    assert smoothed(z, 0.5, 1.0, 0.25) == pytest.approx(2 * (math.sqrt(1.5 / 4) - 1))
    assert smoothed(z, -0.5, 1.0, 0.25) == pytest.approx(2 * (1 - math.sqrt(0.5 / 4)))


# laws


def test_the_unit_and_the_origin_of_terms_do_not_matter() -> None:
    x = np.random.default_rng(3).random(3_000) ** 2
    one = Normal(upper=1.0).lower(plain(x), 0.05)
    other = Normal(upper=107.0).lower(plain(100 * x + 7, 7.0), 0.05)
    assert other.value == pytest.approx(100 * one.value + 7)
    for unit in (1e-300, 1e300):
        scaled = Normal(upper=unit).lower(plain(unit * x), 0.05)
        assert scaled.value == pytest.approx(unit * one.value)


def test_a_wider_range_costs() -> None:
    x = np.random.default_rng(4).random(5_000)
    values = [Normal(upper=upper).lower(plain(x), 0.05).value for upper in (1.0, 4.0, 16.0, 64.0)]
    assert values == sorted(values, reverse=True)
    assert values[0] > values[-1]


def test_is_nested_in_delta_where_bernstein_hands_over() -> None:
    for seed in range(5):
        x = np.random.default_rng([5, seed]).beta(0.5, 1.0, 700)
        bounds = [Normal(upper=1.0).lower(plain(x), d) for d in np.geomspace(0.001, 0.9, 200)]
        values = [one.value for one in bounds]
        assert values == sorted(values)
        assert {one.constants["by"] for one in bounds} == {
            "bernstein",
            "berry-esseen",
            "berry-esseen and bernstein",
        }


def test_only_the_pilot_depends_on_the_order() -> None:
    x = np.random.default_rng(6).random(2_000)
    others = np.delete(np.arange(2_000), tuning_rows(2_000))
    turned = x.copy()
    turned[others] = x[others[::-1]]
    one, two = (Normal(upper=1.0).lower(plain(v), 0.05).value for v in (x, turned))
    assert one == pytest.approx(two, rel=1e-12)


def test_the_distance_is_enough_for_every_sd_in_the_spread() -> None:
    """Between its ends neither the true sd nor a smaller third moment asks for more."""
    rng, ways = np.random.default_rng(7), set()
    for _ in range(300):
        n, delta = int(rng.integers(300, 3_000)), float(rng.choice([0.05, 0.2, 0.6]))
        least = float(rng.uniform(0.05, 0.3))
        most, third = least * float(rng.uniform(1, 1.4)), least**3 * float(rng.uniform(1, 9))
        enough, way = distance(n, Spread(least, most, third), delta)
        ways.add(way)
        for sd in np.linspace(least, most, 15).tolist():
            for smaller in (third, 0.7 * third):
                assert distance(n, Spread(sd, sd, smaller), delta)[0] <= enough + 1e-12
    assert ways == {"bernstein", "berry-esseen", "berry-esseen and bernstein"}


# where it gives up


def test_few_values_give_the_lower_limit_and_say_why() -> None:
    bound = Normal(upper=1.0).lower(plain(np.ones(39), -0.5), 0.05)
    assert (bound.value, bound.mean, bound.n) == (-0.5, 1.0, 39)
    assert (bound.constants["by"], bound.constants["why"]) == (
        "lower limit",
        "fewer than 40 values",
    )


def test_rare_rewards_give_the_lower_limit_and_say_why() -> None:
    x = np.r_[np.zeros(999), 1.0]
    bound = Normal(upper=50.0).lower(plain(x), 0.05)
    assert bound.value == 0
    assert bound.constants["by"] == "lower limit"
    assert "lower limit" in bound.constants["why"]
    assert bound.constants["correction"] > 0.05
    json.dumps(dict(bound.constants), allow_nan=False)


def test_constant_terms_fall_back_on_bernstein() -> None:
    bound = Normal(upper=1.0).lower(plain(np.full(4_000, 0.5)), 0.05)
    expected = bernstein(4_000, bound.constants["sd_most"], 0.048)
    assert bound.value == pytest.approx(0.5 - expected, rel=1e-12)
    assert bound.constants["by"] == "bernstein"
    assert "uses up delta" in bound.constants["why"]
    json.dumps(dict(bound.constants), allow_nan=False)


# refusals


def test_refuses_undeclared_limits() -> None:
    with pytest.raises(ConfigError, match="declared upper limit.*ConservativeTerms.*Normal.upper="):
        Normal().lower(plain(np.ones(100)), 0.05)
    with pytest.raises(ConfigError, match="declared upper limit.*tau 2.0.*Normal.upper="):
        Normal(tau=2.0).lower(plain(np.ones(100)), 0.05)
    weighted = WeightedTerms.of(np.ones(100), np.ones(100), r_max=1.0)
    with pytest.raises(ConfigError, match="declared upper limit.*WeightedTerms.*Normal.tau="):
        Normal().lower(weighted, 0.05)


def test_a_term_above_the_limit_is_named() -> None:
    x = np.r_[np.ones(70), 3.5, np.ones(20), 4.0]
    message = r"exceed the declared upper limit 3\. Found: column 'term', row 70: 3\.5 \(2 such"
    with pytest.raises(DataError, match=message):
        Normal(upper=3.0).lower(plain(x), 0.05)
    assert Normal(upper=4.0).lower(plain(x), 0.05).value >= 0


@pytest.mark.parametrize("upper", [-0.5, -1.0])
def test_refuses_limits_that_leave_no_range(upper: float) -> None:
    with pytest.raises(ConfigError, match="above the lower limit"):
        Normal(upper=upper).lower(plain(np.full(50, -0.5 + min(upper + 0.5, 0)), upper), 0.05)


def test_refuses_an_infinite_range() -> None:
    weighted = WeightedTerms.of(np.ones(100), np.ones(100), r_max=1e300)
    with pytest.raises(ConfigError, match="by a finite number. Found: lower 0, upper inf"):
        Normal(tau=1e300).lower(weighted, 0.05)


def test_refuses_settings_that_break_a_rule() -> None:
    for upper in (math.inf, math.nan, True, "1"):
        with pytest.raises(ConfigError, match="upper must be a finite number"):
            Normal(upper=upper)  # type: ignore[arg-type]
    for tau in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ConfigError, match="tau must be a positive number"):
            Normal(tau=tau)
    with pytest.raises(ConfigError, match="give one of them. Found: upper 1.0, tau 2.0"):
        Normal(upper=1.0, tau=2.0)


def test_handovers_are_fixed() -> None:
    assert (HANDOVERS[0], HANDOVERS[-1], len(HANDOVERS)) == (2.0**-20, 0.5, 153)


# coverage


def binomial_above(n: int, p: float, over: float) -> float:
    """P(S/n - p > over) for S binomial(n, p), exactly."""
    log = [math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) for k in range(n + 1)]
    mass = [
        math.exp(c + k * math.log(p) + (n - k) * math.log1p(-p))
        for k, c in enumerate(log)
        if k / n - p > over
    ]
    return math.fsum(mass)


def worst_excess() -> float:
    """The largest P(mean - p > distance) / delta over Bernoulli terms, sd and beta3 known."""
    worst = 0.0
    for n in (20, 50, 200, 1_000):
        for p in (0.01, 0.05, 0.3, 0.5, 0.9):
            sd, third = math.sqrt(p * (1 - p)), p * (1 - p) * (p**2 + (1 - p) ** 2)
            for delta in (0.05, 0.1, 0.2, 0.4):
                over = distance(n, Spread(sd, sd, third), delta)[0]
                worst = max(worst, binomial_above(n, p, over) / delta)
    return worst


def test_covers_lattices_exactly_and_the_correction_is_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert worst_excess() <= 1
    monkeypatch.setattr(module, "BERRY_ESSEEN", ((0.0, 0.0),))  # the central limit theorem alone
    assert worst_excess() > 1.2


def bernoulli(n: int, p: float) -> Draw:
    return lambda rng: (rng.random(n) < p) * 1.0


def skewed(rng: np.random.Generator) -> np.ndarray:
    """min(exponential, 8): mean 1 - exp(-8)."""
    return np.minimum(rng.exponential(size=4_000), 8.0)


def rare_losses(rng: np.random.Generator) -> np.ndarray:
    return np.where(rng.random(300) < 0.004, -1.0, 0.05)


def rare_weights(rng: np.random.Generator) -> np.ndarray:
    return RARE_WEIGHTS.draw(rng).values


HARD: dict[str, tuple[Draw, float, float, float, int]] = {
    "a lattice, few values": (bernoulli(60, 0.5), 0.0, 1.0, 0.5, 600),
    "a lattice, nearly tight": (bernoulli(6_000, 0.5), 0.0, 1.0, 0.5, 1_500),
    "rare rewards": (bernoulli(2_000, 0.002), 0.0, 1.0, 0.002, 400),
    "skewed": (skewed, 0.0, 8.0, 1 - math.exp(-8), 1_000),
    "near-degenerate": (rare_losses, -1.0, 0.05, 0.05 - 0.004 * 1.05, 800),
    "rare huge weights": (rare_weights, 0.0, 2_000.0 + 1e-9, RARE_WEIGHTS.value, 300),
}


def misses(bound: Callable[[np.ndarray, float], float], name: str, delta: float) -> float:
    """How surprising it is how often the bound exceeds the mean, if it were valid."""
    draw, _, _, mean, runs = HARD[name]
    draws = (draw(np.random.default_rng([8, run])) for run in range(runs))
    count = sum(bound(x, delta) > mean + 1e-12 for x in draws)
    return binomial_tail(count, runs, delta)


@pytest.mark.parametrize("delta", [0.3, 0.05, 0.001])
@pytest.mark.parametrize("name", HARD)
def test_covers(name: str, delta: float) -> None:
    _, low, high, _, _ = HARD[name]
    bound = Normal(upper=high)
    chance = misses(lambda x, d: bound.lower(plain(x, low), d).value, name, delta)
    assert chance > 1e-4


def test_the_plain_normal_interval_does_not_cover() -> None:
    """What limits and side events are for: losses that were not seen are in no sample's sd."""

    def naive(x: np.ndarray, delta: float) -> float:
        return float(x.mean() - NormalDist().inv_cdf(1 - delta) * x.std() / math.sqrt(len(x)))

    assert misses(naive, "near-degenerate", 0.05) < 1e-4


@pytest.mark.parametrize("name", HARD)
def test_the_spread_holds_sd_and_third_moment(name: str) -> None:
    """Each of the three bounds fails no more often than its level."""
    draw, low, high, mean, _ = HARD[name]
    many = np.concatenate([draw(np.random.default_rng([9, i])) for i in range(400)])
    centred = np.abs(many - mean) / (high - low)
    sd, third = math.sqrt(float((centred**2).mean())), float((centred**3).mean())
    runs, level, slack = 300, 0.05, 0.01 if name != "rare huge weights" else 0.2
    wrong = np.zeros(3, dtype=int)
    for run in range(runs):
        spread = spread_of(draw(np.random.default_rng([10, run])), low, high, level)
        wrong += [
            spread.sd_most < sd * (1 - slack),
            spread.sd_least > sd * (1 + slack),
            spread.third_most < third * (1 - slack),
        ]
    assert all(binomial_tail(int(count), runs, level) > 1e-4 for count in wrong), wrong
