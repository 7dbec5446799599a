"""Eq. 4: the bound of high-confidence off-policy evaluation (HCOPE).

`Hcope` is the bound on terms; `hcope_from_rewarded` is the same arithmetic for training loops that
need it at every step. Both touch rewarded rows only: a row without reward has z = 0 whatever its
weight, so it is only counted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from depsue.bounds.base import (
    SHARE,
    BaseBound,
    MergedMoments,
    Partition,
    Passes,
    positive_or_none,
    tuning_rows,
    weighted,
)
from depsue.data.checks import FloatArray, IntArray, read_only
from depsue.data.terms import ConservativeTerms, WeightedTerms
from depsue.errors import require
from depsue.protocols import BoundValue

TAUS: FloatArray = read_only(2.0 ** (np.arange(-4, 33) / 2))
"""The fixed grid of clipping points: 2^(k/2) from 1/4 to 2^16."""

FEWEST = 2 * SHARE
"""The fewest values that tau can be tuned on and the bound computed from."""


@dataclass(frozen=True)
class Hcope(BaseBound):
    """HCOPE's lower bound on V(pi): the paper's Eq. 4.

    ::

        mean(z) - sqrt(2 log(2/delta) V_n(z) / (n - 1)) - 7 z_max log(2/delta) / (3 (n - 1))

        z = min(w, tau) r,   z_max = tau r_max,   V_n the 1/n sample variance

    tau is chosen from a fixed grid on 1/20 of the values, and the bound is computed on the other
    19/20, of which it speaks: so tau is as good as fixed beforehand, and clipping keeps
    E[z] <= V(pi). z_max is declared, never read off the data. Since V(pi) >= 0 is known, a
    negative value is reported as 0. The tuning values are chosen by their place: give rows in an
    order that does not go with their values, or a tau, as certificates do. Where rows belong to
    units, rows are clipped and then averaged within units, and units are the values.

    Two passes: the sums of z and z^2 of the tuning values at every tau, which choose tau; then the
    mean and variance of the others. It takes importance-weighted terms only (`WeightedTerms`).

    References: Maurer & Pontil (2009); Thomas, Theocharous & Ghavamzadeh (2015).

    Args:
        tau: a clipping point fixed before the data was seen, all of which the bound then uses;
            None tunes it.
    """

    tau: float | None = None

    def __post_init__(self) -> None:
        positive_or_none(self.tau, "tau")

    @property
    def any_order(self) -> bool:
        """With a given tau; else the tuning rows are chosen by their place."""
        return self.tau is not None

    def passes(self, like: ConservativeTerms, n: int, delta: float) -> Passes:
        r_max = weighted(like, "hcope").r_max
        _require_enough(n, FEWEST if self.tau is None else 2)
        if self.tau is not None:
            tau, tuned_on = float(self.tau), None
            moments = yield lambda part: _whole(part).moments(tau)
        else:
            tuned_on = n // SHARE
            sums = yield lambda part: tuning_and_rest(part, n)[0].sums(TAUS)
            tau = best_tau(sums, tuned_on, n - tuned_on, r_max=r_max, delta=delta)
            moments = yield lambda part: tuning_and_rest(part, n)[1].moments(tau)
        result = eq4(moments, tau, r_max=r_max, delta=delta)
        grid = {
            "tau_least": float(TAUS[0]),
            "tau_most": float(TAUS[-1]),
            "tau_points": len(TAUS),
            "tuning_share": 1 / SHARE,
            "tuning_n": tuned_on,
        }
        return BoundValue(
            value=max(result.value, 0.0),
            mean=result.mean,
            n=moments.n,
            delta=delta,
            constants={
                "bound": "hcope",
                "tau": tau,
                "tau_from": "declared" if tuned_on is None else "grid",
                "r_max": r_max,
                "z_max": tau * r_max,
                "lower": 0.0,
                **({} if tuned_on is None else grid),
            },
        )


class Eq4(NamedTuple):
    """Eq. 4 on one sample.

    Args:
        value: the formula's value, which may be negative.
        tau: where weights were clipped.
        mean: the mean of z.
    """

    value: float
    tau: float
    mean: float


def empirical_bernstein(mean: Any, variance: Any, n: int, z_max: Any, delta: float) -> Any:
    """The right-hand side of Eq. 4 from the mean and the 1/n variance of n values in [0, z_max].

    V_n / (n - 1) with the 1/n variance V_n is the unbiased variance over n, so this is Theorem 11
    of Maurer & Pontil (2009), which holds for independent values of different means too.
    """
    log = math.log(2 / delta)
    return mean - np.sqrt(2 * log * variance / (n - 1)) - 7 * z_max * log / (3 * (n - 1))


def eq4(moments: MergedMoments, tau: float, *, r_max: float, delta: float) -> Eq4:
    """Eq. 4 from the moments of z = min(w, tau) r."""
    n, z_max = moments.n, tau * r_max
    value = empirical_bernstein(moments.mean, moments.variance, n, z_max, delta)
    return Eq4(float(value), tau, moments.mean)


class RewardedRows(NamedTuple):
    """The rewarded rows of a sample of n values (rows, or units where rows belong to units).

    Args:
        weights: (m,) importance weights of the rewarded rows.
        rewards: (m,) their rewards; with units, each divided by the number of rows of its unit.
        n: the number of values, rewarded or not.
        unit: (m,) which value a row belongs to, where values are units; else None.
    """

    weights: FloatArray
    rewards: FloatArray
    n: int
    unit: IntArray | None = None

    @classmethod
    def of(cls, terms: WeightedTerms, n: int) -> RewardedRows:
        """The rewarded rows of all n values."""
        rows = np.flatnonzero(terms.rewards != 0)
        weights, rewards = terms.weights[rows], terms.rewards[rows]
        if terms.unit is None:
            return cls(weights, rewards, n)
        unit = terms.unit[rows]
        return cls(weights, rewards / np.bincount(terms.unit)[unit], n, unit)

    def clipped(self, tau: float) -> FloatArray:
        """New values z = min(w, tau) r, averaged within units; those left out are 0."""
        z: FloatArray = np.minimum(self.weights, tau)
        z *= self.rewards
        if self.unit is None:
            return z
        means = np.bincount(self.unit, weights=z)
        return np.asarray(means[means != 0], dtype=np.float64)

    def moments(self, tau: float) -> MergedMoments:
        """The moments of all n values z = min(w, tau) r."""
        if not self.n:
            return MergedMoments(0, 0.0, 0.0)
        z = self.clipped(tau)
        mean = float(z.sum()) / self.n
        z -= mean
        squares = float(np.square(z, out=z).sum())  # not a dot product: BLAS would start threads
        return MergedMoments(self.n, mean, squares + (self.n - len(z)) * mean**2)

    def sums(self, taus: FloatArray) -> FloatArray:
        """(2, T) the sums of z and of z^2 at every tau of an increasing grid.

        Without units both follow from sums over the rows whose weight lies between neighbours
        of the grid: sum of z = (sum of w r where w <= tau) + tau (sum of r where w > tau).
        """
        if self.unit is not None:
            clipped = [self.clipped(float(tau)) for tau in taus]
            return np.array([[z.sum() for z in clipped], [z @ z for z in clipped]])
        place = np.searchsorted(taus, self.weights)
        z = np.minimum(self.weights, taus[-1]) * self.rewards

        def total(unclipped: FloatArray, cut: FloatArray, at: FloatArray) -> FloatArray:
            low = np.bincount(place, weights=unclipped, minlength=len(taus) + 1)
            high = np.bincount(place, weights=cut, minlength=len(taus) + 1)
            return np.asarray(np.cumsum(low[:-1]) + at * np.cumsum(high[:0:-1])[::-1])

        return np.stack([total(z, self.rewards, taus), total(z**2, self.rewards**2, taus**2)])


def hcope_from_rewarded(
    tuning: RewardedRows, rest: RewardedRows, *, r_max: float, delta: float
) -> Eq4:
    """Eq. 4 with tau tuned on one part and the bound computed on the rest.

    This is the kernel of `Hcope`, for loops that need the bound at every step: it checks nothing,
    and its value may be negative. In a loop::

        first, second = rewarded_rows(rewards)        # once
        tuning = RewardedRows(weights[first], rewards[first], len(tuning_rows(n)))
        rest = RewardedRows(weights[second], rewards[second], n - tuning.n)
        hcope_from_rewarded(tuning, rest, r_max=1.0, delta=0.05).value

    Args:
        tuning: the rewarded rows of the values at `tuning_rows(n)`.
        rest: the rewarded rows of the other values.
        r_max: the declared largest reward.
        delta: the error budget, in (0, 1).
    """
    tau = best_tau(tuning.sums(TAUS), tuning.n, rest.n, r_max=r_max, delta=delta)
    return eq4(rest.moments(tau), tau, r_max=r_max, delta=delta)


def best_tau(sums: FloatArray, tuning: int, n: int, *, r_max: float, delta: float) -> float:
    """The tau of the grid with the best anticipated bound for n further values.

    The anticipated bound is Eq. 4 with the moments of the tuning part and the size of the rest
    (Thomas et al., 2015).

    Args:
        sums: (2, T) the sums of z and z^2 over the tuning values, at every tau.
        tuning: how many values these are.
        n: how many the bound will be computed on.
        r_max, delta: as in Eq. 4.
    """
    mean = sums[0] / tuning
    variance = np.maximum(sums[1] / tuning - mean**2, 0)
    anticipated = empirical_bernstein(mean, variance, n, TAUS * r_max, delta)
    return float(TAUS[int(np.argmax(anticipated))])


def tau_from(terms: WeightedTerms, n: int, delta: float) -> float:
    """A tau for n further values, from the terms of others like them: see `best_tau`."""
    values = len(terms.per_unit(terms.values))
    sums = RewardedRows.of(terms, values).sums(TAUS)
    return best_tau(sums, values, n, r_max=terms.r_max, delta=delta)


def rewarded_rows(rewards: FloatArray) -> tuple[IntArray, IntArray]:
    """Which of n rows are rewarded: those of the tuning part, and those of the rest.

    A training loop asks once, then computes weights for these rows only.
    """
    return _rewarded_rows(rewards, tuning_rows(len(rewards)))


def _rewarded_rows(rewards: FloatArray, tuning: IntArray) -> tuple[IntArray, IntArray]:
    rewarded = np.asarray(rewards) != 0
    first = tuning[rewarded[tuning]]
    rewarded[tuning] = False
    return first, np.flatnonzero(rewarded)


def tuning_and_rest(part: Partition, n: int) -> tuple[RewardedRows, RewardedRows]:
    """A partition of n values in two: those at `tuning_rows(n)`, and the others."""
    return part.once("tuning and rest", lambda: _split(part, n))


def _split(part: Partition, n: int) -> tuple[RewardedRows, RewardedRows]:
    terms, tuning = weighted(part.terms, "hcope"), part.tuning(n)
    sizes = len(tuning), len(part) - len(tuning)
    if terms.unit is None:
        parts = zip(_rewarded_rows(terms.rewards, tuning), sizes, strict=True)
        first, rest = (RewardedRows(terms.weights[i], terms.rewards[i], m) for i, m in parts)
        return first, rest
    whole = RewardedRows.of(terms, len(part))
    tunes = np.zeros(len(part), dtype=bool)
    tunes[tuning] = True
    unit = np.asarray(whole.unit)
    masks = zip((tunes[unit], ~tunes[unit]), sizes, strict=True)
    first, rest = (RewardedRows(whole.weights[i], whole.rewards[i], m, unit[i]) for i, m in masks)
    return first, rest


def _whole(part: Partition) -> RewardedRows:
    return RewardedRows.of(weighted(part.terms, "hcope"), len(part))


def _require_enough(n: int, fewest: int) -> None:
    """Refuse fewer values than Eq. 4 can be computed from."""
    require(
        n >= fewest,
        f"hcope needs at least {fewest} values (rows, or units where rows belong to units)",
        found=n,
        cure="collect more data, or use smoothing",
    )
