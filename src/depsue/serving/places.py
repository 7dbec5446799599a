"""Places: readers go on from the `seq` of the last row that they have read, and miss none.

On PostgreSQL a transaction takes its places when it inserts and shows them when it commits, perhaps
after another one with later places. So each announces, before it inserts, where its places begin:
by a shared lock that nobody waits for, and that ends with the transaction. Readers stop before the
first place that a transaction under way may yet fill. A file has one writer, and nothing to wait
for.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from depsue.serving.schema import decisions

IDLE = 15
"""Seconds after which PostgreSQL ends a transaction whose service has frozen within it."""
_ORDER = "hashtext('depsue places ' || current_schema())"
"""Whose places a lock is about."""
_NEWEST = f"SELECT COALESCE(MAX(seq), 0) FROM {decisions.name}"


def end_when_idle(connection: sa.Connection) -> None:
    """Have PostgreSQL end transactions of this connection that hold others back."""
    if _is_file(connection):
        return
    connection.exec_driver_sql(f"SET idle_in_transaction_session_timeout = '{IDLE}s'")


def announce(connection: sa.Connection) -> None:
    """Say, before any place is taken, beyond which one this transaction takes its own."""
    if _is_file(connection):
        return
    connection.exec_driver_sql(
        f"SELECT pg_advisory_xact_lock_shared({_ORDER}, "
        f"(mod(({_NEWEST}) + {2**31}, {2**32}) - {2**31})::int)"
    )


def settled_places(connection: sa.Connection) -> tuple[int, int]:
    """(newest, settled): the newest decision, and the place up to which none can come in."""
    newest = int(connection.exec_driver_sql(_NEWEST).scalar_one())
    if _is_file(connection):
        return newest, newest
    # Whoever is to take a place up to the newest has announced it before, and has ended or is in
    # this list. The statements must stay apart: each sees what was committed before it.
    under_way = connection.exec_driver_sql(
        "SELECT objid::bigint FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2 "
        f"AND classid::bigint = {_ORDER}::bigint & {2**32 - 1} AND database = "
        "(SELECT oid FROM pg_database WHERE datname = current_database())"
    )
    behind = [(newest - int(place)) % 2**32 for place in under_way.scalars()]
    return newest, newest - max((count for count in behind if count < 2**31), default=0)


def closed_rows(rows: list[sa.Row[Any]], until: float, ahead: float | None) -> list[sa.Row[Any]]:
    """The rows before the first that is open.

    Args:
        rows: in the order of their places.
        until: rows up to this time are closed.
        ahead: rows after this time, or of none, are not waited for, nor those set aside; None
            waits for every one.
    """
    for place, row in enumerate(rows):
        left_out = ahead is not None and (row.set_aside or not 0 <= row.at <= ahead)
        if row.at > until and not left_out:
            return rows[:place]
    return rows


def _is_file(connection: sa.Connection) -> bool:
    return connection.dialect.name != "postgresql"
