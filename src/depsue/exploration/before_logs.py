"""How many rows a wished level needs, before any logs exist: from assumptions, said plainly.

Assumed is that, among the actions that pi0 shows in a context, log q is normal with standard
deviation `spread` as far as a reward model can learn it, and that pi_old is the exponential tilt
of pi0 by it. With z standard normal over pi0's choices::

    w = exp(s z - s^2 / 2),   q = rate exp(spread z - spread^2 / 2),   V(pi_old) = rate e^(s spread)

The strength s that needs the fewest rows is taken. Rewards are 0 or r_max. Where there are several
promises, the reward of each is taken to gain alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from depsue.certificates import FRACTIONS
from depsue.errors import is_real, require, short
from depsue.exploration.headroom import Aim, Moments, boldest, clip_for, moments, rows_for
from depsue.promises import Floor

STRENGTHS = (0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.25, 1.5)
POINTS = 1201
"""Of the grid over z, from -6 to 6."""
SHARE = FRACTIONS[2]
"""Of the rows, how many certify."""
USUAL = 0.3
"""The spread that is assumed where nothing is said."""
TIMES = (1, 2, 4, 10)
"""Multiples of the rows at hand that a plan looks at."""
MORE = 0.01
"""Novelty above the certain level that counts as more."""


@dataclass(frozen=True)
class Assumed:
    """What is assumed of the logs to come.

    Args:
        rate: the mean reward under pi0, as a share of r_max.
        spread: standard deviation of log q among what pi0 shows, as far as it can be learned.
        sides: for each promise, its rate and the share of rows that it is about; empty: `rate` and
            all rows, for every promise.
    """

    rate: float
    spread: float = USUAL
    sides: tuple[tuple[float, float], ...] = ()

    def __post_init__(self) -> None:
        ok = is_real(self.rate) and 0 < self.rate < 1
        cure = "5 rewards in 100 rows are 0.05"
        require(ok, "the reward rate must lie in (0, 1)", found=short(self.rate), cure=cure)
        ok = is_real(self.spread) and 0 < self.spread <= 2
        cure = "0.3 says: an action one deviation better earns 1.35 times as much"
        require(ok, "the spread must lie in (0, 2]", found=short(self.spread), cure=cure)

    def candidates(self, n: float, promises: int = 1) -> list[Sequence[Moments]]:
        """For every tilt the moments of each promise, clipped as for n certifying rows."""
        z = np.linspace(-6.0, 6.0, POINTS)
        share = np.exp(-(z**2) / 2)
        share /= share.sum()
        sides = self.sides or ((self.rate, 1.0),) * promises
        rates = {one for one, _ in sides}
        q = {r: np.minimum(r * np.exp(self.spread * z - self.spread**2 / 2), 1.0) for r in rates}
        found: list[Sequence[Moments]] = []
        for s in STRENGTHS:
            w = np.exp(s * z - s**2 / 2)
            of = {r: moments(share, w, (q[r], q[r], q[r]), clip_for(n)) for r in rates}
            found.append([replace(of[rate], share=part) for rate, part in sides])
        return found


def rows_before_logs(level: float, assumed: Assumed, aim: Aim) -> float | None:
    """Logged rows in all from which on `level` is likely; 0 if it is certain, None if never."""
    require_wish(level, aim)
    unit, count = in_shares(aim), len(aim.promises)
    n = rows_for(assumed.candidates(1e6, count), level, unit)
    if n is None or n == 0:
        return n
    again = rows_for(assumed.candidates(n, count), level, unit)
    return None if again is None else again / SHARE


def novelty_before_logs(rows: float, assumed: Assumed, aim: Aim) -> float:
    """The novelty that so many logged rows are likely to allow."""
    n = rows * SHARE
    return boldest(assumed.candidates(n, len(aim.promises)), n, in_shares(aim))


class MoreRows:
    """What more rows would buy: as rehearsed, or as assumed where that cannot tell.

    It cannot tell where no number of rows helps the rehearsed candidates, and where rows as few as
    those at hand would not have shown a spread of the usual size either.

    Args:
        at: for a number of certifying rows, the moments of every candidate.
        aim: what is to be certified.
        n, rows: independent values to certify with, and logged rows, at hand.
        top: the boldest level that is likely now.
        usual: what is assumed if need be.
    """

    def __init__(
        self,
        at: Callable[[float], list[Sequence[Moments]]],
        aim: Aim,
        *,
        n: float,
        rows: int,
        top: float,
        usual: Assumed,
    ) -> None:
        self.aim, self.n, self.per, self._at = aim, n, rows / n, at
        self._later = at(n * TIMES[-1])
        self.assumed: Assumed | None = None
        helped = rows_for(self._later, aim.certain + MORE, aim) is not None
        if not helped and novelty_before_logs(n / SHARE, usual, aim) <= top + 1e-9:
            self.assumed = usual

    def times(self) -> tuple[tuple[int, float], ...]:
        """Multiples of the rows at hand, and the novelty that is likely then."""
        found = []
        for k in TIMES:
            n = self.n * k
            if self.assumed is None:
                found.append((k, boldest(self._at(n), n, self.aim)))
            else:
                found.append((k, novelty_before_logs(n / SHARE, self.assumed, self.aim)))
        return tuple(found)

    def needed(self, wish: float | None) -> tuple[tuple[float, float | None], ...]:
        """Novelties, and the rows in all that they need."""
        certain = self.aim.certain
        asked = (certain + MORE, max(2 * certain, 0.1), wish or certain + MORE)
        wishes = sorted({round(one, 6) for one in asked if certain < one <= self.aim.most})
        return tuple((one, self.rows(one, self.assumed)) for one in wishes)

    def rows(self, wish: float, assumed: Assumed | None) -> float | None:
        """The rows in all that a novelty needs."""
        if assumed is None:
            n = rows_for(self._later, wish, self.aim)
            return None if n is None else n * self.per
        rows = rows_before_logs(wish, assumed, self.aim)
        return None if rows is None else rows * SHARE * self.per


def in_shares(aim: Aim) -> Aim:
    """The same aim with every reward, and every absolute floor, as a share of its largest value."""
    promises = []
    for one in aim.promises:
        floor = one.floor
        if floor.absolute is not None:
            floor = Floor(None, floor.absolute / aim.largest(one))
        promises.append(replace(one, floor=floor, r_max=None if one.r_max is None else 1.0))
    return replace(aim, promises=tuple(promises), r_max=1.0)


def require_wish(level: float, aim: Aim) -> None:
    """Refuse a wished level that is no level."""
    require(
        is_real(level) and 0 < level <= aim.most,
        f"the wished novelty must lie in (0, {aim.most:g}]",
        found=short(level),
        cure="0.10 asks for one decision in ten; --max-novelty raises the limit",
    )
