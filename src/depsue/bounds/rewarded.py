"""Rewarded rows: a row without reward has z = 0 whatever its weight, so it is only counted."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from depsue.data.checks import FloatArray, IntArray, read_only
from depsue.data.keys import mix64
from depsue.data.terms import WeightedTerms

SHARE = 20
"""One value in so many tunes tau; the bound is computed on the others."""


class Rewarded(NamedTuple):
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
    def of(cls, terms: WeightedTerms, n: int) -> Rewarded:
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

    def sums(self, taus: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The sums of z and of z^2 at every tau of an increasing grid.

        Without units both follow from sums over the rows whose weight lies between neighbours
        of the grid: sum of z = (sum of w r where w <= tau) + tau (sum of r where w > tau).
        """
        if self.unit is not None:
            clipped = [self.clipped(float(tau)) for tau in taus]
            return np.array([z.sum() for z in clipped]), np.array([z @ z for z in clipped])
        place = np.searchsorted(taus, self.weights)
        z = np.minimum(self.weights, taus[-1]) * self.rewards

        def total(kept: FloatArray, cut: FloatArray, at: FloatArray) -> FloatArray:
            low = np.bincount(place, weights=kept, minlength=len(taus) + 1)
            high = np.bincount(place, weights=cut, minlength=len(taus) + 1)
            return np.asarray(np.cumsum(low[:-1]) + at * np.cumsum(high[:0:-1])[::-1])

        return total(z, self.rewards, taus), total(z**2, self.rewards**2, taus**2)


@lru_cache(maxsize=16)
def tuning_rows(n: int) -> IntArray:
    """(n // 20,) which of n values tune tau: one, pseudo-randomly, of every 20 in a row.

    The choice depends on n alone: no seed can be tried until the bound pleases.
    """
    rows: IntArray = read_only(tuning_between(0, n, n))
    return rows


def tuning_between(start: int, stop: int, n: int) -> IntArray:
    """Those of `tuning_rows(n)` from `start` up to `stop`."""
    block = np.arange(start // SHARE, min(-(-stop // SHARE), n // SHARE))
    within = mix64(block) % np.uint64(SHARE)
    rows = block * SHARE + within.astype(np.int64)
    return rows[(rows >= start) & (rows < stop)]


def rewarded_rows(rewards: FloatArray) -> tuple[IntArray, IntArray]:
    """Which of n rows are rewarded: those of the tuning part, and those of the rest.

    A training loop asks once, then computes weights for these rows only.
    """
    tuning = tuning_rows(len(rewards))
    mask = np.asarray(rewards) != 0
    first = tuning[mask[tuning]]
    mask[tuning] = False
    return first, np.flatnonzero(mask)


def tuning_and_rest(terms: WeightedTerms, n: int) -> tuple[Rewarded, Rewarded]:
    """The terms in two parts: the values at `tuning_rows(n)`, and the others."""
    tuning = tuning_rows(n)
    sizes = len(tuning), n - len(tuning)
    if terms.unit is None:
        parts = zip(rewarded_rows(terms.rewards), sizes, strict=True)
        first, rest = (Rewarded(terms.weights[i], terms.rewards[i], m) for i, m in parts)
        return first, rest
    whole = Rewarded.of(terms, n)
    tunes = np.zeros(n, dtype=bool)
    tunes[tuning] = True
    unit = np.asarray(whole.unit)
    parts = zip((tunes[unit], ~tunes[unit]), sizes, strict=True)
    first, rest = (Rewarded(whole.weights[i], whole.rewards[i], m, unit[i]) for i, m in parts)
    return first, rest
