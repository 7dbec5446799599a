"""All tables of a reproduction, each made from the finished cells beside the paper's figures.

`all_tables` makes those that a run can fill. They show what came of it (logging policies,
violations, value and novelty over the levels), certified exploration against DEPSUE and the paper,
Wiki10, the comparison of three ways to learn, validation OPE, and the run itself (what training
promised, and where the time went).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from depsue.data.checks import FloatArray
from depsue.testing.bounds import binomial_tail
from depsue_research.paper.cells import Result
from depsue_research.paper.outputs.published import Published, published_for
from depsue_research.paper.outputs.reading import (
    CUMULATIVE,
    DEPSUE,
    ESTIMATORS,
    EXPLORE,
    NAMES,
    OPG,
    POLICIES,
    Measure,
    Runs,
    deviation,
    mean,
    novelty,
    policies_of,
    validated,
    value,
    verdicts,
)
from depsue_research.paper.outputs.table import NONE, Table, number, rate, signed
from depsue_research.paper.recipe import deployments_of, differences


def all_tables(runs: Runs) -> list[Table]:
    """The tables that this run can fill; each note says what differs from the shipped recipe."""
    paper = published_for(runs.recipe)
    made = [table for make in TABLES if (table := make(runs, paper)) is not None]
    words = differences(runs.recipe)
    return [replace(table, note=f"{table.note} {words}".strip()) for table in made]


Row: TypeAlias = tuple[str, ...]

Figures = Sequence[float | None]

ADEQUATE = 0.1
"""The novelty that the paper calls adequate."""

TWO_POLICIES = (
    "For K >= 2: the last policy, and the average over the deployments (the mean over k). The "
    "paper does not say which of the two its rows are, nor whether OPG (naive) is mean or min."
)

TITLES_NOTE = (
    "Document titles stand in for document text: the contexts are embeddings of the titles, where "
    "the paper embeds the whole documents."
)

PHASES = ("world", "logs", "reward model", "policy", "bound", "evaluation")


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
        means = [mean(runs.logging(level, key)) for level in runs.levels]
        rows.append((name, "here", *map(number, means)))
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
            numbers = [runs.numbers(method, level, novelty(how)) for level in runs.levels]
            cells = [rate(int((f >= ADEQUATE).sum()), len(f)) for f in numbers]
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
        figures = [over_seeds(runs.numbers(method, v, measure(how))) for v in runs.levels]
        rows.append((NAMES[method], POLICIES[how], figure, "here", *map(number, figures)))
    if paper.row(table, method):
        printed = [paper.get(table, method, level) for level in runs.levels]
        rows.append((NAMES[method], NONE, figure, "paper", *map(number, printed)))
    return rows


def _lowest(values: FloatArray) -> float | None:
    return float(values.min()) if len(values) else None


def exploration(runs: Runs, paper: Published) -> Table | None:
    """Novelty and value of certified exploration, DEPSUE and the paper, for each K."""
    rows: list[tuple[str, ...]] = []
    for ours, theirs in zip(EXPLORE, DEPSUE, strict=True):
        if ours not in runs.methods:
            continue
        figures: tuple[tuple[str, Measure, str, bool], ...] = (
            ("novelty", novelty(), "novelty_mean", True),
            ("value", value(), "value_mean", True),
            ("average novelty", novelty("average"), "novelty_mean", False),
        )
        for words, measure, table, both in figures:
            here = _means(runs, ours, measure)
            depsue = _means(runs, theirs, measure) if theirs in runs.methods and both else None
            printed: Figures = [paper.get(table, theirs, level) for level in runs.levels]
            rows.append((NAMES[ours], words, "certified exploration", *map(number, here)))
            if depsue is not None:
                rows.append((NAMES[ours], words, _here(runs, ours, theirs), *map(number, depsue)))
            if any(figure is not None for figure in printed):
                rows.append((NAMES[ours], words, "DEPSUE, paper", *map(number, printed)))
            verdict = [
                _at_least(figure, [p, None if depsue is None else depsue[i]])
                for i, (figure, p) in enumerate(zip(here, printed, strict=True))
            ]
            rows.append((NAMES[ours], words, "at least these", *verdict))
    if not rows:
        return None
    return Table(
        "exploration",
        f"Certified exploration against DEPSUE and the paper, mean over {runs.seeds_in_words()}",
        ("method", "figure", "source", *level_headings(runs)),
        tuple(rows),
        f"Novelty and value of the last policy over the test {runs.who}; 'average novelty' is over "
        "the deployments, held against the paper's figure. " + _pooled(runs),
    )


def _here(runs: Runs, ours: str, theirs: str) -> str:
    """Our DEPSUE, with its number of seeds where that is another one."""
    mine, other = (
        max(len(runs.numbers(method, level, novelty())) for level in runs.levels)
        for method in (ours, theirs)
    )
    return "DEPSUE, here" if mine == other else f"DEPSUE, here ({other} seeds)"


def _means(runs: Runs, method: str, measure: Measure) -> list[float | None]:
    return [mean(runs.numbers(method, level, measure)) for level in runs.levels]


def _at_least(figure: float | None, others: Sequence[float | None]) -> str:
    """yes or no, to the three digits that are shown."""
    known = [round(other, 3) for other in others if other is not None]
    if figure is None or not known:
        return NONE
    return "yes" if round(figure, 3) >= max(known) else "no"


def _pooled(runs: Runs) -> str:
    """Violations of all cells together, in both modes of safety, against delta."""
    delta = runs.recipe.exploration.delta
    words = []
    for promise, methods, how in (
        ("every deployment", EXPLORE, "any"),
        ("the sum up to each deployment", (*EXPLORE, *CUMULATIVE), "prefix"),
    ):
        for users, of in (("test", "test"), ("train", "training")):
            counts = [
                runs.violations(method, level, how, users)
                for method in methods
                if method in runs.methods
                for level in runs.levels
            ]
            wrong, n = sum(c[0] for c in counts), sum(c[1] for c in counts)
            if n:
                tail = binomial_tail(wrong, n, delta)
                words.append(f"{promise}, {of} {runs.who}: {wrong}/{n} (p = {tail:.2g})")
    return f"Runs below the floor, and how likely so many are at delta {delta:g}: " + "; ".join(
        words
    )


def wiki10(runs: Runs, paper: Published) -> Table | None:
    """Violation, relative value and novelty by epsilon; None for the other experiment."""
    if runs.recipe.experiment != "wiki10":
        return None
    rows: list[tuple[str, ...]] = []
    for method in runs.methods:
        for how in policies_of(method):
            cells: list[str] = []
            for level in runs.levels:
                cells += [
                    rate(*runs.violations(method, level, how)),
                    number(mean(runs.numbers(method, level, value(how)))),
                    number(mean(runs.numbers(method, level, novelty(how)))),
                ]
            rows.append((NAMES[method], POLICIES[how], "here", *cells))
        if paper.row("violations", method):
            cells = []
            for level in runs.levels:
                cells += [
                    rate(paper.get("violations", method, level), paper.seeds),
                    number(paper.get("value_mean", method, level)),
                    number(paper.get("novelty_mean", method, level)),
                ]
            rows.append((NAMES[method], NONE, "paper", *cells))
    headings = ["method", "policy", "source"]
    for level in runs.levels:
        name = f"{paper.level_name(level)} ({level:g})".strip()
        headings += [f"{name}: {figure}" for figure in ("violations", "value", "novelty")]
    return Table(
        "wiki10",
        f"Wiki10: violations, relative value and novelty, {runs.seeds_in_words()}",
        tuple(headings),
        tuple(rows),
        (f"{TITLES_NOTE} " if runs.of_titles else "")
        + "Over the test documents; a violation is V(pi) / V(pi0) < "
        f"{runs.recipe.floor:g}. The paper's figures are of {paper.seeds} seeds; it does not say "
        "whether K = 2 and 5 are the last policy or an average over the deployments.",
    )


def concept(runs: Runs, paper: Published) -> Table:
    """Learning offline, in a few deployments, and online: what each promises and what was seen."""
    offline = [m for m in OPG if m in runs.methods]
    staged = [m for m in DEPSUE if m in runs.methods]
    tried = ", ".join(f"K = {deployments_of(m)}" for m in staged) or "none finished yet"
    rows = (
        (
            "safety",
            f"no check: new actions can mislead the model. {_unsafe(runs, offline)}",
            "a lower bound is checked before every deployment, for the average so far. "
            + _unsafe(runs, staged),
            "poor choices while it learns. Not measured here",
        ),
        (
            "novelty",
            f"as it happens to fall out. {_novel(runs, offline)}",
            f"little at first, more as margin is earned. {_novel(runs, staged)}",
            "as much as it takes. Not measured here",
        ),
        ("deployments", "one: cheap", f"a few, chosen beforehand: {tried}", "many: dear"),
    )
    return Table(
        "concept",
        f"Three ways to learn with novel actions; all levels, {runs.seeds_in_words()}",
        ("", "offline (OPG)", "DEPSUE on top of Safe OPG", "online"),
        rows,
        f"Violations are of the average over the deployments, against the test {runs.who}, and "
        "novelty is the last policy's; both over the cells of all levels and seeds. Online "
        "learning is the paper's point of reference; neither the paper nor this run includes it.",
    )


def _unsafe(runs: Runs, methods: Sequence[str]) -> str:
    parts = []
    for method in methods:
        counts = [runs.violations(method, level, "average") for level in runs.levels]
        parts.append(f"{NAMES[method]} {sum(c for c, _ in counts)}/{sum(n for _, n in counts)}")
    return "Violated: " + ", ".join(parts) if parts else "Not measured yet"


def _novel(runs: Runs, methods: Sequence[str]) -> str:
    parts = []
    for method in methods:
        numbers = np.concatenate([runs.numbers(method, v, novelty()) for v in runs.levels])
        parts.append(f"{NAMES[method]} {number(mean(numbers))}")
    return "Mean: " + ", ".join(parts) if parts else "Not measured yet"


def validation(runs: Runs, paper: Published) -> Table | None:
    """IPS, DM and DR over the policies of OPG; None where nothing was validated."""
    rows: list[tuple[str, ...]] = []
    for method in OPG:
        if not validated(runs, method):
            continue
        for estimator in ESTIMATORS:
            v = verdicts(runs, method, estimator)
            rows.append(
                (
                    NAMES[method],
                    estimator.upper(),
                    number(v.unsafe_accepted),
                    rate(v.accepted, v.worse),
                    number(paper.error_rate(estimator, method, "type_2")),
                    number(v.safe_refused),
                    rate(v.refused, v.better),
                    number(paper.error_rate(estimator, method, "type_1")),
                )
            )
    if not rows:
        return None
    return Table(
        "validation_ope",
        f"Validation OPE: unsafe policies accepted and safe ones refused, {runs.seeds_in_words()}",
        (
            "method",
            "estimator",
            "unsafe accepted",
            "count",
            'paper: "type II"',
            "safe refused",
            "count of safe",
            'paper: "type I"',
        ),
        tuple(rows),
        f"Over the policies of all levels and seeds; {runs.recipe.validation_rows:,} validation "
        "rows of pi0 each. Unsafe: V(pi) <= V(pi0) on the test users; accepted: the estimate is "
        "above pi0's mean reward on the validation rows. Shares are among the unsafe, and among "
        "the safe policies; '-' where there is none. The paper prints these shares under the names "
        "type II and type I, which are swapped against its own hypotheses (H0: no better than "
        "pi0): accepting an unsafe policy is an error of the first kind."
        + (
            f" Its {paper.seeds * len(paper.levels)} policies are of {paper.seeds} seeds."
            if paper.seeds
            else ""
        ),
    )


def training(runs: Runs, paper: Published) -> Table | None:
    """Bound, need and margin of every deployment of DEPSUE, and how often the bound passed."""
    rows: list[tuple[str, ...]] = []
    for method in DEPSUE:
        if method not in runs.methods:
            continue
        for k in range(1, deployments_of(method) + 1):
            name = (NAMES[method], str(k))
            for figure in ("margin", "need", "bound"):
                means = [mean(runs.numbers(method, v, _over_pi0(figure, k))) for v in runs.levels]
                rows.append((*name, figure, *map(number, means)))
            passed = [runs.numbers(method, v, _passed(k)) for v in runs.levels]
            rows.append((*name, "passed", *[rate(float(p.sum()), len(p)) for p in passed]))
            means = [mean(runs.numbers(method, v, _true_value(k))) for v in runs.levels]
            rows.append((*name, "true value", *map(number, means)))
    if not rows:
        return None
    return Table(
        "training",
        f"What training promised, deployment by deployment, mean over {runs.seeds_in_words()}",
        ("method", "k", "figure", *level_headings(runs)),
        tuple(rows),
        "Over pi0's value: margin, need and bound over V_on(pi0), the mean reward of its logs; the "
        f"true value over the true V(pi0), on the training {runs.who}, whom the bound speaks of. "
        "need = "
        "floor - margin. Passed: seeds in which the bound exceeds the need; as in the paper, a "
        "policy that does not pass is deployed all the same.",
    )


def time_spent(runs: Runs, paper: Published) -> Table:
    """Seconds per phase and method, and the peak of memory."""
    rows: list[tuple[str, ...]] = []
    totals: list[dict[str, float]] = []
    seen = {name for m in runs.methods for result in runs.over(m) for name in result["seconds"]}
    phases = (*PHASES, *sorted(seen - set(PHASES)))
    for method in runs.methods:
        results = runs.over(method)
        seconds = {name: _mean_seconds(results, name) for name in phases}
        totals.append(seconds)
        rows.append((NAMES[method], *_times(seconds), f"{_peak(results):,.0f}"))
    sums = {name: sum(t[name] for t in totals) for name in phases}
    peak = max(_peak(runs.over(method)) for method in runs.methods)
    rows.append(("all, one after the other", *_times(sums), f"{peak:,.0f}"))
    return Table(
        "time",
        f"Where the time went: seconds per cell, mean over levels and {runs.seeds_in_words()}",
        ("method", *phases, "total", "peak MiB"),
        tuple(rows),
        "One thread per cell. The last line is one level and one seed with all methods. 'world' is "
        "small where a cell found the worlds of the cell before it; 'policy' leaves out the bound. "
        "The peak is that of the process, which runs many cells one after the other.",
    )


def _over_pi0(figure: str, k: int) -> Measure:
    return lambda result: float(result["deployments"][k - 1][figure]) / float(result["on_policy"])


def _passed(k: int) -> Measure:
    return lambda result: float(result["deployments"][k - 1]["passed"])


def _true_value(k: int) -> Measure:
    return lambda result: float(
        result["deployments"][k - 1]["value_train"] / result["logging"]["value_train"]
    )


def _mean_seconds(results: list[Result], name: str) -> float:
    return float(np.mean([result["seconds"].get(name, 0.0) for result in results]))


def _times(seconds: dict[str, float]) -> list[str]:
    cells = [number(s, 1) if s else NONE for s in seconds.values()]
    return [*cells, number(sum(seconds.values()), 1)]


def _peak(results: list[Result]) -> float:
    return max(float(result["peak_mib"]) for result in results)


def level_headings(runs: Runs) -> Row:
    """beta=-24, ..."""
    return tuple(f"{runs.recipe.level_name}={level:g}" for level in runs.levels)


def _beside(paper: Published) -> str:
    if not paper.seeds:
        return "The paper has no figures of this simulator."
    return f"The paper's figures are of {paper.seeds} seeds."


TABLES: tuple[Callable[[Runs, Published], Table | None], ...] = (
    logging_policies,
    exploration,
    wiki10,
    violations,
    relative_value,
    novelty_table,
    adequate_novelty,
    validation,
    concept,
    training,
    time_spent,
)
"""Each makes its table from the finished cells and the paper's figures, or None where the
experiment has nothing to fill it with."""
