"""VW's dsjson: one decision per line, as JSON.

Of a line these are read: `_label_cost` (reward = -cost), `_label_probability`, the action
(`_labelIndex` from 0, else `_label_Action` from 1, else the first of `a`), `Timestamp`, `EventId`,
and from `c` whatever is not about one action. An action is named by its `_tag` or `id` in
`c._multi` where it has one, else by its number, so numbers must mean the same action on every line.
As in VW, a number that is missing from `c` is 0, and text that is missing is "".

A line that cannot be read is reported by its number (`BadLine`) and skipped.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from depsue.errors import DataError, FileError, is_real, is_whole, require, short

if TYPE_CHECKING:
    import polars as pl

MOST_LINES = 20_000_000
"""Lines are parsed into Python dicts, about 1 kB each: Parquet is the way for more."""
MOST_FEATURES = 1000
LONGEST = 1 << 24
"""Bytes of one line, at most."""
ROLES = ("action", "reward", "propensity", "timestamp", "event_id")


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


def read_dsjson(files: Sequence[Path]) -> tuple[pl.DataFrame, tuple[BadLine, ...]]:
    """The decisions in these files as a table, and the lines that could not be read."""
    import polars as pl

    rows: list[dict[str, Any]] = []
    bad: list[BadLine] = []
    kinds: dict[str, type] = {}
    dropped = 0
    for file, number, line in _lines(files):
        try:
            event = _parsed(line)
            row = _row(event)
        except (ValueError, RecursionError) as problem:
            bad.append(BadLine(file.name, number, str(problem)[:120]))
            continue
        pdrop = event.get("pdrop", 0)
        dropped += not (is_real(pdrop) and pdrop == 0)
        for name, value in row.items():
            if value is not None and kinds.get(name) is not str:
                kinds[name] = str if isinstance(value, str) else float
        rows.append(row)
        limit = f"dsjson may have {MOST_LINES:,} lines and {MOST_FEATURES:,} features at most"
        if len(rows) > MOST_LINES or len(kinds) > MOST_FEATURES + len(ROLES):
            raise FileError(limit, found=file.name, cure="convert the logs to Parquet")
    first = f"{len(bad):,} lines; the first is {bad[0]}" if bad else "no lines"
    cure = 'a line is {"_label_cost": -1, "_label_probability": 0.5, "_labelIndex": 0, "c": {...}}'
    rule = "a dsjson file must have lines that can be read"
    require(bool(rows), rule, found=first, cure=cure, error=FileError)
    if dropped:
        raise DataError(
            "lines must not have been dropped at random (pdrop > 0): the rest says too little",
            column="pdrop",
            found=f"{dropped:,} of {len(rows):,} lines",
            cure="log without dropping",
        )
    names = [*ROLES, *(name for name in kinds if name not in ROLES)]
    names = [name for name in names if name in kinds]
    columns = {name: [_filled(row.get(name), kinds[name], name) for row in rows] for name in names}
    return pl.DataFrame(columns), tuple(bad)


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


def _row(event: Mapping[str, Any]) -> dict[str, Any]:
    """One line as columns; ValueError says what is missing."""
    cost, p = (_number(event, name) for name in ("_label_cost", "_label_probability"))
    context = event.get("c")
    context = context if isinstance(context, dict) else {}
    if "_slots" in context or isinstance(event.get("_outcomes"), list):
        raise ValueError("slates (_slots, _outcomes) are not supported yet")
    row = {"action": _action(event, context.get("_multi")), "reward": 0.0 - cost, "propensity": p}
    for name, key in (("timestamp", "Timestamp"), ("event_id", "EventId")):
        if isinstance(event.get(key), str):
            row[name] = event[key]
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
    entry = multi[place] if isinstance(multi, list) else None
    name = (entry.get("_tag") or entry.get("id")) if isinstance(entry, dict) else None
    return str(name) if isinstance(name, str | int) and name != "" else str(place + 1)


def _features(context: Mapping[str, Any], path: str) -> Iterator[tuple[str, float | str]]:
    """Numbers and texts of the shared context, by their path."""
    for key, value in context.items():
        name = f"{path}.{key}"
        if key.startswith("_"):
            continue
        if isinstance(value, dict):
            yield from _features(value, name)
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
