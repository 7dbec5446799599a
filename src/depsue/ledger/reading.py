"""What is read from a ledger: frozen records, oldest first."""

from __future__ import annotations

from typing import TypeVar

import sqlalchemy as sa

from depsue.ledger import attempts, tables
from depsue.ledger.book import no_campaign
from depsue.ledger.database import Database
from depsue.ledger.records import (
    AttemptRecord,
    CampaignRecord,
    CandidateRecord,
    DeploymentRecord,
    JournalEntry,
    ObservationRecord,
)

T = TypeVar("T")


class Reading:
    """The readers' half of a ledger."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def __repr__(self) -> str:
        return f"Ledger({self.database.name!r})"

    def close(self) -> None:
        """Let go of the database. Nothing needs it: what was acknowledged is on disk."""
        self.database.close()

    def count_reads(self, data_hash: str) -> int:
        """How many attempts read these rows."""
        with self.database.reading() as connection:
            return attempts.count(connection, data_hash)

    def campaign(self, name: str) -> CampaignRecord:
        """The campaign of that name."""
        found = self.campaigns()
        for one in found:
            if one.name == name:
                return one
        raise no_campaign(name, [one.name for one in found])

    def campaigns(self) -> tuple[CampaignRecord, ...]:
        """All campaigns."""
        return self._list(tables.campaigns, CampaignRecord)

    def observations(self, campaign: str) -> tuple[ObservationRecord, ...]:
        """What was observed."""
        return self._list(tables.observations, ObservationRecord, campaign=campaign)

    def policies(self, campaign: str) -> tuple[CandidateRecord, ...]:
        """The candidates."""
        return self._list(tables.policies, CandidateRecord, campaign=campaign)

    def attempts(self, campaign: str) -> tuple[AttemptRecord, ...]:
        """The attempts, with their certificates."""
        return self._list(tables.reads, AttemptRecord, campaign=campaign)

    def deployments(self, campaign: str) -> tuple[DeploymentRecord, ...]:
        """What was deployed."""
        return self._list(tables.deployments, DeploymentRecord, campaign=campaign)

    def journal(self, campaign: str | None = None) -> tuple[JournalEntry, ...]:
        """Who did what when."""
        where = {} if campaign is None else {"campaign": campaign}
        return self._list(tables.journal, JournalEntry, **where)

    def _list(self, table: sa.TableClause, kind: type[T], **where: object) -> tuple[T, ...]:
        if "campaign" in where:
            self.campaign(str(where["campaign"]))  # an unknown name is an error, not an empty list
        with self.database.reading() as connection:
            rows = connection.execute(tables.rows_of(table, **where)).all()
        return tuple(tables.record(kind, row) for row in rows)
