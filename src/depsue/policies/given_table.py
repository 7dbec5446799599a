"""A table of distributions, or of scores, by context: what a team computed beforehand.

One row per context: its context columns, and one column per item, named by the item's id; or, where
the items are many, one column of lists.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from depsue.data.catalogue import ActionCatalogue
from depsue.data.checks import FloatArray, as_array, number_column, stacked
from depsue.data.frames import feature_matrix
from depsue.data.keys import distinct_rows
from depsue.data.mapped import contexts_of
from depsue.data.mapping import LogMapping
from depsue.data.tables import (
    collected,
    is_text,
    listed_names,
    names_in,
    require_columns,
    scanned,
)
from depsue.errors import DataError, require
from depsue.policies.scores import ScoreTable

if TYPE_CHECKING:
    import polars as pl

MOST_CONTEXTS = 10_000_000
SHARE = 1e-3
"""Probabilities are divided by their sum if that changes none by more than 0.1%: rounding."""

Contexts = LogMapping | Sequence[str]


def read_table(
    path: str | Path, catalogue: ActionCatalogue, contexts: Contexts, *, column: str
) -> tuple[ScoreTable, tuple[str, ...]]:
    """The table in a file, its rows checked; and notes on what was settled by rule.

    Args:
        path: Parquet, CSV, TSV or Arrow.
        catalogue: the items.
        contexts: the context columns, or the mapping of the logs; () for all that are not items.
        column: "probabilities" or "scores": what the numbers are, and what lists are named.
    """
    frame = scanned(path)
    names = names_in(frame, path)
    named = _named(contexts)
    require_columns(named, names, path, "the mapping, or contexts=[...]")
    items = {str(one): place for place, one in enumerate(catalogue.ids.tolist())}
    lists = column in names and column not in named
    free = [name for name in names if name not in named]
    wanted = [column] if lists else [name for name in free if name in items]
    others = [name for name in free if name not in wanted]
    whole = not isinstance(contexts, LogMapping) and not named
    table = collected(frame, [*named, *(others if whole else ()), *wanted], path, MOST_CONTEXTS)
    if lists:
        values = _from_lists(table[column], catalogue, column)
    else:
        values = _from_columns(table, wanted, items, catalogue, path, column)
    if column == "probabilities":
        values = _distributions(values, catalogue)
    notes = []
    if others and whole:
        notes.append(f"contexts of the table: {listed_names(others)}")
    elif others:
        notes.append(f"columns of the table that are not read: {listed_names(others)}")
    matrix = _matrix(table, contexts, others if whole else named)
    return _one_row_per_context(matrix, values), tuple(notes)


def read_shares(
    path: str | Path, catalogue: ActionCatalogue, contexts: Contexts
) -> FloatArray | None:
    """(A,) a table by item: one row each, its id and a column `probability`; None if it is none."""
    frame = scanned(path)
    names = names_in(frame, path)
    likely = ("id", "item", "item_id", "action")
    action = (contexts.action,) if isinstance(contexts, LogMapping) else ()
    key = next((one for one in (*action, *likely) if one in names), None)
    if "probability" not in names or key is None or set(_named(contexts)) & set(names):
        return None
    table = collected(frame, [key, "probability"], path, len(catalogue) + 1)
    place = {str(one): at for at, one in enumerate(catalogue.ids.tolist())}
    ids = [str(one) for one in table[key].to_list()]
    unknown = [one for one in ids if one not in place]
    if unknown or len(set(ids)) < len(ids):
        raise DataError(
            "a table by item has one row for each item that pi0 shows",
            column=key,
            found=f"unknown: {listed_names(unknown)}" if unknown else "an id occurs twice",
            cure="take the ids of the items file, once each",
        )
    shares = np.zeros(len(catalogue))
    shares[[place[one] for one in ids]] = number_column(table["probability"], "probability")
    return np.asarray(_distributions(shares[None], catalogue)[0])


def _placed(values: FloatArray, catalogue: ActionCatalogue) -> FloatArray:
    """(m, A) out of (m, A) numbers, or out of one for each supported action; the rest is 0."""
    if values.shape[1] == len(catalogue):
        return values
    out = np.zeros((len(values), len(catalogue)))
    out[:, catalogue.supported_actions] = values
    return out


def _named(contexts: Contexts) -> list[str]:
    if isinstance(contexts, LogMapping):
        return [*contexts.numeric, *contexts.categorical]
    require(
        not isinstance(contexts, str),
        "contexts must be a list of columns",
        found=repr(contexts),
        cure=f"contexts=[{contexts!r}]",
    )
    return list(dict.fromkeys(contexts))


def _matrix(table: pl.DataFrame, contexts: Contexts, named: list[str]) -> Any:
    """(m, d) the contexts, as the logs have them."""
    import polars as pl

    if isinstance(contexts, LogMapping):
        columns = {f"x:{name}": table[name] for name in contexts.numeric}
        columns |= {f"x:{name}": table[name].cast(pl.String) for name in contexts.categorical}
        columns["rows"] = pl.Series(np.zeros(len(table)))
        return contexts_of(pl.DataFrame(columns), contexts)
    for name in named:
        if is_text(table[name]):
            raise DataError(
                "the contexts of a table must be numbers, unless a mapping says how to read text",
                column=name,
                found="text",
                cure="pass the mapping of the logs, or name the context columns",
            )
    empty = np.zeros((len(table), 1), dtype=np.float32)
    return feature_matrix({name: table[name] for name in named}) if named else empty


def _from_lists(column: Any, catalogue: ActionCatalogue, name: str) -> FloatArray:
    """(m, A) out of a column of lists."""
    values = stacked(as_array(column, name), name)
    sizes = {len(catalogue), len(catalogue.supported_actions)}
    if values.ndim != 2 or values.dtype.kind not in "fiu" or values.shape[1] not in sizes:
        raise DataError(
            "lists must have a number for each item, or for each supported item",
            column=name,
            found=f"shape {values.shape}, type {values.dtype}",
            cure=f"lists of {' or '.join(map(str, sorted(sizes)))}, in the order of the catalogue",
        )
    return _placed(np.asarray(values, dtype=np.float64), catalogue)


def _from_columns(
    table: pl.DataFrame,
    wanted: list[str],
    items: dict[str, int],
    catalogue: ActionCatalogue,
    path: str | Path,
    column: str,
) -> FloatArray:
    """(m, A) out of a column per item; new items may be left out."""
    out = np.zeros((len(table), len(catalogue)))
    for name in wanted:
        out[:, items[name]] = number_column(table[name], name)
    missing = [n for n, place in items.items() if n not in wanted and not catalogue.novel[place]]
    if missing:
        raise DataError(
            f"a table of {column} needs a column for every supported item, named by its id",
            column=missing[0],
            found=f"{len(missing):,} of them are not in {Path(path).name}",
            cure=f"write one column per item (zeros for what is never shown), or one column "
            f"'{column}' of lists",
        )
    return out


def _distributions(values: FloatArray, catalogue: ActionCatalogue) -> FloatArray:
    """(m, A) the rows, each with sum 1; refuses what pi0 cannot be."""
    new = catalogue.novel & (values != 0)
    for bad, rule, cure in (
        (~(values >= 0) | np.isinf(values), "probabilities must be >= 0", "give scores as scores:"),
        (new, "pi0 must not show a novel item", "write 0, or mark the item as not novel"),
    ):
        if bad.any():
            row, place = (int(one) for one in np.argwhere(bad)[0])
            name, value = str(catalogue.ids[place]), float(values[row, place])
            count = int(bad.any(axis=1).sum())
            raise DataError(rule, column=name, row=row, value=value, count=count, cure=cure)
    total = values.sum(axis=1)
    off = ~(np.abs(total - 1) < SHARE * total)
    if off.any():
        row, count = int(off.argmax()), int(off.sum())
        raise DataError(
            "the probabilities of a row must sum to 1",
            column="probabilities",
            row=row,
            value=f"sum {total[row]:.6g}",
            count=count,
            cure="write all digits; give scores as scores:",
        )
    return np.asarray(values / total[:, None])


def _one_row_per_context(matrix: Any, values: FloatArray) -> ScoreTable:
    """The table, with repeated contexts once; two answers for one context are refused."""
    distinct, which = distinct_rows(np.asarray(matrix, dtype=np.float32))
    _, first = np.unique(which, return_index=True)
    other = (values != values[first][which]).any(axis=1)
    if other.any():
        row = int(other.argmax())
        raise DataError(
            "a context must have one row of numbers",
            column="context",
            row=row,
            value=matrix[row].tolist(),
            count=int(other.sum()),
            cure=f"row {int(first[which[row]])} has the same context and other numbers: keep one",
        )
    return ScoreTable(distinct, values[first])
