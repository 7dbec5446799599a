"""A plan on the terminal, as figures, and as one HTML page that needs nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from depsue._version import __version__
from depsue.learners.planned import Plan, Point, about_rows
from depsue.learners.room import Aim

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BLUE, RED, GREEN, GREY = "#1f5a96", "#b3312c", "#2e7d4f", "#6b7280"
HEADINGS = ("novelty", "value", "value if new items earn 0", "bound above floor", "supported part")


def point_cells(point: Point, pick: Point) -> list[str]:
    """A row of the frontier's table, as text, in the order of `HEADINGS`."""
    return [
        f"{point.novelty:.1%}" + (" <" if point == pick else ""),
        f"{point.value:.3f}",
        f"{point.worst:.3f}",
        f"{point.room:.3f}",
        point.policy,
    ]


def shown_points(plan: Plan) -> list[Point]:
    """The frontier with the pick in its place."""
    others = [p for p in plan.frontier if abs(p.novelty - plan.pick.novelty) > 1e-9]
    return sorted([*others, plan.pick], key=lambda point: point.novelty)


def frontier_table(plan: Plan, aim: Aim) -> Table:
    """The frontier for the terminal."""
    table = Table(
        title=f"Likely to be certified: floor {aim.ratio:g} of V(pi0), delta {aim.delta:g}",
        caption="values relative to V(pi0), as the calibrated q-hat sees them; < is the pick",
    )
    for place, heading in enumerate(HEADINGS):
        table.add_column(heading, justify="left" if place == 4 else "right")
    for point in shown_points(plan):
        table.add_row(*point_cells(point, plan.pick), style="bold" if point == plan.pick else "")
    return table


def times_table(plan: Plan) -> Table:
    """What more rows would buy."""
    table = Table(title="Novelty that more rows would buy", min_width=46)
    for heading in ("rows", "times", "novelty"):
        table.add_column(heading, justify="right")
    for times, novelty in plan.times:
        table.add_row(f"{plan.rows * times:,}", f"{times}x", f"{novelty:.1%}")
    return table


def sections(plan: Plan, notes: Sequence[str]) -> list[tuple[str, list[str]]]:
    """The sentences of a plan, under headings."""
    unknown = "nothing shows that more rows would do"
    rows = [
        f"{level:.1%}: " + (unknown if n is None else f"about {about_rows(n)} rows")
        for level, n in plan.needed
    ]
    return [
        ("Rows for a wished novelty", [*rows, f"rests on {plan.needed_rests_on}"]),
        ("Reward model", [plan.model]),
        ("Propensities", [plan.propensities]),
        ("Notes", [*notes, *plan.notes]),
        ("Assumed", list(plan.assumptions)),
    ]


def figure_frontier(plan: Plan, aim: Aim) -> Figure:
    """Anticipated value against novelty: frontier, every candidate's reach, certain, pick."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.6, 4.6), layout="constrained")
    axis = figure.subplots()
    points = shown_points(plan)
    x = [point.novelty for point in points]
    worst = [point.worst for point in points]
    axis.axhspan(0, aim.ratio, color=RED, alpha=0.06)
    axis.axhline(aim.ratio, color=RED, lw=1.2, ls="--", label="floor")
    axis.axvline(plan.certain, color=GREY, lw=1, ls=":", label="certain without data (1 - floor)")
    axis.plot(x, [p.value for p in points], "-o", ms=4, color=BLUE, label="frontier")
    axis.plot(x, worst, "-", lw=1, color=GREY, label="the same, if new items earn nothing")
    axis.scatter(
        [p.novelty for p in plan.reaches],
        [p.value for p in plan.reaches],
        s=26,
        facecolors="none",
        edgecolors=BLUE,
        label="as far as each candidate goes",
        zorder=3,
    )
    axis.scatter(
        [plan.pick.novelty], [plan.pick.value], s=110, marker="*", color=GREEN, zorder=4,
        label=f"pick: {plan.pick.novelty:.1%}",
    )  # fmt: skip
    every = [aim.ratio, *worst, *(p.value for p in [*points, *plan.reaches])]
    gap = max(max(every) - min(every), 0.05)
    axis.set(
        xlabel="novelty: share of decisions that show a new item",
        ylabel="anticipated value / V(pi0)",
        xlim=(-0.02 * max(x), max(max(x), plan.certain) * 1.06),
        ylim=(min(every) - 0.12 * gap, max(every) + 0.12 * gap),
    )
    axis.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    return figure


def write_plan(
    plan: Plan, aim: Aim, notes: Sequence[str], folder: Path, settings: Mapping[str, Any]
) -> Path:
    """Write plan.html, frontier.png, frontier.svg and plan.json; returns the page's path."""
    from jinja2 import Environment, PackageLoader
    from matplotlib import rc_context

    from depsue.experiments.pages import as_svg

    figure = figure_frontier(plan, aim)
    with rc_context({"svg.hashsalt": "depsue"}):  # the same plan gives the same file
        svg = as_svg(figure)
    (folder / "frontier.svg").write_text(str(svg), encoding="utf-8")
    figure.savefig(folder / "frontier.png", dpi=130)
    whole = {"settings": dict(settings), "plan": plan.as_json(), "notes": list(notes)}
    (folder / "plan.json").write_text(json.dumps(whole, indent=1), encoding="utf-8")
    page = Environment(
        loader=PackageLoader("depsue.cli"), autoescape=True, trim_blocks=True
    ).get_template("plan.html")
    text = page.render(
        plan=plan,
        aim=aim,
        figure=svg,
        headings=HEADINGS,
        rows=[(point == plan.pick, point_cells(point, plan.pick)) for point in shown_points(plan)],
        times=[(f"{plan.rows * k:,}", f"{k}x", f"{novelty:.1%}") for k, novelty in plan.times],
        sections=sections(plan, notes),
        version=__version__,
    )
    (folder / "plan.html").write_text(text, encoding="utf-8")
    return folder / "plan.html"
