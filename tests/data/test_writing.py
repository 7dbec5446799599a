"""Logs and items that were written can be read again, without a mapping."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from depsue.check import guess_mapping
from depsue.data import Catalogue, LoggedData
from depsue.data.items import read_items
from depsue.data.reading import Source, open_source, read_mapped
from depsue.data.writing import write_described, write_items, write_logs
from depsue.errors import DepsueError


def test_logs_come_back_as_they_were(tmp_path: Path, build: Callable[..., LoggedData]) -> None:
    logs = build(units=["u", "v", "u", "w"], times=[1.0, 2.0, 3.0, 4.0])
    write_logs(logs, tmp_path / "logs.parquet")
    source = open_source(tmp_path / "logs.parquet")
    mapping, _ = guess_mapping(source, logs.r_max)
    again = read_mapped(source, mapping, logs.catalogue)
    assert again.hash == logs.hash


def test_items_come_back_as_they_were(tmp_path: Path) -> None:
    features = np.arange(6, dtype=np.float32).reshape(3, 2)
    catalogue = Catalogue.of(["a", "b", "c"], novel=["c"], features=features)
    write_items(catalogue, tmp_path / "items.parquet")
    assert read_items(tmp_path / "items.parquet").catalogue.hash == catalogue.hash


def test_columns_have_the_names_that_commands_guess(
    tmp_path: Path, build: Callable[..., LoggedData]
) -> None:
    logs = build(columns={"country": ["NO", "SE", "NO", "SE"]})
    write_logs(logs, tmp_path / "logs.parquet")
    names = pl.read_parquet(tmp_path / "logs.parquet").columns
    assert names[:3] == ["action", "reward", "propensity"]
    assert {"x0", "country"} <= set(names)


def test_items_that_lines_of_dsjson_describe(tmp_path: Path) -> None:
    item = '{"_tag": "%s", "f": {"x": %d}}'
    line = (
        '{"_label_cost": -1, "_label_probability": 0.5, "_labelIndex": 0, "a": [1, 2], '
        f'"p": [0.5, 0.5], "c": {{"_multi": [{item % ("a", 1)}, {item % ("b", 2)}]}}}}\n'
    )
    (tmp_path / "logs.dsjson").write_text(line)
    path = tmp_path / "items.parquet"
    source = open_source(tmp_path / "logs.dsjson")
    assert write_described(source, path) == 2
    assert read_items(path, novel=()).catalogue.ids.tolist() == ["a", "b"]
    with pytest.raises(DepsueError, match="not overwritten"):
        write_described(source, path)
    assert write_described(source, path, force=True) == 2
    with pytest.raises(DepsueError, match="only VW's dsjson"):
        write_described(Source.of({"a": [1]}), path)
