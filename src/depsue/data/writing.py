"""Logs and items as Parquet files, in the layout that every command reads without a mapping."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

from depsue.data.catalogue import Catalogue
from depsue.data.items import LABEL
from depsue.data.logs import LoggedData
from depsue.data.reading import Source
from depsue.data.requests import Candidates
from depsue.errors import FileError, require
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
    for name, column in (("by_pi0", logs.by_pi0), ("pi0_version", logs.version)):
        if column is not None:
            columns[name] = column
    if logs.candidates is not None:
        columns |= _lists(logs, logs.candidates)
    rows = logs.contexts[logs.context]
    columns |= {f"x{j}": rows[:, j] for j in range(rows.shape[1])}
    columns |= dict(logs.columns)
    _write(pl.DataFrame(columns), path)


def _lists(logs: LoggedData, candidates: Candidates) -> dict[str, object]:
    """The candidates of each row by their ids, and pi0's probabilities of them."""
    import polars as pl
    import pyarrow as pa

    rows = candidates.take(logs.context)
    parts = {"candidates": pl.Series(logs.catalogue.ids.tolist()).gather(rows.items)}
    if rows.pi0 is not None:
        parts["probabilities"] = pl.Series(rows.pi0)
    return {
        name: pl.Series(name, pa.LargeListArray.from_arrays(rows.starts, part.to_arrow()))
        for name, part in parts.items()
    }


def write_items(catalogue: Catalogue, path: str | Path) -> None:
    """One row per item: id, novel, and its features by their names, else f0, f1 and so on.

    Args:
        catalogue: the items.
        path: the file, written whole or not at all.
    """
    import polars as pl

    columns: dict[str, object] = {"id": catalogue.ids, "novel": catalogue.novel}
    if catalogue.features is not None:
        names = catalogue.feature_names or [f"f{j}" for j in range(catalogue.features.shape[1])]
        columns |= dict(zip(names, catalogue.features.T, strict=True))
    columns |= {f"{LABEL}{name}": values for name, values in catalogue.labels.items()}
    _write(pl.DataFrame(columns), path)


def write_described(source: Source, path: str | Path, *, force: bool = False) -> int:
    """The items that the logs describe, one row per item; returns how many.

    Args:
        source: VW's dsjson.
        path: the file; one that is there is kept unless `force`.
        force: overwrite it.
    """
    require(
        source.items is not None,
        "only VW's dsjson describes the items",
        found=f"{source.kind} in {source.name}",
        cure="write a file with one row per item yourself: id, novel, and its features",
    )
    rule = "an items file that is there is not overwritten"
    free = force or not Path(path).exists()
    require(free, rule, found=path, cure="--force", error=FileError)
    assert source.items is not None
    _write(source.items, path)
    return len(source.items)


def _write(table: pl.DataFrame, path: str | Path) -> None:
    buffer = io.BytesIO()
    table.write_parquet(buffer)
    write_file(Path(path), buffer.getvalue())
