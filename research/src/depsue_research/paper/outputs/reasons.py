"""Why a statement does not hold: each reason is given only where the figures bear it out.

The first half is about values, margins and bounds, the second about the reward models. A function
returns a sentence, or an empty string where its reason does not apply.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from depsue.learners.gradient import ValueWithEntropy
from depsue_research.paper.cells import Result
from depsue_research.paper.outputs.evidence import RunEvidence, average, listed
from depsue_research.paper.outputs.reading import (
    DEPSUE,
    NAIVE,
    NAMES,
    deviation,
    novelty,
    shares,
    validated,
    value,
)
from depsue_research.paper.recipe import deployments_of
from depsue_research.paper.run_cell import BINS

NEAR = 0.02
"""How near to the uniform policy's novelty is near."""
NEAR_VALUE = 0.1
"""How near to the uniform policy's value is near, as a share of it."""


def value_against_floor(e: RunEvidence, method: str, levels: Sequence[float]) -> str:
    """At levels where a method violated the constraint less than was said: did it lose value?"""
    if not levels:
        return ""
    counts = e.violations(method, levels)
    violated = {v: (c, n) for v, (c, n) in counts.items() if c}
    safe = {v: x for v, x in e.values(method, levels).items() if v not in violated}
    losing = {v: x for v, x in safe.items() if x < 1}
    gaining = {v: x for v, x in safe.items() if x >= 1}
    text = ""
    if violated:
        where = ", ".join(
            f"in {c} of {n} seeds only at {e.say([v])}" for v, (c, n) in violated.items()
        )
        text += f"{NAMES[method]} violated it {where}. "
    if losing:
        text += (
            f"{NAMES[method]} loses value ({listed(losing)}), but less than the floor "
            f"of {e.recipe.floor:g} allows. "
        )
    if gaining:
        text += f"{NAMES[method]} is no worse than pi0 in the mean ({listed(gaining)})."
    return text.strip()


def noise_of_seeds(e: RunEvidence, gaps: Mapping[float, float], within: float) -> str:
    """Gaps of V(pi0) / V(pi*) that are too large by no more than two standard errors.

    Args:
        e: the evidence.
        gaps: those that are too large, by level.
        within: how large they may be.
    """
    sentences = []
    for level, gap in gaps.items():
        ratio = e.runs.optimality(level)
        spread = deviation(ratio)
        if spread is None:
            continue
        error = spread / math.sqrt(len(ratio))
        if abs(gap) - 2 * error <= within:
            sentences.append(
                f"At {e.say([level])} the gap is within the noise of {len(ratio)} seeds (standard "
                f"error {error:.3f})."
            )
    return " ".join(sentences)


def margin_frees_the_last(
    e: RunEvidence, method: str, levels: Sequence[float] | None = None
) -> str:
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


def of_violations(e: RunEvidence, method: str, *senses: str) -> tuple[str, ...]:
    """Why a method of DEPSUE violated the constraint, in the senses that a statement is about.

    Args:
        e: the evidence.
        method: which K.
        senses: keys of OVER_DEPLOYMENTS; those in which it was not violated are passed over.
    """
    sentences: list[str] = []
    for how in senses if deployments_of(method) > 1 else senses[:1]:  # K = 1: all are the same
        if not _violating(e, method, how):
            continue
        sentences += [
            average_keeps_the_floor(e, method) if how == "last" else "",
            training_users_keep_the_floor(e, method, how),
            bound_above_truth(e, method, how),
            _not_reached(_looked_at(_violating(e, method, how), how), _which(method, how)),
        ]
    return tuple(sentences)


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


def _violating(e: RunEvidence, method: str, how: str) -> list[Result]:
    measure = value(how)
    return [r for r in e.runs.over(method, e.levels) if measure(r) < e.recipe.floor]


def _looked_at(results: Sequence[Result], how: str) -> list[Result]:
    """The deployments that count in a sense: the last, or all."""
    rows = [r["deployments"][-1:] if how == "last" else r["deployments"] for r in results]
    return [deployment for row in rows for deployment in row]


def training_users_keep_the_floor(e: RunEvidence, method: str, how: str) -> str:
    """The bound speaks of the training users; the paper judges by the test users."""
    counts = [e.runs.violations(method, v, how, "train") for v in e.levels]
    if any(c for c, _ in counts):
        return ""
    return (
        f"Against the training {e.runs.who}, whom the bound speaks of, none of the {SENSES[how]} "
        f"of {NAMES[method]} fell below the floor."
    )


def bound_above_truth(e: RunEvidence, method: str, how: str) -> str:
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


def average_keeps_the_floor(e: RunEvidence, method: str) -> str:
    """The last policy may lie below the floor where the average over deployments does not."""
    last = sum(count for count, _ in e.violations(method).values())
    mean = sum(count for count, _ in e.violations(method, how="average").values())
    if not last or mean:
        return ""
    return (
        f"The average over the deployments of {NAMES[method]} never fell below the floor: Eq. 9 "
        "limits the average, and lets a late policy spend what earlier ones earned."
    )


def bound_not_reached(e: RunEvidence, method: str, levels: Sequence[float]) -> str:
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


def short_of_the_need(e: RunEvidence) -> str:
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


def spent_on_novelty(e: RunEvidence, moves: dict[float, tuple[float, float]]) -> str:
    """Levels at which novelty rose over the stages while value fell."""
    spent = [v for v, (value, novel) in moves.items() if value < 0 < novel]
    if not spent:
        return ""
    return (
        f"At {e.say(spent)} novelty rises and value falls: there the margin is spent, not earned."
    )


def naive_near_uniform(e: RunEvidence, *, of_novelty: bool = False) -> str:
    """Eq. 2 leaves naive OPG near the uniform policy: said where novelty and value show it.

    Args:
        e: the evidence.
        of_novelty: the statement is about novelty, so that a novelty near that of uniform choice
            is a reason even where the value is another.
    """
    groups = [e.runs.numbers(m, v, novelty()) for m in NAIVE for v in e.levels]
    groups = [group for group in groups if len(group)]
    if not groups:
        return ""
    spread = max((s for group in groups if (s := deviation(group)) is not None), default=None)
    off = max(abs(float(group.mean()) - e.novel_share) for group in groups)
    if off > NEAR or (spread or 0.0) > NEAR:
        return ""
    uniform = _value_near_uniform(e)
    if not uniform and not of_novelty:
        return ""
    head = "ends near the uniform policy" if uniform else f"has a novelty near {e.novel_share:.2f}"
    text = (
        f"OPG (naive) {head}: at every {e.recipe.level_name} its mean novelty is within {NEAR:g} "
        f"of the {e.novel_share:.2f} of uniform choice"
    )
    if spread is not None:
        text += f" (its deviation over the seeds is at most {spread:.4f})"
    text += f", and its value within {NEAR_VALUE:.0%} of the uniform policy's." if uniform else "."
    objective = e.recipe.opg.objective
    if isinstance(objective, ValueWithEntropy) and objective.alpha > 0:
        tilt = (1 - objective.alpha) / objective.alpha
        text += (
            f" Eq. 2 with alpha = {objective.alpha:g} is largest at pi proportional to "
            f"exp({tilt:g} q-hat)"
        )
        sd = _deviation_of_q(e)
        if sd is not None:
            factor = math.exp(tilt * sd)
            text += (
                f"; q deviates by {sd:.3f} over users and novel actions, so one deviation changes "
                f"a probability by a factor of {factor:.2f}" + (" only" if factor < 1.5 else "")
            )
        text += "."
    printed = e.paper.row("novelty_deviation", "opg_mean")
    if uniform and printed and spread is not None and min(printed.values()) > 5 * spread:
        text += (
            f" The paper's naive rows have deviations of {min(printed.values()):.2f} to "
            f"{max(printed.values()):.2f}, which policies near the uniform one cannot have."
        )
    return text


def _value_near_uniform(e: RunEvidence) -> bool:
    """Whether the mean value of naive OPG is near the uniform policy's at every level."""
    groups = [e.runs.numbers(m, v, over_uniform) for m in NAIVE for v in e.levels]
    return all(abs(float(group.mean()) - 1) <= NEAR_VALUE for group in groups if len(group))


def cql_shuns_novel(e: RunEvidence) -> str:
    """CQL's q-hat is far lower for novel actions, so its policy avoids them in every seed."""
    pairs = [_means(r, "q_hat") for r in e.runs.over("opg_cql") if "distributions" in r]
    if not pairs:
        return ""
    supported, novel = np.mean(pairs, axis=0)
    share = average(e.novelties("opg_cql"))
    if novel > supported / 2 or share > e.novel_share / 2:
        return ""
    text = (
        f"CQL's policy shuns novel actions (mean novelty {share:.3f}): its q-hat gives them "
        f"{novel:.3f} on average, and logged pairs {supported:.3f}."
    )
    reached = e.paper.row("novelty_reached", "opg_cql")
    if reached:
        means = e.paper.row("novelty_mean", "opg_cql")
        text += (
            f" The paper's mean of {average(means):.3f} comes from {sum(reached.values()):.0f} of "
            f"{e.paper.seeds * len(reached)} runs with a novelty of at least .1."
        )
    return text


def model_is_right(e: RunEvidence) -> str:
    """The naive model is right about novel actions on average: nothing is overestimated."""
    results = [r for v in e.levels for r in e.runs.of("opg_mean", v) if "distributions" in r]
    if not results:
        return ""
    truth = np.array([_means(r, "q")[1] for r in results])
    predicted = np.array([_means(r, "q_hat")[1] for r in results])
    off = float(np.abs(predicted / truth - 1).max())
    if off > 0.05:
        return ""
    return (
        f"The naive q-hat is right about novel actions on average: its mean over them is within "
        f"{off:.1%} of the truth in every cell ({predicted.mean():.3f} against {truth.mean():.3f}),"
        " so there is little overestimation."
    )


def estimator_is_near(e: RunEvidence, method: str, estimator: str) -> str:
    """How far an estimator's figures are from the truth that its rows are of, if they are near."""
    results = validated(e.runs, method)
    if not results:
        return ""
    off = [
        abs(
            r["validation"][estimator] / r["validation"]["on_policy"]
            - r["deployments"][-1]["value_train"] / r["logging"]["value_train"]
        )
        for r in results
    ]
    if np.mean(off) > 0.05:
        return ""
    return (
        f"{estimator.upper()} is off by {np.mean(off):.3f} V(pi0) on average (at most "
        f"{max(off):.3f}) on the policies of {NAMES[method]}."
    )


def _means(result: Result, entry: str) -> tuple[float, float]:
    part = result["distributions"][entry]
    return float(part["supported"]["mean"]), float(part["novel"]["mean"])


def _deviation_of_q(e: RunEvidence) -> float | None:
    """The standard deviation of q over users and novel actions, from the kept histograms."""
    histograms = [
        shares(r["distributions"]["q"]["novel"], BINS)
        for m in NAIVE
        for v in e.levels
        for r in e.runs.of(m, v)
        if "distributions" in r
    ]
    if not histograms:
        return None
    weights = np.mean(histograms, axis=0)
    middles = (np.arange(BINS) + 0.5) / BINS
    mean = np.average(middles, weights=weights)
    return float(np.sqrt(np.average((middles - mean) ** 2, weights=weights)))
