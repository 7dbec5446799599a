"""Per-row terms: what estimators hand to bounds.

A bound is only as good as the claim that its terms do not overstate V(pi). With novel actions
that claim is the whole point, so it is a type: only `ConservativeTerms` may enter a bound.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from depsue.data.checks import FloatArray, IntArray
from depsue.errors import ConfigError, require


@dataclass(frozen=True, eq=False)
class Terms:
    """n per-row terms whose mean estimates V(pi).

    Args:
        values: (n,) the terms.
        lower: a declared number that no term can fall below.
        unit: (n,) unit of each row, 0 .. v - 1; None if rows stand for themselves.
    """

    values: FloatArray
    lower: float
    unit: IntArray | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        values = np.asarray(self.values, dtype=np.float64)
        object.__setattr__(self, "values", values)
        require(
            values.ndim == 1 and len(values) > 0 and bool(np.isfinite(values).all()),
            "terms must be a non-empty column of finite numbers",
            found=f"shape {values.shape}",
        )
        require(
            np.isfinite(self.lower),
            "the lower limit of the terms must be declared",
            found=self.lower,
            cure="for importance-weighted rewards it is 0",
        )
        least = float(values.min())
        require(
            least >= self.lower,
            f"no term may fall below the declared lower limit {self.lower:g}",
            found=least,
            cure="declare the true limit; it must not be read off the data",
        )

    def mean(self) -> float:
        """The estimate: the mean over rows, or over units where rows belong to units."""
        return float(self.per_unit(self.values).mean())

    def per_unit(self, values: FloatArray) -> FloatArray:
        """(v,) means of `values` within units; the values themselves without units."""
        if self.unit is None:
            return values
        counts = np.bincount(self.unit)
        require(
            bool((counts > 0).all()),
            "units must be numbered 0 .. v - 1 without gaps",
            found=f"unit {int(np.argmin(counts))} has no row",
            error=ConfigError,
        )
        means: FloatArray = np.bincount(self.unit, weights=values) / counts
        return means


@dataclass(frozen=True, eq=False)
class ConservativeTerms(Terms):
    """Terms with E[term] <= V(pi), so that a lower bound on their mean is one on V(pi).

    Args:
        proof: why E[term] <= V(pi), in words; certificates show it.
    """

    proof: str = field(default="", kw_only=True)


@dataclass(frozen=True, eq=False)
class WeightedTerms(ConservativeTerms):
    """Importance-weighted rewards w r with w >= 0 and r in [0, r_max].

    Weights and rewards stay apart so that a bound may clip the weights itself (Eq. 4).

    Args:
        weights: (n,) pi(a|x) / propensity.
        rewards: (n,) rewards.
        r_max: the declared largest reward.
    """

    weights: FloatArray = field(kw_only=True)
    rewards: FloatArray = field(kw_only=True)
    r_max: float = field(kw_only=True)

    @classmethod
    def of(
        cls,
        weights: FloatArray,
        rewards: FloatArray,
        *,
        r_max: float,
        unit: IntArray | None = None,
    ) -> WeightedTerms:
        """The terms w r; weights must be >= 0 and rewards in [0, r_max]."""
        weights = np.asarray(weights, dtype=np.float64)
        rewards = np.asarray(rewards, dtype=np.float64)
        require(
            weights.shape == rewards.shape and weights.ndim == 1 and len(weights) > 0,
            "weights and rewards must be two columns of one length, at least 1",
            found=f"{weights.shape} and {rewards.shape}",
        )
        require(
            bool(np.isfinite(weights).all()) and float(weights.min()) >= 0,
            "importance weights must be finite and not negative",
            found=weights.min(),
        )
        require(
            bool(np.isfinite(r_max)) and r_max > 0,
            "r_max must be declared as a positive number",
            found=r_max,
        )
        # written so that NaN fails too
        require(
            float(rewards.min()) >= 0 and float(rewards.max()) <= r_max,
            f"rewards must lie in [0, r_max] with r_max = {r_max:g}",
            found=f"[{rewards.min():g}, {rewards.max():g}]",
            cure="declare a larger r_max, or cap and shift the rewards knowingly",
        )
        return cls(
            weights * rewards,
            0.0,
            unit=unit,
            proof="importance weighting: E[w r] is the value of pi on the logging policy's "
            "support, and rewards elsewhere are >= 0",
            weights=weights,
            rewards=rewards,
            r_max=float(r_max),
        )

    def clipped(self, tau: float) -> WeightedTerms:
        """The terms min(w, tau) r: still conservative, now at most tau r_max."""
        require(tau > 0, "tau must be positive", found=tau)
        weights = np.minimum(self.weights, tau)
        return replace(self, values=weights * self.rewards, weights=weights)
