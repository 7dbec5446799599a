"""Novelty against value: certified exploration, DEPSUE, the paper, Naive Safe Exploration."""

from __future__ import annotations

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, NullLocator

from depsue_research.paper.outputs.drawing import floor_handle, floor_line, legend_below, plain
from depsue_research.paper.outputs.intervals import mean
from depsue_research.paper.outputs.published import Published
from depsue_research.paper.outputs.reading import DEPSUE, EXPLORE, Runs, novelty, value
from depsue_research.paper.recipe import deployments_of

SHAPES = {"ours": "*", "depsue": "o", "naive": "X"}
DARK = "#444c56"
WIDE = 4.0
"""Where values reach further, their axis is logarithmic."""


def exploration(runs: Runs, paper: Published) -> Figure | None:
    """One panel a K, one colour a level; a line leads from DEPSUE to certified exploration."""
    pairs = [pair for pair in zip(EXPLORE, DEPSUE, strict=True) if pair[0] in runs.methods]
    if not pairs:
        return None
    figure = Figure(figsize=(4.3 * len(pairs), 4.8), layout="constrained")
    axes = np.atleast_1d(figure.subplots(1, len(pairs), sharey=True))
    colours = colormaps["viridis"](np.linspace(0, 0.93, len(runs.levels)))
    for axis, (ours, depsue) in zip(axes, pairs, strict=True):
        for level, colour in zip(runs.levels, colours, strict=True):
            here, there = _point(runs, ours, level), _point(runs, depsue, level)
            printed = (
                paper.get("novelty_mean", depsue, level),
                paper.get("value_mean", depsue, level),
            )
            if here and there:
                axis.plot(*zip(there, here, strict=True), color=colour, lw=0.9, alpha=0.7)
            if naive := _point(runs, "naive_safe", level):
                axis.plot(*naive, SHAPES["naive"], color="#9aa0a6", ms=5, zorder=1)
            if printed[0] is not None and printed[1] is not None:
                axis.plot(*printed, SHAPES["depsue"], color=colour, mfc="none", ms=7)
            if there:
                axis.plot(*there, SHAPES["depsue"], color=colour, ms=6)
            if here:
                axis.plot(*here, SHAPES["ours"], color=colour, ms=13)
        floor_line(axis, runs)
        plain(axis)
        axis.set(title=f"K = {deployments_of(ours)}", xlabel="novelty N(pi)")
        axis.set_xlim(left=-0.01)
    axes[0].set_ylabel("value V(pi) / V(pi0)")
    if axes[0].get_ylim()[1] > WIDE:
        axes[0].set_yscale("log")
        axes[0].yaxis.set_major_locator(FixedLocator([1, 2, 3, 5, 10, 20, 50]))
        axes[0].yaxis.set_major_formatter("{x:g}")
        axes[0].yaxis.set_minor_locator(NullLocator())
        axes[0].set_ylim(bottom=0.85)
    marks = [
        _handle(SHAPES["ours"], "certified exploration", ms=11),
        _handle(SHAPES["depsue"], "DEPSUE, here"),
        *([_handle("o", "DEPSUE, the paper's", mfc="none")] if paper.seeds else []),
        _handle(SHAPES["naive"], "Naive Safe Exploration", color="#9aa0a6"),
        floor_handle(),
    ]
    levels = [
        _handle("s", f"{runs.recipe.level_name} = {level:g}", color=colour)
        for level, colour in zip(runs.levels, colours, strict=True)
    ]
    legend_below(figure, [*marks, *levels], 6)
    return figure


def _point(runs: Runs, method: str, level: float) -> tuple[float, float] | None:
    x, y = (mean(runs.numbers(method, level, measure)) for measure in (novelty(), value()))
    return None if x is None or y is None else (x, y)


def _handle(marker: str, label: str, **style: object) -> Line2D:
    settings = {"color": DARK, "ms": 6, **style}
    return Line2D([], [], ls="none", marker=marker, label=label, **settings)  # type: ignore[arg-type]
