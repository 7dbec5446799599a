"""What a check of the paper is made of: the evidence, the statement with its criterion, the claim.

`Check.on` looks at the `RunEvidence` and gives a `Claim`: holds, does not hold, or not measured.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from depsue.data.checks import FloatArray
from depsue_research.paper.outputs.published import Published
from depsue_research.paper.outputs.reading import NAMES, Measure, Runs, novelty, value

HOLDS, FAILS, UNKNOWN = "holds", "does not hold", "not measured"
UNEXPLAINED = "No cause was found in the figures that are kept."
NEAR_OPTIMAL = 0.85
"""V(pi0) / V(pi*) from which on a logging policy is good, where the paper has no figures."""
STOCHASTIC = 8.0
"""The paper's logging policies with |beta| up to this are its stochastic ones."""
GROUPS_NOTE = (
    "The paper has no figures of this simulator. Good logging policies are here those with a mean "
    f"V(pi0) / V(pi*) of at least {NEAR_OPTIMAL:g}, poor ones those with V(pi0) < V(uniform) in "
    "the mean; criteria name the levels that this gives."
)


@dataclass(frozen=True)
class Claim:
    """A statement of the paper, checked.

    Args:
        statement: what the paper says, in other words.
        criterion: what must be found for it to hold; the same for every run.
        where: the place in the paper.
        measured: the figures.
        verdict: holds, does not hold, or not measured.
        reason: why it does not hold or was not measured, as far as the figures tell; else empty.
    """

    statement: str
    criterion: str
    where: str
    measured: str
    verdict: str
    reason: str = ""


@dataclass(frozen=True)
class Measurement:
    """What a check found: the figures, whether the criterion is met, and if not, why.

    Args:
        measured: the figures.
        holds: the criterion is met.
        reasons: what explains it if not, as far as the figures tell.
    """

    measured: str
    holds: bool
    reasons: tuple[str, ...] = ()


def because(*reasons: str) -> tuple[str, ...]:
    """The reasons that apply."""
    return tuple(reason for reason in reasons if reason)


class NotMeasured(Exception):
    """The cells or figures that a check needs are not there; says which."""


class RunEvidence:
    """What checks look at: the finished cells, the paper's figures, and which levels are meant.

    Args:
        runs: the finished cells.
        paper: its figures. Where it has some, its negative levels are poor and its positive ones
            good; else a level is good or poor by what was measured (see GROUPS_NOTE).
    """

    def __init__(self, runs: Runs, paper: Published) -> None:
        self.runs, self.paper, self.recipe = runs, paper, runs.recipe
        self.levels = tuple(sorted(paper.levels or runs.levels))
        self.negative = tuple(v for v in self.levels if v < 0)
        self.positive = tuple(v for v in self.levels if v > 0)
        self.poor, self.good = self.negative, self.positive
        if not paper.seeds:
            self.poor = self._levels_by("uniform_test", lambda ratio: ratio < 1)
            self.good = self._levels_by("best_test", lambda ratio: ratio >= NEAR_OPTIMAL)
        self.best = self.good[-2:]
        published = self.levels if paper.seeds else ()
        self.stochastic = tuple(v for v in published if abs(v) <= STOCHASTIC)
        near_zero = {*self.poor[-2:], 0.0}
        self.poor_and_stochastic = tuple(v for v in self.levels if v in near_zero)
        self.delta = self.recipe.safe_opg.delta
        self.novel_share = self.recipe.novel / (self.recipe.novel + self.recipe.supported)
        self._compared: tuple[str, ...] = ()

    def shared(self, *methods: str) -> RunEvidence:
        """To compare methods: at every level over the seeds that all of them have finished."""
        part = copy.copy(self)
        part.runs, part._compared = self.runs.shared(methods), methods
        return part

    def _levels_by(self, bottom: str, wanted: Callable[[float], bool]) -> tuple[float, ...]:
        """The levels whose mean of V(pi0) over another value is as wanted."""
        levels = []
        for level in self.levels:
            ratio = self.runs.logging(level, "value_test") / self.runs.logging(level, bottom)
            if len(ratio) and wanted(float(ratio.mean())):
                levels.append(level)
        return tuple(levels)

    def numbers(self, method: str, level: float, measure: Measure) -> FloatArray:
        """(n,) a measure over the seeds; NotMeasured where no cell is finished."""
        numbers = self.runs.numbers(method, level, measure)
        if not len(numbers):
            place = self.say([level])
            if method in self._compared:
                names = ", ".join(NAMES[m] for m in self._compared)
                raise NotMeasured(f"No seed with finished cells of all of {names} at {place}.")
            raise NotMeasured(f"No finished cell of {NAMES[method]} at {place}.")
        return numbers

    def means(
        self, method: str, measure: Measure, levels: Iterable[float] | None = None
    ) -> dict[float, float]:
        """The mean over the seeds, by level."""
        chosen = self._some(levels)
        return {v: float(self.numbers(method, v, measure).mean()) for v in chosen}

    def logging(self, top: str, bottom: str) -> dict[float, float]:
        """The mean over the seeds of a ratio of two figures of pi0's world, by level."""
        means = {}
        for level in self.levels:
            ratio = self.runs.logging(level, top) / self.runs.logging(level, bottom)
            if not len(ratio):
                raise NotMeasured(f"No finished cell at {self.say([level])}.")
            means[level] = float(ratio.mean())
        return means

    def pooled(self, method: str, measure: Measure) -> FloatArray:
        """A measure over the cells of all levels and seeds."""
        return np.concatenate([self.numbers(method, v, measure) for v in self.levels])

    def values(self, method: str, levels: Iterable[float] | None = None) -> dict[float, float]:
        """The mean relative value of the last policy, by level."""
        return self.means(method, value(), levels)

    def novelties(self, method: str, levels: Iterable[float] | None = None) -> dict[float, float]:
        """The mean novelty of the last policy, by level."""
        return self.means(method, novelty(), levels)

    def violations(
        self, method: str, levels: Iterable[float] | None = None, how: str = "last"
    ) -> dict[float, tuple[int, int]]:
        """(violations, seeds) against the test users, by level."""
        chosen = self._some(levels)
        for level in chosen:
            self.numbers(method, level, value())
        return {v: self.runs.violations(method, v, how) for v in chosen}

    def need_published(self) -> None:
        """For checks that look at the paper's own figures: NotMeasured where it has none."""
        if not self.paper.seeds:
            raise NotMeasured("The paper has no figures of this simulator.")

    def need_levels(self, *groups: tuple[float, ...]) -> None:
        """For checks that compare groups of levels: NotMeasured where one is empty."""
        if not all(groups):
            raise NotMeasured("The recipe has no such logging policy.")

    def too_often(self, counts: Mapping[float, tuple[int, int]]) -> list[float]:
        """The levels at which the constraint was violated in more than delta of the seeds."""
        return [v for v, (count, n) in counts.items() if count > self.delta * n]

    def say(self, levels: Iterable[float]) -> str:
        """beta = 8, 16, 24."""
        named = ", ".join(f"{v:g}" for v in levels)
        return f"{self.recipe.level_name} = {named}" if named else f"no {self.recipe.level_name}"

    def fill(self, criterion: str) -> str:
        """A criterion with the levels and limits that it speaks of."""
        return criterion.format(
            name=self.recipe.level_name,
            good=self.say(self.good),
            poor=self.say(self.poor),
            best=self.say(self.best),
            negative=self.say(self.negative),
            positive=self.say(self.positive),
            stochastic=self.say(self.stochastic),
            poor_and_stochastic=self.say(self.poor_and_stochastic),
            delta=f"{self.delta:g}",
            floor=f"{self.recipe.floor:g}",
        )

    def _some(self, levels: Iterable[float] | None) -> tuple[float, ...]:
        chosen = self.levels if levels is None else tuple(levels)
        self.need_levels(chosen)
        return chosen


@dataclass(frozen=True)
class Check:
    """A statement with its criterion, and the function that looks.

    Args:
        statement: what the paper says, in other words.
        where: the place in the paper.
        criterion: what must be found; {good}, {poor} and the like stand for levels.
        find: looks at the evidence.
    """

    statement: str
    where: str
    criterion: str
    find: Callable[[RunEvidence], Measurement]

    def on(
        self, evidence: RunEvidence, shorten: Callable[[str], str] = lambda reason: reason
    ) -> Claim:
        """The claim, with what was found; `shorten` may cut a reason that was given before."""
        words = (self.statement, evidence.fill(self.criterion), self.where)
        try:
            measurement = self.find(evidence)
        except NotMeasured as missing:
            return Claim(*words, "-", UNKNOWN, str(missing))
        if measurement.holds:
            return Claim(*words, measurement.measured, HOLDS)
        reason = " ".join(map(shorten, measurement.reasons)) or UNEXPLAINED
        return Claim(*words, measurement.measured, FAILS, reason)


def listed(figures: Mapping[float, float], digits: int = 3) -> str:
    """Figures by level: -24: 0.072, -16: ..."""
    return ", ".join(f"{level:g}: {figure:.{digits}f}" for level, figure in figures.items())


def counted(counts: Mapping[float, tuple[int, int]]) -> str:
    """Counts by level: -24: 0/5, -16: ..."""
    return ", ".join(f"{level:g}: {count}/{n}" for level, (count, n) in counts.items())


def by_method(texts: Mapping[str, str]) -> str:
    """Texts by method, in one line."""
    return "; ".join(f"{NAMES[method]} {text}" for method, text in texts.items()) + "."


def average(figures: Mapping[float, float]) -> float:
    """The mean over levels."""
    return float(np.mean(list(figures.values())))
