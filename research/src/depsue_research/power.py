"""Certified novelty before and after: two folders of cells side by side, as a table in a page.

The page, docs/results/power.md, is written by hand around the table, which stands between two
marks and is made again by `depsue-research power`.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from depsue.errors import require
from depsue_research.paper.cells import GATHERED, Cell, Result
from depsue_research.paper.outputs.reading import NAMES

FLOOR = 0.95
BEGIN, END = "<!-- table -->", "<!-- end of table -->"
HEADINGS = (
    "| method | beta | seeds | last novelty | novelty over deployments | difference (standard "
    "error) | last value / V(pi0) | runs below the floor |\n|---|--:|--:|--:|--:|--:|--:|--:|"
)


def cells_in(folder: Path) -> dict[Cell, Result]:
    """All finished cells of certified exploration in a folder, gathered or not."""
    gathered = folder / GATHERED
    texts = gathered.read_text("utf-8").splitlines() if gathered.exists() else []
    texts += [path.read_text("utf-8") for path in sorted((folder / "cells").glob("*.json"))]
    results = [json.loads(text) for text in texts]
    return {Cell.of(r): r for r in results if str(r["method"]).startswith("explore")}


def last_novelty(result: Result) -> float:
    """N of the last policy, over the test users."""
    return float(result["deployments"][-1]["novelty_test"])


def mean_novelty(result: Result) -> float:
    """N over all deployments."""
    return float(np.mean([d["novelty_test"] for d in result["deployments"]]))


def last_value(result: Result) -> float:
    """V of the last policy over V(pi0)."""
    return float(result["deployments"][-1]["value_test"] / result["logging"]["value_test"])


def below_floor(result: Result) -> bool:
    """Whether a deployment, or in `cumulative` their sum so far, is below the floor in truth."""
    values = np.array([d["value_train"] for d in result["deployments"]])
    if str(result["method"]).endswith("cumulative"):
        values = np.cumsum(values) / np.arange(1, len(values) + 1)
    return bool((values < FLOOR * result["logging"]["value_train"]).any())


def table_lines(before: Mapping[Cell, Result], after: Mapping[Cell, Result]) -> Iterator[str]:
    """A row for each method and level that both have, over the seeds that both have."""
    shared = sorted(set(before) & set(after))
    require(
        bool(shared),
        "both folders must have a cell in common",
        found=f"{len(before)} cells before, {len(after)} after",
        cure="run depsue-research reproduce with the same methods, levels and seeds",
    )
    groups: dict[tuple[str, float], list[Cell]] = defaultdict(list)
    for cell in shared:
        groups[cell.method, cell.level].append(cell)
    yield HEADINGS
    for (method, level), cells in sorted(groups.items()):

        def pair(measure: Callable[[Result], float], cells: list[Cell] = cells) -> str:
            sides = [np.mean([measure(side[c]) for c in cells]) for side in (before, after)]
            return f"{sides[0]:.3f} -> {sides[1]:.3f}"

        broken = [sum(below_floor(side[c]) for c in cells) for side in (before, after)]
        yield (
            f"| {NAMES.get(method, method)} | {level:g} | {len(cells)} | {pair(last_novelty)} "
            f"| {pair(mean_novelty)} | {difference(before, after, cells)} | {pair(last_value)} "
            f"| {broken[0]} -> {broken[1]} |"
        )
    for method in dict.fromkeys(method for method, _ in sorted(groups)):
        cells = [cell for (name, _), mine in groups.items() if name == method for cell in mine]
        sides = [np.mean([mean_novelty(side[c]) for c in cells]) for side in (before, after)]
        yield (
            f"| **{NAMES.get(method, method)}** | all | {len(cells)} |  "
            f"| {sides[0]:.3f} -> {sides[1]:.3f} | {difference(before, after, cells)} |  |  |"
        )


def difference(
    before: Mapping[Cell, Result], after: Mapping[Cell, Result], cells: Sequence[Cell]
) -> str:
    """The mean difference of novelty over deployments, cell by cell, with its standard error."""
    each = np.array([mean_novelty(after[c]) - mean_novelty(before[c]) for c in cells])
    if len(each) < 2:
        return f"{each.mean():+.3f}"
    return f"{each.mean():+.3f} ({each.std(ddof=1) / np.sqrt(len(each)):.3f})"


def with_table(page: str, table: str, name: str = "") -> str:
    """The page with another table between its marks; marks at its end where it has none.

    Args:
        page: what is written.
        table: the table.
        name: which of several tables.
    """
    begin, end = (mark.replace("table", f"table {name}") if name else mark for mark in (BEGIN, END))
    if begin not in page or end not in page:
        page = page or "# Certified novelty, before and after\n"
        page = f"{page.rstrip()}\n\n{begin}\n{end}\n"
    head, rest = page.split(begin, 1)
    return f"{head}{begin}\n{table}\n{end}{rest.split(end, 1)[1]}"
