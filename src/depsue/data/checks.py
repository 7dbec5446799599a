"""Checks at the door: each returns the checked array, or raises an error with the offending row.

Columns come as lists, numpy arrays, or columns of pandas, polars and Arrow. `as_array` reads them
all, without the conversions that numpy does silently (text to numbers, nulls to values). Columns of
one kind (numbers, ids, features, times) have a function each. `check_rows` holds the rows of a log
against the rules that they keep. Nothing behind the door checks again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, date
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from depsue.errors import DataError, is_real, require, short

if TYPE_CHECKING:
    from depsue.data.logs import LoggedData
    from depsue.data.requests import Candidates

FloatArray: TypeAlias = np.ndarray[Any, np.dtype[np.floating[Any]]]
IntArray: TypeAlias = np.ndarray[Any, np.dtype[np.integer[Any]]]
Mask: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]
Array: TypeAlias = np.ndarray[Any, Any]

FILL = "fill these values or remove these rows, knowingly"
LARGEST = 1e15
"""The largest size of a feature: sums of squares of 50 million such numbers stay within float32."""


def read_only(array: Any) -> Any:
    """`array` itself if it cannot be written to, else a view that cannot be written through."""
    whole = np.ascontiguousarray(array)
    if not whole.flags.writeable:
        return whole
    view = whole.view()
    view.flags.writeable = False
    return view


class Unlocked:
    """Stands for an array that cannot be written to where only writable ones are taken.

    np.asarray of it shares the array's memory. Nobody may write there.
    """

    def __init__(self, array: Array) -> None:
        self.array = array
        self.__array_interface__ = {**array.__array_interface__, "data": (array.ctypes.data, False)}


def first_bad(
    bad: Mask, values: Any, rule: str, column: str, cure: str, *, show: Any = None
) -> None:
    """Raise a DataError for the first row of `bad`, (n,) or (n, d), that has a True.

    `values` has the shape of `bad`; `show`, if there, maps the row to the value to report.
    """
    if not bad.any():
        return
    rows = np.flatnonzero(bad.any(axis=1) if bad.ndim == 2 else bad)
    row = int(rows[0])
    value = values[row]
    if bad.ndim == 2:
        place = int(bad[row].argmax())
        value = value[place]
        column = f"{column}[{place}]" if bad.shape[1] > 1 else column
    if show is not None:
        value = show(row)
    if isinstance(value, np.generic) and not isinstance(value, np.datetime64 | np.timedelta64):
        value = value.item()
    raise DataError(rule, column=column, row=row, value=value, count=len(rows), cure=cure)


@contextmanager
def naming(names: Mapping[str, str], rows: IntArray | None = None) -> Iterator[None]:
    """Report errors by the columns (and rows) of the source that the arrays were taken from."""
    try:
        yield
    except DataError as error:
        row = error.row if rows is None or error.row is None else int(rows[error.row])
        column, bracket, place = error.column.partition("[")
        raise error.moved(names.get(column, column) + bracket + place, row) from None


def as_array(values: Any, column: str) -> Array:
    """An array of `values` that has no missing ones; what cannot be read is refused."""
    try:
        missing = _nulls(values)
        array = np.asarray(np.ma.getdata(values) if np.ma.isMaskedArray(values) else values)
        if isinstance(values, list | tuple) and _mixes(values, array):
            array = np.asarray(values, dtype=object)
    except Exception as error:  # whatever a foreign __array__ raises
        array, missing = _objects(values, column, error), None
    if missing is None and array.dtype == object and array.ndim:
        missing = np.frompyfunc(_is_missing, 1, 1)(array).astype(bool)
    if missing is not None and array.ndim in (1, 2):
        first_bad(missing, array, "values must not be missing", column, FILL)
    return array


def as_column(values: Any, column: str) -> Array:
    """(n,) one value per row."""
    array = as_array(values, column)
    if array.ndim != 1:
        raise DataError(
            "the column must have one value per row",
            column=column,
            found=f"shape {array.shape}" if array.ndim else short(values),
            cure="pass a one-dimensional array",
        )
    return array


def number_column(values: Any, column: str, *, flags: bool = False) -> FloatArray:
    """(n,) float64 out of a column of numbers; with `flags`, True and False count as 1 and 0."""
    numbers = _numeric(as_column(values, column), column, flags=flags)
    with np.errstate(over="ignore"):
        return np.add(numbers, 0.0, dtype=np.float64)  # a copy, in which -0.0 became 0.0


def whole_column(values: Any, column: str, *, below: int, cure: str) -> IntArray:
    """(n,) whole numbers from 0 to `below` - 1."""
    entries = as_column(values, column)
    numbers = number_column(entries, column)
    bad = ~((numbers >= 0) & (numbers < below) & (numbers == np.floor(numbers)))
    rule = f"{column} must hold whole numbers from 0 to {below - 1}"
    first_bad(bad, entries, rule, column, cure)
    return numbers.astype(np.int64)


def same_length(column: str, length: int, n: int) -> None:
    """Refuse a column whose length is not that of the actions."""
    if length != n:
        raise DataError(
            "all columns must have the same length",
            column=column,
            found=f"{length:,} rows, while there are {n:,} actions",
            cure="pass columns of the same rows",
        )


def finite_matrix(values: Any, column: str, *, rows: int | None = None, of: str = "") -> FloatArray:
    """(m, d) float32 with finite entries; `rows`, if there, is the m expected.

    Features are float32 because networks compute in it and because logs hold many of them; rewards
    and propensities stay float64, because bounds sum millions of them.
    """
    matrix = stacked(as_array(values, column), column)
    if matrix.ndim != 2 or 0 in matrix.shape or (rows is not None and len(matrix) != rows):
        wanted = f"({rows}, d)" if rows is not None else "(rows, d)"
        raise DataError(
            f"features must be a matrix of shape {wanted}, neither of them 0",
            column=column,
            found=f"shape {matrix.shape}" + (f" for {rows} {of}" if rows is not None else ""),
            cure="pass one row of features each; a single feature x as x.reshape(-1, 1)",
        )
    numbers = _numeric(matrix, column, flags=True)
    rule = f"features must be finite, and {LARGEST:g} in size at most"
    cure = "fill, scale or clip them knowingly"
    with np.errstate(over="ignore"):
        narrow = numbers.astype(np.float32)
    first_bad(~(np.abs(narrow) <= np.float32(LARGEST)), numbers, rule, column, cure)
    narrow += np.float32(0)  # -0.0 becomes 0.0: equal contexts must have equal bits (`keys.py`)
    return narrow


def stacked(array: Array, column: str) -> Array:
    """A column of lists or arrays, all of one length, as a matrix; others as they are."""
    if array.ndim != 1 or array.dtype != object or len(array) == 0:
        return array
    if not all(isinstance(entry, list | tuple | np.ndarray) for entry in array):
        return array
    lengths = np.array([len(entry) for entry in array])
    rule = f"lists of features must have one length (row 0 has {lengths[0]})"
    first_bad(lengths != lengths[0], array, rule, column, "pad or recompute the features")
    if all(isinstance(entry, np.ndarray) and entry.ndim == 1 for entry in array):
        return as_array(np.concatenate(array.tolist()).reshape(len(array), lengths[0]), column)
    return as_array([list(entry) for entry in array], column)


def plain_ids(values: Any, column: str) -> Array:
    """(n,) ids, either all int64 or all strings (an object array)."""
    array = as_column(values, column)
    if array.dtype.kind in "UT":
        return array.astype(object)
    if array.dtype == object:
        kinds = np.array([_kind_of_id(v) for v in array])
        if (kinds == "string").all():
            nul = np.array(["\0" in v for v in array], dtype=bool)  # numpy would cut it off
            first_bad(nul, array, "ids must not contain NUL", column, "strip the character")
            return array.copy()
        bad = (kinds == "other") | (kinds != kinds[:1])
    else:
        bad = np.full(len(array), array.dtype.kind not in "fiu")
    rule = "ids must be integers or strings, all of one kind"
    first_bad(bad, array, rule, column, "cast the column to integers or to strings")
    if array.dtype == object and any(isinstance(v, float | np.floating) for v in array):
        array = array.astype(np.float64)
    if array.dtype.kind == "f":
        bad = ~((array == np.floor(array)) & (np.abs(array) < 2**53))  # NaN and inf fail too
        first_bad(bad, array, "integer ids must be whole", column, "cast the column to integers")
    elif array.dtype.kind in "uO":
        bad = np.array([not -(2**63) <= int(v) < 2**63 for v in array], dtype=bool)
        first_bad(bad, array, "integer ids must fit 64 bits", column, "use strings")
    return array.astype(np.int64)


def plain_column(values: Any, column: str) -> Array:
    """(n,) a column of any plain kind: float64 (flags count as 1 and 0), int64, or strings."""
    array = as_column(values, column)
    if array.dtype.kind in "fb":
        return number_column(array, column, flags=True)
    return plain_ids(array, column)


def _numeric(array: Array, column: str, *, flags: bool) -> Array:
    """`array` as numbers: text, decimals, complex numbers and dates are refused."""
    if array.dtype.kind in ("fiub" if flags else "fiu"):
        return array
    if array.dtype == object:
        bad = ~np.frompyfunc(lambda v: _is_number(v, flags=flags), 1, 1)(array).astype(bool)
    else:
        bad = np.ones(array.shape, dtype=bool)
    rule = "the column must hold numbers"
    first_bad(bad, array, rule, column, "cast the column to floating point")
    return array.astype(np.float64)


def _kind_of_id(value: object) -> str:
    return "string" if isinstance(value, str) else "number" if _is_number(value) else "other"


def _is_number(value: object, *, flags: bool = False) -> bool:
    if isinstance(value, bool | np.bool_):
        return flags
    if isinstance(value, int):
        return abs(value) < 2**1023
    return isinstance(value, float | np.integer | np.floating)


def _is_missing(value: Any) -> bool:
    if isinstance(value, float | np.floating):
        return bool(value != value)
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def _nulls(values: Any) -> Mask | None:
    """Which entries the values' own library calls missing; None if it has no such notion."""
    if np.ma.isMaskedArray(values):
        return np.ma.getmaskarray(values)
    library = type(values).__module__.partition(".")[0]
    if library == "pandas" and hasattr(values, "isna"):
        return np.asarray(values.isna())
    if library in ("polars", "pyarrow") and hasattr(values, "is_null"):
        return np.asarray(values.is_null())
    if library == "pyarrow" and hasattr(values, "columns"):  # a table or a batch
        return np.stack([np.asarray(part.is_null()) for part in values.columns], axis=1)
    return None


def _mixes(values: list[Any] | tuple[Any, ...], array: Array) -> bool:
    """True if numpy had to convert some of the values (1 to '1', True to 1) to make `array`."""
    return array.dtype.kind in "US" or len(set(map(type, values))) > 1


def _objects(values: Any, column: str, error: Exception) -> Array:
    """Lists that are not rectangular, as objects; refuses what numpy cannot read at all."""
    try:
        return np.asarray(list(values), dtype=object)
    except Exception:
        raise DataError(
            "the column must be something that numpy can read",
            column=column,
            found=f"{type(values).__name__} ({short(str(error))})",
            cure="pass a list, a numpy array, or a column of polars, pandas or Arrow",
        ) from error


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


def check_rows(logs: LoggedData, rounds: IntArray) -> None:
    """Refuse rows that break a rule: ranges, pointers, and no novel action in round 0."""
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
    if logs.candidates is not None:
        _check_candidates(logs, logs.candidates)
    if logs.by_pi0 is not None:
        first_bad(
            ~((logs.by_pi0 >= 0) & (logs.by_pi0 <= 1)),
            logs.by_pi0,
            "pi0's probabilities of the items that it chose must lie in [0, 1]",
            "by_pi0",
            "log the probability with which pi0 chose the item, and 0 where it did not choose",
        )
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


def _check_candidates(logs: LoggedData, candidates: Candidates) -> None:
    """Refuse candidates that are not in the catalogue, and rows whose action is no candidate."""
    same_length("candidates", len(candidates), len(logs.contexts))
    outside = (candidates.items < 0) | (candidates.items >= len(logs.catalogue))
    first_bad(
        outside,
        candidates.items,
        f"candidates must be positions in a catalogue of {len(logs.catalogue)}",
        "candidates",
        "add the items to the catalogue: an entry is enough",
    )
    first_bad(
        candidates.entry(logs.context, logs.action) < 0,
        logs.action,
        "the item that was shown must be a candidate of its request",
        "action",
        "log the candidates as the ranker saw them; where items were removed from the lists later, "
        "name the items that were kept with --kept",
        show=lambda row: logs.catalogue.ids[logs.action[row]].item(),
    )
