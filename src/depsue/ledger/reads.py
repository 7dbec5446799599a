"""Reads of certifying rows: which may begin, and how they end.

A read is counted in the ledger before the rows are looked at. Each function is the rule of one of
the transactions that a read consists of; `Ledger` calls them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Self

from depsue.errors import ConfigError, require
from depsue.ledger import schema
from depsue.ledger.records import AttemptRecord, CertificateLike, certificate_pin, verdict_hash
from depsue.ledger.registering import earlier_attempts, registered
from depsue.ledger.transaction import Row, Transaction

if TYPE_CHECKING:
    from depsue.ledger import Ledger


def begin_read(
    transaction: Transaction, campaign: str, round: int, data_hash: str, policy_hash: str
) -> int:
    """Count an attempt, or continue the one that this candidate has; its number."""
    declared = transaction.campaign(campaign, round)
    own = transaction.first(schema.reads, campaign=campaign, round=round, policy_hash=policy_hash)
    if own is not None:
        return _continued(transaction, own, data_hash)
    before = transaction.require_current(campaign, round)
    require(
        before.data_hash == data_hash,
        "a round is certified on the rows of the round before it",
        found=f"{data_hash[:12]}, but round {round - 1} observed {before.data_hash[:12]}",
        cure="take the rows that were observed",
    )
    candidate = transaction.first(
        schema.policies, campaign=campaign, round=round, policy_hash=policy_hash
    )
    if candidate is None:
        raise ConfigError(
            "a candidate is recorded, with all that is fixed, before the rows are read",
            found=f"policy {policy_hash[:12]} is not in round {round} of campaign {campaign!r}",
            cure="record it first",
        )
    _require_none_open(transaction, campaign, round)
    family = registered(transaction, campaign, round - 1).family
    attempt = 1 + earlier_attempts(transaction, declared, family, data_hash, candidate)
    values = {
        "campaign": campaign,
        "round": round,
        "attempt": attempt,
        "data_hash": data_hash,
        "policy_hash": policy_hash,
        "family": family,
    }
    transaction.add(schema.reads, "read", policy_hash, values)
    return attempt


def _continued(transaction: Transaction, own: Row, data_hash: str) -> int:
    """The number of an attempt that this candidate has begun: its verdict would be the same."""
    require(
        own.data_hash == data_hash,
        "a candidate is tested on one data set in a round",
        found=f"{data_hash[:12]}, but attempt {own.attempt} read {own.data_hash[:12]}",
        cure="certify it on the rows that it began with",
    )
    require(
        own.passed is None or own.certificate is not None,
        "an attempt that was given up is not taken up again",
        found=f"attempt {own.attempt}, abandoned by {own.finished_by} at {own.finished_at}",
        cure="certify on new rows, or another candidate if the campaign declared retries",
    )
    if own.passed is None:
        registered(transaction, own.campaign, own.round - 1)  # by older rules it would differ
        transaction.note("read continued", own.campaign, own.round, own.policy_hash)
    return int(own.attempt)


def finish_read(
    transaction: Transaction,
    campaign: str,
    round: int,
    policy_hash: str,
    certificate: CertificateLike,
    text: str,
) -> Row:
    """Write the verdict of an attempt, once."""
    begun = _begun(transaction, campaign, round, policy_hash)
    for name, stated, expected in (
        ("campaign", certificate.campaign, campaign),
        ("data", certificate.data, begun.data_hash),
        ("attempt", certificate.attempt, begun.attempt),
    ):
        require(
            stated == expected,
            "a certificate belongs to the attempt that was begun",
            found=f"{name} {stated!r} in the certificate, {expected!r} in the ledger",
            cure="certify with the reads of the ledger: ledger.reads(...)",
        )
    values = {
        "passed": int(certificate.passed),
        "certified": certificate.policy,
        "certificate": text,
        "note": "",
    }
    return _end(transaction, begun, values)


def abandon_read(
    transaction: Transaction, campaign: str, round: int, policy_hash: str, why: str
) -> Row:
    """Give an open attempt up: it failed."""
    begun = _begun(transaction, campaign, round, policy_hash)
    return _end(
        transaction, begun, {"passed": 0, "certified": None, "certificate": None, "note": why}
    )


def _end(transaction: Transaction, begun: Row, values: Mapping[str, object]) -> Row:
    words = {0: "failed", 1: "passed"}
    if begun.passed is None:
        known = {"read_id": begun.id, "campaign": begun.campaign, "round": begun.round}
        id = transaction.add(
            schema.verdicts, "verdict", words[bool(values["passed"])], {**known, **values}
        )
        if values["certificate"] is not None:
            verdict = verdict_hash(
                bool(values["passed"]),
                None if values["certified"] is None else str(values["certified"]),
                str(values["certificate"]),
            )
            hashes = {certificate_pin(begun.policy_hash): verdict}
            transaction.pin(id, begun.campaign, begun.round, hashes)
    else:
        require(
            begun.certificate == values["certificate"],
            "the verdict of an attempt is written once",
            found=f"{begun.finished_by} wrote at {begun.finished_at} that attempt {begun.attempt} "
            f"{words[begun.passed]}; another text now says {words[bool(values['passed'])]}",
            cure="the first one stands",
        )
    return _begun(transaction, begun.campaign, begun.round, begun.policy_hash)


def _begun(transaction: Transaction, campaign: str, round: int, policy_hash: str) -> Row:
    transaction.campaign(campaign, round)
    begun = transaction.first(schema.reads, campaign=campaign, round=round, policy_hash=policy_hash)
    if begun is None:
        raise ConfigError(
            "a read is begun, and so counted, before it has a verdict",
            found=f"no attempt of policy {policy_hash[:12]} in round {round}",
            cure="begin_read first",
        )
    return begun


def _require_none_open(transaction: Transaction, campaign: str, round: int) -> None:
    for row in transaction.all(schema.reads, campaign=campaign, round=round):
        if row.passed is None:
            raise ConfigError(
                "one attempt at a time certifies a round",
                found=f"{row.by} began attempt {row.attempt} with policy {row.policy_hash[:12]} "
                f"at {row.at}, and it has no verdict yet",
                cure="wait for it, continue it with the same policy, or abandon it: it was counted",
            )


class CountedReads:
    """Counts the reads of one candidate, as `depsue.certificates.Reads` does in a file.

    ::

        with ledger.reads("spring", 1, policy_hash, by="ana") as reads:
            reads.finish(certify(levels, folds, rules, reads))

    Args:
        ledger: where.
        campaign: its name.
        round: the deployment that the candidate is for.
        policy_hash: of the candidate.
        by: who certifies.
    """

    def __init__(
        self, ledger: Ledger, campaign: str, round: int, policy_hash: str, *, by: str
    ) -> None:
        self._ledger, self._campaign, self._round = ledger, campaign, round
        self._policy, self._by = policy_hash, by
        self._held = ExitStack()
        self._inside = False
        self.retries = ledger.campaign(campaign).retries
        self._share = ledger.share_of_delta(campaign)

    def __enter__(self) -> Self:
        self._held.enter_context(self._ledger.hold(self._campaign, self._round))
        self._inside = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._inside = False
        self._held.close()

    def begin(self, data: str) -> int:
        """Count a read, or continue this candidate's; which attempt on these rows it is."""
        if not self._inside:
            raise ConfigError(
                "a read begins while its round is held, so that two do not run at once",
                cure="with ledger.reads(...) as reads: certify(..., reads)",
            )
        return self._ledger.begin_read(self._campaign, self._round, data, self._policy, self._by)

    def count(self, data: str) -> int:
        """How many attempts on these rows came before this candidate's."""
        for attempt in self._ledger.attempts(self._campaign):
            its = (attempt.round, attempt.policy_hash, attempt.data_hash)
            if its == (self._round, self._policy, data):
                return attempt.attempt - 1
        return self._ledger.count_reads(data, self._campaign)

    def delta_of_attempt(self, delta: float, attempt: int) -> float:
        """The delta at which that attempt is tested: the campaign's share, halved by attempts."""
        own = delta * self._share
        return own * 2.0**-attempt if self.retries else own

    def finish(self, certificate: CertificateLike) -> AttemptRecord:
        """Store the certificate."""
        return self._ledger.finish_read(
            self._campaign, self._round, self._policy, certificate, self._by
        )


def require_certified(
    transaction: Transaction, campaign: str, round: int, policy_hash: str
) -> None:
    """Refuse to deploy what neither passed in this round nor needs a certificate."""
    rows = transaction.all(schema.reads, campaign=campaign, round=round)
    passed = any(row.passed and policy_hash in (row.policy_hash, row.certified) for row in rows)
    candidates = transaction.all(schema.policies, campaign=campaign, round=round)
    certain = any(policy_hash in json.loads(row.fixed).get("certain", ()) for row in candidates)
    require(
        passed or certain,
        "what is deployed has a certificate of this round that passed, or needs none: a candidate "
        "of this round names it as certain",
        found=f"neither for policy {policy_hash[:12]} in round {round} of campaign {campaign!r}",
        cure="certify it first; what served before may go on, as a rollback",
    )
