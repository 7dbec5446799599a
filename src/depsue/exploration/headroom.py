"""How far above its floor a bound is likely to lie, from a few sums.

The terms of (1 - nu) pi_old + nu pi_new are (1 - nu) times those of pi_old plus nu times those of
pi_new, less rho times pi0's where they are paired with it. The first two never meet in one row, so
mean and variance at every nu follow from the means, variances and covariances of the three
(`Sums`). `margins` and `headroom` turn them into the distance between the bound and what it must
reach. Where the sums come from does not matter here: `exploration.forecast` takes them from rows,
`exploration.rows_needed` from an assumption.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from depsue.data.checks import FloatArray, IntArray
from depsue.data.logs import LoggedData

DEVIATIONS, AT_DELTA = 2.3, 0.05
"""Standard errors that a bound costs, about, at this delta."""
ENOUGH_REWARDS = 250
"""Rewarded rows below which a bound costs more: no bet may be larger than the range allows."""
LIKELY = 0.75
"""How often a level that counts as likely passes, in all of its promises."""
WEIGHT_SHARE, SMALLEST_CLIP = 8.0, 5.0
"""No weight counts for more than sqrt(n) / 8: beyond it, one row would decide."""


@dataclass(frozen=True)
class Sums:
    """Expectations of a part pi under the policy `base` that logged the rows, for one promise.

    Args:
        value: of pi q, as far as q is believed.
        seen: of min(w, clip) q, with w = pi / base where base shows the action and 0 elsewhere:
            the mean of the terms, by a q that the rows have corrected where they refute it.
        observed: the mean of the terms by the rows themselves, with q as a control variate:
            unbiased, but as noisy as few rows are.
        square: their variance; with a control variate, what is left of it: min(w, clip)^2 v with
            v = Var[r] = q (kappa - q).
        cross: their covariance with pi0's terms.
    """

    value: float
    seen: float
    observed: float
    square: float
    cross: float


@dataclass(frozen=True)
class MixtureSums:
    """The sums of pi_old, of pi_new and of pi0, for one promise.

    Args:
        old, new, pi0: over all requests.
        elsewhere: those of pi_old over requests without a new candidate, where pi_old decides
            alone whatever nu is; None if every request has one.
        meet: whether pi_old and pi_new may count in one row: new items count there as old ones.
            Their covariance is then taken to be as large as it can be.
    """

    old: Sums
    new: Sums
    pi0: Sums
    elsewhere: Sums | None = None
    meet: bool = False

    @property
    def exploring(self) -> Sums:
        """What a decision that explores adds: pi_new, or pi_old where there is nothing new."""
        if self.elsewhere is None:
            return self.new
        new, old = self.new, self.elsewhere
        return Sums(
            value=new.value + old.value,
            seen=new.seen + old.seen,
            observed=new.observed + old.observed,
            square=new.square + old.square,
            cross=new.cross + old.cross,
        )

    def value(self, nu: FloatArray) -> FloatArray:
        """V at each novelty nu, as the reward model sees it."""
        return (1 - nu) * self.old.value + nu * self.exploring.value


@dataclass(frozen=True)
class Requirement:
    """What one promise asks of the bound.

    Args:
        name: of the promise.
        need: what the bound must reach.
        rho: the share of pi0's terms that is taken off each term; None where terms are not paired.
        delta: what the promise is tested at.
        share: of all rows, those that the promise is about.
        pi0_value: V(pi0) in its reward.
        r_max: the largest possible value of that reward.
        observed: its rows that the means were observed on; infinite where means are assumed.
    """

    name: str
    need: float
    rho: float | None
    delta: float
    share: float
    pi0_value: float
    r_max: float
    observed: float = math.inf

    def cost(self, n: float) -> float:
        """Standard errors that the bound costs with n certifying rows in all.

        Betting pays sd^2 / (2c) + c log(1/delta) / n for a scale c that may not be below the
        range of the terms. Where rewarded rows are few the best scale would be, by a factor x,
        and (x + 1/x) / 2 times the cost is paid.
        """
        rewarded = n * self.share * self.pi0_value / self.r_max
        x = max(math.sqrt(ENOUGH_REWARDS / max(rewarded, 1e-9)), 1.0)
        of_delta = math.sqrt(math.log(1 / self.delta) / math.log(1 / AT_DELTA))
        return DEVIATIONS * of_delta * (x + 1 / x) / 2


def margins(sums: MixtureSums, nu: FloatArray, asked: Requirement, *, n: float) -> FloatArray:
    """(L,) how far above the need the bound is likely to lie, at each novelty nu.

    Candidates are compared by it. It goes by the means that q-hat gives: by those of few rows,
    the luckiest candidate would win.

    Args:
        sums: of the parts.
        nu: (L,) novelties.
        asked: what the promise asks.
        n: certifying rows in all.
    """
    mean = _mixed(nu, asked.rho, sums.old.seen, sums.exploring.seen, sums.pi0.seen)
    error = np.sqrt(_variance(sums, nu, asked.rho) / (n * asked.share))
    return np.asarray(mean - asked.cost(n) * error - asked.need)


def headroom(
    sums: Sequence[MixtureSums], nu: FloatArray, asked: Sequence[Requirement], n: float
) -> FloatArray:
    """(promises, L) the same for a forecast that comes true three times in four, over V(pi0).

    The mean of the terms is taken half from q-hat and half from the rows that observed it: one errs
    by its slope, the other by the noise of rewards, so together they err less than either. For luck
    it sets aside standard errors of the difference between what was observed and what n rows will
    show: more where more promises must all pass.
    """
    luck = NormalDist().inv_cdf(LIKELY ** (1 / len(asked)))
    left = []
    for own, requirement in zip(sums, asked, strict=True):
        rho, rows = requirement.rho, n * requirement.share
        new = own.exploring
        by_model = _mixed(nu, rho, own.old.seen, new.seen, own.pi0.seen)
        by_rows = _mixed(nu, rho, own.old.observed, new.observed, own.pi0.observed)
        mean = (by_rows + by_model) / 2
        variance = _variance(own, nu, rho)
        doubt = luck * np.sqrt(variance * (1 / rows + 1 / requirement.observed))
        cost = requirement.cost(n) * np.sqrt(variance / rows)
        left.append((mean - cost - doubt - requirement.need) / (requirement.pi0_value or 1.0))
    return np.stack(left)


def _mixed(nu: FloatArray, rho: float | None, old: float, new: float, pi0: float) -> FloatArray:
    """(1 - nu) old + nu new, less rho pi0 where terms are paired."""
    mixed = (1 - nu) * old + nu * new
    return mixed if rho is None else mixed - rho * pi0


def _variance(sums: MixtureSums, nu: FloatArray, rho: float | None) -> FloatArray:
    """Of the terms at each novelty."""
    old, new, pi0 = sums.old, sums.new, sums.pi0
    square = (1 - nu) ** 2 * old.square + nu**2 * new.square
    if sums.elsewhere is not None:  # there the two are the same, and meet in one row
        square = square + (1 - (1 - nu) ** 2) * sums.elsewhere.square
    if sums.meet:
        square = square + 2 * nu * (1 - nu) * math.sqrt(max(old.square * new.square, 0.0))
    if rho is not None:
        cross = (1 - nu) * old.cross + nu * sums.exploring.cross
        square = square - 2 * rho * cross + rho**2 * pi0.square
    return np.maximum(square, 0.0)


def likely(left: FloatArray) -> IntArray:
    """Places of the levels that are likely to pass: one run around the safest, or none.

    Args:
        left: (promises, L) headroom.
    """
    least = left.min(axis=0)
    safest = int(least.argmax())
    return run_around(least, safest) if least[safest] >= 0 else np.zeros(0, dtype=np.int64)


def run_around(room: FloatArray, start: int) -> IntArray:
    """Places around `start` that are joined to it by places with room."""
    ok = room >= 0
    ok[start] = True
    low = high = start
    while low > 0 and ok[low - 1]:
        low -= 1
    while high < len(ok) - 1 and ok[high + 1]:
        high += 1
    return np.arange(low, high + 1)


def clip_for(n: float) -> float:
    """The largest weight that counts among n certifying rows."""
    return float(max(n**0.5 / WEIGHT_SHARE, SMALLEST_CLIP))


def independent_values(readable: LoggedData, certify: LoggedData) -> float:
    """How many independent values the certifying fold is worth, its rewards unread.

    Rows, or where rows repeat units: units, times how much less their means vary than rows do.
    """
    if certify.units is None or readable.unit is None:
        return float(len(certify))
    means = np.bincount(readable.unit, readable.reward) / np.bincount(readable.unit)
    rows, units = float(readable.reward.var()), float(means.var())
    less = min(max(units / rows, 1e-3), 1.0) if rows > 0 else 1.0
    return min(len(certify.units) / less, float(len(certify)))
