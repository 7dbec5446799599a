"""Tables of what came of it: logging policies, violations, value and novelty over the levels."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from depsue.data.checks import FloatArray
from depsue_research.paper.outputs.intervals import deviation, mean
from depsue_research.paper.outputs.method_names import NAMES, POLICIES
from depsue_research.paper.outputs.published import Published
from depsue_research.paper.outputs.reading import Measure, Runs, novelty, policies_of, value
from depsue_research.paper.outputs.table import NONE, Table, number, rate, signed
from depsue_research.paper.recipe import deployments_of

Row: TypeAlias = tuple[str, ...]
ADEQUATE = 0.1
"""The novelty that the paper calls adequate."""
TWO_POLICIES = (
    "For K >= 2: the last policy, and the average over the deployments (the mean over k). The "
    "paper does not say which of the two its rows are, nor whether OPG (naive) is mean or min."
)


def logging_policies(runs: Runs, paper: Published) -> Table:
    """V(pi0) and V(pi0) / V(pi*) on the test users, beside the paper's, and the gap."""
    rows: list[Row] = []
    figures: list[tuple[str, str, Callable[[float], FloatArray]]] = [
        ("V(pi0)", "logging_value", lambda level: runs.logging(level, "value_test")),
        ("V(pi0) / V(pi*)", "logging_optimality", runs.optimality),
    ]
    for name, table, measure in figures:
        here = [mean(measure(level)) for level in runs.levels]
        rows.append((name, "here", *map(number, here)))
        if paper.row(table, "pi0"):
            printed = [paper.get(table, "pi0", level) for level in runs.levels]
            gaps = [
                None if a is None or b is None else a - b
                for a, b in zip(here, printed, strict=True)
            ]
            rows.append((name, "paper", *map(number, printed)))
            rows.append((name, "gap", *map(signed, gaps)))
    for name, key in (("V(uniform)", "uniform_test"), ("V(pi*)", "best_test")):
        found = [mean(runs.logging(level, key)) for level in runs.levels]
        rows.append((name, "here", *map(number, found)))
    return Table(
        "logging_policies",
        f"Logging policies: value and optimality, mean over {runs.seeds_in_words()}",
        ("figure", "source", *level_headings(runs)),
        tuple(rows),
        f"Exact values over the test {runs.who}; pi* and the uniform policy choose among all "
        f"actions, novel ones included. {_beside(paper)}",
    )


def violations(runs: Runs, paper: Published) -> Table:
    """In how many seeds V(pi) / V(pi0) was below the floor."""
    rows: list[Row] = []
    for method in runs.methods:
        policies = ("last", "average", "any") if deployments_of(method) > 1 else ("last",)
        for users, words in (("test", "test"), ("train", "training")):
            for how in policies:
                counts = [runs.violations(method, level, how, users) for level in runs.levels]
                rows.append(
                    (NAMES[method], POLICIES[how], words, "here", *[rate(*c) for c in counts])
                )
            if users == "test" and paper.row("violations", method):
                printed = [paper.get("violations", method, level) for level in runs.levels]
                cells = [rate(count, paper.seeds) for count in printed]
                rows.append((NAMES[method], NONE, words, "paper", *cells))
    return Table(
        "violations",
        f"Violations of the safety constraint, {runs.seeds_in_words()}",
        ("method", "policy", runs.who, "source", *level_headings(runs)),
        tuple(rows),
        f"Seeds with V(pi) / V(pi0) < {runs.recipe.floor:g}, of all: against the test {runs.who}, "
        f"which is the paper's rule, and against the training {runs.who}, whom the logs are of. "
        + TWO_POLICIES
        + " Eq. 9 limits the average; 'any deployment' counts a seed if a single one of its K "
        "policies was below the floor. " + _beside(paper),
    )


def relative_value(runs: Runs, paper: Published) -> Table:
    """V(pi) / V(pi0) on the test users: mean and worst over the seeds."""
    rows: list[Row] = []
    for method in runs.methods:
        for figure, table, over_seeds in (
            ("mean", "value_mean", mean),
            ("worst", "value_worst", _lowest),
        ):
            rows += _figure_rows(runs, paper, method, figure, table, value, over_seeds)
    return Table(
        "relative_value",
        f"Relative value V(pi) / V(pi0), mean and worst of {runs.seeds_in_words()}",
        ("method", "policy", "figure", "source", *level_headings(runs)),
        tuple(rows),
        f"Over the test {runs.who}. {TWO_POLICIES} {_beside(paper)} A worst value is a minimum "
        "over the seeds, and falls with their number.",
    )


def novelty_table(runs: Runs, paper: Published) -> Table:
    """N(pi) on the test users: mean and deviation over the seeds."""
    rows: list[Row] = []
    for method in runs.methods:
        for figure, table, over_seeds in (
            ("mean", "novelty_mean", mean),
            ("deviation", "novelty_deviation", deviation),
        ):
            rows += _figure_rows(runs, paper, method, figure, table, novelty, over_seeds)
    best = [runs.logging(level, "best_novelty_test") for level in runs.levels]
    rows.append(("pi*", NONE, "mean", "here", *[number(mean(b)) for b in best]))
    rows.append(("pi*", NONE, "deviation", "here", *[number(deviation(b)) for b in best]))
    return Table(
        "novelty",
        f"Novelty N(pi), mean and deviation over {runs.seeds_in_words()}",
        ("method", "policy", "figure", "source", *level_headings(runs)),
        tuple(rows),
        f"Over the test {runs.who}; the deviation is the sample's (n - 1). {TWO_POLICIES} "
        f"{_beside(paper)}",
    )


def adequate_novelty(runs: Runs, paper: Published) -> Table:
    """In how many seeds the novelty was at least .1."""
    rows: list[Row] = []
    for method in runs.methods:
        for how in policies_of(method):
            found = [runs.numbers(method, level, novelty(how)) for level in runs.levels]
            cells = [rate(int((f >= ADEQUATE).sum()), len(f)) for f in found]
            rows.append((NAMES[method], POLICIES[how], "here", *cells))
        if paper.row("novelty_reached", method):
            printed = [paper.get("novelty_reached", method, level) for level in runs.levels]
            cells = [rate(count, paper.seeds) for count in printed]
            rows.append((NAMES[method], NONE, "paper", *cells))
    return Table(
        "adequate_novelty",
        f"Seeds with a novelty of at least {ADEQUATE:g}, {runs.seeds_in_words()}",
        ("method", "policy", "source", *level_headings(runs)),
        tuple(rows),
        f"Over the test {runs.who}. {TWO_POLICIES} {_beside(paper)}",
    )


def level_headings(runs: Runs) -> Row:
    """beta=-24, ..."""
    return tuple(f"{runs.recipe.level_name}={level:g}" for level in runs.levels)


def _figure_rows(
    runs: Runs,
    paper: Published,
    method: str,
    figure: str,
    table: str,
    measure: Callable[[str], Measure],
    over_seeds: Callable[[FloatArray], float | None],
) -> list[Row]:
    """The rows of one figure of one method: each of its policies, then the paper's."""
    rows: list[Row] = []
    for how in policies_of(method):
        found = [over_seeds(runs.numbers(method, v, measure(how))) for v in runs.levels]
        rows.append((NAMES[method], POLICIES[how], figure, "here", *map(number, found)))
    if paper.row(table, method):
        printed = [paper.get(table, method, level) for level in runs.levels]
        rows.append((NAMES[method], NONE, figure, "paper", *map(number, printed)))
    return rows


def _lowest(values: FloatArray) -> float | None:
    return float(values.min()) if len(values) else None


def _beside(paper: Published) -> str:
    if not paper.seeds:
        return "The paper has no figures of this simulator."
    return f"The paper's figures are of {paper.seeds} seeds."
