"""The rules that logs must keep, on what was counted: a finding for each rule that is broken.

`row_rules` looks at lines, missing values, rewards, duplicates and units; `support_rules` at
actions and propensities; `item_rules` at the catalogue beside the logs. Each yields its findings.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from depsue.check.counting import LEAST, LogCounts, PropensityCounts
from depsue.check.report import CheckFinding, Severity
from depsue.data.checks import FILL
from depsue.data.dsjson import BadLine
from depsue.data.logs import NOT_AN_ID, ONE_ROW
from depsue.data.mapping import LogMapping
from depsue.data.reading import Source
from depsue.data.tables import listed_names
from depsue.plural import counted, plural

if TYPE_CHECKING:
    import polars as pl

FEWEST_REWARDED, FEWEST_ROWS = 20, 20
"""Rows with a reward in all, and rows of each action, that should be there."""
HEAVY_UNIT, REPEATED, BAD_LINES = 0.01, 0.001, 0.01
"""Shares above which a unit is heavy, rows are repeated, and bad lines are too many."""
NEVER_BY_CHANCE = 30.0
"""An item that should have been shown so often is missing by chance with a probability of e^-30."""
LEAST_EFFECTIVE = 0.01
"""The effective sample size should be this share of the rows."""


def row_rules(source: Source, counts: LogCounts, mapping: LogMapping) -> Iterator[CheckFinding]:
    """Lines, missing values, ids, rewards, duplicates and units."""
    if source.bad_lines:
        yield _lines(source.bad_lines, counts.rows)
    for name, count in counts.missing.items():
        yield _missing(name, count, counts.rows, mapping)
    if counts.fractional_ids:
        rule = "ids must be whole numbers or text"
        broken = counts.fractional_ids
        value = f"{counted(broken, 'row')} {plural(broken, 'is', 'are')} not"
        yield CheckFinding("action-ids", "error", rule, value, f"cast column '{mapping.action}'")
    yield from _rewards(counts, mapping)
    if counts.repeated is not None and counts.repeated > REPEATED:
        yield CheckFinding(
            "duplicates",
            "warning",
            "rows should not be repeated",
            f"{counts.repeated:.2%} of rows equal another one in all mapped columns and ids",
            "check the join that produced them, and keep each decision once",
        )
    if counts.repeated_decisions:
        value = f"{counts.repeated_decisions:.2%} of rows have the id of another"
        yield CheckFinding("decisions-repeated", "error", ONE_ROW, value, NOT_AN_ID)
    if "unit" in counts.sample.columns:
        top = counts.sample["unit"].value_counts().sort("count", "unit").tail(1)
        share = top["count"][0] / len(counts.sample)
        if share > HEAVY_UNIT and share > 10 / counts.sample["unit"].n_unique():
            yield CheckFinding(
                "unit-heavy",
                "warning",
                f"no unit should have {HEAVY_UNIT:.0%} of the rows, and ten times its part",
                f"{top['unit'][0]!r} has about {share:.1%}",
                "leave out robots, test accounts, and a default id that stands for 'not known'",
            )


def support_rules(counts: LogCounts, mapping: LogMapping) -> Iterator[CheckFinding]:
    """Actions with few rows, and propensities that are out of range or almost certain."""
    actions = counts.actions()
    rare = actions.filter(actions["count"] < FEWEST_ROWS)
    if len(actions) == 1:
        yield CheckFinding(
            "actions",
            "error",
            "there must be a choice: two actions at least",
            f"only {actions['action'][0]!r}",
            "check the column of the action",
        )
    elif len(rare):
        yield CheckFinding(
            "actions-rare",
            "warning",
            f"each action should have {FEWEST_ROWS} rows",
            f"{len(rare):,} of {counted(len(actions), 'action')} "
            f"{plural(len(rare), 'has', 'have')} fewer",
            "log more, or leave these items out of the catalogue; little can be said of them",
        )
    if counts.propensities is not None:
        yield from _propensities(counts, counts.propensities, mapping)


def candidate_rules(counts: LogCounts, mapping: LogMapping) -> Iterator[CheckFinding]:
    """Lists of candidates: what they hold, and whether the rows agree with them."""
    seen = counts.candidates
    if seen is None:
        return
    if seen.unreadable is not None:
        yield CheckFinding.of("candidates", seen.unreadable)
    broken, n = seen.broken, counts.rows

    def of(rule: str) -> str:
        rows = broken[rule]
        return f"{counted(rows.count, 'row')} of {n:,}; the first is row {rows.row:,}: {rows.value}"

    if broken["empty"].count:
        yield CheckFinding(
            "candidates-empty",
            "error",
            "every request needs a candidate",
            of("empty"),
            "leave out requests for which nothing could be shown",
        )
    if broken["repeated"].count:
        yield CheckFinding(
            "candidates-repeated",
            "error",
            "the candidates of a request must be distinct",
            of("repeated"),
            "list each item once; where pi0 has it in several places, add up its probabilities",
        )
    if broken["shown"].count:
        yield CheckFinding(
            "candidates-shown",
            "error",
            "the item that was shown must be a candidate of its request",
            of("shown"),
            f"log in '{mapping.candidates}' all that the ranker could choose from, before the "
            "choice; where items were removed from lists and logs later, name the share of "
            "decisions that was kept with --kept",
        )
    if broken["range"].count:
        yield CheckFinding(
            "probabilities-range",
            "error",
            "pi0's probabilities of the candidates must lie in [0, 1]",
            of("range"),
            "log the probability with which pi0 would show each candidate; scores are none",
        )
    if broken["sum"].count:
        yield CheckFinding(
            "probabilities-sum",
            "error",
            "pi0's probabilities of the candidates of a request must sum to 1",
            of("sum"),
            "log all candidates with their probabilities; where the rows of some items were "
            "dropped, leave them in the lists, and declare the share that was kept with --kept",
        )
    if broken["unlike"].count:
        yield CheckFinding(
            "probabilities-shown",
            "error",
            "the propensity must be pi0's logged probability of the item that was shown",
            of("unlike"),
            f"log both when the item is drawn; if another policy drew the rows, leave "
            f"'{mapping.probabilities}' out, or name its round",
        )
    yield from _removed(counts, mapping)


def _removed(counts: LogCounts, mapping: LogMapping) -> Iterator[CheckFinding]:
    """Items that pi0 should have shown often, and whose rows are not there."""
    seen = counts.candidates
    if seen is None or mapping.probabilities is None or mapping.kept < 1:
        return
    if mapping.by_pi0 is not None or (counts.rounds and counts.rounds[1] > 0):
        return
    shown = shown_ids(counts)
    often = seen.items.filter(seen.items["expected"] > NEVER_BY_CHANCE)
    table = often.filter([_text(item) not in shown for item in often["item"]]).sort(
        "expected", descending=True, maintain_order=True
    )
    if len(table):
        share = 1 - float(table["expected"].sum()) / counts.rows
        yield CheckFinding(
            "candidates-removed",
            "error",
            "an item that pi0 shows must be in the logs",
            f"{counted(len(table), 'item')} never: {listed_names(table['item'].to_list(), 3)}; by "
            f"pi0's probabilities, {table['item'][0]!r} was shown about "
            f"{table['expected'][0]:,.0f} times",
            "give the rows of all items"
            + (
                "; where they were dropped on purpose, and with them the same share of decisions "
                f"in every request, declare the rest: --kept {share:.4g}"
            )
            * (0 < share < 1),
        )


def unknown_candidates(
    ids: pl.Series, novel: Sequence[bool] | None, counts: LogCounts
) -> Iterator[CheckFinding]:
    """Candidates beside the catalogue: items that it lacks, and new ones that pi0 shows."""
    if counts.candidates is None or not len(counts.candidates.items):
        return
    import polars as pl

    table = counts.candidates.items
    known = {str(id) for id in ids}
    missing = table.filter([_text(item) not in known for item in table["item"]])
    if len(missing):
        yield CheckFinding(
            "candidates-unknown",
            "error",
            "every candidate must be in the catalogue",
            f"{counted(len(missing), 'item')} {plural(len(missing), 'is', 'are')} not: "
            f"{listed_names(missing['item'].to_list(), 5)}",
            "add them to the items: an entry is enough, new items arrive daily",
        )
    if novel is None:
        return
    new = {str(id) for id, is_new in zip(ids, novel, strict=True) if is_new}
    brought = table.filter(
        (table["expected"] > 0)
        & pl.Series([_text(item) in new for item in table["item"]], dtype=pl.Boolean)
    )
    if len(brought) and (counts.rounds is None or counts.rounds[0] == 0):
        yield CheckFinding(
            "novel-probability",
            "error",
            "a new item is one that pi0 never shows: its probability is 0",
            f"pi0 has a probability for {listed_names(brought['item'].to_list(), 5)}",
            "mark these items as not novel; what pi0 may show is not new",
        )


def item_rules(
    ids: pl.Series, novel: Sequence[bool] | None, counts: LogCounts
) -> Iterator[CheckFinding]:
    """The catalogue beside the logs: ids that repeat, are missing, or are marked wrongly.

    Args:
        ids: (A,) the ids of the items.
        novel: (A,) which are marked as novel; None without such a column.
        counts: what the logs hold.
    """
    logged = counts.actions()["action"].drop_nulls()
    listed, shown = [str(id) for id in ids], shown_ids(counts)
    if len(set(listed)) < len(listed):
        value = f"{len(listed) - len(set(listed)):,} repeat another"
        rule = "item ids must be distinct"
        yield CheckFinding("items-repeated", "error", rule, value, "keep one each")
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
        seen = sorted({id for id, new in zip(listed, novel, strict=True) if new} & shown)
        first = counts.rounds[0] if counts.rounds else None
        if seen and (first is None or first == 0):
            yield CheckFinding(
                "novel-logged",
                "error",
                "an item that is novel must not be in the logs of round 0",
                listed_names(seen, 5),
                "mark it as not novel, or name the column of the round",
            )
    if all(id in shown for id in listed) if novel is None else not any(novel):
        yield CheckFinding(
            "novel-none",
            "warning",
            "there should be a novel item to explore",
            f"all {len(listed):,} items were logged" if novel is None else "none is marked",
            "add the new items, or mark them in a column 'novel'",
        )


def shown_ids(counts: LogCounts) -> set[str]:
    """The ids of all logged actions, as text; 7.0 out of a column of floats is "7"."""
    return {_text(id) for id in counts.actions()["action"].drop_nulls().to_list()}


def may_be_missing(name: str, mapping: LogMapping) -> bool:
    """Whether a column of the mapped table may have missing values: text that is a context."""
    return name.startswith("x:") and name[2:] in mapping.categorical


def _rewards(counts: LogCounts, mapping: LogMapping) -> Iterator[CheckFinding]:
    n, rewards = counts.rows, counts.rewards
    if rewards.below_zero or rewards.above_r_max:
        yield CheckFinding(
            "reward-range",
            "error",
            f"rewards must lie in [0, r_max] with r_max = {mapping.r_max:g}",
            f"{counted(rewards.below_zero, 'row')} below 0, {rewards.above_r_max:,} above r_max; "
            f"from {rewards.least:g} to {rewards.largest:g}",
            "declare r_max in the mapping; for revenue [reward] shift (for what is below 0) and "
            "cap, which the certificate then states",
        )
    elif rewards.rewarded < FEWEST_REWARDED:
        yield CheckFinding(
            "rewards-few",
            "warning",
            f"at least {FEWEST_REWARDED} rows should have a reward",
            f"{rewards.rewarded:,} of {n:,}",
            "log more: such logs allow no more than what is certain without data",
        )
    for name, limit in mapping.other_rewards.items():
        if rewards.other_outside[name]:
            rule = f"'{name}' must lie in [0, {limit:g}], as [other_rewards] says"
            value = _outside(rewards.other_outside[name], n)
            yield CheckFinding("other-reward", "error", rule, value, "declare its largest value")


def _propensities(
    counts: LogCounts, p: PropensityCounts, mapping: LogMapping
) -> Iterator[CheckFinding]:
    n = counts.rows
    if p.outside and _in_percent(p, n - counts.missing.get("propensity", 0)):
        yield CheckFinding(
            "propensity-percent",
            "error",
            f"propensities must lie in (0, 1], and not below {LEAST:g}",
            f"{p.above_one:,} of {counted(n, 'row')} "
            f"{plural(p.above_one, 'is', 'are')} above 1, none above 100: as in per cent",
            f"divide column '{mapping.propensity}' by 100; if it holds weights 1/p, invert them",
        )
        return
    if p.outside:
        yield CheckFinding(
            "propensity-range",
            "error",
            f"propensities must lie in (0, 1], and not below {LEAST:g}",
            _outside(p.outside, n),
            "log the probability with which the shown action was drawn",
        )
    elif p.certain == n:
        yield CheckFinding(
            "deterministic",
            "error",
            "the logging policy must have drawn at random",
            "every propensity is 1",
            "log with some randomness, for example epsilon-greedy; logs of a fixed choice tell "
            "nothing of other choices",
        )
    elif p.nearly_certain > n / 2:
        yield CheckFinding(
            "nearly-deterministic",
            "warning",
            "the logging policy should draw at random in most rows",
            f"{p.nearly_certain / n:.1%} of rows have a propensity above .99",
            "explore more: little can be learned from such rows",
        )
    effective = counts.effective_rows()
    if effective is not None and effective < LEAST_EFFECTIVE * n:
        yield CheckFinding(
            "effective-size",
            "warning",
            f"the effective sample size should be {LEAST_EFFECTIVE:.0%} of the rows",
            f"{effective:,.0f} of {n:,}; the smallest propensity is {p.least:.3g}",
            "give the least shown items more exposure; policies far from pi0 cannot be certified",
        )


def _in_percent(p: PropensityCounts, present: int) -> bool:
    """Whether all propensities lie in (0, 100], and most of them above 1."""
    return p.up_to_100 == present and 2 * p.above_one > present


def _lines(bad: Sequence[BadLine], n: int) -> CheckFinding:
    shown = "; ".join(str(line) for line in bad[:5]) + ("; ..." if len(bad) > 5 else "")
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
    harmless = may_be_missing(name, mapping)
    rule = f"column '{column}' must have no missing values"
    if name == "time":
        rule = f"column '{column}' must hold times that can be read"
    more = "; they count as none of the declared values" if harmless else ""
    value = f"{count:,} of {counted(n, 'row')}{more}"
    severity: Severity = "warning" if harmless else "error"
    return CheckFinding(f"missing-{column}", severity, rule, value, FILL)


def _outside(count: int, n: int) -> str:
    return f"{count:,} of {counted(n, 'row')} {plural(count, 'is', 'are')} outside"


def _text(value: Any) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
