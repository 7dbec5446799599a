"""How often one kind of certificate was wrong, and whether that is more than was promised."""

from __future__ import annotations

from dataclasses import dataclass

from depsue.testing.binomial import binomial_tail, rate_interval

DELTA = 0.05
"""The level."""
GROUPS = ("strict", "paper", "naive", "what if")
"""By the rules; as published; attempts not counted; the paper's with a bound without slack."""
Key = tuple[str, str, str]
"""Group, kind and bound."""


@dataclass(frozen=True)
class Rate:
    """How often one kind of certificate was wrong.

    Args:
        group: one of `GROUPS`.
        kind: what was done.
        bound: which bound.
        errors: certificates that were issued although the policy was below the floor.
        n: replications.
        delta: the promised error rate.
    """

    group: str
    kind: str
    bound: str
    errors: int
    n: int
    delta: float = DELTA

    @property
    def rate(self) -> float:
        """The share of errors."""
        return self.errors / self.n

    @property
    def interval(self) -> tuple[float, float]:
        """The exact 95% interval (Clopper and Pearson)."""
        return rate_interval(self.errors, self.n)

    @property
    def p_value(self) -> float:
        """One-sided: so many errors or more, if the true rate were delta."""
        return binomial_tail(self.errors, self.n, self.delta)
