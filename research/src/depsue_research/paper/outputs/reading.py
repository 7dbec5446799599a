"""Finished cells as numbers: arrays over the seeds, by method and level.

`Runs` holds the finished cells of a recipe. A measure turns the result of one cell into a number:
the relative value V(pi) / V(pi0) or the novelty N(pi), of the last policy or over the deployments.
Below it stand what is read off a training (R and the bound), the verdicts of validation OPE, and
means, deviations and 95% intervals over few seeds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from depsue.data.checks import FloatArray
from depsue_research.paper.cells import Cell, Result
from depsue_research.paper.recipe import METHODS, Recipe, deployments_of

NAMES = {
    "opg_mean": "OPG (naive, mean)",
    "opg_min": "OPG (naive, min)",
    "opg_cql": "OPG (w/ CQL)",
    "naive_safe": "Naive Safe Exploration",
    "depsue_1": "DEPSUE (K=1)",
    "depsue_2": "DEPSUE (K=2)",
    "depsue_5": "DEPSUE (K=5)",
    "explore_1": "Certified exploration (K=1)",
    "explore_2": "Certified exploration (K=2)",
    "explore_5": "Certified exploration (K=5)",
    "explore_2_cumulative": "Certified exploration (K=2, cumulative)",
    "explore_5_cumulative": "Certified exploration (K=5, cumulative)",
}
"""As in the paper, which calls DEPSUE (K=1) Safe OPG, too."""

POLICIES = {
    "last": "last",
    "average": "average over k",
    "prefix": "average up to some k",
    "any": "any deployment",
}
"""Words for the keys of `reading.OVER_DEPLOYMENTS`."""

NAIVE = ("opg_mean", "opg_min")

OPG = (*NAIVE, "opg_cql")

DEPSUE = ("depsue_1", "depsue_2", "depsue_5")

EXPLORE = ("explore_1", "explore_2", "explore_5")

CUMULATIVE = ("explore_2_cumulative", "explore_5_cumulative")

Measure: TypeAlias = Callable[[Result], float]
"""From a cell's result to one number."""


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
        groups: dict[tuple[str, float], list[Result]] = {}
        for cell in sorted(self.results):
            groups.setdefault((cell.method, cell.level), []).append(self.results[cell])
        return groups

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
        by_seed: dict[int, float] = {}
        for method in self.recipe.methods:
            for result in self.of(method, level):
                by_seed.setdefault(int(result["seed"]), float(result["logging"][name]))
        return np.asarray([by_seed[seed] for seed in sorted(by_seed)], dtype=float)

    def best_novelty(self) -> FloatArray:
        """(n,) the novelty of pi*, which does not depend on the level, one number a seed."""
        by_seed: dict[int, float] = {}
        for method in self.methods:
            for result in self.over(method):
                novelty = float(result["logging"]["best_novelty_test"])
                by_seed.setdefault(int(result["seed"]), novelty)
        return np.asarray([by_seed[seed] for seed in sorted(by_seed)], dtype=float)

    def shared(self, methods: Iterable[str]) -> Runs:
        """Without the cells of these methods whose level and seed not all of them have finished."""
        wanted = tuple(methods)
        shared = {
            cell: result
            for cell, result in self.results.items()
            if cell.method not in wanted
            or all(Cell(cell.seed, cell.level, m) in self.results for m in wanted)
        }
        return Runs(self.recipe, shared)

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


OVER_DEPLOYMENTS: dict[str, Callable[[FloatArray], float]] = {
    "last": lambda values: float(values[-1]),
    "average": lambda values: float(values.mean()),
    "prefix": lambda values: float(min(values[: k + 1].mean() for k in range(len(values)))),
    "any": lambda values: float(values.min()),
}
"""From the K deployments of a cell to one number: the last policy's, the mean over k, the lowest
mean up to some k, or the lowest, which tells whether any single one fell below the floor."""


def policies_of(method: str) -> tuple[str, ...]:
    """Which policies of a method are shown: the last, and with K >= 2 the average over all."""
    return ("last", "average") if deployments_of(method) > 1 else ("last",)


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


def over_training(result: Result) -> tuple[FloatArray, FloatArray]:
    """R and the bound over V_on(pi0), at the steps kept of the first deployment's training."""
    history = result["history"][0]
    return np.asarray(history["regulariser"]), np.asarray(history["bound"]) / result["on_policy"]


def r_and_bound(result: Result) -> float | None:
    """Their correlation over the training; None where one of them does not move."""
    r, bound = over_training(result)
    if len(r) < 3 or np.ptp(r) == 0 or np.ptp(bound) == 0:
        return None
    return float(np.corrcoef(r, bound)[0, 1])


ESTIMATORS = ("ips", "dm", "dr")


@dataclass(frozen=True)
class Verdicts:
    """What an estimator says of a method's policies, against the truth on the test users.

    Args:
        worse: policies with V(pi) <= V(pi0).
        accepted: how many of them it accepts: V-hat(pi) > V_on(pi0) on the validation rows.
        better: policies with V(pi) > V(pi0).
        refused: how many of them it does not accept.
    """

    worse: int
    accepted: int
    better: int
    refused: int

    @property
    def unsafe_accepted(self) -> float | None:
        """Share of the worse policies that are accepted; None if there are none."""
        return self.accepted / self.worse if self.worse else None

    @property
    def safe_refused(self) -> float | None:
        """Share of the better policies that are refused; None if there are none."""
        return self.refused / self.better if self.better else None


def validated(runs: Runs, method: str) -> list[Result]:
    """The cells of a method, over all levels and seeds, that OPE has looked at."""
    return [result for result in runs.over(method) if "validation" in result]


def verdicts(runs: Runs, method: str, estimator: str) -> Verdicts:
    """An estimator's verdicts over the policies of all levels and seeds."""
    worse = accepted = better = refused = 0
    for result in validated(runs, method):
        is_better = relative_values(result)[-1] > 1
        accepts = result["validation"][estimator] > result["validation"]["on_policy"]
        better += is_better
        worse += not is_better
        refused += is_better and not accepts
        accepted += accepts and not is_better
    return Verdicts(worse, accepted, better, refused)


T_975 = (12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281)
"""The .975 quantile of Student's t with 1 .. 10 degrees of freedom."""

Z_975 = 1.959964


def t_quantile(freedom: int) -> float:
    """The .975 quantile of Student's t: a table, and beyond it three terms of Cornish and Fisher.

    t = z + (z^3 + z) / 4v + (5 z^5 + 16 z^3 + 3 z) / 96 v^2 + ..., within .0005 from v = 11 on.
    """
    if freedom <= len(T_975):
        return T_975[freedom - 1]
    z, v = Z_975, freedom
    return (
        z
        + (z**3 + z) / (4 * v)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * v**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * v**3)
    )


def mean(values: FloatArray) -> float | None:
    """The mean; None of nothing."""
    return float(values.mean()) if len(values) else None


def deviation(values: FloatArray) -> float | None:
    """The sample's standard deviation (n - 1); None of fewer than two."""
    return float(values.std(ddof=1)) if len(values) > 1 else None


def half_width(values: FloatArray) -> float | None:
    """Half of the 95% t-interval of the mean; None of fewer than two values."""
    if len(values) < 2:
        return None
    return t_quantile(len(values) - 1) * float(values.std(ddof=1)) / math.sqrt(len(values))
