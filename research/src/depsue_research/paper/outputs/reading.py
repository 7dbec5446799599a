"""Finished cells as arrays over seeds, by method and level; what is missing is left out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from depsue.data.checks import FloatArray
from depsue_research.paper.cells import Cell, Result
from depsue_research.paper.recipe import METHODS, Recipe, deployments_of

NAIVE = ("opg_mean", "opg_min")
OPG = (*NAIVE, "opg_cql")
DEPSUE = ("depsue_1", "depsue_2", "depsue_5")
EXPLORE = ("explore_1", "explore_2", "explore_5")
CUMULATIVE = ("explore_2_cumulative", "explore_5_cumulative")
Measure: TypeAlias = Callable[[Result], float]
"""From a cell's result to one number."""

OVER_DEPLOYMENTS: dict[str, Callable[[FloatArray], float]] = {
    "last": lambda values: float(values[-1]),
    "average": lambda values: float(values.mean()),
    "prefix": lambda values: float(min(values[: k + 1].mean() for k in range(len(values)))),
    "any": lambda values: float(values.min()),
}
"""From the K deployments of a cell to one number: the last policy's, the mean over k, the lowest
mean up to some k, or the lowest, which tells whether any single one fell below the floor."""


def relative_values(result: Result, users: str = "test") -> FloatArray:
    """(K,) V(pi_k) / V(pi0) over the test or the training users, exactly."""
    values = np.asarray([d[f"value_{users}"] for d in result["deployments"]], dtype=float)
    return values / float(result["logging"][f"value_{users}"])


def novelties(result: Result) -> FloatArray:
    """(K,) N(pi_k) over the test users, exactly."""
    return np.asarray([d["novelty_test"] for d in result["deployments"]], dtype=float)


def value(how: str = "last", users: str = "test") -> Measure:
    """The measure V(pi) / V(pi0); `how` is a key of OVER_DEPLOYMENTS."""
    return lambda result: OVER_DEPLOYMENTS[how](relative_values(result, users))


def novelty(how: str = "last") -> Measure:
    """The measure N(pi); `how` is a key of OVER_DEPLOYMENTS."""
    return lambda result: OVER_DEPLOYMENTS[how](novelties(result))


def policies_of(method: str) -> tuple[str, ...]:
    """Which policies of a method are shown: the last, and with K >= 2 the average over all."""
    return ("last", "average") if deployments_of(method) > 1 else ("last",)


@dataclass(frozen=True)
class Runs:
    """The finished cells of a recipe.

    Args:
        recipe: the experiment; cells of other methods and levels are not looked at.
        results: finished cells.
    """

    recipe: Recipe
    results: Mapping[Cell, Result]

    @cached_property
    def _by_method_and_level(self) -> dict[tuple[str, float], list[Result]]:
        found: dict[tuple[str, float], list[Result]] = {}
        for cell in sorted(self.results):
            found.setdefault((cell.method, cell.level), []).append(self.results[cell])
        return found

    @property
    def levels(self) -> tuple[float, ...]:
        """beta or epsilon, in the recipe's order."""
        return self.recipe.levels

    @property
    def who(self) -> str:
        """What contexts are: users or documents."""
        return "documents" if self.recipe.experiment == "wiki10" else "users"

    @property
    def of_titles(self) -> bool:
        """Whether titles stood in for documents in any finished cell of Wiki10."""
        return self.recipe.experiment == "wiki10" and any(
            r.get("data", {}).get("of_titles", True) for m in self.methods for r in self.over(m)
        )

    @property
    def methods(self) -> tuple[str, ...]:
        """Those of the recipe that have a finished cell."""
        return tuple(
            m
            for m in METHODS
            if m in self.recipe.methods and any(self.of(m, v) for v in self.levels)
        )

    @property
    def seeds(self) -> tuple[int, ...]:
        """All that have a finished cell."""
        return tuple(sorted({int(r["seed"]) for m in self.methods for r in self.over(m)}))

    def of(self, method: str, level: float) -> list[Result]:
        """The results of a method at a level, by seed."""
        return self._by_method_and_level.get((method, level), [])

    def over(self, method: str, levels: Iterable[float] | None = None) -> list[Result]:
        """The results of a method at several levels, or at all."""
        return [r for v in (self.levels if levels is None else levels) for r in self.of(method, v)]

    def numbers(self, method: str, level: float, measure: Measure) -> FloatArray:
        """(n,) a measure of a method at a level, one number a seed."""
        return np.asarray([measure(r) for r in self.of(method, level)], dtype=float)

    def violations(
        self, method: str, level: float, how: str = "last", users: str = "test"
    ) -> tuple[int, int]:
        """How often V(pi) / V(pi0) < floor, and of how many seeds."""
        values = self.numbers(method, level, value(how, users))
        return int((values < self.recipe.floor).sum()), len(values)

    def logging(self, level: float, name: str) -> FloatArray:
        """(n,) a figure of pi0's world at a level, one number a seed, from any method's cells."""
        found: dict[int, float] = {}
        for method in self.recipe.methods:
            for result in self.of(method, level):
                found.setdefault(int(result["seed"]), float(result["logging"][name]))
        return np.asarray([found[seed] for seed in sorted(found)], dtype=float)

    def best_novelty(self) -> FloatArray:
        """(n,) the novelty of pi*, which does not depend on the level, one number a seed."""
        found: dict[int, float] = {}
        for method in self.methods:
            for result in self.over(method):
                novelty = float(result["logging"]["best_novelty_test"])
                found.setdefault(int(result["seed"]), novelty)
        return np.asarray([found[seed] for seed in sorted(found)], dtype=float)

    def shared(self, methods: Iterable[str]) -> Runs:
        """Without the cells of these methods whose level and seed not all of them have finished."""
        wanted = tuple(methods)
        kept = {
            cell: result
            for cell, result in self.results.items()
            if cell.method not in wanted
            or all(Cell(cell.seed, cell.level, m) in self.results for m in wanted)
        }
        return Runs(self.recipe, kept)

    def optimality(self, level: float) -> FloatArray:
        """(n,) V(pi0) / V(pi*) over the test users, one number a seed."""
        return self.logging(level, "value_test") / self.logging(level, "best_test")

    def missing(self) -> int:
        """Cells that are not finished, of those of all seeds seen."""
        n_cells = len(self.seeds) * len(self.levels) * len(self.recipe.methods)
        return n_cells - sum(len(self.over(m)) for m in self.methods)

    def seeds_in_words(self) -> str:
        """How many seeds there are, and whether cells are missing."""
        n = len(self.seeds)
        words = f"{n} seed" + ("" if n == 1 else "s")
        missing = self.missing()
        return words + (f" ({missing:,} cells not finished)" if missing else "")


def shown_levels(runs: Runs) -> tuple[float, ...]:
    """Three levels for pictures: -16, 0 and 16 as in the paper, or lowest, middle and highest."""
    wanted = (-16.0, 0.0, 16.0)
    if set(wanted) <= set(runs.levels):
        return wanted
    ordered = sorted(runs.levels)
    return tuple(dict.fromkeys((ordered[0], ordered[len(ordered) // 2], ordered[-1])))


def shares(histogram: Mapping[str, Any], bins: int) -> FloatArray:
    """(bins,) shares per bin of [0, 1] of a histogram kept in a result."""
    whole = np.zeros(bins)
    part = histogram["shares"]
    whole[histogram["first"] : histogram["first"] + len(part)] = part
    return whole
