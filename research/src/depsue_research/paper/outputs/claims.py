"""The paper's empirical statements, checked against the finished cells."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import partial

from depsue_research.paper.outputs import (
    claims_appendix,
    claims_depsue,
    claims_models,
    claims_opg,
    claims_text,
    claims_validation,
    claims_wiki10,
)
from depsue_research.paper.outputs.claim import FAILS, HOLDS, UNKNOWN, Check, Claim, Evidence
from depsue_research.paper.outputs.published import published_for
from depsue_research.paper.outputs.reading import Runs

__all__ = ["CHECKS", "Claim", "all_claims", "claims_markdown", "tally"]

CHECKS: dict[str, tuple[Check, ...]] = {
    "movielens": (
        *claims_opg.CHECKS,
        *claims_depsue.CHECKS,
        *claims_models.CHECKS,
        *claims_validation.CHECKS,
        *claims_appendix.CHECKS,
        *claims_text.MOVIELENS,
    ),
    "wiki10": (*claims_wiki10.CHECKS, *claims_text.WIKI10),
}
"""All statements of an experiment, in the order of the paper, then the paper against itself."""


def all_claims(runs: Runs) -> list[Claim]:
    """Every statement with what was found; one that does not hold stays, with its reason."""
    evidence = Evidence(runs, published_for(runs.recipe))
    given: dict[str, int] = {}
    return [
        check.on(evidence, partial(_told_once, given, number))
        for number, check in enumerate(CHECKS[runs.recipe.experiment], 1)
    ]


def _told_once(given: dict[str, int], number: int, reason: str) -> str:
    """A long reason in full the first time, and by its beginning from then on."""
    first = given.setdefault(reason, number)
    beginning = re.split(r"[:;] (?![^()]*\))", reason)[0]  # not inside brackets
    return reason if first == number or beginning == reason else f"{beginning}: see no. {first}."


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
