"""Statements on MovieLens: DEPSUE with K = 1, 2, 5 (sections 5 and 6)."""

from __future__ import annotations

from depsue_research.paper.outputs import reasons
from depsue_research.paper.outputs.claim import (
    Check,
    Evidence,
    Finding,
    average,
    because,
    by_method,
    listed,
)
from depsue_research.paper.outputs.reading import DEPSUE, novelty


def novelty_grows_with_k(e: Evidence) -> Finding:
    """Novelty over K, last policy."""
    e = e.shared(*DEPSUE)
    one, two, five = (e.novelties(m) for m in DEPSUE)
    mean = {m: listed(e.means(m, novelty("average"))) for m in DEPSUE[1:]}
    text = by_method({m: listed(x) for m, x in zip(DEPSUE, (one, two, five), strict=True)})
    freed = [reasons.margin_frees_the_last(e, m) for m in DEPSUE[1:]]
    grows = {v: one[v] < two[v] < five[v] for v in e.levels}
    where = e.say(v for v, ok in grows.items() if not ok)
    return Finding(
        f"{text} Averages over the deployments: {by_method(mean)}",
        all(grows.values()),
        because(f"Not so at {where}.", *freed),
    )


def more_novel_than_one(e: Evidence) -> Finding:
    """Novelty of K = 2 and 5, last and average, against K = 1."""
    e = e.shared(*DEPSUE)
    one = e.novelties("depsue_1")
    text, fails = {}, []
    for method in DEPSUE[1:]:
        for how in ("last", "average"):
            found = e.means(method, novelty(how))
            fails += [v for v in e.levels if found[v] <= one[v]]
        text[method] = f"{average(e.novelties(method)):.3f}"
    text["depsue_1"] = f"{average(one):.3f}"
    return Finding(
        f"Over all levels, last policy: {by_method(text)}",
        not fails,
        because(f"Not so at {e.say(sorted(set(fails)))}."),
    )


def depsue_always_safe(e: Evidence) -> Finding:
    """Violations of DEPSUE, last policy and average."""
    last = {m: e.violations(m) for m in DEPSUE}
    mean = {m: e.violations(m, how="average") for m in DEPSUE}
    holds = not any(c for x in (last, mean) for by in x.values() for c, _ in by.values())
    why = [w for m in DEPSUE for w in reasons.of_violations(e, m, "last", "average")]
    text = f"Last: {_all(last)} Average: {_all(mean)}"
    return Finding(text, holds, because(*why))


def every_prefix_safe(e: Evidence) -> Finding:
    """The average of the deployments up to each k."""
    found = {m: e.violations(m, how="prefix") for m in DEPSUE}
    often = [m for m in DEPSUE if e.too_often(found[m])]
    why = [w for m in often for w in reasons.of_violations(e, m, "prefix")]
    return Finding(f"Violated: {_all(found)}", not often, because(*why))


def value_above_cql(e: Evidence) -> Finding:
    """Value of DEPSUE over that of OPG (w/ CQL)."""
    e = e.shared("opg_cql", *DEPSUE)
    cql = e.values("opg_cql", e.poor)
    gaps = {m: {v: x - cql[v] for v, x in e.values(m, e.poor).items()} for m in DEPSUE}
    holds = all(gap >= 0.04 for by in gaps.values() for gap in by.values())
    text = by_method({m: listed(gap) for m, gap in gaps.items()})
    return Finding(f"Gaps: {text}", holds)


def novel_only_when_possible(e: Evidence) -> Finding:
    """Novelty under poor against good logging policies."""
    poor = {m: average(e.novelties(m, e.poor)) for m in DEPSUE}
    good = {m: average(e.novelties(m, e.good)) for m in DEPSUE}
    text = by_method({m: f"{poor[m]:.3f} against {good[m]:.3f}" for m in DEPSUE})
    freed = [reasons.margin_frees_the_last(e, m) for m in DEPSUE[1:]]
    return Finding(text, all(poor[m] > good[m] for m in DEPSUE), because(*freed))


def _all(counts: dict[str, dict[float, tuple[int, int]]]) -> str:
    pooled = {m: tuple(map(sum, zip(*by.values(), strict=True))) for m, by in counts.items()}
    where = {
        m: ", ".join(f"{v:g}: {c}/{n}" for v, (c, n) in by.items() if c) for m, by in counts.items()
    }
    return by_method(
        {m: f"{p[0]}/{p[1]}" + (f" ({where[m]})" if where[m] else "") for m, p in pooled.items()}
    )


CHECKS = (
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
