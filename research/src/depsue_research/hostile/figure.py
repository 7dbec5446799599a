"""Novelty against value, a panel for each world."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from depsue_research.hostile.campaigns import FLOOR, RECIPE
from depsue_research.hostile.store import Result
from depsue_research.hostile.summary import Group, groups
from depsue_research.hostile.worlds import WORLDS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, GREEN, BROWN, RED, GREY = "#1f5a96", "#2e7d4f", "#8a5a00", "#b3312c", "#6b7280"
COLOURS = {1: BROWN, 2: GREEN, 5: BLUE}
MARKERS = {"each": "o", "cumulative": "^"}
PLACES = ((1, "each"), (2, "each"), (2, "cumulative"), (5, "each"), (5, "cumulative"))
DODGE = 0.01
"""By so much in novelty the marks of neighbouring kinds are set apart, or they would hide each
other at the level that is certain and at one half."""
TITLES = {
    "plain": "plain",
    "worthless": "worthless novel items",
    "rare rewards": "a reward in 1,000",
    "deterministic": "pi0 almost deterministic",
}


def figure(results: Sequence[Result]) -> Figure:
    """Each campaign's last deployment as a small mark, their means as large ones.

    Marks of the five kinds are set apart a little. In the mode `cumulative` the promise is about
    the mean over the deployments, so single deployments may lie below the floor there.
    """
    from matplotlib.figure import Figure as NewFigure

    found = [g for g in groups(results) if g.runs and g.objective == RECIPE]
    drawn = NewFigure(figsize=(10.5, 7.6), layout="constrained")
    for axis, name in zip(drawn.subplots(2, 2).ravel(), WORLDS, strict=True):
        own = [g for g in found if g.world == name]
        for group in own:
            _marks(axis, group)
        _frame(axis, own, TITLES[name])
    drawn.legend(handles=_handles(), loc="outside lower center", ncols=5, frameon=False, fontsize=9)
    return drawn


def _marks(axis: Axes, group: Group) -> None:
    place = PLACES.index((group.deployments, group.safety))
    x, y = group.novelty[:, -1] + DODGE * (place - 2), group.value[:, -1]
    colour, marker = COLOURS[group.deployments], MARKERS[group.safety]
    axis.scatter(x, y, s=16, marker=marker, color=colour, alpha=0.3, lw=0, zorder=2)
    axis.scatter(
        x.mean(), y.mean(), s=85, marker=marker, color=colour, edgecolors="white", zorder=4
    )


def _frame(axis: Axes, own: Sequence[Group], title: str) -> None:
    values = np.concatenate([[0.95, 1.0], *(g.value[:, -1] for g in own)])
    room = 0.06 * float(values.max() - values.min())
    low, high = float(values.min()) - room, float(values.max()) + room
    axis.axhspan(low - 1, FLOOR, color=RED, alpha=0.05, lw=0)
    axis.axhline(FLOOR, color=RED, ls="--", lw=1.1, zorder=1)
    axis.axhline(1.0, color=GREY, ls=":", lw=0.9, zorder=1)
    axis.axvline(1 - FLOOR, color=GREY, ls="-.", lw=0.9, zorder=1)
    naive = [run["naive_value"] for g in own for run in g.runs]
    if naive:
        axis.scatter(
            1 - FLOOR, np.mean(naive), s=75, marker="s", color=GREY, edgecolors="white", zorder=5
        )
    axis.set(
        title=title,
        xlim=(-0.03, 0.54),
        ylim=(low, high),
        xlabel="novelty of the last deployment",
        ylabel="true value / V(pi0)",
    )
    axis.spines[["top", "right"]].set_visible(False)


def _handles() -> list[object]:
    from matplotlib.lines import Line2D

    marks = [("K = 1", BROWN, "o")]
    for k in (2, 5):
        marks += [(f"K = {k}, {how}", COLOURS[k], marker) for how, marker in MARKERS.items()]
    marks.append(("Naive Safe Exploration", GREY, "s"))
    lines = [("floor", RED, "--"), ("V(pi0)", GREY, ":"), ("level that is certain", GREY, "-.")]
    return [
        *(Line2D([], [], ls="none", marker=m, ms=8, color=c, label=name) for name, c, m in marks),
        *(Line2D([], [], color=c, ls=style, lw=1.2, label=name) for name, c, style in lines),
    ]
