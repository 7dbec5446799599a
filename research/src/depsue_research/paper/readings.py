"""Which reading of the paper gives its tables: a search with a distance that was fixed before it.

The paper leaves parts of its training open (docs/learners.md, "Readings"). A *reading* is a recipe
with some lines changed. `search` runs the same cells under each reading and says how far its tables
are from the paper's. Cells are kept, one folder a reading, so a search goes on where it was cut
short.

The distance of a reading was fixed before any reading was run, and is not changed by what it says::

    distance = mean over the paper's rows m of (gaps_m[1] + ... + gaps_m[5]) / 5

Each gap is a mean over levels: (1) of the value, in units of what counts as close for this row
(`CLOSE`), (2) of the novelty, likewise, (3) of the deviation of novelty over seeds, as
|log2((s + .005) / (s_paper + .005))|, with two seeds or more, (4) of the share of runs below the
floor, in tenths, (5) of the share of runs with novelty above .1, in fifths. 1 means: as far off as
may be. Wiki10 has no (3) and (5) in the paper. Rows with K >= 2 are read as their last policy, or
as the mean over the deployments; both are shown, and the better one for *all* of them counts.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from depsue.errors import FileError, require, short
from depsue_research.paper.cells import Cell, CellStore, Result
from depsue_research.paper.outputs.published import Published, published_for
from depsue_research.paper.outputs.reading import NAMES, Runs, novelty, value
from depsue_research.paper.recipe import Recipe, deployments_of, recipe_folder, recipe_from

CLOSE: Mapping[str, tuple[float, float]] = {
    "depsue_1": (0.012, 0.015),
    "depsue_2": (0.02, 0.03),
    "depsue_5": (0.025, 0.035),
    "opg_mean": (0.03, 0.06),
    "opg_min": (0.03, 0.06),
    "opg_cql": (0.03, 0.08),
}
"""By method, the mean absolute difference of value and novelty that counts as close."""
ADEQUATE = 0.1
"""The novelty above which the paper counts a policy as exploring enough."""
SMALL = 0.005
"""Added to deviations before their ratio: the paper prints three digits."""


@dataclass(frozen=True)
class Reading:
    """One way to read the paper.

    Args:
        name: of the reading.
        recipe: all its settings.
        words: what it changes, as lines of a recipe.
    """

    name: str
    recipe: Recipe
    words: str


@dataclass(frozen=True)
class Distance:
    """How far the tables of a reading are from the paper's.

    Args:
        reading: its name.
        how: how rows with K >= 2 are read: "last" or "average".
        seeds: how many seeds each cell has, at least.
        rows: by method, the five gaps; NaN where the paper has no figure.
    """

    reading: str
    how: str
    seeds: int
    rows: Mapping[str, tuple[float, ...]]

    @property
    def of_row(self) -> dict[str, float]:
        """By method, the mean of its gaps."""
        return {method: float(np.nanmean(gaps)) for method, gaps in self.rows.items()}

    @property
    def total(self) -> float:
        """The mean over rows."""
        return float(np.mean(list(self.of_row.values())))


def load_readings(path: str | Path) -> list[Reading]:
    """The readings in a TOML file: a shipped recipe as `recipe`, and [reading.NAME] tables.

    A table changes lines of the recipe: `safe_opg = { factor = "none", rate = 0.01 }`.
    """
    path = Path(path)
    try:
        text = tomllib.loads(path.read_text("utf-8"))
        base = tomllib.loads((recipe_folder() / f"{text['recipe']}.toml").read_text("utf-8"))
    except (OSError, KeyError, UnicodeDecodeError, tomllib.TOMLDecodeError) as problem:
        raise FileError(
            "a file of readings must be TOML with the name of a recipe that is shipped",
            found=f"{path}: {problem}",
            cure='begin with recipe = "paper-movielens", then [reading.NAME] tables',
        ) from problem
    tables = text.get("reading", {})
    require(
        isinstance(tables, dict) and len(tables) > 0,
        "a file of readings needs a table for each",
        found=short(tables),
        cure="[reading.as-printed], then [reading.weak-q] with rewards = { max_epochs = 1 }",
    )
    readings = []
    for name, changes in tables.items():
        words = ", ".join(_lines(changes))
        recipe = recipe_from(_changed(base, changes), f"{text['recipe']} {name}")
        readings.append(Reading(name, recipe, words or "nothing"))
    return readings


def _changed(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    values = dict(base)
    for name, change in changes.items():
        old = values.get(name)
        values[name] = {**old, **change} if isinstance(old, dict) else change
    return values


def _lines(changes: Mapping[str, Any], part: str = "") -> Iterable[str]:
    for name, change in changes.items():
        if isinstance(change, dict):
            yield from _lines(change, f"{name}.")
        else:
            yield f"{part}{name} = {change}"


Run = Callable[[Recipe, CellStore], Mapping[Cell, Result]]
"""Runs the cells of a recipe that are not in the store yet, and returns all."""


def search(
    readings: Iterable[Reading],
    folder: Path,
    run: Run,
    *,
    levels: tuple[float, ...] | None = None,
    methods: tuple[str, ...] = tuple(CLOSE),
    bound_every: int = 100,
) -> list[Distance]:
    """Run every reading on the same cells, and measure; the closest comes first.

    Args:
        readings: which.
        folder: a folder in it for the cells of each.
        run: runs cells.
        levels: only these; None: all of the recipe's.
        methods: the rows of the paper that are looked at.
        bound_every: steps between bounds.
    """
    found = []
    for reading in readings:
        recipe = reading.recipe.with_options(
            levels=levels, methods=methods, bound_every=bound_every
        )
        results = run(recipe, CellStore(folder / reading.name))
        found.append(distance(reading.name, Runs(recipe, results)))
    return sorted(found, key=lambda d: d.total)


def distance(name: str, runs: Runs) -> Distance:
    """How far the tables of these cells are from the paper's; K >= 2 read as what is closer."""
    ways = (Distance(name, how, _fewest(runs), _rows(runs, how)) for how in ("last", "average"))
    return min(ways, key=lambda d: d.total)


def _fewest(runs: Runs) -> int:
    return min(len(runs.of(m, v)) for m in runs.methods for v in runs.levels)


def _rows(runs: Runs, how: str) -> dict[str, tuple[float, ...]]:
    paper = published_for(runs.recipe)
    rows = {m: _gaps(runs, paper, m, how) for m in runs.methods if m in CLOSE}
    require(
        len(rows) > 0,
        "there must be finished cells of a row that the paper has",
        found=f"cells of {', '.join(runs.methods) or 'no method'}",
        cure=f"run some of {', '.join(CLOSE)}",
    )
    if {"opg_mean", "opg_min"} <= set(rows):  # the paper has one row for both
        closer = min(("opg_mean", "opg_min"), key=lambda m: float(np.nanmean(rows[m])))
        del rows["opg_min" if closer == "opg_mean" else "opg_mean"]
    return rows


def _gaps(runs: Runs, paper: Published, method: str, how: str) -> tuple[float, ...]:
    close_value, close_novelty = CLOSE[method]
    own = how if deployments_of(method) > 1 else "last"
    gaps: list[list[float]] = [[], [], [], [], []]
    for level in runs.levels:
        values = runs.numbers(method, level, value(own))
        novelties = runs.numbers(method, level, novelty(own))
        if not len(values):
            continue
        seeds = len(values)
        ours = (
            float(values.mean()) / close_value,
            float(novelties.mean()) / close_novelty,
            math.log2(novelties.std(ddof=1) + SMALL) if seeds > 1 else math.nan,
            10 * float((values < runs.recipe.floor).mean()),
            5 * float((novelties >= ADEQUATE).mean()),
        )
        deviation = paper.get("novelty_deviation", method, level)
        theirs = (
            _over(paper.get("value_mean", method, level), close_value),
            _over(paper.get("novelty_mean", method, level), close_novelty),
            math.nan if deviation is None else math.log2(deviation + SMALL),
            _over(paper.get("violations", method, level), paper.seeds / 10),
            _over(paper.get("novelty_reached", method, level), paper.seeds / 5),
        )
        for gap, a, b in zip(gaps, ours, theirs, strict=True):
            gap.append(abs(a - b))
    return tuple(float(np.nanmean(gap)) if np.isfinite(gap).any() else math.nan for gap in gaps)


def _over(figure: float | None, unit: float) -> float:
    return math.nan if figure is None else figure / unit


def table(distances: Iterable[Distance], readings: Iterable[Reading]) -> list[str]:
    """Markdown: one line a reading, the closest first, with what it changes."""
    words = {reading.name: reading.words for reading in readings}
    distances = list(distances)
    methods = [m for m in CLOSE if any(m in d.rows for d in distances)]
    head = ["reading", "distance", *(NAMES[m] for m in methods), "K >= 2", "seeds", "changes"]
    lines = ["| " + " | ".join(head) + " |", "|---|" + "--:|" * (len(methods) + 1) + "---|--:|---|"]
    for d in distances:
        parts = [f"{d.of_row[m]:.2f}" if m in d.rows else "" for m in methods]
        cells = [d.reading, f"**{d.total:.2f}**", *parts, d.how, str(d.seeds), words[d.reading]]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def only(readings: Iterable[Reading], names: Sequence[str] | None) -> list[Reading]:
    """Those of these names; all if there are no names."""
    readings = list(readings)
    if names is None:
        return readings
    known = {reading.name: reading for reading in readings}
    unknown = sorted(set(names) - set(known))
    require(
        not unknown,
        "readings must be in the file",
        found=", ".join(unknown),
        cure=f"choose from {', '.join(known)}",
    )
    return [known[name] for name in dict.fromkeys(names)]
