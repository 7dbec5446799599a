"""A plan for its readers: one record, which the page of `depsue plan` and the dashboard render."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from depsue import codec
from depsue.exploration.plan import Plan, Point
from depsue.exploration.rows_needed import about_rows
from depsue.exploration.settings import ExploreSettings
from depsue.pages.drawing import (
    WIDE,
    Axis,
    Figure,
    Line,
    Mark,
    Points,
    Rule,
    Span,
    as_svg,
    drawn,
)

HEADINGS = ("novelty", "value", "value if new items earn 0", "bound above floor", "supported part")
BINDS = "binds"
PROMISE_HEADINGS = (
    "promise",
    "floor",
    "delta",
    "values to certify with",
    "pi0's value",
    "bound above floor",
)


@dataclass(frozen=True)
class FrontierPoint:
    """A point of the frontier; values are relative to pi0's.

    Args:
        novelty: of the mixture.
        value: that is anticipated.
        worst: the value if new items earn nothing; None where it is not known.
        picked: whether it is the pick.
    """

    novelty: float
    value: float
    worst: float | None = None
    picked: bool = False


@dataclass(frozen=True)
class PlanResult:
    """What a plan found.

    Args:
        pick: in a sentence, and why.
        enough: whether more than the certain novelty is likely.
        rows: of the logs.
        frontier: for rising novelty.
        reaches: how far each other candidate goes.
        certain: the novelty that needs no data.
        floor: relative to pi0's value; None where it cannot be drawn.
        headings, cells: the table.
        times: what more rows would buy: (rows, novelty).
        sections: further sentences, under headings.
        note: what the figure and the table show.
    """

    pick: str
    enough: bool
    rows: int
    frontier: tuple[FrontierPoint, ...]
    reaches: tuple[FrontierPoint, ...]
    certain: float
    floor: float | None
    headings: tuple[str, ...]
    cells: tuple[tuple[str, ...], ...]
    times: tuple[tuple[str, str], ...]
    sections: tuple[tuple[str, tuple[str, ...]], ...]
    note: str


def plan_result(plan: Plan, notes: Sequence[str] = ()) -> PlanResult:
    """A plan as pages show it.

    Args:
        plan: what was found.
        notes: of reading the files.
    """
    pick, points = plan.pick, shown_points(plan)
    counted = "by their own rewards" if plan.novel_shown else "as worth nothing"
    return PlanResult(
        pick=f"Novelty {pick.novelty:.1%} with {pick.policy}, anticipated value {pick.value:.3f} "
        f"of pi0's: {plan.why}.",
        enough=plan.enough,
        rows=plan.rows,
        frontier=tuple(FrontierPoint(p.novelty, p.value, p.worst, p == pick) for p in points),
        reaches=tuple(FrontierPoint(p.novelty, p.value) for p in plan.reaches),
        certain=plan.certain,
        floor=_drawn_floor(plan),
        headings=headings(plan.settings),
        cells=tuple(tuple(point_cells(point, plan)) for point in points),
        times=tuple((f"{t.rows:,} ({t.times}x)", f"{t.novelty:.1%}") for t in plan.times),
        sections=tuple(
            (name, tuple(sentences)) for name, sentences in sections(plan, notes) if sentences
        ),
        note="Each row is a mixture of a supported part and new items; < marks the pick. Values "
        "are relative to pi0's, as the reward model sees them once rows that it had not seen have "
        f"corrected it; the bound counts new items {counted}.",
    )


def frontier_figure(result: PlanResult) -> Figure:
    """Anticipated value against novelty: the frontier, every candidate's reach, and the pick."""
    points = result.frontier
    xs, ys = tuple(p.novelty for p in points), tuple(p.value for p in points)
    marks: list[Mark] = []
    shown = [*ys, *(p.value for p in result.reaches)]
    description = f"up to novelty {max(xs):.1%}"
    worst = [(p.novelty, p.worst) for p in points if p.worst is not None]
    if result.floor is not None:
        marks += [Span("", 0.0, result.floor), Rule("floor", result.floor)]
        shown.append(result.floor)
    if result.certain > 0:
        name = "certain without data (1 - floor)"
        marks.append(Rule(name, result.certain, "grey", "dot", upright=True))
    if worst:
        places, values = (tuple(column) for column in zip(*worst, strict=True))
        marks.append(Line("if new items earn nothing", places, values, "grey"))
        shown += values
    marks.append(Line("frontier", xs, ys, "blue", dots=True))
    if result.reaches:
        places = tuple(p.novelty for p in result.reaches)
        values = tuple(p.value for p in result.reaches)
        name = "as far as each candidate goes"
        marks.append(Points(name, places, values, "blue", hollow=True))
    for p in (p for p in points if p.picked):
        marks.append(Points("pick", (p.novelty,), (p.value,), "green", "star"))
        description += f"; the pick has novelty {p.novelty:.1%} and value {p.value:.3f}"
    if result.floor is not None:
        description += f"; floor {result.floor:.3f}"
    wide, gap = max(*xs, result.certain, 0.01), max(max(shown) - min(shown), 0.05)
    return Figure(
        name="frontier",
        heading="The frontier",
        description=f"Anticipated value relative to pi0's against novelty: {description}.",
        headings=result.headings,
        cells=result.cells,
        marks=tuple(marks),
        x=Axis("novelty: share of decisions that show a new item",
               (-0.02 * wide, 1.06 * wide), "percent"),
        y=Axis("anticipated value / V(pi0)",
               (min(shown) - 0.12 * gap, max(shown) + 0.12 * gap)),
    )  # fmt: skip


def write_plan(plan: Plan, notes: Sequence[str], folder: Path) -> Path:
    """Write plan.html, frontier.png, frontier.svg and plan.json; returns the page's path."""
    from matplotlib import rc_context

    from depsue.pages.rendering import templates

    result = plan_result(plan, notes)
    drawing = drawn(frontier_figure(result), WIDE)
    with rc_context({"svg.hashsalt": "depsue"}):  # the same plan gives the same file
        svg = as_svg(drawing)
    (folder / "frontier.svg").write_text(str(svg), encoding="utf-8")
    drawing.savefig(folder / "frontier.png", dpi=130)
    whole = {
        "plan": plan.as_json(),
        "page": codec.plain(result),
        "notes": list(notes),
    }
    (folder / "plan.json").write_text(json.dumps(whole, indent=1), encoding="utf-8")
    text = templates().get_template("plan_report.html").render(
        result=result,
        delta=plan.settings.delta_of_deployment,
        floors=floor_words(plan.settings),
        figure=svg,
        promise_headings=PROMISE_HEADINGS,
        promises=promise_cells(plan),
    )  # fmt: skip
    (folder / "plan.html").write_text(text, encoding="utf-8")
    return folder / "plan.html"


def headings(settings: ExploreSettings) -> tuple[str, ...]:
    """Of the frontier's table; with several promises, one column more."""
    return (*HEADINGS[:4], BINDS, HEADINGS[4]) if len(settings.promises) > 1 else HEADINGS


def point_cells(point: Point, plan: Plan) -> list[str]:
    """A row of the frontier's table, as text, in the order of `headings`."""
    return [
        f"{point.novelty:.1%}" + (" <" if point == plan.pick else ""),
        f"{point.value:.3f}",
        f"{point.worst:.3f}",
        f"{point.headroom:.3f}",
        *([point.binds] if len(plan.settings.promises) > 1 else []),
        point.policy,
    ]


def promise_cells(plan: Plan) -> list[list[str]]:
    """The promises at the pick, as text, in the order of `PROMISE_HEADINGS`."""
    return [
        [
            promise.name,
            str(promise.floor),
            f"{promise.delta:.3g}",
            f"{promise.rows:,.0f}",
            f"{promise.pi0_value:.4g}",
            f"{promise.headroom:.3f}" + (" <" if promise.name == plan.pick.binds else ""),
        ]
        for promise in plan.promises
    ]


def floor_words(settings: ExploreSettings) -> str:
    """The floors in a few words."""
    if len(settings.promises) > 1:
        return f"{len(settings.promises)} promises"
    floor = settings.promises[0].floor
    return f"floor {floor}" if floor.ratio is None else f"floor {floor.ratio:g} of V(pi0)"


def shown_points(plan: Plan) -> list[Point]:
    """The frontier with the pick in its place."""
    others = [p for p in plan.frontier if abs(p.novelty - plan.pick.novelty) > 1e-9]
    return sorted([*others, plan.pick], key=lambda point: point.novelty)


def sections(plan: Plan, notes: Sequence[str]) -> list[tuple[str, list[str]]]:
    """The sentences of a plan, under headings."""
    rows = [f"{needed.novelty:.1%}: {_rows_words(needed.rows)}" for needed in plan.needed]
    tested = plan.propensities
    propensities = [] if tested is None else [
        f"nothing refutes the propensities: {tested.rows:,} rows tested; m/p has mean "
        f"{tested.mean:.4f} and lower bound {tested.bound:.4f}, which must not exceed 1"
    ]  # fmt: skip
    return [
        ("The ladder of assumptions", [str(rung) for rung in plan.ladder]),
        ("Rows for a wished novelty", [*rows, f"rests on {plan.needed_rests_on}"]),
        ("Reward model", [plan.model]),
        ("Propensities", propensities),
        ("Notes", [*notes, *(() if tested is None else tested.notes)]),
        ("Assumed", list(plan.assumptions)),
    ]


def _rows_words(rows: float | None) -> str:
    if rows is None:
        return "nothing shows that more rows would do"
    return f"about {about_rows(rows)} rows"


def _drawn_floor(plan: Plan) -> float | None:
    """The highest floor on the logs' own reward over all rows, relative to V(pi0); None if none."""
    floors = [
        promise.floor.of(planned.pi0_value) / (planned.pi0_value or 1.0)
        for promise, planned in zip(plan.settings.promises, plan.promises, strict=True)
        if promise.plain
    ]
    return max(floors, default=None)
