"""One certificate's page, and recomputing it from the logs and the policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from depsue import rng
from depsue.campaigns import Campaign
from depsue.certificates import Certificate, MixtureLadder, verify
from depsue.errors import FileError
from depsue.ledger import AttemptRecord, CandidateRecord
from depsue.pages.details import VERDICTS, details_of
from depsue.pages.jobs import Job
from depsue.pages.live import utc
from depsue.pages.story import Tried
from depsue.pages.told import Told, certificate_path
from depsue.policies import BasePolicy, load
from depsue.progress import Watch


@dataclass(frozen=True)
class Checked:
    """What came of recomputing; `differences` are in words, none if everything is equal."""

    under_way: bool
    at: str
    equal: bool | None = None
    differences: tuple[str, ...] = ()
    problem: str = ""


@dataclass(frozen=True)
class VerdictOf:
    """One promise, tested: the cells of a table, the constants of its bound, and its proof."""

    name: str
    cells: tuple[str, ...]
    constants: tuple[tuple[str, str], ...]
    proof: str


@dataclass(frozen=True)
class CertificatePage:
    """One test of a candidate.

    Args:
        campaign, round, attempt, path: which.
        state: passed, failed, open or abandoned.
        said: in sentences.
        headings, verdicts: the table of verdicts.
        facts: what was fixed, and its hashes.
        assumptions: what it rests on.
        levels: (novelty, anticipated value / V(pi0)) in the order of testing.
        tested: how many of them were.
        certified: the one that passed; None without.
        floor: relative to pi0's value; None where it cannot be told.
        text: the certificate as it was written; "" without.
        checked: what came of recomputing it; None before.
    """

    campaign: str
    round: int
    attempt: int
    path: str
    state: str
    said: tuple[str, ...]
    headings: tuple[str, ...]
    verdicts: tuple[VerdictOf, ...]
    facts: tuple[tuple[str, str], ...]
    assumptions: tuple[str, ...]
    levels: tuple[tuple[float, float], ...]
    tested: int
    certified: tuple[float, float] | None
    floor: float | None
    text: str
    checked: Checked | None


def certificate_page(told: Told, k: int, attempt: int, job: Job | None) -> CertificatePage | None:
    """The page of a test; None if there was no such test.

    Args:
        told: what the ledger tells.
        k: its round.
        attempt: which read of the certifying rows.
        job: of recomputing it.
    """
    found = [one for one in told.story.tried if one.round == k and _number(one) == attempt]
    if not found:
        return None
    tried = found[-1]
    details, certificate = details_of(tried), tried.certificate
    unit = None if told.first is None else told.first.seen[0].mean
    floor = told.floor
    return CertificatePage(
        campaign=told.name,
        round=k,
        attempt=attempt,
        path=certificate_path(told.name, k, attempt),
        state=tried.state,
        said=tuple(_said(tried)),
        headings=VERDICTS,
        verdicts=tuple(_verdict(one) for one in details["verdicts"]),
        facts=tuple((str(name), str(value)) for name, value in details["facts"]),
        assumptions=() if certificate is None else certificate.assumptions,
        levels=tried.levels,
        tested=0 if certificate is None else certificate.tested,
        certified=tried.certified,
        floor=floor / unit if floor is not None and unit else None,
        text=str(details["json"]),
        checked=None if job is None else _checked(job),
    )


def recompute(campaign: Campaign, k: int, attempt: int, watch: Watch) -> tuple[str, ...]:
    """What differs when a certificate is computed again, in words; () if nothing does.

    Args:
        campaign: whose.
        k: its round.
        attempt: which read of the certifying rows.
        watch: shows progress.
    """
    read = next(
        one
        for one in campaign.ledger.attempts(campaign.name)
        if (one.round, one.attempt) == (k, attempt)
    )
    candidate = next(one for one in campaign.candidates(k) if one.policy_hash == read.policy_hash)
    certificate = Certificate.from_json(read.certificate or "")
    watch("logs", 0, 1, "")
    logs = campaign.logs(k - 1)
    watch("logs", 1, 1, f"{len(logs):,} rows")
    served = campaign.summaries()[k - 1].served
    pi0 = campaign.pi0_today(k - 1)
    by_pi0 = served == campaign.terms.pi0 and not campaign.withdrawn(k - 1)
    watch("verdict", 0, 1, "")
    with rng.one_thread():
        found = verify(
            certificate,
            logs,
            _policy(campaign, candidate, read, certificate),
            logging_policy=None if by_pi0 else pi0,
            base=pi0 if by_pi0 else campaign.widened(campaign.policy(k, served), logs.catalogue),
            model=campaign.model(candidate),
        )
    watch("verdict", 1, 1, "")
    return found.differences


def _policy(
    campaign: Campaign, candidate: CandidateRecord, read: AttemptRecord, certificate: Certificate
) -> BasePolicy:
    """The policy that a certificate is about: saved if it passed, else mixed again."""
    if read.certified is not None:
        return campaign.policy(read.round, read.certified)
    folder = campaign.files.candidate(read.round, candidate.policy_hash)
    parts = [load(folder / name, outside=campaign.outside) for name in ("old", "new")]
    if len(parts) != len(certificate.shares):
        raise FileError(
            "a candidate has as many parts as its certificate",
            found=f"{len(parts)}, certified {len(certificate.shares)}",
            cure="restore the folder from a copy",
        )
    return MixtureLadder(tuple(parts), np.array([certificate.shares])).policy(0)


def _number(tried: Tried) -> int | None:
    return None if tried.attempt is None else tried.attempt.attempt


def _said(tried: Tried) -> list[str]:
    """The verdict in sentences."""
    certificate = tried.certificate
    if certificate is None:
        return [f"The test is {tried.state}: there is no certificate."]
    level = f"{100 * certificate.delta:.4g}%"
    claim = f"The procedure errs at most {level} of the time, if what it rests on holds."
    if certificate.kind == "paper":
        claim = "It is as published: its guarantee has gaps."
    if tried.certified is None:
        failed = ", ".join(one.promise.name for one in certificate.verdicts if not one.passed)
        return [f"The test failed: {failed}. Nothing of this list may be deployed.", claim]
    return [
        f"The test passed at a novelty of {tried.certified[0]:.1%}, level {certificate.tested} of "
        f"{certificate.listed} being the last that was tested.",
        claim,
    ]


def _verdict(told: Any) -> VerdictOf:
    return VerdictOf(
        told["name"],
        tuple(told["cells"]),
        tuple((str(name), str(value)) for name, value in told["constants"]),
        told["proof"],
    )


def _checked(job: Job) -> Checked:
    at = utc(job.began if job.ended is None else job.ended)
    if job.running:
        return Checked(True, at)
    if job.problem:
        return Checked(False, at, problem=job.problem)
    return Checked(False, at, equal=not job.result, differences=tuple(job.result))
