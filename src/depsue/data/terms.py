"""Per-row terms: what estimators hand to bounds.

A bound is only as good as the claim that its terms do not overstate V(pi). With novel actions
that claim is the whole point, so it is a type: only `ConservativeTerms` may enter a bound.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from depsue.data.checks import FloatArray, IntArray, number_column, read_only, require_r_max
from depsue.errors import is_real, require, short

LARGEST = float(np.finfo(np.float64).max)


@dataclass(frozen=True, eq=False, repr=False)
class Terms:
    """n per-row terms whose mean estimates V(pi).

    Args:
        values: (n,) the terms.
        lower: a declared number that no term can fall below; -inf where none can be declared.
        unit: (n,) unit of each row, 0 .. v - 1; None if rows stand for themselves.
    """

    values: FloatArray
    lower: float
    unit: IntArray | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        values = _numbers(self.values, "term")
        require(
            values.ndim == 1 and len(values) > 0,
            "terms must be a column of at least one number",
            found=f"shape {values.shape}",
        )
        _within(
            values,
            -LARGEST,
            LARGEST,
            "terms must be finite",
            cure="look at the propensity and the prediction in that row",
        )
        require(
            is_real(self.lower) and self.lower < np.inf,  # NaN fails too
            "the lower limit of the terms must be declared",
            found=short(self.lower),
            cure="for importance-weighted rewards it is 0; -inf says that there is none",
        )
        _within(
            values,
            self.lower,
            np.inf,
            f"no term may fall below the declared lower limit {self.lower:g}",
            cure="declare the true limit; it must not be read off the data",
        )
        if self.unit is not None:
            unit = np.asarray(self.unit)
            require(
                unit.shape == values.shape and unit.dtype.kind in "iu" and int(unit.min()) >= 0,
                "units must be one whole number >= 0 per term",
                found=f"{unit.dtype} of shape {unit.shape} for {len(values)} terms",
                cure="pass the unit column of the logs",
            )
            object.__setattr__(self, "unit", read_only(unit))
        object.__setattr__(self, "values", read_only(values))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self.values):,} terms >= {self.lower:g})"

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
            cure="pass the unit column of the logs",
        )
        means: FloatArray = np.bincount(self.unit, weights=values) / counts
        return means


@dataclass(frozen=True, eq=False, repr=False)
class ConservativeTerms(Terms):
    """Terms with E[term] <= V(pi), so that a lower bound on their mean is one on V(pi).

    Bounds need a finite lower limit, so these terms must declare one.

    Args:
        proof: why E[term] <= V(pi), in words; certificates show it.
    """

    proof: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.lower > -np.inf,
            "the lower limit of conservative terms must be finite",
            found=self.lower,
            cure="declare a number that no term can fall below; it must not be read off the data",
        )
        require(
            isinstance(self.proof, str) and bool(self.proof.strip()),
            "conservative terms must say why E[term] <= V(pi)",
            found=short(self.proof),
            cure="proof='...'; the terms of IPS bring theirs",
        )


@dataclass(frozen=True, eq=False, repr=False)
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

    def __post_init__(self) -> None:
        weights, rewards = _numbers(self.weights, "weight"), _numbers(self.rewards, "reward")
        r_max = require_r_max(self.r_max)
        require(
            np.shape(self.values) == weights.shape == rewards.shape,
            "terms, weights and rewards must be columns of one length",
            found=f"{np.shape(self.values)}, {weights.shape} and {rewards.shape}",
        )
        _within(
            weights,
            0.0,
            LARGEST,
            "importance weights must be finite and not negative",
            cure="look at the propensity and at the policy's probability in that row",
        )
        _within(
            rewards,
            0.0,
            r_max,
            f"rewards must lie in [0, r_max] with r_max = {r_max:g}",
            cure="declare a larger r_max, or cap and shift the rewards knowingly",
        )
        object.__setattr__(self, "weights", read_only(weights))
        object.__setattr__(self, "rewards", read_only(rewards))
        object.__setattr__(self, "r_max", r_max)
        super().__post_init__()

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
        weights, rewards = _numbers(weights, "weight"), _numbers(rewards, "reward")
        require(
            weights.shape == rewards.shape and weights.ndim == 1 and len(weights) > 0,
            "weights and rewards must be two columns of one length, at least 1",
            found=f"{weights.shape} and {rewards.shape}",
        )
        with np.errstate(invalid="ignore", over="ignore"):  # what is wrong is named below
            values = weights * rewards
        return cls(
            values,
            0.0,
            unit=unit,
            proof="importance weighting: E[w r] is the value of pi on the logging policy's "
            "support, and rewards elsewhere are >= 0",
            weights=weights,
            rewards=rewards,
            r_max=r_max,
        )

    def clipped(self, tau: float) -> WeightedTerms:
        """The terms min(w, tau) r: still conservative, now at most tau r_max."""
        require(is_real(tau) and tau > 0, "tau must be a positive number", found=short(tau))
        weights = np.minimum(self.weights, tau)
        return replace(self, values=weights * self.rewards, weights=weights)


def _numbers(values: Any, column: str) -> FloatArray:
    """float64 arrays as they are, without a copy; anything else as a column of numbers."""
    if isinstance(values, np.ndarray) and values.dtype == np.float64:
        return values
    return number_column(values, column)


def _within(values: FloatArray, low: float, high: float, rule: str, *, cure: str) -> None:
    """Raise a ConfigError for the first of (n,) values outside [low, high]; NaN is outside.

    Two passes without a temporary array: a mask is made only to name the offending row.
    """
    if low <= values.min() and values.max() <= high:
        return
    row = int((~((values >= low) & (values <= high))).argmax())
    require(False, rule, found=f"row {row}: {values[row]}", cure=cure)
