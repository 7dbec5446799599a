"""What logs hold, counted: streaming passes over the rows, in bounded memory.

`count_logs` returns sums over rows, sums over actions, the share of repeated rows, and a sample of
rows for the tests that need rows in memory. The sums over actions are cut in halves by a hash of
the row's number: one half says which actions are shown, the other tests them (`checking.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from depsue.check.candidates import CandidateCounts, KnownItems, count_candidates
from depsue.data.mapping import LISTS, LogMapping
from depsue.data.reading import Source, require_old_enough
from depsue.data.requests import PolicyVersion
from depsue.data.tables import exact
from depsue.errors import DataError

if TYPE_CHECKING:
    import polars as pl

SAMPLE = 200_000
"""Rows that come into memory, about: the tests of propensities and drift need no more."""
DISTINCT = 2_000_000
"""Distinct rows that are held against each other for duplicates, about."""
MOST_ACTIONS = 1_000_000
"""Sums over actions are kept in memory; more "actions" than this are numbers of rows."""
LEAST = 1e-15
"""No policy draws with a smaller probability, and 1/p of far smaller ones would overflow."""


@dataclass(frozen=True)
class PropensityCounts:
    """Rows by their propensity p.

    Args:
        outside: p is not in [LEAST, 1].
        least: the smallest p within that range; None if there is none.
        certain: p = 1.
        nearly_certain: p is in (.99, 1].
        up_to_100: p is in (0, 100], as if written in per cent.
        above_one: p is in (1, 100].
    """

    outside: int
    least: float | None
    certain: int
    nearly_certain: int
    up_to_100: int
    above_one: int


@dataclass(frozen=True)
class RewardCounts:
    """Rewards, after the mapping's shift and cap.

    Args:
        total: the sum of all finite rewards.
        rewarded: rows with a reward above 0.
        least, largest: over all rows; None if every reward is missing.
        below_zero, above_r_max: rows outside [0, r_max].
        other_outside: for each of the mapping's other rewards, the rows outside their range.
    """

    total: float
    rewarded: int
    least: float | None
    largest: float | None
    below_zero: int
    above_r_max: int
    other_outside: Mapping[str, int]


@dataclass(frozen=True, eq=False)
class LogCounts:
    """What was counted.

    Args:
        rows: n.
        rewards: sums and extremes of rewards.
        propensities: rows by propensity; None where there are none.
        fractional_ids: rows whose action is a number, but not a whole one.
        times: the first and the last time as text, each None if no time can be read; None without
            times.
        rounds: the first and the last round; None without rounds.
        missing: missing values (null or NaN) of each column of the mapped table that has any.
        halves: one row for each action and half: action, test (True or False), count, inverse (the
            sum of 1/p), square (the sum of 1/p^2); propensities out of range are left out.
        sample: rows of the mapped table, in their order.
        repeated: share of rows that equal another one in all mapped columns and ids; None where
            there is neither a time nor another id, for then equal rows are no surprise.
        repeated_decisions: share of rows that have the decision's id of another; None without ids.
        candidates: what lists of candidates hold; None without lists.
        versions: those of pi0, the oldest first; () where the rows do not say.
    """

    rows: int
    rewards: RewardCounts
    propensities: PropensityCounts | None
    fractional_ids: int
    times: tuple[str | None, str | None] | None
    rounds: tuple[float, float] | None
    missing: Mapping[str, int]
    halves: pl.DataFrame
    sample: pl.DataFrame
    repeated: float | None
    repeated_decisions: float | None
    candidates: CandidateCounts | None = None
    versions: tuple[PolicyVersion, ...] = ()

    def actions(self) -> pl.DataFrame:
        """action and count, over both halves, the most frequent first."""
        import polars as pl

        table = self.halves.group_by("action").agg(pl.col("count").sum())
        return table.sort("count", "action", descending=[True, False])

    def one_propensity_each(self) -> bool:
        """Whether each action always has the same propensity, as in rows drawn without a look."""
        if self.propensities is None or self.propensities.outside:
            return False
        table = self.halves.drop("test").group_by("action").sum()
        spread = table["square"] * table["count"] - table["inverse"] ** 2
        return bool((spread <= 1e-6 * table["inverse"] ** 2).all())

    def effective_rows(self) -> float | None:
        """The effective sample size (sum of 1/p)^2 / (sum of 1/p^2); None without propensities."""
        if self.propensities is None:
            return None
        inverse, square = (float(self.halves[name].sum()) for name in ("inverse", "square"))
        return inverse * inverse / square if square > 0 else None


def count_logs(
    source: Source, frame: pl.LazyFrame, mapping: LogMapping, items: KnownItems | None = None
) -> LogCounts:
    """Count what a mapped table holds, in four streaming passes, or five with candidates.

    Args:
        source: where the rows come from.
        frame: `mapped(source, mapping)`.
        mapping: which column is what.
        items: the catalogue beside the logs, where there is one.
    """
    import polars as pl

    schema = source.collect(frame.head(0)).schema
    totals = source.collect(frame.select(**_totals(schema, mapping))).row(0, named=True)
    n = int(totals["rows"])
    require_old_enough(n, source, mapping)
    if n == 0:
        raise DataError(
            "logs need at least one row",
            column=mapping.action,
            found=f"none in {source.name}",
            cure="check the filter or the path that produced it",
        )
    if totals["distinct_actions"] > 1.1 * MOST_ACTIONS:  # the count is approximate
        raise DataError(
            f"there may be {MOST_ACTIONS:,} actions at most",
            column=mapping.action,
            found=f"about {totals['distinct_actions']:,}",
            cure="name the column of the item that was shown, not of the row",
        )
    numbered = frame.with_row_index("row")
    p = pl.col("propensity") if "propensity" in schema else pl.lit(None, dtype=pl.Float64)
    good = pl.when((p >= LEAST) & (p <= 1)).then(p)
    # Three seeds of the hash (1, 2, 3) make the halves, the sample and the search for duplicates
    # independent of each other; hashes, not draws, so that a check can be repeated.
    halves = source.collect(
        numbered.with_columns(test=pl.col("row").hash(1) % 2 == 0, inverse=1 / good)
        .group_by("action", "test")
        .agg(
            count=pl.len(),
            inverse=pl.col("inverse").sum(),
            square=(pl.col("inverse") ** 2).sum(),
        )
    )
    step = -(-n // SAMPLE)
    all_numbered = numbered
    numbered = numbered.drop([role for role in LISTS if role in schema])
    sample = source.collect(numbered.filter(pl.col("row").hash(2) % step == 0).sort("row"))
    others = [name for name in source.names if is_id(name) and name not in mapping.columns]
    repeated = None
    if mapping.time is not None or others:
        of_lists = [mapping.candidates, mapping.probabilities]
        plain = [name for name in mapping.columns if name not in of_lists]
        repeated = _repeated(source, n, [*plain, *others])
    return LogCounts(
        rows=n,
        rewards=_rewards(totals, mapping),
        propensities=_propensities(totals) if "propensity" in schema else None,
        fractional_ids=totals.get("fractional_ids", 0),
        times=(totals["first_time"], totals["last_time"]) if "time" in schema else None,
        rounds=(totals["first_round"], totals["last_round"]) if "round" in schema else None,
        missing={name: count for name in schema if (count := int(totals[f"missing:{name}"])) > 0},
        halves=halves,
        sample=sample,
        repeated=repeated,
        repeated_decisions=None
        if mapping.decision is None
        else _repeated(source, n, [mapping.decision]),
        candidates=None
        if mapping.candidates is None
        else count_candidates(source, all_numbered, mapping, items),
        versions=_versions(source, frame) if mapping.version is not None else (),
    )


def _versions(source: Source, frame: pl.LazyFrame) -> tuple[PolicyVersion, ...]:
    import polars as pl

    time = pl.col("time") if "time" in frame.collect_schema().names() else pl.lit(None)
    table = (
        frame.with_row_index("row")
        .group_by("version")
        .agg(
            rows=pl.len(),
            first=time.min().cast(pl.String),
            last=time.max().cast(pl.String),
            row=pl.col("row").min(),
        )
    )
    rows = source.collect(table.sort(["first", "row"], nulls_last=True).drop("row")).rows()
    return tuple(PolicyVersion(version or "", count, *span) for version, count, *span in rows)


def is_id(name: str) -> bool:
    """Whether a column's name says that it tells rows, or things, apart."""
    plain = name.strip().lower()
    return plain in ("id", "uuid") or plain.endswith(("_id", "_uuid", "-id", "eventid"))


def _totals(schema: Any, mapping: LogMapping) -> dict[str, pl.Expr]:
    """Sums and extremes over rows; NaN counts as missing."""
    import polars as pl

    r = pl.col("reward").fill_nan(None)
    totals = {
        "rows": pl.len(),
        "distinct_actions": pl.col("action").approx_n_unique(),
        "reward": r.filter(r.is_finite()).sum(),
        "rewarded": (r > 0).sum(),
        "least_reward": r.min(),
        "largest_reward": r.max(),
        "below_zero": (r < 0).sum(),
        "above_r_max": (r > mapping.r_max).sum(),
    }
    if "propensity" in schema:
        p = pl.col("propensity")
        ok = (p >= LEAST) & (p <= 1)
        totals |= {
            "p_outside": (~ok & p.is_not_nan()).sum(),
            "p_least": p.filter(ok).min(),
            "p_certain": (p == 1).sum(),
            "p_nearly_certain": (ok & (p > 0.99)).sum(),
            "p_up_to_100": ((p > 0) & (p <= 100)).sum(),
            "p_above_one": ((p > 1) & (p <= 100)).sum(),
        }
    if "time" in schema:
        time = pl.col("time").fill_nan(None) if schema["time"].is_float() else pl.col("time")
        totals["first_time"] = time.min().cast(pl.String)
        totals["last_time"] = time.max().cast(pl.String)
    if "round" in schema:
        totals["first_round"] = pl.col("round").min()
        totals["last_round"] = pl.col("round").max()
    if schema["action"].is_float():
        action = pl.col("action")
        totals["fractional_ids"] = (action != action.floor()).sum()
    for name, limit in mapping.other_rewards.items():
        other = pl.col(f"k:{name}")
        totals[f"outside:{name}"] = ((other < 0) | (other > limit)).sum()
    for name, kind in schema.items():
        column = pl.col(name)
        gone = column.is_null() | column.is_nan() if kind.is_float() else column.is_null()
        gone = gone | column.is_infinite() if kind.is_float() and name[:2] == "x:" else gone
        totals[f"missing:{name}"] = gone.sum()
    return totals


def _rewards(totals: Mapping[str, Any], mapping: LogMapping) -> RewardCounts:
    return RewardCounts(
        total=totals["reward"],
        rewarded=int(totals["rewarded"]),
        least=totals["least_reward"],
        largest=totals["largest_reward"],
        below_zero=totals["below_zero"],
        above_r_max=totals["above_r_max"],
        other_outside={name: totals[f"outside:{name}"] for name in mapping.other_rewards},
    )


def _propensities(totals: Mapping[str, Any]) -> PropensityCounts:
    return PropensityCounts(
        outside=totals["p_outside"],
        least=totals["p_least"],
        certain=totals["p_certain"],
        nearly_certain=totals["p_nearly_certain"],
        up_to_100=totals["p_up_to_100"],
        above_one=totals["p_above_one"],
    )


def _repeated(source: Source, n: int, names: list[str]) -> float:
    """The share of rows that repeat another, by a hash of these columns, on one hash in many."""
    import polars as pl

    step = -(-n // DISTINCT)
    key = pl.struct([exact(name) for name in names]).hash(3)
    hashes = source.frame.select(key=key).filter(pl.col("key") % step == 0)
    counts = source.collect(hashes.select(all=pl.len(), distinct=pl.col("key").n_unique()))
    rows, distinct = counts.row(0)
    return 0.0 if rows == 0 else 1 - distinct / rows
