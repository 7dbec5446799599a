"""What the ledger remembers of a round's rows: counts and sums, never a row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from depsue.certificates import Promise
from depsue.data.logs import LoggedData
from depsue.learners.depsue import novelty_on
from depsue.protocols import Policy

MOST_ITEMS = 2000
"""Novel items whose exposure is remembered one by one: those shown most."""


def summary_of(logs: LoggedData, promises: Sequence[Promise], policy: Policy) -> dict[str, Any]:
    """Counts and sums of one round.

    Args:
        logs: its rows.
        promises: whose rewards are averaged.
        policy: what served them.
    """
    shown = logs.catalogue.novel[logs.action]
    counts = np.bincount(logs.action, minlength=len(logs.catalogue))
    sums = np.bincount(logs.action, weights=logs.reward, minlength=len(logs.catalogue))
    novel = np.flatnonzero(logs.catalogue.novel)
    kept = novel[np.argsort(-counts[novel], kind="stable")][:MOST_ITEMS]
    items = [
        {"id": str(logs.catalogue.ids[a]), "shown": int(counts[a]), "reward": float(sums[a])}
        for a in kept
    ]
    found: dict[str, Any] = {
        "rows": len(logs),
        "contexts": len(logs.contexts),
        "novelty": novelty_on(policy, logs),
        "novel_rows": int(shown.sum()),
        "novel_items": len(novel),
        "items": items,
        "promises": {},
    }
    if logs.time is not None and len(logs.time):
        found["from"], found["to"] = str(logs.time.min()), str(logs.time.max())
    for promise in promises:
        rows, _ = promise.rows(logs)
        values = rows.reward
        if rows.unit is not None:
            count = np.bincount(rows.unit)
            values = np.bincount(rows.unit, rows.reward)[count > 0] / count[count > 0]
        error = float(values.std() / max(len(values), 1) ** 0.5)
        found["promises"][promise.name] = {
            "rows": len(rows),
            "mean": rows.mean_reward(),
            "error": error,
        }
    return found
