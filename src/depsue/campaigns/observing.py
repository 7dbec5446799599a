"""What a round's rows tell: a summary for the ledger, and items that arrive or are withdrawn.

The items file of a later round lists every item that the campaign has known. New items count as
novel, and a column `withdrawn` says which are no longer shown. Known items keep their positions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from depsue.campaigns.exposure import ItemCounts
from depsue.campaigns.records import (
    MOST_ITEMS,
    ItemSummary,
    PromiseSummary,
    RoundLength,
    RoundSummary,
)
from depsue.certificates import Folds, Registration, UnitRows, promised_rows, three_folds
from depsue.data.catalogue import Catalogue
from depsue.data.checks import IntArray, Mask
from depsue.data.identity import Overlap
from depsue.data.items import read_items
from depsue.data.logs import LoggedData, joined
from depsue.data.mapping import LogMapping
from depsue.data.reading import Source, count_rows, read_mapped
from depsue.data.requests import Candidates
from depsue.errors import DataError, require, short
from depsue.estimators.weights import novelty_on
from depsue.exploration.forecast import FEWEST_REWARDS
from depsue.exploration.rounds import NO_DRIFT
from depsue.ledger import ObservationRecord
from depsue.plural import counted
from depsue.policies import BasePolicy
from depsue.promises import Promise
from depsue.protocols import Policy
from depsue.savable import outside_of


def summarised(
    logs: LoggedData,
    promises: Sequence[Promise],
    policy: Policy,
    served: str,
    units: UnitRows | None = None,
    registration: Registration | None = None,
) -> RoundSummary:
    """Counts and sums of one round; rewards of its learn and select rows only.

    Args:
        logs: its rows.
        promises: whose rewards are averaged.
        policy: what served them.
        served: the policy's hash.
        units: which rows of a unit the promises are about.
        registration: what the folds of these rows hang on; None looks at all rows.
    """
    promised, readable = promised_rows(logs, units), logs
    if registration is not None:
        folds = three_folds(logs, registration, units=units)
        readable = joined([folds.learn, folds.select])
    read_promised = promised_rows(readable, units)
    items = len(logs.catalogue)
    counts = np.bincount(logs.action, minlength=items)
    read = np.bincount(readable.action, minlength=items)
    sums = np.bincount(readable.action, weights=readable.reward, minlength=items)
    rewarded = np.bincount(readable.action, weights=readable.reward > 0, minlength=items)
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
            ItemSummary(
                str(logs.catalogue.ids[item]), int(counts[item]), float(sums[item]), int(read[item])
            )
            for item in most_shown
        ),
        promises={
            promise.name: replace(
                _promise_summary(promise, read_promised), rows=promise.count(promised)
            )
            for promise in promises
        },
        served=served,
        read=len(readable),
        counts=ItemCounts(logs.catalogue.novel, counts, rewarded.astype(np.int64)).packed(),
        first=None if times is None else str(times.min()),
        last=None if times is None else str(times.max()),
        versions=tuple(seen.version for seen in logs.versions if seen.version),
    )


MOST_VERSIONS = 20
"""Versions of pi0 that a certificate names, at most."""
FEWEST_VALUES = {"learn": 20, "select": 20, "certify": 40}
"""Rows (or units) that each fold of the next round needs: fewer allow no bound of any use."""


@dataclass(frozen=True)
class ObservationPreview:
    """What an observation would take in; nothing was recorded.

    Args:
        round: whose rows.
        rows: how many.
        before: rows that were observed already, where these add to them; 0 else.
        first, last: times of the first and the last row, as text; None without times.
        left_out: why rows are left out, with counts, in words.
        length: what was declared of the round; None if nothing was.
        decisions: served in the round, whoever decided.
        beyond, missing: decisions beyond the declared ones, or missing from them.
        ended: why the round did not end as declared, in words; "" if it did.
        folds: how many values (rows, or units) the next round's folds will have, about; None after
            the last round.
        known: where these rows were observed before; "" if they were not.
        holdout: the share of decisions that pi0 took and whose rows are among these.
    """

    round: int
    rows: int
    before: int = 0
    first: str | None = None
    last: str | None = None
    left_out: tuple[str, ...] = ()
    length: RoundLength | None = None
    decisions: int = 0
    beyond: int = 0
    missing: int = 0
    ended: str = ""
    folds: dict[str, int] | None = None
    known: str = ""
    holdout: float = 0.0

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> list[str]:
        """In words, a line for each thing to know."""
        if self.known:
            return [self.known]
        rows = counted(self.rows, "row")
        more = f", {self.rows - self.before:,} of them new" if self.before else ""
        lines = [f"round {self.round}: {rows}{more}"]
        if self.first is not None:
            lines.append(f"from {self.first} to {self.last}")
        if self.holdout:
            lines.append(f"rows of the holdout on pi0 count too: {self.holdout:g} of the decisions")
        lines += [f"left out: {words}" for words in self.left_out]
        unobserved = self.decisions - self.rows
        if unobserved:
            lines.append(f"{counted(unobserved, 'decision')} served that have no row here")
        if self.length is not None:
            lines.append(f"declared when deployed: {self.length}")
        if self.beyond:
            lines.append(f"{self.beyond:,} decisions more than declared: charged to the account")
        if self.missing:
            lines.append(f"{self.missing:,} decisions fewer than declared")
        if self.ended:
            lines.append(
                f"ended by choice: {self.ended}; the next verdict uses a bound that holds at any "
                "time"
            )
        if self.folds is not None:
            sizes = ", ".join(f"{name} {n:,}" for name, n in self.folds.items())
            lines.append(f"the next round's folds: about {sizes}")
        return lines


def later_mapping(before: LogMapping, names: Sequence[str], chosen: bool) -> LogMapping:
    """How the rows of a round are read where nobody says: as those of the round before.

    Args:
        before: the mapping of the round before.
        names: the columns that are there.
        chosen: whether pi0 is known by what it chose: rows then say who drew them.
    """
    # only pi0's logs lost rows, and the holdout is of the round that declares it
    mapping = replace(before, kept=1.0, holdout=0.0)
    if mapping.decision not in names:  # what the service exported has ids
        mapping = replace(mapping, decision=None)
    if chosen and "by_pi0" in names:  # pi0's own logs need not say so
        mapping = replace(mapping, by_pi0="by_pi0")
    return mapping


def fold_sizes(
    logs: LoggedData, fractions: Sequence[float], verdicts: int, reserve: float = 0.0
) -> dict[str, int]:
    """About how many values each fold will have; refused where they are too few.

    Args:
        logs: the rows.
        fractions: shares of learn, select and certify.
        verdicts: K, over which units that certify are divided: each certifies once.
        reserve: share of the rows without units that certify which later verdicts read.
    """
    values = len(logs) if logs.units is None else len(logs.units)
    what = "rows" if logs.units is None else "units"
    shares = dict(zip(FEWEST_VALUES, fractions, strict=True))
    shares["certify"] *= (1 - reserve) if logs.units is None else 1 / verdicts
    sizes = {name: int(values * share) for name, share in shares.items()}
    fewest = math.ceil(max(FEWEST_VALUES[name] / share for name, share in shares.items() if share))
    few = [f"{name} {n:,}" for name, n in sizes.items() if n < FEWEST_VALUES[name] and shares[name]]
    require(
        not few,
        f"the next round's folds need {fewest:,} {what}, so that "
        + ", ".join(f"{name} has {n}" for name, n in FEWEST_VALUES.items()),
        found=f"{values:,} {what}: about {', '.join(few)}",
        cure="add rows: go on serving, and observe all rows of the round together; nothing was "
        "recorded",
    )
    return sizes


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


CANNOT_PAIR = (
    "the newest rows hold no share of pi0, so nothing can be held against what pi0 earns now: no "
    "level is likely to pass. Deploy what is certain (it keeps the floor by itself, and its rows "
    "can be paired with pi0 again), or pi0; depsue serve keeps a holdout on pi0, which does the "
    "same"
)


def assumptions_on_refuted(refuted: Iterable[str]) -> list[str]:
    """What was declared and refuted, in words."""
    words = {
        NO_DRIFT: "that pi0's value does not change (no_drift) was declared and is refuted: no "
        "ceiling from the first logs is used, and rows are paired with pi0 where what logged them "
        "kept a share of it; earlier certificates that rest on it are refuted with it",
    }
    return [words.get(name, f"{name} was declared and is refuted") for name in sorted(refuted)]


def taken_in_before(
    seen: ObservationRecord,
    logs: LoggedData,
    source: Source,
    mapping: LogMapping,
    until: datetime | None,
    gone: Sequence[int | str] = (),
) -> bool:
    """Whether a source holds the rows of an observation; some may have been too young then.

    Args:
        seen: the observation.
        logs: the rows of the source that are old enough now.
        source: where they are.
        mapping: how they were read.
        until: the latest time of the rows that were observed; None if no window was declared.
        gone: units whose rows were erased from the observation; `logs` are without them.
    """
    if mapping.until is None or until is None:
        return same_rows(seen, logs)
    earlier = replace(mapping, until=until)
    if not gone and count_rows(source, earlier) != seen.rows:
        return False
    rows = read_mapped(source, earlier, logs.catalogue, seen.round + 1, without=gone)
    return same_rows(seen, rows)


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


def too_few(folds: Folds) -> Iterator[str]:
    """A word where a certificate has hardly a chance."""
    rewards = sum(int((fold.reward > 0).sum()) for fold in (folds.learn, folds.select))
    if rewards < FEWEST_REWARDS:
        yield (
            f"warning: {rewards} rows with a reward to learn from: a certificate will hardly pass, "
            "and certifying uses these rows up; depsue plan says how many rows would do"
        )


def require_untaught(k: int, shared: Overlap) -> None:
    """Refuse rows of the round before, once a candidate of round k was trained on its rows.

    Args:
        k: the round that has a candidate.
        shared: what the rows have in common with those of round k - 1.
    """
    require(
        not shared,
        "rows can be added to a round until a candidate is trained on them",
        found=f"about {shared.share:.0%} of the rows are those of round {k - 1}, and a candidate "
        f"of round {k} exists",
        cure=f"go on with the rows that it has: certify and deploy round {k}. Later rows of round "
        f"{k - 1} are left out for good: the next policy did not draw them",
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


def assumptions_on_versions(logs: LoggedData) -> list[str]:
    """Which versions of pi0 a certificate on these rows covers, in words."""
    seen = [each for each in logs.versions if each.version]
    if not seen:
        return []
    told = [
        f"{each.version!r} ({counted(each.rows, 'row')}"
        + (f", {each.first} to {each.last})" if each.first else ")")
        for each in seen[:MOST_VERSIONS]
    ]
    others = f" and {len(seen) - MOST_VERSIONS} more" if len(seen) > MOST_VERSIONS else ""
    words = f"versions of pi0 that it covers: {', '.join(told)}{others}"
    if isinstance(logs.candidates, Candidates):
        words += "; requests of other versions get what needs no certificate"
    return [words]


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


def changed_items(old: Catalogue, path: str | Path | Any, id: str | None) -> ChangedItems:
    """Read the items file of a later round, and hold it against the catalogue so far.

    Args:
        old: the catalogue so far.
        path: the file.
        id: its column of ids.
    """
    items = read_items(
        path,
        id=id,
        novel=(),
        logged=None,
        known=old.feature_names,
        labels=tuple(old.labels),
    )
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
    features, named = items.catalogue.features, items.catalogue.feature_names
    before, now = (0 if values is None else values.shape[1] for values in (old.features, features))
    same = (features is None) == (old.features is None) and (before == now or not items.described)
    placed = before == now and _by_name(old.feature_names)
    if placed and features is not None and named != old.feature_names:  # columns change places
        same = sorted(named) == sorted(old.feature_names)
        if same:
            features, named = (
                features[:, list(map(named.index, old.feature_names))],
                old.feature_names,
            )
    require(
        same,
        "items are described by the same columns as before",
        found=_other_columns(old.feature_names, named) or f"{now} features, before {before}",
        cure="give the file the columns that it had",
    )
    catalogue = Catalogue(
        items.catalogue.ids[order],
        novel,
        None if features is None else features[order],
        named,
        {name: values[order] for name, values in items.catalogue.labels.items()},
    )
    withdrawn = tuple(item for item, is_gone in zip(ids, gone, strict=True) if is_gone)
    return ChangedItems(catalogue, tuple(arrived), withdrawn)


def _by_name(names: Sequence[str]) -> bool:
    """Whether features have names of their own, not numbers as older versions wrote them."""
    return bool(names) and any(name != f"f{place}" for place, name in enumerate(names))


def _other_columns(before: Sequence[str], now: Sequence[str]) -> str:
    """Which features came and went, in words; "" where they have no names."""
    if not (_by_name(before) and now):
        return ""
    gone, new = (sorted(set(a) - set(b)) for a, b in ((before, now), (now, before)))
    words = [f"gone: {', '.join(gone[:5])}"] if gone else []
    return "; ".join([*words, *([f"new: {', '.join(new[:5])}"] if new else [])])


@dataclass(frozen=True, eq=False)
class TakenIn:
    """What an observation would record.

    Args:
        preview: what is shown of it.
        mapping: which column is what, and up to when rows are taken in.
        logs: the rows, with the catalogue of the next round.
        drawn: the rows, with the catalogue that they were drawn from.
        policy, served: what drew them, and its hash.
        arrived, withdrawn: ids of items that came, and of all that are gone.
        by_pi0: decisions without a row that pi0 took.
        seen: the observation that these rows are of already; None if they are new.
    """

    preview: ObservationPreview
    mapping: LogMapping
    logs: LoggedData
    drawn: LoggedData
    policy: BasePolicy
    served: str = ""
    arrived: tuple[str, ...] = ()
    withdrawn: tuple[str, ...] = ()
    by_pi0: int = 0
    seen: ObservationRecord | None = None
