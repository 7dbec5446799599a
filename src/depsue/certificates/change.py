"""The change of what pi0 earns from some rows to others: limits that hold at every n.

Two sides of rows were drawn by policies p and p'. Their rows tell of pi0 on the part of its
decisions that both could show often enough, pi0 g with g = min(1, clip p / pi0, clip p' / pi0)::

    w = pi0 g / p,     E[w (r - c)] = E_pi0[g (r - c)]     on either side, for any number c

if rewards and contexts stayed the same. That part is all of pi0 where both policies cover it.
Where a policy cannot be called, g is not known on the other side's rows. Then the part that it does
not cover may be worth anything from 0 to r_max, and with w = min(pi0 / p, clip)::

    E[w r] <= V(pi0),     E[r_max - w (r_max - r)] >= V(pi0)

The first bounds V(pi0) where the question is whether it is higher than on the other side, the
second where it is whether it is lower: valid, but blind where little is covered.

It rose if the mean of t is above 0: w (r - c) n / n_after in later values, -w (r - c) n / n_before
in earlier ones; it fell if that of -t is. A fixed bet gives a lower bound on the mean of n
values t, as in `Smoothing`::

    (exp(mean of log(1 + bet t) - log(1/level) / n) - 1) / bet

Why this bound and not a normal one: the product of 1 + bet t has mean at most (1 + bet E[t])^n also
where means differ from value to value and where the later policy was chosen by the earlier rows,
as it is here. So it holds at every n and for any reward distribution. Both sides enter one bound;
two intervals, one for each side, would see less. Its price: at level .01 a change must be 1.2
times as large as for a z-test of two independent samples.

One value of 20, by position, is a pilot: it sets c and the bet and is not tested. A unit is one
value, also where it is on both sides.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from depsue.bounds import tuning_rows
from depsue.data.checks import FloatArray, IntArray, Mask

FEWEST = 40
"""The fewest values on either side that are tested."""
LARGEST_LOSS = 0.8
"""No value loses more than this share of the capital."""
POWER = 1.2816
"""Standard errors: a normal variable exceeds its mean minus so many with probability .9."""


class Change(NamedTuple):
    """The change between two sides.

    Args:
        before, after: what pi0 earns on the part that is compared, on the earlier and later rows.
        low, high: limits of after - before; each fails with probability at most the level.
        smallest: a true change of this size would have been seen with probability .9, about.
        compared: the share of pi0's decisions that is compared; the rest is not seen.
        n: values (rows, or units) that were tested.
    """

    before: float
    after: float
    low: float
    high: float
    smallest: float
    compared: float
    n: int


class Side(NamedTuple):
    """The n rows of one side.

    Args:
        reward: (n,) rewards.
        weight: (n,) w, between 0 and `clip`.
        shared: whether w is pi0 g / p; else it is min(pi0 / p, clip).
        clip: the largest weight; 1 for rows of pi0.
        r_max: the declared largest reward.
        ids: (n,) units; None if every row is a value.
    """

    reward: FloatArray
    weight: FloatArray
    shared: bool
    clip: float
    r_max: float
    ids: np.ndarray[Any, Any] | None

    def gain(self, c: float) -> tuple[FloatArray, float]:
        """(n,) what is at most the value less c, in the mean; and the least that it can be."""
        if self.shared:
            return self.weight * (self.reward - c), -self.clip * c
        return self.weight * self.reward - c, -c

    def loss(self, c: float) -> tuple[FloatArray, float]:
        """(n,) what is at most c less the value, in the mean; and the least that it can be."""
        missing = self._replace(reward=self.r_max - self.reward)
        return missing.gain(self.r_max - c)


def change_between(before: Side, after: Side, level: float) -> Change | None:
    """The change, each of its limits at `level`; None with too few values on a side."""
    sides, (places, n) = (before, after), _values(before, after)
    pilot = np.zeros(n, dtype=bool)
    pilot[tuning_rows(n)] = True
    counts = [np.bincount(place, minlength=n) for place in places]
    if min(int((count[~pilot] > 0).sum()) for count in counts) < FEWEST:
        return None
    c = _centre(before, pilot[places[0]])

    def part(i: int, rows: FloatArray, least: float = 0.0) -> _Part:
        place, count = places[i], counts[i]
        return _Part(np.bincount(place, rows, n) / np.maximum(count, 1), count > 0, least)

    rose = _lower(part(1, *after.gain(c)), part(0, *before.loss(c)), pilot, level)
    fell = _lower(part(0, *before.gain(c)), part(1, *after.loss(c)), pilot, level)
    mass = [part(i, side.weight).mean() for i, side in enumerate(sides)]
    compared = mass[0] if before.shared else min(mass[0], 1.0)
    apart = sum(
        max(side.r_max * (1 - one), 0.0)
        for side, one in zip(sides, mass, strict=True)
        if not side.shared
    )
    values = [
        c * compared + part(i, side.weight * (side.reward - c)).mean()
        for i, side in enumerate(sides)
    ]
    return Change(
        before=values[0],
        after=values[1],
        low=rose.value,
        high=-fell.value,
        smallest=max(rose.distance, fell.distance) + apart,
        compared=compared,
        n=int((~pilot).sum()),
    )


def _centre(side: Side, pilot: Mask) -> float:
    """c: the mean reward, as far as pi0 would have earned it, of the pilot's rows."""
    weight, reward = side.weight[pilot], side.reward[pilot]
    total = float(weight.sum())
    return float(weight @ reward) / total if total > 0 else side.r_max / 2


class _Part(NamedTuple):
    """(n,) one side's part of every value, 0 where the value is not there; its least."""

    values: FloatArray
    there: Mask
    least: float

    def mean(self) -> float:
        """Over the values that are there."""
        return float(self.values[self.there].mean())


class _Lower(NamedTuple):
    """A lower bound, and how far above 0 the truth must be for the bound to be, 9 times in 10."""

    value: float
    distance: float


def _lower(gain: _Part, loss: _Part, pilot: Mask, level: float) -> _Lower:
    """The lower bound on E[gain] + E[loss], by one bet on all values but the pilot's."""
    n, log = int((~pilot).sum()), math.log(1 / level)
    scales = [n / int((part.there & ~pilot).sum()) for part in (gain, loss)]
    t = scales[0] * gain.values + scales[1] * loss.values
    leasts = scales[0] * gain.least, scales[1] * loss.least
    least = sum(leasts) if bool((gain.there & loss.there).any()) else min(leasts)
    variance = float(t[pilot].var())
    bet = math.sqrt(2 * log / (n * variance + 2 * log * (least / LARGEST_LOSS) ** 2))
    tested = t[~pilot]
    value = math.expm1(float(np.log1p(bet * tested).mean()) - log / n) / bet
    error = float(tested.std()) / math.sqrt(n)
    return _Lower(value, float(tested.mean()) - value + POWER * error)


def _values(before: Side, after: Side) -> tuple[tuple[IntArray, IntArray], int]:
    """Which value each row of either side belongs to, and how many there are."""
    m = len(before.reward)
    if before.ids is None or after.ids is None:
        n = m + len(after.reward)
        return (np.arange(m), np.arange(m, n)), n
    ids, place = np.unique(np.concatenate([before.ids, after.ids]), return_inverse=True)
    return (place[:m], place[m:]), len(ids)
