"""What the ledger remembers of a round's rows: counts and sums, never a row.

Items that arrive or are withdrawn in mid-campaign.

The items file of a later round lists every item that the campaign has known; new ones are taken
as novel, and a column `withdrawn` says which are no longer shown. Positions of known items stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from depsue.data.catalogue import ActionCatalogue
from depsue.data.checks import IntArray, Mask
from depsue.data.items import read_items
from depsue.data.logs import LoggedData
from depsue.errors import DataError, require
from depsue.estimators.weights import novelty_on
from depsue.promises import Promise
from depsue.protocols import Policy


@dataclass(frozen=True, eq=False)
class ChangedItems:
    """The catalogue from now on.

    Args:
        catalogue: known items in their order, then those that arrived; a novel item that was
            withdrawn is no longer marked as novel, so that nothing shows it.
        arrived, withdrawn: ids, as text.
    """

    catalogue: ActionCatalogue
    arrived: tuple[str, ...]
    withdrawn: tuple[str, ...]


def changed_items(old: ActionCatalogue, path: str | Path, id: str | None = None) -> ChangedItems:
    """Read the items file of a later round, and hold it against the catalogue so far.

    Args:
        old: the catalogue so far.
        path: the file.
        id: its column of ids.
    """
    found = read_items(path, id=id, novel=(), logged=None)
    ids = [str(one) for one in found.catalogue.ids]
    place = {one: row for row, one in enumerate(ids)}
    before = [str(one) for one in old.ids]
    missing = [one for one in before if one not in place]
    if missing:
        raise DataError(
            "an items file lists every item that the campaign has known",
            column="id",
            found=f"{len(missing)} are missing, such as {missing[0]!r}",
            cure="keep them, and mark what is no longer shown: a column withdrawn, true or false",
        )
    arrived = [one for one in ids if one not in set(before)]
    order: IntArray = np.array([place[one] for one in (*before, *arrived)])
    gone: Mask = found.withdrawn[order]
    novel = np.concatenate([old.novel, np.ones(len(arrived), dtype=bool)]) & ~gone
    features, had = found.catalogue.features, old.features
    require(
        (features is None) == (had is None)
        and (features is None or had is None or features.shape[1] == had.shape[1]
             or not found.described),
        "items are described by the same columns as before",
        found=f"{features.shape[1] if features is not None else 0} features, before "
        f"{had.shape[1] if had is not None else 0}",
        cure="give the file the columns that it had",
    )  # fmt: skip
    catalogue = ActionCatalogue(
        found.catalogue.ids[order], novel, None if features is None else features[order]
    )
    withdrawn = tuple(
        one for one, is_gone in zip((*before, *arrived), gone, strict=True) if is_gone
    )
    return ChangedItems(catalogue, tuple(arrived), withdrawn)


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
