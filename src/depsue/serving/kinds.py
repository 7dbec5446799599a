"""Units and segments of requests, as the campaign's logs have them.

A column of logs has one kind: whole numbers, numbers or text. Requests are JSON, where a unit may
be 7 or "7", so each value is brought to the kind of the logs. One that cannot be is refused before
anything is drawn, and left out of exports: the reader of logs would refuse all rows with it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

from depsue.campaigns import Campaign
from depsue.data.checks import LARGEST, Mask
from depsue.data.mapping import LogMapping
from depsue.data.reading import open_source
from depsue.data.tables import KINDS
from depsue.errors import DataError, DepsueError, short

Kind = Literal["whole", "number", "text"]
LEAST_CHOSEN = 1e-6
"""The least probability of what pi0 chose itself: rows of less would outweigh all others."""
_WORDS = {"whole": "a whole number", "number": "a number"}
_WHOLE = re.compile(r"-?[0-9]{1,18}")
_decode = msgspec.json.decode


def as_text(value: Any) -> str:
    """Text as the logs' reader has it."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def kinds_of(campaign: Campaign) -> dict[str, Kind]:
    """The kinds of the unit and the segments in the campaign's first logs, if they can be read."""
    mapping = campaign.files.mapping(0)
    source = Path(campaign.source(campaign.ledger.observations(campaign.name)[0]))
    if source.suffix.lower() not in KINDS:
        return {}
    try:
        schema = open_source(source).frame.collect_schema()
    except (DepsueError, OSError):  # they were moved: requests are taken as they come
        return {}
    kinds: dict[str, Kind] = {}
    for name in (mapping.unit, *mapping.segments):
        kind = None if name is None else schema.get(name)
        if name is None or kind is None:
            continue
        if kind.is_integer():
            kinds[name] = "whole"
        elif kind.is_float():
            kinds[name] = "whole" if name == mapping.unit else "number"
        elif str(kind).startswith(("String", "Categorical", "Enum")):
            kinds[name] = "text"
    return kinds


def as_logged(value: Any, kind: Kind | None) -> bool | int | float | str | None:
    """A value of a request as a column of a kind has it; None if it cannot be there.

    Args:
        value: as JSON has it.
        kind: of the column; None where that is not known.
    """
    if value is None or (isinstance(value, str) and "\0" in value):
        return None
    if kind == "text" or kind is None:
        return as_text(value) if kind == "text" else value
    if isinstance(value, str):
        return int(value) if kind == "whole" and _WHOLE.fullmatch(value) else None
    if kind == "whole":
        fits = value == int(value) and -(2**63) <= value < 2**63
        return int(value) if fits else None
    return float(value) if abs(value) <= LARGEST else None


def check_kinds(context: Mapping[str, Any], unit: Any, mapping: LogMapping, kinds: Any) -> None:
    """Refuse a segment or a unit that cannot stand in the campaign's logs.

    Args:
        context: of a request, with every column.
        unit: of the request; None if it names none.
        mapping: of the logs.
        kinds: of their columns.
    """
    values = {name: context[name] for name in _alone(mapping)}
    if mapping.unit is not None:
        values[mapping.unit] = unit
    for name, value in values.items():
        if as_logged(value, kinds.get(name)) is None:
            kind = _WORDS.get(kinds.get(name), "given")
            raise DataError(
                f"{name} must be {kind}, without NUL, as the campaign's logs have it",
                column=name,
                found=short(value),
                cure="send the value that the logs' column would have; where a segment is not "
                "known, a value of its own, such as unknown",
            )


def _alone(mapping: LogMapping) -> list[str]:
    """Segments that are no contexts, too: these are read as contexts are."""
    contexts = {*mapping.numeric, *mapping.categorical}
    return [name for name in mapping.segments if name not in contexts]


def unreadable(
    columns: Mapping[str, Sequence[Any]], mapping: LogMapping, kinds: Mapping[str, Kind]
) -> Mask:
    """(n,) decisions that the reader of logs would refuse, or that could not be weighed.

    The service refuses such requests; earlier versions took them.

    Args:
        columns: of the decisions.
        mapping: as they are exported.
        kinds: of the logs' columns.
    """
    bad, segments = np.zeros(len(columns["id"]), dtype=bool), _alone(mapping)
    for k, text in enumerate(columns["context"]):
        row = _decode(text) if text else {}
        numbers = (row.get(name) for name in mapping.numeric)
        bad[k] = not all(
            isinstance(x, int | float) and -LARGEST <= x <= LARGEST for x in numbers
        ) or any(as_logged(row.get(name), kinds.get(name)) is None for name in segments)
    if mapping.unit is not None:
        kind = kinds.get(mapping.unit)
        units = (None if text is None else _decode(text) for text in columns["unit"])
        bad |= np.array([as_logged(unit, kind) is None for unit in units])
    if mapping.by_pi0 is not None:
        bad |= np.array([p is not None and p < LEAST_CHOSEN for p in columns["p_chosen"]])
    return bad


def logged_column(values: Sequence[Any], kind: Kind | None) -> list[Any]:
    """(n,) values of requests as one column of logs: of the logs' kind, or of one that all have."""
    column = [as_logged(value, kind) for value in values]
    kinds = {type(value) for value in column}
    return [as_text(value) for value in column] if len(kinds) > 1 and str in kinds else column
