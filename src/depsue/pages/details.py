"""For the statistician: each candidate's test and its certificate, in full."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from depsue.campaigns.records import CandidateFacts
from depsue.certificates import Certificate, Verdict
from depsue.pages.story import Tried, is_paired

VERDICTS = ("promise", "floor", "verdict", "delta", "values n", "mean of terms", "lower bound",
            "need", "credit", "ceiling on V(pi0)")  # fmt: skip


def details_of(tried: Tried) -> Mapping[str, Any]:
    """All that the statistician asks of one candidate."""
    certificate, attempt = tried.certificate, tried.attempt
    fixed = CandidateFacts.of(tried.candidate)
    expected = fixed.expected
    facts = [
        ("candidate", tried.candidate.policy_hash),
        ("trained", f"{tried.candidate.at:%Y-%m-%d %H:%M} UTC by {tried.candidate.by}"),
        ("trained on data", ", ".join(tried.candidate.trained_on)),
        ("anticipated value / V(pi0)", f"logging {expected.logging:.4f}, new {expected.new:.4f}, "
         f"old {expected.old:.4f}"),
        ("trust in the reward model, from a rehearsal", f"{fixed.trust:.3f}"),
    ]  # fmt: skip
    if attempt is not None:
        facts.append(("test begun", f"{attempt.at:%Y-%m-%d %H:%M} UTC by {attempt.by}"))
        if attempt.finished_at is not None:
            ended = f"{attempt.finished_at:%Y-%m-%d %H:%M} UTC by {attempt.finished_by}"
            facts.append(("test ended", ended))
        facts.append(("attempt on these rows", str(attempt.attempt)))
        facts.append(("certifying data", attempt.data_hash))
        if attempt.note:
            facts.append(("why it was given up", attempt.note))
    return {
        "tried": tried,
        "facts": facts + ([] if certificate is None else _certificate_facts(certificate)),
        "certificate": certificate,
        "verdicts": [] if certificate is None else [_verdict(v) for v in certificate.verdicts],
        "json": "" if attempt is None else attempt.certificate or "",
    }


def _certificate_facts(one: Certificate) -> list[tuple[str, str]]:
    folds = ", ".join(f"{share:g}" for share in one.fractions)
    shares = ", ".join(f"{share:.4g}" for share in one.shares)
    control = ", ".join(f"{name} {value:.4g}" for name, value in (one.control or {}).items())
    found = [
        ("kind", one.kind),
        ("certifying rows", f"of round {one.round}"),
        ("folds: learn, select, certify", folds),
        ("delta of the verdict", f"{one.delta:g}"),
        ("delta's parts", ", ".join(f"{name} {part:.4g}" for name, part in one.spent.items())),
        ("further attempts declared", "yes" if one.retries else "no"),
        ("bound", one.bound),
        ("largest weight that counts (clip)", f"{one.clip:g}"),
        ("declared largest pi0 / p", f"{one.largest:g}"),
        ("shares of the old and the new part", shares),
        ("levels tested, of those listed", f"{one.tested} of {one.listed}"),
        ("policy", one.policy or "cannot be saved"),
        ("control variate: coefficients", control or "none"),
    ]
    if one.control_most is not None:
        found.append(("its predictions are clipped at", f"{one.control_most:g}"))
    more = [("reward model", one.model), ("groups of actions", one.groups)]
    return [*found, *((name, hash) for name, hash in more if hash), ("depsue", one.version)]


def _verdict(one: Verdict) -> Mapping[str, Any]:
    cells = [
        one.promise.name,
        str(one.promise.floor),
        "passed" if one.passed else "failed",
        f"{one.delta:.4g}",
        f"{one.n:,}",
        f"{one.mean:.6f}",
        f"{one.bound:.6f}",
        f"{one.need + 0.0:.6f}",
        f"{one.credit:.6f}",
        "paired with pi0" if is_paired(one) else f"{one.ceiling:.6f}" if one.ceiling else "–",
    ]
    constants = [
        (name, f"{value:.6g}" if isinstance(value, float) else str(value))
        for name, value in one.constants.items()
        if value not in ("", None)
    ]
    return {"cells": cells, "constants": constants, "proof": one.proof, "name": one.promise.name}
