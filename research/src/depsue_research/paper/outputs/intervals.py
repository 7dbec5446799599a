"""Means, deviations and 95% intervals over few seeds."""

from __future__ import annotations

import math

from depsue.data.checks import FloatArray

T_975 = (12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281)
"""The .975 quantile of Student's t with 1 .. 10 degrees of freedom."""
Z_975 = 1.959964


def t_quantile(freedom: int) -> float:
    """The .975 quantile of Student's t: a table, and beyond it three terms of Cornish and Fisher.

    t = z + (z^3 + z) / 4v + (5 z^5 + 16 z^3 + 3 z) / 96 v^2 + ..., within .0005 from v = 11 on.
    """
    if freedom <= len(T_975):
        return T_975[freedom - 1]
    z, v = Z_975, freedom
    return (
        z
        + (z**3 + z) / (4 * v)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * v**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * v**3)
    )


def mean(values: FloatArray) -> float | None:
    """The mean; None of nothing."""
    return float(values.mean()) if len(values) else None


def deviation(values: FloatArray) -> float | None:
    """The sample's standard deviation (n - 1); None of fewer than two."""
    return float(values.std(ddof=1)) if len(values) > 1 else None


def half_width(values: FloatArray) -> float | None:
    """Half of the 95% t-interval of the mean; None of fewer than two values."""
    if len(values) < 2:
        return None
    return t_quantile(len(values) - 1) * float(values.std(ddof=1)) / math.sqrt(len(values))
