"""What may be served after a verdict, the best by the objective first.

Three things may be: the boldest level that passed, what is certain without data beside pi0, and
pi0 itself. A plan ranks the same three, with what is likely to pass in place of what passed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from depsue.certificates import Certificate, UnitRows
from depsue.exploration.settings import BALANCED, ExploreSettings, worth

CERTAIN_OF_UNITS: dict[UnitRows | None, str] = {
    None: "",
    "first row": " for the first row of each unit, not for later ones",
    "all rows": " as far as the number of rows of a unit does not depend on what it was shown",
}
"""What the certain level rests on, where units have several rows."""


@dataclass(frozen=True)
class Expected:
    """value / V(pi0) that is anticipated of pi_old, of pi_new and of pi0 itself."""

    old: float
    new: float
    logging: float

    def value(self, novelty: float, *, naive: bool = False) -> float:
        """Of a mixture; `naive` has pi0 for pi_old."""
        return (1 - novelty) * (self.logging if naive else self.old) + novelty * self.new


@dataclass(frozen=True)
class Choice:
    """What may be served, as far as the verdict and the anticipated values say.

    Args:
        what: the certified mixture, the certain level beside pi0, or pi0 itself.
        novelty: its nu.
        value: value / V(pi0) that is anticipated.
        why: in a sentence.
    """

    what: Literal["certified", "certain", "pi0"]
    novelty: float
    value: float
    why: str


PI0 = Choice("pi0", 0.0, 1.0, "pi0")
"""pi0 where no verdict speaks of it."""


def choices(
    certificate: Certificate, expected: Expected, settings: ExploreSettings, *, aim: float
) -> tuple[Choice, ...]:
    """What passed, what is certain, and pi0: the best by the objective first.

    A floor says how much may be given up for new items. The objective "balanced" takes it at its
    word: what is certain goes before what shows less and is not expected to earn more than pi0.

    Args:
        certificate: the verdict.
        expected: values that are anticipated.
        settings: how.
        aim: the novelty at the end of the list.
    """
    certain = settings.certain
    options: list[Choice] = []
    if certificate.passed:
        nu = certificate.novelty
        tested = f"the boldest of {certificate.tested} levels tested"
        how = "as much as was aimed at" if np.isclose(nu, aim) else tested
        on = " on estimated propensities" if certificate.kind == "estimated" else ""
        why = f"certified{on}: novelty {nu:.3f}, {how}"
        options.append(Choice("certified", nu, expected.value(nu), why))
    if certain > 0:
        why = f"Naive Safe Exploration: novelty {certain:.3f} beside pi0 is certain"
        if certificate.kind == "estimated":
            why += " where pi0 is the table that was estimated"
        why += CERTAIN_OF_UNITS[certificate.units]
        if not certificate.passed:
            why += ", and nothing else passed"
        elif certain > certificate.novelty:
            why += ", and more than was certified"
        options.append(Choice("certain", certain, expected.value(certain, naive=True), why))
    why = "pi0, which needs no certificate"
    options.append(Choice("pi0", 0.0, expected.value(0.0, naive=True), why))

    best = ranked(options, settings)
    if best[0].what == "pi0":
        why = "pi0: nothing passed that the objective puts above it"
        best[0] = replace(best[0], why=why)
    return tuple(best)


def ranked(options: Sequence[Choice], settings: ExploreSettings) -> list[Choice]:
    """What may be served, the best by the objective first.

    Args:
        options: pi0 among them.
        settings: the objective, and what is certain.
    """
    plain = next(choice.value for choice in options if choice.what == "pi0")

    def score(choice: Choice) -> float:
        less = choice.novelty < settings.certain and choice.value <= plain
        if settings.objective == BALANCED and less:
            return -np.inf
        return float(worth(settings.objective, np.array(choice.value), np.array(choice.novelty)))

    return sorted(options, key=score, reverse=True)
