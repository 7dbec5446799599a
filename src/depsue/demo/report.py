"""The demo's figures, and one HTML page that needs nothing else."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jinja2 import Environment, PackageLoader
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from depsue._version import __version__
from depsue.demo.demo import DemoResult, DemoRow
from depsue.files import writable_folder
from depsue.pages.drawing import BLUE, GREEN, GREY, RED, as_svg
from depsue.policies import ScoreTable


def write_report(result: DemoResult, folder: str | Path) -> Path:
    """Write report.html, overview.png and demo.json to `folder`; returns the page's path."""
    target = writable_folder(folder)
    overview = figure_overview(result)
    overview.savefig(target / "overview.png", dpi=130)
    figures = {
        "overview": overview,
        "deployments": figure_deployments(result),
        "training": result.safe.history.plot(),
        "rewards": figure_rewards(result),
    }
    page = Environment(
        loader=PackageLoader("depsue.demo"), autoescape=True, trim_blocks=True
    ).get_template("demo.html")
    text = page.render(
        result=result,
        headings=HEADINGS,
        rows=[row_cells(row) for row in result.rows],
        figures={name: as_svg(figure) for name, figure in figures.items()},
        version=__version__,
    )
    (target / "report.html").write_text(text, encoding="utf-8")
    (target / "demo.json").write_text(json.dumps(result.as_json(), indent=1), encoding="utf-8")
    return target / "report.html"


def figure_overview(result: DemoResult) -> Figure:
    """True value against true novelty of every method, with the floor."""
    figure = Figure(figsize=(9, 4.6), layout="constrained")
    axis = figure.subplots()
    floor = result.settings.floor
    axis.axhspan(0, floor, color=RED, alpha=0.06)
    axis.axhline(floor, color=RED, lw=1.2, ls="--")
    axis.annotate(
        "floor",
        (0.985, floor),
        xycoords=("axes fraction", "data"),
        color=RED,
        ha="right",
        va="bottom",
    )
    stages = [row for row in result.rows if row.deployment is not None]
    for row in result.rows:
        staged = row in stages
        marker = "s" if row.need is None else "o"
        axis.scatter(row.novelty, row.value, s=70, color=_colour(row), zorder=3, marker=marker)
        if staged:
            axis.plot([row.novelty] * 2, [row.value, row.average], ":", color=BLUE, lw=1)
            axis.scatter(
                row.novelty, row.average, s=46, facecolors="none", edgecolors=BLUE, zorder=3
            )
    for same in _at_one_place(result.rows):
        axis.annotate(
            ", ".join(row.method for row in same),
            (same[0].novelty, same[0].value),
            xytext=(9, -3),
            ha="left",
            textcoords="offset points",
            color=_colour(same[0]),
            fontsize=9,
        )
    if stages:
        axis.scatter(
            [],
            [],
            s=46,
            facecolors="none",
            edgecolors=BLUE,
            label="average over the deployments so far, which Eq. 9 keeps above the floor",
        )
        axis.legend(loc="lower left", frameon=False, fontsize=9)
    low = min([floor, *(r.value for r in result.rows)])
    axis.set(
        xlabel="novelty: share of decisions that show a new item",
        ylabel="true value / value of pi0",
        ylim=(low - 0.05, max(r.value for r in result.rows) + 0.04),
        xlim=(-0.01, max(r.novelty for r in result.rows) * 1.25 + 0.02),
    )
    _plain(axis)
    return figure


def _colour(row: DemoRow) -> str:
    if not row.safe:
        return RED
    return BLUE if row.deployment is not None else GREY


def _at_one_place(rows: Sequence[DemoRow]) -> list[list[DemoRow]]:
    """Rows whose marks coincide, so that they share a label."""
    places: dict[tuple[float, float], list[DemoRow]] = {}
    for row in rows:
        places.setdefault((round(row.novelty, 3), round(row.value, 3)), []).append(row)
    return list(places.values())


def figure_deployments(result: DemoResult) -> Figure:
    """What each deployment of DEPSUE needed, promised and did; and its novelty."""
    stages = [row for row in result.rows if row.deployment is not None]
    figure = Figure(figsize=(9, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[3, 2])
    k = np.arange(1, len(stages) + 1)
    left.axhline(result.settings.floor, color=RED, ls="--", lw=1.2, label="floor")
    left.plot(
        k,
        np.array([r.need for r in stages], dtype=float),
        "_",
        ms=22,
        mew=2,
        color=RED,
        label="need = floor - margin",
    )
    bounds = np.array([r.bound for r in stages], dtype=float)
    left.plot(k, bounds, "^", ms=8, color=BLUE, label="bound before deploying")
    left.plot(k, [r.value for r in stages], "o", ms=8, color=BLUE, label="true value")
    left.plot(
        k,
        [r.average for r in stages],
        "o",
        ms=8,
        mfc="none",
        color=BLUE,
        label="true average so far",
    )
    left.set(xticks=k, xlabel="deployment", ylabel="relative to pi0", xlim=(0.5, len(k) + 0.5))
    figure.legend(
        *left.get_legend_handles_labels(),
        frameon=False,
        loc="outside lower center",
        ncols=5,
        fontsize=9,
    )
    right.bar(k, [r.novelty for r in stages], color=BLUE, width=0.5)
    right.set(xticks=k, xlabel="deployment", ylabel="novelty")
    for axis in (left, right):
        _plain(axis)
    return figure


def figure_rewards(result: DemoResult) -> Figure:
    """True against predicted mean rewards, supported beside novel actions."""
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    truth = ScoreTable(result.world.contexts, result.world.q)(result.logs.contexts)
    predicted = result.model.predict(result.logs.contexts)
    bins = np.linspace(0, float(np.quantile(np.maximum(truth, predicted), 0.999)), 50)
    novel = result.world.catalogue.novel
    kinds = (("supported actions", ~novel), ("novel actions", novel))
    for axis, (name, mask) in zip(figure.subplots(1, 2, sharey=True), kinds, strict=True):
        axis.hist(
            truth[:, mask].ravel(), bins, density=True, color=GREEN, alpha=0.55, label="truth q"
        )
        axis.hist(
            predicted[:, mask].ravel(),
            bins,
            density=True,
            histtype="step",
            lw=1.6,
            color=BLUE,
            label="reward model",
        )
        axis.set(title=name, xlabel="mean reward", yticks=[])
        axis.legend(frameon=False)
        _plain(axis)
    return figure


HEADINGS = ("method", "safe", "true value", "novelty", "average", "believed", "bound", "need")


def row_cells(row: DemoRow) -> list[str]:
    """A row of the table, as text, in the order of `HEADINGS`."""
    numbers = (row.value, row.novelty, row.average, row.believed, row.bound, row.need)
    return [
        row.method,
        "yes" if row.safe else "NO",
        *("–" if number is None else f"{number:.3f}" for number in numbers),
    ]


def _plain(axis: Axes) -> None:
    axis.spines[["top", "right"]].set_visible(False)
