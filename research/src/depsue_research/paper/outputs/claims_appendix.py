"""Statements on MovieLens in the paper's appendix: validation OPE, statistics, and five stages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from depsue_research.paper.outputs import reasons
from depsue_research.paper.outputs.evidence import (
    Check,
    Measurement,
    NotMeasured,
    RunEvidence,
    average,
    because,
    by_method,
    listed,
)
from depsue_research.paper.outputs.reading import (
    DEPSUE,
    NAIVE,
    NAMES,
    OPG,
    Verdicts,
    deviation,
    novelties,
    novelty,
    relative_values,
    validated,
    value,
    verdicts,
)
from depsue_research.paper.outputs.reasons import (
    cql_shuns_novel,
    estimator_is_near,
    model_is_right,
    naive_near_uniform,
)
from depsue_research.paper.outputs.tables import ADEQUATE
from depsue_research.paper.recipe import deployments_of


def dm_accepts_all(e: RunEvidence) -> Measurement:
    """Unsafe policies that DM accepts."""
    judged = {m: _judged(e, m, "dm") for m in OPG}
    shares = {m: _unsafe(v, m) for m, v in judged.items()}
    why = [
        model_is_right(e),
        *(estimator_is_near(e, m, "dm") for m in OPG),
    ]
    return Measurement(_accepted(judged), min(shares.values()) == 1, because(*why))


def dr_accepts_half(e: RunEvidence) -> Measurement:
    """Unsafe policies that DR accepts."""
    judged = {m: _judged(e, m, "dr") for m in OPG}
    shares = [_unsafe(v, m) for m, v in judged.items()]
    why = [
        model_is_right(e),
        *(estimator_is_near(e, m, "dr") for m in OPG),
    ]
    return Measurement(_accepted(judged), all(0.3 <= s <= 0.8 for s in shares), because(*why))


def ips_refuses_naive(e: RunEvidence) -> Measurement:
    """Policies of OPG (naive) that IPS refuses, safe and unsafe."""
    text, holds = {}, True
    for method in NAIVE:
        v = _judged(e, method, "ips")
        unsafe = _unsafe(v, method)
        if v.safe_refused is None:
            raise NotMeasured(f"No policy of {NAMES[method]} was better than pi0.")
        holds &= v.safe_refused >= 0.75 and 1 - unsafe >= 0.75
        text[method] = f"safe {v.refused}/{v.better}, unsafe {v.worse - v.accepted}/{v.worse}"
    return Measurement(f"Refused: {by_method(text)}", holds, because(_ips_reason(e, NAIVE)))


def ips_accepts_cql(e: RunEvidence) -> Measurement:
    """Unsafe policies of OPG (w/ CQL) that IPS accepts."""
    v = _judged(e, "opg_cql", "ips")
    holds = _unsafe(v, "opg_cql") > 0.3
    return Measurement(_accepted({"opg_cql": v}), holds, because(_ips_reason(e, ("opg_cql",))))


def ips_differs(e: RunEvidence) -> Measurement:
    """IPS on naive policies and on CQL's."""
    e = e.shared(*OPG)
    judged = {m: _judged(e, m, "ips") for m in OPG}
    shares = {m: _unsafe(v, m) for m, v in judged.items()}
    holds = all(abs(shares[m] - shares["opg_cql"]) >= 0.1 for m in NAIVE)
    return Measurement(_accepted(judged), holds, because(_ips_reason(e, OPG)))


def _judged(e: RunEvidence, method: str, estimator: str) -> Verdicts:
    if not validated(e.runs, method):
        raise NotMeasured(f"No policy of {NAMES[method]} was validated.")
    return verdicts(e.runs, method, estimator)


def _unsafe(v: Verdicts, method: str) -> float:
    if v.unsafe_accepted is None:
        raise NotMeasured(f"No policy of {NAMES[method]} was worse than pi0.")
    return v.unsafe_accepted


def _accepted(judged: dict[str, Verdicts]) -> str:
    counts = {m: f"{v.accepted}/{v.worse}" for m, v in judged.items()}
    return f"Unsafe policies accepted: {by_method(counts)}"


def _ips_reason(e: RunEvidence, methods: Iterable[str]) -> str:
    return " ".join(filter(None, (estimator_is_near(e, m, "ips") for m in methods)))


VALIDATION_CHECKS = (
    Check(
        "DM detects no unsafe policy.",
        "appendix, validation OPE",
        "DM accepts all policies with V(pi) <= V(pi0), of each OPG.",
        dm_accepts_all,
    ),
    Check(
        "DR lets about half of the unsafe policies pass.",
        "appendix, validation OPE",
        "DR accepts between .3 and .8 of them, of each OPG.",
        dr_accepts_half,
    ),
    Check(
        "IPS refuses almost all policies of OPG (naive), whether safe or not.",
        "appendix, validation OPE",
        "IPS refuses at least three quarters of the safe and of the unsafe ones, of both variants.",
        ips_refuses_naive,
    ),
    Check(
        "IPS accepts more than 30% of the unsafe policies of OPG (w/ CQL).",
        "appendix, validation OPE",
        "IPS accepts more than .3 of them.",
        ips_accepts_cql,
    ),
    Check(
        "IPS varies so much that its results differ between OPG (naive) and OPG (w/ CQL).",
        "appendix, validation OPE",
        "The shares of unsafe policies accepted differ by at least .1 from both naive variants.",
        ips_differs,
    ),
)


LAST = "depsue_5"
FAR = 0.05
"""How far above the others a worst value must be to be far above."""


def almost_always_safe(e: RunEvidence) -> Measurement:
    """Violations of DEPSUE over all runs."""
    counts = {m: e.violations(m) for m in DEPSUE}
    every = [c for by in counts.values() for c in by.values()]
    share = sum(c for c, _ in every) / sum(n for _, n in every)
    where = [
        f"K = {deployments_of(m)}, {v:g}: {c}/{n}"
        for m, by in counts.items()
        for v, (c, n) in by.items()
        if c
    ]
    text = f"{share:.3f} of the runs" + (f" ({'; '.join(where)})." if where else ".")
    why = [w for m in DEPSUE for w in reasons.of_violations(e, m, "last")]
    return Measurement(text, share <= e.delta, because(*why))


def worst_is_better(e: RunEvidence) -> Measurement:
    """The worst relative value of K = 5 and of the OPGs."""
    both = e.shared(*OPG, LAST)
    worst = {m: float(both.pooled(m, value()).min()) for m in (*OPG, LAST)}
    text = by_method({m: f"{w:.3f}" for m, w in worst.items()})
    near = [m for m in OPG if worst[LAST] - worst[m] < FAR]
    why = f"Less than {FAR:g} above: {', '.join(NAMES[m] for m in near)}."
    return Measurement(
        f"Worst of {e.runs.seeds_in_words()}: {text}",
        not near,
        because(why, *reasons.of_violations(both, LAST, "last")),
    )


def opg_novelty_is_higher(e: RunEvidence) -> Measurement:
    """Mean novelty of the OPGs against DEPSUE's."""
    e = e.shared(*OPG, *DEPSUE)
    means = {m: average(e.novelties(m)) for m in (*OPG, *DEPSUE)}
    holds = min(means[m] for m in OPG) > max(means[m] for m in DEPSUE)
    text = by_method({m: f"{x:.3f}" for m, x in means.items()})
    why = (cql_shuns_novel(e), reasons.margin_frees_the_last(e, LAST))
    return Measurement(text, holds, because(*why))


def opg_novelty_varies(e: RunEvidence) -> Measurement:
    """Deviation of novelty over the seeds."""
    e = e.shared(*OPG, *DEPSUE)
    deviations = {}
    for method in (*OPG, *DEPSUE):
        spread = [deviation(e.numbers(method, v, novelty())) for v in e.levels]
        if None in spread:
            raise NotMeasured("A deviation needs two seeds at every level.")
        deviations[method] = float(np.mean([s for s in spread if s is not None]))
    holds = min(deviations[m] for m in OPG) > max(deviations[m] for m in DEPSUE)
    text = by_method({m: f"{x:.4f}" for m, x in deviations.items()})
    return Measurement(
        text,
        holds,
        because(naive_near_uniform(e, of_novelty=True), cql_shuns_novel(e)),
    )


def opg_seldom_novel(e: RunEvidence) -> Measurement:
    """Runs of the OPGs with a novelty of at least .1."""
    share = {m: float((e.pooled(m, novelty()) >= ADEQUATE).mean()) for m in OPG}
    text = by_method({m: f"{s:.2f}" for m, s in share.items()})
    why = naive_near_uniform(e, of_novelty=True)
    return Measurement(text, max(share.values()) <= 0.5, because(why))


def depsue_more_often_novel(e: RunEvidence) -> Measurement:
    """Runs of DEPSUE and of the OPGs with a novelty of at least .1."""
    e = e.shared(*OPG, *DEPSUE)
    share = {m: float((e.pooled(m, novelty()) >= ADEQUATE).mean()) for m in (*OPG, *DEPSUE)}
    text = by_method({m: f"{s:.2f}" for m, s in share.items()})
    holds = all(share[LAST] > share[m] for m in OPG)
    return Measurement(text, holds, because(naive_near_uniform(e, of_novelty=True)))


def stages_improve(e: RunEvidence) -> Measurement:
    """Value and novelty of the fifth deployment less those of the first."""
    values = e.means(LAST, lambda r: float(relative_values(r)[-1] - relative_values(r)[0]))
    novel = e.means(LAST, lambda r: float(novelties(r)[-1] - novelties(r)[0]))
    moves = {v: (values[v], novel[v]) for v in e.levels}
    holds = all(a > 0 and b > 0 for a, b in moves.values())
    text = f"From k = 1 to 5: value {_signed(values)}; novelty {_signed(novel)}."
    return Measurement(text, holds, because(reasons.spent_on_novelty(e, moves)))


def bolder_when_poor_and_stochastic(e: RunEvidence) -> Measurement:
    """Novelty of K = 5 by level."""
    e.need_levels(e.poor_and_stochastic, e.good)
    by_level = e.novelties(LAST, (*e.poor_and_stochastic, *e.good))
    holds = _apart(by_level, e)
    freed = reasons.margin_frees_the_last(e, LAST)
    return Measurement(by_method({LAST: listed(by_level)}), holds, because(freed))


def bound_rises_when_stochastic(e: RunEvidence) -> Measurement:
    """The bound of the first deployment over V_on(pi0), by level."""
    e.need_published()
    others = tuple(v for v in e.levels if v not in e.stochastic)
    e.need_levels(e.stochastic, others)
    bounds = e.means(LAST, lambda r: float(r["deployments"][0]["bound"] / r["on_policy"]))
    holds = min(bounds[v] for v in e.stochastic) > max(bounds[v] for v in others)
    return Measurement(by_method({LAST: listed(bounds)}), holds)


def margin_larger_when_poor(e: RunEvidence) -> Measurement:
    """The margin before the last deployment over V_on(pi0), by level."""
    e.need_levels(e.poor, e.good)
    levels = (*e.poor, *e.good)
    margins = e.means(
        LAST, lambda r: float(r["deployments"][-1]["margin"] / r["on_policy"]), levels
    )
    holds = min(margins[v] for v in e.poor) > max(margins[v] for v in e.good)
    return Measurement(by_method({LAST: listed(margins)}), holds)


def cautious_when_near_optimal(e: RunEvidence) -> Measurement:
    """Novelty of K = 5 at the two largest levels."""
    best = e.best
    shares = e.novelties(LAST, best)
    why = (reasons.margin_frees_the_last(e, LAST, best), reasons.bound_not_reached(e, LAST, best))
    return Measurement(
        by_method({LAST: listed(shares)}), max(shares.values()) <= 0.05, because(*why)
    )


def _signed(figures: Mapping[float, float]) -> str:
    return ", ".join(f"{v:g}: {x:+.3f}" for v, x in figures.items())


def _apart(by_level: Mapping[float, float], e: RunEvidence) -> bool:
    return min(by_level[v] for v in e.poor_and_stochastic) > max(by_level[v] for v in e.good)


STAGE_CHECKS = (
    Check(
        "DEPSUE satisfies the constraint in almost every condition, but for a few runs with K = 5.",
        "appendix, table of violations",
        "Violated in at most delta = {delta} of all runs of K = 1, 2, 5; last policy, test users.",
        almost_always_safe,
    ),
    Check(
        "Even in its worst case DEPSUE (K=5) keeps far more value than the baselines.",
        "appendix, table of values",
        f"Its lowest relative value over all levels and seeds is at least {FAR:g} above that of "
        "each OPG (the paper's smallest gap is .117).",
        worst_is_better,
    ),
    Check(
        "The mean novelty of the OPGs is higher than that of DEPSUE.",
        "appendix, table of novelty",
        "The mean over all {name} of each OPG is above that of each K, last policy.",
        opg_novelty_is_higher,
    ),
    Check(
        "The deviation of novelty is high for the OPGs and small for DEPSUE.",
        "appendix, table of novelty",
        "The deviation over the seeds, mean over all {name}, of each OPG is above that of each K.",
        opg_novelty_varies,
    ),
    Check(
        "The OPGs reach a novelty of .1 in a limited number of cases only.",
        "appendix, table of adequate novelty",
        "In at most half of the runs of each OPG.",
        opg_seldom_novel,
    ),
    Check(
        "DEPSUE reaches a novelty of .1 in more cases than the baselines.",
        "appendix, table of adequate novelty",
        "In a larger share of the runs of K = 5, last policy, than of those of each OPG.",
        depsue_more_often_novel,
    ),
    Check(
        "Over the five stages both value and novelty improve.",
        "appendix, figure of the five stages",
        "The means of value and of novelty at k = 5 are above those at k = 1 at every {name}.",
        stages_improve,
    ),
    Check(
        "DEPSUE is bolder when the logging policy is poor and stochastic (beta = -16, -8, 0).",
        "appendix, figure of the five stages",
        "Mean novelty of K = 5, last policy, at each of {poor_and_stochastic} is above that at "
        "each of {good}.",
        bolder_when_poor_and_stochastic,
    ),
    Check(
        "The bound improves more easily where the logging policy is stochastic.",
        "appendix, figure of the five stages",
        "The mean bound of the first of five deployments, over V_on(pi0), is larger at each of "
        "{stochastic} (the paper's levels with |beta| <= 8) than at any other.",
        bound_rises_when_stochastic,
    ),
    Check(
        "The safety margin is larger under poor logging policies.",
        "appendix, figure of the five stages",
        "The mean margin before the fifth deployment, over V_on(pi0), is larger at each of {poor} "
        "than at each of {good}.",
        margin_larger_when_poor,
    ),
    Check(
        "DEPSUE is cautious when the logging policy is near-optimal.",
        "appendix, figure of the five stages",
        "Mean novelty of K = 5, last policy, is at most .05 at each of {best}.",
        cautious_when_near_optimal,
    ),
)
