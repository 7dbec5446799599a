"""Files of tables: Parquet, CSV, TSV and Arrow are scanned lazily, and read up to a limit.

The second half turns columns into features: numbers as they are, text as one column per value.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from depsue.data.frames import feature_matrix
from depsue.errors import DataError, FileError, require, short

if TYPE_CHECKING:
    import polars as pl

KINDS = (".parquet", ".pq", ".csv", ".tsv", ".arrow", ".feather", ".ipc")
MOST_NUMBERS = 500_000_000
"""Rows times columns that are read at most: 4 GB of float64."""
MOST_VALUES = 64
"""A text column with more distinct values than this is not a feature."""
MOST_FEATURES = 1000
SMALL_CSV = 1 << 28
"""A CSV has no types. Up to this many bytes all rows decide the type of a column; beyond it the
first 100,000 rows do, because a pass over everything would take as long as reading it."""


def scanned(path: str | Path) -> pl.LazyFrame:
    """A lazy frame over one file; nothing of it is read yet."""
    file = Path(path)
    cure = "give the path of one Parquet, CSV, TSV or Arrow file"
    require(file.exists(), "the file must exist", found=file, cure=cure, error=FileError)
    require(file.is_file(), "the path must be a file", found=file, cure=cure, error=FileError)
    kind = file.suffix.lower()
    rule = f"the file must be one of {', '.join(KINDS)}"
    require(kind in KINDS, rule, found=file.name, cure="convert it to Parquet", error=FileError)
    cure = "give a file with a header and rows"
    rule = "the file must not be empty"
    require(file.stat().st_size > 0, rule, found=file, cure=cure, error=FileError)
    return scan([file], kind)


def table_of(table: Any) -> tuple[pl.LazyFrame, str | Path]:
    """(a lazy frame, what errors call it) of a path, of a frame of any library, or of columns."""
    if isinstance(table, str | Path):
        return scanned(table), table
    return frame_of(table, "the frame of items").lazy(), "the frame of items"


def frame_of(table: Any, name: str) -> pl.DataFrame:
    """A polars frame of a polars, pandas or Arrow frame, or of a dict of columns."""
    import polars as pl

    if isinstance(table, pl.LazyFrame):
        return table.collect()
    try:
        if isinstance(table, str | bytes):
            raise TypeError("text is no frame")
        return pl.DataFrame(table)
    except Exception as problem:  # whatever a foreign frame raises
        raise DataError(
            "a frame must be something that polars can read",
            column=name,
            found=short(str(problem)),
            cure="pass a path, a polars, pandas or Arrow frame, or a dict of columns",
        ) from problem


def scan(files: list[Path], kind: str) -> pl.LazyFrame:
    """A lazy frame over files of one kind, with the columns of the first; nothing is read yet."""
    import polars as pl

    if kind in (".parquet", ".pq"):
        # Months of logs are seldom written with the same integer and float widths.
        wider = pl.ScanCastOptions(integer_cast="upcast", float_cast="upcast")
        return pl.scan_parquet(files, glob=False, cast_options=wider, extra_columns="ignore")
    if kind in (".arrow", ".feather", ".ipc"):
        return pl.scan_ipc(files)
    separator = "\t" if kind == ".tsv" else ","
    small = sum(file.stat().st_size for file in files) <= SMALL_CSV
    rows = None if small else 100_000
    return pl.scan_csv(files, glob=False, separator=separator, infer_schema_length=rows)


def names_in(frame: pl.LazyFrame, path: str | Path) -> list[str]:
    """The names of the columns."""
    return list(tried(lambda: frame.collect_schema(), path))


def collected(
    frame: pl.LazyFrame, names: Sequence[str], path: str | Path, most: int
) -> pl.DataFrame:
    """The named columns in memory, if they are not too many."""
    import polars as pl

    rows = int(tried(lambda: frame.select(pl.len()).collect().item(), path))
    rule, cure = "the file must have rows", "give a file with a header and rows"
    require(rows > 0, rule, found=f"none in {path}", cure=cure, error=FileError)
    require(
        rows <= most and rows * len(names) <= MOST_NUMBERS,
        f"a file may have {most:,} rows and {MOST_NUMBERS:,} numbers at most",
        found=f"{rows:,} rows of {len(names)} columns in {path}",
        cure="take a sample of the units, or fewer columns",
        error=FileError,
    )
    table: pl.DataFrame = tried(lambda: frame.select(list(names)).collect(), path)
    return table


def tried(call: Any, path: str | Path) -> Any:
    """Return what the call returns; raise a FileError where polars cannot read the file."""
    import polars as pl

    try:
        return call()
    except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as problem:
        raise FileError(
            "the file must be readable as what its name says",
            found=f"{path}: {short(str(problem).strip(), 160)}",
            cure="check how it was written; for CSV: one header, the same columns in every row; of "
            "a folder with other files, name the one that is meant",
        ) from problem


def require_columns(wanted: Sequence[str], names: list[str], path: str | Path, how: str) -> None:
    """Refuse names that the file does not have."""
    for name in wanted:
        if name not in names:
            raise DataError(
                "the column must be in the file",
                column=name,
                found=f"{Path(path).name} has {listed_names(names)}",
                cure=f"name the right one with {how}",
            )


def features_of(
    table: pl.DataFrame, names: Sequence[str], known: Sequence[str] = ()
) -> tuple[Any, tuple[str, ...]]:
    """(n, d) float32 and the d names: numbers, lists of numbers, text as one column per value.

    Args:
        table: with the columns.
        names: of the columns.
        known: names that features had before: text then keeps its values of then, and a value that
            came since is none of them.
    """
    blocks, called = [], list[str]()
    for name in names:
        column = table[name]
        if is_text(column):
            values = [text[len(name) + 1 :] for text in known if text.startswith(f"{name}=")]
            values = values or column.drop_nulls().unique().sort().to_list()
            require_few_values(name, len(values))
            called += [f"{name}={value}" for value in values] or [f"{name}="]
            text = np.array(column.fill_null("").to_list(), dtype=object)
            blocks.append(np.stack([text == v for v in values] or [text == ""], 1))
        else:
            blocks.append(feature_matrix({name: column}))
            each = blocks[-1].shape[1]
            called += [f"{name}[{k}]" for k in range(each)] if column.dtype.is_nested() else [name]
    width = sum(block.shape[1] for block in blocks)
    require(
        width <= MOST_FEATURES and width * len(table) <= MOST_NUMBERS,
        f"there may be {MOST_FEATURES} features and {MOST_NUMBERS:,} numbers at most",
        found=f"{width} features of {len(table):,} rows",
        cure="name the columns that matter",
    )
    matrix = np.concatenate([np.asarray(block, dtype=np.float32) for block in blocks], axis=1)
    return matrix, tuple(called) if len(set(called)) == len(called) else ()


def require_few_values(column: str, values: int) -> None:
    """Refuse a text column with too many distinct values to be a feature."""
    if values > MOST_VALUES:
        raise DataError(
            f"a text column can be a feature with at most {MOST_VALUES} values",
            column=column,
            found=f"{values:,} distinct values",
            cure="leave it out, or group its values",
        )


def is_numeric(column: Any) -> bool:
    """Whether a column holds numbers, flags, or lists of numbers."""
    import polars as pl

    kind = column.dtype
    inner = getattr(kind, "inner", None)
    return bool(kind.is_numeric() or kind == pl.Boolean or (inner and inner.is_numeric()))


def is_text(column: Any) -> bool:
    """Whether a column holds text."""
    import polars as pl

    return bool(column.dtype in (pl.String, pl.Categorical, pl.Enum))


def has_few_values(column: Any) -> bool:
    """Whether a text column describes groups: two rows or more share a value on average."""
    distinct = int(column.n_unique())
    return distinct <= MOST_VALUES and 2 * distinct <= len(column)


def unnamed(name: str) -> bool:
    """The row number that some libraries write as a first column."""
    return name == "" or name.startswith("Unnamed: ")


def listed_names(names: Sequence[str], most: int = 8) -> str:
    """Names with commas, not too many."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(repr(name) for name in names[:most]) + more


def exact(name: str) -> pl.Expr:
    """The column of just this name; polars takes some names for patterns."""
    import polars.selectors as cs

    return cs.by_name(name).as_expr()
