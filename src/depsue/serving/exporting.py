"""What was served, as the logs of the next round.

A holdout is drawn by pi0 with probability h, apart from everything else. So decisions of the policy
and of its holdout together are independent rows of one mixture, (1 - h) pi + h pi0, and are
exported with its propensities. Where h changed within a round, rows of its smallest value h* are
made by lot: all of the policy's decisions stay, and of the holdout's each with probability
(h* / (1 - h*)) (1 - h) / h. The lot hangs on the decision's id alone, so what stays is as if the
holdout had been h* throughout. With h* = 0 the holdout's decisions are left out. h* is known at the
end of the round only, which does no harm while the share follows no rewards of certifying rows. (A
ramp follows the monitor, which judges all rows: theory.md, "Who may look before a round ends".)

A decision that pi0 and another policy share (`served.ServedPolicy.pi0_is` "chosen") is exported
with pi0's probability where pi0's own choice was shown, and 0 where it was not.
"""

from __future__ import annotations

import hashlib
import io
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from depsue.campaigns import Campaign
from depsue.data.checks import Mask
from depsue.data.mapping import LogMapping, to_toml
from depsue.errors import FileError, require
from depsue.files import append_synced, write_file
from depsue.serving.brought import unpacked
from depsue.serving.joining import rewards_by_rule
from depsue.serving.journal import Journal
from depsue.serving.kinds import (
    LEAST_CHOSEN,
    Kind,
    as_logged,
    as_text,
    kinds_of,
    logged_column,
    unreadable,
)
from depsue.serving.schema import decisions
from depsue.serving.served import NOT_COVERED, Pi0Is, how_known
from depsue.serving.settings import ServingSettings, settings_of, store_address
from depsue.serving.store import AT_ONCE, Store

_decode = msgspec.json.decode
EXPORTS = "exports.jsonl"
"""Which files rows were exported to, so that an erasure finds them."""
COLUMNS = (
    "policy",
    "decided_by",
    "why",
    "action",
    "propensity",
    "p_policy",
    "p_pi0",
    "context",
    "unit",
    "candidates",
    "holdout",
    "pi0",
    "p_chosen",
    "version",
    "would",
    "p_would",
)


@dataclass(frozen=True)
class Exported:
    """What was written.

    Args:
        path: the Parquet file.
        mapping: the TOML file that says which column is what.
        rows: decisions of the policy, and of its holdout where that is part of what drew them.
        share: of the holdout in what drew the rows; 0 where its decisions are not among them.
        kind: of requests that it does not cover, "with" candidates or "without".
        holdout, fallback, replaced, restricted, open, twins, erased, damaged, unreadable, again:
            decisions that are not among them, and why; pi0 took those of the first two.
        cut: whether exploration was stopped within the round, or something else was deployed.
    """

    path: Path
    mapping: Path
    rows: int
    share: float
    kind: str
    holdout: int
    fallback: int
    replaced: int
    restricted: int
    open: int
    twins: int
    erased: int
    damaged: int
    unreadable: int = 0
    again: int = 0
    cut: bool = False

    @property
    def excused(self) -> int:
        """Decisions that are left out for a reason that no reward has to do with.

        A stop or a rollback may follow from rewards, and so may the moment at which decisions still
        wait for them, or at which the share of the holdout was changed.
        """
        outages = 0 if self.cut else self.fallback
        unknown = self.twins + self.erased + self.damaged
        return self.restricted + unknown + self.unreadable + self.again + outages

    @property
    def left_out(self) -> tuple[str, ...]:
        """Decisions that are not among the rows, with the reason."""
        return tuple(
            f"{count:,} {why}"
            for count, why in (
                (
                    self.holdout,
                    "of the holdout on pi0, whose share, or whose policy, changed within the "
                    "round: by lot, so that the others are as if the share had been the smallest "
                    "throughout",
                ),
                (self.fallback, "of pi0 as the fallback"),
                (self.replaced, "of a policy that was replaced within the round"),
                (
                    self.restricted,
                    f"that the certificate does not cover: {self.kind} candidates, with a "
                    "context that pi0 does not know, or with another version of pi0",
                ),
                (self.open, "that still wait for rewards"),
                (self.twins, "of keys that were decided on both sides of an outage"),
                (self.erased, "that were erased"),
                (self.damaged, "that may stand in damaged lines of the journal"),
                (
                    self.unreadable,
                    "that the reader of logs would refuse, or that weigh too much: a unit or a "
                    "segment of another kind, a context beyond its limit, or what pi0 chose with "
                    f"less than {LEAST_CHOSEN:g}",
                ),
                (
                    self.again,
                    "of units that came back: nothing was declared of units with several rows, so "
                    "the first row of each counts",
                ),
            )
            if count
        )

    @property
    def decisions(self) -> int:
        """All decisions of the round, whoever took them."""
        by_others = self.holdout + self.fallback
        unknown = self.replaced + self.twins + self.erased + self.damaged
        left = self.restricted + self.open + self.unreadable + self.again
        return self.rows + by_others + left + unknown

    def __str__(self) -> str:
        more = f"; left out: {', '.join(self.left_out)}" if self.left_out else ""
        held = f" and of its holdout ({self.share:g} of them on pi0)" if self.share else ""
        return f"{self.rows:,} decisions of the policy{held} in {self.path}{more}"


def export_served(
    campaign: Campaign, store: str | None, out: Path | None = None, *, round: int | None = None
) -> Exported:
    """`export_logs` from where the service keeps things.

    Args:
        campaign: whose.
        store: the address of its decisions; None is the file in its folder.
        out: the file; None is one in the folder of the round.
        round: which; None is the one that is under way.
    """
    folder = campaign.files.folder
    address = store_address(campaign, store)
    require(
        "://" in address or Path(address).exists(),
        "there must be decisions that were served",
        found=f"no {address}",
        cure=f"depsue serve {campaign.name}",
        error=FileError,
    )
    k = campaign.round if round is None else round
    return export_logs(
        campaign,
        Store(address, campaign.name),
        Journal(folder),
        settings_of(campaign, {}, begun=True),
        campaign.files.round(k) / "served.parquet" if out is None else out,
        round=k,
    )


def export_logs(
    campaign: Campaign,
    store: Store,
    journal: Journal,
    settings: ServingSettings,
    out: Path,
    *,
    round: int | None = None,
    now: float | None = None,
) -> Exported:
    """Write what a round served as the Parquet file that `campaign observe` takes.

    Args:
        campaign: whose.
        store: where its decisions are.
        journal: of the service; what waits there must be replayed first.
        settings: waiting time, rule and default.
        out: the file.
        round: which; None is the one that is under way.
        now: the time; None is the present.
    """
    k = campaign.round if round is None else round
    require(
        journal.is_empty,
        "what waits in the journal is replayed before logs are exported",
        found="decisions that are not in the store yet",
        cure="let the service reach its store: depsue serve",
        error=FileError,
    )
    served = [deployment.policy_hash for deployment in campaign.deployed(k)]
    require(
        bool(served),
        "logs are of a round that deployed something",
        found=f"round {k}",
        cure="depsue campaign status says where the campaign stands",
    )
    hash = served[-1]
    share = min((held for held in store.holdouts(k, hash) if held < 1), default=0.0)
    mapping, catalogue = campaign.files.mapping(k - 1), campaign.files.items(k - 1)
    brings, kinds = mapping.candidates is not None, kinds_of(campaign)
    exported = as_exported(mapping, share, pi0_is=how_known(campaign.pi0))
    units: set[Any] | None = None if campaign.settings.explore.units else set()
    numbers = mapping.time is not None and _is_number(campaign.summaries()[0].first)
    until = (time.time() if now is None else now) - settings.wait
    reasons = ("holdout", "fallback", "replaced", "restricted", "open", "erased", "unreadable")
    left_out = dict.fromkeys(reasons, 0)
    left_out["twins"] = store.twins(k)
    left_out["damaged"] = journal.lost(k)
    left_out["erased"] = sum(tombstones.decisions for tombstones in store.erased(k))
    tables = []
    for columns, rewards in _pieces(store, k, settings.wait):
        wanted = _closed_of_policy(columns, hash, until, share, brings, left_out)
        bad = wanted & unreadable(columns, exported, kinds)
        left_out["unreadable"] += int(bad.sum())
        wanted &= ~bad
        if exported.unit is not None and units is not None:
            again = wanted & _seen_before(columns, wanted, kinds.get(exported.unit), units)
            left_out["again"] = left_out.get("again", 0) + int(again.sum())
            wanted &= ~again
        if wanted.any():
            rows = {name: list(compress(values, wanted)) for name, values in columns.items()}
            table = _table(rows, rewards, exported, catalogue.ids, k, settings, numbers, kinds)
            tables.append(table)
    counts = ", ".join(f"{count:,} {why}" for why, count in left_out.items() if count)
    require(
        bool(tables),
        "there must be a decision of the policy whose waiting time has closed",
        found=counts or "no decision at all",
        cure=f"wait until {settings.wait:g} seconds have passed since the decisions",
    )
    import polars as pl

    _note_export(campaign.files.folder, out)  # first: an erasure must find the file
    buffer = io.BytesIO()
    table = pl.concat(tables, how="vertical_relaxed")  # a segment may be 5 here and "5" there
    table.write_parquet(buffer)
    write_file(out, buffer.getvalue())
    mapping_file = out.with_suffix(".toml")
    write_file(mapping_file, to_toml(exported).encode())
    kind = "without" if brings else "with"
    stopped = any(event.kind == "stop" and event.round == k for event in store.events())
    cut = stopped or len(set(served)) > 1
    return Exported(out, mapping_file, len(table), share, kind, **left_out, cut=cut)


def exported_files(folder: Path) -> list[Path]:
    """Files that rows of a campaign were exported to, in its folder or elsewhere."""
    listed = folder / EXPORTS
    lines = listed.read_text().splitlines() if listed.exists() else []
    paths = [folder / _decode(line) for line in lines]  # an absolute path stays as it is
    kept = [*folder.glob("round-*/served.parquet"), *folder.glob("round-*/logs-*.parquet")]
    return sorted({*paths, *kept})


def _note_export(folder: Path, path: Path) -> None:
    """Add a line; several processes may do so at once."""
    if folder / path not in exported_files(folder):
        inside = path.absolute().is_relative_to(folder.absolute())  # moves with the folder
        name = path.absolute().relative_to(folder.absolute()) if inside else path.absolute()
        try:
            append_synced(folder / EXPORTS, msgspec.json.encode(str(name)) + b"\n")
        except OSError as problem:
            raise FileError(
                "an export is noted before it is written, so that an erasure finds it",
                found=f"{folder / EXPORTS}: {problem.strerror or problem}",
                cure="make room on the disk, or make the folder writable",
            ) from problem


def _seen_before(
    columns: Mapping[str, Sequence[Any]], wanted: Mask, kind: Kind | None, seen: set[Any]
) -> Mask:
    """(n,) which wanted rows are of a unit that is `seen`, which grows; the first row is not."""
    again = np.zeros(len(wanted), dtype=bool)
    for place in np.flatnonzero(wanted).tolist():
        unit = as_logged(_decode(columns["unit"][place]), kind)
        again[place] = unit in seen
        seen.add(unit)
    return again


def as_exported(
    mapping: LogMapping, holdout: float = 0.0, *, pi0_is: Pi0Is = "called"
) -> LogMapping:
    """The campaign's mapping for files that the service writes, with propensities and ids.

    Args:
        mapping: of the round before.
        holdout: its share in what drew the rows.
        pi0_is: how pi0 is known. Where by what it chose alone, rows say who drew them; where it is
            called, they need not have its probabilities, which not every caller brings.
    """
    logged = replace(mapping, propensity=mapping.propensity or "propensity", estimated=None)
    if mapping.decision is None and "decision" not in mapping.columns:
        logged = replace(logged, decision="decision")
    if pi0_is == "called":
        logged = replace(logged, probabilities=None)
    if pi0_is == "chosen":
        logged = replace(logged, by_pi0=mapping.by_pi0 or "by_pi0")
    return replace(logged, kept=1.0, until=None, holdout=holdout, given_as="id")


def _pieces(
    store: Store, k: int, wait: float
) -> Iterator[tuple[dict[str, Sequence[Any]], list[Any]]]:
    """(columns of decisions, their rewards) of a round, piece by piece."""
    after = 0
    while True:
        rows, rewards = store.read(
            after=after, wait=wait, where=[decisions.c.round == k], columns=COLUMNS, limit=AT_ONCE
        )
        if not rows:
            return
        yield (
            dict(zip(("seq", "id", "at", *COLUMNS), zip(*rows, strict=True), strict=True)),
            rewards,
        )
        after = rows[-1].seq


def _closed_of_policy(
    columns: Mapping[str, Sequence[Any]],
    hash: str,
    until: float,
    share: float,
    brings: bool,
    left_out: dict[str, int],
) -> Mask:
    """(n,) closed decisions of the policy, and of its holdout as many as make one mixture of both.

    What is left out is counted by why.

    Args:
        columns: of the decisions.
        hash: of the policy.
        until: when the newest decision that has closed may have been made.
        share: of the holdout in the mixture.
        brings: whether requests that the certificate speaks of bring candidates.
        left_out: counts by why.
    """
    decided_by = np.array(columns["decided_by"])
    wanted: Mask = np.ones(len(decided_by), dtype=bool)
    outside = np.isin(np.array(columns["why"]), NOT_COVERED)
    candidates = np.array([places is not None for places in columns["candidates"]])
    by_pi0 = (decided_by == "pi0") & ~outside  # pi0's average is not pi0
    others = np.array(columns["policy"]) != hash
    for why, mask in (
        ("holdout", (decided_by == "holdout") & (others | ~_drawn_by_lot(columns, share))),
        ("fallback", by_pi0),
        ("replaced", others),
        ("restricted", (candidates != brings) | outside),
        ("open", np.array(columns["at"]) > until),
    ):
        left_out[why] += int((wanted & mask).sum())
        wanted &= ~mask
    return wanted


def _drawn_by_lot(columns: Mapping[str, Sequence[Any]], share: float) -> Mask:
    """(n,) which decisions of the holdout stay, so that rows are of one mixture with that share."""
    held = np.array(columns["holdout"], dtype=np.float64)
    if share == 0:
        return np.zeros(len(held), dtype=bool)
    with np.errstate(divide="ignore"):
        chance = share / (1 - share) * (1 - held) / held
    lots = (hashlib.sha256(f"lot {id}".encode()).digest()[:7] for id in columns["id"])
    drawn = np.array([int.from_bytes(lot, "big") for lot in lots]) / 2.0**56
    return np.asarray(drawn < np.where(held == share, 1.0, chance))


def _table(
    rows: Mapping[str, Sequence[Any]],
    rewards: Sequence[Any],
    mapping: LogMapping,
    ids: Any,
    k: int,
    settings: ServingSettings,
    numbers: bool,
    kinds: Mapping[str, Kind],
) -> Any:
    """The rows as the campaign's logs have them: a polars DataFrame.

    With a share of the holdout, propensities are those of the mixture that drew the rows.

    Args:
        rows: decisions.
        rewards: of them.
        mapping: as exported.
        ids: of the items.
        k: the round.
        settings: rule and default.
        numbers: whether times are seconds since 1970, as those of the first logs.
        kinds: of the unit and the segments.
    """
    import polars as pl

    count, share = len(rows["id"]), mapping.holdout
    contexts = [_decode(text) for text in rows["context"]]
    own, base = (np.array(rows[name], dtype=np.float64) for name in ("p_policy", "p_pi0"))
    propensity = (1 - share) * own + share * base if share else rows["propensity"]
    columns: dict[str, Any] = {
        mapping.action: ids[np.array(rows["action"])],
        mapping.reward: rewards_by_rule(rows["id"], rewards, mapping.reward, settings),
        str(mapping.propensity): propensity,
        mapping.time or "decided_at": pl.Series(np.array(rows["at"], dtype=np.float64))
        if numbers
        else pl.Series(
            (np.array(rows["at"]) * 1e6).astype(np.int64), dtype=pl.Datetime("us", "UTC")
        ),
    }
    for name in mapping.other_rewards:
        columns[name] = rewards_by_rule(rows["id"], rewards, name, settings)
    if mapping.unit is not None:
        named = [_decode(unit) for unit in rows["unit"]]
        columns[mapping.unit] = logged_column(named, kinds.get(mapping.unit))
    if mapping.round is not None:
        columns[mapping.round] = [k] * count
    if mapping.position is not None:
        columns[mapping.position] = [mapping.keep_position] * count
    columns |= _brought_columns(rows, mapping, ids)
    columns |= _context_columns(contexts, mapping, kinds)
    columns |= {} if mapping.decision is None else {mapping.decision: rows["id"]}
    columns.setdefault("decided_by", rows["decided_by"])
    return pl.DataFrame(columns, strict=False)


def _is_number(time: str | None) -> bool:
    """Whether a time that a summary has as text was a number."""
    try:
        return time is not None and math.isfinite(float(time))
    except ValueError:
        return False


def _times(rows: Mapping[str, Sequence[Any]]) -> Any:
    """When decisions were made. Of several of one unit at one time the store's order counts.

    So that the first row of a unit can be told: each is a microsecond after the one before.
    """
    import polars as pl

    at = (np.array(rows["at"]) * 1e6).round().astype(np.int64)
    table = pl.DataFrame({"unit": rows["unit"], "at": at, "seq": rows["seq"]}, strict=False)
    order = pl.col("seq").rank("ordinal").over("unit", "at") - 1
    moved = table.select(pl.col("at") + order.cast(pl.Int64).fill_null(0))
    return moved["at"].cast(pl.Datetime("us", "UTC"))


def _brought_columns(
    rows: Mapping[str, Sequence[Any]], mapping: LogMapping, ids: Any
) -> dict[str, Any]:
    """What the requests brought beside their contexts, and what the policy would have shown."""
    import polars as pl

    columns: dict[str, Any] = {}
    if mapping.candidates is not None:
        sets = unpacked(rows["candidates"], rows["pi0"])
        sizes = np.repeat(np.arange(len(sets)), sets.sizes)
        flat = pl.DataFrame({"row": sizes, "item": ids[sets.items], "p": sets.pi0})
        lists = flat.group_by("row", maintain_order=True).agg("item", "p")
        columns[mapping.candidates] = lists["item"]
        if mapping.probabilities is not None and sets.pi0 is not None:
            columns[mapping.probabilities] = lists["p"]
    if mapping.by_pi0 is not None:
        columns[mapping.by_pi0] = np.array(rows["p_pi0"], dtype=np.float64)
    if mapping.version is not None:
        versions = [version or "" for version in rows["version"]]  # "" is not known
        columns[mapping.version] = pl.Series(versions, dtype=pl.String)
    would = [None if place is None else ids[place].item() for place in rows["would"]]
    if any(place is not None for place in rows["would"]):
        columns |= {"policy_would_show": would, "policy_propensity": rows["p_would"]}
    return columns


def _context_columns(
    contexts: Sequence[Mapping[str, Any]], mapping: LogMapping, kinds: Mapping[str, Kind]
) -> dict[str, Any]:
    import polars as pl

    columns: dict[str, Any] = {
        name: pl.Series([row[name] for row in contexts], dtype=pl.Float64)
        for name in mapping.numeric
    }
    for name in mapping.categorical:
        columns[name] = pl.Series([as_text(row[name]) for row in contexts], dtype=pl.String)
    for name in mapping.segments:
        column = logged_column([row[name] for row in contexts], kinds.get(name))
        columns.setdefault(name, pl.Series(column, strict=False))
    return columns
