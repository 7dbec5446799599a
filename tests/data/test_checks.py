"""The checks at the door, and what only arrays can get wrong: shapes, masks, other things."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from depsue.data import LoggedData
from depsue.data.checks import finite_matrix, first_bad, naming, read_only
from depsue.errors import ConfigError, DataError


def test_read_only_copies_nothing_and_can_be_repeated() -> None:
    array = np.arange(3)
    view = read_only(array)
    assert np.shares_memory(view, array) and not view.flags.writeable and array.flags.writeable
    assert read_only(view) is view


def test_first_bad_of_a_column() -> None:
    values = np.array([1.0, 2.0, 3.0])
    first_bad(values > 5, values, "rule", "c", "cure")
    with pytest.raises(DataError) as caught:
        first_bad(values > 1, values, "rule", "c", "cure")
    error = caught.value
    assert (error.column, error.row, error.value, error.count) == ("c", 1, 2.0, 2)
    assert type(error.value) is float
    assert str(error) == "rule. Found: column 'c', row 1: 2.0 (2 such rows). Cure: cure."


def test_first_bad_of_a_matrix_names_the_place_and_counts_rows() -> None:
    values = np.array([[1, 2, 3], [1, 9, 9], [9, 1, 1]])
    with pytest.raises(DataError) as caught:
        first_bad(values > 5, values, "rule", "c", "cure")
    error = caught.value
    assert (error.column, error.row, error.value, error.count) == ("c[1]", 1, 9, 2)


def test_first_bad_can_show_another_value() -> None:
    with pytest.raises(DataError, match="row 1: 'b'"):
        first_bad(np.array([False, True]), np.zeros(2), "rule", "c", "cure", show="ab".__getitem__)


def test_naming_moves_errors_to_the_source() -> None:
    bad = np.array([False, True])
    with pytest.raises(DataError) as caught, naming({"reward": "click"}, np.array([3, 8])):
        first_bad(bad, np.array([0.0, -1.0]), "rule", "reward", "cure")
    assert str(caught.value) == "rule. Found: column 'click', row 8: -1.0. Cure: cure."
    with pytest.raises(DataError, match="column 'f\\[1\\]', row 1: nan"), naming({"features": "f"}):
        finite_matrix([[0, 0], [0, np.nan]], "features")
    with pytest.raises(DataError, match="column 'f': too few"), naming({"features": "f"}):
        raise DataError("rule", column="features", found="too few")


def test_naming_leaves_other_errors_and_names_alone() -> None:
    with pytest.raises(ConfigError, match="other"), naming({"a": "b"}):
        raise ConfigError("other")
    with pytest.raises(DataError, match="column 'c'"), naming({"a": "b"}):
        raise DataError("rule", column="c")


def test_finite_matrix_is_a_copy_in_single_precision() -> None:
    zeros = np.array([[-0.0, 1.0]], dtype=np.float32)
    matrix = finite_matrix(zeros, "x")
    assert matrix.dtype == np.float32 and not np.shares_memory(matrix, zeros)
    assert not np.signbit(matrix).any()


NAN, INF = math.nan, math.inf


ARGUMENTS = ["contexts", "actions", "rewards", "propensities", "units", "times", "rounds"]


@pytest.mark.parametrize("argument", [*ARGUMENTS, "context_rows"])
@pytest.mark.parametrize("value", [0.5, 1, "abc", b"abc", object(), {1, 2}, {"a": 1}, ()])
def test_scalars_and_other_things_are_refused(
    build: Callable[..., LoggedData], argument: str, value: Any
) -> None:
    with pytest.raises(DataError) as caught:
        build(**{argument: value})
    assert "Cure: " in str(caught.value)


@pytest.mark.parametrize("argument", ARGUMENTS[:4])
def test_columns_that_every_log_has_cannot_be_none(
    build: Callable[..., LoggedData], argument: str
) -> None:
    with pytest.raises(DataError, match="Found: column '.*Cure: "):
        build(**{argument: None})


@pytest.mark.parametrize("argument", ARGUMENTS[1:])
@pytest.mark.parametrize("shape", [(4, 1), (4, 2), (1, 4), (2, 2, 1)])
def test_matrices_are_not_columns(
    build: Callable[..., LoggedData], argument: str, shape: tuple[int, ...]
) -> None:
    with pytest.raises(DataError, match="one value per row") as caught:
        build(**{argument: np.ones(shape)})
    assert str(shape) in str(caught.value)


@pytest.mark.parametrize(
    ("contexts", "column", "row", "rule"),
    [
        (np.ones(4), "context", None, "a matrix of shape"),
        (np.ones((4, 0)), "context", None, "a matrix of shape"),
        (np.ones((0, 2)), "context", None, "a matrix of shape"),
        (np.ones((4, 2, 1)), "context", None, "a matrix of shape"),
        (np.ones((3, 2)), "context", None, "same length"),
        (np.ones((4, 2), dtype=complex), "context[0]", 0, "numbers"),
        (np.full((4, 2), "1.5"), "context[0]", 0, "numbers"),
        (np.full((4, 2), b"1.5"), "context[0]", 0, "numbers"),
        (np.full((4, 2), np.datetime64("2026-01-01")), "context[0]", 0, "numbers"),
        ([[1, 2], [1, 2], [1, "2"], [1, 2]], "context[1]", 2, "numbers"),
        ([[1, 2], [1, 2], [1, None], [1, 2]], "context[1]", 2, "missing"),
        ([[1, 2], [1, 2], [1], [1, 2]], "context", 2, "one length (row 0 has 2)"),
        ([[1, 2], [1, 2], 1, [1, 2]], "context", None, "a matrix of shape"),
        ([[1, 2], [1, [2]], [1, 2], [1, 2]], "context[1]", 1, "numbers"),
        ([[1, 10**400], [1, 2], [1, 2], [1, 2]], "context[1]", 0, "numbers"),
        (np.ma.masked_equal([[1, 2], [1, 3], [1, 2], [1, 2]], 3), "context[1]", 1, "missing"),
        (pd.DataFrame({"a": [1, 2, None, 4], "b": 1}), "context[0]", 2, "missing"),
        (pl.DataFrame({"a": [1, 2, None, 4], "b": [1] * 4}), "context[0]", 2, "finite"),
        (pa.table({"a": [1, 2, 3, 4], "b": [1, None, 2, 3]}), "context[1]", 1, "missing"),
        (pl.LazyFrame({"a": [1.0] * 4}), "context", None, "a matrix of shape"),
    ],
)
def test_bad_contexts(
    build: Callable[..., LoggedData], contexts: Any, column: str, row: int | None, rule: str
) -> None:
    with pytest.raises(DataError) as caught:
        build(contexts=contexts)
    assert (caught.value.column, caught.value.row) == (column, row)
    assert rule in caught.value.rule and caught.value.cure


@pytest.mark.parametrize(
    ("rows", "row", "value"),
    [
        ([0, 1, 2, 4], 3, 4),
        ([0, -1, 2, 3], 1, -1),
        ([0, 1, 1.5, 3], 2, 1.5),
        ([0, 1, NAN, 3], 2, NAN),
        ([INF, 1, 2, 3], 0, INF),
        ([0, "1", 2, 3], 1, "1"),
        ([True, False, True, True], 0, True),
        ([0, None, 2, 3], 1, None),
        (np.array([2**63, 0, 0, 0], dtype=np.uint64), 0, 2**63),
    ],
)
def test_bad_context_rows(
    build: Callable[..., LoggedData], rows: Any, row: int, value: Any
) -> None:
    with pytest.raises(DataError) as caught:
        build(context_rows=rows)
    assert (caught.value.column, caught.value.row) == ("context_rows", row)
    assert caught.value.value == value or value is None or value != value


def test_context_rows_of_another_length(build: Callable[..., LoggedData]) -> None:
    with pytest.raises(DataError, match="'context_rows': 3 rows, while there are 4 actions"):
        build(context_rows=[0, 0, 0])


def test_masked_values_are_missing(build: Callable[..., LoggedData]) -> None:
    masked = np.ma.masked_array([0.5] * 4, mask=[False, False, True, False])
    with pytest.raises(DataError, match="must not be missing") as caught:
        build(propensities=masked)
    assert (caught.value.column, caught.value.row) == ("propensity", 2)
    assert len(build(propensities=np.ma.masked_array([0.5] * 4))) == 4


def test_a_null_in_an_arrow_dictionary_is_missing(build: Callable[..., LoggedData]) -> None:
    # numpy alone would read such a null as another entry of the dictionary
    coded = pa.chunked_array([pa.array([10, None, 20, 30]).dictionary_encode()])
    for actions in (coded, coded.combine_chunks()):
        with pytest.raises(DataError, match="must not be missing") as caught:
            build(actions=actions)
        assert (caught.value.column, caught.value.row) == ("action", 1)


class Unreadable:
    def __array__(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("this tensor lives elsewhere")


def test_what_numpy_cannot_read_is_refused(build: Callable[..., LoggedData]) -> None:
    with pytest.raises(DataError, match="Unreadable .*lives elsewhere"):
        build(rewards=Unreadable())
