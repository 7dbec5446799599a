"""Statements on MovieLens: the logging policies, OPG and Safe OPG (section 4)."""

from __future__ import annotations

from depsue.testing.binomial import rate_interval
from depsue_research.paper.outputs import reasons
from depsue_research.paper.outputs.claim import (
    Check,
    Evidence,
    Finding,
    average,
    because,
    by_method,
    counted,
    listed,
)
from depsue_research.paper.outputs.reading import NAIVE, OPG, value
from depsue_research.paper.outputs.reasons_models import cql_shuns_novel, naive_near_uniform

WITHIN = 0.02
"""How near V(pi0) / V(pi*) must be to the paper's."""


def logging_as_published(e: Evidence) -> Finding:
    """V(pi0) / V(pi*) against the paper's table."""
    e.need_published()
    printed = e.paper.row("logging_optimality", "pi0")
    gaps = {v: x - printed[v] for v, x in e.logging("value_test", "best_test").items()}
    text = ", ".join(f"{v:g}: {gap:+.3f}" for v, gap in gaps.items())
    off = {v: gap for v, gap in gaps.items() if abs(gap) > WITHIN}
    return Finding(f"Gaps: {text}.", not off, because(reasons.noise_of_seeds(e, off, WITHIN)))


def logging_spans(e: Evidence) -> Finding:
    """V(pi0) / V(uniform) below and above 1."""
    e.need_levels(e.negative, e.positive)
    over = e.logging("value_test", "uniform_test")
    top = e.logging("value_test", "best_test")[max(e.levels)]
    below, above = (all(over[v] < 1 for v in e.negative), all(over[v] > 1 for v in e.positive))
    text = f"V(pi0) / V(uniform) {listed(over)}; V(pi0) / V(pi*) {top:.3f} at the largest."
    return Finding(text, below and above and top >= 0.9)


def naive_violates(e: Evidence, *, most: bool = False) -> Finding:
    """Violations of OPG (naive) under good logging policies: in half of the seeds, or in most."""
    counts = {m: e.violations(m, e.good) for m in NAIVE}
    seldom = {
        m: [v for v, (c, n) in by_level.items() if 2 * c < n or (most and 2 * c == n)]
        for m, by_level in counts.items()
    }
    text = by_method({m: counted(c) for m, c in counts.items()})
    kept = [reasons.value_against_floor(e, m, seldom[m]) for m in NAIVE]
    return Finding(text, not any(seldom.values()), because(naive_near_uniform(e), *kept))


def cql_violates(e: Evidence) -> Finding:
    """Violations of OPG (w/ CQL) under poor logging policies."""
    counts = e.violations("opg_cql", e.poor_and_stochastic)
    often = e.too_often(counts)
    kept = [v for v in counts if v not in often]
    reason = reasons.value_against_floor(e, "opg_cql", kept)
    return Finding(by_method({"opg_cql": counted(counts)}), not kept, because(reason))


def opg_far_below(e: Evidence) -> Finding:
    """The worst relative values of the OPGs."""
    worst = {m: float(e.pooled(m, value()).min()) for m in OPG}
    holds = any(w < 0.9 for w in worst.values())
    text = by_method({m: f"{w:.3f}" for m, w in worst.items()})
    return Finding(
        f"Worst of {e.runs.seeds_in_words()}: {text}",
        holds,
        because(naive_near_uniform(e)),
    )


def safe_opg_never_violates(e: Evidence) -> Finding:
    """Violations of Safe OPG."""
    counts = e.violations("depsue_1")
    n = min(n for _, n in counts.values())
    holds = not any(c for c, _ in counts.values())
    text = by_method({"depsue_1": counted(counts)}) + (f" {_up_to(n)}" if holds else "")
    return Finding(text, holds, because(*reasons.of_violations(e, "depsue_1", "last")))


def safe_opg_hardly_novel(e: Evidence) -> Finding:
    """Novelty of Safe OPG."""
    found = e.novelties("depsue_1")
    return Finding(by_method({"depsue_1": listed(found)}), max(found.values()) <= 0.12)


def opg_more_novel(e: Evidence) -> Finding:
    """Novelty of the OPGs against Safe OPG's."""
    e = e.shared(*OPG, "depsue_1")
    safe = average(e.novelties("depsue_1"))
    found = {m: average(e.novelties(m)) for m in OPG}
    text = by_method({m: f"{x:.3f}" for m, x in {**found, "depsue_1": safe}.items()})
    holds = all(x >= 2 * safe for x in found.values())
    return Finding(text, holds, because(cql_shuns_novel(e)))


def _up_to(n: int) -> str:
    return f"0 of {n} does not rule out a true rate of up to {rate_interval(0, n)[1]:.2f} (95%)."


CHECKS = (
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
