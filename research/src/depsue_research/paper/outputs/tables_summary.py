"""The paper's Wiki10 table, and its comparison of three ways to learn, with what was measured."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from depsue_research.paper.outputs.intervals import mean
from depsue_research.paper.outputs.method_names import NAMES, POLICIES
from depsue_research.paper.outputs.published import Published
from depsue_research.paper.outputs.reading import DEPSUE, OPG, Runs, novelty, policies_of, value
from depsue_research.paper.outputs.table import NONE, Table, number, rate
from depsue_research.paper.recipe import deployments_of

TITLES_NOTE = (
    "Document titles stand in for document text: the contexts are embeddings of the titles, where "
    "the paper embeds the whole documents."
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
        found = np.concatenate([runs.numbers(method, v, novelty()) for v in runs.levels])
        parts.append(f"{NAMES[method]} {number(mean(found))}")
    return "Mean: " + ", ".join(parts) if parts else "Not measured yet"
