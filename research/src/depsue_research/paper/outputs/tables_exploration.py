"""Certified exploration beside DEPSUE and the paper: every cell, and the violations pooled."""

from __future__ import annotations

from collections.abc import Sequence

from depsue.testing.binomial import binomial_tail
from depsue_research.paper.outputs.intervals import mean
from depsue_research.paper.outputs.method_names import NAMES
from depsue_research.paper.outputs.published import Published
from depsue_research.paper.outputs.reading import (
    CUMULATIVE,
    DEPSUE,
    EXPLORE,
    Measure,
    Runs,
    novelty,
    value,
)
from depsue_research.paper.outputs.table import NONE, Table, number
from depsue_research.paper.outputs.tables_outcome import level_headings

Figures = Sequence[float | None]


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
