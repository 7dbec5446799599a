"""What the example found, as Markdown: nothing in it is written by hand but the words between."""

from __future__ import annotations

from collections.abc import Sequence

from open_bandit_known import BOUNDS, DELTA, FLOOR, Cell, Truth
from open_bandit_walk import Walk

from depsue.exploration.plan import about_rows


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A Markdown table; the first column is text."""
    marks = ["---", *["---:"] * (len(headings) - 1)]
    return [f"| {' | '.join(row)} |" for row in (headings, marks, *rows)]


def reading(walks: dict[str, Walk]) -> list[str]:
    """Part one: what the real logs show."""
    found = list(walks.values())
    facts = [
        ("rows", [f"{one.plan.rows:,}" for one in found]),
        ("clicks", [str(one.check.facts.rewarded_rows) for one in found]),
        ("click rate", [f"{one.check.facts.mean_reward:.3%}" for one in found]),
        ("verdict of check", [one.check.verdict for one in found]),
        ("certain without data: novelty", [f"{one.plan.certain:.1%}" for one in found]),
        ("plan's pick: novelty", [f"{one.plan.pick.novelty:.1%}" for one in found]),
        ("rows that certify", [f"{one.certificate.verdicts[0].n:,}" for one in found]),
        ("clicks among them", [str(one.clicks) for one in found]),
        ("levels listed, tested", [_levels(one) for one in found]),
        ("bound (need: 0)", [f"{one.certificate.verdicts[0].bound:+.5f}" for one in found]),
        ("certificate", ["passed" if one.certificate.passed else "failed" for one in found]),
        ("certified novelty", [_certified(one) for one in found]),
    ]
    rows = [[name, *values] for name, values in facts]
    for place, (level, _) in enumerate(found[0].plan.needed):
        needs = [one.plan.needed[place][1] for one in found]
        rows.append([f"rows for a novelty of {level:.1%}", *(_rows(n) for n in needs)])
    lines = ["## Real clicks", "", *table(["", *walks], rows), ""]
    for name, one in walks.items():
        lines += [f"- {name}: {one.plan.why}; the numbers of rows rest on "
                  f"{one.plan.needed_rests_on}"]  # fmt: skip
        lines += [f"- {name}, may be deployed: {choice.why}" for choice in one.campaign.choices(1)]
    return [*lines, ""]


def cells_table(cells: Sequence[Cell], apart: float) -> list[str]:
    """Part two: bounds against the truth."""
    rows = []
    for world, n in dict.fromkeys((cell.world, cell.rows) for cell in cells):
        own = [cell for cell in cells if (cell.world, cell.rows) == (world, n)]
        said = [f"{c.ratio.mean():.3f} ({c.above}; {c.passed:.0%})" for c in own]
        rows.append([world, f"{n:,}", f"{own[0].truth:.5f}", f"{own[0].floor:.5f}", *said])
    worst = max(cells, key=lambda cell: cell.above)
    return [
        "## Clicks of known truth: bounds for bts from logs of random",
        "",
        f"For each bound at delta {DELTA:g}, over {len(worst.found)} logs: the mean of "
        "bound / V(bts) (in brackets: how many bounds lay above it; how many certificates passed).",
        f"The floor is {FLOOR:g} of what random earns, as a number. The most bounds above V(bts) "
        f"are {worst.above} of {len(worst.found)}; so many or more would be seen with probability "
        f"{worst.p:.3f} if that bound erred exactly delta of the time.",
        f"The table that stands for bts differs from how often bts showed the items by {apart:.3f} "
        "(total variation).",
        "",
        *table(["world", "rows", "V(bts)", "floor", *BOUNDS], rows),
        "",
    ]


def round_table(found: Walk, truth: Sequence[Truth]) -> list[str]:
    """Part two: one round of a campaign, and its truth."""
    rows = [
        [one.what, f"{one.novelty:.3f}", f"{one.value:.3f}", f"{one.without:.3f}"] for one in truth
    ]
    headings = ["may be deployed", "novelty", "true V / V(pi0)", "if new items earned nothing"]
    return [
        f"## Clicks of known truth: one round on {found.plan.rows:,} rows",
        "",
        f"check: {found.check.verdict}; plan's pick: novelty {found.plan.pick.novelty:.1%} "
        f"({found.plan.why}).",
        "",
        "```text",
        str(found.certificate),
        "```",
        "",
        f"{_levels(found)} levels listed and tested. The promise: at least "
        f"{found.certificate.verdicts[0].promise.floor}.",
        "",
        *table(headings, rows),
        "",
    ]


def _levels(one: Walk) -> str:
    return f"{one.certificate.listed}, {one.certificate.tested}"


def _certified(one: Walk) -> str:
    return f"{one.certificate.shares[-1]:.1%}" if one.certificate.passed else "none"


def _rows(n: float | None) -> str:
    return "no number is known" if n is None else f"about {about_rows(n)}"
