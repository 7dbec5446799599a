"""How surprising a count is, and what it says of a rate: the one place for binomial arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np


def binomial_tail(count: int, runs: int, p: float) -> float:
    """P(X >= count) for X binomial(runs, p): how surprising so many are."""
    if count <= 0 or p >= 1:
        return 1.0
    if p <= 0:
        return 0.0
    i = np.arange(runs + 1)
    ways = np.concatenate([[0.0], np.cumsum(np.log((runs - i[:-1]) / (i[:-1] + 1)))])
    terms = np.exp(ways + i * math.log(p) + (runs - i) * math.log1p(-p))
    return float(min(terms[count:].sum(), 1.0))


def rate_interval(count: int, n: int) -> tuple[float, float]:
    """The exact 95% interval (Clopper and Pearson) of a rate of which `count` of n were seen."""
    low = 0.0 if count == 0 else _root(lambda p: binomial_tail(count, n, p) - 0.025)
    high = 1.0 if count == n else _root(lambda p: binomial_tail(count + 1, n, p) - 0.975)
    return low, high


def _root(rising: Callable[[float], float]) -> float:
    """Where a rising function of p in [0, 1] is zero, by bisection."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < 0 else (low, middle)
    return low
