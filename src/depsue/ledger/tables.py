"""The ledger's tables as queries see them, in the newest version, and how a row becomes a record.

`migrations.py` makes the tables; a test holds the two against each other. A record's id is that of
its line in the journal, so none can be without one.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields
from datetime import datetime
from typing import Any, TypeVar

import sqlalchemy as sa

T = TypeVar("T")


def _table(name: str, columns: str) -> sa.TableClause:
    return sa.table(f"depsue_{name}", *(sa.column(column) for column in columns.split()))


schema = _table("schema", "version at depsue")
journal = _table("journal", "id at who what campaign round detail")
campaigns = _table("campaigns", "id name rounds retries settings")
observations = _table("observations", "id campaign round data_hash rows source summary")
policies = _table("policies", "id campaign round policy_hash folder trained_on fixed")
reads = _table("reads", "id campaign round attempt data_hash policy_hash")
verdicts = _table("verdicts", "id read_id passed certified certificate note")
deployments = _table("deployments", "id campaign round policy_hash kind")
RECORDS = (journal, campaigns, observations, policies, reads, verdicts, deployments)
"""In an order in which none points at a later one."""

_FINISHED = journal.alias("finished")
_FROM_TEXT: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("settings", "summary", "trained_on", "fixed"), json.loads),
    **dict.fromkeys(("at", "finished_at"), datetime.fromisoformat),
    **dict.fromkeys(("passed", "retries"), bool),
}


def rows_of(table: sa.TableClause, **where: object) -> sa.Select[Any]:
    """The rows of a table with who and when, oldest first; of `reads`, with their verdicts."""
    by, at = journal.c.who.label("by"), journal.c.at
    columns: list[Any] = [table, by] if table is journal else [table, by, at]
    source: sa.FromClause = table
    if table is not journal:
        source = source.join(journal, journal.c.id == table.c.id)
    if table is reads:
        source = source.outerjoin(verdicts, verdicts.c.read_id == reads.c.id)
        source = source.outerjoin(_FINISHED, _FINISHED.c.id == verdicts.c.id)
        columns += [verdicts.c[name] for name in ("passed", "certified", "certificate", "note")]
        columns += [_FINISHED.c.at.label("finished_at"), _FINISHED.c.who.label("finished_by")]
    wanted = [table.c[name] == value for name, value in where.items()]
    return sa.select(*columns).select_from(source).where(*wanted).order_by(table.c.id)


def record(kind: type[T], row: sa.Row[Any]) -> T:
    """A row as the frozen record that readers get."""
    values = {one.name: row._mapping[one.name] for one in fields(kind)}  # type: ignore[arg-type]
    for name in _FROM_TEXT.keys() & values.keys():
        if values[name] is not None:
            values[name] = _FROM_TEXT[name](values[name])
    return kind(**values)
