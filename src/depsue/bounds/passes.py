"""Bounds over terms that come in pieces, for logs that do not fit into memory.

A bound is a generator here. It yields what shall see every piece, in order; when all pieces went
by it is resumed, and asks for another pass or returns the bound. Nothing is kept but sums, so
memory does not grow with the number of terms. The kernels are those of the bounds in memory:

    smoothing   one pass: sums of logarithms
    hcope       one pass: sums of z and z^2 at every tau of the grid
    normal      three: the pilot's mean; the size of its squares and cubes; sums of logarithms
    betting     nine: the mean; the capital at points 16 times apart, then at 31 points in
                between, seven times over

The values are rows, in their order. Where rows belong to units, sum them up by unit first.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TypeAlias

import numpy as np

from depsue.bounds._common import conservative, declared_scale
from depsue.bounds.betting import Betting, LogCapital
from depsue.bounds.hcope import TAUS, Eq4, Hcope, best_tau, empirical_bernstein, require_enough
from depsue.bounds.hcope import concluded as hcope_concluded
from depsue.bounds.normal import FEWEST, SIDE_SHARE, Bets, Normal, largest_apart, squares_and_cubes
from depsue.bounds.normal import concluded as normal_concluded
from depsue.bounds.rewarded import SHARE, Rewarded, tuning_between
from depsue.bounds.smoothing import Smoothing, log_sums
from depsue.data.checks import FloatArray
from depsue.data.terms import ConservativeTerms, WeightedTerms
from depsue.errors import ConfigError, require, require_delta
from depsue.protocols import Bound, BoundValue

Pass: TypeAlias = Callable[[ConservativeTerms, int], None]
"""Sees a piece of the terms, and the place of its first term among all of them."""
Passes: TypeAlias = Generator[Pass, None, BoundValue]

POINTS, ROUNDS, DECADES = 31, 7, 31
"""Betting: 32 sections in each of seven passes come to 2^-35 of the bracket."""


def passes_of(bound: Bound, like: ConservativeTerms, n: int, delta: float) -> Passes:
    """The bound at level delta over n terms, of which `like` are some.

    Args:
        bound: a `Normal`, `Betting`, `Smoothing` or `Hcope`.
        like: the first piece, for what it declares: limits and r_max.
        n: how many terms there will be.
        delta: the level, in (0, 1).
    """
    delta = require_delta(delta)
    like = conservative(like, type(bound).__name__.lower())
    require(
        like.unit is None,
        "terms that come in pieces must stand for themselves",
        found="terms of units, whose rows may lie in several pieces",
        cure="sum the terms up by unit, and use the bound in memory",
    )
    if isinstance(bound, Smoothing):
        return _smoothing(bound, like, n, delta)
    if isinstance(bound, Normal):
        return _normal(bound, like, n, delta)
    if isinstance(bound, Betting) and bound.order == "as given":
        return _betting(bound, like, n, delta)
    if isinstance(bound, Hcope) and bound.tau is None and isinstance(like, WeightedTerms):
        return _hcope(like.r_max, n, delta)
    raise ConfigError(
        "only normal, smoothing, betting in the order of the rows, and hcope with tau from its "
        "grid can be had from terms that come in pieces",
        found=f"{bound!r} on {type(like).__name__}",
        cure="use one of these, or read the logs into memory",
    )


def _smoothing(bound: Smoothing, like: ConservativeTerms, n: int, delta: float) -> Passes:
    scales = bound.scales(like)
    total, sums = 0.0, np.zeros(len(scales))

    def see(terms: ConservativeTerms, place: int) -> None:
        nonlocal total, sums
        total += float(terms.values.sum())
        sums = sums + log_sums(terms.values, scales)

    yield see
    return bound.concluded(sums, total / n, n, scales, like.lower, delta)


def _hcope(r_max: float, n: int, delta: float) -> Passes:
    require_enough(n)
    sums = np.zeros((2, 2, len(TAUS)))  # tuning or rest; of z or z^2; tau

    def see(terms: ConservativeTerms, place: int) -> None:
        if isinstance(terms, WeightedTerms):
            tuning = _pilot(place, len(terms.values), n)
            for part, mask in enumerate((tuning, ~tuning)):
                mask = mask & (terms.rewards != 0)
                sample = Rewarded(terms.weights[mask], terms.rewards[mask], n)
                sums[part] += sample.sums(TAUS)

    yield see
    first = n // SHARE
    rest, (total, squares) = n - first, sums[1]
    at = best_tau(sums[0, 0], sums[0, 1], first, rest, r_max=r_max, delta=delta)
    tau, mean = float(TAUS[at]), float(total[at]) / rest
    variance = max(float(squares[at]) / rest - mean**2, 0.0)
    value = float(empirical_bernstein(mean, variance, rest, tau * r_max, delta))
    return hcope_concluded(Eq4(value, tau, mean), first, rest, r_max, delta)


def _normal(bound: Normal, like: ConservativeTerms, n: int, delta: float) -> Passes:
    limits = bound.limited(like)[1]
    low, high = limits.low, limits.high
    width, first = high - low, n // SHARE
    total, pilot_total = 0.0, 0.0

    def means(terms: ConservativeTerms, place: int) -> None:
        nonlocal total, pilot_total
        values = bound.limited(terms)[0]
        total += float(values.sum())
        pilot_total += float(values[_pilot(place, len(values), n)].sum())

    yield means
    mean = total / n
    if n < FEWEST:
        return normal_concluded(n, mean, None, limits, delta)
    centre = pilot_total / first
    powers = np.zeros((2, 2))  # of squares or cubes; their sum, and that of their squares

    def moments(terms: ConservativeTerms, place: int) -> None:
        values = bound.limited(terms)[0]
        pilot = values[_pilot(place, len(values), n)]
        for which, some in enumerate(squares_and_cubes(pilot, centre, width)):
            powers[which] += some.sum(), np.square(some).sum()

    yield moments
    averages = powers / first
    variances = np.maximum(averages[:, 1] - averages[:, 0] ** 2, 0)
    apart = largest_apart(centre, low, high)
    found = float(averages[0, 0]), float(variances[0]), float(variances[1])
    bets = Bets.sized(n - first, apart, *found)
    logs = np.zeros(3)

    def growth(terms: ConservativeTerms, place: int) -> None:
        nonlocal logs
        values = bound.limited(terms)[0]
        logs = logs + bets.logs(values[~_pilot(place, len(values), n)], centre, width)

    yield growth
    off = abs(mean - centre) / width
    spread = bets.spread(logs, n - first, n, off, delta * SIDE_SHARE)
    return normal_concluded(n, mean, spread, limits, delta)


def _betting(bound: Betting, like: ConservativeTerms, n: int, delta: float) -> Passes:
    scale = declared_scale(like, bound.unit_scale, "betting")
    lower, total = like.lower, 0.0

    def means(terms: ConservativeTerms, place: int) -> None:
        nonlocal total
        total += float(terms.values.sum())

    yield means
    mean, found = total / n, 0.0
    if mean > lower:
        rejected = _Rejected(bound, n, scale, lower, delta)
        points = (mean - lower) * 16.0 ** -np.arange(DECADES, dtype=np.float64)
        yield rejected.at(np.append(points, 0.0))
        last = int(np.argmax(rejected.found))  # the first, so the largest, that is rejected
        if rejected.found[last] and last < DECADES:
            found = float(points[last])
            above = float(points[max(last - 1, 0)])
            for _ in range(ROUNDS if last else 0):
                points = np.linspace(found, above, POINTS + 2)
                yield rejected.at(points[1:-1])
                passed = int(np.count_nonzero(rejected.found))
                found, above = float(points[passed]), float(points[passed + 1])
    return bound.concluded(found, mean, n, scale, bound.order, lower, delta)


class _Rejected:
    """Which means the bets reject: one pass over the terms for a handful of them."""

    def __init__(self, bound: Betting, n: int, scale: float, lower: float, delta: float) -> None:
        self._bound, self._n, self._scale = bound, n, scale
        self._lower, self._delta = lower, delta
        self._logs: FloatArray = np.zeros(0)

    def at(self, points: FloatArray) -> Pass:
        """A pass that settles it for (k,) points."""
        self._logs = np.zeros(len(points))
        sizes = self._bound.sizes(self._n, self._scale, self._delta)

        def see(terms: ConservativeTerms, place: int) -> None:
            values = terms.values - self._lower
            capital = LogCapital(values, sizes.of(values), self._bound.cap)
            self._logs = self._logs + [capital(float(m)) for m in points]

        return see

    @property
    def found(self) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        """(k,) True where the capital reached 1/delta."""
        return np.asarray(self._logs >= -np.log(self._delta))


def _pilot(place: int, size: int, n: int) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """(size,) which of the values from `place` on are among the `tuning_rows(n)`."""
    mask = np.zeros(size, dtype=bool)
    mask[tuning_between(place, place + size, n) - place] = True
    return mask
