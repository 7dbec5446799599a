"""Figures of why: OPE against truth, distributions of q and q-hat, and R against the bound."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from depsue.data.checks import FloatArray
from depsue_research.paper.cells import Result
from depsue_research.paper.outputs.drawing import GREY, RED, legend_below, plain
from depsue_research.paper.outputs.published import Published
from depsue_research.paper.outputs.reading import NAIVE, Runs, relative_values, shares, shown_levels
from depsue_research.paper.outputs.tables_validation import ESTIMATORS, validated
from depsue_research.paper.outputs.training_facts import over_training, r_and_bound
from depsue_research.paper.run_cell import BINS

ESTIMATOR_STYLE = {"ips": ("#0072b2", "o"), "dm": ("#d55e00", "s"), "dr": ("#009e73", "^")}
STRETCH = 0.05
"""Within this of 1 the stretched scale is about linear."""
SUPPORTED, NOVEL = "#0072b2", "#d55e00"
MODELS = (
    ("q", "truth q", ("opg_mean", "opg_min", "opg_cql")),
    ("q_hat", "naive q-hat (mean)", ("opg_mean",)),
    ("q_hat", "q-hat of CQL", ("opg_cql",)),
)
"""Rows of the figure of distributions: the entry, its name, and the methods that have it."""


def ope_against_truth(runs: Runs, paper: Published) -> Figure | None:
    """What IPS, DM and DR say of the policies of OPG, against the truth, over V(pi0)."""
    panels = (("OPG (naive)", NAIVE), ("OPG (w/ CQL)", ("opg_cql",)))
    if not any(validated(runs, m) for _, methods in panels for m in methods):
        return None
    figure = Figure(figsize=(10, 4.9), layout="constrained")
    for axis, (title, methods) in zip(figure.subplots(1, 2), panels, strict=True):
        for method in methods:
            for estimator in ESTIMATORS:
                _estimates(axis, validated(runs, method), estimator, hollow=method == "opg_min")
        low, high = axis.get_xlim()
        diagonal = np.linspace(low, high, 60)  # a curve where the scale is stretched
        _stretched_near_one(axis)
        axis.plot(diagonal, diagonal, color=GREY, lw=0.9, zorder=0)
        axis.set_xlim(low, high)
        axis.axhline(1, color=RED, ls="--", lw=1.1, zorder=0)
        axis.axvline(1, color=GREY, ls=":", lw=0.9, zorder=0)
        axis.set(
            title=title,
            xlabel="true V(pi) / V(pi0), test users",
            ylabel="estimate / V_on(pi0), validation rows",
        )
        plain(axis)
    handles = [
        Line2D([], [], ls="none", marker=marker, color=colour, label=name.upper())
        for name, (colour, marker) in ESTIMATOR_STYLE.items()
    ]
    handles += [
        Line2D([], [], ls="none", marker="o", mfc="none", color=GREY, label="hollow: naive, min"),
        Line2D([], [], color=RED, ls="--", lw=1.1, label="accepted above"),
        Line2D([], [], color=GREY, lw=0.9, label="estimate = truth"),
    ]
    legend_below(figure, handles, 6)
    return figure


def _estimates(axis: Axes, results: list[Result], estimator: str, *, hollow: bool) -> None:
    colour, marker = ESTIMATOR_STYLE[estimator]
    axis.plot(
        [relative_values(r)[-1] for r in results],
        [r["validation"][estimator] / r["validation"]["on_policy"] for r in results],
        ls="none",
        marker=marker,
        ms=5,
        mew=0.9,
        mfc="none" if hollow else colour,
        color=colour,
        alpha=0.75,
    )


def _stretched_near_one(axis: Axes) -> None:
    """Where estimates are far off, stretch the scale around 1, so that verdicts can be seen."""
    low, high = axis.get_ylim()
    if max(1 - low, high - 1) < 0.6:
        return
    axis.set_yscale(
        "function",
        functions=(
            lambda y: np.arcsinh((np.asarray(y) - 1) / STRETCH),
            lambda t: 1 + STRETCH * np.sinh(t),
        ),
    )
    ticks = (0, 0.2, 0.5, 0.8, 0.9, 0.95, 1, 1.05, 1.1, 1.2, 1.5, 2, 3, 5, 10)
    axis.set_yticks([tick for tick in ticks if low <= tick <= high])
    axis.yaxis.set_major_formatter("{x:g}")
    axis.set_ylim(low, high * 1.06)


def distributions(runs: Runs, paper: Published) -> Figure | None:
    """q and both q-hats, at the pairs that pi0 logged and at novel actions, for three levels."""
    levels = shown_levels(runs)
    if not any(_histograms(runs, m, v, "q") for m in MODELS[0][2] for v in levels):
        return None
    figure = Figure(figsize=(3.6 * len(levels) + 0.6, 7.4), layout="constrained")
    grid = figure.subplots(3, len(levels), squeeze=False, sharex="row")
    for row, (entry, name, methods) in zip(grid, MODELS, strict=True):
        for axis, level in zip(row, levels, strict=True):
            kept = next((h for m in methods if (h := _histograms(runs, m, level, entry))), [])
            _two_histograms(axis, kept)
            axis.set(yticks=[])
            plain(axis)
        row[0].set_ylabel(name)
    both = [limit for row in grid[:2] for limit in row[0].get_xlim()]
    for row in grid[:2]:  # truth and naive q-hat on one scale
        row[0].set_xlim(min(both), max(both))
    for axis, level in zip(grid[0], levels, strict=True):
        axis.set_title(f"{runs.recipe.level_name} = {level:g}")
    for axis in grid[-1]:
        axis.set_xlabel("mean reward")
    handles = [
        Line2D(
            [], [], color=SUPPORTED, lw=4, alpha=0.6, label="supported: the pairs that pi0 logged"
        ),
        Line2D([], [], color=NOVEL, lw=1.6, label="novel actions"),
        Line2D([], [], color=GREY, lw=1, ls="--", label="means"),
    ]
    legend_below(figure, handles, 3)
    return figure


def _histograms(runs: Runs, method: str, level: float, entry: str) -> list[dict[str, Any]]:
    return [r["distributions"][entry] for r in runs.of(method, level) if "distributions" in r]


def _two_histograms(axis: Axes, kept: list[dict[str, Any]]) -> None:
    """Shares per bin, averaged over seeds, from the first bin that is not empty to the last."""
    if not kept:
        axis.annotate("not finished", (0.5, 0.5), xycoords="axes fraction", ha="center", color=GREY)
        return
    edges = np.linspace(0, 1, BINS + 1)
    for kind, colour, fill in (("supported", SUPPORTED, True), ("novel", NOVEL, False)):
        mean: FloatArray = np.mean([shares(h[kind], BINS) for h in kept], axis=0)
        filled = np.flatnonzero(mean > 1e-4)
        part = slice(filled[0], filled[-1] + 1)
        axis.stairs(
            mean[part],
            edges[part.start : part.stop + 1],
            color=colour,
            fill=fill,
            alpha=0.45 if fill else 1,
            lw=1.5,
            label=kind,
        )
        axis.axvline(float(np.mean([h[kind]["mean"] for h in kept])), color=colour, ls="--", lw=1)


def bound_against_r(runs: Runs, paper: Published) -> Figure | None:
    """R and the bound over the training of Safe OPG: does a larger R go with a larger bound?"""
    levels = [v for v in runs.levels if runs.of("depsue_1", v)]
    if not levels:
        return None
    columns = min(4, len(levels))
    rows = -(-len(levels) // columns)
    figure = Figure(figsize=(3 * columns + 1, 2.9 * rows + 0.2), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    dots = None
    for axis, level in zip(grid.ravel(), levels, strict=False):
        results = runs.of("depsue_1", level)
        for result in results:
            history = result["history"][0]
            r, bound = over_training(result)
            dots = axis.scatter(r, bound, c=history["step"], s=9, cmap="viridis")
        found = [c for result in results if (c := r_and_bound(result)) is not None]
        words = f", correlation {np.mean(found):.2f}" if found else ""
        axis.set_title(f"{runs.recipe.level_name} = {level:g}{words}", fontsize=10)
        axis.axhline(runs.recipe.floor, color=RED, ls="--", lw=1.1, zorder=0)
        axis.locator_params(nbins=5)
        plain(axis)
    for axis in grid.ravel()[len(levels) :]:
        axis.set_axis_off()
    figure.supxlabel("R(pi), smoothed over minibatches", fontsize=10)
    figure.supylabel("bound / V_on(pi0)", fontsize=10)
    if dots is not None:
        figure.colorbar(dots, ax=grid, label="step", shrink=0.8)
    return figure
