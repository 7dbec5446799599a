"""A plan as text, as a figure, and as one HTML page that needs nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from depsue._version import __version__
from depsue.exploration.headroom import Aim
from depsue.exploration.plan import Plan, Point, about_rows
from depsue.pages.svg import BLUE, GREEN, GREY, RED, as_svg

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HEADINGS = ("novelty", "value", "value if new items earn 0", "bound above floor", "supported part")
BINDS = "binds"
KEPT = ("promise", "floor", "delta", "values to certify with", "pi0's value", "bound above floor")


def headings(aim: Aim) -> tuple[str, ...]:
    """Of the frontier's table; with several promises, one column more."""
    return (*HEADINGS[:4], BINDS, HEADINGS[4]) if len(aim.promises) > 1 else HEADINGS


def point_cells(point: Point, pick: Point, aim: Aim) -> list[str]:
    """A row of the frontier's table, as text, in the order of `headings`."""
    return [
        f"{point.novelty:.1%}" + (" <" if point == pick else ""),
        f"{point.value:.3f}",
        f"{point.worst:.3f}",
        f"{point.room:.3f}",
        *([point.binds] if len(aim.promises) > 1 else []),
        point.policy,
    ]


def kept_cells(plan: Plan) -> list[list[str]]:
    """The promises at the pick, as text, in the order of `KEPT`."""
    return [
        [
            one.name,
            one.floor,
            f"{one.delta:.3g}",
            f"{one.rows:,.0f}",
            f"{one.logging_value:.4g}",
            f"{one.room:.3f}" + (" <" if one.name == plan.pick.binds else ""),
        ]
        for one in plan.promises
    ]


def floor_words(aim: Aim) -> str:
    """The floors in a few words."""
    if len(aim.promises) > 1:
        return f"{len(aim.promises)} promises"
    floor = aim.promises[0].floor
    return f"floor {floor}" if floor.ratio is None else f"floor {floor.ratio:g} of V(pi0)"


def shown_points(plan: Plan) -> list[Point]:
    """The frontier with the pick in its place."""
    others = [p for p in plan.frontier if abs(p.novelty - plan.pick.novelty) > 1e-9]
    return sorted([*others, plan.pick], key=lambda point: point.novelty)


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
    floor = drawn_floor(plan, aim)
    if floor is not None:
        axis.axhspan(0, floor, color=RED, alpha=0.06)
        axis.axhline(floor, color=RED, lw=1.2, ls="--", label="floor")
    if plan.certain > 0:
        label = "certain without data (1 - floor)"
        axis.axvline(plan.certain, color=GREY, lw=1, ls=":", label=label)
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
    every = [*worst, *(p.value for p in [*points, *plan.reaches])]
    every += [] if floor is None else [floor]
    gap = max(max(every) - min(every), 0.05)
    axis.set(
        xlabel="novelty: share of decisions that show a new item",
        ylabel="anticipated value / V(pi0)",
        xlim=(-0.02 * max(*x, 0.01), max(*x, plan.certain, 0.01) * 1.06),
        ylim=(min(every) - 0.12 * gap, max(every) + 0.12 * gap),
    )
    axis.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    return figure


def drawn_floor(plan: Plan, aim: Aim) -> float | None:
    """The highest floor on the logs' own reward over all rows, relative to V(pi0); None if none."""
    found = [
        one.floor.of(kept.logging_value) / (kept.logging_value or 1.0)
        for one, kept in zip(aim.promises, plan.promises, strict=True)
        if one.reward is None and one.segment is None
    ]
    return max(found, default=None)


def write_plan(
    plan: Plan, aim: Aim, notes: Sequence[str], folder: Path, settings: Mapping[str, Any]
) -> Path:
    """Write plan.html, frontier.png, frontier.svg and plan.json; returns the page's path."""
    from jinja2 import Environment, PackageLoader
    from matplotlib import rc_context

    figure = figure_frontier(plan, aim)
    with rc_context({"svg.hashsalt": "depsue"}):  # the same plan gives the same file
        svg = as_svg(figure)
    (folder / "frontier.svg").write_text(str(svg), encoding="utf-8")
    figure.savefig(folder / "frontier.png", dpi=130)
    whole = {"settings": dict(settings), "plan": plan.as_json(), "notes": list(notes)}
    (folder / "plan.json").write_text(json.dumps(whole, indent=1), encoding="utf-8")
    page = Environment(
        loader=PackageLoader("depsue.pages"), autoescape=True, trim_blocks=True
    ).get_template("plan_report.html")
    text = page.render(
        plan=plan,
        aim=aim,
        floors=floor_words(aim),
        kept=kept_cells(plan),
        kept_headings=KEPT,
        figure=svg,
        headings=headings(aim),
        rows=[
            (point == plan.pick, point_cells(point, plan.pick, aim)) for point in shown_points(plan)
        ],
        times=[(f"{plan.rows * k:,}", f"{k}x", f"{novelty:.1%}") for k, novelty in plan.times],
        sections=sections(plan, notes),
        version=__version__,
    )
    (folder / "plan.html").write_text(text, encoding="utf-8")
    return folder / "plan.html"
