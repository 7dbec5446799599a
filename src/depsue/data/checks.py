"""Checks at the door: each returns the checked array or says what was found and expected."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from depsue.errors import DataError

FloatArray: TypeAlias = np.ndarray[Any, np.dtype[np.floating[Any]]]
IntArray: TypeAlias = np.ndarray[Any, np.dtype[np.integer[Any]]]
Mask: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]


def read_only(array: Any) -> Any:
    """A view of `array` that cannot be written through."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view


def first_bad(
    bad: Mask, values: Any, rule: str, column: str, cure: str, *, show: Any = None
) -> None:
    """Raise a DataError for the first True of `bad` (n,), if there is one."""
    rows = np.flatnonzero(bad)
    if len(rows):
        value = show(rows[0]) if show else values[rows[0]]
        raise DataError(
            rule, column=column, row=int(rows[0]), value=value, count=len(rows), cure=cure
        )


def number_column(values: Any, column: str) -> FloatArray:
    """(n,) float64; refuses what is not a one-dimensional column of numbers."""
    array = np.asarray(values)
    if array.dtype.kind == "O" and array.ndim == 1:
        missing = np.array([v is None for v in array], dtype=bool)
        first_bad(missing, array, "values must not be missing", column, "fill or remove them")
    if array.dtype.kind not in "fiub":
        try:
            array = array.astype(np.float64)
        except (TypeError, ValueError):
            raise DataError(
                "the column must hold numbers",
                column=column,
                found=f"column '{column}' of type {array.dtype}",
                cure="cast the column to floating point",
            ) from None
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise DataError(
            "the column must have one value per row",
            column=column,
            found=f"column '{column}' of shape {array.shape}",
            cure="pass a one-dimensional array",
        )
    return array.astype(np.float64, copy=False)


def same_length(column: str, length: int, n: int) -> None:
    """Refuse a column whose length is not that of the actions."""
    if length != n:
        raise DataError(
            "all columns must have the same length",
            column=column,
            found=f"column '{column}' has {length:,} rows, 'action' has {n:,}",
            cure="pass columns of the same rows",
        )


def finite_matrix(values: Any, column: str, *, rows: int | None = None, of: str = "") -> FloatArray:
    """(m, d) float32 with finite entries; `rows`, if given, is the m expected."""
    try:
        matrix = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError(
            "features must be a matrix of numbers",
            column=column,
            cure="encode text and categories as numbers, and give every row the same length",
        ) from None
    if matrix.ndim != 2 or matrix.shape[1] == 0 or (rows is not None and len(matrix) != rows):
        wanted = f"({rows}, d)" if rows is not None else "(rows, d)"
        raise DataError(
            f"{column} must be a matrix of shape {wanted} with d >= 1",
            column=column,
            found=f"shape {matrix.shape}" + (f" for {rows} {of}" if rows is not None else ""),
            cure="pass one row of features each",
        )
    with np.errstate(over="ignore"):
        narrow = matrix.astype(np.float32)
    bad = ~np.isfinite(narrow)
    if bad.any():
        row = int(np.flatnonzero(bad.any(axis=1))[0])
        place = int(np.flatnonzero(bad[row])[0])
        raise DataError(
            "features must be finite (and within float32)",
            column=f"{column}[{place}]",
            row=row,
            value=matrix[row, place],
            count=int(bad.any(axis=1).sum()),
            cure="fill or clip the missing or huge values",
        )
    return narrow


def plain_ids(values: Any, column: str) -> np.ndarray[Any, Any]:
    """(n,) ids as int64 or as strings; refuses missing ones and mixtures."""
    array = np.asarray(values)
    if array.ndim != 1:
        raise DataError("ids must be one-dimensional", column=column, found=f"shape {array.shape}")
    if array.dtype.kind == "O":
        missing = np.array([v is None or v != v for v in array], dtype=bool)
        first_bad(missing, array, "ids must not be missing", column, "fill or remove these rows")
        if all(isinstance(v, str) for v in array):
            array = array.astype(str)
        elif all(isinstance(v, int | np.integer) and not isinstance(v, bool) for v in array):
            array = array.astype(np.int64)
    if array.dtype.kind == "f":
        bad = ~(np.isfinite(array) & (array == np.floor(array)) & (np.abs(array) < 2**53))
        first_bad(bad, array, "ids must be whole numbers or strings", column, "cast the column")
        array = array.astype(np.int64)
    if array.dtype.kind == "u" and len(array):
        first_bad(array > 2**63 - 1, array, "integer ids must be below 2^63", column, "use strings")
    if array.dtype.kind in "iu":
        return array.astype(np.int64)
    if array.dtype.kind == "U":
        return array
    raise DataError(
        "ids must be integers or strings, all of one type",
        column=column,
        found=f"column '{column}' of type {array.dtype}",
        cure="cast the column to strings",
    )


def distinct_rows(matrix: FloatArray) -> tuple[FloatArray, IntArray]:
    """The u distinct rows of an (n, d) float32 matrix, and for each row which one it is.

    Rows are compared by a 64-bit hash of their bits first (and then checked), which is several
    times faster than sorting whole rows.
    """
    matrix = np.ascontiguousarray(matrix, dtype=np.float32) + np.float32(0)  # -0.0 becomes 0.0
    _, first, which = np.unique(row_keys(matrix), return_index=True, return_inverse=True)
    if not np.array_equal(matrix[first][which], matrix):  # two rows share a hash
        _, first, which = np.unique(matrix, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first)  # in order of first appearance
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return matrix[first[order]], rank[which.reshape(-1)].astype(np.int32)


def row_keys(matrix: FloatArray) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """(m,) 64-bit hashes of the rows of an (m, d) float32 matrix."""
    bits = np.ascontiguousarray(matrix, dtype=np.float32).view(np.uint32)
    mixed = np.zeros(len(bits), dtype=np.uint64)
    for place in range(bits.shape[1]):
        mixed = mix64(mixed ^ bits[:, place])
    return mixed


def mix64(values: Any) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """splitmix64's finaliser: spreads 64-bit keys evenly (Steele et al., 2014)."""
    x = np.asarray(values, dtype=np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
