"""How often one kind of certificate was wrong, and whether that is more than was promised.

A `Trial` draws logs and says which certificates were issued in error; `repeated` runs it many
times and gives a `ErrorRate` for each kind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from depsue import rng
from depsue.testing.bounds import binomial_tail, rate_interval

DELTA = 0.05
"""The promised error rate of every certificate here."""

GROUPS = ("strict", "paper", "naive", "what if")
"""By the rules; as published; attempts not counted; the paper's with a bound without slack."""

Key = tuple[str, str, str]
"""Group, kind and bound."""

Outcome = dict[Key, bool]
"""Whether a certificate was issued in error."""

Trial = Callable[[np.random.Generator], Outcome]
"""Draws logs of its own and says which certificates were issued in error."""


@dataclass(frozen=True)
class ErrorRate:
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


def repeated(name: str, trial: Trial, replications: int, seed: int) -> list[ErrorRate]:
    """The trial so many times: a rate for each kind in it."""
    errors: Counter[Key] = Counter()
    for place in range(replications):
        outcome = trial(rng.generator(seed, name, place))
        errors.update({key: int(wrong) for key, wrong in outcome.items()})
    return [ErrorRate(*key, count, replications) for key, count in errors.items()]
