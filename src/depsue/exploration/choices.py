"""What may be served after a verdict, the best by the objective first.

Three things may be: the boldest level that passed, what is certain without data beside pi0, and
pi0 itself. A plan ranks the same three, with what is likely to pass in place of what passed.

What is certain shows the new items evenly, for nothing has shown yet that a model knows which of
them are good: it is the paper's Naive Safe Exploration.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from depsue.certificates import Certificate, UnitRows
from depsue.data.checks import FloatArray
from depsue.exploration.settings import BALANCED, ExploreSettings, worth

CERTAIN_OF_UNITS: dict[UnitRows | None, str] = {
    None: "",
    "first row": " for the first row of each unit, not for later ones",
    "all rows": " as far as the number of rows of a unit does not depend on what it was shown",
}
"""What the certain level rests on, where units have several rows."""


@dataclass(frozen=True)
class Expected:
    """value / V(pi0) that is anticipated.

    Args:
        old, new: of pi_old and of pi_new.
        logging: of pi0 itself.
        even: of an even choice among the new items, which is shown beside pi0 where no certificate
            is needed; None of candidates that an older version trained: there pi_new was.
    """

    old: float
    new: float
    logging: float
    even: float | None = None

    def value(self, novelty: float, *, naive: bool = False) -> float:
        """Of a mixture; `naive` is of what needs no certificate: new items beside pi0."""
        if not naive:
            return (1 - novelty) * self.old + novelty * self.new
        new = self.new if self.even is None else self.even
        return (1 - novelty) * self.logging + novelty * new


@dataclass(frozen=True, eq=False)
class ExposureAhead:
    """How often new items are forecast to be shown, on the requests that the forecast looks at.

    At a level of novelty nu each action is shown in nu times its share of the decisions.

    Args:
        learned: (A,) how often a decision of pi_new shows each action.
        even: (A,) how often one of the even choice does, which needs no certificate beside pi0.
        likely: the boldest level that is likely to pass; None if none is.
    """

    learned: FloatArray
    even: FloatArray
    likely: float | None


@dataclass(frozen=True)
class Choice:
    """What may be served, as far as the verdict and the anticipated values say.

    Args:
        what: the certified mixture, the certain level beside pi0, or pi0 itself.
        novelty: its nu.
        value: value / V(pi0) that is anticipated.
        why: in a sentence.
        even: whether it shows the new items evenly, whatever a model says of them.
        share: of the mixture's part that shows new items, where that is not its novelty: it may
            show old items, too.
    """

    what: Literal["certified", "certain", "pi0"]
    novelty: float
    value: float
    why: str
    even: bool = False
    share: float | None = None

    @property
    def part(self) -> float:
        """The share of the part that shows new items."""
        return self.novelty if self.share is None else self.share


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
        if certificate.assumed is not None:
            why += f", {certificate.assumed.rung.in_words}"
        share = certificate.shares[-1]
        options.append(Choice("certified", nu, expected.value(nu), why, share=share))
    if certain > 0:
        why = f"Naive Safe Exploration: novelty {certain:.3f} beside pi0, even over the new items"
        if expected.even is None:
            why = f"novelty {certain:.3f} beside pi0, new items as the reward model prefers them"
        why += ", is certain"
        if certificate.kind == "estimated":
            why += " where pi0 is the table that was estimated"
        why += CERTAIN_OF_UNITS[certificate.units]
        if not certificate.passed:
            why += ", and nothing else passed"
        elif certain > certificate.novelty:
            why += ", and more than was certified"
        value, even = expected.value(certain, naive=True), expected.even is not None
        options.append(Choice("certain", certain, value, why, even))
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
