"""Figures of what came of it: value, violation and novelty over levels, K and stages."""

from __future__ import annotations

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from depsue.data.checks import FloatArray
from depsue.testing.binomial import rate_interval
from depsue_research.paper.outputs.drawing import (
    floor_handle,
    floor_line,
    legend_below,
    level_axis,
    method_handle,
    offsets,
    paper_handle,
    paper_marks,
    plain,
    with_intervals,
)
from depsue_research.paper.outputs.method_names import COLOURS, MARKERS, NAMES
from depsue_research.paper.outputs.published import Published
from depsue_research.paper.outputs.reading import DEPSUE, OPG, Runs, novelties, relative_values
from depsue_research.paper.outputs.reading import novelty as novelty_of
from depsue_research.paper.outputs.reading import value as value_of

VALUE = "value V(pi) / V(pi0)"
NOVELTY = "novelty N(pi)"


def over_levels(runs: Runs, paper: Published) -> Figure | None:
    """Value, violation and novelty of OPG and Safe OPG over the levels, with 95% intervals."""
    methods = [m for m in (*OPG, "depsue_1") if m in runs.methods]
    if not methods:
        return None
    figure = Figure(figsize=(12, 4.3), layout="constrained")
    value, violation, novelty = figure.subplots(1, 3)
    for method, shift in zip(methods, offsets(len(methods)), strict=True):
        places = level_axis(value, runs) + shift
        values = [runs.numbers(method, level, value_of()) for level in runs.levels]
        with_intervals(value, places, values, method)
        paper_marks(value, places, runs, paper, "value_mean", method)
        _violation_rates(violation, level_axis(violation, runs) + shift, runs, method)
        paper_marks(violation, places, runs, paper, "violations", method, over=paper.seeds)
        novel = [runs.numbers(method, level, novelty_of()) for level in runs.levels]
        with_intervals(novelty, level_axis(novelty, runs) + shift, novel, method)
        paper_marks(novelty, places, runs, paper, "novelty_mean", method)
    best = _best_novelty(novelty, runs)
    floor_line(value, runs)
    value.set(ylabel=VALUE)
    violation.set(ylabel=f"share of seeds below {runs.recipe.floor:g} V(pi0)", ylim=(-0.05, 1.05))
    novelty.set(ylabel=NOVELTY)
    for axis in (value, violation, novelty):
        plain(axis)
    safe = "Safe OPG = " + NAMES["depsue_1"]
    handles = [method_handle(m, safe if m == "depsue_1" else NAMES[m]) for m in methods]
    legend_below(figure, [*handles, best, floor_handle(), *_paper(paper)], 4)
    return figure


def over_k(runs: Runs, paper: Published) -> Figure | None:
    """Value and novelty of DEPSUE with K = 1, 2, 5: the last policy, and the average."""
    methods = [m for m in DEPSUE if m in runs.methods]
    if not methods:
        return None
    figure = Figure(figsize=(10, 7), layout="constrained")
    grid = figure.subplots(2, 2, sharex=True, sharey="col")
    for row, how in zip(grid, ("last", "average"), strict=True):
        for method, shift in zip(methods, offsets(len(methods)), strict=True):
            for axis, measure, table in (
                (row[0], value_of(how), "value_mean"),
                (row[1], novelty_of(how), "novelty_mean"),
            ):
                places = level_axis(axis, runs) + shift
                found = [runs.numbers(method, level, measure) for level in runs.levels]
                with_intervals(axis, places, found, method)
                paper_marks(axis, places, runs, paper, table, method)
        words = "last policy" if how == "last" else "average over the deployments"
        row[0].set(ylabel=VALUE, title=words)
        row[1].set(ylabel=NOVELTY, title=words)
        floor_line(row[0], runs)
        best = _best_novelty(row[1], runs)
        for axis in row:
            plain(axis)
            axis.label_outer()
            axis.tick_params(labelleft=True)
    grid[0, 1].set_ylabel(NOVELTY)
    grid[1, 1].set_ylabel(NOVELTY)
    handles = [method_handle(m, NAMES[m]) for m in methods]
    legend_below(figure, [*handles, best, floor_handle(), *_paper(paper)], 6)
    return figure


def stages(runs: Runs, paper: Published) -> Figure | None:
    """Value and novelty of the k-th deployment of DEPSUE (K=5), one line a level."""
    results = {level: runs.of("depsue_5", level) for level in runs.levels}
    kept = [level for level in runs.levels if results[level]]
    if not kept:
        return None
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    value, novelty = figure.subplots(1, 2)
    colours = colormaps["viridis"](np.linspace(0, 0.93, len(runs.levels)))
    handles = []
    for place, level in enumerate(runs.levels):
        if level not in kept:
            continue
        style = {"color": colours[place], "marker": "osD^vPX"[place % 7], "ms": 5, "lw": 1.4}
        label = f"{runs.recipe.level_name} = {level:g}"
        for axis, measure in ((value, relative_values), (novelty, novelties)):
            means = np.mean([measure(result) for result in results[level]], axis=0)
            axis.plot(np.arange(1, len(means) + 1), means, label=label, **style)
        handles.append(Line2D([], [], label=label, **style))
    floor_line(value, runs)
    value.set(ylabel=VALUE)
    novelty.set(ylabel=NOVELTY)
    for axis in (value, novelty):
        axis.set(xlabel="deployment k", xticks=range(1, 6))
        plain(axis)
    legend_below(figure, [*handles, floor_handle()], 8)
    return figure


def wiki10(runs: Runs, paper: Published) -> Figure | None:
    """Value and novelty per epsilon and method; None for the other experiment."""
    if runs.recipe.experiment != "wiki10" or not runs.methods:
        return None
    figure = Figure(figsize=(11, 4.6), layout="constrained")
    value, novelty = figure.subplots(1, 2)
    for method, shift in zip(runs.methods, offsets(len(runs.methods)), strict=True):
        for axis, measure, table in (
            (value, value_of(), "value_mean"),
            (novelty, novelty_of(), "novelty_mean"),
        ):
            places = level_axis(axis, runs) + shift
            found = [runs.numbers(method, level, measure) for level in runs.levels]
            with_intervals(axis, places, found, method, ls="none")
            paper_marks(axis, places, runs, paper, table, method)
    for axis in (value, novelty):
        names = [f"{level:g}\n{paper.level_name(level)}" for level in runs.levels]
        axis.set_xticks(range(len(names)), names)
        plain(axis)
    floor_line(value, runs)
    value.set(ylabel=VALUE + ", last policy")
    novelty.set(ylabel=NOVELTY + ", last policy")
    handles = [method_handle(m, NAMES[m], ls="none") for m in runs.methods]
    legend_below(figure, [*handles, floor_handle(), *_paper(paper)], 5)
    return figure


def _violation_rates(axis: Axes, places: FloatArray, runs: Runs, method: str) -> None:
    """Shares of seeds with exact 95% intervals: a t-interval of 0 of 5 would have no width. Of one
    seed there is none: it would span nearly everything."""
    counts = [runs.violations(method, level) for level in runs.levels]
    kept = [i for i, (_, n) in enumerate(counts) if n]
    rates = np.array([counts[i][0] / counts[i][1] for i in kept])
    intervals = [rate_interval(*counts[i]) if counts[i][1] > 1 else (np.nan, np.nan) for i in kept]
    limits = np.array(intervals).reshape(-1, 2)
    axis.errorbar(
        places[kept],
        rates,
        yerr=np.clip([rates - limits[:, 0], limits[:, 1] - rates], 0, None),
        color=COLOURS[method],
        marker=MARKERS[method],
        ms=5.5,
        lw=1.3,
        ecolor=to_rgba(COLOURS[method], 0.4),
        elinewidth=1,
    )


def _best_novelty(axis: Axes, runs: Runs) -> Line2D:
    """The novelty of pi*, one for all levels, and the legend's entry for it."""
    places = np.arange(len(runs.levels))
    best = np.full(len(places), runs.best_novelty().mean())
    axis.plot(places, best, color="black", ls="-.", lw=1.1)
    return Line2D([], [], color="black", ls="-.", lw=1.1, label="pi*")


def _paper(paper: Published) -> list[Line2D]:
    return [paper_handle()] if paper.seeds else []
