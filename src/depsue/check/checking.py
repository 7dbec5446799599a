"""The whole check: map, count, test, and say what was found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from depsue.check.calibration import CURE, calibration
from depsue.check.guess import guess_mapping
from depsue.check.halves import changes
from depsue.check.items import item_findings
from depsue.check.report import Finding, Report
from depsue.check.rules import is_harmless, rows_rules, support_rules
from depsue.check.summary import Summary, summarize
from depsue.data.mapped import logs_of, mapped, require_one_position
from depsue.data.mapping import Estimated, LogMapping
from depsue.data.sources import Source, open_source
from depsue.errors import DataError, DepsueError

if TYPE_CHECKING:
    import polars as pl

MOST_TESTED, MOST_ACTIONS = 60_000, 5_000
"""Rows that the test of m/p takes, and actions up to which it is run."""
NO_PROPENSITIES = Finding(
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
) -> Report:
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
        mapping = replace(mapping, estimated=Estimated())
    findings: list[Finding] = []
    facts: dict[str, Any] = {}
    try:
        require_one_position(source, mapping)
    except DataError as problem:
        findings.append(Finding.of("positions", problem))
    try:
        found = summarize(source, mapped(source, mapping), mapping)
    except DataError as problem:
        findings.append(Finding.of("columns", problem))
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
    return Report(source.name, facts, tuple(findings), tuple(notes), mapping)


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
) -> Iterator[Finding]:
    """Whether the propensities agree with what was shown."""
    if mapping.propensity is None and mapping.estimated is None:
        yield NO_PROPENSITIES
        return
    if mapping.estimated is not None:
        yield Finding(
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
) -> Iterator[Finding]:
    """The test that certificates rest on, on a sample of the rows."""
    from depsue.certificates.propensities import check_propensities
    from depsue.data.catalogue import ActionCatalogue

    try:
        rows = logs_of(sample.head(MOST_TESTED), mapping, ActionCatalogue.of(ids))
        learn, select = rows.split((0.8, 0.2), salt="check")
        report = check_propensities(learn, select)
    except DepsueError as problem:
        if len(sample) < 100:
            notes.append(f"the test of m/p was not run: {problem.rule}")
        else:
            yield Finding.of("rows", problem)
        return
    facts["m/p in a sample: mean, lower bound"] = f"{report.mean:.4f}, {report.bound:.4f}"
    for sentence in report.findings:
        rule = "propensities must be those that drew the actions"
        yield Finding(
            "propensities-wrong", "error", rule, sentence, "see the page on propensities: " + CURE
        )
    notes += report.notes


def _broken(found: Summary, mapping: LogMapping) -> bool:
    """Whether rows break a rule that the tests take for granted."""
    if any(not is_harmless(name, mapping) for name in found.missing):
        return True
    return bool(found.totals["low"] or found.totals["high"] or found.totals.get("broken ids"))
