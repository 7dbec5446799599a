"""The catalogue out of a Parquet, CSV, TSV or Arrow file with one row per item.

Rules settle what a file leaves open (which columns are features, which items are novel), and
`Items.notes` says what they settled. Logs are read elsewhere, through a mapping: `reading.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from depsue.data.catalogue import Catalogue
from depsue.data.checks import Mask, as_column, naming
from depsue.data.frames import flag_column
from depsue.data.tables import (
    collected,
    features_of,
    has_few_values,
    is_numeric,
    is_text,
    listed_names,
    names_in,
    require_columns,
    table_of,
    unnamed,
)
from depsue.errors import DataError, require, short

if TYPE_CHECKING:
    import polars as pl

MOST_ITEMS = 1_000_000
LABEL = "label:"
"""Begins the name of a column that is a label and no feature."""
MOST_IDENTITIES = 256
"""Without features, up to this many items get one indicator feature each. More would make a square
matrix that costs memory and teaches nothing about items never shown."""


@dataclass(frozen=True, eq=False)
class Items:
    """The catalogue from a file.

    Args:
        catalogue: the actions.
        described: True if the file has features of the items.
        notes: what the rules settled, a sentence each.
        withdrawn: (A,) which are no longer shown, from a column `withdrawn`.
    """

    catalogue: Catalogue
    described: bool
    notes: tuple[str, ...]
    withdrawn: Mask


def read_items(
    items: str | Path | Any,
    *,
    id: str | None = None,
    novel: Sequence[str] | None = None,
    logged: Any = None,
    known: Sequence[str] = (),
    labels: Sequence[str] = (),
) -> Items:
    """The catalogue: one row per item.

    Args:
        items: the file, or a polars, pandas or Arrow frame.
        id: the column of ids; None takes "id", else "action", else "item_id".
        novel: the ids of the novel items, as text; None takes the column `novel`, else the items
            that are not among `logged`; () takes none, whatever the file says.
        logged: (n,) the ids of the logged actions.
        known: names that features had before (`Catalogue.feature_names`): text columns then keep
            their values of then.
        labels: columns that declared assumptions speak of, kept as text beside the features.
    """
    require(
        novel is None or (isinstance(novel, Sequence) and not isinstance(novel, str | bytes)),
        "novel items are listed by their ids",
        found=f"{type(novel).__name__} {short(novel)}",
        cure='novel=["tea", "milk"]; None takes the column novel',
    )
    frame, path = table_of(items)
    names = names_in(frame, path)
    key = _key(names, id, path)
    table = collected(frame, names, path, MOST_ITEMS)
    ids = whole_ids(table[key])
    notes: list[str] = []
    if novel is not None and not len(novel):
        mask: Any = np.zeros(len(table), dtype=bool)
    else:
        mask = _novel(table, ids, novel, logged, notes, path)
    withdrawn = np.zeros(len(table), dtype=bool)
    if "withdrawn" in names:
        withdrawn = flag_column(table["withdrawn"], "withdrawn")
    require_columns(labels, names, path, "--assume")
    flags = (key, "novel", "withdrawn", *(name for name in names if name.startswith(LABEL)))
    others = [name for name in names if name not in flags and not unnamed(name)]
    numbers = [name for name in others if is_numeric(table[name])]
    before = {name.partition("=")[0] for name in known}
    texts = [
        name
        for name in others
        if is_text(table[name]) and (name in before if known else has_few_values(table[name]))
    ]
    unused = [name for name in others if name not in (*numbers, *texts)]
    if unused:
        notes.append(f"item columns that are not features: {listed_names(unused)}")
    features: Any = None
    called: tuple[str, ...] = ()
    if numbers or texts:
        features, called = features_of(table, [*numbers, *texts], known)
    described = features is not None
    if not described and len(table) <= MOST_IDENTITIES:
        features = np.eye(len(table), dtype=np.float32)
    if not described:
        notes.append("no features describe the items, so nothing is known of the new ones")
    with naming({"id": key}):
        texts_of = _labels(table, labels)
        catalogue = Catalogue(as_column(ids, "id"), mask, features, called, texts_of)
    return Items(catalogue, described, tuple(notes), withdrawn)


def _labels(table: pl.DataFrame, named: Sequence[str]) -> dict[str, Any]:
    """The named columns as text, and those that `write_items` wrote as labels."""
    import polars as pl

    columns = {name: name for name in named}
    columns |= {n.removeprefix(LABEL): n for n in table.columns if n.startswith(LABEL)}
    return {
        name: table[column].cast(pl.String).fill_null("").to_numpy().astype(str)
        for name, column in columns.items()
    }


def whole_ids(ids: pl.Series) -> pl.Series:
    """Ids that were written as floats, as the whole numbers that they are."""
    import polars as pl

    if not ids.dtype.is_float() or ids.null_count():
        return ids
    whole = ids.cast(pl.Int64, strict=False)
    return whole if bool((whole.cast(ids.dtype) == ids).fill_null(False).all()) else ids


def read_ids(items: str | Path | Any, id: str | None = None) -> tuple[pl.Series, Any]:
    """The ids of the items, and (A,) which are marked as novel; None without a column `novel`."""
    frame, path = table_of(items)
    names = names_in(frame, path)
    key = _key(names, id, path)
    wanted = [key, "novel"] if "novel" in names else [key]
    table = collected(frame, wanted, path, MOST_ITEMS)
    ids = whole_ids(table[key])
    return ids, flag_column(table["novel"], "novel") if "novel" in names else None


def _key(names: list[str], id: str | None, path: str | Path) -> str:
    """The column of the items' ids."""
    key = id or next((name for name in ("id", "action", "item_id") if name in names), "id")
    require_columns([key], names, path, "--id")
    return key


def _novel(
    table: pl.DataFrame, ids: Any, listed: Any, logged: Any, notes: list[str], path: str | Path
) -> Any:
    """(A,) which items are novel: by list, by column, or because they were never shown."""
    has_column = "novel" in table.columns
    require(
        listed is None or not has_column,
        "novel items come from the column novel or from a list, not from both",
        found=f"--novel, and a column 'novel' in {Path(path).name}",
        cure="drop one of them",
    )
    known = [str(id) for id in ids.to_list()]
    if listed is not None:
        for item in listed:
            if item not in known:
                raise DataError(
                    "a novel item must be in the catalogue",
                    column="novel",
                    found=short(item),
                    cure="add it to the items, or correct --novel",
                )
        mask = np.isin(np.array(known), np.array(list(listed)))
    elif has_column:
        mask = flag_column(table["novel"], "novel")
    else:
        shown = {str(id) for id in (logged.unique().to_list() if logged is not None else [])}
        mask = np.array([item not in shown for item in known])
        notes.append(f"{int(mask.sum()):,} of the items never occur in the logs: taken as novel")
    require(
        bool(mask.any()),
        "there must be a novel item to plan for",
        found=f"none of {len(mask)} items",
        cure="mark them in a column 'novel', or list them with --novel",
    )
    return mask
