"""Frames in memory: columns out of polars, pandas and Arrow frames and out of dicts.

`tables.py` does the same for files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from depsue.data.checks import (
    FloatArray,
    Mask,
    as_array,
    as_column,
    finite_matrix,
    first_bad,
    stacked,
)
from depsue.errors import DataError, require, short

ROLES = {
    "actions": "action",
    "rewards": "reward",
    "propensities": "propensity",
    "units": "unit",
    "times": "time",
    "decisions": "decision",
    "rounds": "round",
    "by_pi0": "by_pi0",
    "versions": "version",
}
"""An argument of `from_arrays` -> the column by which its errors speak of it."""


def rows_of_frame(
    frame: Any, context: str | Sequence[str], names: Mapping[str, str | None]
) -> tuple[dict[str, Any], dict[str, str]]:
    """The arguments of `from_arrays`; and for each of its columns, the frame's name of it.

    Args:
        frame: as for `columns_of`.
        context: the feature columns.
        names: for each argument, the frame's column; None where there is none.
    """
    features = [context] if isinstance(context, str) else list(context)
    require(
        len(features) > 0,
        "contexts need at least one feature column",
        found="none",
        cure="name the feature columns: context=[...]",
    )
    wanted = {argument: name for argument, name in names.items() if name is not None}
    columns = columns_of(frame, [*wanted.values(), *features])
    rows = {argument: columns[name] for argument, name in wanted.items()}
    rows["contexts"] = feature_matrix({name: columns[name] for name in features})
    return rows, {ROLES[argument]: name for argument, name in wanted.items()}


def columns_of(frame: Any, names: Sequence[str]) -> dict[str, Any]:
    """The named columns of a frame; other columns are not read.

    Args:
        frame: a polars frame (lazy or not), a pandas frame, an Arrow table or batch, or a dict.
        names: the columns wanted, the one that counts the rows first.
    """
    known = _names(frame)
    for name in names:
        if known.count(name) != 1:
            raise DataError(
                "the column must be in the frame, once",
                column=str(name),
                found=f"{known.count(name)} of it among {short(known)}",
                cure="name the right column",
            )
    if hasattr(frame, "collect"):
        frame = _collected(frame.select(list(dict.fromkeys(names))))
    columns = {name: frame[name] for name in names}
    lengths = {name: len(values) for name, values in columns.items() if hasattr(values, "__len__")}
    first, n = next(iter(lengths.items()), (names[0], 1))
    for name, length in lengths.items():
        if length != n:
            raise DataError(
                "all columns must have the same length",
                column=str(name),
                found=f"{length:,} rows, while '{first}' has {n:,}",
                cure="pass columns of the same rows",
            )
    if n == 0:
        raise DataError(
            "a frame needs at least one row",
            column=str(first),
            found="an empty frame",
            cure="check the filter or the path that produced it",
        )
    return columns


def feature_matrix(columns: Mapping[str, Any]) -> FloatArray:
    """(n, d) feature columns side by side; a column of lists counts as several."""
    blocks = []
    for name, values in columns.items():
        block = stacked(as_array(values, name), name)
        blocks.append(finite_matrix(block[:, None] if block.ndim == 1 else block, name))
    return np.concatenate(blocks, axis=1)


def flag_column(values: Any, column: str) -> Mask:
    """(n,) a column of True and False, or of 1 and 0."""
    array = as_column(values, column)
    bad = np.array([not isinstance(v, bool | int) or v not in (0, 1) for v in array.tolist()])
    rule = "the column must hold True and False (or 1 and 0)"
    first_bad(bad, array, rule, column, "cast it to booleans")
    return array.astype(bool)


def _names(frame: Any) -> list[Any]:
    """The names of a frame's columns."""
    library = type(frame).__module__.partition(".")[0]
    if isinstance(frame, Mapping):
        return list(frame)
    if library == "polars" and hasattr(frame, "collect_schema"):
        return list(_collected(frame, "collect_schema"))
    if library == "pandas" and hasattr(frame, "columns"):
        return list(frame.columns)
    if library == "pyarrow" and hasattr(frame, "schema"):
        return list(frame.schema.names)
    raise DataError(
        "a frame must be a polars, pandas or Arrow frame, or a dict of columns",
        column="frame",
        found=f"{type(frame).__module__}.{type(frame).__name__}",
        cure="convert it, or use from_arrays",
    )


def _collected(frame: Any, call: str = "collect") -> Any:
    """What a polars frame computes; a lazy query may fail only now."""
    try:
        return getattr(frame, call)()
    except Exception as error:
        raise DataError(
            "the lazy frame must be computable",
            column="frame",
            found=short(str(error)),
            cure="collect it first to see what fails",
        ) from error
