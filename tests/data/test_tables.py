"""Files of tables: scanned lazily, bounded, and turned into features."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from depsue.data import tables
from depsue.data.tables import (
    collected,
    features_of,
    has_few_values,
    is_numeric,
    is_text,
    listed_names,
    names_in,
    scanned,
)
from depsue.errors import ConfigError, DataError, FileError


def test_columns_are_read_by_name_and_up_to_a_limit(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("x,y\n1,a\n2,b\n")
    frame = scanned(path)
    assert names_in(frame, path) == ["x", "y"]
    assert collected(frame, ["y"], path, most=2).to_dict(as_series=False) == {"y": ["a", "b"]}
    with pytest.raises(FileError, match="may have 1 rows"):
        collected(frame, ["y"], path, most=1)


def test_text_becomes_one_column_per_value_and_lists_several() -> None:
    table = pl.DataFrame({"x": [1.0, 2.0], "kind": ["b", "a"], "both": [[1, 2], [3, 4]]})
    features, names = features_of(table, ["x", "kind", "both"])
    np.testing.assert_array_equal(features, [[1, 0, 1, 1, 2], [2, 1, 0, 3, 4]])
    assert features.dtype == np.float32


def test_too_many_values_or_features_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    table = pl.DataFrame({"name": [f"n{k}" for k in range(70)]})
    with pytest.raises(DataError, match="at most 64 values"):
        features_of(table, ["name"])
    monkeypatch.setattr(tables, "MOST_FEATURES", 1)
    with pytest.raises(ConfigError, match="1 features"):
        features_of(pl.DataFrame({"kind": ["a", "b"]}), ["kind"])


def test_kinds_of_columns() -> None:
    table = pl.DataFrame({"x": [1, 2], "flag": [True, False], "list": [[1.0], [2.0]], "t": "ab"})
    assert [is_numeric(table[name]) for name in table.columns] == [True, True, True, False]
    assert [is_text(table[name]) for name in table.columns] == [False, False, False, True]
    assert has_few_values(pl.Series(["a", "a", "b", "b"]))
    assert not has_few_values(pl.Series(["a", "b", "c"]))


def test_long_lists_of_names_are_cut() -> None:
    assert listed_names(["a", "b"]) == "'a', 'b'"
    assert listed_names([str(k) for k in range(10)], most=2) == "'0', '1' and 8 more"
