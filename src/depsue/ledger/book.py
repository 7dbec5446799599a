"""One writing transaction: look up, add with a line in the journal, or refuse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Any

import sqlalchemy as sa

from depsue.errors import ConfigError, require, short
from depsue.ledger import tables
from depsue.ledger.checks import checked_name

Row = sa.Row[Any]


class Transaction:
    """The ledger, open for one person's writing.

    Args:
        connection: in a writing transaction.
        by: who writes.
    """

    def __init__(self, connection: sa.Connection, by: str) -> None:
        self._connection, self._by = connection, by

    def first(self, table: sa.TableClause, **where: object) -> Row | None:
        """The oldest row with these values, if there is one."""
        return self._connection.execute(tables.rows_of(table, **where)).first()

    def all(self, table: sa.TableClause, **where: object) -> Sequence[Row]:
        """The rows with these values, oldest first."""
        return self._connection.execute(tables.rows_of(table, **where)).all()

    def note(self, what: str, campaign: str, round: int | None, detail: str) -> int:
        """Write a line in the journal; its id."""
        now = datetime.now(UTC).isoformat(timespec="microseconds")
        line = tables.journal.insert().values(
            at=now, who=self._by, what=what, campaign=campaign, round=round, detail=detail
        )
        return int(self._connection.execute(line.returning(tables.journal.c.id)).scalar_one())

    def add(self, table: sa.TableClause, what: str, detail: str, values: Mapping[str, Any]) -> int:
        """Write a record and its line in the journal; their id."""
        campaign = values["name"] if table is tables.campaigns else values["campaign"]
        id = self.note(what, campaign, values.get("round"), detail)
        kept = {name: value for name, value in values.items() if name in table.c}
        self._connection.execute(table.insert().values(id=id, **kept))
        return id

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
        found = self.first(table, **where)
        if found is None:
            return self.all(table, id=self.add(table, what, detail, values))[0]
        other = [name for name in same if getattr(found, name) != values[name]]
        if other:
            first, now = (
                short(value, 70) for value in (getattr(found, other[0]), values[other[0]])
            )
            named = ", ".join(f"{name} {short(value)}" for name, value in where.items())
            raise ConfigError(
                f"a finished {what} never changes",
                found=f"{named}: {other[0]} {first} by {found.by} at {found.at}, now {now}",
                cure=cure,
            )
        return found

    def campaign(self, name: str, round: int, first: int = 1) -> Row:
        """A campaign that has this round."""
        found = self.first(tables.campaigns, name=checked_name(name, "a campaign"))
        if found is None:
            raise no_campaign(name, [row.name for row in self.all(tables.campaigns)])
        require(
            type(round) is int and first <= round <= found.rounds,
            f"campaign {name!r} has the rounds {first} to {found.rounds}",
            found=short(round),
            cure="name one of them, or begin a new campaign",
        )
        return found

    def require_begun(self, campaign: str, round: int) -> Row:
        """Refuse a round that has not begun; the observation before it."""
        before = self.first(tables.observations, campaign=campaign, round=round - 1)
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
        over = self.first(tables.observations, campaign=campaign, round=round)
        if over is not None:
            raise ConfigError(
                "a round is over once it was observed",
                found=f"round {round} of campaign {campaign!r}, by {over.by} at {over.at}",
                cure=f"go on with round {round + 1}",
            )
        return before


def no_campaign(name: str, names: Sequence[str]) -> ConfigError:
    """There is no campaign of that name."""
    there = ", ".join(repr(one) for one in names[-10:]) or "none"
    known = {one.lower(): one for one in names}
    close = get_close_matches(str(name).lower(), known, n=1)
    cure = f"did you mean {known[close[0]]!r}? if not, " if close else "check the name, or "
    return ConfigError(
        "there must be a campaign of that name",
        found=f"{short(name)}; there is {there}",
        cure=f"{cure}create the campaign",
    )
