"""How much novelty a certificate is likely to allow, from a few moments of its terms.

Under pi0's rows the terms of (1 - nu) pi_old + nu pi_new, while novel actions have not been shown::

    t = ((1 - nu) min(w, clip) - rho) r,     w = pi_old / pi0

are polynomials in nu, so ten sums give their mean, variance and fourth moment at every nu; where
the sums come from (rows, or an assumption) does not matter here. An absolute floor has rho = 0 and
asks that E[t] reach C. Of several promises each has its own sums, and its part of delta.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from depsue.bounds.normal import BERRY_ESSEEN, SIDE_EVENTS, SIDE_SHARE
from depsue.data.checks import FloatArray, IntArray
from depsue.errors import is_real, require, require_delta, require_positive, short
from depsue.exploration.round import SMALLEST_CLIP, WEIGHT_SHARE
from depsue.promises import Promise, checked_promises

LUCK = 0.64
"""Standard errors set aside, so that about three verdicts in four come out as anticipated."""
NORMAL_DOUBT = 1.05
"""On the normal bound's cost: it is known less well from a few moments than a bet's is."""
STEP = 0.001
"""Between novelties."""
MOST_ROWS = 1e10
"""Where the search for a number of rows ends."""

_inverse = np.frompyfunc(NormalDist().inv_cdf, 1, 1)


@dataclass(frozen=True)
class Moments:
    """Means over pi0's rows for one pi_old and one promise, with w clipped.

    Args:
        first: (2,) E[w^k r], k = 0, 1.
        second: (3,) E[w^k r^2], k = 0 .. 2.
        fourth: (5,) E[w^k r^4], k = 0 .. 4.
        clip: where w was clipped.
        error: what is taken off first[1], where it was estimated from rows.
        at: the certifying rows that go with that; with n of them it is sqrt(at / n) of it.
        share: of all rows, those that the promise is about.
    """

    first: FloatArray
    second: FloatArray
    fourth: FloatArray
    clip: float
    error: float = 0.0
    at: float = 1.0
    share: float = 1.0


@dataclass(frozen=True)
class Aim:
    """What is to be certified.

    Args:
        promises: floors; all of them must hold.
        delta: the level, split evenly over the promises.
        most: no more novelty than this.
        r_max: the largest possible reward of the logs' own reward column.
    """

    promises: tuple[Promise, ...] = (Promise(),)
    delta: float = 0.05
    most: float = 0.5
    r_max: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "promises", checked_promises(self.promises))
        for promise in self.promises:
            ratio, absolute = promise.floor.ratio, promise.floor.absolute
            cure = "0.95 asks for 95% of pi0's value; an absolute floor is --floor-value"
            ok = ratio is None or ratio <= 1
            require(ok, "the floor must lie in (0, 1]", found=short(ratio), cure=cure)
            most = self.largest(promise)
            ok = absolute is None or absolute < most
            rule = f"an absolute floor must lie below r_max, {most:g}"
            require(ok, rule, found=short(absolute), cure="it is a mean reward for each decision")
        require_delta(self.delta)
        ok = is_real(self.most) and 0 < self.most < 1
        require(ok, "the most novelty must lie in (0, 1)", found=short(self.most), cure="0.5")
        require_positive(self.r_max, "r_max", "declare the largest possible reward")

    def largest(self, promise: Promise) -> float:
        """The largest possible value of that promise's reward."""
        return self.r_max if promise.r_max is None else promise.r_max

    @property
    def each(self) -> float:
        """delta of one promise."""
        return self.delta / len(self.promises)

    @property
    def certain(self) -> float:
        """The novelty beside pi0 that needs no data: 1 - rho; 0 if a floor is absolute."""
        ratios = [one.floor.ratio for one in self.promises]
        if any(ratio is None for ratio in ratios):
            return 0.0
        least = 1 - max(ratio for ratio in ratios if ratio is not None)
        return round(min(max(least, 0.0), self.most), 9)

    @property
    def novelties(self) -> FloatArray:
        """(L,) from 0 to the most, in steps."""
        return np.asarray(np.minimum(np.arange(0.0, self.most + STEP / 2, STEP), self.most))


Sides = Sequence[Moments]
"""The moments of one pi_old for every promise, in their order."""


def clip_for(n: float) -> float:
    """The largest weight that counts among n certifying rows, as certified exploration sets it."""
    return float(max(math.sqrt(n) / WEIGHT_SHARE, SMALLEST_CLIP))


def moments(
    share: FloatArray, weight: FloatArray, rewards: Sequence[FloatArray], clip: float
) -> Moments:
    """The moments over points that carry a share of pi0's rows each.

    Args:
        share: (m,) shares, which sum to 1.
        weight: (m,) w.
        rewards: (m,) E[r], (m,) E[r^2] and (m,) E[r^4] at each point.
        clip: the largest weight that counts.
    """
    w = np.minimum(weight, clip)
    out = []
    for power, reward in zip((1, 2, 4), rewards, strict=True):
        part, sums = share * reward, []
        for _ in range(power + 1):
            sums.append(float(part.sum()))
            part = part * w
        out.append(np.array(sums))
    return Moments(out[0], out[1], out[2], clip)


def rooms(found: Sides, nu: FloatArray, n: float, aim: Aim) -> FloatArray:
    """(promises, L) how far above its floor each bound is likely to lie, over V(pi0), at each nu.

    V(pi0) is the promise's own; n counts all certifying rows.
    """
    pairs = zip(found, aim.promises, strict=True)
    return np.stack([_room(one, nu, n * one.share, promise, aim) for one, promise in pairs])


def _room(found: Moments, nu: FloatArray, n: float, promise: Promise, aim: Aim) -> FloatArray:
    rho, keep, r_max = promise.floor.ratio or 0.0, 1 - nu, aim.largest(promise)
    mean, sd, fourth = _terms(found, keep, rho, n)
    cost = np.minimum(*_costs(found, mean, sd, fourth, rho, r_max, n, aim.each))
    left = mean - (promise.floor.absolute or 0.0) - cost - LUCK * sd / math.sqrt(n)
    return np.asarray(left / (found.first[0] or 1.0))


def tighter_bound(found: Sides, nu: float, n: float, aim: Aim) -> str:
    """Which bound is likely to cost less at nu, over all promises: "normal" or "betting"."""
    total = np.zeros(2)
    for one, promise in zip(found, aim.promises, strict=True):
        rho, r_max, size = promise.floor.ratio or 0.0, aim.largest(promise), n * one.share
        mean, sd, fourth = _terms(one, np.array([1 - nu]), rho, size)
        both = _costs(one, mean, sd, fourth, rho, r_max, size, aim.each)
        total += np.array([float(cost[0]) for cost in both]) / (one.first[0] or 1.0)
    return "normal" if total[0] <= total[1] else "betting"


def _terms(
    found: Moments, keep: FloatArray, rho: float, n: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Mean, standard deviation and fourth moment of the terms; n rows of this promise."""
    error = found.error * math.sqrt(found.at * found.share / n)
    mean = keep * (found.first[1] - error) - rho * found.first[0]
    square = np.maximum(_expanded(found.second, keep, rho), 0.0)
    fourth = np.maximum(_expanded(found.fourth, keep, rho), 0.0)
    return mean, np.sqrt(np.maximum(square - mean**2, 0.0)), fourth


def _costs(
    found: Moments,
    mean: FloatArray,
    sd: FloatArray,
    fourth: FloatArray,
    rho: float,
    r_max: float,
    n: float,
    delta: float,
) -> tuple[FloatArray, FloatArray]:
    """What the normal bound is likely to cost, and what a bet is."""
    width = rho * r_max + np.maximum(mean, 0.0)
    normal = NORMAL_DOUBT * _normal(n, sd, fourth, found.clip * r_max, delta)
    return normal, _bet(n, sd, width, delta)


def reach(found: Sides, n: float, aim: Aim) -> IntArray:
    """Places in `aim.novelties` that are likely to pass: one run around the safest, or none."""
    left = rooms(found, aim.novelties, n, aim).min(axis=0)
    ok, start = left >= 0, int(left.argmax())
    if not ok.any():
        return np.zeros(0, dtype=np.int64)
    gaps = np.flatnonzero(~ok)
    low = gaps[gaps < start].max(initial=-1) + 1
    high = gaps[gaps > start].min(initial=len(ok))
    return np.arange(low, high)


def boldest(candidates: Sequence[Sides], n: float, aim: Aim) -> float:
    """The most novelty that is likely to pass with any candidate; at least what is certain."""
    tops = [aim.novelties[places[-1]] for c in candidates if len(places := reach(c, n, aim))]
    return max([aim.certain, *(float(top) for top in tops)])


def rows_for(candidates: Sequence[Sides], level: float, aim: Aim) -> float | None:
    """Certifying rows from which on `level` is likely to pass; None if no number would do."""
    if level <= aim.certain + 1e-12:
        return 0.0
    at = np.array([level])

    def likely(n: float) -> bool:
        return any(float(rooms(found, at, n, aim).min()) >= 0 for found in candidates)

    high = 40.0
    while not likely(high):
        high *= 2
        if high > MOST_ROWS:
            return None
    low = high / 2
    while high / low > 1.03:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if likely(middle) else (middle, high)
    return high


def _expanded(sums: FloatArray, keep: FloatArray, rho: float) -> FloatArray:
    """E[(keep w - rho)^K r^K] from the sums E[w^k r^K], k = 0 .. K."""
    top = len(sums) - 1
    out = np.zeros_like(keep)
    for k, value in enumerate(sums):
        out += math.comb(top, k) * keep**k * (-rho) ** (top - k) * value
    return out


def _normal(
    n: float, sd: FloatArray, fourth: FloatArray, largest: float, delta: float
) -> FloatArray:
    """What the normal bound is likely to cost, its doubts about sd and beta3 included.

    They are bounded as in `bounds.Normal`: what sd may exceed its estimate by is taken from the
    fourth moment. E|t|^3 <= sd sqrt(E t^4) leaves room for what beta3 may exceed its own by, but
    for the largest possible term.
    """
    side = math.log(1 / (delta * SIDE_SHARE)) / n
    square = sd**2 + np.sqrt(2 * side * fourth)
    cube = sd * np.sqrt(fourth) + side * largest**3
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(sd > 0, cube / sd**3, 0.0)
    wrong = np.min([c * (ratio + a) for c, a in BERRY_ESSEEN], axis=0) / math.sqrt(n)
    left = delta * (1 - SIDE_EVENTS * SIDE_SHARE) - wrong
    ok = left > 0
    out = np.full(len(sd), np.inf)
    if ok.any():
        quantile = -_inverse(np.minimum(left[ok], 0.5)).astype(np.float64)
        out[ok] = quantile * np.sqrt(square[ok] / n)
    return np.where(sd > 0, out, 0.0)


def _bet(n: float, sd: FloatArray, width: FloatArray, delta: float) -> FloatArray:
    """What a bet costs: sd^2 / (2c) + c log(1/delta) / n at the best scale c that is allowed."""
    log = math.log(1 / delta)
    scale = np.maximum(sd * math.sqrt(n / (2 * log)), 2 * width)
    return np.asarray(np.where(sd > 0, sd**2 / (2 * scale) + scale * log / n, 0.0))
