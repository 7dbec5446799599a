"""Why a statement does not hold: each reason is given only where the figures bear it out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from depsue_research.paper.cells import Result
from depsue_research.paper.outputs.claim import Evidence, listed
from depsue_research.paper.outputs.intervals import deviation
from depsue_research.paper.outputs.method_names import NAMES
from depsue_research.paper.outputs.reading import DEPSUE, novelty, value
from depsue_research.paper.recipe import deployments_of

NEAR = 0.02
"""How near to the uniform policy's novelty is near."""
NEAR_VALUE = 0.1
"""How near to the uniform policy's value is near, as a share of it."""


def value_against_floor(e: Evidence, method: str, levels: Sequence[float]) -> str:
    """At levels where a method violated the constraint less than was said: did it lose value?"""
    if not levels:
        return ""
    counts = e.violations(method, levels)
    some = {v: (c, n) for v, (c, n) in counts.items() if c}
    kept = {v: x for v, x in e.values(method, levels).items() if v not in some}
    losing = {v: x for v, x in kept.items() if x < 1}
    gaining = {v: x for v, x in kept.items() if x >= 1}
    text = ""
    if some:
        where = ", ".join(f"in {c} of {n} seeds only at {e.say([v])}" for v, (c, n) in some.items())
        text += f"{NAMES[method]} violated it {where}. "
    if losing:
        text += (
            f"{NAMES[method]} loses value ({listed(losing)}), but less than the floor "
            f"of {e.recipe.floor:g} allows. "
        )
    if gaining:
        text += f"{NAMES[method]} is no worse than pi0 in the mean ({listed(gaining)})."
    return text.strip()


def noise_of_seeds(e: Evidence, gaps: Mapping[float, float], within: float) -> str:
    """Gaps of V(pi0) / V(pi*) that are too large by no more than two standard errors.

    Args:
        e: the evidence.
        gaps: those that are too large, by level.
        within: how large they may be.
    """
    told = []
    for level, gap in gaps.items():
        ratio = e.runs.optimality(level)
        spread = deviation(ratio)
        if spread is None:
            continue
        error = spread / math.sqrt(len(ratio))
        if abs(gap) - 2 * error <= within:
            told.append(
                f"At {e.say([level])} the gap is within the noise of {len(ratio)} seeds (standard "
                f"error {error:.3f})."
            )
    return " ".join(told)


def margin_frees_the_last(e: Evidence, method: str, levels: Sequence[float] | None = None) -> str:
    """In the last training lambda was 0 wherever it was kept: nothing held the last policy."""
    results = e.runs.over(method, e.levels if levels is None else levels)
    free = [r for r in results if max(r["history"][-1]["lambda"]) == 0]
    if not free or 2 * len(free) < len(results):
        return ""
    last = float(np.mean([novelty()(r) for r in free]))
    text = (
        f"In {len(free)} of {len(results)} runs of {NAMES[method]} lambda was 0 at all points kept "
        f"of the last training: nothing held the last policy back. Its mean novelty is {last:.3f}"
    )
    if abs(last - e.novel_share) <= NEAR:
        text += f", near the {e.novel_share:.2f} of uniform choice"
        if max(abs(over_uniform(r) - 1) for r in free) <= NEAR_VALUE:
            text += (
                f", and its value is within {NEAR_VALUE:.0%} of the uniform policy's, "
                "which entropy pulls it to"
            )
    return text + "."


def over_uniform(result: Result) -> float:
    """V(pi) / V(uniform) of the last policy, test users."""
    return float(result["deployments"][-1]["value_test"] / result["logging"]["uniform_test"])


def of_violations(e: Evidence, method: str, *senses: str) -> tuple[str, ...]:
    """Why a method of DEPSUE violated the constraint, in the senses that a statement is about.

    Args:
        e: the evidence.
        method: which K.
        senses: keys of OVER_DEPLOYMENTS; those in which it was not violated are passed over.
    """
    found: list[str] = []
    for how in senses if deployments_of(method) > 1 else senses[:1]:  # K = 1: all are the same
        if not _violating(e, method, how):
            continue
        found += [
            average_keeps_the_floor(e, method) if how == "last" else "",
            training_users_keep_the_floor(e, method, how),
            bound_above_truth(e, method, how),
            _not_reached(_looked_at(_violating(e, method, how), how), _which(method, how)),
        ]
    return tuple(found)


SENSES = {
    "last": "last policies",
    "average": "averages over the deployments",
    "prefix": "averages up to some k",
}
"""What violated the constraint, by keys of OVER_DEPLOYMENTS."""


def _which(method: str, how: str) -> str:
    """The deployments of the runs that violated the constraint in a sense."""
    if how == "last":
        return f"last deployments of {NAMES[method]} that fell below the floor"
    whose = SENSES[how].replace("averages", "average")
    return f"deployments in the runs of {NAMES[method]} whose {whose} fell below the floor"


def _violating(e: Evidence, method: str, how: str) -> list[Result]:
    measure = value(how)
    return [r for r in e.runs.over(method, e.levels) if measure(r) < e.recipe.floor]


def _looked_at(results: Sequence[Result], how: str) -> list[Result]:
    """The deployments that count in a sense: the last, or all."""
    rows = [r["deployments"][-1:] if how == "last" else r["deployments"] for r in results]
    return [deployment for row in rows for deployment in row]


def training_users_keep_the_floor(e: Evidence, method: str, how: str) -> str:
    """The bound speaks of the training users; the paper judges by the test users."""
    counts = [e.runs.violations(method, v, how, "train") for v in e.levels]
    if any(c for c, _ in counts):
        return ""
    return (
        f"Against the training {e.runs.who}, whom the bound speaks of, none of the {SENSES[how]} "
        f"of {NAMES[method]} fell below the floor."
    )


def bound_above_truth(e: Evidence, method: str, how: str) -> str:
    """Bounds that were wrong, as a fraction delta of them may be."""
    rows = _looked_at(_violating(e, method, how), how)
    wrong = sum(d["bound"] > d["value_train"] for d in rows)
    if not wrong:
        return ""
    return (
        f"In {wrong} of {len(rows)} {_which(method, how)} the bound was above the true value on "
        f"the training {e.runs.who}; delta = {e.delta:g} limits that share only for policies that "
        "were not tuned on the bound's own rows."
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


def bound_not_reached(e: Evidence, method: str, levels: Sequence[float]) -> str:
    """Policies whose bound stayed below the need were deployed all the same."""
    rows = _looked_at(e.runs.over(method, levels), "average")
    return _not_reached(rows, f"deployments of {NAMES[method]} at {e.say(levels)}")


def _not_reached(rows: Sequence[Result], which: str) -> str:
    failed = sum(not d["passed"] for d in rows)
    if not failed:
        return ""
    return (
        f"In {failed} of {len(rows)} {which} the bound had not passed the need when training "
        "ended; as in the paper, the policy was deployed all the same."
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
