"""How many rows a wished level needs, before any logs exist: from assumptions, said plainly.

Assumed is that, among the actions that pi0 shows in a context, log q is normal with standard
deviation `spread` as far as a reward model can learn it, and that pi_old is the exponential tilt
of pi0 by it. With z standard normal over pi0's choices::

    w = exp(s z - s^2 / 2),   q = rate exp(spread z - spread^2 / 2),   V(pi_old) = rate e^(s spread)

The strength s that needs the fewest rows is taken. Rewards are 0 or r_max.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from depsue.certificates import FRACTIONS
from depsue.errors import is_real, require, short
from depsue.learners.room import Aim, Moments, boldest, clip_for, moments, rows_for

STRENGTHS = (0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.25, 1.5)
POINTS = 1201
"""Of the grid over z, from -6 to 6."""
SHARE = FRACTIONS[2]
"""Of the rows, how many certify."""


@dataclass(frozen=True)
class Assumed:
    """What is assumed of the logs to come.

    Args:
        rate: the mean reward under pi0, as a share of r_max.
        spread: standard deviation of log q among what pi0 shows, as far as it can be learned.
    """

    rate: float
    spread: float = 0.3

    def __post_init__(self) -> None:
        ok = is_real(self.rate) and 0 < self.rate < 1
        cure = "5 rewards in 100 rows are 0.05"
        require(ok, "the reward rate must lie in (0, 1)", found=short(self.rate), cure=cure)
        ok = is_real(self.spread) and 0 < self.spread <= 2
        cure = "0.3 says: an action one deviation better earns 1.35 times as much"
        require(ok, "the spread must lie in (0, 2]", found=short(self.spread), cure=cure)

    def candidates(self, n: float) -> list[Moments]:
        """The moments of the tilts, with weights clipped as for n certifying rows."""
        z = np.linspace(-6.0, 6.0, POINTS)
        share = np.exp(-(z**2) / 2)
        share /= share.sum()
        q = np.minimum(self.rate * np.exp(self.spread * z - self.spread**2 / 2), 1.0)
        return [moments(share, np.exp(s * z - s**2 / 2), (q, q, q), clip_for(n)) for s in STRENGTHS]


def rows_before_logs(level: float, assumed: Assumed, aim: Aim) -> float | None:
    """Logged rows in all from which on `level` is likely; 0 if it is certain, None if never."""
    require_wish(level, aim)
    n = rows_for(assumed.candidates(1e6), level, aim)
    if n is None or n == 0:
        return n
    again = rows_for(assumed.candidates(n), level, aim)
    return None if again is None else again / SHARE


def novelty_before_logs(rows: float, assumed: Assumed, aim: Aim) -> float:
    """The novelty that so many logged rows are likely to allow."""
    n = rows * SHARE
    return boldest(assumed.candidates(n), n, aim)


def require_wish(level: float, aim: Aim) -> None:
    """Refuse a wished level that is no level."""
    require(
        is_real(level) and 0 < level <= aim.most,
        f"the wished novelty must lie in (0, {aim.most:g}]",
        found=short(level),
        cure="0.10 asks for one decision in ten; --max-novelty raises the limit",
    )
