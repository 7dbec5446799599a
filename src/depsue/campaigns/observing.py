"""What a round's rows tell: a summary for the ledger, and items that arrive or are withdrawn.

The items file of a later round lists every item that the campaign has known. New items count as
novel, and a column `withdrawn` says which are no longer shown. Known items keep their positions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import numpy as np

from depsue.campaigns.records import ItemSummary, PromiseSummary, RoundSummary
from depsue.certificates import UnitRows, promised_rows
from depsue.data.catalogue import Catalogue
from depsue.data.checks import IntArray, Mask
from depsue.data.items import read_items
from depsue.data.logs import LoggedData
from depsue.data.mapping import LogMapping
from depsue.data.reading import Source, count_rows, read_mapped
from depsue.errors import DataError, require, short
from depsue.estimators.weights import novelty_on
from depsue.exploration.rounds import NO_DRIFT
from depsue.ledger import ObservationRecord
from depsue.promises import Promise
from depsue.protocols import Policy
from depsue.savable import outside_of

MOST_ITEMS = 2000
"""Novel items whose exposure is kept one by one: those shown most."""


def summarised(
    logs: LoggedData,
    promises: Sequence[Promise],
    policy: Policy,
    served: str,
    units: UnitRows | None = None,
) -> RoundSummary:
    """Counts and sums of one round.

    Args:
        logs: its rows.
        promises: whose rewards are averaged.
        policy: what served them.
        served: the policy's hash.
        units: which rows of a unit the promises are about.
    """
    promised = promised_rows(logs, units)
    counts = np.bincount(logs.action, minlength=len(logs.catalogue))
    sums = np.bincount(logs.action, weights=logs.reward, minlength=len(logs.catalogue))
    novel = np.flatnonzero(logs.catalogue.novel)
    most_shown = novel[np.argsort(-counts[novel], kind="stable")][:MOST_ITEMS]
    times = None if logs.time is None or not len(logs.time) else logs.time
    return RoundSummary(
        rows=len(logs),
        contexts=len(logs.contexts),
        novelty=float(novelty_on(policy, logs)),
        novel_rows=int(logs.catalogue.novel[logs.action].sum()),
        novel_items=len(novel),
        items=tuple(
            ItemSummary(str(logs.catalogue.ids[item]), int(counts[item]), float(sums[item]))
            for item in most_shown
        ),
        promises={promise.name: _promise_summary(promise, promised) for promise in promises},
        served=served,
        first=None if times is None else str(times.min()),
        last=None if times is None else str(times.max()),
    )


def _promise_summary(promise: Promise, logs: LoggedData) -> PromiseSummary:
    rows, _ = promise.rows(logs)
    values = rows.reward
    if rows.unit is not None:  # units are independent, their rows are not
        count = np.bincount(rows.unit)
        values = np.bincount(rows.unit, rows.reward)[count > 0] / count[count > 0]
    error = float(values.std() / max(len(values), 1) ** 0.5)
    return PromiseSummary(len(rows), rows.mean_reward(), error)


def same_rows(observation: ObservationRecord, logs: LoggedData) -> bool:
    """Whether logs hold the rows of an earlier observation, whatever round they are read as."""
    if observation.rows != len(logs):
        return False
    if observation.round == 0 and bool(logs.catalogue.novel[logs.action].any()):
        return False
    rounds = np.full(len(logs), observation.round, dtype=np.int16)
    return replace(logs, round=rounds).hash == observation.data_hash


def assumptions_on_refuted(refuted: Iterable[str]) -> list[str]:
    """What was declared and refuted, in words."""
    words = {
        NO_DRIFT: "that pi0's value does not change (no_drift) was declared and is refuted: no "
        "ceiling from the first logs is used, rows are paired with pi0; earlier certificates "
        "that rest on it are refuted with it",
    }
    return [words.get(name, f"{name} was declared and is refuted") for name in sorted(refuted)]


def taken_in_before(
    seen: ObservationRecord,
    logs: LoggedData,
    source: Source,
    mapping: LogMapping,
    until: datetime | None,
) -> bool:
    """Whether a source holds the rows of an observation; some may have been too young then.

    Args:
        seen: the observation.
        logs: the rows of the source that are old enough now.
        source: where they are.
        mapping: how they were read.
        until: the latest time of the rows that were observed; None if no window was declared.
    """
    if mapping.until is None or until is None:
        return same_rows(seen, logs)
    earlier = replace(mapping, until=until)
    if count_rows(source, earlier) != seen.rows:
        return False
    return same_rows(seen, read_mapped(source, earlier, logs.catalogue, seen.round + 1))


def require_same_terms(mapping: LogMapping, first: LogMapping) -> None:
    """Refuse another largest reward or another window than the campaign began with."""
    require(
        mapping.r_max == first.r_max,
        "the largest reward is declared once for a campaign",
        found=f"r_max {mapping.r_max:g}, at creation {first.r_max:g}",
        cure="scale the rewards, or begin a new campaign",
    )
    require(
        mapping.window == first.window,
        "the reward window is declared once for a campaign",
        found=f"{short(mapping.window)} s, at creation {short(first.window)} s",
        cure="leave the window of the mapping as it was, or begin a new campaign",
    )


def assumptions_on_items(summary: RoundSummary) -> list[str]:
    """What changed items do to the next certificate, in words."""
    words = []
    if summary.arrived:
        words.append(
            f"items that arrived before these rows were certified on: {len(summary.arrived)}; "
            "no row shows them, so their reward counts as zero"
        )
    if summary.withdrawn:
        words.append(
            f"items that are withdrawn: {len(summary.withdrawn)}; pi0, which the floor is "
            "taken of, is pi0 without them, its other probabilities raised in proportion"
        )
    return words


def assumptions_on_outside(pi0: Policy) -> list[str]:
    """What a certificate must say where pi0 is saved by name alone."""
    return [
        f"pi0 is the model {name!r}, which is not in the files: what serves calls the same model"
        for name in outside_of(pi0)
    ]


@dataclass(frozen=True, eq=False)
class ChangedItems:
    """The catalogue from now on.

    Args:
        catalogue: known items in their order, then those that arrived; a novel item that was
            withdrawn is no longer marked as novel, so that nothing shows it.
        arrived, withdrawn: ids, as text.
    """

    catalogue: Catalogue
    arrived: tuple[str, ...]
    withdrawn: tuple[str, ...]


def changed_items(old: Catalogue, path: str | Path, id: str | None) -> ChangedItems:
    """Read the items file of a later round, and hold it against the catalogue so far.

    Args:
        old: the catalogue so far.
        path: the file.
        id: its column of ids.
    """
    items = read_items(path, id=id, novel=(), logged=None)
    place = {str(item): row for row, item in enumerate(items.catalogue.ids)}
    known = [str(item) for item in old.ids]
    missing = [item for item in known if item not in place]
    if missing:
        raise DataError(
            "an items file lists every item that the campaign has known",
            column="id",
            found=f"{len(missing)} are missing, such as {missing[0]!r}",
            cure="keep them, and mark what is no longer shown: a column withdrawn, true or false",
        )
    arrived = sorted(set(place) - set(known), key=place.__getitem__)
    ids = (*known, *arrived)
    order: IntArray = np.array([place[item] for item in ids])
    gone: Mask = items.withdrawn[order]
    novel = np.concatenate([old.novel, np.ones(len(arrived), dtype=bool)]) & ~gone
    features = items.catalogue.features
    before, now = (0 if values is None else values.shape[1] for values in (old.features, features))
    require(
        (features is None) == (old.features is None) and (before == now or not items.described),
        "items are described by the same columns as before",
        found=f"{now} features, before {before}",
        cure="give the file the columns that it had",
    )
    catalogue = Catalogue(
        items.catalogue.ids[order], novel, None if features is None else features[order]
    )
    withdrawn = tuple(item for item, is_gone in zip(ids, gone, strict=True) if is_gone)
    return ChangedItems(catalogue, tuple(arrived), withdrawn)
