"""A plan on the terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence

import typer
from rich.table import Table

from depsue.cli.tables import show
from depsue.learners.assumed import SHARE, Assumed, rows_before_logs
from depsue.learners.planned import Plan, about_rows
from depsue.learners.room import Aim
from depsue.reports.plan import (
    KEPT,
    floor_words,
    headings,
    kept_cells,
    point_cells,
    sections,
    shown_points,
)


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
