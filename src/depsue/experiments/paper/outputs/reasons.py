"""Why a statement does not hold: each reason is given only where the figures bear it out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from depsue.experiments.paper.outputs.claim import Evidence, listed
from depsue.experiments.paper.outputs.method_names import NAMES
from depsue.experiments.paper.outputs.reading import DEPSUE, novelty

NEAR = 0.02
"""How near to the uniform policy's novelty is near."""


def value_against_floor(e: Evidence, method: str, levels: Sequence[float]) -> str:
    """At levels where a method kept to the constraint: did it lose value at all?"""
    if not levels:
        return ""
    kept = e.values(method, levels)
    losing = {v: x for v, x in kept.items() if x < 1}
    gaining = {v: x for v, x in kept.items() if x >= 1}
    text = ""
    if losing:
        text += (
            f"{NAMES[method]} loses value ({listed(losing)}), but less than the floor "
            f"of {e.recipe.floor:g} allows. "
        )
    if gaining:
        text += f"{NAMES[method]} is no worse than pi0 there ({listed(gaining)})."
    return text.strip()


def margin_frees_the_last(e: Evidence, method: str, levels: Sequence[float] | None = None) -> str:
    """In the last training lambda never left 0: the last policy is the unconstrained one."""
    results = e.runs.over(method, e.levels if levels is None else levels)
    free = [r for r in results if max(r["history"][-1]["lambda"]) == 0]
    if not free or 2 * len(free) < len(results):
        return ""
    last = float(np.mean([novelty()(r) for r in free]))
    text = (
        f"In {len(free)} of {len(results)} runs of {NAMES[method]} the need had fallen below the "
        "bound before the last training began: lambda stayed 0, and the last policy is the "
        f"unconstrained one, with a mean novelty of {last:.3f}"
    )
    if abs(last - e.novel_share) <= NEAR:
        text += f", about the {e.novel_share:.2f} of the uniform policy that entropy pulls it to"
    return text + "."


def of_violations(e: Evidence, method: str) -> tuple[str, ...]:
    """Why a method of DEPSUE violated the constraint; nothing where it did not."""
    if not any(c for c, _ in e.violations(method, how="any").values()):
        return ()
    return (
        average_keeps_the_floor(e, method),
        training_users_keep_the_floor(e, method),
        bound_above_truth(e, method),
        bound_not_reached(e, method),
    )


def training_users_keep_the_floor(e: Evidence, method: str) -> str:
    """The bound speaks of the training users; the paper judges by the test users."""
    counts = [e.runs.violations(method, v, "any", "train") for v in e.levels]
    if any(c for c, _ in counts):
        return ""
    return (
        f"Against the training {e.runs.who}, whom the bound speaks of, no deployment of "
        f"{NAMES[method]} fell below the floor."
    )


def bound_above_truth(e: Evidence, method: str) -> str:
    """Bounds that were wrong, as a fraction delta of them may be."""
    rows = [d for result in e.runs.over(method, e.levels) for d in result["deployments"]]
    wrong = sum(d["bound"] > d["value_train"] for d in rows)
    if not wrong:
        return ""
    return (
        f"In {wrong} of {len(rows)} deployments of {NAMES[method]} the bound was above the true "
        f"value on the training {e.runs.who}; delta = {e.delta:g} limits that share only for "
        "policies that were not tuned on the bound's own rows."
    )


def average_keeps_the_floor(e: Evidence, method: str) -> str:
    """The last policy may lie below the floor where the average over deployments does not."""
    last = sum(count for count, _ in e.violations(method).values())
    mean = sum(count for count, _ in e.violations(method, how="average").values())
    if not last or mean:
        return ""
    return (
        f"The average over the deployments of {NAMES[method]} never fell below the floor: Eq. 9 "
        "limits the average, and lets a late policy spend what earlier ones earned."
    )


def bound_not_reached(e: Evidence, method: str, levels: Sequence[float] | None = None) -> str:
    """Policies whose bound stayed below the need were deployed all the same."""
    results = e.runs.over(method, e.levels if levels is None else levels)
    rows = [deployment for result in results for deployment in result["deployments"]]
    failed = sum(not d["passed"] for d in rows)
    if not failed:
        return ""
    where = "" if levels is None else f" at {e.say(levels)}"
    return (
        f"In {failed} of {len(rows)} deployments of {NAMES[method]}{where} the bound had not "
        "passed the need when training ended; as in the paper, the policy was deployed all the "
        "same."
    )


def short_of_the_need(e: Evidence) -> str:
    """First deployments that end below the need: by how much, and whether the bound still rose."""
    results = [r for m in DEPSUE for v in e.levels for r in e.runs.of(m, v)]
    failed = [r for r in results if not r["deployments"][0]["passed"]]
    if not failed:
        return ""
    gaps = [
        (r["deployments"][0]["need"] - r["deployments"][0]["bound"]) / r["on_policy"]
        for r in failed
    ]
    rising = sum(r["history"][0]["bound"][-1] > r["history"][0]["bound"][-2] for r in failed)
    return (
        f"{len(failed)} of {len(results)} first deployments end below the need, by "
        f"{np.mean(gaps):.3f} V_on(pi0) on average (at most {max(gaps):.3f}); in {rising} of them "
        f"the bound was still rising after {e.recipe.safe_opg.steps:,} steps."
    )


def spent_on_novelty(e: Evidence, moves: dict[float, tuple[float, float]]) -> str:
    """Levels at which novelty rose over the stages while value fell."""
    spent = [v for v, (value, novel) in moves.items() if value < 0 < novel]
    if not spent:
        return ""
    return (
        f"At {e.say(spent)} novelty rises and value falls: there the margin is spent, not earned."
    )
