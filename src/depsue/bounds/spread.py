"""How far values spread: limits of their standard deviation and third moment, from the values.

Each limit rests on a sum of logarithms, so the values may come in pieces: `Bets.logs` of the
pieces add up.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from depsue.bounds._common import log_product
from depsue.bounds.rewarded import tuning_rows
from depsue.data.checks import FloatArray

SIDE_EVENTS, SIDE_SHARE = 4, 1 / 100
"""How many bounds on moments may fail, and the share of delta that each of them gets."""

BETS_FOR = math.log(1 / (0.05 * SIDE_SHARE))
"""Bets are sized for delta = .05, whatever delta is: so the bound is nested in delta."""


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


def smoothed(values: FloatArray, bet: float, most: float, level: float) -> float:
    """A lower (bet > 0) or an upper (bet < 0) bound on the mean of (n,) values in [0, most].

    ::

        (exp(mean of log(1 + bet z) - log(1/level) / n) - 1) / bet

    The product of (1 + bet z) / (1 + bet E[z]) has mean 1, as in `Smoothing`, and every factor is
    positive while -bet most < 1.
    """
    return _limit(_log_growth(values, bet, most), len(values), bet, level)


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
        """(3,) the log growth of each bet over (m,) values; those of pieces add up."""
        squares, cubes = squares_and_cubes(values, centre, width)
        return np.array(
            [
                _log_growth(squares, -self.up, self.most**2),
                _log_growth(squares, self.down, self.most**2),
                _log_growth(cubes, -self.third, self.most**3),
            ]
        )

    def spread(self, logs: FloatArray, others: int, n: int, off: float, level: float) -> Spread:
        """What the log growth over `others` values says, `off` being |mean - centre| / width.

        Four bounds, each of which fails with probability at most `level`. Squares and cubes are
        taken around c, the mean of a pilot, and averaged over the other values. With
        off >= |E[x] - c| by Bernstein, over all n values::

            sd^2 <= E(x - c)^2,   sd^2 >= E(x - c)^2 - off^2,
            E|x - E[x]|^3 <= ((E|x - c|^3)^(1/3) + off)^3     (Minkowski)
        """
        square_most = _limit(float(logs[0]), others, -self.up, level)
        square_least = _limit(float(logs[1]), others, self.down, level)
        cube_most = _limit(float(logs[2]), others, -self.third, level)
        log = math.log(2 / level)
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


def largest_apart(centre: float, low: float, high: float) -> float:
    """What no |value - centre| can exceed, in units of the range."""
    return max(centre - low, high - centre) / (high - low)


def spread_of(values: FloatArray, low: float, high: float, level: float) -> Spread:
    """The spread of (n,) values in [low, high], in units of high - low: see `Bets.spread`.

    The pilot are the values at `tuning_rows(n)`.
    """
    n, width, pilot = len(values), high - low, tuning_rows(len(values))
    first, others = values[pilot], np.delete(values, pilot)
    centre = float(first.mean())
    squares, cubes = squares_and_cubes(first, centre, width)
    moments = float(squares.mean()), float(squares.var()), float(cubes.var())
    bets = Bets.sized(len(others), largest_apart(centre, low, high), *moments)
    off = abs(float(values.mean()) - centre) / width
    return bets.spread(bets.logs(others, centre, width), len(others), n, off, level)


def _bet(variance: float, n: int, scale: float) -> float:
    return math.sqrt(2 * BETS_FOR / (n * variance + 2 * BETS_FOR * scale**2))


def _log_growth(values: FloatArray, bet: float, most: float) -> float:
    """The sum of log(1 + bet z) over values in [0, most]."""
    factors = values * bet
    factors += 1
    edge = 1 + bet * most
    return log_product(factors, min(edge, 1.0), max(edge, 1.0))


def _limit(log: float, n: int, bet: float, level: float) -> float:
    return math.expm1((log + math.log(level)) / n) / bet
