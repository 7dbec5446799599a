"""Intervals in tables: of a share, exact; of a mean, by Student's t."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def clopper_pearson(count: int, n: int, level: float = 0.95) -> str:
    """ "3 of 40 (1.6% to 20.4%)"."""
    from scipy.stats import beta

    tail = (1 - level) / 2
    low = 0.0 if count == 0 else float(beta.ppf(tail, count, n - count + 1))
    high = 1.0 if count == n else float(beta.ppf(1 - tail, count + 1, n - count))
    return f"{count} of {n} ({low:.1%} to {high:.1%})"


def mean_interval(values: Sequence[float], digits: int = 3, level: float = 0.95) -> str:
    """ "1.021 +- 0.004"; without the interval where there is one value."""
    column = np.asarray(values, dtype=np.float64)
    if len(column) < 2:
        return f"{column.mean():.{digits}f}"
    from scipy.stats import t

    half = t.ppf((1 + level) / 2, len(column) - 1) * column.std(ddof=1) / np.sqrt(len(column))
    return f"{column.mean():.{digits}f} +- {half:.{digits}f}"
