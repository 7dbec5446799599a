"""Columns out of polars, pandas and Arrow frames, by one door."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from depsue.data.checks import FloatArray, Mask
from depsue.errors import DataError


class Frame:
    """A polars (lazy) frame, a pandas frame, an Arrow table or batch, or a dict of columns."""

    def __init__(self, frame: Any) -> None:
        self._frame = _to_polars(frame)

    def column(self, name: str) -> np.ndarray[Any, Any]:
        """(n,) one column without missing values."""
        series = self._series(name)
        if series.dtype in (pl.Categorical, pl.Enum):
            series = series.cast(pl.String)
        if series.dtype == pl.String:
            return np.asarray(series.to_list(), dtype=str)
        return series.to_numpy()

    def flags(self, name: str) -> Mask:
        """(n,) a column of True and False, or of 1 and 0."""
        series = self._series(name)
        if series.dtype.is_integer() and series.is_in([0, 1]).all():
            series = series.cast(pl.Boolean)
        if series.dtype != pl.Boolean:
            raise DataError(
                "the column must hold True and False (or 1 and 0)",
                column=name,
                found=f"column '{name}' of type {series.dtype}",
                cure="cast it to Boolean",
            )
        return series.to_numpy()

    def matrix(self, names: Sequence[str]) -> FloatArray:
        """(n, d) feature columns side by side; a list or array column counts as several."""
        if isinstance(names, str):
            names = [names]
        if not len(names):
            raise DataError(
                "contexts need at least one feature column", column="context", found="none"
            )
        parts = []
        for name in names:
            series = self._series(name)
            if not (series.dtype.is_numeric() or series.dtype == pl.Boolean or _nested(series)):
                raise DataError(
                    "feature columns must hold numbers",
                    column=name,
                    found=f"column '{name}' of type {series.dtype}",
                    cure="encode it as numbers (one-hot, say)",
                )
            parts.append(_dense(series, name))
        return np.concatenate(parts, axis=1)

    def _series(self, name: str) -> pl.Series:
        if name not in self._frame.columns:
            raise DataError(
                "the column must be in the frame",
                column=name,
                found=f"no '{name}' among {', '.join(self._frame.columns[:20])}",
                cure="name the right column",
            )
        series = self._frame[name]
        if series.null_count():
            row = int(series.is_null().arg_max() or 0)
            raise DataError(
                "values must not be missing",
                column=name,
                row=row,
                value="null",
                count=series.null_count(),
                cure="fill or remove these rows knowingly",
            )
        return series


def _nested(series: pl.Series) -> bool:
    return isinstance(series.dtype, pl.List | pl.Array)


def _dense(series: pl.Series, name: str) -> FloatArray:
    if not _nested(series):
        return series.cast(pl.Float64).to_numpy()[:, None]
    lengths = (
        series.list.len().to_numpy()
        if isinstance(series.dtype, pl.List)
        else np.full(len(series), series.dtype.size)  # type: ignore[attr-defined]
    )
    uneven = np.flatnonzero(lengths != lengths[:1])
    if len(uneven):
        raise DataError(
            f"lists of features must have one length (row 0 has {lengths[0]})",
            column=name,
            row=int(uneven[0]),
            value=f"length {lengths[uneven[0]]}",
            count=len(uneven),
            cure="pad or recompute the features",
        )
    return np.asarray(series.to_list(), dtype=np.float64).reshape(len(series), -1)


def _to_polars(frame: Any) -> pl.DataFrame:
    if isinstance(frame, pl.LazyFrame):
        return frame.collect()
    if isinstance(frame, pl.DataFrame):
        return frame
    library = type(frame).__module__.split(".")[0]
    if library == "pandas":
        from_pandas: pl.DataFrame = pl.from_pandas(frame)
        return from_pandas
    if library == "pyarrow":
        table = pl.from_arrow(frame)
        return table if isinstance(table, pl.DataFrame) else table.to_frame()
    if isinstance(frame, dict):
        return pl.DataFrame(frame)
    raise DataError(
        "a frame must be a polars, pandas or Arrow frame, or a dict of columns",
        column="frame",
        found=f"{type(frame).__module__}.{type(frame).__name__}",
        cure="convert it, or use from_arrays",
    )
