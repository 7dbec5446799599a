from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from depsue.data import Catalogue
from depsue.errors import ConfigError, DataError

NONE = np.zeros(3, dtype=bool)


def test_a_catalogue_knows_its_actions(catalogue: Catalogue) -> None:
    assert len(catalogue) == 5
    assert catalogue.supported_actions.tolist() == [0, 1, 2, 3]
    assert catalogue.novel_actions.tolist() == [4]
    assert catalogue.index([50, 10, 50]).tolist() == [4, 0, 4]
    assert catalogue.features is not None and catalogue.features.dtype == np.float32


def test_ids_may_be_strings_in_any_order() -> None:
    catalogue = Catalogue.of(["pear", "apple", "fig"], novel=["apple"])
    assert catalogue.index(["fig", "apple", "pear"]).tolist() == [2, 1, 0]
    assert catalogue.novel.tolist() == [False, True, False]
    assert catalogue.features is None


@pytest.mark.parametrize(
    "novel",
    [[30], (30,), {30}, np.array([30]), pd.Series([30]), pl.Series([30]), pa.array([30])],
)
def test_novel_ids_come_as_any_collection(novel: Any) -> None:
    assert Catalogue.of([10, 20, 30], novel=novel).novel.tolist() == [False, False, True]
    assert Catalogue.of([10, 20, 30], novel=iter([30])).novel.tolist()[-1]


@pytest.mark.parametrize(
    ("ids", "row", "value", "rule"),
    [
        ([1, 2, 1, 2], 2, 1, "distinct"),
        (["a", "b", "b", "c"], 2, "b", "distinct"),
        ([1, 2, 2.0, 3], 2, 2, "distinct"),
        ([1, "1", 2, 3], 1, "1", "all of one kind"),
        ([1, None, 2, 3], 1, None, "missing"),
        (["a", None, "b", "c"], 1, None, "missing"),
        ([1, 2.5, 3, 4], 1, 2.5, "whole"),
        ([1.0, 2.0, 3.0, math.inf], 3, math.inf, "whole"),
        ([1.0, 2.0, 3.0, 2.0**53], 3, 2.0**53, "whole"),
        (np.array([1, 2, 3, 2**64 - 1], dtype=np.uint64), 3, 2**64 - 1, "64 bits"),
        ([1, 2, 3, 2**80], 3, 2**80, "64 bits"),
        ([True, False], 0, True, "integers or strings"),
        ([b"a", b"b"], 0, b"a", "integers or strings"),
        ([1j, 2j], 0, 1j, "integers or strings"),
        ([(1, 2), (3,)], 0, (1, 2), "integers or strings"),
        (pd.array([1, pd.NA, 3, 4]), 1, pd.NA, "missing"),
    ],
)
def test_bad_ids_are_named(ids: Any, row: int, value: Any, rule: str) -> None:
    for make in (_by_mask, Catalogue.of):
        with pytest.raises(DataError) as caught:
            make(ids)
        assert (caught.value.column, caught.value.row) == ("id", row)
        assert rule in caught.value.rule and caught.value.cure
        if rule != "missing":
            assert caught.value.value == value


def _by_mask(ids: Any) -> Catalogue:
    return Catalogue(ids, np.zeros(len(ids), dtype=bool))


@pytest.mark.parametrize("ids", [[], 5, "abc", None, np.ones((2, 2), dtype=int), {1, 2}])
def test_ids_must_be_a_column(ids: Any) -> None:
    with pytest.raises(DataError) as caught:
        Catalogue.of(ids)
    assert caught.value.column == "id"


@pytest.mark.parametrize(
    ("novel", "row", "rule"),
    [
        ([0, 1, 0], None, "one True or False per action"),
        ([0.0, 1.0, 0.0], None, "one True or False per action"),
        (["no", "yes", "no"], None, "one True or False per action"),
        ([True, False], None, "one True or False per action"),
        ([], None, "one True or False per action"),
        (True, None, "one value per row"),
        (None, None, "one value per row"),
        (np.zeros((3, 1), dtype=bool), None, "one value per row"),
        ([True, None, False], 1, "missing"),
        (pd.array([True, pd.NA, False]), 1, "missing"),
        ([True, True, True], None, "at least one action must be supported"),
    ],
)
def test_bad_masks_are_refused(novel: Any, row: int | None, rule: str) -> None:
    with pytest.raises(DataError) as caught:
        Catalogue(np.array([1, 2, 3]), novel)
    assert (caught.value.column, caught.value.row) == ("novel", row)
    assert rule in caught.value.rule and caught.value.cure


@pytest.mark.parametrize(
    ("novel", "row", "rule"),
    [
        ([2, 9], 1, "every action must be in the catalogue"),
        (["2"], 0, "must be integers, as the catalogue's ids are"),
        ([True, False, False], 0, "integers or strings"),
        (2, None, "one value per row"),
        ([1, 2, 3], None, "at least one action must be supported"),
    ],
)
def test_bad_novel_ids_are_named(novel: Any, row: int | None, rule: str) -> None:
    with pytest.raises(DataError) as caught:
        Catalogue.of([1, 2, 3], novel=novel)
    assert (caught.value.column, caught.value.row) == ("novel", row)
    assert rule in caught.value.rule and caught.value.cure


@pytest.mark.parametrize(
    ("features", "column", "row", "rule"),
    [
        (np.ones((2, 2)), "features", None, "shape (3, d)"),
        (np.ones((3, 0)), "features", None, "shape (3, d)"),
        (np.ones(3), "features", None, "shape (3, d)"),
        (1.0, "features", None, "shape (3, d)"),
        ([[1, 2], [1], [1, 2]], "features", 1, "one length"),
        ([[1, 2], [1, math.nan], [1, 2]], "features[1]", 1, "finite"),
        ([[1, 2], [1, 2], [-1e39, 2]], "features[0]", 2, "finite"),
        ([["a"], ["b"], ["c"]], "features", 0, "numbers"),
        ([[1j], [1j], [1j]], "features", 0, "numbers"),
    ],
)
def test_bad_features_are_named(features: Any, column: str, row: int | None, rule: str) -> None:
    with pytest.raises(DataError) as caught:
        Catalogue(np.array([1, 2, 3]), NONE, features)
    assert (caught.value.column, caught.value.row) == (column, row)
    assert rule in caught.value.rule and caught.value.cure


FRAMES: list[Callable[[dict[str, Any]], Any]] = [
    dict,
    pl.DataFrame,
    pl.LazyFrame,
    pd.DataFrame,
    pa.table,
    pa.record_batch,
]


@pytest.mark.parametrize("frame_of", FRAMES)
@pytest.mark.parametrize("flags", [[False, False, True], [0, 0, 1]])
def test_from_frame(frame_of: Callable[[dict[str, Any]], Any], flags: list[Any]) -> None:
    frame = frame_of({"sku": ["a", "b", "c"], "new": flags, "f": [1.0, 2.0, 3.0], "g": [4, 5, 6]})
    catalogue = Catalogue.from_frame(frame, id="sku", novel="new", features=["f", "g"])
    expected = Catalogue.of(["a", "b", "c"], novel=["c"], features=[[1, 4], [2, 5], [3, 6]])
    assert catalogue.hash == expected.hash
    assert Catalogue.from_frame(frame, id="sku", novel="new").features is None
    column = Catalogue.from_frame(frame, id="sku", novel="new", features="f").features
    assert column is not None and column.shape == (3, 1)


@pytest.mark.parametrize("frame_of", FRAMES)
@pytest.mark.parametrize(
    ("changed", "column", "row", "rule"),
    [
        ({"sku": ["a", "b", "a"]}, "sku", 2, "distinct"),
        ({"sku": ["a", None, "c"]}, "sku", 1, "missing"),
        ({"new": [0, 2, 1]}, "new", 1, "True and False"),
        ({"new": ["no", "no", "yes"]}, "new", 0, "True and False"),
        ({"new": [0.0, 0.0, 1.0]}, "new", 0, "True and False"),
        ({"new": [True, None, True]}, "new", 1, "missing"),
        ({"new": [True, True, True]}, "new", None, "at least one action must be supported"),
        ({"f": [1.0, math.inf, 1.0]}, "f", 1, "finite"),
        ({"f": ["a", "b", "c"]}, "f", 0, "numbers"),
        ({"sku": [], "new": [], "f": []}, "sku", None, "a frame needs at least one row"),
    ],
)
def test_bad_frames_are_named(
    frame_of: Callable[[dict[str, Any]], Any],
    changed: dict[str, Any],
    column: str,
    row: int | None,
    rule: str,
) -> None:
    good = {"sku": ["a", "b", "c"], "new": [False, False, True], "f": [1.0, 2.0, 3.0]}
    with pytest.raises(DataError) as caught:
        Catalogue.from_frame(frame_of(good | changed), id="sku", novel="new", features="f")
    assert (caught.value.column, caught.value.row) == (column, row)
    assert rule in caught.value.rule and caught.value.cure


def test_unknown_actions_are_counted(catalogue: Catalogue) -> None:
    with pytest.raises(DataError, match=r"column 'shown', row 1: 11 \(2 such rows\)"):
        catalogue.index([10, 11, 12], column="shown")


def test_strings_do_not_match_a_prefix() -> None:
    catalogue = Catalogue.of(["ab", "abc"])
    for unknown in ("a", "abcd", "ab ", ""):
        with pytest.raises(DataError, match="every action must be in the catalogue"):
            catalogue.index([unknown])


def test_arrays_are_frozen_and_apart_from_what_was_given() -> None:
    ids, novel = np.array(["a", "b"]), np.array([False, True])
    features = np.ones((2, 1), dtype=np.float32)
    catalogue = Catalogue(ids, novel, features)
    before = catalogue.hash
    ids[0], novel[:], features[:] = "z", True, 7
    again = Catalogue(catalogue.ids, catalogue.novel, catalogue.features)
    assert again.hash == before and catalogue.ids.tolist() == ["a", "b"]
    for array in (catalogue.ids, catalogue.novel, catalogue.features):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = array[1]  # type: ignore[index]


def test_novel_is_a_list_of_ids_and_nothing_else() -> None:
    with pytest.raises(ConfigError, match="novel must be a list of ids. Found: 'ab'"):
        Catalogue.of(["a", "b", "ab"], novel="ab")
    with pytest.raises(ConfigError, match="a list of ids, not a mask"):
        Catalogue.of([0, 1, 2], novel=[0, 0, 1])


def test_a_catalogue_prints_in_one_line() -> None:
    catalogue = Catalogue.of(["a", "b"], novel=["b"], features=np.zeros((2, 3)))
    assert repr(catalogue) == "Catalogue(2 actions, 1 of them novel, 3 features)"


def test_ids_that_numpy_would_cut_are_refused() -> None:
    with pytest.raises(DataError, match="ids must not contain NUL. Found: column 'id', row 1"):
        Catalogue.of(["a", "a\0"])
