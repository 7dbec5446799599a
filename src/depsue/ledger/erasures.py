"""Erasures in the ledger: which rows were taken out of the rounds, and whether it is done.

Each function is a rule of a transaction; `Ledger` calls them. The intent is recorded before a row
is deleted, so that an erasure which was interrupted is known, and taken up again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from depsue import codec
from depsue.errors import require
from depsue.ledger import schema
from depsue.ledger.records import (
    ErasedPart,
    ErasureRecord,
    checked_hash,
    checked_json,
    checked_text,
)
from depsue.ledger.transaction import Transaction
from depsue.plural import counted


def begin(
    transaction: Transaction, campaign: str, unit: str, parts: Sequence[ErasedPart]
) -> ErasureRecord:
    """Record an erasure before it is done; arguments as for `Ledger.begin_erasure`."""
    checked_hash(unit, "the keyed hash of the unit")
    text = checked_text(codec.encode(tuple(parts)), "an erasure")
    transaction.campaign(campaign, 0, first=0)
    under_way = [
        row
        for row in transaction.all(schema.erasures, campaign=campaign, unit=unit)
        if row.finished_at is None
    ]
    if under_way and not parts:
        return schema.record(ErasureRecord, under_way[-1])
    observed = transaction.observations(campaign)
    for part in parts:
        seen = observed.get(part.round)
        require(
            seen is not None and seen.data_hash == part.data,
            "an erasure is of the rows as they were observed",
            found=f"round {part.round} has other rows by now",
            cure="run the same command again",
        )
    for row in transaction.all(schema.reads, campaign=campaign):
        require(
            row.passed is not None or row.round - 1 not in {part.round for part in parts},
            "rows are not erased under a verdict that reads them",
            found=f"{row.by} began attempt {row.attempt} of round {row.round} at {row.at}, "
            "and it has no verdict yet",
            cure=f"finish it first: depsue campaign certify {campaign}",
        )
    words = [f"{counted(part.erased, 'row')} of round {part.round}" for part in parts]
    values = {"campaign": campaign, "unit": unit, "parts": text}
    detail = ", ".join(words) or "no row of a round"
    id = transaction.add(schema.erasures, "erasure", detail, values)
    return schema.record(ErasureRecord, transaction.all(schema.erasures, id=id)[0])


def finish(transaction: Transaction, campaign: str, unit: str, counts: Mapping[str, int]) -> None:
    """Record that every erasure of a unit which is under way is done."""
    text = checked_json(counts, "what was erased")
    words = ", ".join(f"{name} {n:,}" for name, n in counts.items() if n)
    for row in transaction.all(schema.erasures, campaign=campaign, unit=unit):
        if row.finished_at is None:
            values = {"campaign": campaign, "erasure_id": row.id, "counts": text}
            transaction.add(schema.completions, "erased", words or "nothing", values)
