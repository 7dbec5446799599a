from __future__ import annotations

import numpy as np
import pytest

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
    given = np.array([[-0.0, 1.0]], dtype=np.float32)
    matrix = finite_matrix(given, "x")
    assert matrix.dtype == np.float32 and not np.shares_memory(matrix, given)
    assert not np.signbit(matrix).any()
