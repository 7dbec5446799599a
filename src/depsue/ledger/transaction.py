"""One writing transaction: look records up, add one with its line in the journal, or refuse."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Any

import sqlalchemy as sa

from depsue.errors import ConfigError, require, short
from depsue.ledger import schema
from depsue.ledger.records import checked_hash, checked_json, checked_name

Row = sa.Row[Any]


class Transaction:
    """The ledger, open for one person's writing.

    Args:
        connection: in a writing transaction.
        by: who writes.
    """

    def __init__(self, connection: sa.Connection, by: str) -> None:
        self._connection, self._by = connection, by

    @property
    def ledger(self) -> str:
        """The id of the ledger."""
        return str(self._connection.scalar(sa.select(schema.identity.c.name)))

    def first(self, table: sa.TableClause, **where: object) -> Row | None:
        """The oldest row with these values, if there is one."""
        return self._connection.execute(schema.rows_of(table, **where)).first()

    def all(self, table: sa.TableClause, **where: object) -> Sequence[Row]:
        """The rows with these values, oldest first."""
        return self._connection.execute(schema.rows_of(table, **where)).all()

    def note(self, what: str, campaign: str, round: int | None, detail: str) -> int:
        """Write a line in the journal; its id."""
        now = datetime.now(UTC).isoformat(timespec="microseconds")
        line = schema.journal.insert().values(
            at=now, who=self._by, what=what, campaign=campaign, round=round, detail=detail
        )
        return int(self._connection.execute(line.returning(schema.journal.c.id)).scalar_one())

    def add(self, table: sa.TableClause, what: str, detail: str, values: Mapping[str, Any]) -> int:
        """Write a record and its line in the journal; their id."""
        named = table in (schema.campaigns, schema.families)
        campaign = values["name"] if named else values["campaign"]
        id = self.note(what, campaign, values.get("round"), detail)
        columns = {name: value for name, value in values.items() if name in table.c}
        self._connection.execute(table.insert().values(id=id, **columns))
        return id

    def pin(self, id: int, campaign: str, round: int, hashes: Mapping[str, str]) -> None:
        """Pin what a record rests on: SHA-256 by name, beside the record's line in the journal."""
        text = checked_json({name: checked_hash(sha, name) for name, sha in hashes.items()}, "pins")
        self._connection.execute(
            schema.pins.insert().values(id=id, campaign=campaign, round=round, hashes=text)
        )

    def pinned(self, campaign: str) -> dict[tuple[int, str], str]:
        """SHA-256 by round and name, the newest of each."""
        return {
            (row.round, name): sha
            for row in self.all(schema.pins, campaign=campaign)
            for name, sha in json.loads(row.hashes).items()
        }

    def once(
        self,
        table: sa.TableClause,
        what: str,
        detail: str,
        values: Mapping[str, Any],
        *,
        key: Sequence[str],
        same: Sequence[str],
        cure: str,
    ) -> Row:
        """The record with this key: the first one, which must agree; else it is written now.

        Args:
            table: of which records.
            what: in the journal's words.
            detail: for the journal.
            values: of the record.
            key: the columns that tell records apart.
            same: the columns in which the first one must agree.
            cure: what to do if it does not.
        """
        where = {name: values[name] for name in key}
        first = self.first(table, **where)
        if first is None:
            return self.all(table, id=self.add(table, what, detail, values))[0]
        for name in same:
            if getattr(first, name) != values[name]:
                before, now = short(getattr(first, name), 70), short(values[name], 70)
                named = ", ".join(f"{column} {short(value)}" for column, value in where.items())
                raise ConfigError(
                    f"a finished {what} never changes",
                    found=f"{named}: {name} {before} by {first.by} at {first.at}, now {now}",
                    cure=cure,
                )
        return first

    def campaign(self, name: str, round: int, first: int = 1) -> Row:
        """A campaign that has this round."""
        campaign = self.first(schema.campaigns, name=checked_name(name, "a campaign"))
        if campaign is None:
            raise no_campaign(name, [row.name for row in self.all(schema.campaigns)])
        require(
            type(round) is int and first <= round <= campaign.rounds,
            f"campaign {name!r} has the rounds {first} to {campaign.rounds}",
            found=short(round),
            cure="name one of them, or begin a new campaign",
        )
        return campaign

    def observation(self, campaign: str, round: int) -> Row | None:
        """What a round observed: its rows with all that was added to them, if there are any."""
        added = self.all(schema.supplements, campaign=campaign, round=round)
        if added:
            return added[-1]
        return self.first(schema.observations, campaign=campaign, round=round)

    def require_begun(self, campaign: str, round: int) -> Row:
        """Refuse a round that has not begun; the observation before it."""
        before = self.observation(campaign, round - 1)
        if before is None:
            raise ConfigError(
                "rounds go in order: a round begins when the one before it was observed",
                found=f"nothing observed in round {round - 1} of campaign {campaign!r}",
                cure=f"observe round {round - 1} first",
            )
        return before

    def require_current(self, campaign: str, round: int) -> Row:
        """Refuse a round that has not begun or is over; the observation before it."""
        before = self.require_begun(campaign, round)
        over = self.first(schema.observations, campaign=campaign, round=round)
        if over is not None:
            raise ConfigError(
                "a round is over once it was observed",
                found=f"round {round} of campaign {campaign!r}, by {over.by} at {over.at}",
                cure=f"go on with round {round + 1}",
            )
        return before


def no_campaign(name: str, names: Sequence[str]) -> ConfigError:
    """There is no campaign of that name."""
    there = ", ".join(repr(known) for known in names[-10:]) or "none"
    by_lower = {known.lower(): known for known in names}
    close = get_close_matches(str(name).lower(), by_lower, n=1)
    cure = f"did you mean {by_lower[close[0]]!r}? if not, " if close else "check the name, or "
    return ConfigError(
        "there must be a campaign of that name",
        found=f"{short(name)}; there is {there}",
        cure=f"{cure}create the campaign",
    )
