"""A request's columns to a context: the same numbers as the logs' reader makes of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from depsue.data.checks import FloatArray
from depsue.data.mapping import LogMapping
from depsue.errors import DataError, short

LARGEST = float(np.finfo(np.float32).max)


class ContextReader:
    """Reads contexts as the mapping says: numbers in order, then 1 or 0 for each declared value.

    Args:
        mapping: of the campaign's logs.
    """

    def __init__(self, mapping: LogMapping) -> None:
        self._numeric = mapping.numeric
        self._places: dict[str, dict[str, int]] = {}
        place = len(self._numeric)
        for name, values in mapping.categorical.items():
            self._places[name] = {value: place + k for k, value in enumerate(values)}
            place += len(values)
        self._width = place
        self._segments = mapping.segments
        self.known = {*self._numeric, *self._places, *self._segments}

    def contexts(self, rows: Sequence[Mapping[str, Any]]) -> FloatArray:
        """(m, d) contexts of rows that were checked."""
        out = np.zeros((len(rows), max(self._width, 1)), dtype=np.float32)
        numeric, n = self._numeric, len(self._numeric)
        if n:
            out[:, :n] = [[row[name] for name in numeric] for row in rows]
        for name, places in self._places.items():
            for k, row in enumerate(rows):
                place = places.get(as_text(row[name]))
                if place is not None:
                    out[k, place] = 1.0
        return out

    def check(self, row: Mapping[str, Any]) -> None:
        """Refuse a row with a column missing, unknown, or of the wrong kind."""
        for name in self._numeric:
            value = row.get(name)
            number = type(value) is float or type(value) is int
            if not number or not -LARGEST <= value <= LARGEST:  # type: ignore[operator]
                raise _refused(name, row, "must be a finite number")
        for name in self._places:
            if name not in row or isinstance(row[name], float) and not math.isfinite(row[name]):
                raise _refused(name, row, "must be given; null where it is not known")
        if len(row) > len(self._numeric) + len(self._places):
            for name in row:
                if name not in self.known:
                    raise _refused(name, row, "is not one of the mapping's")
        for name in self._segments:
            if name not in row:
                raise _refused(name, row, "must be given: it tells segments apart")

    @property
    def example(self) -> dict[str, Any]:
        """A context that would be read."""
        found: dict[str, Any] = {name: 0.0 for name in self._numeric}
        for name, places in self._places.items():
            found[name] = next(iter(places), "")
        return found | {name: "" for name in self._segments if name not in found}


def as_text(value: Any) -> str:
    """Text as the logs' reader has it."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _refused(name: str, row: Mapping[str, Any], rule: str) -> DataError:
    return DataError(
        f"the context column {name} {rule}",
        column=name,
        found=short(row[name]) if name in row else "it is missing",
        cure="GET /v1/context shows a context that would be read",
    )
