"""The dashboard's page of one certificate: all that a statistician asks of it."""

from __future__ import annotations

from dataclasses import dataclass

from depsue.campaigns import Story
from depsue.campaigns.records import CandidateTest, LadderLevel
from depsue.certificates import Certificate, Verdict, Verification
from depsue.pages.jobs import Job
from depsue.pages.rendering import certificate_path
from depsue.pages.words import utc

VERDICT_HEADINGS = (
    "promise", "floor", "verdict", "delta", "values n", "mean of terms", "lower bound",
    "required value", "credit", "ceiling on V(pi0)",
)  # fmt: skip


@dataclass(frozen=True)
class VerdictDetails:
    """One promise, tested: the cells of a table, the constants of its bound, and its proof."""

    promise: str
    cells: tuple[str, ...]
    constants: tuple[tuple[str, str], ...]
    proof: str


@dataclass(frozen=True)
class Recomputation:
    """What came of computing a certificate again.

    Args:
        under_way: whether it is not done yet.
        at: when it was done, or begun.
        equal: whether everything came out the same; None before it is known.
        differences: in words.
        missing: what users had erased since, and cannot be recomputed, in words.
        problem: why it could not be done; "" if it could.
    """

    under_way: bool
    at: str
    equal: bool | None = None
    differences: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    problem: str = ""


@dataclass(frozen=True)
class CertificatePage:
    """One test of a candidate.

    Args:
        campaign, round, attempt, path: which.
        test: what the ledger tells.
        certified: the level that passed; None if none did.
        sentences: the verdict in sentences.
        headings, verdicts: the table of verdicts.
        facts: what was fixed, and its hashes.
        assumptions: what it rests on.
        recomputed: what came of computing it again; None before.
    """

    campaign: str
    round: int
    attempt: int
    path: str
    test: CandidateTest
    certified: LadderLevel | None
    sentences: tuple[str, ...]
    headings: tuple[str, ...]
    verdicts: tuple[VerdictDetails, ...]
    facts: tuple[tuple[str, str], ...]
    assumptions: tuple[str, ...]
    recomputed: Recomputation | None


def certificate_page(story: Story, k: int, attempt: int, job: Job | None) -> CertificatePage | None:
    """The page of a test; None if there was no such test.

    Args:
        story: of the campaign.
        k: its round.
        attempt: which read of the certifying rows.
        job: of computing it again.
    """
    tests = [test for test in story.tests_of(k) if test.attempt == attempt]
    if not tests:
        return None
    test, certificate = tests[-1], tests[-1].certificate
    return CertificatePage(
        campaign=story.name,
        round=k,
        attempt=attempt,
        path=certificate_path(story.name, k, attempt),
        test=test,
        certified=test.certified,
        sentences=tuple(_verdict_sentences(test)),
        headings=VERDICT_HEADINGS,
        verdicts=verdict_details(test),
        facts=facts_of(test),
        assumptions=() if certificate is None else certificate.assumptions,
        recomputed=None if job is None else _recomputation(job),
    )


def verdict_details(test: CandidateTest) -> tuple[VerdictDetails, ...]:
    """The verdicts of a test, in full; () without a certificate."""
    return () if test.certificate is None else tuple(map(_details, test.certificate.verdicts))


def facts_of(test: CandidateTest) -> tuple[tuple[str, str], ...]:
    """What was fixed for a test, and its hashes: (name, value)."""
    expected = test.expected
    parts = (("old", expected.old), ("new", expected.new), ("logging", expected.logging))
    facts = [
        ("candidate", test.candidate),
        ("trained", f"{test.trained_at:%Y-%m-%d %H:%M} UTC by {test.trained_by}"),
        ("trained on data", ", ".join(test.trained_on)),
        ("anticipated value / V(pi0)", ", ".join(f"{name} {x:.4f}" for name, x in parts)),
        ("trust in the reward model, from a rehearsal", f"{test.trust:.3f}"),
    ]
    if test.begun_at is not None:
        facts.append(("test begun", f"{test.begun_at:%Y-%m-%d %H:%M} UTC by {test.begun_by}"))
    if test.ended_at is not None:
        facts.append(("test ended", f"{test.ended_at:%Y-%m-%d %H:%M} UTC by {test.ended_by}"))
    if test.attempt is not None:
        facts.append(("attempt on these rows", str(test.attempt)))
        facts.append(("certifying data", test.data))
    if test.note:
        facts.append(("why it was given up", test.note))
    if test.certificate is not None:
        facts += _certificate_facts(test.certificate)
    return tuple(facts)


def _certificate_facts(certificate: Certificate) -> list[tuple[str, str]]:
    coefficients = (certificate.control or {}).items()
    control = ", ".join(f"{name} {value:.4g}" for name, value in coefficients)
    facts = [
        ("kind", certificate.kind),
        ("certifying rows", f"of round {certificate.round}"),
        ("folds: learn, select, certify", ", ".join(f"{x:g}" for x in certificate.fractions)),
        ("delta of the verdict", f"{certificate.delta:g}"),
        ("delta's parts", str(certificate.spent)),
        ("further attempts declared", "yes" if certificate.retries else "no"),
        ("bound", certificate.bound),
        ("largest weight that counts (clip)", f"{certificate.clip:g}"),
        ("declared largest pi0 / p", f"{certificate.largest:g}"),
        ("shares of the old and the new part", ", ".join(f"{x:.4g}" for x in certificate.shares)),
        ("levels tested, of those listed", f"{certificate.tested} of {certificate.listed}"),
        ("policy", certificate.policy or "cannot be saved"),
        ("control variate: coefficients", control or "none"),
    ]
    if certificate.control_most is not None:
        facts.append(("its predictions are clipped at", f"{certificate.control_most:g}"))
    hashes = (("reward model", certificate.model), ("groups of actions", certificate.groups))
    facts += [(name, hash) for name, hash in hashes if hash]
    return [*facts, ("depsue", certificate.version)]


def _details(verdict: Verdict) -> VerdictDetails:
    ceiling = "–" if not verdict.ceiling else f"{verdict.ceiling:.6f}"
    cells = (
        verdict.promise.name,
        str(verdict.promise.floor),
        "passed" if verdict.passed else "failed",
        f"{verdict.delta:.4g}",
        f"{verdict.n:,}",
        f"{verdict.mean:.6f}" if verdict.shown else "withheld",
        f"{verdict.bound:.6f}" if verdict.shown else "withheld",
        f"{verdict.need + 0.0:.6f}",  # no -0.000000
        f"{verdict.credit:.6f}",
        "paired with pi0" if verdict.paired else ceiling,
    )
    constants = tuple(
        (name, f"{value:.6g}" if isinstance(value, float) else str(value))
        for name, value in verdict.constants.items()
        if value not in ("", None)
    )
    return VerdictDetails(verdict.promise.name, cells, constants, verdict.proof)


def _verdict_sentences(test: CandidateTest) -> list[str]:
    certificate = test.certificate
    if certificate is None:
        return [f"The test is {test.state}: there is no certificate."]
    claim = (
        "It is as published: its guarantee has gaps."
        if certificate.kind == "paper"
        else "It rests on estimated propensities: its delta is not guaranteed, it is no strict "
        "certificate."
        if certificate.kind == "estimated"
        else f"The procedure errs at most {100 * certificate.delta:.4g}% of the time, if what it "
        "rests on holds."
    )
    if test.certified is None:
        failed = ", ".join(
            verdict.promise.name for verdict in certificate.verdicts if not verdict.passed
        )
        return [f"The test failed: {failed}. Nothing of this list may be deployed.", claim]
    return [
        f"The test passed: {test.certified.novelty:.1%} is the highest novelty that passed, with "
        f"{certificate.tested} of {certificate.listed} levels tested.",
        claim,
    ]


def _recomputation(job: Job) -> Recomputation:
    at = utc(job.began if job.ended is None else job.ended)
    if job.running:
        return Recomputation(True, at)
    if job.problem:
        return Recomputation(False, at, problem=job.problem)
    found: Verification = job.result
    return Recomputation(
        False, at, equal=found.equal, differences=found.differences, missing=found.missing
    )
