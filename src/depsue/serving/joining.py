"""Decisions meet their rewards: what callers report, what each decision earned, the next logs.

A decision has one reward in the end. Of the rewards that came within the waiting time the declared
rule takes the first, the largest or the sum; a decision without one has the default. The monitor
judges by these rewards, and `campaign observe --served` learns from the same ones.

A holdout is drawn by pi0 with probability h, apart from everything else. So decisions of the policy
and of its holdout together are independent rows of one mixture, (1 - h) pi + h pi0, and are
exported with its propensities. Where h changed within a round there is no such mixture, and the
holdout's decisions are left out.
"""

from __future__ import annotations

import io
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from depsue.campaigns import Campaign
from depsue.data.checks import FloatArray, IntArray, Mask
from depsue.data.mapping import LogMapping, to_toml
from depsue.diagnostics.drawn_by import TOLERANCE
from depsue.errors import DataError, FileError, require
from depsue.files import write_file
from depsue.promises import Promise
from depsue.serving.evidence import Weighing, weights
from depsue.serving.journal import Journal
from depsue.serving.messages import RewardReport
from depsue.serving.schema import Reward, decisions
from depsue.serving.served import OUTSIDE, ServedPolicy, as_text
from depsue.serving.settings import ServingSettings, declared, store_address
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
)


@dataclass(frozen=True)
class Exported:
    """What was written.

    Args:
        path: the Parquet file.
        mapping: the TOML file that says which column is what.
        rows: decisions of the policy, and of its holdout where that is part of what drew them.
        share: of the holdout in what drew the rows; 0 where its decisions are not among them.
        holdout, fallback, restricted, open, twins, erased: decisions that are not among them, and
            why.
    """

    path: Path
    mapping: Path
    rows: int
    share: float
    holdout: int
    fallback: int
    restricted: int
    open: int
    twins: int
    erased: int

    @property
    def left_out(self) -> tuple[str, ...]:
        """Decisions that are not among the rows, with the reason."""
        return tuple(
            f"{count:,} {why}"
            for count, why in (
                (self.holdout, "of the holdout on pi0, whose share changed within the round"),
                (self.fallback, "of pi0 as the fallback"),
                (
                    self.restricted,
                    "that the certificate does not cover: with candidates, or with a context "
                    "outside pi0's table",
                ),
                (self.open, "that still wait for rewards"),
                (self.twins, "of keys that were decided on both sides of an outage"),
                (self.erased, "that were erased"),
            )
            if count
        )

    @property
    def decisions(self) -> int:
        """All decisions of the round, whoever took them."""
        by_others = self.holdout + self.fallback
        return self.rows + by_others + self.restricted + self.open + self.twins + self.erased

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
        declared(folder, {}, begun=True, mapping=campaign.files.mapping(0)),
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
    shares = store.holdouts(k, hash)
    share = shares[0] if len(shares) == 1 else 0.0
    mapping, catalogue = campaign.files.mapping(k - 1), campaign.files.items(k - 1)
    until = (time.time() if now is None else now) - settings.wait
    left_out = {"holdout": 0, "fallback": 0, "restricted": 0, "open": 0, "erased": 0}
    left_out["twins"] = store.twins(k)
    left_out["erased"] = sum(tombstones.decisions for tombstones in store.erased(k))
    tables = []
    for columns, rewards in _pieces(store, k, settings.wait):
        wanted = _closed_of_policy(columns, hash, until, share > 0, left_out)
        if wanted.any():
            rows = {name: list(compress(values, wanted)) for name, values in columns.items()}
            tables.append(_table(rows, rewards, mapping, catalogue.ids, k, settings, share))
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
    write_file(mapping_file, to_toml(as_exported(mapping, share)).encode())
    return Exported(out, mapping_file, len(table), share, **left_out)


def exported_files(folder: Path) -> list[Path]:
    """Files that rows of a campaign were exported to, in its folder or elsewhere."""
    listed = folder / EXPORTS
    lines = listed.read_text().splitlines() if listed.exists() else []
    paths = [folder / _decode(line) for line in lines]  # an absolute path stays as it is
    return sorted({*paths, *folder.glob("round-*/served.parquet")})


def _note_export(folder: Path, path: Path) -> None:
    """Add a line; several processes may do so at once."""
    if folder / path not in exported_files(folder):
        inside = path.absolute().is_relative_to(folder.absolute())  # moves with the folder
        name = path.absolute().relative_to(folder.absolute()) if inside else path.absolute()
        with (folder / EXPORTS).open("ab") as file:
            file.write(msgspec.json.encode(str(name)) + b"\n")
            file.flush()
            os.fsync(file.fileno())


def reported_rewards(
    reports: Sequence[RewardReport], served: ServedPolicy, settings: ServingSettings, now: float
) -> list[Reward]:
    """Rewards as they are stored; a DataError for what the campaign cannot use.

    Args:
        reports: what callers sent.
        served: what serves; its mapping declares the range of each reward.
        settings: the rule for several rewards of one decision.
        now: when they came.
    """
    mapping = served.mapping
    rewards = []
    for place, report in enumerate(reports):
        name = mapping.reward if report.name is None else report.name
        limit = mapping.r_max if name == mapping.reward else mapping.other_rewards.get(name)
        if limit is None:
            raise DataError(
                "a reward is one of the mapping's columns",
                column="name",
                row=place,
                value=report.name,
                cure=f"leave it out for {mapping.reward}"
                + "".join(f", or {other}" for other in mapping.other_rewards),
            )
        value = report.reward + mapping.shift if name == mapping.reward else report.reward
        capped = mapping.cap is not None and name == mapping.reward
        if value < 0 or (value > limit and not capped):
            raise DataError(
                f"rewards must lie in [0, {limit:g}], as was declared",
                column=name,
                row=place,
                value=report.reward,
                cure="send them in the units of the logs",
            )
        shown = None if report.action is None else served.places.get(report.action, -1)
        # where the first reward counts, the store keeps one per decision: no event tells them apart
        event = "" if settings.combine == "first" else report.event or ""
        rewards.append(Reward(report.decision, name, event, float(report.reward), now, shown))
    return rewards


def rewards_by_rule(
    ids: Sequence[str], rewards: Iterable[Any], name: str, settings: ServingSettings
) -> FloatArray:
    """(n,) the reward of each decision, by the declared rule.

    Args:
        ids: of the decisions, in order.
        rewards: those that came in time, as `Store.read` gives them.
        name: of the reward's column.
        settings: rule and default.
    """
    received_and_value: dict[str, tuple[float, float]] = {}
    for decision, column, value, received, _ in rewards:
        if column != name:
            continue
        known = received_and_value.get(decision)
        if known is None:
            received_and_value[decision] = (received, value)
        elif settings.combine == "sum":
            received_and_value[decision] = (received, known[1] + value)
        elif settings.combine == "largest":
            received_and_value[decision] = (received, max(known[1], value))
        elif received < known[0]:
            received_and_value[decision] = (received, value)
    default = (0.0, settings.default_reward)
    return np.array([received_and_value.get(id, default)[1] for id in ids], dtype=np.float64)


def used_reward(raw: FloatArray, mapping: LogMapping) -> FloatArray:
    """The reward that the campaign goes by: shifted and capped as its mapping declares."""
    shifted = raw + mapping.shift
    return np.asarray(shifted if mapping.cap is None else np.minimum(shifted, mapping.cap))


def as_exported(mapping: LogMapping, holdout: float = 0.0) -> LogMapping:
    """The campaign's mapping for files that the service writes, with propensities and ids.

    Args:
        mapping: of the round before.
        holdout: its share in what drew the rows.
    """
    logged = replace(mapping, propensity=mapping.propensity or "propensity", estimated=None)
    if mapping.decision is None and "decision" not in mapping.columns:
        logged = replace(logged, decision="decision")
    return replace(logged, kept=1.0, until=None, holdout=holdout)


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
    with_holdout: bool,
    left_out: dict[str, int],
) -> Mask:
    """(n,) decisions of the policy, or of it and its holdout, that have closed.

    What is left out is counted by why.
    """
    decided_by = np.array(columns["decided_by"])
    wanted: Mask = np.ones(len(decided_by), dtype=bool)
    outside = np.array(columns["why"]) == OUTSIDE
    candidates = np.array([places is not None for places in columns["candidates"]])
    by_pi0 = (decided_by == "pi0") & ~outside  # pi0's average is not pi0
    for why, mask in (
        ("holdout", (decided_by == "holdout") & (not with_holdout)),
        ("fallback", by_pi0 | (np.array(columns["policy"]) != hash)),
        ("restricted", candidates | outside),
        ("open", np.array(columns["at"]) > until),
    ):
        left_out[why] += int((wanted & mask).sum())
        wanted &= ~mask
    return wanted


def _table(
    rows: Mapping[str, Sequence[Any]],
    rewards: Sequence[Any],
    mapping: LogMapping,
    ids: Any,
    k: int,
    settings: ServingSettings,
    share: float,
) -> Any:
    """The rows as the campaign's logs have them: a polars DataFrame.

    With a share of the holdout, propensities are those of the mixture that drew the rows.
    """
    import polars as pl

    count = len(rows["id"])
    contexts = [_decode(text) for text in rows["context"]]
    own, base = (np.array(rows[name], dtype=np.float64) for name in ("p_policy", "p_pi0"))
    propensity = (1 - share) * own + share * base if share else rows["propensity"]
    columns: dict[str, Any] = {
        mapping.action: ids[np.array(rows["action"])],
        mapping.reward: rewards_by_rule(rows["id"], rewards, mapping.reward, settings),
        str(as_exported(mapping).propensity): propensity,
        mapping.time or "decided_at": pl.Series(
            (np.array(rows["at"]) * 1e6).astype(np.int64), dtype=pl.Datetime("us", "UTC")
        ),
    }
    for name in mapping.other_rewards:
        columns[name] = rewards_by_rule(rows["id"], rewards, name, settings)
    if mapping.unit is not None:
        columns[mapping.unit] = [None if unit is None else _decode(unit) for unit in rows["unit"]]
    if mapping.round is not None:
        columns[mapping.round] = [k] * count
    if mapping.position is not None:
        columns[mapping.position] = [mapping.keep_position] * count
    columns |= _context_columns(contexts, mapping)
    named = as_exported(mapping).decision
    columns |= {} if named is None else {named: rows["id"]}
    columns.setdefault("decided_by", rows["decided_by"])
    return pl.DataFrame(columns, strict=False)


def _context_columns(contexts: Sequence[Mapping[str, Any]], mapping: LogMapping) -> dict[str, Any]:
    import polars as pl

    columns: dict[str, Any] = {
        name: pl.Series([row[name] for row in contexts], dtype=pl.Float64)
        for name in mapping.numeric
    }
    for name in mapping.categorical:
        columns[name] = pl.Series([as_text(row[name]) for row in contexts], dtype=pl.String)
    for name in mapping.segments:
        columns.setdefault(name, pl.Series([row[name] for row in contexts], strict=False))
    return columns


LEAST = 1e-150
"""Probability below which a decision cannot be weighed: its weight would be no number."""


@dataclass(frozen=True)
class ClosedDecisions:
    """Decisions of the policy and its holdout whose rewards are complete.

    Args:
        ids: (n,) of the decisions.
        at: (n,) when they were made.
        contexts: (n,) by column.
        action: (n,) places of the items.
        held: (n,) whether the holdout decided.
        propensity, p_policy, p_pi0: (n,) of the action.
        holdout: (n,) its share at the time.
        unit: (n,) as requested.
        rewards: as `Store.read` gives them.
        erased: (n,) of tombstones the largest pi0 / p that they may have had; NaN of all others.
    """

    ids: list[str]
    at: FloatArray
    contexts: list[dict[str, Any]]
    action: IntArray
    held: Mask
    propensity: FloatArray
    p_policy: FloatArray
    p_pi0: FloatArray
    holdout: FloatArray
    unit: list[str | None]
    rewards: Sequence[Any]
    erased: FloatArray

    @classmethod
    def of(cls, rows: Sequence[Any], rewards: Sequence[Any]) -> ClosedDecisions:
        """From rows of the store."""
        gone = np.array([row.erased is not None for row in rows])
        p_policy, p_pi0 = (
            np.array([getattr(row, p) for row in rows]) for p in ("p_policy", "p_pi0")
        )
        return cls(
            ids=[row.id for row in rows],
            at=np.array([row.at for row in rows], dtype=np.float64),
            contexts=[msgspec.json.decode(row.context) if row.context else {} for row in rows],
            action=np.array([row.action for row in rows]),
            held=np.array([row.decided_by == "holdout" for row in rows]),
            propensity=np.array([row.propensity for row in rows]),
            p_policy=np.where(gone, 1.0, p_policy),
            p_pi0=np.where(gone, 1.0, p_pi0),
            holdout=np.array([row.holdout for row in rows]),
            unit=[row.unit if row.erased is None else f"erased {row.erased}" for row in rows],
            rewards=rewards,
            erased=np.where(gone, p_pi0, np.nan),
        )

    def __len__(self) -> int:
        return len(self.ids)

    def weighed(self, by: Weighing) -> tuple[FloatArray, FloatArray]:
        """(w, w0), each (n,): the weights for the policy and for pi0."""
        return weights(self.p_policy, self.p_pi0, self.held, self.holdout, by)

    @property
    def judgeable(self) -> Mask:
        """(n,) whether probabilities lie in their ranges, so that rewards can be weighed."""
        with np.errstate(all="ignore"):
            mixed = (1 - self.holdout) * self.p_policy + self.holdout * self.p_pi0
        known = (self.p_policy >= 0) & (self.p_pi0 >= 0)
        return np.asarray(known & (mixed >= LEAST) & (mixed <= 1 + TOLERANCE))

    def within(self, promise: Promise) -> Mask:
        """(n,) which decisions a promise is about."""
        if promise.segment is None:
            return np.ones(len(self), dtype=bool)
        column, value = promise.segment
        within = [as_text(row.get(column)) == as_text(value) for row in self.contexts]
        return np.array(within) | ~np.isnan(self.erased)  # perhaps it was in the segment


def in_range(reward: FloatArray, r_max: float) -> Mask:
    """(n,) which rewards lie in [0, r_max]."""
    return np.asarray((reward >= 0) & (reward <= r_max))
