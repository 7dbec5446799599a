"""Betting: a mean is rejected when bets against it make a fortune."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass

import numpy as np

from depsue.bounds.base import (
    FINE_STEPS,
    STEPS,
    BaseBound,
    Partition,
    Passes,
    declared_scale,
    log_product,
    positive_or_none,
    rejected_between,
)
from depsue.data.checks import FloatArray, IntArray
from depsue.data.keys import mix64
from depsue.data.terms import ConservativeTerms
from depsue.errors import is_real, require, require_delta, short
from depsue.protocols import BoundValue

ORDERS = ("as given", "shuffled")


@dataclass(frozen=True)
class Betting(BaseBound):
    """A lower bound on V(pi) by betting (Waudby-Smith & Ramdas, 2024).

    Whoever believes that the mean is at most m should not get rich by betting against it. The
    bound is the largest m for which the capital::

        product over t of 1 + bet_t(m) (z_t - m),      bet_t(m) = min(bet_t, cap / m)

    reaches 1/delta. If every E[z_t | past] = m and bet_t is fixed by what came before t, the
    capital is a positive martingale that starts at 1, and by Ville it ever reaches 1/delta with
    probability at most delta. A lower bound needs only a lower limit of the terms: they are shifted
    by it, and may be as large as they like.

    **Constant bets** (`bets`) were fixed before any value was seen. A product has no order, so
    nothing depends on the order of rows or units, and log capitals of partitions add up. The bound
    is valid at any stopping time (Ville). At a fixed n it is valid, too, where independent values
    have means mu_1 .. mu_n of their own (contexts held fixed, in any order): for an m of at least
    their average mu, and with b = min(bet, cap / m),

        E[capital] = product of 1 + b (mu_i - m) <= (1 + b (mu - m))^n <= 1

    by the inequality of arithmetic and geometric means, every factor being at least 1 - cap > 0, so
    that by Markov the capital reaches 1/delta with probability at most delta. The capital at
    a larger m is smaller, hence the bound exceeds mu with that probability at most. Several bets
    share the capital evenly: the average of such products has all these properties. Strict
    certificates use constant bets only. The best single one is about
    sqrt(2 log(1/delta) / (n variance)); twice or half of it costs a quarter more.

    **Adaptive bets** (without `bets`) learn from the values before them (see `predictable_bets`).
    The bound then depends on the order of the values, so it is recorded, and each value must be
    drawn like the others whatever came before: they are for data in the true order of arrival.
    Rows that were sorted afterwards, by something that goes with their value, break it (44% wrong
    at delta .05). It is valid at any stopping time if the horizon is declared; otherwise the number
    of values must have been fixed before they were seen. Partitions must come in the order of the
    values.

    One pass for the mean, then one for each step of the search for m, about ten.

    Args:
        cap: in (0, 1); the largest share of the capital that one value can lose.
        horizon: how many values adaptive bets are sized for; None takes the number of values.
        bets_for: the delta that adaptive bets are sized for; None takes the bound's own.
        unit_scale: the size of a typical term, for terms without r_max; None takes r_max, else
            |lower|. Only the first adaptive bets depend on it.
        order: of adaptive bets: "as given", or "shuffled" by a fixed order that depends on n alone.
            Units are always shuffled: they come in the order in which they were first seen, active
            users first.
        bets: constant bets, in inverse units of the terms; () bets adaptively.
    """

    cap: float = 0.5
    horizon: int | None = None
    bets_for: float | None = None
    unit_scale: float | None = None
    order: str = "as given"
    bets: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        require(
            is_real(self.cap) and 0 < self.cap < 1,
            "cap must lie in (0, 1)",
            found=short(self.cap),
            cure="use 0.5",
        )
        positive_or_none(self.horizon, "horizon")
        positive_or_none(self.unit_scale, "unit_scale")
        require(
            self.order in ORDERS,
            f"order must be one of {', '.join(map(repr, ORDERS))}",
            found=short(self.order),
        )
        if self.bets_for is not None:
            require_delta(self.bets_for)
        require(
            all(is_real(bet) and 0 < bet < math.inf for bet in self.bets),
            "bets must be positive numbers",
            found=short(self.bets),
            cure="sqrt(2 log(1/delta) / (n variance)), with a variance from other rows",
        )
        require(
            not self.bets
            or (self.horizon, self.bets_for, self.unit_scale, self.order)
            == (None, None, None, ORDERS[0]),
            "constant bets have no order and are not sized: horizon, bets_for, unit_scale and "
            "order are for adaptive ones",
            found=f"horizon={self.horizon}, bets_for={self.bets_for}, "
            f"unit_scale={self.unit_scale}, order={self.order!r}",
            cure="give bets alone, or leave them out",
        )

    @property
    def any_order(self) -> bool:
        """Whether the order of the values does not matter."""
        return bool(self.bets)

    def passes(self, like: ConservativeTerms, n: int, delta: float) -> Passes:
        return self._constant(like, n, delta) if self.bets else self._adaptive(like, n, delta)

    def _constant(self, like: ConservativeTerms, n: int, delta: float) -> Passes:
        def summand(points: Sequence[float]) -> Callable[[Partition], FloatArray]:
            def log_capitals(part: Partition) -> FloatArray:
                capital = part.once("constant bets", lambda: ConstantCapital(part, self.cap))
                return np.array([[capital(bet, m) for m in points] for bet in self.bets])

            return log_capitals

        mean = float((yield lambda part: part.values.sum())) / n
        search = largest_rejected(mean - like.lower, delta, FINE_STEPS)
        try:
            points = next(search)
            while True:
                logs = yield summand(points)
                points = search.send(np.logaddexp.reduce(logs, axis=0) - math.log(len(logs)))
        except StopIteration as last:
            rejected = float(last.value)
        constants = {
            "bound": "betting",
            "cap": self.cap,
            "bets": list(self.bets),
            "lower": like.lower,
        }
        return BoundValue(min(rejected + like.lower, mean), mean, n, delta, constants)

    def _adaptive(self, like: ConservativeTerms, n: int, delta: float) -> Passes:
        scale = declared_scale(like, self.unit_scale, "betting")
        shuffle = self.order == "shuffled" or like.unit is not None

        def gains(part: Partition) -> FloatArray:
            return part.once("gains", lambda: _gains(part, n, shuffle))

        def summand(points: Sequence[float]) -> Callable[[Partition], FloatArray]:
            sizes = BetSizes(horizon=self.horizon or n, scale=scale, delta=self.bets_for or delta)

            def capital(part: Partition) -> LogCapital:
                return LogCapital(gains(part), sizes.of(gains(part)), self.cap)

            def log_capital(part: Partition) -> FloatArray:
                # where the partition is all there is, its bets are worked out once
                capital_of = part.once("capital", lambda: capital(part))
                return np.array([capital_of(m) for m in points])

            return log_capital

        totals = yield lambda part: np.array([part.values.sum(), gains(part).sum()])
        mean = float(totals[0]) / n
        search = largest_rejected(float(totals[1]) / n, delta)
        try:
            points = next(search)
            while True:
                points = search.send((yield summand(points)))
        except StopIteration as last:
            rejected = float(last.value)
        return BoundValue(
            value=min(rejected + like.lower, mean),
            mean=mean,
            n=n,
            delta=delta,
            constants={
                "bound": "betting",
                "cap": self.cap,
                "horizon": self.horizon or n,
                "horizon_from": "n" if self.horizon is None else "declared",
                "bets_for": self.bets_for or delta,
                "unit_scale": scale,
                "order": "shuffled" if shuffle else self.order,
                "lower": like.lower,
            },
        )


def best_bet(variance: float, n: float, delta: float) -> float:
    """The constant bet that n values of that variance make the most of, about.

    To second order the log capital at m is n (bet (mean - m) - bet^2 variance / 2), which reaches
    log(1/delta) at the largest m for this bet.
    """
    return math.sqrt(2 * math.log(1 / delta) / (n * variance))


def largest_rejected(
    mean: float, delta: float, steps: int = STEPS
) -> Generator[Sequence[float], Sequence[float] | FloatArray, float]:
    """The search for the largest m, at most the mean, whose capital reaches 1/delta.

    It yields points m, is sent the log capital at each of them, and returns that m; 0 if there is
    none. The capital is the product of 1 + min(bet_t, cap/m) (z_t - m) over values z >= 0. Every
    factor falls as m grows (the bet cap/m falls too), so there is one root.

    Args:
        mean: of the values z.
        delta: the error budget, in (0, 1).
        steps: halvings, at most.
    """
    target, high = math.log(1 / delta), mean
    if high <= 0:
        return 0.0
    at_0, above, below = [log - target for log in (yield (0.0, high / 16, high))]
    if at_0 < 0:
        return 0.0
    if below >= 0:
        return high
    while above < 0:  # one astronomic value may lift the mean far above the bound
        high, below = high / 16, above
        (log,) = yield (high / 16,)
        above = log - target
    search = rejected_between(high / 16, high, above, below, steps)
    try:
        m = next(search)
        while True:
            (log,) = yield (m,)
            m = search.send(log - target)
    except StopIteration as last:
        return float(last.value)


class BetSizes:
    """Bets that depend on the values before them alone; values may come in partitions.

    ::

        bet_t = sqrt(2 log(1/delta) / (horizon * variance_{t-1}))
        mean_t     = (scale/2   + sum of z_i,              i <= t) / (t + 1)
        variance_t = (scale^2/4 + sum of (z_i - mean_i)^2, i <= t) / (t + 1)

    Args:
        horizon: the number of values that the bets are sized for.
        scale: the declared size of a typical value; it stands in until values are seen.
        delta: the error budget that the bets are sized for.
    """

    def __init__(self, *, horizon: int, scale: float, delta: float) -> None:
        self._factor = horizon / (2 * math.log(1 / delta))
        self._seen, self._total, self._squares = 0, scale / 2, scale**2 / 4
        self._variance = scale**2 / 4

    def of(self, values: FloatArray) -> FloatArray:
        """(m,) the bets for the next (m,) values z >= 0."""
        after = np.arange(self._seen + 2, self._seen + len(values) + 2, dtype=np.float64)
        apart = np.cumsum(values)
        apart += self._total
        total = float(apart[-1])
        apart /= after
        np.subtract(values, apart, out=apart)
        with np.errstate(over="ignore"):  # an infinite variance is a bet of 0
            apart *= apart
            variance = np.cumsum(apart)
        variance += self._squares
        squares = float(variance[-1])
        variance /= after
        bets = np.empty(len(values))
        bets[0] = self._variance
        bets[1:] = variance[:-1]
        bets *= self._factor
        np.sqrt(bets, out=bets)
        self._seen += len(values)
        self._total, self._squares, self._variance = total, squares, float(variance[-1])
        return np.asarray(np.divide(1, bets, out=bets))


def predictable_bets(values: FloatArray, *, horizon: int, scale: float, delta: float) -> FloatArray:
    """(n,) bets for (n,) values z >= 0, of which these are all: see `BetSizes`."""
    return BetSizes(horizon=horizon, scale=scale, delta=delta).of(values)


class ConstantCapital:
    """The log capital of a constant bet on a partition, for one bet and m after another.

    Rows without a reward have terms of 0, and one logarithm does for all of them.

    Args:
        part: the values.
        cap: in (0, 1); no factor falls below 1 - cap.
    """

    def __init__(self, part: Partition, cap: float) -> None:
        values = part.values
        self._gains = values[np.flatnonzero(values)] - part.terms.lower
        self._at_0, self._zeros = -part.terms.lower, len(values) - len(self._gains)
        self._most = float(self._gains.max()) if len(self._gains) else 0.0
        self._factors, self._cap = np.empty_like(self._gains), cap

    def __call__(self, bet: float, m: float) -> float:
        bet = min(bet, self._cap / m) if m > 0 else bet
        zeros = self._zeros * math.log1p(bet * (self._at_0 - m)) if self._zeros else 0.0
        if not len(self._gains):
            return zeros
        np.multiply(self._gains, bet, out=self._factors)
        np.add(self._factors, 1 - bet * m, out=self._factors)
        return zeros + log_product(self._factors, 1 - self._cap, 1 + bet * self._most)


class LogCapital:
    """The log of the product of 1 + min(bet_t, cap/m) (z_t - m), for one m after another.

    Those of partitions add up.

    Args:
        values: (n,) values z >= 0.
        bets: (n,) bets, each fixed before its value was seen.
        cap: in (0, 1); no factor falls below 1 - cap.
    """

    def __init__(self, values: FloatArray, bets: FloatArray, cap: float) -> None:
        self._values, self._bets, self._cap = values, bets, cap
        self._gains = 1 + values * bets
        self._most, self._largest = float(self._gains.max()), float(bets.max())
        self._factors = np.empty_like(self._gains)

    def __call__(self, m: float) -> float:
        bets, factors, cap = self._bets, self._factors, self._cap
        if m * self._largest <= cap:  # no bet is capped
            np.multiply(bets, -m, out=factors)
            np.add(factors, self._gains, out=factors)
        else:
            np.subtract(self._values, m, out=factors)
            np.multiply(factors, np.minimum(bets, cap / m), out=factors)
            np.add(factors, 1, out=factors)
        return log_product(factors, 1 - cap, self._most)


def betting_lower(values: FloatArray, bets: FloatArray, *, cap: float, delta: float) -> float:
    """The largest m, at most the mean, whose capital reaches 1/delta: see `largest_rejected`.

    Args:
        values: (n,) values z >= 0.
        bets: (n,) bets, each fixed before its value was seen.
        cap: in (0, 1); no factor falls below 1 - cap.
        delta: the error budget, in (0, 1).
    """
    capital = LogCapital(values, bets, cap)
    search = largest_rejected(float(values.mean()), delta)
    try:
        points = next(search)
        while True:
            points = search.send([capital(m) for m in points])
    except StopIteration as last:
        return float(last.value)


def shuffled(n: int) -> IntArray:
    """(n,) a pseudo-random order of n values that depends on n alone."""
    return np.argsort(mix64(np.arange(n)))  # distinct keys, so any sort gives this order


def _gains(part: Partition, n: int, shuffle: bool) -> FloatArray:
    """(m,) the values less their lower limit, in the order in which they are bet on."""
    values, lower = part.values, part.terms.lower
    if shuffle:
        require(
            len(part) == n,
            "values are shuffled in one partition: betting in another order than that of the rows "
            "needs all of them",
            found=f"a partition of {len(part):,} of {n:,} values",
            cure="read the logs into memory, or use normal or smoothing",
        )
        values = values[shuffled(n)]
    return values if lower == 0 else values - lower
