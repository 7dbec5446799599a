"""What the example found, as Markdown: nothing in it is written by hand but the words between."""

from __future__ import annotations

from collections.abc import Sequence

from open_bandit_known import BOUNDS, DELTA, FLOOR, Cell, Truth
from open_bandit_walk import Walk

from depsue.exploration.rows_needed import about_rows


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A Markdown table; the first column is text."""
    marks = ["---", *["---:"] * (len(headings) - 1)]
    return [f"| {' | '.join(row)} |" for row in (headings, marks, *rows)]


def reading(walks: dict[str, Walk]) -> list[str]:
    """Part one: what the real logs show."""
    steps = list(walks.values())
    facts = [
        ("rows", [f"{step.plan.rows:,}" for step in steps]),
        ("clicks", [str(step.check.facts.rewarded_rows) for step in steps]),
        ("click rate", [f"{step.check.facts.mean_reward:.3%}" for step in steps]),
        ("verdict of check", [step.check.verdict for step in steps]),
        ("certain without data: novelty", [f"{step.plan.certain:.1%}" for step in steps]),
        ("plan's pick: novelty", [f"{step.plan.pick.novelty:.1%}" for step in steps]),
        ("rows that certify", [f"{step.certificate.verdicts[0].n:,}" for step in steps]),
        ("clicks among them", [str(step.clicks) for step in steps]),
        ("levels listed, tested", [_levels(step) for step in steps]),
        ("bound (need: 0)", [f"{step.certificate.verdicts[0].bound:+.5f}" for step in steps]),
        ("certificate", ["passed" if step.certificate.passed else "failed" for step in steps]),
        ("certified novelty", [_certified(step) for step in steps]),
    ]
    rows = [[name, *values] for name, values in facts]
    for place, needed in enumerate(steps[0].plan.needed):
        needs = [step.plan.needed[place].rows for step in steps]
        rows.append([f"rows for a novelty of {needed.novelty:.1%}", *(_rows(n) for n in needs)])
    lines = ["## Real clicks", "", *table(["", *walks], rows), ""]
    for name, step in walks.items():
        lines += [f"- {name}: {step.plan.why}; the numbers of rows rest on "
                  f"{step.plan.needed_rests_on}"]  # fmt: skip
        lines += [f"- {name}, may be deployed: {choice.why}" for choice in step.campaign.choices(1)]
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
        f"For each bound at delta {DELTA:g}, over {len(worst.bounds)} logs: the mean of "
        "bound / V(bts) (in brackets: how many bounds lay above it; how many certificates passed).",
        f"The floor is {FLOOR:g} of what random earns, as a number. The most bounds above V(bts) "
        f"are {worst.above} of {len(worst.bounds)}; so many or more would be seen with probability "
        f"{worst.p:.3f} if that bound erred exactly delta of the time.",
        f"The table that stands for bts differs from how often bts showed the items by {apart:.3f} "
        "(total variation).",
        "",
        *table(["world", "rows", "V(bts)", "floor", *BOUNDS], rows),
        "",
    ]


def round_table(steps: Walk, truth: Sequence[Truth]) -> list[str]:
    """Part two: one round of a campaign, and its truth."""
    rows = [
        [policy.what, f"{policy.novelty:.3f}", f"{policy.value:.3f}", f"{policy.without:.3f}"]
        for policy in truth
    ]
    headings = ["may be deployed", "novelty", "true V / V(pi0)", "if new items earned nothing"]
    return [
        f"## Clicks of known truth: one round on {steps.plan.rows:,} rows",
        "",
        f"check: {steps.check.verdict}; plan's pick: novelty {steps.plan.pick.novelty:.1%} "
        f"({steps.plan.why}).",
        "",
        "```text",
        str(steps.certificate),
        "```",
        "",
        f"{_levels(steps)} levels listed and tested. The promise: at least "
        f"{steps.certificate.verdicts[0].promise.floor}.",
        "",
        *table(headings, rows),
        "",
    ]


def _levels(steps: Walk) -> str:
    return f"{steps.certificate.listed}, {steps.certificate.tested}"


def _certified(steps: Walk) -> str:
    return f"{steps.certificate.shares[-1]:.1%}" if steps.certificate.passed else "none"


def _rows(n: float | None) -> str:
    return "no number is known" if n is None else f"about {about_rows(n)}"
