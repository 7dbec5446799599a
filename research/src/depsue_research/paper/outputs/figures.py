"""All figures of a reproduction, each drawn from the finished cells beside the paper's figures.

`all_figures` draws those that a run can fill: novelty against value, the outcome over levels, over
K and over the stages of a campaign; and why it came out so: OPE against the truth, distributions
of q and q-hat, and R against the bound.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, NullLocator

from depsue.data.checks import FloatArray
from depsue.testing.bounds import rate_interval
from depsue_research.paper.cells import Result
from depsue_research.paper.outputs.drawing import (
    COLOURS,
    GREY,
    MARKERS,
    RED,
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
from depsue_research.paper.outputs.published import Published, published_for
from depsue_research.paper.outputs.reading import (
    DEPSUE,
    ESTIMATORS,
    EXPLORE,
    NAIVE,
    NAMES,
    OPG,
    Runs,
    mean,
    novelties,
    over_training,
    r_and_bound,
    relative_values,
    shares,
    shown_levels,
    validated,
)
from depsue_research.paper.outputs.reading import novelty as novelty_of
from depsue_research.paper.outputs.reading import value as value_of
from depsue_research.paper.recipe import deployments_of
from depsue_research.paper.run_cell import BINS


@dataclass(frozen=True, eq=False)
class Picture:
    """A figure with its words.

    Args:
        name: of its files.
        title: one line.
        caption: how to read it.
        figure: the drawing.
    """

    name: str
    title: str
    caption: str
    figure: Figure


def all_figures(runs: Runs) -> list[Picture]:
    """The figures that this run can fill."""
    paper = published_for(runs.recipe)
    made = []
    for draw, name, title, caption in FIGURES:
        figure = draw(runs, paper)
        if figure is not None:
            hollow = HOLLOW.format(seeds=paper.seeds) if draw in WITH_MARKS and paper.seeds else ""
            titles = " Document titles stand in for document text." if runs.of_titles else ""
            words = f"{caption}{_without_interval(runs, draw)}{hollow}{titles} "
            words += f"Here: {runs.seeds_in_words()}."
            made.append(Picture(name, title, words, figure))
    return made


def _without_interval(runs: Runs, draw: object) -> str:
    """Said where intervals are drawn, but some level of a method has one seed."""
    groups = [len(runs.of(method, level)) for method in runs.methods for level in runs.levels]
    if draw not in WITH_MARKS or 1 not in groups:
        return ""
    return " No interval with one seed" + ("." if max(groups) == 1 else ", where there is but one.")


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
                numbers = [runs.numbers(method, level, measure) for level in runs.levels]
                with_intervals(axis, places, numbers, method)
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
    filled = [level for level in runs.levels if results[level]]
    if not filled:
        return None
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    value, novelty = figure.subplots(1, 2)
    colours = colormaps["viridis"](np.linspace(0, 0.93, len(runs.levels)))
    handles = []
    for place, level in enumerate(runs.levels):
        if level not in filled:
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
            numbers = [runs.numbers(method, level, measure) for level in runs.levels]
            with_intervals(axis, places, numbers, method, ls="none")
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
    filled = [i for i, (_, n) in enumerate(counts) if n]
    rates = np.array([counts[i][0] / counts[i][1] for i in filled])
    intervals = [
        rate_interval(*counts[i]) if counts[i][1] > 1 else (np.nan, np.nan) for i in filled
    ]
    limits = np.array(intervals).reshape(-1, 2)
    axis.errorbar(
        places[filled],
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
    x, y = (mean(runs.numbers(method, level, measure)) for measure in (novelty_of(), value_of()))
    return None if x is None or y is None else (x, y)


def _handle(marker: str, label: str, **style: object) -> Line2D:
    settings = {"color": DARK, "ms": 6, **style}
    return Line2D([], [], ls="none", marker=marker, label=label, **settings)  # type: ignore[arg-type]


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
            histograms = next((h for m in methods if (h := _histograms(runs, m, level, entry))), [])
            _two_histograms(axis, histograms)
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


def _two_histograms(axis: Axes, histograms: list[dict[str, Any]]) -> None:
    """Shares per bin, averaged over seeds, from the first bin that is not empty to the last."""
    if not histograms:
        axis.annotate("not finished", (0.5, 0.5), xycoords="axes fraction", ha="center", color=GREY)
        return
    edges = np.linspace(0, 1, BINS + 1)
    for kind, colour, fill in (("supported", SUPPORTED, True), ("novel", NOVEL, False)):
        mean: FloatArray = np.mean([shares(h[kind], BINS) for h in histograms], axis=0)
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
        axis.axvline(
            float(np.mean([h[kind]["mean"] for h in histograms])), color=colour, ls="--", lw=1
        )


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
        correlations = [c for result in results if (c := r_and_bound(result)) is not None]
        words = f", correlation {np.mean(correlations):.2f}" if correlations else ""
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


FIGURES: tuple[tuple[Callable[[Runs, Published], Figure | None], str, str, str], ...] = (
    (
        exploration,
        "exploration",
        "Novelty against value: certified exploration, DEPSUE, and the paper",
        "The last policy of K deployments, means over the seeds; a line leads from DEPSUE to "
        "certified exploration at the same logging policy. Up and to the right is better.",
    ),
    (
        over_levels,
        "over_levels",
        "Safety and novelty of OPG and Safe OPG over the logging policies",
        "Means with 95% t-intervals; violations with exact binomial intervals.",
    ),
    (
        wiki10,
        "wiki10",
        "Wiki10: value and novelty by epsilon",
        "The last policy of each method: means with 95% t-intervals.",
    ),
    (
        over_k,
        "over_k",
        "DEPSUE with one, two and five deployments",
        "Means with 95% t-intervals.",
    ),
    (
        stages,
        "stages",
        "The five deployments of DEPSUE (K=5)",
        "Means over the seeds. Eq. 9 keeps the average over the deployments so far above the "
        "floor; a single later one may lie below it.",
    ),
    (
        ope_against_truth,
        "ope_against_truth",
        "Validation OPE against the truth",
        "One mark per policy and estimator. Left of the dotted line a policy is worse than pi0; "
        "above the dashed line the estimator accepts it: in the upper left are unsafe policies "
        "accepted, in the lower right safe ones refused. Where estimates are far off, the "
        "vertical scale is stretched around 1.",
    ),
    (
        distributions,
        "distributions",
        "Distributions of q and of both q-hats, supported against novel",
        "Shares of pairs, averaged over the seeds. CQL's row has a scale of its own.",
    ),
    (
        bound_against_r,
        "bound_against_r",
        "R against the bound while Safe OPG trains",
        "Assumption 3 asks that a large R goes with a bound above the floor (dashed). R is a mean "
        "over a few minibatches, so part of its scatter is noise; the bound is of all rows.",
    ),
)
"""Each is drawn from the finished cells and the paper's figures, or None where there is nothing
to draw; with its name, title and caption."""

WITH_MARKS = (over_levels, wiki10, over_k)

HOLLOW = (
    " Hollow marks: the paper's figures of {seeds} seeds. Its one row for OPG (naive) stands "
    "beside mean and min, its rows for K >= 2 beside the last policy and the average: it does not "
    "say which they are."
)
