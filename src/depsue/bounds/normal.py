"""Normal: the central limit theorem with its error paid for, so valid at every n.

The bound stands first; then the distance from the mean that is enough for a given spread; then the
spread, which is limits of the standard deviation and of the third moment, from the values. Each of
these limits rests on a sum of logarithms, so that sums over partitions merge.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from depsue.bounds.base import (
    SHARE,
    BaseBound,
    MergedMoments,
    Partition,
    Passes,
    log_product,
    positive_or_none,
)
from depsue.data.checks import FloatArray, read_only
from depsue.data.terms import ConservativeTerms, WeightedTerms
from depsue.errors import ConfigError, DataError, is_real, require, short
from depsue.protocols import BoundValue

SIDE_EVENTS, SIDE_SHARE = 4, 1 / 100
"""How many bounds on moments may fail, and the share of delta that each of them gets."""

BETS_FOR = math.log(1 / (0.05 * SIDE_SHARE))
"""Bets are sized for delta = .05, whatever delta is: so the bound is nested in delta."""


BERRY_ESSEEN = ((0.4690, 0.0), (0.3322, 0.429), (0.3031, 0.646))
"""Pairs (C, a): the normal error is at most C (beta3/sd^3 + a) / sqrt(n) (Shevtsova, 2013)."""

FEWEST = 2 * SHARE
"""The fewest values that a centre can be taken from and moments bounded with."""

HANDOVERS: FloatArray = read_only(2.0 ** (np.arange(-160, -7) / 8))
"""Where Bernstein may hand over to Berry-Esseen: standard deviations, in units of the range."""

_STANDARD = NormalDist()


@dataclass(frozen=True)
class Pilot:
    """What other values, like those to come, say: a centre, and how squares and cubes vary.

    A bad pilot costs width, never validity.

    Args:
        centre: their mean.
        square: the mean of (x - centre)^2.
        of_squares: the variance of (x - centre)^2.
        of_cubes: the variance of |x - centre|^3.
    """

    centre: float
    square: float
    of_squares: float
    of_cubes: float

    @classmethod
    def of(cls, values: FloatArray) -> Pilot:
        """Of (m,) values."""
        centre = float(values.mean())
        squares, cubes = squares_and_cubes(values, centre, 1.0)
        return cls(centre, float(squares.mean()), float(squares.var()), float(cubes.var()))

    def centre_within(self, low: float, high: float) -> float:
        """The centre, brought within the limits of the values to come."""
        return min(max(self.centre, low), high)

    def bets(self, n: int, low: float, high: float) -> Bets:
        """Bets for n values in [low, high]."""
        centre, width = self.centre_within(low, high), high - low
        return Bets.sized(
            n,
            max(centre - low, high - centre) / width,
            self.square / width**2,
            self.of_squares / width**4,
            self.of_cubes / width**6,
        )


class Limits(NamedTuple):
    """What no term can leave, and what that was declared by."""

    low: float
    high: float
    declared: dict[str, Any]


@dataclass(frozen=True)
class Normal(BaseBound):
    """A lower bound on V(pi) by the central limit theorem, its error included (Berry-Esseen).

    For n values drawn alike from [lower, upper], with standard deviation sd and third absolute
    central moment beta3, and every x::

        P(mean - E[z] > x sd / sqrt(n)) <= 1 - Phi(x) + C (beta3 / sd^3 + a) / sqrt(n)

    for (C, a) = (.4690, 0), (.3322, .429) and (.3031, .646) (Shevtsova, 2013). The bound is mean -
    x sd / sqrt(n), where x makes the right-hand side .96 delta: 1.66 standard errors at delta .05
    and large n, against sqrt(2 log(1/delta)) = 2.45 of bounds that rest on exponential moments.

    sd and beta3 are unknown. Four side events, each of probability at most delta/100, are that sd
    exceeds sd_most, that it falls short of sd_least, that beta3 exceeds third_most, and that the
    mean is further from its expectation than Bernstein allows (`Bets.spread`). Outside of them the
    distance used is at least the one for the true sd and beta3: it grows with beta3, and it is the
    largest over all sd from sd_least to sd_most (`distance`). So the bound fails with
    probability at most .96 delta + 4 delta/100 = delta, at every n.

    Where the correction C (...) uses up delta (few values, rare rewards, a wide range), Bernstein's
    inequality with sd_most takes over, which holds at the same .96 delta: which of the two is
    smaller for given sd and beta3 does not depend on the data. Below 40 values, or where nothing
    above the lower limit is certain, the value is the lower limit, and constants["why"] says so.

    The values must be drawn alike; the bound then speaks of the population that rows, or units, are
    drawn from. n must be fixed before the values are seen: where somebody ends the collection
    once the mean looks good, it is wrong far more often than delta (26% at .05).

    A centre and the size of bets come from a pilot. `pilot` takes it from other rows, as
    certificates do: then nothing depends on the order of the values, and one pass sums up all
    of them. Without it one value of every 20 is the pilot, chosen by its place, so the values must
    come in an order that does not go with them; three passes: the means of all values and of the
    pilot; the moments of the pilot's squares and cubes, which size the bets; the log growth of the
    bets on the others.

    Args:
        upper: a declared number that no term can exceed; never read off the data.
        tau: in place of `upper`, for `WeightedTerms`: weights are clipped at tau, fixed before the
            data was seen, so that no term exceeds tau r_max.
        pilot: of other values like these, fixed before these are seen.
    """

    upper: float | None = None
    tau: float | None = None
    pilot: Pilot | None = None

    def __post_init__(self) -> None:
        positive_or_none(self.tau, "tau")
        require(
            self.upper is None or (is_real(self.upper) and math.isfinite(self.upper)),
            "upper must be a finite number, or None",
            found=short(self.upper),
        )
        require(
            self.upper is None or self.tau is None,
            "upper limits the terms as they are and tau clips their weights: give one of them",
            found=f"upper {self.upper}, tau {self.tau}",
        )

    @property
    def any_order(self) -> bool:
        """With a pilot from other values; else the pilot is chosen by its place."""
        return self.pilot is not None

    def passes(self, like: ConservativeTerms, n: int, delta: float) -> Passes:
        limits = self.limits(like)

        def values(part: Partition) -> FloatArray:
            return part.once("within", lambda: part.terms.per_unit(self.within(part.terms)))

        pilot, side = self.pilot, delta * SIDE_SHARE
        declared = dict(limits.declared)
        declared |= {"pilot_share": 1 / SHARE} if pilot is None else {"pilot": asdict(pilot)}
        limits = limits._replace(declared=declared)
        if n < FEWEST:
            total = yield lambda part: values(part).sum()
            return _concluded(n, float(total) / n, None, limits, delta)
        if pilot is None:
            mean, spread = yield from spread_passes(values, n, limits.low, limits.high, side)
        else:
            width, centre = limits.high - limits.low, pilot.centre_within(limits.low, limits.high)
            bets = pilot.bets(n, limits.low, limits.high)

            def sums(part: Partition) -> FloatArray:
                return np.append(bets.logs(values(part), centre, width), values(part).sum())

            logs = yield sums
            mean = float(logs[-1]) / n
            spread = bets.spread(logs[:-1], n, n, abs(mean - centre) / width, side)
        return _concluded(n, mean, spread, limits, delta)

    def limits(self, terms: ConservativeTerms) -> Limits:
        """What no such term can leave: declared numbers alone."""
        if self.tau is not None and isinstance(terms, WeightedTerms):
            tau, r_max = float(self.tau), terms.r_max
            low, high = 0.0, tau * r_max
            declared: dict[str, Any] = {"upper_from": "tau r_max", "tau": tau, "r_max": r_max}
        elif self.upper is not None:
            low, high, declared = float(terms.lower), float(self.upper), {"upper_from": "declared"}
        else:
            raise ConfigError(
                "normal needs a declared upper limit of the terms",
                found=f"{type(terms).__name__}, upper None, tau {self.tau}",
                cure="Normal(upper=...), or Normal(tau=...) for terms that keep their weights",
            )
        require(
            low < high and math.isfinite(high - low),
            "the upper limit must be above the lower limit, by a finite number",
            found=f"lower {low:g}, upper {high:g}",
        )
        return Limits(low, high, declared)

    def within(self, terms: ConservativeTerms) -> FloatArray:
        """(n,) the terms, clipped at tau or checked to lie below the upper limit."""
        if self.tau is not None and isinstance(terms, WeightedTerms):
            return np.asarray(np.minimum(terms.weights, float(self.tau)) * terms.rewards)
        rows, high = terms.values, self.limits(terms).high
        if rows.max() > high:
            above = rows > high
            row = int(above.argmax())
            raise DataError(
                f"no term may exceed the declared upper limit {high:g}",
                column="term",
                row=row,
                value=float(rows[row]),
                count=int(above.sum()),
                cure="declare the true limit, or clip weights by Normal(tau=...)",
            )
        return rows


def _concluded(
    n: int, mean: float, spread: Spread | None, limits: Limits, delta: float
) -> BoundValue:
    """The bound from the mean and the spread of n values; None where they are too few."""
    low, high, declared = limits
    value, outcome = low, _gave_up(f"fewer than {FEWEST} values")
    if spread is not None:
        side, main = delta * SIDE_SHARE, delta * (1 - SIDE_EVENTS * SIDE_SHARE)
        width, (apart, by) = high - low, distance(n, spread, main)
        value = max(mean - width * apart, low)
        sd, third = spread.sd_most, spread.third_most
        outcome = {
            "by": by,
            "why": "" if by == "berry-esseen" else "the correction uses up delta at sd_least",
            "correction": min(correction(n, sd, third, pair) for pair in BERRY_ESSEEN),
            "sd_least": width * spread.sd_least,
            "sd_most": width * sd,
            "third_root_most": width * third ** (1 / 3),
            "main_delta": main,
            "side_delta": side,
        }
        if value == low:
            outcome |= _gave_up("the distance reaches down to the lower limit")
    constants = {"bound": "normal", **declared, "lower": low, "upper": high, **outcome}
    return BoundValue(value=value, mean=mean, n=n, delta=delta, constants=constants)


def _gave_up(why: str) -> dict[str, Any]:
    return {"by": "lower limit", "why": why}


def correction(n: int, sd: float, third: float, constants: tuple[float, float]) -> float:
    """What the normal approximation may be wrong by: C (beta3/sd^3 + a) / sqrt(n)."""
    factor, more = constants
    ratio = third / sd**3 if sd**3 > 0 else math.inf
    return factor * (ratio + more) / math.sqrt(n)


def berry_esseen(n: int, sd: float, error: float, delta: float) -> float:
    """How far a mean of n exceeds its expectation with probability delta at most; may be inf."""
    left = min(delta - error, 0.5)
    return -_STANDARD.inv_cdf(left) * sd / math.sqrt(n) if left > 0 else math.inf


def bernstein(n: int, sd: float, delta: float) -> float:
    """The same by Bernstein's inequality: wider where n is large, finite at any n."""
    log = math.log(1 / delta)
    return sd * math.sqrt(2 * log / n) + log / (3 * n)


def distance(n: int, spread: Spread, delta: float) -> tuple[float, str]:
    """The distance from the mean that is enough for every sd in the spread, and by what.

    For one pair of constants Berry-Esseen's distance is convex in sd, so between s and sd_most it
    is at most the larger of its ends; Bernstein's grows with sd. Hence for every s, Bernstein at s
    (for any sd below) and Berry-Esseen at s and sd_most (for any sd above) are enough, and at
    s = sd_least Berry-Esseen alone is.
    """
    least, most = spread.sd_least, spread.sd_most
    handovers = HANDOVERS[(HANDOVERS > least) & (HANDOVERS < most)].tolist()
    best = bernstein(n, most, delta), "bernstein"
    for constants in BERRY_ESSEEN:

        def at(sd: float, constants: tuple[float, float] = constants) -> float:
            return berry_esseen(n, sd, correction(n, sd, spread.third_most, constants), delta)

        end = at(most)
        best = min(best, (max(at(least), end), "berry-esseen"))
        for s in handovers if end < best[0] else ():
            below = bernstein(n, s, delta)
            best = min(best, (max(below, at(s), end), "berry-esseen and bernstein"))
    return best


class Spread(NamedTuple):
    """What is known, but for the side events, of values whose limits are one unit apart.

    Args:
        sd_least: at most the standard deviation.
        sd_most: at least the standard deviation.
        third_most: at least E|x - mean|^3.
    """

    sd_least: float
    sd_most: float
    third_most: float


def spread_passes(
    values: Callable[[Partition], FloatArray], n: int, low: float, high: float, side: float
) -> Generator[Callable[[Partition], Any], Any, tuple[float, Spread]]:
    """The three passes that find the mean and the spread of n values: see `Bets.spread`.

    The pilot are the values at `tuning_rows(n)`.

    Args:
        values: (m,) the values of a partition, in [low, high].
        n: how many there are in all.
        low, high: their limits.
        side: what each of the side events may fail with.
    """
    width, first = high - low, n // SHARE

    def pilot(part: Partition) -> FloatArray:
        return values(part)[part.tuning(n)]

    def powers(part: Partition) -> MergedMoments:
        return MergedMoments.of(np.stack(squares_and_cubes(pilot(part), centre, width)))

    def growth(part: Partition) -> FloatArray:
        return bets.logs(np.delete(values(part), part.tuning(n)), centre, width)

    totals = yield lambda part: np.array([values(part).sum(), pilot(part).sum()])
    mean, centre = float(totals[0]) / n, float(totals[1]) / first
    moments = yield powers
    of_squares, of_cubes = moments.variance.tolist()
    apart = max(centre - low, high - centre) / width
    bets = Bets.sized(n - first, apart, float(moments.mean[0]), of_squares, of_cubes)
    logs = yield growth
    return mean, bets.spread(logs, n - first, n, abs(mean - centre) / width, side)


def spread_of(values: FloatArray, low: float, high: float, side: float) -> Spread:
    """The spread of (n,) values in [low, high], in units of high - low."""
    whole = Partition(ConservativeTerms(values, low, proof="values within their limits"))
    passes = spread_passes(lambda part: part.values, len(values), low, high, side)
    try:
        summand = next(passes)
        while True:
            summand = passes.send(summand(whole))
    except StopIteration as last:
        spread: Spread = last.value[1]
        return spread


class Bets(NamedTuple):
    """Bets on squares (from above and from below) and on cubes, sized on a pilot.

    Args:
        up, down, third: the bets.
        most: what no |value - centre| can exceed, in units of the range.
    """

    up: float
    down: float
    third: float
    most: float

    @classmethod
    def sized(cls, n: int, most: float, mean: float, variance: float, cubes: float) -> Bets:
        """For n further values like the pilot's: near the best ones, and below 1 / scale.

        Args:
            n: how many values will be bet on.
            most: as above.
            mean, variance: of the pilot's squares.
            cubes: the variance of its cubes.
        """
        return cls(
            up=_bet(variance, n, 1.05 * most**2),
            down=_bet(variance, n, mean or most**2),
            third=_bet(cubes, n, 1.05 * most**3),
            most=most,
        )

    def logs(self, values: FloatArray, centre: float, width: float) -> FloatArray:
        """(3,) the log growth of each bet over (m,) values; those of partitions add up."""
        squares, cubes = squares_and_cubes(values, centre, width)
        return np.array(
            [
                _log_growth(squares, -self.up, self.most**2),
                _log_growth(squares, self.down, self.most**2),
                _log_growth(cubes, -self.third, self.most**3),
            ]
        )

    def spread(self, logs: FloatArray, others: int, n: int, off: float, side: float) -> Spread:
        """What the log growth over `others` values says, `off` being |mean - centre| / width.

        Four bounds, each of which fails with probability at most `side`. Squares and cubes are
        taken around c, the mean of a pilot, and averaged over the other values. With
        off >= |E[x] - c| by Bernstein, over all n values::

            sd^2 <= E(x - c)^2,   sd^2 >= E(x - c)^2 - off^2,
            E|x - E[x]|^3 <= ((E|x - c|^3)^(1/3) + off)^3     (Minkowski)
        """
        square_most = _limit(float(logs[0]), others, -self.up, side)
        square_least = _limit(float(logs[1]), others, self.down, side)
        cube_most = _limit(float(logs[2]), others, -self.third, side)
        log = math.log(2 / side)
        off += math.sqrt(2 * square_most * log / n) + log / (3 * n)
        return Spread(
            sd_least=math.sqrt(max(square_least - off**2, 0.0)),
            sd_most=math.sqrt(square_most),
            third_most=(cube_most ** (1 / 3) + off) ** 3,
        )


def squares_and_cubes(values: FloatArray, centre: float, width: float) -> list[FloatArray]:
    """(n,) the squares and (n,) the cubes of |value - centre| / width, new arrays."""
    apart = values - centre
    apart /= width
    squares = apart * apart
    np.abs(apart, out=apart)
    apart *= squares
    return [squares, apart]


def smoothed(values: FloatArray, bet: float, most: float, side: float) -> float:
    """A lower (bet > 0) or an upper (bet < 0) bound on the mean of (n,) values in [0, most].

    ::

        (exp(mean of log(1 + bet z) - log(1/side) / n) - 1) / bet

    The product of (1 + bet z) / (1 + bet E[z]) has mean 1, as in `Smoothing`, and every factor is
    positive while -bet most < 1.
    """
    return _limit(_log_growth(values, bet, most), len(values), bet, side)


def _bet(variance: float, n: int, scale: float) -> float:
    return math.sqrt(2 * BETS_FOR / (n * variance + 2 * BETS_FOR * scale**2))


def _log_growth(values: FloatArray, bet: float, most: float) -> float:
    """The sum of log(1 + bet z) over values in [0, most]."""
    factors = values * bet
    factors += 1
    edge = 1 + bet * most
    return log_product(factors, min(edge, 1.0), max(edge, 1.0))


def _limit(log: float, n: int, bet: float, side: float) -> float:
    return math.expm1((log + math.log(side)) / n) / bet
