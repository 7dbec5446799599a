"""What is written to a ledger: each record once, together with its line in the journal."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from depsue.errors import ConfigError, require, short
from depsue.ledger import attempts, tables
from depsue.ledger.book import Transaction
from depsue.ledger.checks import (
    checked_count,
    checked_hash,
    checked_json,
    checked_name,
    checked_text,
)
from depsue.ledger.counted import CountedReads
from depsue.ledger.reading import Reading
from depsue.ledger.records import (
    AttemptRecord,
    CampaignRecord,
    CandidateRecord,
    CertificateLike,
    DeploymentKind,
    DeploymentRecord,
    ObservationRecord,
)


class Ledger(Reading):
    """Writes records; `by` is who does it. The promise stands in the package's own text."""

    def create_campaign(
        self,
        name: str,
        *,
        rounds: int,
        settings: Mapping[str, Any],
        retries: bool = False,
        by: str,
    ) -> CampaignRecord:
        """Begin a campaign of K = `rounds` deployments."""
        values = {
            "name": checked_name(name, "a campaign"),
            "rounds": checked_count(rounds, "rounds", 1, 1_000_000),
            "retries": int(bool(retries)),
            "settings": checked_json(settings, "settings"),
        }
        with self._writing(by) as book:
            row = book.once(
                tables.campaigns,
                "campaign",
                f"{rounds} rounds",
                values,
                key=("name",),
                same=("rounds", "retries", "settings"),
                cure="go on with it as it was created, or give the new one another name",
            )
            return tables.record(CampaignRecord, row)

    def observe(
        self,
        campaign: str,
        round: int,
        *,
        data_hash: str,
        rows: int,
        source: str,
        summary: Mapping[str, Any],
        by: str,
    ) -> ObservationRecord:
        """Record what a round logged."""
        values = {
            "campaign": campaign,
            "round": round,
            "data_hash": checked_hash(data_hash, "the data's hash"),
            "rows": checked_count(rows, "rows", 1),
            "source": checked_name(source, "the source"),
            "summary": checked_json(summary, "the summary"),
        }
        with self._writing(by) as book:
            book.campaign(campaign, round, first=0)
            if book.first(tables.observations, campaign=campaign, round=round) is None:
                _require_observable(book, campaign, round, data_hash)
            row = book.once(
                tables.observations,
                "observation",
                data_hash,
                values,
                key=("campaign", "round"),
                same=("data_hash", "rows"),
                cure="several files of a round are observed together, with one hash",
            )
            return tables.record(ObservationRecord, row)

    def record_policy(
        self,
        campaign: str,
        round: int,
        *,
        policy_hash: str,
        folder: str,
        trained_on: Sequence[str],
        fixed: Mapping[str, Any],
        by: str,
    ) -> CandidateRecord:
        """Record a candidate."""
        values = {
            "campaign": campaign,
            "round": round,
            "policy_hash": checked_hash(policy_hash, "the policy's hash"),
            "folder": checked_name(folder, "the folder"),
            "trained_on": checked_json(
                [checked_hash(one, "what it was trained on") for one in trained_on], "trained_on"
            ),
            "fixed": checked_json(fixed, "what was fixed beforehand"),
        }
        key = ("campaign", "round", "policy_hash")
        with self._writing(by) as book:
            book.campaign(campaign, round)
            if book.first(tables.policies, **{name: values[name] for name in key}) is None:
                book.require_current(campaign, round)
            row = book.once(
                tables.policies,
                "policy",
                policy_hash,
                values,
                key=key,
                same=("trained_on", "fixed"),
                cure="certify it as it was fixed; what is fixed otherwise is another candidate",
            )
            return tables.record(CandidateRecord, row)

    def begin_read(
        self, campaign: str, round: int, data_hash: str, policy_hash: str, by: str
    ) -> int:
        """Count a read; which attempt it is."""
        checked_hash(data_hash, "the data's hash")
        checked_hash(policy_hash, "the policy's hash")
        with self._writing(by) as book:
            return attempts.begin(book, campaign, round, data_hash, policy_hash)

    def finish_read(
        self, campaign: str, round: int, policy_hash: str, certificate: CertificateLike, by: str
    ) -> AttemptRecord:
        """Store the certificate of an attempt."""
        text = checked_text(certificate.to_json(), "a certificate")
        with self._writing(by) as book:
            row = attempts.finish(book, campaign, round, policy_hash, certificate, text)
            return tables.record(AttemptRecord, row)

    def abandon_read(
        self, campaign: str, round: int, policy_hash: str, *, why: str, by: str
    ) -> AttemptRecord:
        """Give up an open attempt."""
        checked_name(why, "the reason")
        with self._writing(by) as book:
            return tables.record(
                AttemptRecord, attempts.abandon(book, campaign, round, policy_hash, why)
            )

    def deploy(
        self,
        campaign: str,
        round: int,
        policy_hash: str,
        kind: DeploymentKind = "deploy",
        *,
        by: str,
    ) -> DeploymentRecord:
        """Record what serves from now on."""
        checked_hash(policy_hash, "the policy's hash")
        kinds = ("deploy", "rollback")
        require(kind in kinds, f"a deployment is one of {kinds}", found=short(kind))
        values = {"campaign": campaign, "round": round, "policy_hash": policy_hash, "kind": kind}
        with self._writing(by) as book:
            book.campaign(campaign, round)
            newest = book.all(tables.deployments, campaign=campaign, round=round)[-1:]
            if not newest or (newest[0].policy_hash, newest[0].kind) != (policy_hash, kind):
                book.require_begun(campaign, round)
                if kind == "deploy":
                    book.require_current(campaign, round)
                    _require_certified(book, campaign, round, policy_hash)
                book.add(tables.deployments, kind, policy_hash, values)
            return tables.record(
                DeploymentRecord, book.all(tables.deployments, campaign=campaign, round=round)[-1]
            )

    @contextmanager
    def hold(self, campaign: str, round: int) -> Iterator[None]:
        """Keep other processes from certifying this round."""
        with self.database.hold(f"{round} {campaign}") as held:
            if not held:
                lines = [one for one in self.journal(campaign) if one.round == round]
                reads = [one for one in lines if one.what.startswith("read")]
                since = (
                    f"{reads[-1].by} began at {reads[-1].at.isoformat()}" if reads else "it runs"
                )
                raise ConfigError(
                    "one process at a time certifies a round",
                    found=f"another does so for round {round} of campaign {campaign!r}: {since}",
                    cure="wait for its verdict",
                )
            yield

    def reads(self, campaign: str, round: int, policy_hash: str, *, by: str) -> CountedReads:
        """What `certify` counts its reads with, for one candidate."""
        return CountedReads(self, campaign, round, policy_hash, by=by)

    @contextmanager
    def _writing(self, by: str) -> Iterator[Transaction]:
        checked_name(by, "who writes")
        with self.database.writing() as connection:
            yield Transaction(connection, by)


def _require_observable(book: Transaction, campaign: str, round: int, data_hash: str) -> None:
    same = book.first(tables.observations, campaign=campaign, data_hash=data_hash)
    if same is not None:
        raise ConfigError(
            "each round logs rows of its own",
            found=f"the same data {data_hash[:12]} is round {same.round}, by {same.by}",
            cure=f"observe what round {round} logged",
        )
    if round > 0:
        book.require_current(campaign, round)
        require(
            book.first(tables.deployments, campaign=campaign, round=round) is not None,
            "a round is observed after something was deployed in it",
            found=f"no deployment in round {round} of campaign {campaign!r}",
            cure="record the deployment first; if pi0 went on serving, as a rollback to it",
        )


def _require_certified(book: Transaction, campaign: str, round: int, policy_hash: str) -> None:
    rows = book.all(tables.reads, campaign=campaign, round=round)
    passed = any(row.passed and policy_hash in (row.policy_hash, row.certified) for row in rows)
    fixed = [
        json.loads(row.fixed) for row in book.all(tables.policies, campaign=campaign, round=round)
    ]
    certain = any(policy_hash in one.get("certain", ()) for one in fixed)
    require(
        passed or certain,
        "what is deployed has a certificate of this round that passed, or needs none: a candidate "
        "of this round names it as certain",
        found=f"neither for policy {policy_hash[:12]} in round {round} of campaign {campaign!r}",
        cure="certify it first; what served before may go on, as a rollback",
    )
