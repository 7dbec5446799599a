"""Statements on MovieLens: validation OPE (appendix)."""

from __future__ import annotations

from collections.abc import Iterable

from depsue_research.paper.outputs.claim import (
    Check,
    Evidence,
    Finding,
    NotMeasured,
    because,
    by_method,
)
from depsue_research.paper.outputs.method_names import NAMES
from depsue_research.paper.outputs.reading import NAIVE, OPG
from depsue_research.paper.outputs.reasons_models import estimator_is_near, model_is_right
from depsue_research.paper.outputs.tables_validation import Verdicts, validated, verdicts


def dm_accepts_all(e: Evidence) -> Finding:
    """Unsafe policies that DM accepts."""
    found = {m: _judged(e, m, "dm") for m in OPG}
    shares = {m: _unsafe(v, m) for m, v in found.items()}
    why = [
        model_is_right(e),
        *(estimator_is_near(e, m, "dm") for m in OPG),
    ]
    return Finding(_accepted(found), min(shares.values()) == 1, because(*why))


def dr_accepts_half(e: Evidence) -> Finding:
    """Unsafe policies that DR accepts."""
    found = {m: _judged(e, m, "dr") for m in OPG}
    shares = [_unsafe(v, m) for m, v in found.items()]
    why = [
        model_is_right(e),
        *(estimator_is_near(e, m, "dr") for m in OPG),
    ]
    return Finding(_accepted(found), all(0.3 <= s <= 0.8 for s in shares), because(*why))


def ips_refuses_naive(e: Evidence) -> Finding:
    """Policies of OPG (naive) that IPS refuses, safe and unsafe."""
    text, holds = {}, True
    for method in NAIVE:
        v = _judged(e, method, "ips")
        unsafe = _unsafe(v, method)
        if v.safe_refused is None:
            raise NotMeasured(f"No policy of {NAMES[method]} was better than pi0.")
        holds &= v.safe_refused >= 0.75 and 1 - unsafe >= 0.75
        text[method] = f"safe {v.refused}/{v.better}, unsafe {v.worse - v.accepted}/{v.worse}"
    return Finding(f"Refused: {by_method(text)}", holds, because(_ips_reason(e, NAIVE)))


def ips_accepts_cql(e: Evidence) -> Finding:
    """Unsafe policies of OPG (w/ CQL) that IPS accepts."""
    v = _judged(e, "opg_cql", "ips")
    holds = _unsafe(v, "opg_cql") > 0.3
    return Finding(_accepted({"opg_cql": v}), holds, because(_ips_reason(e, ("opg_cql",))))


def ips_differs(e: Evidence) -> Finding:
    """IPS on naive policies and on CQL's."""
    e = e.shared(*OPG)
    found = {m: _judged(e, m, "ips") for m in OPG}
    shares = {m: _unsafe(v, m) for m, v in found.items()}
    holds = all(abs(shares[m] - shares["opg_cql"]) >= 0.1 for m in NAIVE)
    return Finding(_accepted(found), holds, because(_ips_reason(e, OPG)))


def _judged(e: Evidence, method: str, estimator: str) -> Verdicts:
    if not validated(e.runs, method):
        raise NotMeasured(f"No policy of {NAMES[method]} was validated.")
    return verdicts(e.runs, method, estimator)


def _unsafe(v: Verdicts, method: str) -> float:
    if v.unsafe_accepted is None:
        raise NotMeasured(f"No policy of {NAMES[method]} was worse than pi0.")
    return v.unsafe_accepted


def _accepted(found: dict[str, Verdicts]) -> str:
    counts = {m: f"{v.accepted}/{v.worse}" for m, v in found.items()}
    return f"Unsafe policies accepted: {by_method(counts)}"


def _ips_reason(e: Evidence, methods: Iterable[str]) -> str:
    return " ".join(filter(None, (estimator_is_near(e, m, "ips") for m in methods)))


CHECKS = (
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
