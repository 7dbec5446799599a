"""The rules that logs must keep, on what was counted: a finding for each that is broken.

What the logs hold, in sums over rows and over actions: two passes that stream, bounded memory.

Rows are also cut in halves by a hash of their number: one half says which actions are supported,
the other tests them (`calibration.py`). A sample of rows comes into memory for what needs rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from depsue.check.report import CheckFinding
from depsue.data.checks import FILL
from depsue.data.mapping import LogMapping
from depsue.data.reading import Source, exact
from depsue.errors import DataError
from depsue.plural import counted, plural

if TYPE_CHECKING:
    import polars as pl

    from depsue.data.dsjson import BadLine

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


FEWEST_REWARDED, FEWEST_ROWS = 20, 20
"""Rows with a reward in all, and rows of each action, that should be there."""
HEAVY_UNIT, REPEATED, BAD_LINES = 0.01, 0.001, 0.01
"""Shares above which a unit is heavy, rows are repeated, and bad lines are too many."""
LEAST_EFFECTIVE = 0.01


def rows_rules(source: Source, found: Summary, mapping: LogMapping) -> Iterator[CheckFinding]:
    """Lines, missing values, rewards, duplicates and units."""
    n, totals = found.rows, found.totals
    if source.bad_lines:
        yield _lines(source.bad_lines, n)
    for name, count in found.missing.items():
        yield _missing(name, count, n, mapping)
    if totals.get("broken ids"):
        broken = totals["broken ids"]
        rule = "ids must be whole numbers or text"
        value = f"{counted(broken, 'row')} {plural(broken, 'is', 'are')} not"
        yield CheckFinding("action-ids", "error", rule, value, f"cast column '{mapping.action}'")
    if totals["low"] or totals["high"]:
        low, high = totals["least reward"], totals["largest reward"]
        yield CheckFinding(
            "reward-range",
            "error",
            f"rewards must lie in [0, r_max] with r_max = {mapping.r_max:g}",
            f"{counted(totals['low'], 'row')} below 0, {totals['high']:,} above r_max; "
            f"from {low:g} to {high:g}",
            "declare r_max in the mapping; for revenue [reward] shift (for what is below 0) and "
            "cap, which the certificate then states",
        )
    elif totals["rewarded"] < FEWEST_REWARDED:
        yield CheckFinding(
            "rewards-few",
            "warning",
            f"at least {FEWEST_REWARDED} rows should have a reward",
            f"{totals['rewarded']:,} of {n:,}",
            "log more: such logs allow no more than what is certain without data",
        )
    for name, limit in mapping.other_rewards.items():
        if totals[f"outside:{name}"]:
            rule = f"'{name}' must lie in [0, {limit:g}], as [other_rewards] says"
            value = _outside(totals[f"outside:{name}"], n)
            yield CheckFinding("other-reward", "error", rule, value, "declare its largest value")
    if found.repeated is not None and found.repeated > REPEATED:
        yield CheckFinding(
            "duplicates",
            "warning",
            "rows should not be repeated",
            f"{found.repeated:.2%} of rows equal another one in all mapped columns and ids",
            "check the join that produced them, and keep each decision once",
        )
    if "unit" in found.sample.columns:
        top = found.sample["unit"].value_counts().sort("count").tail(1)
        share = top["count"][0] / len(found.sample)
        if share > HEAVY_UNIT and share > 10 / found.sample["unit"].n_unique():
            yield CheckFinding(
                "unit-heavy",
                "warning",
                f"no unit should have {HEAVY_UNIT:.0%} of the rows, and ten times its part",
                f"{top['unit'][0]!r} has about {share:.1%}",
                "leave out robots, test accounts, and a default id that stands for 'not known'",
            )


def support_rules(
    found: Summary, mapping: LogMapping, effective: float | None
) -> Iterator[CheckFinding]:
    """Actions with few rows, and propensities that are out of range or almost certain."""
    n, totals = found.rows, found.totals
    counts = found.counts()
    rare = counts.filter(counts["count"] < FEWEST_ROWS)
    if len(counts) == 1:
        rule, value = (
            "there must be a choice: two actions at least",
            f"only {counts['action'][0]!r}",
        )
        yield CheckFinding("actions", "error", rule, value, "check the column of the action")
    elif len(rare):
        yield CheckFinding(
            "actions-rare",
            "warning",
            f"each action should have {FEWEST_ROWS} rows",
            f"{len(rare):,} of {counted(len(counts), 'action')} "
            f"{plural(len(rare), 'has', 'have')} fewer",
            "log more, or leave these items out of the catalogue; little can be said of them",
        )
    if "outside" not in totals:
        return
    if totals["outside"] and _in_percent(found):
        yield CheckFinding(
            "propensity-percent",
            "error",
            f"propensities must lie in (0, 1], and not below {LEAST:g}",
            f"{totals['above one']:,} of {counted(n, 'row')} "
            f"{plural(totals['above one'], 'is', 'are')} above 1, none above 100: as in per cent",
            f"divide column '{mapping.propensity}' by 100; if it holds weights 1/p, invert them",
        )
        return
    if totals["outside"]:
        yield CheckFinding(
            "propensity-range",
            "error",
            f"propensities must lie in (0, 1], and not below {LEAST:g}",
            _outside(totals["outside"], n),
            "log the probability with which the shown action was drawn",
        )
    elif totals["certain"] == n:
        yield CheckFinding(
            "deterministic",
            "error",
            "the logging policy must have drawn at random",
            "every propensity is 1",
            "log with some randomness, for example epsilon-greedy; logs of a fixed choice tell "
            "nothing of other choices",
        )
    elif totals["nearly certain"] > n / 2:
        yield CheckFinding(
            "nearly-deterministic",
            "warning",
            "the logging policy should draw at random in most rows",
            f"{totals['nearly certain'] / n:.1%} of rows have a propensity above .99",
            "explore more: little can be learned from such rows",
        )
    if effective is not None and effective < LEAST_EFFECTIVE * n:
        yield CheckFinding(
            "effective-size",
            "warning",
            f"the effective sample size should be {LEAST_EFFECTIVE:.0%} of the rows",
            f"{effective:,.0f} of {n:,}; the smallest propensity is "
            f"{totals['least propensity']:.3g}",
            "give the least shown items more exposure; policies far from pi0 cannot be certified",
        )


def is_harmless(name: str, mapping: LogMapping) -> bool:
    """Whether a column of the mapped table may have missing values: text that is a context."""
    return name.startswith("x:") and name[2:] in mapping.categorical


def _outside(count: int, n: int) -> str:
    return f"{count:,} of {counted(n, 'row')} {plural(count, 'is', 'are')} outside"


def _in_percent(found: Summary) -> bool:
    """Whether all propensities lie in (0, 100], and most of them above 1."""
    there = found.rows - found.missing.get("propensity", 0)
    return bool(found.totals["to 100"] == there and 2 * found.totals["above one"] > there)


def _lines(bad: tuple[BadLine, ...], n: int) -> CheckFinding:
    shown = "; ".join(str(one) for one in bad[:5]) + ("; ..." if len(bad) > 5 else "")
    many = len(bad) > BAD_LINES * (n + len(bad))
    return CheckFinding(
        "lines",
        "error" if many else "warning",
        "every line must be a decision that can be read",
        f"{len(bad):,} of {counted(n + len(bad), 'line')} cannot: {shown}",
        "mend what writes them; lines left out by what was shown would bias everything",
    )


def _missing(name: str, count: int, n: int, mapping: LogMapping) -> CheckFinding:
    """Missing values: an error where a number or an id is needed."""
    column = name.partition(":")[2] or getattr(mapping, name) or name
    harmless = is_harmless(name, mapping)
    rule = f"column '{column}' must have no missing values"
    if name == "time":
        rule = f"column '{column}' must hold times that can be read"
    severity = "warning" if harmless else "error"
    more = "; they count as none of the declared values" if harmless else ""
    value = f"{count:,} of {counted(n, 'row')}{more}"
    return CheckFinding(f"missing-{column}", severity, rule, value, FILL)  # type: ignore[arg-type]
