"""Statements on MovieLens in the paper's sections 3 to 6.

Logging policies, OPG and Safe OPG (section 4), DEPSUE with K = 1, 2, 5 (sections 5 and 6), and the
reward models, R and the bound (section 3 and appendix).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from depsue.testing.bounds import rate_interval
from depsue_research.paper.outputs import reasons
from depsue_research.paper.outputs.evidence import (
    Check,
    Measurement,
    NotMeasured,
    RunEvidence,
    average,
    because,
    by_method,
    counted,
    listed,
)
from depsue_research.paper.outputs.reading import (
    DEPSUE,
    NAIVE,
    NAMES,
    OPG,
    novelty,
    over_training,
    r_and_bound,
    shown_levels,
    value,
)
from depsue_research.paper.outputs.reasons import (
    cql_shuns_novel,
    model_is_right,
    naive_near_uniform,
)

WITHIN = 0.02
"""How near V(pi0) / V(pi*) must be to the paper's."""


def logging_as_published(e: RunEvidence) -> Measurement:
    """V(pi0) / V(pi*) against the paper's table."""
    e.need_published()
    printed = e.paper.row("logging_optimality", "pi0")
    gaps = {v: x - printed[v] for v, x in e.logging("value_test", "best_test").items()}
    text = ", ".join(f"{v:g}: {gap:+.3f}" for v, gap in gaps.items())
    off = {v: gap for v, gap in gaps.items() if abs(gap) > WITHIN}
    return Measurement(f"Gaps: {text}.", not off, because(reasons.noise_of_seeds(e, off, WITHIN)))


def logging_spans(e: RunEvidence) -> Measurement:
    """V(pi0) / V(uniform) below and above 1."""
    e.need_levels(e.negative, e.positive)
    over = e.logging("value_test", "uniform_test")
    top = e.logging("value_test", "best_test")[max(e.levels)]
    below, above = (all(over[v] < 1 for v in e.negative), all(over[v] > 1 for v in e.positive))
    text = f"V(pi0) / V(uniform) {listed(over)}; V(pi0) / V(pi*) {top:.3f} at the largest."
    return Measurement(text, below and above and top >= 0.9)


def naive_violates(e: RunEvidence, *, most: bool = False) -> Measurement:
    """Violations of OPG (naive) under good logging policies: in half of the seeds, or in most."""
    counts = {m: e.violations(m, e.good) for m in NAIVE}
    seldom = {
        m: [v for v, (c, n) in by_level.items() if 2 * c < n or (most and 2 * c == n)]
        for m, by_level in counts.items()
    }
    text = by_method({m: counted(c) for m, c in counts.items()})
    why = [reasons.value_against_floor(e, m, seldom[m]) for m in NAIVE]
    return Measurement(text, not any(seldom.values()), because(naive_near_uniform(e), *why))


def cql_violates(e: RunEvidence) -> Measurement:
    """Violations of OPG (w/ CQL) under poor logging policies."""
    counts = e.violations("opg_cql", e.poor_and_stochastic)
    often = e.too_often(counts)
    safe = [v for v in counts if v not in often]
    reason = reasons.value_against_floor(e, "opg_cql", safe)
    return Measurement(by_method({"opg_cql": counted(counts)}), not safe, because(reason))


def opg_far_below(e: RunEvidence) -> Measurement:
    """The worst relative values of the OPGs."""
    worst = {m: float(e.pooled(m, value()).min()) for m in OPG}
    holds = any(w < 0.9 for w in worst.values())
    text = by_method({m: f"{w:.3f}" for m, w in worst.items()})
    return Measurement(
        f"Worst of {e.runs.seeds_in_words()}: {text}",
        holds,
        because(naive_near_uniform(e)),
    )


def safe_opg_never_violates(e: RunEvidence) -> Measurement:
    """Violations of Safe OPG."""
    counts = e.violations("depsue_1")
    n = min(n for _, n in counts.values())
    holds = not any(c for c, _ in counts.values())
    text = by_method({"depsue_1": counted(counts)}) + (f" {_up_to(n)}" if holds else "")
    return Measurement(text, holds, because(*reasons.of_violations(e, "depsue_1", "last")))


def safe_opg_hardly_novel(e: RunEvidence) -> Measurement:
    """Novelty of Safe OPG."""
    by_level = e.novelties("depsue_1")
    return Measurement(by_method({"depsue_1": listed(by_level)}), max(by_level.values()) <= 0.12)


def opg_more_novel(e: RunEvidence) -> Measurement:
    """Novelty of the OPGs against Safe OPG's."""
    e = e.shared(*OPG, "depsue_1")
    safe = average(e.novelties("depsue_1"))
    others = {m: average(e.novelties(m)) for m in OPG}
    text = by_method({m: f"{x:.3f}" for m, x in {**others, "depsue_1": safe}.items()})
    holds = all(x >= 2 * safe for x in others.values())
    return Measurement(text, holds, because(cql_shuns_novel(e)))


def _up_to(n: int) -> str:
    return f"0 of {n} does not rule out a true rate of up to {rate_interval(0, n)[1]:.2f} (95%)."


OPG_CHECKS = (
    Check(
        "The logging policies go from poor to near-optimal as its table says.",
        "appendix, table of logging policies",
        f"The mean of V(pi0) / V(pi*) is within {WITHIN:g} of the paper's at every {{name}}.",
        logging_as_published,
    ),
    Check(
        "A negative beta gives a policy worse than uniform, a large one a near-optimal policy.",
        "section 4, setup",
        "V(pi0) < V(uniform) at {negative}, > at {positive}, and V(pi0) / V(pi*) >= .9 at the "
        "largest.",
        logging_spans,
    ),
    Check(
        "OPG (naive) violates the constraint considerably when pi0 is near-optimal (beta >= 8).",
        "section 4 (i)",
        "Both variants violate in at least half of the seeds at each of {good}.",
        naive_violates,
    ),
    Check(
        "OPG (naive) violates it in most cases when pi0 performs well.",
        "appendix, additional comparisons",
        "Both variants violate in more than half of the seeds at each of {good}.",
        lambda e: naive_violates(e, most=True),
    ),
    Check(
        "OPG (w/ CQL) often violates it when pi0 is poor (beta = -16, -8, 0).",
        "section 4 (i); appendix",
        "Violated in more than delta = {delta} of the seeds at each of {poor_and_stochastic}.",
        cql_violates,
    ),
    Check(
        "The existing methods can be far below the logging policy.",
        "sections 1 and 4; conclusion",
        "The worst relative value of at least one OPG over all levels and seeds is below .9.",
        opg_far_below,
    ),
    Check(
        "Safe OPG never violates the constraint.",
        "section 4 (i)",
        "No violation at any {name} in any seed, last policy, test users.",
        safe_opg_never_violates,
    ),
    Check(
        "Safe OPG hardly chooses novel actions, even where pi0 is far worse than uniform.",
        "section 4 (ii)",
        "Its mean novelty is at most .12, the paper's largest, at every {name}.",
        safe_opg_hardly_novel,
    ),
    Check(
        "OPG (naive) and OPG (w/ CQL) choose novel actions much more often than Safe OPG.",
        "section 4 (ii)",
        "The mean novelty over all {name} of each OPG is at least twice Safe OPG's.",
        opg_more_novel,
    ),
)


def novelty_grows_with_k(e: RunEvidence) -> Measurement:
    """Novelty over K, last policy."""
    e = e.shared(*DEPSUE)
    k1, k2, k5 = (e.novelties(m) for m in DEPSUE)
    mean = {m: listed(e.means(m, novelty("average"))) for m in DEPSUE[1:]}
    text = by_method({m: listed(x) for m, x in zip(DEPSUE, (k1, k2, k5), strict=True)})
    freed = [reasons.margin_frees_the_last(e, m) for m in DEPSUE[1:]]
    grows = {v: k1[v] < k2[v] < k5[v] for v in e.levels}
    where = e.say(v for v, ok in grows.items() if not ok)
    return Measurement(
        f"{text} Averages over the deployments: {by_method(mean)}",
        all(grows.values()),
        because(f"Not so at {where}.", *freed),
    )


def more_novel_than_one(e: RunEvidence) -> Measurement:
    """Novelty of K = 2 and 5, last and average, against K = 1."""
    e = e.shared(*DEPSUE)
    k1 = e.novelties("depsue_1")
    text, fails = {}, []
    for method in DEPSUE[1:]:
        for how in ("last", "average"):
            more = e.means(method, novelty(how))
            fails += [v for v in e.levels if more[v] <= k1[v]]
        text[method] = f"{average(e.novelties(method)):.3f}"
    text["depsue_1"] = f"{average(k1):.3f}"
    return Measurement(
        f"Over all levels, last policy: {by_method(text)}",
        not fails,
        because(f"Not so at {e.say(sorted(set(fails)))}."),
    )


def depsue_always_safe(e: RunEvidence) -> Measurement:
    """Violations of DEPSUE, last policy and average."""
    last = {m: e.violations(m) for m in DEPSUE}
    mean = {m: e.violations(m, how="average") for m in DEPSUE}
    holds = not any(c for x in (last, mean) for by in x.values() for c, _ in by.values())
    why = [w for m in DEPSUE for w in reasons.of_violations(e, m, "last", "average")]
    text = f"Last: {_all(last)} Average: {_all(mean)}"
    return Measurement(text, holds, because(*why))


def every_prefix_safe(e: RunEvidence) -> Measurement:
    """The average of the deployments up to each k."""
    counts = {m: e.violations(m, how="prefix") for m in DEPSUE}
    often = [m for m in DEPSUE if e.too_often(counts[m])]
    why = [w for m in often for w in reasons.of_violations(e, m, "prefix")]
    return Measurement(f"Violated: {_all(counts)}", not often, because(*why))


def value_above_cql(e: RunEvidence) -> Measurement:
    """Value of DEPSUE over that of OPG (w/ CQL)."""
    e = e.shared("opg_cql", *DEPSUE)
    cql = e.values("opg_cql", e.poor)
    gaps = {m: {v: x - cql[v] for v, x in e.values(m, e.poor).items()} for m in DEPSUE}
    holds = all(gap >= 0.04 for by in gaps.values() for gap in by.values())
    text = by_method({m: listed(gap) for m, gap in gaps.items()})
    return Measurement(f"Gaps: {text}", holds)


def novel_only_when_possible(e: RunEvidence) -> Measurement:
    """Novelty under poor against good logging policies."""
    poor = {m: average(e.novelties(m, e.poor)) for m in DEPSUE}
    good = {m: average(e.novelties(m, e.good)) for m in DEPSUE}
    text = by_method({m: f"{poor[m]:.3f} against {good[m]:.3f}" for m in DEPSUE})
    freed = [reasons.margin_frees_the_last(e, m) for m in DEPSUE[1:]]
    return Measurement(text, all(poor[m] > good[m] for m in DEPSUE), because(*freed))


def _all(counts: dict[str, dict[float, tuple[int, int]]]) -> str:
    pooled = {m: tuple(map(sum, zip(*by.values(), strict=True))) for m, by in counts.items()}
    where = {
        m: ", ".join(f"{v:g}: {c}/{n}" for v, (c, n) in by.items() if c) for m, by in counts.items()
    }
    return by_method(
        {m: f"{p[0]}/{p[1]}" + (f" ({where[m]})" if where[m] else "") for m, p in pooled.items()}
    )


DEPSUE_CHECKS = (
    Check(
        "DEPSUE gradually improves novelty as K increases.",
        "section 6",
        "Mean novelty of the last policy rises from K = 1 to 2 and from 2 to 5 at every {name}.",
        novelty_grows_with_k,
    ),
    Check(
        "More than one deployment overcomes the lack of novelty of Safe OPG.",
        "sections 1, 5 and 6",
        "Mean novelty of K = 2 and of K = 5, last policy and average, is above K = 1's at every "
        "{name}.",
        more_novel_than_one,
    ),
    Check(
        "DEPSUE always satisfies the constraint.",
        "section 6",
        "No violation for K = 1, 2, 5 at any {name} in any seed, by the last policy or by the "
        "average over the deployments; test users.",
        depsue_always_safe,
    ),
    Check(
        "The average value up to every deployment exceeds the floor with high probability.",
        "section 5",
        "For every K and {name}, the average up to some k is below the floor in at most delta = "
        "{delta} of the seeds; test users.",
        every_prefix_safe,
    ),
    Check(
        "DEPSUE's value is much higher than that of OPG (w/ CQL) when beta < 0.",
        "section 6",
        "Mean relative value of the last policy, each K, at least .04 above CQL's at each of "
        "{poor} (the paper's smallest gap is .048).",
        value_above_cql,
    ),
    Check(
        "DEPSUE explores when the logging policy is bad, and holds back when it is near-optimal.",
        "section 6",
        "For each K the mean novelty of the last policy over {poor} is above that over {good}.",
        novel_only_when_possible,
    ),
)


def naive_model_rates_novel_high(e: RunEvidence) -> Measurement:
    """q-hat over novel actions against q-hat over logged pairs."""
    ratio = _ratio(e, "opg_mean", "q_hat", shown_levels(e.runs))
    holds = min(ratio.values()) >= 0.95
    return Measurement(f"Novel over logged: {listed(ratio)}.", holds, because(model_is_right(e)))


def naive_model_overestimates(e: RunEvidence) -> Measurement:
    """q-hat over novel actions against the truth, under good logging policies."""
    predicted = _mean_of(e, "opg_mean", "q_hat", "novel", e.good)
    truth = _mean_of(e, "opg_mean", "q", "novel", e.good)
    ratio = {v: predicted[v] / truth[v] for v in e.good}
    holds = min(ratio.values()) >= 1.05
    return Measurement(f"q-hat over q: {listed(ratio)}.", holds, because(model_is_right(e)))


def novel_are_poorer(e: RunEvidence) -> Measurement:
    """q over novel actions against q over logged pairs, at the largest level shown."""
    ratio = _ratio(e, "opg_mean", "q", [max(shown_levels(e.runs))])
    return Measurement(f"Novel over logged: {listed(ratio)}.", max(ratio.values()) <= 0.95)


def cql_underestimates(e: RunEvidence) -> Measurement:
    """CQL's q-hat over novel actions against the truth, under poor logging policies."""
    predicted = _mean_of(e, "opg_cql", "q_hat", "novel", e.poor)
    truth = _mean_of(e, "opg_cql", "q", "novel", e.poor)
    text = f"q-hat {listed(predicted)}; truth {listed(truth)}."
    return Measurement(text, all(predicted[v] < truth[v] for v in e.poor))


def cql_overconfident(e: RunEvidence) -> Measurement:
    """CQL's q-hat over logged pairs against the truth, under poor logging policies."""
    predicted = _mean_of(e, "opg_cql", "q_hat", "supported", e.poor)
    truth = _mean_of(e, "opg_cql", "q", "supported", e.poor)
    text = f"q-hat {listed(predicted)}; truth {listed(truth)}."
    return Measurement(text, all(predicted[v] > truth[v] for v in e.poor))


def r_goes_with_the_bound(e: RunEvidence) -> Measurement:
    """Correlation of R and the bound along training."""
    correlation = {}
    for level in e.levels:
        results = e.runs.of("depsue_1", level)
        correlations = [c for r in results if (c := r_and_bound(r)) is not None]
        if not correlations:
            raise NotMeasured(f"No finished training of Safe OPG at {e.say([level])}.")
        correlation[level] = float(np.mean(correlations))
    low = [v for v, c in correlation.items() if c <= 0.5]
    return Measurement(
        f"Correlation {listed(correlation, 2)}.", not low, because(*_apart(e, correlation, low))
    )


def bound_rises(e: RunEvidence) -> Measurement:
    """The bound at the end of training less that at its start, over V_on(pi0)."""
    gain = e.means(
        "depsue_1",
        lambda r: (r["history"][0]["bound"][-1] - r["history"][0]["bound"][0]) / r["on_policy"],
    )
    return Measurement(f"Rise over V_on(pi0): {listed(gain)}.", min(gain.values()) > 0)


def constraint_is_met(e: RunEvidence) -> Measurement:
    """First deployments whose bound passes."""
    text, holds = {}, True
    for method in ("depsue_1", "depsue_2", "depsue_5"):
        passed = e.means(method, lambda r: float(r["deployments"][0]["passed"]))
        holds &= min(passed.values()) >= 1 - e.delta
        text[method] = listed(passed, 2)
    return Measurement(f"Passed: {by_method(text)}", holds, because(reasons.short_of_the_need(e)))


def _ratio(e: RunEvidence, method: str, entry: str, levels: Iterable[float]) -> dict[float, float]:
    novel = _mean_of(e, method, entry, "novel", levels)
    logged = _mean_of(e, method, entry, "supported", levels)
    return {v: novel[v] / logged[v] for v in novel}


def _mean_of(
    e: RunEvidence, method: str, entry: str, kind: str, levels: Iterable[float]
) -> dict[float, float]:
    """Mean over the seeds of the mean of q or q-hat over novel actions or logged pairs."""
    means = {}
    for level in levels:
        results = [r for r in e.runs.of(method, level) if "distributions" in r]
        if not results:
            raise NotMeasured(f"No finished cell of {NAMES[method]} at {e.say([level])}.")
        means[level] = float(np.mean([r["distributions"][entry][kind]["mean"] for r in results]))
    if not means:
        raise NotMeasured("The recipe has no such logging policy.")
    return means


def _apart(
    e: RunEvidence, correlation: Mapping[float, float], low: Iterable[float]
) -> tuple[str, str]:
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
        elif rise > 0 and correlation[level] > 0:
            noisy.append(level)
    noise = (
        f"At {e.say(noisy)} R rose over training, and the bound in every seed; R is kept over "
        "minibatches only, whose noise lowers the correlation."
    )
    against = f"At {e.say(fell)} R fell over training while the bound rose in every seed."
    return noise if noisy else "", against if fell else ""


MODEL_CHECKS = (
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
