"""All statements of the paper, checked against the finished cells; and the paper against itself.

`all_claims` runs every check of an experiment, `claims_markdown` writes what came of it. The checks
of MovieLens and Wiki10 stand in modules of their own. Here are those that need no cell: statements
of the paper's text held against its own tables.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import partial

from depsue_research.paper.outputs import claims_appendix, claims_movielens, claims_wiki10
from depsue_research.paper.outputs.evidence import (
    FAILS,
    HOLDS,
    UNKNOWN,
    Check,
    Claim,
    Measurement,
    NotMeasured,
    RunEvidence,
    because,
    by_method,
    listed,
)
from depsue_research.paper.outputs.published import published_for
from depsue_research.paper.outputs.reading import (
    DEPSUE,
    ESTIMATORS,
    OPG,
    Runs,
    validated,
    verdicts,
)
from depsue_research.paper.recipe import deployments_of


def all_claims(runs: Runs) -> list[Claim]:
    """Every statement with what was found; one that does not hold stays, with its reason."""
    evidence = RunEvidence(runs, published_for(runs.recipe))
    first_use: dict[str, int] = {}
    return [
        check.on(evidence, partial(_in_full_once, first_use, number))
        for number, check in enumerate(CHECKS[runs.recipe.experiment], 1)
    ]


def tally(claims: Sequence[Claim]) -> str:
    """How many hold: 20 hold, 9 do not hold, 1 is not measured."""
    count = Counter(claim.verdict for claim in claims)
    words = {HOLDS: "hold", FAILS: "do not hold", UNKNOWN: "not measured"}
    return ", ".join(f"{count[verdict]} {word}" for verdict, word in words.items())


def claims_markdown(claims: Sequence[Claim], heading: str, words: str = "") -> str:
    """The list as Markdown; `words` say what it rests on."""
    lines = [
        f"# {heading}",
        "",
        f"Of {len(claims)} statements: {tally(claims)}. {words}".strip(),
        "",
    ]
    for number, claim in enumerate(claims, 1):
        lines += [
            f"## {number}. {claim.statement} **{claim.verdict.capitalize()}**",
            "",
            f"- Where: {claim.where}",
            f"- Criterion: {claim.criterion}",
            f"- Measured: {claim.measured}",
        ]
        if claim.reason:
            lines.append(f"- Reason: {claim.reason}")
        lines.append("")
    return "\n".join(lines)


def _in_full_once(first_use: dict[str, int], number: int, reason: str) -> str:
    """A long reason in full the first time, and by its beginning from then on."""
    first = first_use.setdefault(reason, number)
    beginning = re.split(r"[:;] (?![^()]*\))", reason)[0]  # not inside brackets
    return reason if first == number or beginning == reason else f"{beginning}: see no. {first}."


PLACE = "the paper's text against its own tables"


def error_names(e: RunEvidence) -> Measurement:
    """DM's printed rates, and which reading our own shares are nearer to."""
    e.need_published()
    rates = e.paper.validation["dm"]
    printed = (f"{r['type_1']:.3f} and {r['type_2']:.3f}" for r in rates.values())
    text = f"Printed as DM's type I and II: {'; '.join(printed)}."
    swapped, straight = _distances(e)
    if swapped is not None and straight is not None:
        text += (
            f" Our shares differ from the printed ones by {swapped:.2f} on average if the names "
            f"are swapped, by {straight:.2f} if they stand."
        )
    return Measurement(
        text,
        all(r["type_1"] == 1 for r in rates.values()),
        because(
            "The two names are swapped against the paper's hypotheses (and its text calls DR's "
            "share of unsafe policies accepted 'type I', its table 'type II'). The tables here say "
            "'unsafe accepted' and 'safe refused'."
        ),
    )


def _distances(e: RunEvidence) -> tuple[float | None, float | None]:
    """Mean distance of our shares to the printed ones: names swapped, and as they stand."""
    swapped, straight = [], []
    for method in OPG:
        for estimator in ESTIMATORS if validated(e.runs, method) else ():
            v = verdicts(e.runs, method, estimator)
            type_1 = e.paper.error_rate(estimator, method, "type_1")
            type_2 = e.paper.error_rate(estimator, method, "type_2")
            if (
                v.unsafe_accepted is None
                or v.safe_refused is None
                or type_1 is None
                or type_2 is None
            ):
                continue
            swapped += [abs(v.unsafe_accepted - type_2), abs(v.safe_refused - type_1)]
            straight += [abs(v.unsafe_accepted - type_1), abs(v.safe_refused - type_2)]
    if not swapped:
        return None, None
    return sum(swapped) / len(swapped), sum(straight) / len(straight)


def printed_novelty_grows(e: RunEvidence) -> Measurement:
    """The printed novelty over K."""
    k1, k2, k5 = (_row(e, "novelty_mean", m) for m in DEPSUE)
    falls = [v for v in k1 if not k1[v] <= k2[v] <= k5[v]]
    text = by_method({m: listed(x) for m, x in zip(DEPSUE, (k1, k2, k5), strict=True)})
    reason = f"In its own table novelty falls with K at {e.say(falls)}."
    return Measurement(text, not falls, because(reason))


def printed_always_safe(e: RunEvidence) -> Measurement:
    """The printed violations of DEPSUE."""
    rows = {m: _row(e, "violations", m) for m in DEPSUE}
    broken = {m: {v: c for v, c in row.items() if c} for m, row in rows.items()}
    text = by_method(
        {
            m: ", ".join(f"{v:g}: {c:.0f}/{e.paper.seeds}" for v, c in counts.items()) or "none"
            for m, counts in broken.items()
        }
    )
    total = sum(c for counts in broken.values() for c in counts.values())
    return Measurement(text, total == 0, because(f"Its own table counts {total:.0f} violations."))


def printed_few_at_16(e: RunEvidence) -> Measurement:
    """Where the printed violations of DEPSUE are."""
    where = [v for m in DEPSUE for v, c in _row(e, "violations", m).items() if c]
    worst = {v: x for v, x in _row(e, "value_worst", DEPSUE[-1]).items() if v in where}
    text = f"Violations at {e.say(where)}; the worst values of K = 5 there {listed(worst)}."
    rounded = [v for v, x in worst.items() if x >= e.recipe.floor]
    reasons = ["The table has others."]
    if rounded:
        reasons.append(f"At {e.say(rounded)} a value that is no violation as printed was rounded.")
    return Measurement(text, set(where) <= {16.0}, because(*reasons))


def printed_value_above_naive_safe(e: RunEvidence) -> Measurement:
    """The printed values of DEPSUE and Naive Safe Exploration."""
    safe = _row(e, "value_mean", "naive_safe")
    fails = [
        f"K = {deployments_of(m)} at {v:g} ({x:.3f} against {safe[v]:.3f})"
        for m in DEPSUE
        for v, x in _row(e, "value_mean", m).items()
        if x <= safe[v]
    ]
    text = f"Below: {', '.join(fails) or 'none'}."
    return Measurement(text, not fails, because("Its own table has an exception."))


def _row(e: RunEvidence, table: str, method: str) -> dict[float, float]:
    e.need_published()
    row = e.paper.row(table, method)
    if not row:
        raise NotMeasured("The paper has no such row.")
    return row


NOVELTY = Check(
    "Novelty grows with K.",
    PLACE,
    "The printed mean novelty falls neither from K = 1 to 2 nor from 2 to 5 at any {name}.",
    printed_novelty_grows,
)


ALWAYS_SAFE = Check(
    "DEPSUE satisfies the constraint always (section 6), perfectly (section 7).",
    PLACE,
    "No violation of K = 1, 2, 5 is printed.",
    printed_always_safe,
)


PRINTED_MOVIELENS = (
    Check(
        "Its error rates of validation OPE are named by its own hypotheses.",
        PLACE,
        "H0 is 'no better than pi0', so type I is the share of worse policies accepted; DM, of "
        "which the text says that it detects no unsafe policy, must then have a type I of 1.",
        error_names,
    ),
    NOVELTY,
    ALWAYS_SAFE,
    Check(
        "The few violations of DEPSUE are at beta = 16 with K = 5.",
        PLACE,
        "No violation is printed at another {name}.",
        printed_few_at_16,
    ),
)


PRINTED_WIKI10 = (
    NOVELTY,
    ALWAYS_SAFE,
    Check(
        "DEPSUE has a higher value than Naive Safe Exploration.",
        PLACE,
        "The printed value of K = 1, 2, 5 is above its at every {name}.",
        printed_value_above_naive_safe,
    ),
)


CHECKS: dict[str, tuple[Check, ...]] = {
    "movielens": (
        *claims_movielens.OPG_CHECKS,
        *claims_movielens.DEPSUE_CHECKS,
        *claims_movielens.MODEL_CHECKS,
        *claims_appendix.VALIDATION_CHECKS,
        *claims_appendix.STAGE_CHECKS,
        *PRINTED_MOVIELENS,
    ),
    "wiki10": (*claims_wiki10.CHECKS, *PRINTED_WIKI10),
}
"""All statements of an experiment, in the order of the paper, then the paper against itself."""
