"""What came of a certificate, counted: wrong, right, failed or refused, for each kind.

A `Trial` draws logs, asks for certificates and says what came of each; `Tally` holds the counts of
one kind, its exact interval, and the test against delta. An error is a certificate that passed
while what it promises is false by the world's truth. A refusal is no error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from depsue.errors import DepsueError
from depsue.testing.bounds import binomial_tail, rate_interval

DELTA = 0.05
"""The promised error rate of every certificate here."""

Group = Literal["strict", "tempting", "paper", "what if"]
GROUPS: tuple[Group, ...] = ("strict", "tempting", "paper", "what if")
"""By the rules; the same without one of them; as published; the paper's without slack."""

Answer = Literal["wrong", "right", "failed", "refused"]
"""Passed and false; passed and true; did not pass; was not tested, with an error message."""
ANSWERS: tuple[Answer, ...] = ("wrong", "right", "failed", "refused")

Key = tuple[Group, str, str]
"""Group, kind and variant: the bound, or the round."""

Outcome = Mapping[Key, Answer]

Trial = Callable[[np.random.Generator], Outcome]
"""Draws logs of its own and says what came of every certificate."""


@dataclass(frozen=True)
class Tally:
    """What came of one kind of certificate.

    Args:
        group: one of `GROUPS`.
        kind: what was done.
        variant: with which bound, or in which round.
        wrong: certificates that passed although what they promise is false.
        right: certificates that passed, and what they promise is true.
        refused: what was asked for was refused.
        n: replications.
        delta: the promised error rate.
    """

    group: Group
    kind: str
    variant: str
    wrong: int
    right: int
    refused: int
    n: int
    delta: float = DELTA

    @property
    def rate(self) -> float:
        """The share of errors."""
        return self.wrong / self.n

    @property
    def interval(self) -> tuple[float, float]:
        """The exact 95% interval (Clopper and Pearson)."""
        return rate_interval(self.wrong, self.n)

    @property
    def p_value(self) -> float:
        """One-sided: so many errors or more, if the true rate were delta."""
        return binomial_tail(self.wrong, self.n, self.delta)


def asked(certificate: Callable[[], bool], *, true: bool = False) -> Answer:
    """What comes of asking for a certificate, or of its being refused.

    Args:
        certificate: whether it passed.
        true: whether what it promises is true.
    """
    try:
        passed = certificate()
    except DepsueError:
        return "refused"
    return judged(passed, true=true)


def judged(passed: bool, *, true: bool = False) -> Answer:
    """What to call a verdict, given the truth."""
    if not passed:
        return "failed"
    return "right" if true else "wrong"
