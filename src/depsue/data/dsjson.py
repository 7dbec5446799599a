"""VW's dsjson: one decision per line, as JSON.

Of a line these are read: `_label_cost` (reward = -cost), `_label_probability`, the action
(`_labelIndex` from 0, else `_label_Action` from 1, else the first of `a`), `Timestamp`, `EventId`,
the model that decided (`VWState.m`), and from `c` whatever is not about one action. An action is
named by its `_tag`, `id` or `i.id` in `c._multi` where it has one, else by its number, so numbers
must mean the same action on every line. As in VW, a number that is missing from `c` is 0, and text
that is missing is "".

The candidates are those of `a`, else of `c._multi`, and `p` has their probabilities. An item that
is there twice is one candidate, and its probabilities add up, also that of the item shown.

`pdrop` is the probability with which such a line was dropped. Where it is the same on all lines,
the rest is a fair sample. Where it is one number for lines with a reward and another for lines
without, the kind that was kept more often is thinned to the share of the other; else lines are
refused.

A line that cannot be read is reported by its number (`BadLine`) and skipped.
"""

from __future__ import annotations

import json
import math
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from depsue.data.folds import keys_of_ids
from depsue.data.keys import mix64
from depsue.errors import DataError, FileError, is_real, is_whole, require, short
from depsue.plural import counted

if TYPE_CHECKING:
    import polars as pl

MOST_LINES = 20_000_000
"""Lines are parsed into Python dicts, about 1 kB each: Parquet is the way for more."""
MOST_FEATURES = 1000
LONGEST = 1 << 24
"""Bytes of one line, at most."""
ROLES = ("action", "reward", "propensity", "timestamp", "event_id", "pi0_version")
THINNED = np.uint64(0x64726F70)
"""Makes the hash that thins lines another one than those that folds hang on."""


class BadLine(NamedTuple):
    """A line that could not be read.

    Args:
        file: its name.
        line: counted from 1.
        why: what is wrong with it.
    """

    file: str
    line: int
    why: str

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}: {self.why}"


@dataclass(frozen=True, eq=False)
class DecisionLines:
    """What files of dsjson hold.

    Args:
        table: a row for each decision.
        items: a row for each item: its id, and the features that lines had of it last.
        bad: lines that could not be read.
        notes: what was settled, a sentence each.
    """

    table: pl.DataFrame
    items: pl.DataFrame
    bad: tuple[BadLine, ...]
    notes: tuple[str, ...] = ()


def read_dsjson(files: Sequence[Path]) -> DecisionLines:
    """The decisions in these files as a table, and the lines that could not be read."""
    import polars as pl

    rows: list[dict[str, Any]] = []
    bad: list[BadLine] = []
    kinds: dict[str, type] = {}
    sets, pdrops, idle = _Sets(), array("d"), 0
    for file, number, line in _lines(files):
        try:
            event = _parsed(line)
            if event.get("_skipLearn") is True:
                idle += 1
                continue
            dropped = _number({"pdrop": event.get("pdrop", 0)}, "pdrop")
            if not 0 <= dropped < 1:
                raise ValueError(f"pdrop must lie in [0, 1), found {dropped:g}")
            brought = _brought(event)
            row = _row(event, brought)
        except (ValueError, RecursionError) as problem:
            bad.append(BadLine(file.name, number, str(problem)[:120]))
            continue
        for name, value in row.items():
            if value is not None and kinds.get(name) is not str:
                kinds[name] = str if isinstance(value, str) else float
        rows.append(row)
        pdrops.append(dropped)
        sets.add(brought)
        limit = f"dsjson may have {MOST_LINES:,} lines and {MOST_FEATURES:,} features at most"
        if len(rows) > MOST_LINES or len(kinds) > MOST_FEATURES + len(ROLES):
            raise FileError(limit, found=file.name, cure="convert the logs to Parquet")
    first = f"{len(bad):,} lines; the first is {bad[0]}" if bad else "no lines"
    cure = 'a line is {"_label_cost": -1, "_label_probability": 0.5, "_labelIndex": 0, "c": {...}}'
    rule = "a dsjson file must have lines that can be read"
    require(bool(rows), rule, found=first, cure=cure, error=FileError)
    names = [*ROLES, *(name for name in kinds if name not in ROLES)]
    names = [name for name in names if name in kinds]
    columns = {name: [_filled(row.get(name), kinds[name], name) for row in rows] for name in names}
    table = pl.DataFrame(columns | sets.columns())
    notes = list(sets.notes())
    if idle:
        notes.append(f"{counted(idle, 'line')} left out: _skipLearn says that nothing was shown")
    kept, note = _evenly_kept(table, np.array(pdrops))
    return DecisionLines(
        table if kept is None else table.filter(kept),
        sets.items(),
        tuple(bad),
        (*notes, *note),
    )


@dataclass(frozen=True)
class _BroughtCandidates:
    """The candidates of a line.

    Args:
        names: of the distinct items, in the order of `a`.
        shares: their probabilities; None where `p` is missing.
        features: the entries of `c._multi`, by name; {} where there are none.
        twice: names that several entries have.
    """

    names: tuple[str, ...]
    shares: tuple[float, ...] | None
    features: Mapping[str, Mapping[str, Any]]
    twice: frozenset[str]


class _Sets:
    """Adds up the candidates of all lines: ids once, and numbers in place of ids."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}
        self._features: dict[str, Mapping[str, Any]] = {}
        self._sizes, self._items, self._shares = array("q"), array("q"), array("d")
        self._without = 0

    def add(self, brought: _BroughtCandidates) -> None:
        """The candidates of one more line."""
        codes = self._codes
        self._sizes.append(len(brought.names))
        self._items.extend(codes.setdefault(name, len(codes)) for name in brought.names)
        if brought.shares is None:
            self._without += 1
        else:
            self._shares.extend(brought.shares)
        self._features.update(brought.features)

    def columns(self) -> dict[str, pl.Series]:
        """`candidates`, and `probabilities` where every line has them; {} without candidates."""
        import polars as pl
        import pyarrow as pa

        if not self._items or not all(self._sizes):
            return {}
        starts = np.concatenate([[0], np.cumsum(np.array(self._sizes))])
        parts = {"candidates": pl.Series(list(self._codes)).gather(np.array(self._items))}
        if not self._without:
            parts["probabilities"] = pl.Series(np.array(self._shares))
        return {
            name: pl.Series(name, pa.LargeListArray.from_arrays(starts, part.to_arrow()))
            for name, part in parts.items()
        }

    def notes(self) -> Iterator[str]:
        """What is not used of them, and why."""
        missing = sum(not size for size in self._sizes)
        if self._items and missing:
            yield (
                f"{counted(missing, 'line')} without a and c._multi: candidates are not read, so "
                "every item counts as one"
            )
        elif self._items and 0 < self._without < len(self._sizes):
            yield f"{counted(self._without, 'line')} without p: probabilities are not read"

    def items(self) -> pl.DataFrame:
        """A row for each item, with the features that most items have."""
        import polars as pl

        rows = [dict(_features(self._features.get(name, {}), "")) for name in self._codes]
        often = Counter(name for row in rows for name in row)
        names = [name for name, _ in often.most_common(MOST_FEATURES) if name not in ("i.id", "id")]
        kinds = {
            name: str if any(isinstance(row.get(name), str) for row in rows) else float
            for name in names
        }
        columns = {
            name: [_filled(row.get(name), kinds[name], name) for row in rows] for name in names
        }
        return pl.DataFrame({"id": pl.Series(list(self._codes), dtype=pl.String), **columns})


def _evenly_kept(table: pl.DataFrame, pdrop: Any) -> tuple[Any, list[str]]:
    """Which lines to keep so that all were kept with one probability; None for all of them."""
    if (pdrop == pdrop[0]).all():
        words = f"pdrop is {pdrop[0]:g} on all lines: what is left is a fair sample"
        return None, [words] if pdrop[0] else []
    rewarded = table["reward"].to_numpy() != 0
    values = [np.unique(pdrop[rewarded]), np.unique(pdrop[~rewarded])]
    if max(map(len, values)) > 1:
        which = "with" if len(values[0]) > 1 else "without"
        found = values[0] if len(values[0]) > 1 else values[1]
        raise DataError(
            "the share of dropped lines (pdrop) must be one number for all lines with a reward, "
            "and one for all without: else nobody knows what the rest is a sample of",
            column="pdrop",
            found=f"from {found[0]:g} to {found[-1]:g} on lines {which} a reward",
            cure="log without dropping, or with one pdrop for each of the two kinds",
        )
    kept = 1 - np.array([float(values[0][0]), float(values[1][0])])
    if "event_id" in table.columns and not table["event_id"].null_count():
        keys = keys_of_ids(np.array(table["event_id"].to_list(), dtype=object))
    else:
        keys = np.arange(len(table), dtype=np.uint64)
    chance = mix64(mix64(keys) ^ THINNED).astype(np.float64) / 2.0**64
    share = kept.min() / np.where(rewarded, kept[0], kept[1])
    mask = chance < share
    return mask, [
        f"pdrop is {1 - kept[0]:g} on lines with a reward and {1 - kept[1]:g} on others: "
        f"{counted(int((~mask).sum()), 'line')} of the kind that was kept more often left out, "
        "chosen by a hash of the event, so that all lines had the same chance to be kept"
    ]


def _lines(files: Sequence[Path]) -> Iterator[tuple[Path, int, bytes]]:
    """Every line that is not blank, with its file and number."""
    for file in files:
        try:
            with file.open("rb") as stream:
                for number, line in enumerate(iter(lambda: stream.readline(LONGEST), b""), 1):
                    if line.strip():
                        yield file, number, line
        except OSError as problem:
            raise FileError("the file must be readable", found=f"{file}: {problem}") from problem


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        event = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError:
        raise ValueError("not UTF-8") from None
    except json.JSONDecodeError as problem:
        raise ValueError(f"not JSON ({problem.msg})") from None
    if not isinstance(event, dict):
        raise ValueError("not a JSON object")
    return event


def _brought(event: Mapping[str, Any]) -> _BroughtCandidates:
    """The candidates: those of `a`, else of `c._multi`; the same item twice is one."""
    context = event.get("c")
    multi = context.get("_multi") if isinstance(context, dict) else None
    entries: list[Any] | None = multi if isinstance(multi, list) else None
    order, shares = event.get("a"), event.get("p")
    if order is None:
        numbers = list(range(len(entries or ())))
    elif isinstance(order, list) and all(is_whole(number) for number in order):
        numbers = [int(number) - 1 for number in order]
    else:
        raise ValueError(f"a must be a list of numbers of actions, found {short(order, 30)}")
    if entries is not None and any(not 0 <= number < len(entries) for number in numbers):
        raise ValueError(f"a names an action that is not among the {len(entries)} of c._multi")
    if any(number < 0 for number in numbers):
        raise ValueError("a counts actions from 1")
    named = [_name(number, entries) for number in numbers]
    if shares is not None and order is not None:
        if not isinstance(shares, list) or len(shares) != len(numbers):
            raise ValueError("p must have a probability for each action of a")
        if not all(is_real(share) and math.isfinite(float(share)) for share in shares):
            raise ValueError("p must hold numbers")
        together: dict[str, float] = dict.fromkeys(named, 0.0)
        for name, share in zip(named, shares, strict=True):
            together[name] += float(share)
        sums = tuple(together.values())
    else:
        together, sums = dict.fromkeys(named, 0.0), None
    features: dict[str, Mapping[str, Any]] = {}
    for number, name in zip(numbers, named, strict=True):
        entry = entries[number] if entries is not None else None
        if isinstance(entry, dict):
            features.setdefault(name, entry)
    twice = frozenset(name for name, times in Counter(named).items() if times > 1)
    return _BroughtCandidates(tuple(together), sums, features, twice)


def _row(event: Mapping[str, Any], brought: _BroughtCandidates) -> dict[str, Any]:
    """One line as columns; ValueError says what is missing."""
    cost, p = (_number(event, name) for name in ("_label_cost", "_label_probability"))
    context = event.get("c")
    context = context if isinstance(context, dict) else {}
    if "_slots" in context or isinstance(event.get("_outcomes"), list):
        raise ValueError(
            "slates (_slots, _outcomes) are drawn as a whole, which is not supported: fill the "
            "slots one after the other, and log the probability of one given those above"
        )
    action = _action(event, context.get("_multi"))
    if brought.names and action not in brought.names:
        raise ValueError(f"the action {short(action, 30)} is not among those of a")
    if brought.shares is not None:
        entry = dict(zip(brought.names, brought.shares, strict=True))[action]
        if action in brought.twice:  # what counts is how likely it was to be shown at all
            p = entry
    row = {"action": action, "reward": 0.0 - cost, "propensity": p}
    for name, key in (("timestamp", "Timestamp"), ("event_id", "EventId")):
        if isinstance(event.get(key), str):
            row[name] = event[key]
    state = event.get("VWState")
    if isinstance(state, dict) and isinstance(state.get("m"), str):
        row["pi0_version"] = state["m"]
    return row | dict(_features(context, "c"))


def _number(event: Mapping[str, Any], name: str) -> float:
    value = event.get(name)
    if not is_real(value) or not math.isfinite(float(value)):  # type: ignore[arg-type]
        raise ValueError(f"{name} must be a number, found {short(value, 30)}")
    return float(value)  # type: ignore[arg-type]


def _action(event: Mapping[str, Any], multi: Any) -> str:
    """The action by its tag, else by its number from 1."""
    index, number, order = (event.get(name) for name in ("_labelIndex", "_label_Action", "a"))
    first = order[0] if isinstance(order, list) and order else None
    if is_whole(index):
        place = int(index)  # type: ignore[arg-type]
    elif is_whole(number) or is_whole(first):
        place = int(number if is_whole(number) else first) - 1  # type: ignore[arg-type]
    else:
        raise ValueError("no action: _labelIndex, _label_Action or a")
    size = len(multi) if isinstance(multi, list) else None
    if place < 0 or (size is not None and place >= size):
        raise ValueError(f"action {place + 1} is not among the {size} of c._multi")
    return _name(place, multi if isinstance(multi, list) else None)


def _name(place: int, entries: Sequence[Any] | None) -> str:
    """An action by its `_tag`, `id` or `i.id`, else by its number from 1."""
    entry = entries[place] if entries is not None else None
    if isinstance(entry, dict):
        inner = entry.get("i")
        of_inner = inner.get("id") if isinstance(inner, dict) else None
        for name in (entry.get("_tag"), entry.get("id"), of_inner):
            if isinstance(name, str | int) and not isinstance(name, bool) and name != "":
                return str(name).replace("\0", "")
    return str(place + 1)


def _features(context: Mapping[str, Any], path: str) -> Iterator[tuple[str, float | str]]:
    """Numbers and texts of the shared context, by their path."""
    for key, value in context.items():
        name = f"{path}.{key}" if path else key
        if key.startswith("_"):
            continue
        if isinstance(value, dict):
            yield from _features(value, name)
        elif isinstance(value, list):
            for part in value:  # as in VW: a list of namespaces is one namespace
                if isinstance(part, dict):
                    yield from _features(part, name)
            numbers = [part for part in value if is_real(part) and math.isfinite(float(part))]
            if len(numbers) == len(value):
                yield from ((f"{name}[{k}]", float(number)) for k, number in enumerate(numbers))
        elif isinstance(value, str):
            yield name, value
        elif isinstance(value, bool) or (is_real(value) and math.isfinite(float(value))):
            yield name, float(value)


def _filled(value: Any, kind: type, name: str) -> Any:
    """A value of the column's kind; what VW leaves out is 0 or ""."""
    if value is None and name in ROLES:
        return None
    if kind is str:
        return "" if value is None else str(value)
    return 0.0 if value is None else float(value)
