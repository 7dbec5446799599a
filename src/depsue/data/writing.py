"""Logs and items as Parquet files, in the layout that every command reads without a mapping."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

from depsue.data.catalogue import Catalogue
from depsue.data.logs import LoggedData
from depsue.files import write_file

if TYPE_CHECKING:
    import polars as pl


def write_logs(logs: LoggedData, path: str | Path) -> None:
    """One row per decision: action, reward, propensity, x0 .. and whatever else the logs have.

    Args:
        logs: n rows.
        path: the file, written whole or not at all.
    """
    import polars as pl

    columns: dict[str, object] = {
        "action": logs.catalogue.ids[logs.action],
        "reward": logs.reward,
        "propensity": logs.propensity,
    }
    if logs.unit is not None and logs.units is not None:
        columns["unit"] = logs.units[logs.unit]
    if logs.time is not None:
        columns["time"] = logs.time
    rows = logs.contexts[logs.context]
    columns |= {f"x{j}": rows[:, j] for j in range(rows.shape[1])}
    columns |= dict(logs.columns)
    _write(pl.DataFrame(columns), path)


def write_items(catalogue: Catalogue, path: str | Path) -> None:
    """One row per item: id, novel, f0 .. for its features.

    Args:
        catalogue: the items.
        path: the file, written whole or not at all.
    """
    import polars as pl

    columns: dict[str, object] = {"id": catalogue.ids, "novel": catalogue.novel}
    if catalogue.features is not None:
        columns |= {f"f{j}": column for j, column in enumerate(catalogue.features.T)}
    _write(pl.DataFrame(columns), path)


def _write(table: pl.DataFrame, path: str | Path) -> None:
    buffer = io.BytesIO()
    table.write_parquet(buffer)
    write_file(Path(path), buffer.getvalue())
