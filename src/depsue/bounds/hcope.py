"""Eq. 4: the bound of high-confidence off-policy evaluation (HCOPE)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from depsue.bounds._common import conservative, positive_or_none
from depsue.bounds.rewarded import SHARE, Rewarded, tuning_and_rest
from depsue.data.checks import FloatArray, read_only
from depsue.data.terms import ConservativeTerms, WeightedTerms
from depsue.errors import ConfigError, require, require_delta
from depsue.protocols import BoundValue

TAUS: FloatArray = read_only(2.0 ** (np.arange(-4, 33) / 2))
"""The fixed grid of clipping points: 2^(k/2) from 1/4 to 2^16."""

FEWEST = 2 * SHARE
"""The fewest values that tau can be tuned on and the bound computed from."""


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


def hcope_at(sample: Rewarded, tau: float, *, r_max: float, delta: float) -> Eq4:
    """Eq. 4 on a sample at a tau that was fixed without it."""
    z = sample.clipped(tau)
    mean = float(z.sum()) / sample.n
    z -= mean
    squares = float(np.square(z, out=z).sum())  # not a dot product: BLAS would start threads
    variance = (squares + (sample.n - len(z)) * mean**2) / sample.n
    value = empirical_bernstein(mean, variance, sample.n, tau * r_max, delta)
    return Eq4(float(value), tau, mean)


def choose_tau(tuning: Rewarded, n: int, *, r_max: float, delta: float) -> float:
    """The tau of the grid with the best anticipated bound for n further values.

    The anticipated bound is Eq. 4 with the moments of the tuning part and the size of the rest
    (Thomas et al., 2015).
    """
    return float(TAUS[best_tau(*tuning.sums(TAUS), tuning.n, n, r_max=r_max, delta=delta)])


def best_tau(
    total: FloatArray, squares: FloatArray, tuning: int, n: int, *, r_max: float, delta: float
) -> int:
    """Its place in the grid, from the sums of z and z^2 of the tuning part at every tau."""
    mean = total / tuning
    variance = np.maximum(squares / tuning - mean**2, 0)
    anticipated = empirical_bernstein(mean, variance, n, TAUS * r_max, delta)
    return int(np.argmax(anticipated))


def hcope_from_rewarded(tuning: Rewarded, rest: Rewarded, *, r_max: float, delta: float) -> Eq4:
    """Eq. 4 with tau tuned on one part and the bound computed on the rest.

    This is the kernel of `Hcope`, for loops that need the bound at every step: it touches
    rewarded rows only and checks nothing. Its value may be negative. In a loop::

        first, second = rewarded_rows(rewards)        # once
        tuning = Rewarded(weights[first], rewards[first], len(tuning_rows(n)))
        rest = Rewarded(weights[second], rewards[second], n - tuning.n)
        hcope_from_rewarded(tuning, rest, r_max=1.0, delta=0.05).value

    Args:
        tuning: the rewarded rows of the values at `tuning_rows(n)`.
        rest: the rewarded rows of the other values.
        r_max: the declared largest reward.
        delta: the level, in (0, 1).
    """
    tau = choose_tau(tuning, rest.n, r_max=r_max, delta=delta)
    return hcope_at(rest, tau, r_max=r_max, delta=delta)


@dataclass(frozen=True)
class Hcope:
    """HCOPE's lower bound on V(pi): the paper's Eq. 4.

    ::

        mean(z) - sqrt(2 log(2/delta) V_n(z) / (n - 1)) - 7 z_max log(2/delta) / (3 (n - 1))

        z = min(w, tau) r,   z_max = tau r_max,   V_n the 1/n sample variance

    tau is chosen from a fixed grid on 1/20 of the values, and the bound is computed on the other
    19/20, of which it speaks: so tau is as good as fixed beforehand, and clipping keeps
    E[z] <= V(pi). z_max is declared, never read off the data. Since V(pi) >= 0 is known, a
    negative value is reported as 0. Where rows belong to units, rows are clipped and then
    averaged within units, and units are the values.

    References: Maurer & Pontil (2009); Thomas, Theocharous & Ghavamzadeh (2015).

    Args:
        tau: a clipping point fixed before the data was seen, all of which the bound then uses;
            None tunes it.
    """

    tau: float | None = None

    def __post_init__(self) -> None:
        positive_or_none(self.tau, "tau")

    def lower(self, terms: ConservativeTerms, delta: float) -> BoundValue:
        """The bound at level delta, from importance-weighted terms (`WeightedTerms`)."""
        delta = require_delta(delta)
        weighted = _weighted(terms)
        n = len(weighted.per_unit(weighted.values))
        require_enough(n, FEWEST if self.tau is None else 2)
        r_max = weighted.r_max
        if self.tau is None:
            tuning, rest = tuning_and_rest(weighted, n)
            found = hcope_from_rewarded(tuning, rest, r_max=r_max, delta=delta)
            return concluded(found, tuning.n, rest.n, r_max, delta)
        rest = Rewarded.of(weighted, n)
        found = hcope_at(rest, float(self.tau), r_max=r_max, delta=delta)
        return concluded(found, None, rest.n, r_max, delta)


def require_enough(n: int, fewest: int = FEWEST) -> None:
    """Refuse fewer values than Eq. 4 can be computed from."""
    require(
        n >= fewest,
        f"hcope needs at least {fewest} values (rows, or units where rows belong to units)",
        found=n,
        cure="collect more data, or use smoothing",
    )


def concluded(found: Eq4, tuning: int | None, n: int, r_max: float, delta: float) -> BoundValue:
    """The bound from Eq. 4 on n values; tau was tuned on `tuning` others, None if declared."""
    grid = {
        "tau_least": float(TAUS[0]),
        "tau_most": float(TAUS[-1]),
        "tau_points": len(TAUS),
        "tuning_share": 1 / SHARE,
        "tuning_n": tuning,
    }
    return BoundValue(
        value=max(found.value, 0.0),
        mean=found.mean,
        n=n,
        delta=delta,
        constants={
            "bound": "hcope",
            "tau": found.tau,
            "tau_from": "declared" if tuning is None else "grid",
            "r_max": r_max,
            "z_max": found.tau * r_max,
            "lower": 0.0,
            **({} if tuning is None else grid),
        },
    )


def _weighted(terms: object) -> WeightedTerms:
    checked = conservative(terms, "hcope")
    if isinstance(checked, WeightedTerms):
        return checked
    raise ConfigError(
        "hcope clips the weights itself, so it needs terms that keep weights and rewards apart",
        found=type(checked).__name__,
        cure="use the terms of IPS, or the bounds smoothing or betting",
    )
