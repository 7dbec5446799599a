"""Moving a ledger, say from SQLite to PostgreSQL: every row as it is, in one transaction."""

from __future__ import annotations

import sqlalchemy as sa

from depsue.errors import require
from depsue.ledger import tables
from depsue.ledger.ledger import Ledger


def copy_ledger(source: Ledger, target: Ledger) -> int:
    """Copy all of a ledger into an empty one; how many lines of the journal that is."""
    with source.database.reading() as old, target.database.writing() as new:
        there = new.scalar(sa.select(sa.func.count()).select_from(tables.journal))
        require(
            not there,
            "a ledger is copied into an empty one",
            found=f"{there} entries in {target.database.name}",
            cure="name an empty database",
        )
        copied = 0
        for table in tables.RECORDS:
            rows = [dict(row) for row in old.execute(sa.select(table)).mappings()]
            if rows:
                new.execute(table.insert(), rows)
            copied += len(rows) if table is tables.journal else 0
        if new.dialect.name == "postgresql" and copied:
            key = sa.func.pg_get_serial_sequence(tables.journal.name, "id")
            newest = sa.select(sa.func.max(tables.journal.c.id)).scalar_subquery()
            new.execute(sa.select(sa.func.setval(key, newest)))
    return copied
