"""Logarithmic smoothing: one sum of logarithms, any weights, no clipping."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from depsue.bounds.base import (
    FINE_STEPS,
    BaseBound,
    Passes,
    declared_scale,
    last_rejected,
    log_product,
    positive_or_none,
)
from depsue.data.checks import FloatArray, read_only
from depsue.data.terms import ConservativeTerms
from depsue.errors import require
from depsue.protocols import BoundValue

SMOOTHING_SCALES: FloatArray = read_only(4.0 ** np.arange(-1, 8))
"""The fixed grid of scales, in units of r_max (or of the declared unit_scale)."""


@dataclass(frozen=True)
class Smoothing(BaseBound):
    """A lower bound on V(pi) from logarithmically smoothed terms (after Sakhi et al., 2024).

    With one scale s, for terms z >= 0::

        s (exp(mean of log(1 + z/s) - log(1/delta) / n) - 1)

    Proof. Each (1 + z/s) / (1 + E[z]/s) has mean 1, so their product over independent terms is a
    positive martingale that starts at 1: by Ville it ever reaches 1/delta with probability at
    most delta. Solving product < 1/delta for E[z] gives the bound, at every n at once.

    So the logarithm of a term is small where its weight is huge, and nothing must be clipped. At a
    fixed n the terms may have different means (contexts held fixed), for the product of
    1 + E[z_i]/s is at most the n-th power of their average.

    Without a scale, the capitals (the products) of a fixed grid of scales are averaged, which is a
    martingale again; the bound is the m at which the average capital reaches 1/delta. The grid
    spans r_max/4 to 2^14 r_max in steps of 4; the best single scale is near
    sqrt(n variance / (2 log(1/delta))). Terms that can be negative are shifted by their declared
    lower limit: s becomes s + |lower|.

    One pass: the sums of log(1 + z/s) at every scale.

    Args:
        scale: one scale, fixed before the data was seen; None averages over the grid.
        unit_scale: the unit of the grid, for terms without r_max; None takes r_max, else |lower|.
    """

    scale: float | None = None
    unit_scale: float | None = None

    def __post_init__(self) -> None:
        positive_or_none(self.scale, "scale")
        positive_or_none(self.unit_scale, "unit_scale")
        require(
            self.scale is None or self.unit_scale is None,
            "scale is one scale and unit_scale the unit of a grid of scales: give one of them",
            found=f"scale {self.scale}, unit_scale {self.unit_scale}",
        )

    @property
    def any_order(self) -> bool:
        """A sum has no order."""
        return True

    def passes(self, like: ConservativeTerms, n: int, delta: float) -> Passes:
        scales = self.scales(like)
        sums = yield lambda part: np.append(log_sums(part.values, scales), part.values.sum())
        return BoundValue(
            value=smoothing_from_sums(sums[:-1], n, scales, delta, like.lower),
            mean=float(sums[-1]) / n,
            n=n,
            delta=delta,
            constants={
                "bound": "smoothing",
                "scales": scales.tolist(),
                "scales_from": "declared" if self.scale is not None else "grid",
                "lower": like.lower,
            },
        )

    def scales(self, terms: ConservativeTerms) -> FloatArray:
        """(S,) the scales for such terms: they depend on declared numbers alone."""
        if self.scale is not None:
            scales = np.array([float(self.scale)])
        else:
            scales = SMOOTHING_SCALES * declared_scale(terms, self.unit_scale, "smoothing")
        return np.asarray(scales + max(0.0, -terms.lower))


def log_sums(values: FloatArray, scales: FloatArray) -> FloatArray:
    """(S,) the sum of log(1 + z/s) over n values, for each of S scales; every z > -s.

    Sums of partitions, over the same scales, add up to the sums of the whole.
    """
    z = np.asarray(values, dtype=np.float64)
    z = z[np.flatnonzero(z != 0)]
    least, most = (float(z.min()), float(z.max())) if len(z) else (0.0, 0.0)
    factors, sums = np.empty_like(z), np.empty(len(scales))
    for place, scale in enumerate(scales.tolist()):
        np.multiply(z, 1 / scale, out=factors)
        factors += 1
        sums[place] = log_product(factors, 1 + least / scale, 1 + most / scale)
    return sums


def smoothing_from_sums(
    sums: FloatArray, n: int, scales: FloatArray, delta: float, lower: float = 0.0
) -> float:
    """The bound from the sums of `log_sums` over n values; see `Smoothing`.

    Args:
        sums: (S,) sums of log(1 + z/s).
        n: the number of values, those that are 0 included.
        scales: (S,) scales, fixed before the data was seen.
        delta: the error budget, in (0, 1).
        lower: a declared lower limit of the values, above -s for every scale.
    """
    target = math.log(1 / delta)
    alone = scales * np.expm1((sums - target) / n)  # each scale by itself
    if len(scales) == 1:
        return max(float(alone[0]), lower)
    shared = scales * np.expm1((sums - target - math.log(len(scales))) / n)

    def excess(m: float) -> float:
        log_capital = sums - n * np.log1p(m / scales)
        return float(np.logaddexp.reduce(log_capital)) - math.log(len(scales)) - target

    low, high = max(float(shared.max()), lower), float(alone.max())
    return last_rejected(excess, low, max(low, high), FINE_STEPS)
