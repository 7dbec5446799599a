"""Why a statement does not hold, by the reward models; each only where the figures bear it out."""

from __future__ import annotations

import math

import numpy as np

from depsue.learners.gradient import ValueWithEntropy
from depsue_research.paper.cells import Result
from depsue_research.paper.outputs.claim import Evidence, average
from depsue_research.paper.outputs.intervals import deviation
from depsue_research.paper.outputs.method_names import NAMES
from depsue_research.paper.outputs.reading import NAIVE, novelty, shares
from depsue_research.paper.outputs.reasons import NEAR, NEAR_VALUE, over_uniform
from depsue_research.paper.outputs.tables_validation import validated
from depsue_research.paper.run_cell import BINS


def naive_near_uniform(e: Evidence, *, of_novelty: bool = False) -> str:
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


def _value_near_uniform(e: Evidence) -> bool:
    """Whether the mean value of naive OPG is near the uniform policy's at every level."""
    groups = [e.runs.numbers(m, v, over_uniform) for m in NAIVE for v in e.levels]
    return all(abs(float(group.mean()) - 1) <= NEAR_VALUE for group in groups if len(group))


def cql_shuns_novel(e: Evidence) -> str:
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


def model_is_right(e: Evidence) -> str:
    """The naive model is right about novel actions on average: nothing is overestimated."""
    results = [r for v in e.levels for r in e.runs.of("opg_mean", v) if "distributions" in r]
    if not results:
        return ""
    truth = np.array([_means(r, "q")[1] for r in results])
    told = np.array([_means(r, "q_hat")[1] for r in results])
    off = float(np.abs(told / truth - 1).max())
    if off > 0.05:
        return ""
    return (
        f"The naive q-hat is right about novel actions on average: its mean over them is within "
        f"{off:.1%} of the truth in every cell ({told.mean():.3f} against {truth.mean():.3f}), so "
        "there is little overestimation."
    )


def estimator_is_near(e: Evidence, method: str, estimator: str) -> str:
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


def _deviation_of_q(e: Evidence) -> float | None:
    """The standard deviation of q over users and novel actions, from the kept histograms."""
    kept = [
        shares(r["distributions"]["q"]["novel"], BINS)
        for m in NAIVE
        for v in e.levels
        for r in e.runs.of(m, v)
        if "distributions" in r
    ]
    if not kept:
        return None
    weights = np.mean(kept, axis=0)
    middles = (np.arange(BINS) + 0.5) / BINS
    mean = np.average(middles, weights=weights)
    return float(np.sqrt(np.average((middles - mean) ** 2, weights=weights)))
