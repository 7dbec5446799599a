"""A plan on the terminal, as figures, and as one HTML page that needs nothing else."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.table import Table

from depsue._version import __version__
from depsue.cli.tables import show
from depsue.learners.assumed import SHARE, Assumed, rows_before_logs
from depsue.learners.planned import Plan, Point, about_rows
from depsue.learners.room import Aim

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BLUE, RED, GREEN, GREY = "#1f5a96", "#b3312c", "#2e7d4f", "#6b7280"
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


def frontier_table(plan: Plan, aim: Aim) -> Table:
    """The frontier for the terminal."""
    table = Table(
        title=f"Likely to be certified: {floor_words(aim)}, delta {aim.delta:g}",
        caption="values relative to V(pi0), as rehearsed on rows unseen by q-hat; < is the pick",
    )
    for place, heading in enumerate(headings(aim)):
        table.add_column(heading, justify="left" if place >= 4 else "right")
    for point in shown_points(plan):
        style = "bold" if point == plan.pick else ""
        table.add_row(*point_cells(point, plan.pick, aim), style=style)
    return table


def kept_table(plan: Plan) -> Table:
    """The promises at the pick."""
    table = Table(
        title="The promises at the pick",
        caption="bounds relative to pi0's value in the promise; < is the one that binds",
    )
    for place, heading in enumerate(KEPT):
        table.add_column(heading, justify="left" if place < 2 else "right")
    for cells in kept_cells(plan):
        table.add_row(*cells)
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


def show_plan(plan: Plan, aim: Aim, notes: Sequence[str]) -> None:
    """All of it on the terminal."""
    show(frontier_table(plan, aim))
    if len(aim.promises) > 1:
        show(kept_table(plan))
    show(times_table(plan))
    pick = plan.pick
    typer.echo(f"\nPick: novelty {pick.novelty:.1%} with {pick.policy}; {plan.why}.")
    for heading, sentences in sections(plan, notes):
        if sentences:
            typer.echo(f"\n{heading}")
            for sentence in sentences:
                typer.echo(f"  - {sentence}")


def show_before_logs(wish: float, rate: float, spread: float, aim: Aim) -> None:
    """The table of rows that wished levels need, under assumptions."""
    assumed = Assumed(rate, spread)
    rows = rows_before_logs(wish, assumed, aim)
    spreads = [one for one in (spread / 2, spread, 2 * spread) if one <= 2]
    levels = sorted({wish, *(x for x in (0.06, 0.1, 0.15, 0.2) if aim.certain < x <= aim.most)})
    table = Table(
        title=f"Logged rows that a novelty needs, at a reward rate of {rate:g}", min_width=70
    )
    table.add_column("novelty", justify="right")
    for one in spreads:
        table.add_column(f"spread {one:g}", justify="right")
    for level in levels:
        cells = []
        for one in spreads:
            needed = rows_before_logs(level, Assumed(rate, one), aim)
            cells.append("none: it is certain" if needed == 0 else about_rows(needed))
        table.add_row(f"{level:.1%}", *cells, style="bold" if level == wish else "")
    show(table)
    answer = f"about {about_rows(rows)} rows are needed"
    if rows == 0:
        answer = "no rows are needed: beside pi0 it is certain"
    elif rows is None:
        answer = "no number of rows would do at this spread"
    typer.echo(f"\nFor a novelty of {wish:.1%}, {answer}, if all of this holds:")
    for sentence in (
        f"the floor is {aim.promises[0].floor}, and delta {aim.delta:g}",
        f"rewards are 0 or {aim.r_max:g}, and {rate:.2%} of pi0's decisions earn one",
        f"spread {spread:g}: among the items that pi0 shows someone, one that is a standard "
        f"deviation better earns {math.exp(spread):.2f} times as much, and a reward model can tell",
        "pi0 shows every such item often enough for its share to be changed freely",
        "new items count as worth nothing until they have been shown",
        f"{SHARE:.0%} of the rows certify, propensities are right, rows are independent",
    ):
        typer.echo(f"  - {sentence}")


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
