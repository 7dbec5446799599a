"""Context columns that options name: numbers, lists of numbers, and text with its values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from depsue.data.mapped import exact
from depsue.data.tables import (
    MOST_FEATURES,
    MOST_VALUES,
    is_numeric,
    is_text,
    listed_names,
    require_columns,
)
from depsue.errors import DataError, require

if TYPE_CHECKING:
    import polars as pl

    from depsue.data.sources import Source


def matching(patterns: Sequence[str], names: list[str], file: str) -> list[str]:
    """The columns that names and prefixes stand for, each once."""
    found: list[str] = []
    for pattern in patterns:
        some = [n for n in names if n.startswith(pattern[:-1])] if pattern[-1:] == "*" else []
        require_columns([] if some else [pattern], names, file, "--context")
        found += some or [pattern]
    return list(dict.fromkeys(found))


def contexts_among(
    source: Source, head: pl.DataFrame, wanted: Sequence[str], notes: list[str]
) -> tuple[Source, tuple[str, ...], dict[str, tuple[str, ...]]]:
    """Numeric columns, lists as one column for each number; and text with its values."""
    texts = [name for name in wanted if is_text(head[name])]
    numbers = [name for name in wanted if name not in texts]
    if [*numbers, *texts] != list(wanted):
        notes.append(f"contexts are numbers, then text: {listed_names([*numbers, *texts])}")
    numeric: list[str] = []
    for name in numbers:
        if head[name].dtype.is_nested() and is_numeric(head[name]):
            source, parts = _unnested(source, head, name)
            numeric += parts
        else:
            numeric.append(name)
    categorical = {name: _values(source, name) for name in texts}
    width = len(numeric) + sum(len(values) for values in categorical.values())
    require(
        width <= MOST_FEATURES,
        f"there may be {MOST_FEATURES:,} features at most",
        found=f"{width:,} in {source.name}",
        cure="name the columns that matter with --context",
    )
    return source, tuple(numeric), categorical


def _unnested(source: Source, head: pl.DataFrame, name: str) -> tuple[Source, list[str]]:
    """The source with a column of lists as columns of numbers: name[0], name[1], ..."""
    import polars as pl

    column = exact(name).cast(pl.List(head[name].dtype.inner))  # type: ignore[attr-defined]
    length = column.list.len()
    least, most = source.collect(
        source.frame.select(length.min().alias("least"), length.max().alias("most"))
    ).row(0)
    if least != most or not most or most > MOST_FEATURES:
        raise DataError(
            f"lists of features must have one length, from 1 to {MOST_FEATURES:,}",
            column=name,
            found=f"lengths from {least} to {most}",
            cure="pad or recompute the features, or leave the column out with --context",
        )
    parts = [f"{name}[{k}]" for k in range(most)]
    columns = [column.list.get(k).alias(part) for k, part in enumerate(parts)]
    frame = source.frame.with_columns(columns)
    return replace(source, frame=frame, names=(*source.names, *parts)), parts


def _values(source: Source, name: str) -> tuple[str, ...]:
    """The distinct values of a text column, if they are few."""
    import polars as pl

    column = exact(name).cast(pl.String).drop_nulls().unique()
    values = source.collect(source.frame.select(column)).to_series().sort().to_list()
    if len(values) > MOST_VALUES:
        raise DataError(
            f"a text column can be a feature with at most {MOST_VALUES} values",
            column=name,
            found=f"{len(values):,} distinct values",
            cure="leave it out, or group its values",
        )
    return tuple(values)
