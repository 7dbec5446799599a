"""What a ledger holds: frozen records, and what may enter one, checked at the door.

Each record says who wrote it (`by`) and when (`at`). Rounds count deployments, from 1; round 0 is
what pi0 logged before. Hashes are SHA-256. Mappings hold JSON values. Fields have the names of the
columns.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Protocol

from depsue.errors import is_whole, require, short

LARGEST_TEXT = 1 << 20
"""Characters of a JSON value: a ledger holds sums, not rows."""

DeploymentKind = Literal["deploy", "rollback"]


@dataclass(frozen=True)
class CampaignRecord:
    """K = `rounds` deployments; with `retries`, attempt j is tested at delta 2^-j."""

    name: str
    rounds: int
    retries: bool
    settings: Mapping[str, Any]
    at: datetime
    by: str


@dataclass(frozen=True)
class ObservationRecord:
    """What one round logged: a set of files (`source`) with one hash; `summary` has no rows."""

    campaign: str
    round: int
    data_hash: str
    rows: int
    source: str
    summary: Mapping[str, Any]
    at: datetime
    by: str


@dataclass(frozen=True)
class CandidateRecord:
    """A policy, or a list of them in a fixed order, that may be put to the test in a round.

    `policy_hash` is of the policy or of the list, `folder` the name of the folder with the files,
    `trained_on` the hashes of the data it was learned from, and `fixed` all else that was fixed
    before the certifying rows are read.
    """

    campaign: str
    round: int
    policy_hash: str
    folder: str
    trained_on: Sequence[str]
    fixed: Mapping[str, Any]
    at: datetime
    by: str


@dataclass(frozen=True)
class AttemptRecord:
    """One verdict on certifying rows: begun, and perhaps finished.

    `attempt` counts the verdicts on rows of one `family`, over all campaigns that are not declared
    to share delta. `certified` is the policy that the certificate is about, one of the candidate's;
    `note` says why an attempt was abandoned.
    """

    campaign: str
    round: int
    attempt: int
    data_hash: str
    policy_hash: str
    family: str
    passed: bool | None
    certified: str | None
    certificate: str | None
    note: str | None
    finished_at: datetime | None
    finished_by: str | None
    at: datetime
    by: str

    @property
    def pin(self) -> str | None:
        """SHA-256 of the verdict, which the ledger pins; None without a certificate."""
        if self.passed is None or self.certificate is None:
            return None
        return verdict_hash(self.passed, self.certified, self.certificate)

    @property
    def state(self) -> Literal["open", "abandoned", "passed", "failed"]:
        """How it stands."""
        if self.passed is None:
            return "open"
        if self.certificate is None:
            return "abandoned"
        return "passed" if self.passed else "failed"


@dataclass(frozen=True)
class DeploymentRecord:
    """What serves from now on: a certified policy, or a rollback to what served before.

    `declared` says how long: {"decisions": 50000} or {"until": "2027-03-01T00:00:00"}.
    """

    campaign: str
    round: int
    policy_hash: str
    kind: DeploymentKind
    declared: Mapping[str, Any]
    at: datetime
    by: str


@dataclass(frozen=True)
class FamilyRecord:
    """Campaigns that share rows or traffic; `terms`: their shares of delta, the joint floor."""

    name: str
    terms: Mapping[str, Any]
    at: datetime
    by: str


@dataclass(frozen=True)
class JournalEntry:
    """A line of the journal: who did what when. A record has the id of its line.

    `what` is campaign, observation, supplement, registration, family, policy, read, read continued,
    verdict, deploy, rollback or pin.
    """

    id: int
    what: str
    campaign: str
    round: int | None
    detail: str
    at: datetime
    by: str


def certificate_pin(policy_hash: str) -> str:
    """The name under which the certificate of a candidate is pinned, by the candidate's hash."""
    return f"certificate of {policy_hash[:16]}"


def verdict_hash(passed: bool, certified: str | None, certificate: str) -> str:
    """SHA-256 of a verdict: whether it passed, which policy it certifies, the certificate."""
    text = f"{int(passed)} {certified or ''} {certificate}"
    return hashlib.sha256(text.encode()).hexdigest()


class CertificateLike(Protocol):
    """What the ledger asks of a certificate; `depsue.certificates.Certificate` is one."""

    @property
    def campaign(self) -> str: ...
    @property
    def data(self) -> str: ...
    @property
    def attempt(self) -> int: ...
    @property
    def policy(self) -> str | None: ...
    @property
    def passed(self) -> bool: ...
    def to_json(self) -> str: ...


_HASH = re.compile(r"[0-9a-f]{64}")


def checked_name(value: str, what: str) -> str:
    """A name of a campaign, a file or a person: printable, and short."""
    require(
        isinstance(value, str) and bool(value.strip()) and value.isprintable(),
        f"{what} must be a name of printable characters",
        found=short(value),
        cure="name it in plain letters",
    )
    require(len(value) <= 1000, f"{what} must have at most 1000 characters", found=len(value))
    return value


def checked_hash(value: str, what: str) -> str:
    """A SHA-256 in lower-case hexadecimal digits."""
    require(
        isinstance(value, str) and _HASH.fullmatch(value) is not None,
        f"{what} must be a SHA-256, 64 hexadecimal digits",
        found=short(value),
        cure="logs.hash, hash_of(policy) and certificates carry it",
    )
    return value


def checked_count(value: int, what: str, least: int, most: int = 1 << 53) -> int:
    """A whole number between two limits."""
    require(
        is_whole(value) and least <= value <= most,
        f"{what} must be a whole number from {least} to {most}",
        found=short(value),
    )
    return int(value)


def checked_json(value: Mapping[str, Any] | Sequence[str], what: str) -> str:
    """The one text of a JSON value: the same value is always the same text."""
    try:
        plain = dict(value) if isinstance(value, Mapping) else list(value)
        text = json.dumps(plain, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as problem:
        require(False, f"{what} must be JSON values", found=short(str(problem)))
        raise
    return checked_text(text, what)


def checked_text(text: str, what: str) -> str:
    """A text that is not too long."""
    require(
        len(text) <= LARGEST_TEXT,
        f"{what} must have at most {LARGEST_TEXT:,} characters as JSON",
        found=f"{len(text):,}",
        cure="keep counts and sums: a ledger holds no rows",
    )
    return text
