"""What the figures of a reproduction share: axes over levels, points with intervals, legends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from depsue.data.checks import FloatArray
from depsue_research.paper.outputs.published import Published
from depsue_research.paper.outputs.reading import Runs, half_width, mean

COLOURS = {
    "opg_mean": "#e69f00",
    "opg_min": "#d55e00",
    "opg_cql": "#cc79a7",
    "naive_safe": "#7f7f7f",
    "depsue_1": "#56b4e9",
    "depsue_2": "#0072b2",
    "depsue_5": "#009e73",
    "explore_1": "#b8860b",
    "explore_2": "#8b1a1a",
    "explore_5": "#4b0082",
    "explore_2_cumulative": "#cd5c5c",
    "explore_5_cumulative": "#9370db",
}
"""Okabe and Ito's colours, which colour-blind readers can tell apart; darker ones for ours."""

MARKERS = {
    "opg_mean": "s",
    "opg_min": "D",
    "opg_cql": "^",
    "naive_safe": "X",
    "depsue_1": "o",
    "depsue_2": "v",
    "depsue_5": "P",
    "explore_1": "*",
    "explore_2": "<",
    "explore_5": "h",
    "explore_2_cumulative": ">",
    "explore_5_cumulative": "H",
}

RED, GREY = "#b3312c", "#6b7280"

DODGE = 0.13
"""How far the marks of neighbouring methods stand apart, in levels."""


def offsets(count: int) -> FloatArray:
    """(count,) shifts around 0, so that intervals at one level do not hide each other."""
    return (np.arange(count) - (count - 1) / 2) * DODGE


def with_intervals(
    axis: Axes, places: FloatArray, groups: Sequence[FloatArray], method: str, **style: Any
) -> None:
    """Means over the seeds with 95% t-intervals, one a level; levels without seeds are left out,
    and one seed has no interval.

    Args:
        axis: where to draw.
        places: (L,) positions, one a level.
        groups: L arrays, one number a seed.
        method: gives colour and marker.
        style: further settings of the line.
    """
    filled = [i for i, group in enumerate(groups) if len(group)]
    axis.errorbar(
        places[filled],
        [mean(groups[i]) or 0.0 for i in filled],
        yerr=[np.nan if (half := half_width(groups[i])) is None else half for i in filled],
        **{
            "color": COLOURS[method],
            "marker": MARKERS[method],
            "ms": 5.5,
            "lw": 1.3,
            "capsize": 2.5,
            "elinewidth": 1.1,
            **style,
        },
    )


def paper_marks(
    axis: Axes,
    places: FloatArray,
    runs: Runs,
    paper: Published,
    table: str,
    method: str,
    over: float = 1.0,
) -> None:
    """The paper's figures as hollow marks, divided by `over`, where it has any."""
    printed = [paper.get(table, method, level) for level in runs.levels]
    marks = [(x, y / over) for x, y in zip(places, printed, strict=True) if y is not None]
    if marks:
        axis.plot(
            [x for x, _ in marks],
            [y for _, y in marks],
            ls="none",
            marker=MARKERS[method],
            ms=6.5,
            mfc="none",
            mew=1.2,
            color=COLOURS[method],
            label="_paper",
        )


def paper_handle() -> Line2D:
    """The legend's entry for hollow marks."""
    return Line2D([], [], ls="none", marker="o", mfc="none", color="#444c56", label="the paper's")


def level_axis(axis: Axes, runs: Runs) -> FloatArray:
    """Label the levels of a recipe, equally far apart, and return their (L,) positions."""
    places = np.arange(len(runs.levels), dtype=float)
    axis.set_xticks(places, [f"{level:g}" for level in runs.levels])
    axis.set_xlim(-0.6, len(places) - 0.4)
    axis.set_xlabel(f"{runs.recipe.level_name} of the logging policy")
    return places


def floor_line(axis: Axes, runs: Runs) -> None:
    """The floor over V(pi0), and pi0 itself."""
    axis.axhline(runs.recipe.floor, color=RED, ls="--", lw=1.1, zorder=0)
    axis.axhline(1, color=GREY, ls=":", lw=0.9, zorder=0)


def floor_handle() -> Line2D:
    """The legend's entry for the floor."""
    return Line2D([], [], color=RED, ls="--", lw=1.1, label="floor")


def plain(axis: Axes) -> None:
    """No frame at the top and the right."""
    axis.spines[["top", "right"]].set_visible(False)


def legend_below(figure: Figure, handles: Sequence[Any], columns: int) -> None:
    """One legend under all panels."""
    figure.legend(
        handles=list(handles), loc="outside lower center", ncols=columns, frameon=False, fontsize=9
    )


def method_handle(method: str, label: str, **style: Any) -> Line2D:
    """The legend's entry for a method."""
    return Line2D(
        [],
        [],
        color=COLOURS[method],
        **{"marker": MARKERS[method], "ms": 5.5, "lw": 1.3, "label": label, **style},
    )
