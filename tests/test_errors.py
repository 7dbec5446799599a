from __future__ import annotations

import inspect
import math
import pickle
from typing import Any

import numpy as np
import pytest

from depsue import errors
from depsue.errors import (
    ConfigError,
    DataError,
    DepsueError,
    DepsueWarning,
    FileError,
    NotConservative,
    PolicyError,
    is_real,
    is_whole,
    require,
    require_delta,
    short,
)


def test_a_message_has_the_rule_the_value_and_the_cure() -> None:
    error = ConfigError("x must be even", found="3", cure="double it")
    assert str(error) == "x must be even. Found: 3. Cure: double it."
    assert (error.rule, error.found, error.cure) == ("x must be even", "3", "double it")
    assert str(ConfigError("no dots twice.", cure="stop.")) == "no dots twice. Cure: stop."
    assert str(ConfigError("alone")) == "alone."


def test_a_data_error_names_column_row_and_value() -> None:
    error = DataError("no", column="reward", row=3, value=-1.5, count=12_000, cure="yes")
    assert str(error) == "no. Found: column 'reward', row 3: -1.5 (12,000 such rows). Cure: yes."
    assert (error.column, error.row, error.value, error.count) == ("reward", 3, -1.5, 12_000)
    assert "row 3: 'text'." in str(DataError("no", column="c", row=3, value="text"))
    assert "row 0: None." in str(DataError("no", column="c", row=0, value=None))
    assert str(DataError("no", column="c", found="two")) == "no. Found: column 'c': two."
    assert str(DataError("no", column="c")) == "no. Found: column 'c'."


def test_a_data_error_moves_to_another_column_and_row() -> None:
    error = DataError("no", column="reward", row=3, value=-1.5, count=2, cure="yes")
    moved = error.moved("click", 7)
    assert str(moved) == "no. Found: column 'click', row 7: -1.5 (2 such rows). Cure: yes."
    assert "'d': two" in str(DataError("no", column="c", found="two").moved("d", None))


def test_long_values_are_cut() -> None:
    assert short("x") == "'x'"
    assert len(short("x" * 1000)) == 80 and short("x" * 1000).endswith("...")
    assert len(str(DataError("no", column="c", row=0, value=list(range(10_000))))) < 150


@pytest.mark.parametrize(
    "error",
    [
        DataError("no", column="reward", row=3, value=-1.5, count=2, cure="yes"),
        ConfigError("no", found="1", cure="yes"),
        PolicyError("no"),
        FileError("no"),
        NotConservative("no", cure="yes"),
    ],
)
def test_errors_cross_processes_whole(error: DepsueError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error) and str(again) == str(error)
    assert vars(again) == vars(error)


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    kinds = [kind for _, kind in inspect.getmembers(errors, inspect.isclass)]
    raised = [kind for kind in kinds if issubclass(kind, DepsueError | DepsueWarning)]
    for kind in raised:
        assert kind.__name__ in (errors.__doc__ or "")
    drawn = [word for word in (errors.__doc__ or "").split() if hasattr(errors, word)]
    assert sorted(drawn) == sorted(kind.__name__ for kind in raised)
    assert not any(issubclass(kind, DepsueError) and issubclass(kind, Warning) for kind in raised)


def test_require() -> None:
    require(True, "never seen")
    with pytest.raises(ConfigError, match="^k must be 1. Found: 0. Cure: set it.$"):
        require(False, "k must be 1", found=0, cure="set it")
    with pytest.raises(PolicyError, match="^k.$"):
        require(False, "k", error=PolicyError)


@pytest.mark.parametrize("delta", [0.05, np.float32(0.5), 1e-9, np.float64(0.999)])
def test_levels_in_0_1(delta: Any) -> None:
    assert require_delta(delta) == float(delta) and type(require_delta(delta)) is float


@pytest.mark.parametrize("delta", [0, 1, -0.1, 1.5, math.nan, math.inf, "0.05", None, True, [0.05]])
def test_other_levels(delta: Any) -> None:
    with pytest.raises(
        ConfigError, match="delta must lie in .* Cure: use for example 0.05"
    ) as caught:
        require_delta(delta)
    assert caught.value.found == repr(delta)


def test_what_counts_as_a_number() -> None:
    for value in (1, 1.5, np.int8(1), np.float32(1), math.nan):
        assert is_real(value)
    for odd in (True, "1", None, 1j, [1], np.ones(2)):
        assert not is_real(odd) and not is_whole(odd)
    assert is_whole(3) and is_whole(np.uint8(3)) and not is_whole(3.0)
