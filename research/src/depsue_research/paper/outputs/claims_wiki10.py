"""Statements on Wiki10 (section 7)."""

from __future__ import annotations

import numpy as np

from depsue_research.paper.outputs import reasons
from depsue_research.paper.outputs.evidence import (
    Check,
    Measurement,
    RunEvidence,
    because,
    by_method,
    counted,
    listed,
)
from depsue_research.paper.outputs.reading import DEPSUE, OPG, novelties
from depsue_research.paper.recipe import deployments_of

SAFE = "naive_safe"


def opg_always_violates(e: RunEvidence) -> Measurement:
    """Violations of the OPGs."""
    counts = {m: e.violations(m) for m in OPG}
    holds = all(c == n for by in counts.values() for c, n in by.values())
    why = [
        reasons.value_against_floor(e, m, [v for v, (c, n) in counts[m].items() if c < n])
        for m in OPG
    ]
    return Measurement(by_method({m: counted(c) for m, c in counts.items()}), holds, because(*why))


def depsue_never_violates(e: RunEvidence) -> Measurement:
    """Violations of DEPSUE, last policy and average."""
    last = {m: e.violations(m) for m in DEPSUE}
    mean = {m: e.violations(m, how="average") for m in DEPSUE}
    holds = not any(c for x in (last, mean) for by in x.values() for c, _ in by.values())
    why = [w for m in DEPSUE for w in reasons.of_violations(e, m, "last", "average")]
    text = by_method({m: f"last {counted(last[m])}, average {counted(mean[m])}" for m in DEPSUE})
    return Measurement(text, holds, because(*why))


def novelty_grows_with_k(e: RunEvidence) -> Measurement:
    """Novelty over K, last policy."""
    e = e.shared(*DEPSUE)
    k1, k2, k5 = (e.novelties(m) for m in DEPSUE)
    grows = {v: k1[v] < k2[v] < k5[v] for v in e.levels}
    where = e.say(v for v, ok in grows.items() if not ok)
    text = by_method({m: listed(x) for m, x in zip(DEPSUE, (k1, k2, k5), strict=True)})
    freed = [reasons.margin_frees_the_last(e, m) for m in DEPSUE[1:]]
    return Measurement(text, all(grows.values()), because(f"Not so at {where}.", *freed))


def starts_cautious(e: RunEvidence) -> Measurement:
    """Novelty of the first and of the fifth deployment."""
    moves = e.means("depsue_5", lambda r: float(novelties(r)[-1] - novelties(r)[0]))
    return Measurement(f"Novelty gained from k = 1 to 5: {listed(moves)}.", min(moves.values()) > 0)


def more_novel_than_naive_safe(e: RunEvidence) -> Measurement:
    """Novelty of DEPSUE against Naive Safe Exploration, poor and medium logging policies."""
    e = e.shared(SAFE, *DEPSUE)
    levels = e.levels[-2:]
    by_level = {m: e.novelties(m, levels) for m in (SAFE, *DEPSUE)}
    holds = all(by_level[m][v] > by_level[SAFE][v] for m in DEPSUE for v in levels)
    fails = [
        f"K = {deployments_of(m)} at {v:g}"
        for m in DEPSUE
        for v in levels
        if by_level[m][v] <= by_level[SAFE][v]
    ]
    why = [f"Not so for {', '.join(fails)}."] if fails else []
    if not holds and e.paper.get("novelty_mean", "depsue_1", 0.5) is not None:
        why.append("In the paper's own table K = 1 and 2 are below it at .5, too.")
    return Measurement(by_method({m: listed(x) for m, x in by_level.items()}), holds, because(*why))


def value_above_naive_safe(e: RunEvidence) -> Measurement:
    """Value of DEPSUE against Naive Safe Exploration."""
    e = e.shared(SAFE, *DEPSUE)
    by_level = {m: e.values(m) for m in (SAFE, *DEPSUE)}
    fails = [
        f"K = {deployments_of(m)} at {v:g}"
        for m in DEPSUE
        for v in e.levels
        if by_level[m][v] <= by_level[SAFE][v]
    ]
    why = [f"Not so for {', '.join(fails)}."] if fails else []
    return Measurement(
        by_method({m: listed(x) for m, x in by_level.items()}), not fails, because(*why)
    )


def logging_better_than_uniform(e: RunEvidence) -> Measurement:
    """V(pi0) over V(uniform)."""
    over = e.logging("value_test", "uniform_test")
    return Measurement(f"V(pi0) / V(uniform) {listed(over)}.", min(over.values()) > 1)


def positives_are_scarce(e: RunEvidence) -> Measurement:
    """The share of positive pairs, from the value of the uniform policy."""
    from depsue_research.wiki10 import HIT, MISS  # loads torch

    e.logging("uniform_test", "uniform_test")
    uniform = [float(e.runs.logging(v, "uniform_test").mean()) for v in e.levels]
    share = (float(np.mean(uniform)) - MISS) / (HIT - MISS)
    return Measurement(f"{share:.4f} of the pairs of document and label.", share <= 0.01)


CHECKS = (
    Check(
        "All logging policies are better than uniform choice.",
        "section 7, setup",
        "V(pi0) > V(uniform), in the mean at every {name}.",
        logging_better_than_uniform,
    ),
    Check(
        "Positive labels are scarce, which makes the setting hard.",
        "section 7, setup",
        "At most .01 of the pairs of document and label are positive.",
        positives_are_scarce,
    ),
    Check(
        "The OPGs violate the constraint in every run.",
        "section 7, results",
        "Violated in all seeds at every {name}, by OPG (naive, mean and min) and OPG (w/ CQL).",
        opg_always_violates,
    ),
    Check(
        "DEPSUE satisfies the constraint perfectly.",
        "section 7, results",
        "No violation for K = 1, 2, 5 at any {name} in any seed, by the last policy or by the "
        "average over the deployments; test documents.",
        depsue_never_violates,
    ),
    Check(
        "DEPSUE's novelty grows with K.",
        "section 7, results",
        "Mean novelty of the last policy rises from K = 1 to 2 and from 2 to 5 at every {name}.",
        novelty_grows_with_k,
    ),
    Check(
        "DEPSUE starts cautiously and explores more once there is margin.",
        "section 7, results",
        "Mean novelty of the fifth deployment is above that of the first at every {name}.",
        starts_cautious,
    ),
    Check(
        "DEPSUE explores more novel actions than Naive Safe Exploration, for poor and medium pi0.",
        "section 7, results",
        "Mean novelty of the last policy above its at {name} = .5 and .8, for K = 1, 2, 5.",
        more_novel_than_naive_safe,
    ),
    Check(
        "DEPSUE has a higher value than Naive Safe Exploration.",
        "section 7, results",
        "Mean relative value of the last policy above its at every {name}, for K = 1, 2, 5.",
        value_above_naive_safe,
    ),
)
