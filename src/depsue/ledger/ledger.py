"""A ledger: what is written to it, what is read from it, how it is opened and moved.

Its promise stands at the head of the package.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa

from depsue.certificates.folds import FRACTIONS, Registration
from depsue.data.identity import IdentityKind, LogSketch, Overlap
from depsue.database import ROLLBACK_JOURNAL, Database, Profile, migrate, parse_address
from depsue.errors import ConfigError, FileError, require, short
from depsue.ledger import reads, registering, schema
from depsue.ledger.reads import CountedReads
from depsue.ledger.records import (
    AttemptRecord,
    CampaignRecord,
    CandidateRecord,
    CertificateLike,
    DeploymentKind,
    DeploymentRecord,
    ErasedPart,
    ErasureRecord,
    FamilyRecord,
    JournalEntry,
    ObservationRecord,
    certificate_pin,
    checked_count,
    checked_hash,
    checked_json,
    checked_name,
    checked_text,
)
from depsue.ledger.registering import Summary
from depsue.ledger.transaction import Transaction, no_campaign

T = TypeVar("T")

WAIT = 30.0
"""Seconds that a write waits for its turn."""

_PROFILE = Profile(
    what="ledger",
    pragmas=ROLLBACK_JOURNAL,
    connect_timeout=10,
    again=", and try again: what was written is found, not written twice",
)


def open_ledger(address: str | Path, *, create: bool = True, wait: float = WAIT) -> Ledger:
    """Open a ledger; an older one is brought to the newest version first.

    Args:
        address: a path or sqlite:///path for SQLite, ":memory:" for one that ends with the
            process, postgresql://user:password@host/database for PostgreSQL.
        create: whether to make a ledger where there is none.
        wait: seconds that a write waits for its turn.
    """
    url = parse_address(address, _PROFILE.what)
    require(wait > 0, "wait must be positive seconds", found=short(wait))
    database = Database(url, _PROFILE, wait=wait)
    if database.kind == "sqlite" and not create and not Path(database.name).exists():
        raise FileError(
            "there must be a ledger", found=f"no file {database.name}", cure=schema.SCHEMA.absent
        )
    migrate(database, schema.SCHEMA, create=create)
    return Ledger(database)


def copy_ledger(source: Ledger, target: Ledger) -> int:
    """Copy every row of a ledger as it is, in one transaction, into an empty one.

    Say, from SQLite to PostgreSQL. Returns how many lines of the journal that is.
    """
    with source.database.reading() as old, target.database.writing() as new:
        there = new.scalar(sa.select(sa.func.count()).select_from(schema.journal))
        require(
            not there,
            "a ledger is copied into an empty one",
            found=f"{there} entries in {target.database.name}",
            cure="name an empty database",
        )
        lines = 0
        for table in schema.RECORDS:
            rows = [dict(row) for row in old.execute(sa.select(table)).mappings()]
            if rows:
                new.execute(table.insert(), rows)
            lines += len(rows) if table is schema.journal else 0
        if new.dialect.name == "postgresql" and lines:  # new lines are counted from there on
            key = sa.func.pg_get_serial_sequence(schema.journal.name, "id")
            newest = sa.select(sa.func.max(schema.journal.c.id)).scalar_subquery()
            new.execute(sa.select(sa.func.setval(key, newest)))
    return lines


class Ledger:
    """Writes and reads records; `by` is who writes. `open_ledger` makes one.

    Args:
        database: where; its schema is the newest.
    """

    def __init__(self, database: Database) -> None:
        self.database = database

    def __repr__(self) -> str:
        return f"Ledger({self.database.name!r})"

    def close(self) -> None:
        """Let go of the database. Nothing needs it: what was acknowledged is on disk."""
        self.database.close()

    # writing

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
        with self._writing(by) as transaction:
            row = transaction.once(
                schema.campaigns,
                "campaign",
                f"{rounds} rounds",
                values,
                key=("name",),
                same=("rounds", "retries", "settings"),
                cure="go on with it as it was created, or give the new one another name",
            )
            return schema.record(CampaignRecord, row)

    def observe(
        self,
        campaign: str,
        round: int,
        *,
        data_hash: str,
        rows: int,
        source: str,
        summary: Summary,
        by: str,
        sketch: LogSketch | None = None,
        fractions: tuple[float, float, float] = FRACTIONS,
        fresh: bool = False,
        files: Mapping[str, str] | None = None,
    ) -> ObservationRecord:
        """Record what a round logged, and register its rows.

        Args:
            campaign, round: whose.
            data_hash: of all rows.
            rows: how many.
            source: where they are.
            summary: counts and sums; or what computes them once the rows are registered, for
                rewards are summed up from rows that no coming verdict reads.
            by: who observes.
            sketch: what the rows are known by; None knows them by their hash alone.
            fractions: shares of learn, select and certify.
            fresh: declared: no row was registered before, where only contents could tell.
            files: SHA-256 by name of the files that the rows are read with; pinned.
        """
        values = registering.observed(campaign, round, data_hash, rows, source)
        known_by = LogSketch.of_hash(data_hash, rows) if sketch is None else sketch
        with self._writing(by) as transaction:
            transaction.campaign(campaign, round, first=0)
            new = transaction.first(schema.observations, campaign=campaign, round=round) is None
            if new:
                registering.require_observable(transaction, campaign, round, data_hash)
                registration = registering.register(
                    transaction, campaign, round, data_hash, known_by, fractions, fresh=fresh
                )
                values["summary"] = registering.summed_up(summary, registration)
            row = transaction.once(
                schema.observations,
                "observation",
                data_hash,
                values,
                key=("campaign", "round"),
                same=("data_hash", "rows"),
                cure="several files of a round are observed together, with one hash",
            )
            if new and files:
                transaction.pin(row.id, campaign, round, files)
            return schema.record(ObservationRecord, row)

    def observe_more(
        self,
        campaign: str,
        round: int,
        *,
        data_hash: str,
        rows: int,
        source: str,
        summary: Summary,
        by: str,
        sketch: LogSketch | None = None,
        fractions: tuple[float, float, float] = FRACTIONS,
        files: Mapping[str, str] | None = None,
    ) -> ObservationRecord:
        """Replace what a round observed by more rows, before anything was learned from them.

        Arguments as for `observe`; rows that were there keep their folds.
        """
        values = registering.observed(campaign, round, data_hash, rows, source)
        known_by = LogSketch.of_hash(data_hash, rows) if sketch is None else sketch
        with self._writing(by) as transaction:
            registering.require_extensible(transaction, campaign, round)
            key = {"campaign": campaign, "round": round, "data_hash": data_hash}
            for seen in (schema.observations, schema.supplements):
                row = transaction.first(seen, **key)
                if row is not None:
                    return schema.record(ObservationRecord, row)
            registration = registering.register(
                transaction, campaign, round, data_hash, known_by, fractions, fresh=False
            )
            values["summary"] = registering.summed_up(summary, registration)
            id = transaction.add(schema.supplements, "supplement", data_hash, values)
            if files:
                transaction.pin(id, campaign, round, files)
            return schema.record(ObservationRecord, transaction.all(schema.supplements, **key)[-1])

    def declare_family(
        self, name: str, *, shares: Mapping[str, float], floor: float | None, by: str
    ) -> FamilyRecord:
        """Declare campaigns that share rows or traffic, before the first verdict on these rows.

        Args:
            name: of the family.
            shares: of delta, by the name of the campaign; they sum to at most 1.
            floor: what all of them together must keep, as a share of pi0's value; None if each
                speaks for itself, on traffic of its own.
            by: who declares it.
        """
        terms = registering.checked_family(name, shares, floor)
        values = {"name": name, "terms": checked_json(terms, "a family")}
        with self._writing(by) as transaction:
            registering.require_undecided(transaction, name, shares)
            row = transaction.once(
                schema.families,
                "family",
                ", ".join(shares),
                values,
                key=("name",),
                same=("terms",),
                cure="a family is declared once, before its first verdict",
            )
            return schema.record(FamilyRecord, row)

    def record_candidate(
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
                [checked_hash(data, "what it was trained on") for data in trained_on], "trained_on"
            ),
            "fixed": checked_json(fixed, "what was fixed beforehand"),
        }
        key = ("campaign", "round", "policy_hash")
        with self._writing(by) as transaction:
            transaction.campaign(campaign, round)
            if transaction.first(schema.policies, **{name: values[name] for name in key}) is None:
                transaction.require_current(campaign, round)
            row = transaction.once(
                schema.policies,
                "policy",
                policy_hash,
                values,
                key=key,
                same=("trained_on", "fixed"),
                cure="certify it as it was fixed; what is fixed otherwise is another candidate",
            )
            return schema.record(CandidateRecord, row)

    def begin_read(
        self, campaign: str, round: int, data_hash: str, policy_hash: str, by: str
    ) -> int:
        """Count a read; which attempt it is."""
        checked_hash(data_hash, "the data's hash")
        checked_hash(policy_hash, "the policy's hash")
        with self._writing(by) as transaction:
            return reads.begin_read(transaction, campaign, round, data_hash, policy_hash)

    def finish_read(
        self, campaign: str, round: int, policy_hash: str, certificate: CertificateLike, by: str
    ) -> AttemptRecord:
        """Store the certificate of an attempt."""
        text = checked_text(certificate.to_json(), "a certificate")
        with self._writing(by) as transaction:
            row = reads.finish_read(transaction, campaign, round, policy_hash, certificate, text)
            return schema.record(AttemptRecord, row)

    def abandon_read(
        self, campaign: str, round: int, policy_hash: str, *, why: str, by: str
    ) -> AttemptRecord:
        """Give up an open attempt."""
        checked_name(why, "the reason")
        with self._writing(by) as transaction:
            return schema.record(
                AttemptRecord, reads.abandon_read(transaction, campaign, round, policy_hash, why)
            )

    def deploy(
        self,
        campaign: str,
        round: int,
        policy_hash: str,
        kind: DeploymentKind = "deploy",
        *,
        by: str,
        declared: Mapping[str, Any] | None = None,
    ) -> DeploymentRecord:
        """Record what serves from now on, and how long it is declared to."""
        checked_hash(policy_hash, "the policy's hash")
        kinds = ("deploy", "rollback")
        require(kind in kinds, f"a deployment is one of {kinds}", found=short(kind))
        values = {
            "campaign": campaign,
            "round": round,
            "policy_hash": policy_hash,
            "kind": kind,
            "declared": checked_json(declared or {}, "what is declared of a deployment"),
        }
        with self._writing(by) as transaction:
            transaction.campaign(campaign, round)
            newest = transaction.all(schema.deployments, campaign=campaign, round=round)[-1:]
            if not newest or (newest[0].policy_hash, newest[0].kind) != (policy_hash, kind):
                transaction.require_begun(campaign, round)
                if kind == "deploy":
                    transaction.require_current(campaign, round)
                    reads.require_certified(transaction, campaign, round, policy_hash)
                values["secret"] = registering.secret_of_round(transaction, campaign, round)
                transaction.add(schema.deployments, kind, policy_hash, values)
            return schema.record(
                DeploymentRecord,
                transaction.all(schema.deployments, campaign=campaign, round=round)[-1],
            )

    def pin(self, campaign: str, round: int, hashes: Mapping[str, str], *, by: str) -> None:
        """Pin what an older version recorded, SHA-256 by name; what is pinned keeps its pin."""
        with self._writing(by) as transaction:
            known = transaction.pinned(campaign)
            new = {name: sha for name, sha in hashes.items() if (round, name) not in known}
            if new:
                id = transaction.note("pin", campaign, round, ", ".join(sorted(new)))
                transaction.pin(id, campaign, round, new)

    def begin_erasure(
        self, campaign: str, *, unit: str, parts: Sequence[ErasedPart], by: str
    ) -> ErasureRecord:
        """Record that a unit's rows are taken out, before any of them is: what will be left.

        From here on the rounds count as observed without these rows, whether their files were
        rewritten yet or not.

        Args:
            campaign: whose.
            unit: a keyed hash of the unit, 64 hexadecimal digits.
            parts: what goes from each round that has rows of it; () if only served decisions do.
            by: who.
        """
        with self._writing(by) as transaction:
            return registering.begin_erasure(transaction, campaign, unit, parts)

    def finish_erasure(
        self, campaign: str, *, unit: str, counts: Mapping[str, int], by: str
    ) -> None:
        """Record that what was begun is done: every erasure of that unit which is under way.

        Args:
            campaign, unit, by: as for `begin_erasure`.
            counts: what was taken out, by the kind of thing.
        """
        with self._writing(by) as transaction:
            registering.finish_erasure(transaction, campaign, unit, counts)

    @contextmanager
    def hold(self, campaign: str, round: int) -> Iterator[None]:
        """Keep other processes from certifying this round."""
        with self.database.hold(f"{round} {campaign}") as held:
            if not held:
                lines = [line for line in self.journal(campaign) if line.round == round]
                begun = [line for line in lines if line.what in ("read", "read continued")]
                since = (
                    f"{begun[-1].by} began at {begun[-1].at.isoformat()}" if begun else "it runs"
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

    # reading

    @property
    def id(self) -> str:
        """What certificates name this ledger by; drawn when it was made."""
        with self.database.reading() as connection:
            return str(connection.scalar(sa.select(schema.identity.c.name)))

    def registration(self, campaign: str, round: int) -> Registration:
        """What the folds of a round's rows hang on."""
        with self.database.reading() as connection:
            transaction = Transaction(connection, "reader")
            return registering.registered(transaction, campaign, round)

    def registration_ahead(
        self, campaign: str, round: int, kind: IdentityKind, fractions: tuple[float, float, float]
    ) -> Registration | None:
        """What the folds of a deployed round's rows will hang on, known before they are observed.

        None where that is drawn only then.

        Args:
            campaign, round: whose rows.
            kind: by what they will be named.
            fractions: shares of learn, select and certify.
        """
        with self.database.reading() as connection:
            transaction = Transaction(connection, "reader")
            return registering.registered_ahead(transaction, campaign, round, kind, fractions)

    def registered(self, campaign: str, round: int) -> bool:
        """Whether a round's rows are registered: they are, unless older rules took them in."""
        with self.database.reading() as connection:
            where = {"campaign": campaign, "round": round}
            return (
                Transaction(connection, "reader").first(schema.registrations, **where) is not None
            )

    def registration_of(self, sketch: LogSketch) -> Registration | None:
        """What rows were registered with, if the ledger knows them under these folds."""
        with self.database.reading() as connection:
            return registering.known_as(Transaction(connection, "reader"), sketch)

    def known_in(self, sketch: LogSketch) -> tuple[str, int] | None:
        """The campaign and round that registered rows of these first, under whatever folds."""
        with self.database.reading() as connection:
            return registering.known_in(Transaction(connection, "reader"), sketch)

    def require_registrable(
        self,
        sketch: LogSketch,
        fractions: tuple[float, float, float],
        *,
        retries: bool,
        fresh: bool = False,
    ) -> None:
        """Refuse rows that a new campaign could not register, before anything is written."""
        with self.database.reading() as connection:
            registering.require_registrable(
                Transaction(connection, "reader"), sketch, fractions, retries=retries, fresh=fresh
            )

    def overlap(self, campaign: str, round: int, sketch: LogSketch) -> Overlap:
        """What other rows have in common with those that a round observed."""
        with self.database.reading() as connection:
            return registering.overlap(Transaction(connection, "reader"), campaign, round, sketch)

    def sharing(self, campaign: str, round: int) -> tuple[tuple[str, ...], bool]:
        """Other campaigns with rows of a round's family, and whether a verdict has read them."""
        with self.database.reading() as connection:
            return registering.sharing(Transaction(connection, "reader"), campaign, round)

    def read_elsewhere(self, campaign: str, *, since: int = 0) -> tuple[str, ...]:
        """Other campaigns whose verdicts have read rows of this one's rounds, from `since` on."""
        with self.database.reading() as connection:
            return registering.read_elsewhere(Transaction(connection, "reader"), campaign, since)

    def share_of_delta(self, campaign: str) -> float:
        """The campaign's share of delta: 1 unless it is in a declared family."""
        with self.database.reading() as connection:
            return registering.share_of_delta(Transaction(connection, "reader"), campaign)

    def families(self) -> tuple[FamilyRecord, ...]:
        """All families that were declared."""
        return self._list(schema.families, FamilyRecord)

    def count_reads(self, data_hash: str, campaign: str = "") -> int:
        """How many attempts on rows of these rows' family count before the campaign's next.

        Args:
            data_hash: of the rows.
            campaign: whose next attempt; "" counts those of all campaigns.
        """
        with self.database.reading() as connection:
            return registering.attempts_before(
                Transaction(connection, "reader"), campaign, data_hash
            )

    def campaign(self, name: str) -> CampaignRecord:
        """The campaign of that name."""
        campaigns = self.campaigns()
        for campaign in campaigns:
            if campaign.name == name:
                return campaign
        raise no_campaign(name, [campaign.name for campaign in campaigns])

    def campaigns(self) -> tuple[CampaignRecord, ...]:
        """All campaigns."""
        return self._list(schema.campaigns, CampaignRecord)

    def observations(self, campaign: str) -> tuple[ObservationRecord, ...]:
        """What was observed, with all that was added to it, without what was erased."""
        self.campaign(campaign)  # an unknown name is an error, not an empty list
        with self.database.reading() as connection:
            return tuple(Transaction(connection, "reader").observations(campaign).values())

    def supplemented(self, campaign: str, round: int) -> bool:
        """Whether rows were added to what a round observed."""
        added = self._list(schema.supplements, ObservationRecord, campaign=campaign)
        return any(record.round == round for record in added)

    def erasures(self, campaign: str) -> tuple[ErasureRecord, ...]:
        """The erasures, finished or under way."""
        return self._list(schema.erasures, ErasureRecord, campaign=campaign)

    def candidates(self, campaign: str) -> tuple[CandidateRecord, ...]:
        """The candidates."""
        return self._list(schema.policies, CandidateRecord, campaign=campaign)

    def attempts(self, campaign: str) -> tuple[AttemptRecord, ...]:
        """The attempts, with their certificates; a FileError for one that was edited."""
        attempts = self._list(schema.reads, AttemptRecord, campaign=campaign)
        pins = self.pins(campaign)
        for attempt in attempts:
            pin = pins.get((attempt.round, certificate_pin(attempt.policy_hash)), attempt.pin)
            require(
                attempt.pin == pin,
                "a certificate must be as its verdict wrote it",
                found=f"the certificate of attempt {attempt.attempt} in round {attempt.round} of "
                f"campaign {campaign!r} was edited in {self.database.name}",
                cure=f"restore it from a copy; pi0 can serve: depsue campaign rollback {campaign}",
                error=FileError,
            )
        return attempts

    def pins(self, campaign: str) -> dict[tuple[int, str], str]:
        """SHA-256 of what a campaign's policies rest on, by round and name."""
        with self.database.reading() as connection:
            return Transaction(connection, "reader").pinned(campaign)

    def deployments(self, campaign: str) -> tuple[DeploymentRecord, ...]:
        """What was deployed."""
        return self._list(schema.deployments, DeploymentRecord, campaign=campaign)

    def journal(self, campaign: str | None = None) -> tuple[JournalEntry, ...]:
        """Who did what when."""
        where = {} if campaign is None else {"campaign": campaign}
        return self._list(schema.journal, JournalEntry, **where)

    @contextmanager
    def _writing(self, by: str) -> Iterator[Transaction]:
        checked_name(by, "who writes")
        with self.database.writing() as connection:
            yield Transaction(connection, by)

    def _list(self, table: sa.TableClause, kind: type[T], **where: object) -> tuple[T, ...]:
        if "campaign" in where:
            self.campaign(str(where["campaign"]))  # an unknown name is an error, not an empty list
        with self.database.reading() as connection:
            rows = connection.execute(schema.rows_of(table, **where)).all()
        return tuple(schema.record(kind, row) for row in rows)
