"""What the bounds share: the check of their terms, a scale, a product of many, a root."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from depsue.data.checks import FloatArray
from depsue.data.terms import ConservativeTerms, WeightedTerms
from depsue.errors import NotConservative, is_real, require, short

STEPS = 34
PRECISION = 2.0**-STEPS


def conservative(terms: object, bound: str) -> ConservativeTerms:
    """The terms, checked to carry a proof that E[term] <= V(pi)."""
    if isinstance(terms, ConservativeTerms):
        return terms
    raise NotConservative(
        f"{bound} bounds V(pi) only through terms with a proof that E[term] <= V(pi)",
        found=type(terms).__name__,
        cure="use the terms of IPS or of clipped IPS",
    )


def positive_or_none(value: float | None, name: str) -> None:
    """Refuse a setting that is neither a positive number nor None."""
    require(
        value is None or (is_real(value) and 0 < value < math.inf),
        f"{name} must be a positive number, or None",
        found=short(value),
    )


def declared_scale(terms: ConservativeTerms, declared: float | None, bound: str) -> float:
    """The declared size of a typical term: the setting, or r_max, or |lower|, in this order.

    It sets where a bound is tight, never whether it is valid; but it must not be read off the
    data, so there is no fourth choice.
    """
    if declared is not None:
        return float(declared)
    if isinstance(terms, WeightedTerms):
        return terms.r_max
    require(
        terms.lower != 0,
        f"{bound} needs a declared scale for terms that have neither r_max nor a lower limit "
        "other than 0",
        found=type(terms).__name__,
        cure="set unit_scale to the size of a typical term, fixed before the data is seen",
    )
    return abs(terms.lower)


def log_product(factors: FloatArray, least: float, most: float) -> float:
    """log of the product of (n,) positive factors that lie in [least, most].

    Factors are multiplied in blocks short enough not to overflow or underflow, and one logarithm
    is taken per block: a logarithm costs as much as twenty multiplications.
    """
    n = len(factors)
    steepest = max(abs(math.log(least)), abs(math.log(most)), 1e-3)
    length = max(1, min(math.isqrt(n), int(600 / steepest)))
    blocks = n // length
    whole = factors[: blocks * length].reshape(length, blocks)
    rest = factors[blocks * length :]
    return float(np.log(np.multiply.reduce(whole, axis=0)).sum() + np.log(rest).sum())


def last_rejected(excess: Callable[[float], float], low: float, high: float) -> float:
    """The largest m in [low, high] with excess(m) >= 0, approached from below.

    `excess` does not increase. The answer is `low` or a point that was seen to be rejected, so
    rounding errs on the safe side. The search interpolates and never takes more than one step
    above bisection (the ITP method of Oliveira & Takahashi, 2020).
    """
    above, below = excess(low), excess(high)
    if above < 0 or low >= high:
        return low
    if below >= 0:
        return high
    start, tolerance = high - low, (high - low) * PRECISION
    for step in range(STEPS + 1):
        if high - low <= tolerance:
            break
        middle = (low + high) / 2
        guess = (above * high - below * low) / (above - below)
        toward = math.copysign(1.0, middle - guess)
        guess += toward * min(0.2 * (high - low) * ((high - low) / start), abs(middle - guess))
        room = tolerance * 2.0 ** (STEPS - step) - (high - low) / 2
        if abs(guess - middle) > room:
            guess = middle - toward * room
        value = excess(guess)
        if value >= 0:
            low, above = guess, value
        else:
            high, below = guess, value
    return low
