"""Logs of several rounds as one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from depsue.data.checks import Array
from depsue.data.logs import LoggedData
from depsue.errors import DataError, require


def joined(parts: Sequence[LoggedData]) -> LoggedData:
    """The rows of all parts, one after the other; every row keeps its own propensity and round.

    Args:
        parts: logs over the same catalogue, with the same r_max and the same columns.
    """
    require(len(parts) > 0, "there must be logs to join", found="none")
    first = parts[0]
    if len(parts) == 1:
        return first
    for other in parts[1:]:
        for what in ("r_max", "columns", "unit", "time"):
            mine, theirs = _shape(first, what), _shape(other, what)
            if mine != theirs:
                raise DataError(
                    "logs that are joined must have the same r_max and the same columns",
                    column=what,
                    found=f"{mine} and {theirs}",
                    cure="read all rounds with the same settings",
                )
        require(
            other.catalogue.hash == first.catalogue.hash,
            "logs that are joined must be over the same catalogue",
            found=f"{len(first.catalogue)} and {len(other.catalogue)} actions",
            cure="keep one catalogue, with all novel actions, for the whole campaign",
        )
    starts = np.cumsum([0, *(len(part.contexts) for part in parts)])
    return LoggedData.from_arrays(
        contexts=np.concatenate([part.contexts for part in parts]),
        context_rows=np.concatenate(
            [part.context + start for part, start in zip(parts, starts, strict=False)]
        ),
        actions=np.concatenate([first.catalogue.ids[part.action] for part in parts]),
        rewards=np.concatenate([part.reward for part in parts]),
        propensities=np.concatenate([part.propensity for part in parts]),
        catalogue=first.catalogue,
        r_max=first.r_max,
        units=_joined_units(parts),
        times=None
        if first.time is None
        else np.concatenate([part.time for part in parts if part.time is not None]),
        rounds=np.concatenate([np.asarray(part.round) for part in parts]),
        columns={
            name: np.concatenate([part.columns[name] for part in parts]) for name in first.columns
        },
    )


def _joined_units(parts: Sequence[LoggedData]) -> Array | None:
    ids = [p.units[p.unit] for p in parts if p.units is not None and p.unit is not None]
    return np.concatenate(ids) if ids else None


def _shape(logs: LoggedData, what: str) -> object:
    """What must agree: the value of r_max, the names of columns, whether there are units."""
    value = getattr(logs, what)
    if what == "columns":
        return sorted(value)
    if what == "time" and value is not None:
        return "dates" if value.dtype.kind == "M" else "numbers"
    return value if what == "r_max" else "given" if value is not None else "not given"
