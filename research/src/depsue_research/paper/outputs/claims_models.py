"""Statements on MovieLens: reward models, R and the bound (section 3 and appendix)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from depsue_research.paper.outputs import reasons
from depsue_research.paper.outputs.claim import (
    Check,
    Evidence,
    Finding,
    NotMeasured,
    because,
    by_method,
    listed,
)
from depsue_research.paper.outputs.method_names import NAMES
from depsue_research.paper.outputs.reading import shown_levels
from depsue_research.paper.outputs.reasons_models import model_is_right
from depsue_research.paper.outputs.training_facts import over_training, r_and_bound


def naive_model_rates_novel_high(e: Evidence) -> Finding:
    """q-hat over novel actions against q-hat over logged pairs."""
    ratio = _ratio(e, "opg_mean", "q_hat", shown_levels(e.runs))
    holds = min(ratio.values()) >= 0.95
    return Finding(f"Novel over logged: {listed(ratio)}.", holds, because(model_is_right(e)))


def naive_model_overestimates(e: Evidence) -> Finding:
    """q-hat over novel actions against the truth, under good logging policies."""
    told = _mean_of(e, "opg_mean", "q_hat", "novel", e.good)
    truth = _mean_of(e, "opg_mean", "q", "novel", e.good)
    ratio = {v: told[v] / truth[v] for v in e.good}
    holds = min(ratio.values()) >= 1.05
    return Finding(f"q-hat over q: {listed(ratio)}.", holds, because(model_is_right(e)))


def novel_are_poorer(e: Evidence) -> Finding:
    """q over novel actions against q over logged pairs, at the largest level shown."""
    ratio = _ratio(e, "opg_mean", "q", [max(shown_levels(e.runs))])
    return Finding(f"Novel over logged: {listed(ratio)}.", max(ratio.values()) <= 0.95)


def cql_underestimates(e: Evidence) -> Finding:
    """CQL's q-hat over novel actions against the truth, under poor logging policies."""
    told = _mean_of(e, "opg_cql", "q_hat", "novel", e.poor)
    truth = _mean_of(e, "opg_cql", "q", "novel", e.poor)
    text = f"q-hat {listed(told)}; truth {listed(truth)}."
    return Finding(text, all(told[v] < truth[v] for v in e.poor))


def cql_overconfident(e: Evidence) -> Finding:
    """CQL's q-hat over logged pairs against the truth, under poor logging policies."""
    told = _mean_of(e, "opg_cql", "q_hat", "supported", e.poor)
    truth = _mean_of(e, "opg_cql", "q", "supported", e.poor)
    text = f"q-hat {listed(told)}; truth {listed(truth)}."
    return Finding(text, all(told[v] > truth[v] for v in e.poor))


def r_goes_with_the_bound(e: Evidence) -> Finding:
    """Correlation of R and the bound along training."""
    found = {}
    for level in e.levels:
        results = e.runs.of("depsue_1", level)
        kept = [c for r in results if (c := r_and_bound(r)) is not None]
        if not kept:
            raise NotMeasured(f"No finished training of Safe OPG at {e.say([level])}.")
        found[level] = float(np.mean(kept))
    low = [v for v, c in found.items() if c <= 0.5]
    return Finding(f"Correlation {listed(found, 2)}.", not low, because(*_apart(e, found, low)))


def bound_rises(e: Evidence) -> Finding:
    """The bound at the end of training less that at its start, over V_on(pi0)."""
    gain = e.means(
        "depsue_1",
        lambda r: (r["history"][0]["bound"][-1] - r["history"][0]["bound"][0]) / r["on_policy"],
    )
    return Finding(f"Rise over V_on(pi0): {listed(gain)}.", min(gain.values()) > 0)


def constraint_is_met(e: Evidence) -> Finding:
    """First deployments whose bound passes."""
    text, holds = {}, True
    for method in ("depsue_1", "depsue_2", "depsue_5"):
        passed = e.means(method, lambda r: float(r["deployments"][0]["passed"]))
        holds &= min(passed.values()) >= 1 - e.delta
        text[method] = listed(passed, 2)
    return Finding(f"Passed: {by_method(text)}", holds, because(reasons.short_of_the_need(e)))


def _ratio(e: Evidence, method: str, entry: str, levels: Iterable[float]) -> dict[float, float]:
    novel = _mean_of(e, method, entry, "novel", levels)
    logged = _mean_of(e, method, entry, "supported", levels)
    return {v: novel[v] / logged[v] for v in novel}


def _mean_of(
    e: Evidence, method: str, entry: str, kind: str, levels: Iterable[float]
) -> dict[float, float]:
    """Mean over the seeds of the mean of q or q-hat over novel actions or logged pairs."""
    found = {}
    for level in levels:
        kept = [r for r in e.runs.of(method, level) if "distributions" in r]
        if not kept:
            raise NotMeasured(f"No finished cell of {NAMES[method]} at {e.say([level])}.")
        found[level] = float(np.mean([r["distributions"][entry][kind]["mean"] for r in kept]))
    if not found:
        raise NotMeasured("The recipe has no such logging policy.")
    return found


def _apart(e: Evidence, found: Mapping[float, float], low: Iterable[float]) -> tuple[str, str]:
    """Levels of a low correlation at which the bound rose: did R rise with it, or fall?

    Args:
        e: the evidence.
        found: the correlation by level.
        low: the levels at which it is low.
    """
    noisy: list[float] = []
    fell: list[float] = []
    for level in low:
        series = [over_training(r) for r in e.runs.of("depsue_1", level)]
        if not all(bound[-1] > bound[0] for _, bound in series):
            continue
        rise = float(np.mean([r[-1] - r[0] for r, _ in series]))
        if rise < 0:
            fell.append(level)
        elif rise > 0 and found[level] > 0:
            noisy.append(level)
    noise = (
        f"At {e.say(noisy)} R rose over training, and the bound in every seed; R is kept over "
        "minibatches only, whose noise lowers the correlation."
    )
    against = f"At {e.say(fell)} R fell over training while the bound rose in every seed."
    return noise if noisy else "", against if fell else ""


CHECKS = (
    Check(
        "The naive model predicts novel actions as high as observed ones.",
        "appendix, figures of the reward models",
        "Mean q-hat over novel actions at least .95 of that over logged pairs at the three levels "
        "shown.",
        naive_model_rates_novel_high,
    ),
    Check(
        "Under near-optimal logging policies q-hat seriously overestimates low-quality actions.",
        "section 4 (i); appendix",
        "Mean naive q-hat over novel actions at least 1.05 of the truth at each of {good}.",
        naive_model_overestimates,
    ),
    Check(
        "In truth, novel actions are poorer than the observed ones at beta = 16.",
        "appendix, figures of the reward models",
        "Mean q over novel actions at most .95 of that over logged pairs, at the highest level "
        "shown.",
        novel_are_poorer,
    ),
    Check(
        "CQL underestimates novel actions even when pi0 is poor (beta < 0).",
        "appendix, figures of the reward models",
        "Mean q-hat of CQL over novel actions is below the truth at each of {poor}.",
        cql_underestimates,
    ),
    Check(
        "CQL is overconfident about observed actions when pi0 is poor.",
        "section 4 (i); appendix",
        "Mean q-hat of CQL over logged pairs is above the truth at each of {poor}.",
        cql_overconfident,
    ),
    Check(
        "A larger R goes with a larger bound.",
        "section 3; appendix, convergence",
        "Along the training of Safe OPG the correlation of R and the bound, mean over the seeds, "
        "exceeds .5 at every {name}. R is kept as a mean over minibatches only.",
        r_goes_with_the_bound,
    ),
    Check(
        "The bound rises in training, with the regulariser R.",
        "section 3",
        "The bound of Safe OPG is higher after training than before, in the mean at every {name}. "
        "No run without R was made, so how much of the rise is R's is not known.",
        bound_rises,
    ),
    Check(
        "Training ends with a policy whose bound meets the constraint.",
        "section 3; appendix, convergence",
        "The first deployment passes in at least 1 - delta of the seeds at every {name}, for "
        "every K.",
        constraint_is_met,
    ),
)
