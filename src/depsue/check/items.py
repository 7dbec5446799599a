"""The catalogue against the logs: which items are novel, and which logged ones it lacks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from depsue.check.report import Finding
from depsue.check.summary import Summary
from depsue.data.files import read_ids
from depsue.data.tables import listed_names
from depsue.errors import DataError


def item_findings(
    path: str | Path, found: Summary, facts: dict[str, Any], id: str | None = None
) -> Iterator[Finding]:
    """What does not fit; and into `facts` go the numbers of items and of novel ones."""
    try:
        ids, novel = read_ids(path, id)
    except DataError as problem:
        yield Finding.of("items", problem)
        return
    logged = found.counts()["action"].drop_nulls()
    listed, shown = [str(one) for one in ids], {_text(one) for one in logged.to_list()}
    unseen = [one for one in listed if one not in shown]
    facts["items"], facts["items never logged"] = len(listed), len(unseen)
    if len(set(listed)) < len(listed):
        value = f"{len(listed) - len(set(listed)):,} repeat another"
        yield Finding(
            "items-repeated", "error", "item ids must be distinct", value, "keep one each"
        )
    lost = sorted(shown - set(listed))
    if lost:
        yield Finding(
            "items-missing",
            "error",
            "every logged action must be among the items",
            f"{len(lost):,} of {len(shown):,} are not: {listed_names(lost, 5)}",
            "add them to the items (marked as not novel), or correct the column of ids",
        )
    elif ids.dtype.is_numeric() != logged.dtype.is_numeric():
        yield Finding(
            "items-type",
            "error",
            "ids must be of one type in logs and items",
            f"{logged.dtype} in the logs, {ids.dtype} in the items",
            "write both as text, or both as whole numbers",
        )
    if novel is not None:
        fresh = [one for one, new in zip(listed, novel, strict=True) if new]
        facts["novel items"] = len(fresh)
        seen = sorted(set(fresh) & shown)
        first = found.totals.get("first round")
        if seen and (first is None or first == 0):
            yield Finding(
                "novel-logged",
                "error",
                "an item that is novel must not be in the logs of round 0",
                listed_names(seen, 5),
                "mark it as not novel, or name the column of the round",
            )
    if not (unseen if novel is None else any(novel)):
        yield Finding(
            "novel-none",
            "warning",
            "there should be a novel item to explore",
            f"all {len(listed):,} items were logged" if novel is None else "none is marked",
            "add the new items, or mark them in a column 'novel'",
        )


def _text(value: Any) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
