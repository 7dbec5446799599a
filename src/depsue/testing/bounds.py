"""The conformance suite of bounds: laws, refusals, and coverage where it is hard.

A new bound is tested in three lines::

    class TestMine(BoundConformance):
        bound = Mine()
        fixed = Mine(tau=4.0)  # only if constants are tuned

Coverage is a seeded one-sided binomial test: over many draws the bound may exceed the true value
a fraction delta of the time. It runs at two deltas, for a bonus that is half of what it should be
shows at the small one. The worlds differ in what they catch: many rows near pi0, where a bound is
nearly tight, catch a bonus that is too small; novel mass catches weights that were normalised;
rewards that almost never fail, and rare losses, catch a range that was read off the sample.

`binomial_tail` and `rate_interval` are the one place for binomial arithmetic.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from depsue.bounds import BaseBound, BoundRun, Partition
from depsue.data.checks import FloatArray, IntArray
from depsue.data.terms import ConservativeTerms, Terms, WeightedTerms
from depsue.errors import ConfigError, DepsueError, NotConservative
from depsue.protocols import Bound, BoundValue


def binomial_tail(count: int, runs: int, p: float) -> float:
    """P(X >= count) for X binomial(runs, p): how surprising so many are."""
    if count <= 0 or p >= 1:
        return 1.0
    if p <= 0:
        return 0.0
    i = np.arange(runs + 1)
    ways = np.concatenate([[0.0], np.cumsum(np.log((runs - i[:-1]) / (i[:-1] + 1)))])
    terms = np.exp(ways + i * math.log(p) + (runs - i) * math.log1p(-p))
    return float(min(terms[count:].sum(), 1.0))


def rate_interval(count: int, n: int) -> tuple[float, float]:
    """The exact 95% interval (Clopper and Pearson) of a rate of which `count` of n were seen."""
    low = 0.0 if count == 0 else _root(lambda p: binomial_tail(count, n, p) - 0.025)
    high = 1.0 if count == n else _root(lambda p: binomial_tail(count + 1, n, p) - 0.975)
    return low, high


def _root(rising: Callable[[float], float]) -> float:
    """Where a rising function of p in [0, 1] is zero, by bisection."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < 0 else (low, middle)
    return low


DELTAS = (0.05, 0.001)


@dataclass(frozen=True)
class Hard:
    """A one-context world with known value, on which bounds are tried.

    Args:
        logging: (A,) pi0; 0 marks a novel action.
        policy: (A,) pi.
        reward: (A,) probability of reward 1.
        n: rows of a draw.
        runs: draws of a coverage test.
        rho: None for terms w r; else the floor of the paired terms (w - rho) r.
    """

    logging: tuple[float, ...]
    policy: tuple[float, ...]
    reward: tuple[float, ...]
    n: int
    runs: int
    rho: float | None = None

    @property
    def value(self) -> float:
        """V(pi), or V(pi) - rho V(pi0)."""
        gain = np.subtract(self.policy, np.multiply(self.rho or 0.0, self.logging))
        return float(gain @ np.asarray(self.reward))

    def draw(self, rng: np.random.Generator) -> ConservativeTerms:
        """Terms of n rows that pi0 logged."""
        logging, reward = np.asarray(self.logging), np.asarray(self.reward)
        cells = np.cumsum(np.concatenate([logging * reward, logging * (1 - reward)]))
        cell = np.searchsorted(cells[:-1], rng.random(self.n), side="right")
        seen = logging > 0
        weight = np.divide(self.policy, logging, out=np.zeros(len(logging)), where=seen)
        weights, rewards = weight[cell % len(logging)], (cell < len(logging)) * 1.0
        if self.rho is None:
            return WeightedTerms.of(weights, rewards, r_max=1.0)
        values = (weights - self.rho) * rewards
        return ConservativeTerms(values, -self.rho, proof="paired importance weighting")


NEAR = Hard((0.5, 0.5), (0.55, 0.45), (0.5, 0.4), n=1_000, runs=1_200)
MANY_ROWS = Hard((0.5, 0.5), (0.55, 0.45), (0.5, 0.4), n=30_000, runs=500)
ALMOST_SURE = Hard((0.5, 0.5), (0.5, 0.5), (0.997, 0.997), n=1_000, runs=500)
RARE_WEIGHTS = Hard((0.9889, 0.011, 0.0001), (0.5, 0.3, 0.2), (0.3, 0.3, 0.3), n=3_000, runs=500)
RARE_REWARDS = Hard((0.5, 0.5), (0.3, 0.7), (0.001, 0.001), n=20_000, runs=300)
NOVEL_MASS = Hard((0.7, 0.3, 0.0), (0.5, 0.3, 0.2), (0.5, 0.6, 0.0), n=3_000, runs=500)
NEAR_DETERMINISTIC = Hard(
    (0.997, 0.001, 0.001, 0.001), (0.4, 0.2, 0.2, 0.2), (0.3, 0.3, 0.2, 0.1), n=4_000, runs=500
)
RARE_LOSSES = Hard((0.997, 0.003), (1.0, 0.0), (1.0, 1.0), n=500, runs=500, rho=0.95)


class BoundConformance:
    """What every bound promises. Subclass it, name the bound, and let pytest collect it.

    Args:
        bound: the bound.
        fixed: the same bound with the constants fixed that it tunes to delta or data, if any.
        on_units: a bound that treats rows as this one treats units, where that differs.
        weighted_only: True if it takes `WeightedTerms` only.
        in_partitions: False if it needs all values at once.
        gap: how near it comes to 40,000 equal terms of 0.5; more for one that ignores the variance.
        effort: multiplies the draws of coverage tests; `make soak` sets it by DEPSUE_SOAK.
        seed: where the draws start.
    """

    bound: Bound
    fixed: Bound | None = None
    on_units: Bound | None = None
    weighted_only: bool = False
    in_partitions: bool = True
    gap: float = 0.005
    effort: float = float(os.environ.get("DEPSUE_SOAK", "1"))
    seed: int = 1 if "DEPSUE_SOAK" in os.environ else 0

    def rng(self, *names: int) -> np.random.Generator:
        """A generator for one test."""
        return np.random.default_rng([self.seed, *names])

    # what it answers

    def test_answers_with_all_that_it_rests_on(self) -> None:
        bound = self.bound.lower(NEAR.draw(self.rng(1)), 0.05)
        assert isinstance(self.bound, Bound)
        assert isinstance(bound, BoundValue)
        assert bound.delta == 0.05
        assert 0 < bound.n <= NEAR.n
        assert isinstance(bound.constants["bound"], str)
        assert json.loads(json.dumps(dict(bound.constants))) == bound.constants

    def test_same_terms_same_bound(self) -> None:
        terms = NEAR.draw(self.rng(2))
        assert self.bound.lower(terms, 0.05) == self.bound.lower(terms, 0.05)

    def test_says_something(self) -> None:
        """A bound that is always 0 covers too."""
        big = replace(NEAR, n=20_000)
        assert self.bound.lower(big.draw(self.rng(3)), 0.05).value > 0.8 * NEAR.value

    # laws

    def test_is_not_above_the_mean(self) -> None:
        for case, world in enumerate((NEAR, RARE_WEIGHTS, NOVEL_MASS, NEAR_DETERMINISTIC)):
            for draw in range(10):
                bound = self.bound.lower(world.draw(self.rng(4, case, draw)), 0.3)
                assert bound.value <= bound.mean, f"{bound} is above the mean of its terms"

    def test_is_nested_in_delta(self) -> None:
        bound = self.fixed or self.bound
        for draw in range(10):
            terms = NEAR.draw(self.rng(5, draw))
            values = [bound.lower(terms, delta).value for delta in (0.001, 0.01, 0.05, 0.2, 0.5)]
            assert values == sorted(values), f"not nested in delta: {values}"
            assert values[0] < values[-1]

    def test_is_tighter_with_more_rows_on_average(self) -> None:
        for world in (NEAR, NOVEL_MASS):
            means = []
            for n in (500, 2_000, 8_000):
                sized = replace(world, n=n)
                draws = [sized.draw(self.rng(6, n, draw)) for draw in range(40)]
                means.append(np.mean([self.bound.lower(d, 0.05).value for d in draws]))
            assert means[0] < means[1] < means[2], f"not tighter with n: {means}"

    def test_constant_terms_are_recovered_as_rows_grow(self) -> None:
        gaps = []
        for n in (400, 4_000, 40_000):
            terms = _weighted(np.ones(n), np.full(n, 0.5))
            gaps.append(0.5 - self.bound.lower(terms, 0.05).value)
        assert 0 < gaps[2] < gaps[1] < gaps[0], f"gaps {gaps}"
        assert gaps[2] < self.gap, f"gap {gaps[2]} after 40,000 equal rows"

    def test_terms_at_their_lower_limit_give_it(self) -> None:
        zeros = _weighted(np.ones(100), np.zeros(100))
        assert self.bound.lower(zeros, 0.05).value == 0
        if not self.weighted_only:
            terms = ConservativeTerms(np.full(100, -0.95), -0.95, proof="paired")
            bound = self.bound.lower(terms, 0.05)
            assert bound.value == -0.95, f"{bound.value} is below the declared lower limit"

    def test_units_of_one_row_are_rows(self) -> None:
        terms = NEAR.draw(self.rng(7))
        assert isinstance(terms, WeightedTerms)
        units = replace(terms, unit=np.arange(NEAR.n))
        _same(self.bound.lower(units, 0.05), (self.on_units or self.bound).lower(terms, 0.05))

    def test_rows_repeated_within_units_add_nothing(self) -> None:
        terms = NEAR.draw(self.rng(8))
        assert isinstance(terms, WeightedTerms)
        repeated = WeightedTerms.of(
            np.repeat(terms.weights, 3),
            np.repeat(terms.rewards, 3),
            r_max=1.0,
            unit=np.repeat(np.arange(NEAR.n), 3),
        )
        _same(self.bound.lower(repeated, 0.05), (self.on_units or self.bound).lower(terms, 0.05))

    def test_partitions_do_not_matter(self) -> None:
        if not (self.in_partitions and isinstance(self.bound, BaseBound)):
            return
        for case, world in enumerate((NEAR, NOVEL_MASS, RARE_WEIGHTS)):
            terms = world.draw(self.rng(12, case))
            whole = self.bound.lower(terms, 0.05)
            for size in (1, 97, world.n - 1):
                n = world.n if size > 1 else 60  # a pass over partitions of one row takes long
                first = terms if n == world.n else _rows(terms, slice(n))
                expected = whole if n == world.n else self.bound.lower(first, 0.05)
                _same(in_partitions(self.bound, first, 0.05, size), expected)

    def test_order_does_not_matter_to_a_bound_that_says_so(self) -> None:
        if not getattr(self.bound, "any_order", False):
            return
        for case, world in enumerate((NEAR, NOVEL_MASS, RARE_WEIGHTS)):
            draw = self.rng(13, case)
            terms = world.draw(draw)
            bound = self.bound.lower(terms, 0.05).value
            for order in (draw.permutation(world.n), np.argsort(-terms.values)):
                other = self.bound.lower(_rows(terms, order), 0.05).value
                assert abs(other - bound) <= 1e-12, f"{other} in another order, {bound} before"

    # refusals

    def test_refuses_terms_without_a_proof(self) -> None:
        terms = Terms(np.ones(100), 0.0)
        _refuses(NotConservative, lambda: self.bound.lower(terms, 0.05), "Terms")  # type: ignore[arg-type]

    def test_refuses_a_delta_outside_0_1(self) -> None:
        terms = NEAR.draw(self.rng(9))
        for delta in (0.0, 1.0, -0.05, 1.5, math.nan):
            _refuses(ConfigError, lambda d=delta: self.bound.lower(terms, d), "delta")  # type: ignore[misc]

    def test_refuses_undeclared_or_violated_limits(self) -> None:
        ones = np.ones(100)
        for lower in (-math.inf, math.nan, 1.5):
            _refuses(
                DepsueError,
                lambda low=lower: self.bound.lower(ConservativeTerms(ones, low), 0.05),  # type: ignore[misc]
                "lower limit",
            )
        for r_max in (math.inf, math.nan, 0.0):
            _refuses(
                DepsueError,
                lambda r=r_max: self.bound.lower(_weighted(ones, ones, r), 0.05),  # type: ignore[misc]
                "r_max",
            )

    def test_refuses_rewards_outside_0_r_max(self) -> None:
        for bad in (-0.1, 1.1, math.nan):
            rewards = np.r_[np.ones(99), bad]
            _refuses(
                DepsueError,
                lambda r=rewards: self.bound.lower(_weighted(np.ones(100), r), 0.05),  # type: ignore[misc]
                "r_max",
            )

    # coverage

    def test_covers_near_the_logging_policy(self) -> None:
        self.covers(NEAR)

    def test_covers_many_rows(self) -> None:
        self.covers(MANY_ROWS)

    def test_covers_rewards_that_almost_never_fail(self) -> None:
        self.covers(ALMOST_SURE)

    def test_covers_rare_huge_weights(self) -> None:
        self.covers(RARE_WEIGHTS)

    def test_covers_rewards_of_1_in_1000(self) -> None:
        self.covers(RARE_REWARDS)

    def test_covers_novel_mass(self) -> None:
        self.covers(NOVEL_MASS)

    def test_covers_near_deterministic_logging(self) -> None:
        self.covers(NEAR_DETERMINISTIC)

    def test_covers_paired_terms_with_rare_losses(self) -> None:
        if self.weighted_only:
            terms = RARE_LOSSES.draw(self.rng(11))
            _refuses(ConfigError, lambda: self.bound.lower(terms, 0.05), "weights")
        else:
            self.covers(RARE_LOSSES)

    def covers(self, world: Hard) -> None:
        """Fail if the bound exceeds the world's value more often than delta allows."""
        runs, misses = math.ceil(world.runs * self.effort), dict.fromkeys(DELTAS, 0)
        for run in range(runs):
            terms = world.draw(self.rng(10, run))
            for delta in DELTAS:
                value = self.bound.lower(terms, delta).value
                misses[delta] += value > world.value + 1e-12
        for delta, count in misses.items():
            chance = binomial_tail(count, runs, delta)
            assert chance > 1e-4, (
                f"the bound exceeded the value in {count} of {runs} draws at delta {delta}: "
                f"a valid bound does so with probability {chance:.2g}"
            )


def in_partitions(
    bound: BaseBound, terms: ConservativeTerms, delta: float, size: int
) -> BoundValue:
    """The bound from terms that come in partitions of `size` rows."""
    n = len(terms.values)
    parts = [_rows(terms, slice(start, start + size)) for start in range(0, n, size)]
    run = BoundRun(bound, parts[0], n, delta)
    while not run.done:
        for part in parts:
            run.see(Partition(part, run.seen))
        run.end_pass()
    return run.concluded()


def _rows(terms: ConservativeTerms, rows: slice | IntArray) -> ConservativeTerms:
    """Some of the terms, which declare what all of them do."""
    if isinstance(terms, WeightedTerms):
        return WeightedTerms.of(terms.weights[rows], terms.rewards[rows], r_max=terms.r_max)
    return replace(terms, values=terms.values[rows])


def _weighted(weights: FloatArray, rewards: FloatArray, r_max: float = 1.0) -> WeightedTerms:
    return WeightedTerms.of(weights, rewards, r_max=r_max)


def _same(bound: BoundValue, expected: BoundValue) -> None:
    assert bound.n == expected.n
    values = f"{bound.value} and {expected.value}"
    assert math.isclose(bound.value, expected.value, rel_tol=1e-9), values


def _refuses(error: type[DepsueError], call: Callable[[], object], words: str) -> None:
    try:
        answer = call()
    except error as refused:
        assert words in str(refused), f"the message does not say '{words}': {refused}"
    else:
        raise AssertionError(f"expected {error.__name__} about '{words}', got {answer}")
