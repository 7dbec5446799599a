"""What every bound shares: it says what to sum up, sums merge, and it concludes from them.

A bound is a subclass of `BaseBound` with one method, `passes`: a generator that yields what it
wants to have summed up over the values, is sent the sum, and goes on until it returns the bound::

    def passes(self, like, n, delta):
        scales = self.scales(like)
        sums = yield lambda part: log_sums(part.values, scales)
        return BoundValue(smoothing_from_sums(sums, n, scales, delta), ...)

The values come in partitions. In memory there is one that holds all of them, from files there is
one for every batch of rows. Sums over partitions merge by `+`, so a bound does not know how many
there are, and there is one implementation of it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np

from depsue.data.checks import FloatArray, IntArray, read_only
from depsue.data.keys import mix64
from depsue.data.terms import ConservativeTerms, WeightedTerms
from depsue.errors import ConfigError, NotConservative, is_real, require, require_delta, short
from depsue.protocols import BoundValue

T = TypeVar("T")

SHARE = 20
"""One value in so many is used for tuning; the bound is computed on the others."""
STEPS, FINE_STEPS = 34, 46
PRECISION = 2.0**-STEPS
"""A bound is searched for in so many halvings, and found to this share of the searched range.
Where the order of values does not matter, it is found more finely: the same in any order to 1e-12.
"""


class Partition:
    """Some of the n values, in their order: all of them in memory, a batch of rows from files.

    Args:
        terms: the terms of these values; where rows belong to units, every unit is complete.
        start: the place of the first value among all n.
    """

    def __init__(self, terms: ConservativeTerms, start: int = 0) -> None:
        self.terms, self.start = terms, start
        self._results: dict[str, Any] = {}

    def __len__(self) -> int:
        return len(self.values)

    @cached_property
    def values(self) -> FloatArray:
        """(m,) the terms, averaged within units where there are units."""
        return self.terms.per_unit(self.terms.values)

    def tuning(self, n: int) -> IntArray:
        """Which of its values are among the `tuning_rows(n)`."""
        if len(self) == n:
            return tuning_rows(n)
        return _tuning_between(self.start, self.start + len(self), n) - self.start

    def once(self, name: str, work: Callable[[], T]) -> T:
        """The result of `work`, which a later pass over the same partition gets again."""
        if name not in self._results:
            self._results[name] = work()
        return cast(T, self._results[name])


Passes: TypeAlias = Generator[Callable[[Partition], Any], Any, BoundValue]
"""Yields what is summed over each partition; is sent the sum over all; returns the bound."""


class BaseBound(ABC):
    """A lower confidence bound on the mean of conservative terms, from sums over partitions."""

    @property
    def any_order(self) -> bool:
        """Whether the order of the values does not matter, as strict certificates ask."""
        return False

    @abstractmethod
    def passes(self, like: ConservativeTerms, n: int, delta: float) -> Passes:
        """The passes over n values, and then the bound.

        Args:
            like: terms of some of the values, for what they declare: lower limit, r_max, units.
            n: how many values there are.
            delta: the error budget, in (0, 1).
        """

    def lower(self, terms: ConservativeTerms, delta: float) -> BoundValue:
        """The bound at delta, from terms in memory: one partition."""
        whole = Partition(conservative(terms, type(self).__name__.lower()))
        run = BoundRun(self, whole.terms, len(whole), delta)
        run.see(whole)
        return run.concluded()


def anticipated(bound: BaseBound, terms: ConservativeTerms, n: float, delta: float) -> BoundValue:
    """The bound if n values turn out like these: their sums, as often as it takes.

    For bounds whose sums are numbers and whose constants are fixed; the same as repeating the rows.

    Args:
        bound: the bound.
        terms: of m values.
        n: how many values there will be, m or not.
        delta: the error budget.
    """
    part = Partition(conservative(terms, type(bound).__name__.lower()))
    times, passes = n / len(part), bound.passes(terms, round(n), delta)
    summand = next(passes)
    try:
        while True:
            summand = passes.send(summand(part) * times)
    except StopIteration as last:
        return cast(BoundValue, last.value)


class BoundRun:
    """A bound under way. Show it every partition, in order, and end the pass; until it concludes.

    Args:
        bound: the bound.
        like: terms of the first partition, for what they declare.
        n: how many values there are.
        delta: the error budget.
    """

    def __init__(self, bound: BaseBound, like: ConservativeTerms, n: int, delta: float) -> None:
        like = conservative(like, type(bound).__name__.lower())
        self._n, self._passes = n, bound.passes(like, n, require_delta(delta))
        self._sums: Any = None
        self._value: BoundValue | None = None
        self._summand = next(self._passes)
        self.seen = 0
        """Values that this pass has seen so far."""

    @property
    def done(self) -> bool:
        """Whether the bound is known."""
        return self._value is not None

    def see(self, part: Partition) -> None:
        """Sum up a partition."""
        if self.done:
            return
        self._add(part)
        # a partition that holds all values need not be read again for the next pass
        while len(part) == self._n and not self.done:
            self.end_pass()
            if not self.done:
                self._add(part)

    def end_pass(self) -> None:
        """All partitions were seen: hand over the sum, and begin the next pass or conclude."""
        if self.done:
            return
        require(
            self.seen == self._n,
            "a pass sees every value once",
            found=f"{self.seen:,} of {self._n:,}",
            cure="show the run all partitions before the pass ends",
        )
        sums, self._sums, self.seen = self._sums, None, 0
        try:
            self._summand = self._passes.send(sums)
        except StopIteration as last:
            self._value = last.value

    def concluded(self) -> BoundValue:
        """The bound, once it is known."""
        require(self._value is not None, "the bound is known after its last pass", found="a pass")
        return cast(BoundValue, self._value)

    def _add(self, part: Partition) -> None:
        sums = self._summand(part)
        self._sums = sums if self._sums is None else self._sums + sums
        self.seen += len(part)


@dataclass(frozen=True)
class MergedMoments:
    """Number, mean and squared deviations of some values; those of partitions merge by `+`.

    Args:
        n: how many values.
        mean: their mean; (k,) for k columns of values.
        squares: the sum of (value - mean)^2; likewise.
    """

    n: int
    mean: Any
    squares: Any

    @classmethod
    def of(cls, values: FloatArray) -> MergedMoments:
        """Of (..., n) values, over the last axis."""
        n = values.shape[-1]
        if n == 0:
            return cls(0, 0.0, 0.0)
        mean = values.sum(axis=-1) / n
        apart = values - mean[..., None]
        return cls(n, mean, np.square(apart, out=apart).sum(axis=-1))

    def __add__(self, other: MergedMoments) -> MergedMoments:
        """Of both together (Chan, Golub & LeVeque, 1979), which loses no digits to n mean^2."""
        if not self.n or not other.n:
            return self if self.n else other
        n = self.n + other.n
        apart = other.mean - self.mean
        squares = self.squares + other.squares + apart**2 * (self.n * (other.n / n))
        return MergedMoments(n, self.mean + apart * (other.n / n), squares)

    @property
    def variance(self) -> Any:
        """The 1/n variance."""
        return self.squares / self.n


@lru_cache(maxsize=16)
def tuning_rows(n: int) -> IntArray:
    """(n // 20,) which of n values are used for tuning: one, pseudo-randomly, of every 20 in a row.

    The choice depends on n alone: no seed can be tried until the bound pleases.
    """
    rows: IntArray = read_only(_tuning_between(0, n, n))
    return rows


def _tuning_between(start: int, stop: int, n: int) -> IntArray:
    """Those of `tuning_rows(n)` from `start` up to `stop`."""
    block = np.arange(start // SHARE, min(-(-stop // SHARE), n // SHARE))
    within = mix64(block) % np.uint64(SHARE)
    rows = block * SHARE + within.astype(np.int64)
    return rows[(rows >= start) & (rows < stop)]


def conservative(terms: object, bound: str) -> ConservativeTerms:
    """The terms, checked to carry a proof that E[term] <= V(pi)."""
    if isinstance(terms, ConservativeTerms):
        return terms
    raise NotConservative(
        f"{bound} bounds V(pi) only through terms with a proof that E[term] <= V(pi)",
        found=type(terms).__name__,
        cure="use the terms of IPS or of clipped IPS",
    )


def weighted(terms: ConservativeTerms, bound: str) -> WeightedTerms:
    """The terms, checked to keep weights and rewards apart, for a bound that clips weights."""
    if isinstance(terms, WeightedTerms):
        return terms
    raise ConfigError(
        f"{bound} clips the weights itself, so it needs terms that keep weights and rewards apart",
        found=type(terms).__name__,
        cure="use the terms of IPS, or the bounds smoothing or betting",
    )


def positive_or_none(value: float | None, name: str) -> None:
    """Refuse a setting that is neither a positive number nor None."""
    require(
        value is None or (is_real(value) and 0 < value < math.inf),
        f"{name} must be a positive number, or None",
        found=short(value),
    )


def declared_scale(terms: ConservativeTerms, declared: float | None, bound: str) -> float:
    """The declared size of a typical term: the setting, or r_max, or |lower|, in this order.

    It sets where a bound is tight, never whether it is valid; but it must not be read off the
    data, so there is no fourth choice.
    """
    if declared is not None:
        return float(declared)
    if isinstance(terms, WeightedTerms):
        return terms.r_max
    require(
        terms.lower != 0,
        f"{bound} needs a declared scale for terms that have neither r_max nor a lower limit "
        "other than 0",
        found=type(terms).__name__,
        cure="set unit_scale to the size of a typical term, fixed before the data is seen",
    )
    return abs(terms.lower)


def log_product(factors: FloatArray, least: float, most: float) -> float:
    """log of the product of (n,) positive factors that lie in [least, most].

    Factors are multiplied in blocks short enough not to overflow or underflow, and one logarithm
    is taken per block: a logarithm costs as much as twenty multiplications.
    """
    n = len(factors)
    steepest = max(abs(math.log(least)), abs(math.log(most)), 1e-3)
    length = max(1, min(math.isqrt(n), int(600 / steepest)))
    blocks = n // length
    whole = factors[: blocks * length].reshape(length, blocks)
    rest = factors[blocks * length :]
    return float(np.log(np.multiply.reduce(whole, axis=0)).sum() + np.log(rest).sum())


def last_rejected(
    excess: Callable[[float], float], low: float, high: float, steps: int = STEPS
) -> float:
    """The largest m in [low, high] with excess(m) >= 0, approached from below.

    `excess` does not increase. The answer is `low` or a point that was seen to be rejected, so
    rounding errs on the safe side.
    """
    above, below = excess(low), excess(high)
    if above < 0 or low >= high:
        return low
    if below >= 0:
        return high
    search = rejected_between(low, high, above, below, steps)
    try:
        m = next(search)
        while True:
            m = search.send(excess(m))
    except StopIteration as last:
        return float(last.value)


def rejected_between(
    low: float, high: float, above: float, below: float, steps: int = STEPS
) -> Generator[float, float, float]:
    """The search of `last_rejected`: yields m, is sent excess(m), returns the largest m rejected.

    It interpolates and never takes more than one step above bisection (the ITP method of Oliveira
    & Takahashi, 2020).

    Args:
        low, high: where m is searched for.
        above, below: the excess there, >= 0 and < 0.
        steps: halvings, at most.
    """
    start, tolerance = high - low, (high - low) * 2.0**-steps
    for step in range(steps + 1):
        if high - low <= tolerance:
            break
        middle = (low + high) / 2
        guess = (above * high - below * low) / (above - below)
        toward = math.copysign(1.0, middle - guess)
        guess += toward * min(0.2 * (high - low) * ((high - low) / start), abs(middle - guess))
        room = tolerance * 2.0 ** (steps - step) - (high - low) / 2
        if abs(guess - middle) > room:
            guess = middle - toward * room
        if not low < guess < high:  # rounding put it on an end: half a tolerance inside ends it
            guess = middle - toward * ((high - low) / 2 - tolerance / 2)
        value = yield guess
        if value >= 0:
            low, above = guess, value
        else:
            high, below = guess, value
    return low
