"""How much novelty a certificate is likely to allow, from a few moments of its terms.

Under pi0's rows the terms of (1 - nu) pi_old + nu pi_new, while novel actions have not been shown::

    t = ((1 - nu) min(w, clip) - rho) r,     w = pi_old / pi0

are polynomials in nu, so ten sums give their mean, variance and fourth moment at every nu; where
the sums come from (rows, a reward model, an assumption) does not matter here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from depsue.bounds.normal import BERRY_ESSEEN, SIDE_EVENTS, SIDE_SHARE
from depsue.data.checks import FloatArray, IntArray
from depsue.errors import is_real, require, require_level, require_positive, short
from depsue.learners.exploring import SMALLEST_CLIP, WEIGHT_SHARE

LUCK = 0.64
"""Standard errors set aside, so that about three verdicts in four come out as anticipated."""
GRID_COST = math.log(9)
"""What averaging over a grid of scales adds to log(1/delta), at most."""
STEP = 0.001
"""Between novelties."""
MOST_ROWS = 1e10
"""Where the search for a number of rows ends."""

_inverse = np.frompyfunc(NormalDist().inv_cdf, 1, 1)


@dataclass(frozen=True)
class Moments:
    """Means over pi0's rows for one pi_old, with w clipped.

    Args:
        first: (2,) E[w^k r], k = 0, 1.
        second: (3,) E[w^k r^2], k = 0 .. 2.
        fourth: (5,) E[w^k r^4], k = 0 .. 4.
        clip: where w was clipped.
        error: standard error of first[1], where it was estimated from rows; it is taken off.
        at: the certifying rows that go with these; with n of them the error is sqrt(at / n) of it.
    """

    first: FloatArray
    second: FloatArray
    fourth: FloatArray
    clip: float
    error: float = 0.0
    at: float = 1.0


@dataclass(frozen=True)
class Aim:
    """What is to be certified.

    Args:
        ratio: rho, the floor as a share of V(pi0).
        delta: the level.
        most: no more novelty than this.
        r_max: the largest possible reward.
    """

    ratio: float = 0.95
    delta: float = 0.05
    most: float = 0.5
    r_max: float = 1.0

    def __post_init__(self) -> None:
        ok = is_real(self.ratio) and 0 < self.ratio <= 1
        cure = "0.95 asks for 95% of pi0's value"
        require(ok, "the floor must lie in (0, 1]", found=short(self.ratio), cure=cure)
        require_level(self.delta)
        ok = is_real(self.most) and 0 < self.most < 1
        require(ok, "the most novelty must lie in (0, 1)", found=short(self.most), cure="0.5")
        require_positive(self.r_max, "r_max", "declare the largest possible reward")

    @property
    def certain(self) -> float:
        """The novelty beside pi0 that needs no data: 1 - rho."""
        return round(min(max(1 - self.ratio, 0.0), self.most), 9)

    @property
    def novelties(self) -> FloatArray:
        """(L,) from 0 to the most, in steps."""
        return np.asarray(np.minimum(np.arange(0.0, self.most + STEP / 2, STEP), self.most))


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


def room(found: Moments, nu: FloatArray, n: float, aim: Aim) -> FloatArray:
    """(L,) how far above zero the bound on V(pi) - rho V(pi0) is likely to lie, at each nu."""
    keep, rho = 1 - nu, aim.ratio
    error = found.error * math.sqrt(found.at / n)
    mean = keep * (found.first[1] - error) - rho * found.first[0]
    square = np.maximum(_expanded(found.second, keep, rho), 0.0)
    fourth = np.maximum(_expanded(found.fourth, keep, rho), 0.0)
    sd = np.sqrt(np.maximum(square - mean**2, 0.0))
    width = rho * aim.r_max + np.maximum(mean, 0.0)
    normal = _normal(n, sd, fourth, found.clip * aim.r_max, aim.delta)
    cost = np.minimum(normal, _smoothing(n, sd, width, aim.delta))
    return np.asarray(mean - cost - LUCK * sd / math.sqrt(n))


def reach(found: Moments, n: float, aim: Aim) -> IntArray:
    """Places in `aim.novelties` that are likely to pass: one run around the safest, or none."""
    left = room(found, aim.novelties, n, aim)
    ok, start = left >= 0, int(left.argmax())
    if not ok.any():
        return np.zeros(0, dtype=np.int64)
    gaps = np.flatnonzero(~ok)
    low = gaps[gaps < start].max(initial=-1) + 1
    high = gaps[gaps > start].min(initial=len(ok))
    return np.arange(low, high)


def boldest(candidates: Sequence[Moments], n: float, aim: Aim) -> float:
    """The most novelty that is likely to pass with any candidate; at least what is certain."""
    tops = [aim.novelties[places[-1]] for c in candidates if len(places := reach(c, n, aim))]
    return max([aim.certain, *(float(top) for top in tops)])


def rows_for(candidates: Sequence[Moments], level: float, aim: Aim) -> float | None:
    """Certifying rows from which on `level` is likely to pass; None if no number would do."""
    if level <= aim.certain + 1e-12:
        return 0.0
    high = 40.0
    while boldest(candidates, high, aim) < level - 1e-9:
        high *= 2
        if high > MOST_ROWS:
            return None
    low = high / 2
    while high / low > 1.03:
        middle = math.sqrt(low * high)
        if boldest(candidates, middle, aim) < level - 1e-9:
            low = middle
        else:
            high = middle
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

    They are bounded as in `bounds.Normal`: what they may exceed their estimates by is taken from
    the fourth moment and from the largest possible term.
    """
    side = math.log(1 / (delta * SIDE_SHARE)) / n
    square = sd**2 + np.sqrt(2 * side * fourth) + side * largest**2
    cube = sd * np.sqrt(fourth) + largest * np.sqrt(2 * side * fourth) + side * largest**3
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


def _smoothing(n: float, sd: FloatArray, width: FloatArray, delta: float) -> FloatArray:
    """What a bet costs: sd^2 / (2c) + c log(1/delta) / n at the best scale c that is allowed."""
    log = math.log(1 / delta) + GRID_COST
    scale = np.maximum(sd * math.sqrt(n / (2 * log)), 2 * width)
    return np.asarray(np.where(sd > 0, sd**2 / (2 * scale) + scale * log / n, 0.0))
