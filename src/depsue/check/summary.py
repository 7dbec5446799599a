"""What the logs hold, in sums over rows and over actions: two passes that stream, bounded memory.

Rows are also cut in halves by a hash of their number: one half says which actions are supported,
the other tests them (`calibration.py`). A sample of rows comes into memory for what needs rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from depsue.data.mapped import exact
from depsue.data.mapping import LogMapping
from depsue.data.sources import Source
from depsue.errors import DataError

if TYPE_CHECKING:
    import polars as pl

SAMPLE = 200_000
"""Rows that come into memory, about."""
DISTINCT = 2_000_000
"""Distinct rows that are held against each other for duplicates, about."""
MOST_ACTIONS = 1_000_000
LEAST = 1e-15
"""No policy draws with a smaller probability, and 1/p would overflow."""


@dataclass(frozen=True, eq=False)
class Summary:
    """What was counted.

    Args:
        rows: n.
        totals: sums and extremes over rows, by name.
        missing: missing values (null or NaN) of each mapped column that has any.
        actions: one row for each action and half: action, test (True or False), count, inverse
            (the sum of 1/p), square (the sum of 1/p^2); propensities out of range left out.
        sample: rows of the mapped table, in their order.
        repeated: share of rows that repeat another one in all mapped columns and ids; None where
            there is neither a time nor another id: then equal rows are no wonder.
    """

    rows: int
    totals: dict[str, Any]
    missing: dict[str, int]
    actions: pl.DataFrame
    sample: pl.DataFrame
    repeated: float | None

    def counts(self) -> pl.DataFrame:
        """action and count, over both halves, the most frequent first."""
        import polars as pl

        table = self.actions.group_by("action").agg(pl.col("count").sum())
        return table.sort("count", "action", descending=[True, False])


def summarize(source: Source, frame: pl.LazyFrame, mapping: LogMapping) -> Summary:
    """Read the mapped table: four streaming passes."""
    import polars as pl

    schema = source.collect(frame.head(0)).schema
    totals = source.collect(frame.select(**_totals(schema, mapping))).row(0, named=True)
    n = int(totals["rows"])
    if n == 0:
        raise DataError(
            "logs need at least one row",
            column=mapping.action,
            found=f"none in {source.name}",
            cure="check the filter or the path that produced it",
        )
    missing = {k[8:]: int(v) for k, v in totals.items() if k.startswith("missing:") and v}
    if totals["distinct actions"] > 1.1 * MOST_ACTIONS:
        raise DataError(
            f"there may be {MOST_ACTIONS:,} actions at most",
            column=mapping.action,
            found=f"about {totals['distinct actions']:,}",
            cure="name the column of the item that was shown, not of the row",
        )
    numbered = frame.with_row_index("row")
    p = pl.col("propensity") if "propensity" in schema else pl.lit(None, dtype=pl.Float64)
    good = pl.when((p >= LEAST) & (p <= 1)).then(p)
    actions = source.collect(
        numbered.with_columns(test=pl.col("row").hash(1) % 2 == 0, inverse=1 / good)
        .group_by("action", "test")
        .agg(
            count=pl.len(),
            inverse=pl.col("inverse").sum(),
            square=(pl.col("inverse") ** 2).sum(),
        )
    )
    step = -(-n // SAMPLE)
    sample = source.collect(numbered.filter(pl.col("row").hash(2) % step == 0).sort("row"))
    others = [name for name in source.names if is_id(name) and name not in mapping.columns]
    repeated = None
    if mapping.time is not None or others:
        repeated = _repeated(source, n, [*mapping.columns, *others])
    return Summary(n, totals, missing, actions, sample, repeated)


def is_id(name: str) -> bool:
    """Whether a column's name says that it tells rows, or things, apart."""
    plain = name.strip().lower()
    return plain in ("id", "uuid") or plain.endswith(("_id", "_uuid", "-id", "eventid"))


def _totals(schema: Any, mapping: LogMapping) -> dict[str, pl.Expr]:
    """Sums and extremes over rows; NaN counts as missing."""
    import polars as pl

    r = pl.col("reward").fill_nan(None)
    found = {
        "rows": pl.len(),
        "distinct actions": pl.col("action").approx_n_unique(),
        "reward": r.filter(r.is_finite()).sum(),
        "rewarded": (r > 0).sum(),
        "least reward": r.min(),
        "largest reward": r.max(),
        "low": (r < 0).sum(),
        "high": (r > mapping.r_max).sum(),
    }
    if "propensity" in schema:
        p = pl.col("propensity")
        ok = (p >= LEAST) & (p <= 1)
        found["outside"] = (~ok & p.is_not_nan()).sum()
        found["least propensity"] = p.filter(ok).min()
        found["certain"] = (p == 1).sum()
        found["to 100"] = ((p > 0) & (p <= 100)).sum()
        found["above one"] = ((p > 1) & (p <= 100)).sum()
        found["nearly certain"] = (ok & (p > 0.99)).sum()
    if "time" in schema:
        time = pl.col("time").fill_nan(None) if schema["time"].is_float() else pl.col("time")
        found |= {"first": time.min().cast(pl.String), "last": time.max().cast(pl.String)}
    if "round" in schema:
        found |= {"first round": pl.col("round").min(), "last round": pl.col("round").max()}
    if schema["action"].is_float():
        a = pl.col("action")
        found["broken ids"] = (a != a.floor()).sum()
    for name, limit in mapping.other_rewards.items():
        other = pl.col(f"k:{name}")
        found[f"outside:{name}"] = ((other < 0) | (other > limit)).sum()
    for name, kind in schema.items():
        column = pl.col(name)
        gone = column.is_null() | column.is_nan() if kind.is_float() else column.is_null()
        gone = gone | column.is_infinite() if kind.is_float() and name[:2] == "x:" else gone
        found[f"missing:{name}"] = gone.sum()
    return found


def _repeated(source: Source, n: int, names: list[str]) -> float:
    """The share of rows that repeat another, by a hash of these columns, on one hash in many."""
    import polars as pl

    step = -(-n // DISTINCT)
    key = pl.struct([exact(name) for name in names]).hash(3)
    hashes = source.frame.select(key=key).filter(pl.col("key") % step == 0)
    found = source.collect(hashes.select(all=pl.len(), distinct=pl.col("key").n_unique()))
    whole, distinct = found.row(0)
    return 0.0 if whole == 0 else 1 - distinct / whole
