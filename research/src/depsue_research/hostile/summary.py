"""What came out, campaign by campaign and over all: novelty, value, and broken promises."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from depsue.data.checks import FloatArray
from depsue.testing.binomial import binomial_tail, rate_interval
from depsue_research.hostile.campaigns import DELTA, FLOOR
from depsue_research.hostile.store import Result

ROUNDING = 1e-9
"""A value so little below the floor is at it."""
ANSWERS = ("certified", "certain", "pi0")


@dataclass(frozen=True)
class Broken:
    """How often a promise was broken, of n deployments."""

    count: int
    n: int

    @property
    def interval(self) -> tuple[float, float]:
        """The exact 95% interval of the rate."""
        return rate_interval(self.count, self.n)

    @property
    def p_value(self) -> float:
        """One-sided: so many or more, if the true rate were delta."""
        return binomial_tail(self.count, self.n, DELTA)

    def __add__(self, other: Broken) -> Broken:
        return Broken(self.count + other.count, self.n + other.n)


@dataclass(frozen=True, eq=False)
class Group:
    """The campaigns of one world, K, mode of safety and objective, one a seed.

    Args:
        world, deployments, safety, objective: what they share.
        runs: R results of `run_case` that were not refused.
        refused: how many were.
    """

    world: str
    deployments: int
    safety: str
    objective: str
    runs: tuple[Result, ...]
    refused: int = 0

    @cached_property
    def novelty(self) -> FloatArray:
        """(R, K) true novelty."""
        return self._table("novelty")

    @cached_property
    def value(self) -> FloatArray:
        """(R, K) true value over V(pi0)."""
        return self._table("value")

    @cached_property
    def anticipated(self) -> FloatArray:
        """(R, K) the value over V(pi0) that was expected when the policy was chosen."""
        return self._table("anticipated")

    @property
    def promised(self) -> FloatArray:
        """(R, K) what the promise is about: each value, or the mean of all so far."""
        if self.safety == "each":
            return self.value
        return np.cumsum(self.value, axis=1) / np.arange(1, self.deployments + 1)

    @property
    def broken(self) -> Broken:
        """Deployments below the floor, or after which the mean so far was."""
        return Broken(int((self.promised < FLOOR - ROUNDING).sum()), self.promised.size)

    @property
    def broken_certified(self) -> Broken:
        """The same of the deployments with a certified answer: the others cannot do harm."""
        own = self.promised[
            np.array([[one["answer"] == "certified" for one in run["rounds"]] for run in self.runs])
        ]
        return Broken(int((own < FLOOR - ROUNDING).sum()), own.size)

    @property
    def answers(self) -> dict[str, int]:
        """How often each of the three answers was given, over all deployments."""
        seen = Counter(one["answer"] for run in self.runs for one in run["rounds"])
        return {name: seen[name] for name in ANSWERS}

    def _table(self, name: str) -> FloatArray:
        return np.array([[one[name] for one in run["rounds"]] for run in self.runs])


def groups(results: Iterable[Result]) -> list[Group]:
    """The results of campaigns by what they share, in the order of their first ones."""
    found: dict[tuple[str, int, str, str], list[Result]] = {}
    for one in results:
        if "rounds" in one:
            key = (one["world"], one["deployments"], one["safety"], one["objective"])
            found.setdefault(key, []).append(one)
    made = []
    for key, runs in found.items():
        kept = tuple(run for run in runs if run["rounds"])
        made.append(Group(*key, kept, len(runs) - len(kept)))
    return made


def pooled(some: Iterable[Group]) -> dict[str, Broken]:
    """Broken promises in all worlds: by mode of safety, together, and of certified answers only."""
    found = {name: Broken(0, 0) for name in ("each", "cumulative", "both", "certified")}
    for group in some:
        if group.runs:
            for name in (group.safety, "both"):
                found[name] = found[name] + group.broken
            found["certified"] = found["certified"] + group.broken_certified
    return found


def refusals(results: Iterable[Result]) -> dict[tuple[str, int], list[str | None]]:
    """(who was asked about what, rows) -> the messages, None where nothing was refused."""
    found: dict[tuple[str, int], list[str | None]] = {}
    for one in results:
        for answer in one.get("answers", ()):
            found.setdefault((answer["what"], answer["rows"]), []).append(answer["said"])
    return found


def by_name(some: Iterable[Group]) -> Mapping[tuple[str, int, str, str], Group]:
    """The groups that have runs, by world, K, safety and objective."""
    return {(g.world, g.deployments, g.safety, g.objective): g for g in some if g.runs}
