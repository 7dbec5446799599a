"""The whole check: map, count, test, and say what was found.

Do 1/p and the counts agree? For every action, and for all of them together.

If p is the probability of the action that was shown, and action a can be shown in every context::

    E[ 1{A = a} / p ] = 1,     so the sum of 1/p over a's rows is n, within chance

It is less where a cannot be shown in some contexts. So a sum far above n refutes the propensities;
one far below may mean that they are too large, or just that support is partial. Which actions are
looked at is settled on one half of the rows and the sums are taken over the other: an action that
was shown by luck would otherwise be counted only where luck was good.

z = (sum - n) / sqrt(sum of 1/p^2 - sum^2 / n). Above, z has a lighter tail than a normal variable
(a large 1/p enlarges the divisor too). Below it has a heavier one: an action that is hardly ever
shown in some contexts cannot be told from one that never is. So a sum below n is a note, and a
warning only where propensities do not depend on the context, as far as the rows show.

Did rewards or contexts change over time? The first half of a sample against the second.

The limits are those of `certificates.change`, which hold at every number of rows; where there are
units, each is one value. A number is compared by how often it exceeds its median, text by how often
it has each of its most frequent values.

The catalogue against the logs: which items are novel, and which logged ones it lacks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

from depsue.check.guess import guess_mapping
from depsue.check.report import CheckFinding, CheckReport
from depsue.check.rules import Summary, is_harmless, rows_rules, summarize, support_rules
from depsue.data.items import read_ids
from depsue.data.mapping import EstimatedPropensities, LogMapping
from depsue.data.reading import Source, logs_of, mapped, open_source, require_one_position
from depsue.data.tables import listed_names
from depsue.errors import DataError, DepsueError

if TYPE_CHECKING:
    import polars as pl

COUNTS_LEVEL = 0.001
"""How often correct propensities are refused, at most; half of it for all actions together."""
EVEN = 0.99
FEWEST = 20
"""Rows of an action in either half below which it is not looked at."""
TOO_LARGE = (
    "if all of these actions can be shown in every context, the propensities are too large: "
)
CURE = (
    "log the probability with which the shown item was drawn, by the policy that drew it, after "
    "all filters; keep rows of every item"
)


def calibration(
    actions: pl.DataFrame, totals: dict[str, float], notes: list[str]
) -> Iterator[CheckFinding]:
    """What refutes the propensities, and what may.

    Args:
        actions: as in `Summary`.
        totals: a dict that receives the figures of the test of all actions together.
        notes: receives what may be an error, or may not.
    """
    import polars as pl

    n = int(actions.filter("test")["count"].sum())
    chosen = actions.filter(~pl.col("test") & (pl.col("count") >= FEWEST)).select("action")
    table = actions.filter("test").join(chosen, on="action", how="semi").sort("action")
    if table.is_empty():
        return
    limit = NormalDist().inv_cdf(1 - COUNTS_LEVEL / 4 / len(table))  # both sides, over all actions
    rows = table.select("action", "count", "inverse", "square").rows()
    found = [(a, count, s, *_z(count, s, q, n, n)) for a, count, s, q in rows]
    high = [one for one in found if one[3] > limit]
    low = [one for one in found if one[4] < -limit]
    count, s, q = (sum(row[k] for row in rows) for k in (1, 2, 3))
    above, below = _z(count, s, q, n, n * len(table))
    whole = NormalDist().inv_cdf(1 - COUNTS_LEVEL / 4)
    totals |= {"n": n, "actions": len(table), "sum": s, "z": above}
    said = f"the sum of 1/p is {s:,.0f} over {n:,} rows, {s / (n * len(table)):.4f} of n x actions"
    if above > whole:
        rule = "the sum of 1/p must not exceed rows times actions"
        yield CheckFinding("propensities-sum", "error", rule, f"{said}, z = {above:+.1f}", CURE)
    if high:
        rule = "no action may be shown more often than its propensities say"
        yield CheckFinding(
            "propensities-actions", "error", rule, _listed(high, n, 3, len(table)), CURE
        )
    if low or below < -whole:
        value = _listed(low, n, 4, len(table)) if low else f"{said}, z = {below:+.1f}"
        if all(_even(*row[1:]) for row in rows):
            rule = "1/p should sum to the number of rows for each action"
            yield CheckFinding("propensities-low", "warning", rule, value, TOO_LARGE + CURE)
        else:
            notes.append(
                f"1/p sums to less than the number of rows ({value}): these actions are hardly "
                "ever shown in some contexts, or their propensities are too large"
            )


def _z(count: int, s: float, q: float, n: int, mean: float) -> tuple[float, float]:
    """z for sums above the mean, and for sums below."""
    variance = q - s * s / n
    floor = mean * (s / max(count, 1) - mean / n)
    high, low = (max(v, 1e-9 * mean * mean / n, 1e-12) for v in (variance, max(variance, floor)))
    return (s - mean) / math.sqrt(high), (s - mean) / math.sqrt(low)


def _even(count: int, s: float, q: float) -> bool:
    """Whether 1/p is almost the same in all rows."""
    return s * s >= EVEN * count * q


def _listed(found: list[tuple[object, int, float, float, float]], n: int, z: int, of: int) -> str:
    worst = max(found, key=lambda one: abs(float(one[z])))  # type: ignore[arg-type]
    return (
        f"{len(found)} of {of} actions; the worst is {worst[0]!r}: 1/p sums to {worst[2] / n:.3f} "
        f"of the rows over {worst[1]:,} rows of it, z = {worst[z]:+.1f}"
    )


CHANGE_LEVEL = 0.01
MOST_VALUES, MOST_TESTS = 4, 200
"""Values of a text column, and tests in all, at most."""


def changes(sample: pl.DataFrame, mapping: LogMapping, notes: list[str]) -> Iterator[CheckFinding]:
    """What changed from the first to the second half, in time where it is known."""
    from depsue.diagnostics.drift import FEWEST, Side, change_between

    rows = _in_order(sample, notes)
    series = list(_series(rows, mapping))
    if len(series) > MOST_TESTS:
        notes.append(f"drift was looked for in the first {MOST_TESTS} of {len(series)} values")
    series = series[:MOST_TESTS]
    half = len(rows) // 2
    ids = np.unique(rows["unit"].to_numpy(), return_inverse=True)[1] if "unit" in rows else None
    drifted = []
    for what, values in series:
        sides = [
            Side(part, np.ones(len(part)), True, 1.0, 1.0, None if ids is None else ids[place])
            for place in (slice(half), slice(half, len(rows)))
            for part in [values[place]]
        ]
        change = change_between(sides[0], sides[1], CHANGE_LEVEL / len(series) / 2)
        if change is None:
            notes.append(f"fewer than {FEWEST} values in a half: no test of drift")
            return
        if change.low > 0 or change.high < 0:
            drifted.append((what, change))
    for of_reward in (True, False):
        some = [one for one in drifted if (one[0] == "reward") == of_reward]
        if some:
            what, change = max(some, key=lambda one: max(one[1].low, -one[1].high))
            scale = mapping.r_max if of_reward else 1.0
            more = f" (and {len(some) - 1} more)" if len(some) > 1 else ""
            yield CheckFinding(
                "drift-reward" if of_reward else "drift-context",
                "warning",
                f"{'rewards' if of_reward else 'contexts'} should not change over time",
                f"{what}: mean {change.before * scale:.4g} in the first half, "
                f"{change.after * scale:.4g} in the second{more}",
                "use newer logs only, or do not declare no_drift: certificates then compare with "
                "pi0 in the same rows",
            )


def _in_order(sample: pl.DataFrame, notes: list[str]) -> pl.DataFrame:
    import polars as pl

    if "round" in sample:
        first = sample["round"].min()
        sample = sample.filter(pl.col("round") == first)
    if "time" in sample:
        return sample.sort("time", maintain_order=True)
    notes.append("no times: drift was looked for in the order of rows")
    return sample


def _series(rows: pl.DataFrame, mapping: LogMapping) -> Iterator[tuple[str, Any]]:
    """What is compared, and (n,) its values in [0, 1]."""
    yield "reward", rows["reward"].to_numpy() / mapping.r_max
    for name in mapping.numeric:
        x = rows[f"x:{name}"].to_numpy()
        above = (x > np.median(x)).astype(float)
        if above.any():
            yield f"'{name}' above its median", above
    for name in mapping.categorical:
        column = rows[f"x:{name}"].fill_null("")
        common = column.value_counts(sort=True).head(MOST_VALUES)[column.name].to_list()
        for value in common[1:] if len(common) == 2 else common:
            yield f"'{name}' = {value!r}", (column == value).to_numpy().astype(float)


def item_findings(
    path: str | Path, found: Summary, facts: dict[str, Any], id: str | None = None
) -> Iterator[CheckFinding]:
    """What does not fit; and into `facts` go the numbers of items and of novel ones."""
    try:
        ids, novel = read_ids(path, id)
    except DataError as problem:
        yield CheckFinding.of("items", problem)
        return
    logged = found.counts()["action"].drop_nulls()
    listed, shown = [str(one) for one in ids], {_text(one) for one in logged.to_list()}
    unseen = [one for one in listed if one not in shown]
    facts["items"], facts["items never logged"] = len(listed), len(unseen)
    if len(set(listed)) < len(listed):
        value = f"{len(listed) - len(set(listed)):,} repeat another"
        yield CheckFinding(
            "items-repeated", "error", "item ids must be distinct", value, "keep one each"
        )
    lost = sorted(shown - set(listed))
    if lost:
        yield CheckFinding(
            "items-missing",
            "error",
            "every logged action must be among the items",
            f"{len(lost):,} of {len(shown):,} are not: {listed_names(lost, 5)}",
            "add them to the items (marked as not novel), or correct the column of ids",
        )
    elif ids.dtype.is_numeric() != logged.dtype.is_numeric():
        yield CheckFinding(
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
            yield CheckFinding(
                "novel-logged",
                "error",
                "an item that is novel must not be in the logs of round 0",
                listed_names(seen, 5),
                "mark it as not novel, or name the column of the round",
            )
    if not (unseen if novel is None else any(novel)):
        yield CheckFinding(
            "novel-none",
            "warning",
            "there should be a novel item to explore",
            f"all {len(listed):,} items were logged" if novel is None else "none is marked",
            "add the new items, or mark them in a column 'novel'",
        )


def _text(value: Any) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


MOST_TESTED, MOST_ACTIONS = 60_000, 5_000
"""Rows that the test of m/p takes, and actions up to which it is run."""
NO_PROPENSITIES = CheckFinding(
    "propensities-none",
    "error",
    "logs need the probability with which each action was drawn",
    "no column of propensities",
    "name it in the mapping; if it was never logged, --estimate-propensities takes frequencies, "
    "which every certificate will then say",
)


def check_logs(
    logs: Source | str | Path | Any,
    items: str | Path | None = None,
    mapping: LogMapping | None = None,
    *,
    position: int | str | None = None,
    estimate: bool = False,
    id: str | None = None,
) -> CheckReport:
    """Check logs; what is wrong with them is in the report, not raised.

    Args:
        logs: an open source, the path of a file, a folder or a pattern, or a frame.
        items: the file of the catalogue, where there is one.
        mapping: which column is what; None guesses.
        position: keep this position only, whatever the mapping says.
        estimate: estimate propensities where the mapping names none.
        id: the column of the items' ids; None takes "id", else "action", else "item_id".

    Raises:
        DepsueError: a file cannot be read, or no action or reward can be guessed.
    """
    if isinstance(logs, str | Path):
        logs = open_source(logs)
    source = logs if isinstance(logs, Source) else Source.of(logs)
    notes: list[str] = []
    if mapping is None:
        mapping, said = guess_mapping(source)
        notes += said
    if position is not None:
        mapping = replace(mapping, keep_position=position)
    if estimate and mapping.propensity is None and mapping.estimated is None:
        mapping = replace(mapping, estimated=EstimatedPropensities())
    findings: list[CheckFinding] = []
    facts: dict[str, Any] = {}
    try:
        require_one_position(source, mapping)
    except DataError as problem:
        findings.append(CheckFinding.of("positions", problem))
    try:
        found = summarize(source, mapped(source, mapping), mapping)
    except DataError as problem:
        findings.append(CheckFinding.of("columns", problem))
    else:
        effective = _facts(source, found, mapping, facts)
        findings += rows_rules(source, found, mapping)
        findings += support_rules(found, mapping, effective)
        if items is not None:
            findings += item_findings(items, found, facts, id)
        findings += _propensities(found, mapping, facts, notes)
        if not _broken(found, mapping):
            findings += changes(found.sample, mapping, notes)
    findings.sort(key=lambda one: one.severity)
    return CheckReport(source.name, facts, tuple(findings), tuple(notes), mapping)


def _facts(
    source: Source, found: Summary, mapping: LogMapping, facts: dict[str, Any]
) -> float | None:
    """Fill in what the logs hold; returns the effective sample size."""
    n, totals = found.rows, found.totals
    counts = found.counts()["count"]
    facts |= {
        "files": source.files,
        "rows": n,
        "actions": len(counts),
        "rows of the rarest action": int(counts[-1]),
        "context columns": len(mapping.numeric) + len(mapping.categorical),
        "mean reward": totals["reward"] / n,
        "rows with a reward": int(totals["rewarded"]),
    }
    effective = None
    if "outside" in totals:
        s, q = (float(found.actions[name].sum()) for name in ("inverse", "square"))
        effective = s * s / q if q > 0 else None
        facts["smallest propensity"] = totals["least propensity"]
        facts["effective sample size"] = effective
        facts["propensities"] = "estimated" if mapping.estimated else "logged"
    if "first" in totals:
        facts["first time"], facts["last time"] = totals["first"], totals["last"]
    if "unit" in found.sample.columns:
        facts["rows per unit, in a sample"] = len(found.sample) / found.sample["unit"].n_unique()
    if "first round" in totals:
        facts["rounds"] = f"{totals['first round']} to {totals['last round']}"
    facts["repeated rows"] = found.repeated
    facts["missing values"] = sum(found.missing.values())
    return effective


def _propensities(
    found: Summary, mapping: LogMapping, facts: dict[str, Any], notes: list[str]
) -> Iterator[CheckFinding]:
    """Whether the propensities agree with what was shown."""
    if mapping.propensity is None and mapping.estimated is None:
        yield NO_PROPENSITIES
        return
    if mapping.estimated is not None:
        yield CheckFinding(
            "propensities-estimated",
            "warning",
            "propensities should be logged when the action is drawn",
            "they were estimated from frequencies, so they agree with the counts by construction",
            "log them from now on; until then every certificate says what it rests on",
        )
        return
    if found.totals["outside"] or "propensity" in found.missing:
        return
    totals: dict[str, float] = {}
    yield from calibration(found.actions, totals, notes)
    if totals:
        facts["sum of 1/p, of rows x actions"] = totals["sum"] / totals["n"] / totals["actions"]
        facts["its z"] = totals["z"]
    else:
        notes.append("no action has rows enough to hold 1/p against the counts")
    if _broken(found, mapping) or len(found.counts()) > MOST_ACTIONS:
        notes.append("the test of m/p (docs: propensities) was not run")
        return
    yield from _tested(found.sample, mapping, found.counts()["action"], facts, notes)


def _tested(
    sample: pl.DataFrame, mapping: LogMapping, ids: Any, facts: dict[str, Any], notes: list[str]
) -> Iterator[CheckFinding]:
    """The test that certificates rest on, on a sample of the rows."""
    from depsue.data.catalogue import ActionCatalogue
    from depsue.diagnostics.propensities import check_propensities

    try:
        rows = logs_of(sample.head(MOST_TESTED), mapping, ActionCatalogue.of(ids))
        learn, select = rows.split((0.8, 0.2), salt="check")
        report = check_propensities(learn, select)
    except DepsueError as problem:
        if len(sample) < 100:
            notes.append(f"the test of m/p was not run: {problem.rule}")
        else:
            yield CheckFinding.of("rows", problem)
        return
    facts["m/p in a sample: mean, lower bound"] = f"{report.mean:.4f}, {report.bound:.4f}"
    for sentence in report.findings:
        rule = "propensities must be those that drew the actions"
        yield CheckFinding(
            "propensities-wrong", "error", rule, sentence, "see the page on propensities: " + CURE
        )
    notes += report.notes


def _broken(found: Summary, mapping: LogMapping) -> bool:
    """Whether rows break a rule that the tests take for granted."""
    if any(not is_harmless(name, mapping) for name in found.missing):
        return True
    return bool(found.totals["low"] or found.totals["high"] or found.totals.get("broken ids"))
