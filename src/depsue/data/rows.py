"""The rules that the rows of a log keep, and the columns that only logs have."""

from __future__ import annotations

from datetime import UTC, date
from typing import TYPE_CHECKING, Any

import numpy as np

from depsue.data.checks import (
    FILL,
    Array,
    IntArray,
    as_column,
    first_bad,
    number_column,
    whole_column,
)
from depsue.errors import DataError, is_real, require, short

if TYPE_CHECKING:
    from depsue.data.logs import LoggedData


def require_rows(n: int) -> None:
    """Refuse an empty log."""
    if n == 0:
        raise DataError(
            "a log needs at least one row",
            column="action",
            found="an empty log",
            cure="check the filter or the path that produced it",
        )


def require_r_max(r_max: float) -> float:
    """The largest possible reward, which is declared and never read off the data."""
    require(
        is_real(r_max) and 0 < r_max < np.inf,
        "r_max must be declared as a positive number",
        found=short(r_max),
        cure="declare the largest possible reward, for example 1 for clicks",
    )
    return float(r_max)


def check_rows(logs: LoggedData, rounds: IntArray) -> None:
    """What must hold in every row: ranges, pointers, and no novel action in round 0."""
    reward, propensity = logs.reward, logs.propensity
    first_bad(
        ~((propensity > 0) & (propensity <= 1)),  # NaN fails too
        propensity,
        "propensities must lie in (0, 1]",
        "propensity",
        "log the probability with which the shown action was drawn; if it was never logged, it "
        "must be estimated and declared as such",
    )
    first_bad(
        ~((reward >= 0) & (reward <= logs.r_max)),
        reward,
        f"rewards must lie in [0, r_max] with r_max = {logs.r_max:g}",
        "reward",
        "declare a larger r_max, or cap and shift the rewards knowingly",
    )
    first_bad(
        (logs.action < 0) | (logs.action >= len(logs.catalogue)),
        logs.action,
        f"actions must be positions in a catalogue of {len(logs.catalogue)}",
        "action",
        "build logs with from_arrays, which takes ids",
    )
    first_bad(
        (logs.context < 0) | (logs.context >= len(logs.contexts)),
        logs.context,
        f"rows must point at one of the {len(logs.contexts):,} contexts",
        "context",
        "build logs with from_arrays, which takes contexts",
    )
    broken = np.asarray(~np.isfinite(logs.contexts).all(axis=1))
    first_bad(broken[logs.context], logs.context, "contexts must be finite", "context", FILL)
    if logs.unit is not None:
        first_bad(
            (logs.unit < 0) | (logs.unit >= len(logs.units if logs.units is not None else ())),
            logs.unit,
            "rows must point at one of the units",
            "unit",
            "build logs with from_arrays, which takes unit ids",
        )
    first_bad(
        logs.catalogue.novel[logs.action] & (rounds == 0),
        logs.action,
        "an action that is novel must not be in the logs of round 0",
        "action",
        "mark it as supported in the catalogue, or give the rows the round in which it was shown",
        show=lambda row: logs.catalogue.ids[logs.action[row]].item(),
    )


def round_column(rounds: Any) -> IntArray:
    """(n,) the deployment that produced each row."""
    cure = "count deployments from 0, the first logging policy"
    return whole_column(rounds, "round", below=2**15, cure=cure).astype(np.int16)


def time_column(times: Any) -> Array:
    """(n,) float64, or datetime64 in microseconds; times with a zone are turned into UTC."""
    array = as_column(times, "time")
    if array.dtype == object and len(array) and all(isinstance(time, date) for time in array):
        array = _naive(array)
    if array.dtype.kind == "M":
        micro = array.astype("<M8[us]")
        fine = np.datetime_data(array.dtype)[0] in ("ns", "ps", "fs", "as")
        lost = np.isnat(micro) if fine else ~(micro.astype(array.dtype) == array)
        rule = "times must be present and within datetime64[us]"
        first_bad(lost, array, rule, "time", "fill or correct them knowingly")
        return micro
    numbers = number_column(array, "time")
    finite = np.isfinite(numbers)
    first_bad(~finite, numbers, "times must be finite", "time", "fill or correct them knowingly")
    return numbers


def row_index(rows: Any, n: int) -> Any:
    """Which of n rows to take: a mask, whole numbers from 0 to n - 1, or a slice."""
    if isinstance(rows, slice):
        return rows
    array = as_column(rows, "rows")
    if array.dtype != bool:
        return whole_column(array, "rows", below=n, cure="point at rows of these logs")
    if len(array) != n:
        raise DataError(
            "a mask must have one True or False per row",
            column="rows",
            found=f"{len(array):,} for {n:,} rows",
            cure="build the mask from these logs",
        )
    return array


def _naive(times: Array) -> Array:
    """Dates and datetimes as datetime64, in UTC where they had a zone."""
    zoned = np.array([getattr(time, "tzinfo", None) is not None for time in times])
    rule = "times must all have a time zone, or none of them"
    first_bad(zoned != zoned[0], times, rule, "time", "convert the column to UTC")
    if zoned[0]:
        times = np.array([time.astimezone(UTC).replace(tzinfo=None) for time in times], dtype="O")
    return times.astype("M8[us]")
