"""Logs and items out of Parquet, CSV and TSV files: only the columns that are needed, bounded.

What a file leaves open is settled by rule and said in `notes`: which columns are features, which
items are novel. Text columns become one column per value where the values are few.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from depsue.data.catalogue import ActionCatalogue
from depsue.data.checks import as_column, naming
from depsue.data.frames import flag_column
from depsue.data.logs import LoggedData
from depsue.data.tables import (
    collected,
    features_of,
    has_few_values,
    is_numeric,
    is_text,
    listed_names,
    names_in,
    require_columns,
    scanned,
    tried,
    unnamed,
)
from depsue.errors import DataError, require, short

if TYPE_CHECKING:
    import polars as pl

MOST_ROWS, MOST_ITEMS = 50_000_000, 1_000_000
MOST_IDENTITIES = 256
"""So many items may stand for themselves where no features describe them."""


@dataclass(frozen=True)
class LogColumns:
    """The names of the logs' columns.

    Args:
        action, reward, propensity: one each.
        context: feature columns; a name that ends in * stands for all that begin so. Empty: all
            numeric columns that have no other role.
        unit: the column of units, or None.
    """

    action: str = "action"
    reward: str = "reward"
    propensity: str = "propensity"
    context: tuple[str, ...] = ()
    unit: str | None = None


@dataclass(frozen=True, eq=False)
class Items:
    """The catalogue from a file.

    Args:
        catalogue: the actions.
        described: True if features describe them; else each item stands for itself, or has none.
        notes: what was settled by rule, a sentence each.
    """

    catalogue: ActionCatalogue
    described: bool
    notes: tuple[str, ...]


def read_items(
    path: str | Path,
    *,
    id: str | None = None,
    novel: Sequence[str] | None = None,
    logged: Any = None,
) -> Items:
    """The catalogue: one row per item.

    Args:
        path: the file.
        id: the column of ids; None takes "id", else "action", else "item_id".
        novel: the ids of the novel items, as text; None takes the column `novel`, else the items
            that are not among `logged`.
        logged: (n,) the ids of the logged actions.
    """
    frame = scanned(path)
    names = names_in(frame, path)
    key = _key(names, id, path)
    table = collected(frame, names, path, MOST_ITEMS)
    ids = table[key]
    notes: list[str] = []
    mask = _novel(table, ids, novel, logged, notes, path)
    others = [name for name in names if name not in (key, "novel") and not unnamed(name)]
    kept = [name for name in others if is_numeric(table[name])]
    few = [name for name in others if is_text(table[name]) and has_few_values(table[name])]
    left = [name for name in others if name not in (*kept, *few)]
    if left:
        notes.append(f"item columns that are not features: {listed_names(left)}")
    features: Any = features_of(table, [*kept, *few]) if kept or few else None
    described = features is not None
    if not described and len(table) <= MOST_IDENTITIES:
        features = np.eye(len(table), dtype=np.float32)
    if not described:
        notes.append("no features describe the items, so nothing is known of the new ones")
    with naming({"id": key}):
        return Items(ActionCatalogue(as_column(ids, "id"), mask, features), described, tuple(notes))


def read_ids(path: str | Path, id: str | None = None) -> tuple[pl.Series, Any]:
    """The ids of the items, and (A,) which are marked as novel; None without a column `novel`."""
    frame = scanned(path)
    names = names_in(frame, path)
    key = _key(names, id, path)
    wanted = [key, "novel"] if "novel" in names else [key]
    table = collected(frame, wanted, path, MOST_ITEMS)
    return table[key], flag_column(table["novel"], "novel") if "novel" in names else None


def read_actions(path: str | Path, action: str = "action") -> Any:
    """(n,) the logged actions alone, to see which items were shown."""
    frame = scanned(path)
    require_columns([action], names_in(frame, path), path, "--action")
    return collected(frame, [action], path, MOST_ROWS)[action]


def read_logs(
    path: str | Path,
    catalogue: ActionCatalogue,
    columns: LogColumns | None = None,
    *,
    r_max: float = 1.0,
) -> tuple[LoggedData, tuple[str, ...]]:
    """The logs, one row per decision; and notes on what was settled by rule.

    Args:
        path: the file.
        catalogue: the actions.
        columns: the names of the columns.
        r_max: the largest possible reward, declared.
    """
    columns = columns or LogColumns()
    frame = scanned(path)
    names = names_in(frame, path)
    roles = [columns.action, columns.reward, columns.propensity]
    require_columns(roles, names, path, "--action, --reward, --propensity")
    if columns.unit is not None:
        require_columns([columns.unit], names, path, "--unit")
        roles.append(columns.unit)
    notes: list[str] = []
    wanted = _context_columns(columns, frame, names, roles, notes, path)
    table = collected(frame, [*dict.fromkeys([*roles, *wanted])], path, MOST_ROWS)
    if not wanted:
        notes.append("no context columns: all decisions count as alike")
        contexts: Any = np.zeros((len(table), 1), dtype=np.float32)
    else:
        contexts = features_of(table, wanted)
    sources = {"action": columns.action, "reward": columns.reward, "unit": columns.unit or "unit"}
    with naming(sources | {"propensity": columns.propensity}):
        logs = LoggedData.from_arrays(
            contexts=contexts,
            actions=table[columns.action],
            rewards=table[columns.reward],
            propensities=table[columns.propensity],
            catalogue=catalogue,
            r_max=r_max,
            units=None if columns.unit is None else table[columns.unit],
        )
    return logs, tuple(notes)


def _key(names: list[str], id: str | None, path: str | Path) -> str:
    """The column of the items' ids."""
    key = id or next((one for one in ("id", "action", "item_id") if one in names), "id")
    require_columns([key], names, path, "--id")
    return key


def _context_columns(
    columns: LogColumns,
    frame: pl.LazyFrame,
    names: list[str],
    roles: list[str],
    notes: list[str],
    path: str | Path,
) -> list[str]:
    """The feature columns: those that are named, else the numeric ones."""
    if columns.context:
        found: list[str] = []
        for pattern in columns.context:
            some = [n for n in names if n.startswith(pattern[:-1])] if pattern[-1:] == "*" else []
            require_columns([] if some else [pattern], names, path, "--context")
            found += some or [pattern]
        return [name for name in dict.fromkeys(found) if name not in roles]
    head = tried(lambda: frame.head(0).collect(), path)
    free = [name for name in names if name not in roles]
    found = [name for name in free if is_numeric(head[name]) and not unnamed(name)]
    left = [name for name in free if name not in found]
    if left:
        notes.append(
            f"log columns that are not read: {listed_names(left)} (--context can name them)"
        )
    return found


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
    text = [str(one) for one in ids.to_list()]
    if listed is not None:
        for one in listed:
            if one not in text:
                raise DataError(
                    "a novel item must be in the catalogue",
                    column="novel",
                    found=short(one),
                    cure="add it to the items, or correct --novel",
                )
        mask = np.isin(np.array(text), np.array(list(listed)))
    elif has_column:
        mask = flag_column(table["novel"], "novel")
    else:
        shown = {str(one) for one in (logged.unique().to_list() if logged is not None else [])}
        mask = np.array([one not in shown for one in text])
        notes.append(f"{int(mask.sum())} items never occur in the logs: they are taken as novel")
    require(
        bool(mask.any()),
        "there must be a novel item to plan for",
        found=f"none of {len(mask)} items",
        cure="mark them in a column 'novel', or list them with --novel",
    )
    return mask
