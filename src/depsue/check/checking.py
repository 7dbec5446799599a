"""`check_logs`: map the columns, count, hold the counts against the rules, test, and report.

The rules are in `rules.py`. The tests are here, because they can be wrong by chance and the rules
cannot. There are three:

**Do 1/p and the counts agree?** If p is the probability of the action that was shown, and action a
can be shown in every context::

    E[ 1{A = a} / p ] = 1,     so the sum of 1/p over a's rows is n, within chance

It is less where a cannot be shown in some contexts. So a sum far above n refutes the propensities;
one far below may mean that they are too large, or just that support is partial. One half of the
rows says which actions are tested and the sums are taken over the other half: otherwise an action
that was shown by luck would be counted only where luck was good.

z = (sum - n) / sqrt(sum of 1/p^2 - sum^2 / n). Above, z has a lighter tail than a normal variable
(a large 1/p enlarges the divisor too). Below it has a heavier one: an action that is hardly ever
shown in some contexts cannot be told from one that never is. So a sum below n is a note, and a
warning only where propensities do not depend on the context, as far as the rows show.

**Do propensities predict what was shown?** The test of m/p that certificates rest on
(`diagnostics/propensities.py`), on a sample of the rows.

**Did rewards or contexts change over time?** The first half of the sample against the second. The
limits are those of `diagnostics/drift.py`, which hold at every number of rows; where there are
units, each is one value. A number is compared by how often it exceeds its median, text by how often
it has each of its most frequent values.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

from depsue.check.candidates import KnownItems
from depsue.check.counting import LogCounts, count_logs
from depsue.check.guess import guess_mapping, read_or_guess
from depsue.check.report import CheckFinding, CheckReport, LogFacts, Outlook
from depsue.check.rules import (
    candidate_rules,
    item_feature_rules,
    item_rules,
    may_be_missing,
    row_rules,
    shown_ids,
    support_rules,
    unknown_candidates,
    window_rules,
)
from depsue.data.catalogue import Catalogue
from depsue.data.items import read_ids
from depsue.data.mapping import EstimatedPropensities, LogMapping
from depsue.data.pages import as_pages
from depsue.data.reading import Source, logs_of, mapped, open_source, require_one_position
from depsue.errors import DataError, DepsueError
from depsue.plural import counted

if TYPE_CHECKING:
    import polars as pl

    from depsue.diagnostics import Change

COUNTS_DELTA = 0.001
"""How often correct propensities are refused, at most; half of it for all actions together."""
EVEN = 0.99
"""1/p counts as constant where (sum of 1/p)^2 is this share of count times sum of 1/p^2."""
FEWEST_TESTED = 20
"""Rows of an action in the other half below which it is not tested."""
MOST_ENTRIES = 2_000_000
"""Candidates of the rows that the test of m/p takes, at most."""
MOST_TESTED, MOST_ACTIONS = 60_000, 5_000
"""Rows that the test of m/p takes, and actions up to which it is run: it fits a model of both."""
DRIFT_DELTA = 0.01
"""How often a log without drift is warned of, at most, over all columns."""
MOST_VALUES, MOST_TESTS = 4, 200
"""Values of a text column, and tests of drift in all, at most: each test has its share of delta."""
CURE = (
    "log the probability with which the shown item was drawn, by the policy that drew it, after "
    "all filters; keep rows of every item"
)


@dataclass(frozen=True)
class CheckPart:
    """What one part of the check adds to the report.

    Args:
        findings: rules that are broken.
        notes: what could not be tested, or may be an error and may not.
        facts: fields of `LogFacts`.
        by_item: every item is always shown with the same propensity.
    """

    findings: tuple[CheckFinding, ...] = ()
    notes: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    by_item: bool = False


def check_logs(
    logs: Source | str | Path | Any,
    items: str | Path | Any | None = None,
    mapping: LogMapping | str | Path | None = None,
    *,
    position: int | str | None = None,
    estimate: bool = False,
    id: str | None = None,
) -> CheckReport:
    """Check logs; the report says what is wrong with them, and nothing is raised for it.

    Args:
        logs: an open source, the path of a file, a folder or a pattern, or a frame.
        items: the catalogue, a file or a frame, where there is one.
        mapping: which column is what, or the TOML file that says so; None guesses.
        position: keep this position only, whatever the mapping says.
        estimate: estimate propensities where the mapping names none.
        id: the column of the items' ids; None takes "id", else "action", else "item_id".

    Raises:
        DepsueError: a file cannot be read, or no action or reward can be guessed.
    """
    if isinstance(logs, str | Path):
        logs = open_source(logs)
    source = logs if isinstance(logs, Source) else Source.of(logs)
    guesses: tuple[str, ...] = ()
    if mapping is None:
        mapping, guesses = guess_mapping(source)
    elif not isinstance(mapping, LogMapping):
        mapping, guesses = read_or_guess(source, mapping)
    if position is not None:
        mapping = replace(mapping, keep_position=position)
    if estimate and mapping.propensity is None and mapping.estimated is None:
        mapping = replace(mapping, estimated=EstimatedPropensities())
    parts = list(_parts(source, mapping, items, id))
    findings = [finding for part in parts for finding in part.findings]
    facts = {name: value for part in parts for name, value in part.facts.items()}
    return CheckReport(
        source=source.name,
        facts=LogFacts(**facts),
        findings=tuple(sorted(findings, key=lambda finding: finding.severity)),
        notes=(*guesses, *source.notes, *(note for part in parts for note in part.notes)),
        mapping=mapping,
        outlook=Outlook.of(findings, mapping, any(part.by_item for part in parts)),
    )


def _parts(
    source: Source, mapping: LogMapping, items: str | Path | Any | None, id: str | None
) -> Iterator[CheckPart]:
    try:
        source = as_pages(source, mapping)
    except DataError as problem:
        yield CheckPart((CheckFinding.of("pages", problem),))
        return
    try:
        require_one_position(source, mapping)
    except DataError as problem:
        yield CheckPart((CheckFinding.of("positions", problem),))
    known: KnownItems | DataError | None = None
    if items is not None:
        try:
            known = KnownItems(*read_ids(items, id))
        except DataError as problem:
            known = problem
    try:
        listed = known if isinstance(known, KnownItems) else None
        counts = count_logs(source, mapped(source, mapping), mapping, listed)
    except DataError as problem:
        yield CheckPart((CheckFinding.of("columns", problem),))
        return
    rules = (
        *row_rules(source, counts, mapping),
        *support_rules(counts, mapping),
        *candidate_rules(counts, mapping),
        *window_rules(source, counts, mapping),
        *(item_feature_rules(items, id) if isinstance(known, KnownItems) else ()),
    )
    by_item = counts.candidates is None and counts.one_propensity_each()
    yield CheckPart(rules, _versions(counts), _facts(source, counts, mapping), by_item)
    if isinstance(known, DataError):
        yield CheckPart((CheckFinding.of("items", known),))
    elif known is not None:
        yield _items(known, counts)
    yield from _propensities(source, counts, mapping)
    yield _sample_ratio(source, mapping)
    if not _broken(counts, mapping):
        yield _drift(counts.sample, mapping)


def _facts(source: Source, counts: LogCounts, mapping: LogMapping) -> dict[str, Any]:
    """What the logs hold, as fields of `LogFacts`."""
    n, actions = counts.rows, counts.actions()["count"]
    facts: dict[str, Any] = {
        "files": source.files,
        "rows": n,
        "actions": len(actions),
        "rarest_action_rows": int(actions[-1]),
        "context_columns": len(mapping.numeric) + len(mapping.categorical),
        "mean_reward": counts.rewards.total / n,
        "rewarded_rows": counts.rewards.rewarded,
        "repeated_rows": counts.repeated,
        "missing_values": sum(counts.missing.values()),
    }
    if counts.propensities is not None:
        facts["smallest_propensity"] = counts.propensities.least
        facts["effective_sample_size"] = counts.effective_rows()
        facts["propensities"] = "estimated" if mapping.estimates else "logged"
    seen = counts.candidates
    if seen is not None and len(seen.sizes):
        low, middle, high = (int(f(seen.sizes)) for f in (np.min, np.median, np.max))
        facts["candidates"] = f"{middle:,} in the median, {low:,} to {high:,}"
        if seen.with_new is not None:
            facts["requests_with_new"] = seen.with_new / n
    if counts.versions:
        facts["versions"] = len(counts.versions)
    if counts.times is not None:
        facts["first_time"], facts["last_time"] = counts.times
    if "unit" in counts.sample.columns:
        facts["rows_per_unit"] = len(counts.sample) / counts.sample["unit"].n_unique()
    if counts.rounds is not None:
        facts["rounds"] = f"{counts.rounds[0]} to {counts.rounds[1]}"
    return facts


def _versions(counts: LogCounts) -> tuple[str, ...]:
    """A word where pi0 changed within the logs."""
    if len(counts.versions) < 2:
        return ()
    told = [
        f"{seen.version!r} ({counted(seen.rows, 'row')}"
        + (f", {seen.first} to {seen.last})" if seen.first else ")")
        for seen in counts.versions[:MOST_VALUES]
    ]
    more = len(counts.versions) - len(told)
    others = f" and {more} more" * (more > 0)
    return (
        f"pi0 changed within these logs: {', '.join(told)}{others}; a certificate names the "
        "versions that it covers",
    )


def _items(known: KnownItems, counts: LogCounts) -> CheckPart:
    """The catalogue beside the logs."""
    ids, novel = known.ids, known.novel
    shown = shown_ids(counts)
    facts: dict[str, Any] = {
        "items": len(ids),
        "items_never_logged": sum(str(id) not in shown for id in ids),
    }
    if novel is not None:
        facts["novel_items"] = int(sum(novel))
    rules = (*item_rules(ids, novel, counts), *unknown_candidates(ids, novel, counts))
    return CheckPart(rules, facts=facts)


def _propensities(source: Source, counts: LogCounts, mapping: LogMapping) -> Iterator[CheckPart]:
    """Whether the propensities agree with what was shown."""
    seen = counts.candidates
    named = seen is None or len(seen.items) > 0
    if counts.propensities is None:
        yield CheckPart((NO_PROPENSITIES,))
    elif mapping.estimated is not None:
        yield CheckPart((ESTIMATED,))
    elif not named:
        yield CheckPart(notes=(UNNAMED,))
    elif not counts.propensities.outside and "propensity" not in counts.missing:
        if mapping.simulated is not None:
            yield CheckPart((SIMULATED,))
        yield counts_test(counts.halves, None if seen is None else seen.items)
        of_places = seen is not None and mapping.given_as == "index"
        if _broken(counts, mapping) or of_places or len(counts.actions()) > MOST_ACTIONS:
            yield CheckPart(notes=("the test of m/p (docs: propensities) was not run",))
        else:
            yield _model_test(source, counts, mapping)


UNNAMED = (
    "lists of candidates hold places in the items file: give ITEMS, and they are held against the "
    "rows"
)


def _sample_ratio(source: Source, mapping: LogMapping) -> CheckPart:
    """Whether items were shown as often as they should, request by request, and since when not."""
    from depsue.diagnostics import stream_sample_ratio

    found = stream_sample_ratio(source, mapping, delta=COUNTS_DELTA)
    if found is None or found.ok:
        return CheckPart()
    rule = "items must be shown as often as pi0's probabilities of the candidates say"
    cure = f"leave these rows out; {CURE}"
    return CheckPart((CheckFinding("sample-ratio", "error", rule, str(found), cure),))


NO_PROPENSITIES = CheckFinding(
    "propensities-none",
    "error",
    "logs need the probability with which each action was drawn",
    "no column of propensities",
    "name it in the mapping; if it was never logged, --estimate-propensities takes frequencies, "
    "which every certificate will then say",
)
ESTIMATED = CheckFinding(
    "propensities-estimated",
    "warning",
    "propensities should be logged when the action is drawn",
    "they were estimated from frequencies, so they agree with the counts by construction",
    "log them from now on; until then every certificate says what it rests on",
)


SIMULATED = CheckFinding(
    "propensities-simulated",
    "warning",
    "propensities should be the probabilities with which actions were drawn",
    "they are shares of simulated draws, as the mapping says",
    "log the exact ones where your ranker has them; until then certificates are of the kind for "
    "estimated propensities, and say so",
)


def _broken(counts: LogCounts, mapping: LogMapping) -> bool:
    """Whether rows break a rule that the tests take for granted."""
    if any(not may_be_missing(name, mapping) for name in counts.missing):
        return True
    if counts.candidates is not None and any(
        broken.count for broken in counts.candidates.broken.values()
    ):
        return True
    if counts.candidates is not None and counts.candidates.unreadable is not None:
        return True
    rewards = counts.rewards
    return bool(rewards.below_zero or rewards.above_r_max or counts.fractional_ids)


@dataclass(frozen=True)
class _InverseSum:
    """1/p over some rows: their number, the sums of 1/p and 1/p^2, and the sum expected.

    Args:
        action: whose rows; None for all actions together.
    """

    action: Any
    count: int
    inverse: float
    square: float
    n: int
    expected: float

    @property
    def variance(self) -> float:
        """The variance of the sum, as the rows show it."""
        rows = self.n if self.action is None else self.expected
        return self.square - self.inverse * self.inverse / rows

    @property
    def above(self) -> float:
        """z against a sum that is too large."""
        return self._z(self.variance)

    @property
    def below(self) -> float:
        """z against a sum that is too small; rows that were not drawn may hide variance."""
        mean = self.inverse / max(self.count, 1)
        each = self.expected / self.n if self.action is None else 1.0
        return self._z(max(self.variance, self.expected * (mean - each)))

    @property
    def even(self) -> bool:
        """Whether 1/p is almost the same in all rows."""
        return self.inverse * self.inverse >= EVEN * self.count * self.square

    def _z(self, variance: float) -> float:
        variance = max(variance, 1e-9 * self.expected * self.expected / self.n, 1e-12)
        return (self.inverse - self.expected) / math.sqrt(variance)


def counts_test(halves: pl.DataFrame, candidates: pl.DataFrame | None = None) -> CheckPart:
    """Hold the sums of 1/p against the counts, for each action and for all of them together.

    Args:
        halves: as in `LogCounts`.
        candidates: the items of `CandidateCounts`: 1/p of an item sums to the rows in which it is a
            candidate. None where every item always is.
    """
    import polars as pl

    n = int(halves.filter("test")["count"].sum())
    chosen = halves.filter(~pl.col("test") & (pl.col("count") >= FEWEST_TESTED)).select("action")
    table = halves.filter("test").join(chosen, on="action", how="semi").sort("action")
    if table.is_empty():
        return CheckPart(notes=("no action has rows enough to hold 1/p against the counts",))
    rows = table.select("action", "count", "inverse", "square").rows()
    possible: dict[str, int] = {}
    if candidates is not None:
        possible = {str(item): max(int(k), 1) for item, k in candidates["item", "test"].rows()}
    sums = [
        _InverseSum(a, count, s, q, n=n, expected=possible.get(str(a), n))
        for a, count, s, q in rows
    ]
    count, inverse, square = (sum(row[k] for row in rows) for k in (1, 2, 3))
    expected = sum(a.expected for a in sums)
    total = _InverseSum(None, count, inverse, square, n=n, expected=expected)
    # Half of delta for the total, half for the actions; each half for both sides.
    limit_total = NormalDist().inv_cdf(1 - COUNTS_DELTA / 4)
    limit = NormalDist().inv_cdf(1 - COUNTS_DELTA / 4 / len(table))
    high = [a for a in sums if a.above > limit]
    low = [a for a in sums if a.below < -limit]
    ratio = inverse / expected
    times = "n x actions" if candidates is None else "their candidates"
    words = f"the sum of 1/p is {inverse:,.0f} over {n:,} rows, {ratio:.4f} of {times}"
    cure = _cure_of_too_much(sums, ratio)
    findings, notes = [], []
    if total.above > limit_total:
        rule = "the sum of 1/p must not exceed rows times actions"
        value = f"{words}, z = {total.above:+.1f}"
        findings.append(CheckFinding("propensities-sum", "error", rule, value, cure))
    if high:
        worst = max(high, key=lambda a: abs(a.above))
        value = _worst(worst, worst.above, len(high), len(table))
        rule = "no action may be shown more often than its propensities say"
        findings.append(CheckFinding("propensities-actions", "error", rule, value, cure))
    if low or total.below < -limit_total:
        value = f"{words}, z = {total.below:+.1f}"
        if low:
            worst = max(low, key=lambda a: abs(a.below))
            value = _worst(worst, worst.below, len(low), len(table))
        if all(a.even for a in sums):
            rule = "1/p should sum to the number of rows for each action"
            low_cure = (
                "if all of these actions can be shown in every context, the propensities are too "
                f"large: {CURE}"
            )
            findings.append(CheckFinding("propensities-low", "warning", rule, value, low_cure))
        else:
            notes.append(
                f"1/p sums to less than the number of rows ({value}): these actions are hardly "
                "ever shown in some contexts, or their propensities are too large"
            )
    facts = {
        "inverse_propensity_ratio": ratio,
        "inverse_propensity_z": total.above,
    }
    return CheckPart(tuple(findings), tuple(notes), facts)


def _cure_of_too_much(sums: Sequence[_InverseSum], ratio: float) -> str:
    """What to do where 1/p sums to too much: by the same factor for all actions, rows are gone."""
    alike = all(
        abs(a.inverse - ratio * a.expected) <= 4 * math.sqrt(max(a.variance, 1e-9)) for a in sums
    )
    if ratio <= 1 or not alike or len(sums) < 2:
        return CURE
    return (
        f"the same factor for every action looks as if the rows of some items, {1 - 1 / ratio:.1%} "
        "of the decisions, were left out: keep the rows of every item; if they were dropped on "
        f"purpose, and the share was the same in every context, declare --kept {1 / ratio:.4g}; "
        f"else {CURE}"
    )


def _worst(worst: _InverseSum, z: float, count: int, of: int) -> str:
    return (
        f"{count} of {of} actions; the worst is {worst.action!r}: 1/p sums to "
        f"{worst.inverse / worst.expected:.3f} of the rows over {worst.count:,} rows of it, "
        f"z = {z:+.1f}"
    )


def _model_test(source: Source, counts: LogCounts, mapping: LogMapping) -> CheckPart:
    """The test of m/p on a sample of the rows."""
    import polars as pl

    from depsue.diagnostics.propensities import check_propensities

    sample, ids = counts.sample, counts.actions()["action"]
    try:
        seen = counts.candidates
        if seen is None:
            rows = logs_of(sample.head(MOST_TESTED), mapping, Catalogue.of(ids))
        else:
            few = int(min(MOST_TESTED, MOST_ENTRIES // max(1.0, seen.sizes.mean()), counts.rows))
            frame = mapped(source, mapping)
            step = max(1, counts.rows // max(few, 1))
            chosen = frame.with_row_index("row").filter(pl.col("row").hash(2) % step == 0).head(few)
            table = source.collect(chosen.drop("row"))
            items = seen.items["item"].drop_nulls()
            rows = logs_of(table, mapping, Catalogue.of(items.sort()))
        learn, select = rows.split((0.8, 0.2), salt="check")
        report = check_propensities(learn, select)
    except DepsueError as problem:
        if len(sample) < 100:  # too few rows to test, which is no fault of theirs
            return CheckPart(notes=(f"the test of m/p was not run: {problem.rule}",))
        return CheckPart((CheckFinding.of("rows", problem),))
    rule = "propensities must be those that drew the actions"
    cure = f"see the page on propensities: {CURE}"
    return CheckPart(
        tuple(
            CheckFinding("propensities-wrong", "error", rule, sentence, cure)
            for sentence in report.findings
        ),
        tuple(report.notes),
        {"propensity_test": f"{report.mean:.4f}, {report.bound:.4f}"},
    )


def _drift(sample: pl.DataFrame, mapping: LogMapping) -> CheckPart:
    """What changed from the first to the second half, in time where it is known."""
    from depsue.diagnostics import FEWEST_TO_TEST_DRIFT, DriftSide, change_between

    notes = [] if "time" in sample else ["no times: drift was looked for in the order of rows"]
    rows = _in_order(sample)
    series = list(_series(rows, mapping))
    if len(series) > MOST_TESTS:
        notes.append(f"drift was looked for in the first {MOST_TESTS} of {len(series)} values")
    series = series[:MOST_TESTS]
    half = len(rows) // 2
    ids = np.unique(rows["unit"].to_numpy(), return_inverse=True)[1] if "unit" in rows else None
    drifted = []
    for name, values in series:
        before, after = (
            DriftSide(
                reward=values[place],
                weight=np.ones(len(values[place])),
                shared=True,
                clip=1.0,
                r_max=1.0,
                ids=None if ids is None else ids[place],
            )
            for place in (slice(half), slice(half, len(rows)))
        )
        change = change_between(before, after, DRIFT_DELTA / len(series) / 2)
        if change is None:
            notes.append(f"fewer than {FEWEST_TO_TEST_DRIFT} values in a half: no test of drift")
            return CheckPart(notes=tuple(notes))
        if change.low > 0 or change.high < 0:
            drifted.append((name, change))
    rewards = [(name, change) for name, change in drifted if name == REWARD]
    contexts = [(name, change) for name, change in drifted if name != REWARD]
    findings = [
        *_drifted(rewards, "drift-reward", "rewards", mapping.r_max),
        *_drifted(contexts, "drift-context", "contexts", 1.0),
    ]
    return CheckPart(tuple(findings), tuple(notes))


def _drifted(
    drifted: Sequence[tuple[str, Change]], name: str, what: str, scale: float
) -> Iterator[CheckFinding]:
    """A finding on the largest change, if there is one."""
    if drifted:
        series, change = max(drifted, key=lambda pair: max(pair[1].low, -pair[1].high))
        more = f" (and {len(drifted) - 1} more)" if len(drifted) > 1 else ""
        yield CheckFinding(
            name,
            "warning",
            f"{what} should not change over time",
            f"{series}: mean {change.before * scale:.4g} in the first half, "
            f"{change.after * scale:.4g} in the second{more}",
            "use newer logs only, or do not declare no_drift: certificates then compare with "
            "pi0 in the same rows",
        )


def _in_order(sample: pl.DataFrame) -> pl.DataFrame:
    """The rows of the first round, in time; a changing mix of rounds would be no drift."""
    import polars as pl

    if "round" in sample:
        first = sample["round"].min()
        sample = sample.filter(pl.col("round") == first)
    return sample.sort("time", maintain_order=True) if "time" in sample else sample


REWARD = "reward"


def _series(rows: pl.DataFrame, mapping: LogMapping) -> Iterator[tuple[str, Any]]:
    """What is compared, and (n,) its values in [0, 1]."""
    yield REWARD, rows["reward"].to_numpy() / mapping.r_max
    for name in mapping.numeric:
        x = rows[f"x:{name}"].to_numpy()
        above = (x > np.median(x)).astype(float)
        if above.any():
            yield f"'{name}' above its median", above
    for name in mapping.categorical:
        column = rows[f"x:{name}"].fill_null("")
        often = column.value_counts().sort("count", column.name, descending=[True, False])
        common = often.head(MOST_VALUES)[column.name].to_list()
        # Of two values one share says it all.
        for value in common[1:] if len(common) == 2 else common:
            yield f"'{name}' = {value!r}", (column == value).to_numpy().astype(float)
