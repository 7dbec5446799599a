"""Bad logs through every door: the error names the column, the first row, the value, the cure."""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Protocol

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from tests.data.encodings import columns

from depsue.data import Catalogue, LoggedData
from depsue.errors import ConfigError, DataError

NAN, INF = math.nan, math.inf
Columns = dict[str, list[Any]]


class Door(Protocol):
    name: str
    names: dict[str, str]

    def build(self, columns: Any, catalogue: Catalogue, r_max: float) -> LoggedData: ...


def check_names_it(error: DataError, column: str, row: int, value: Any) -> None:
    """The attributes and the message name column, row and value, and there is a cure."""
    assert (error.column, error.row) == (column, row)
    assert f"column '{column}', row {row}: " in str(error)
    assert "Cure: " in str(error) and error.cure
    if value == value and value is not None:  # libraries write missing values differently
        assert error.value == value
        assert repr(value) in str(error)


BAD_CELLS = [
    ("propensity", 0.0, "(0, 1]"),
    ("propensity", -0.25, "(0, 1]"),
    ("propensity", 1.0000001, "(0, 1]"),
    ("propensity", INF, "(0, 1]"),
    ("propensity", -INF, "(0, 1]"),
    ("propensity", NAN, "(0, 1]|missing"),
    ("propensity", None, "(0, 1]|missing"),
    ("reward", -0.125, "[0, r_max] with r_max = 1"),
    ("reward", 1.5, "[0, r_max] with r_max = 1"),
    ("reward", 1e300, "[0, r_max] with r_max = 1"),
    ("reward", INF, "[0, r_max]"),
    ("reward", NAN, "[0, r_max]|missing"),
    ("reward", None, "[0, r_max]|missing"),
    ("action", 99, "in the catalogue"),
    ("action", -10, "in the catalogue"),
    ("action", 10.5, "whole"),
    ("action", NAN, "whole|missing"),
    ("action", None, "whole|missing"),
    ("round", -1, "whole numbers from 0 to 32767"),
    ("round", 0.5, "whole numbers from 0 to 32767"),
    ("round", 40_000, "whole numbers from 0 to 32767"),
    ("round", INF, "whole numbers from 0 to 32767"),
    ("round", None, "whole numbers|missing"),
    ("unit", None, "missing"),
    ("time", INF, "finite"),
    ("time", NAN, "finite|missing"),
    ("time", None, "finite|missing"),
    ("x", NAN, "finite|missing"),
    ("x", INF, "finite"),
    ("x", 1e39, "finite, and 1e+15 in size"),
    ("x", -1.1e15, "finite, and 1e+15 in size"),
    ("x", None, "finite|missing"),
    ("y", -INF, "finite"),
]


@pytest.mark.parametrize("row", [0, 1, 3])
@pytest.mark.parametrize(("role", "value", "rule"), BAD_CELLS)
def test_a_bad_cell_is_named(
    door: Door,
    good: Columns,
    catalogue: Catalogue,
    role: str,
    value: Any,
    rule: str,
    row: int,
) -> None:
    good[role][row] = value
    with pytest.raises(DataError) as caught:
        door.build(good, catalogue, 1.0)
    check_names_it(caught.value, door.names[role], row, value)
    assert any(part in caught.value.rule for part in rule.split("|"))


def test_the_first_of_several_bad_cells_is_named_and_all_are_counted(
    door: Door, good: Columns, catalogue: Catalogue
) -> None:
    good["propensity"] = [0.5, 0.0, -1.0, 2.0]
    with pytest.raises(DataError, match=r"row 1: 0\.0 \(3 such rows\)") as caught:
        door.build(good, catalogue, 1.0)
    assert caught.value.count == 3


def test_a_novel_action_in_round_0_is_refused(
    door: Door, good: Columns, catalogue: Catalogue
) -> None:
    good["action"] = [10, 50, 50, 50]
    with pytest.raises(DataError, match="novel must not be in the logs of round 0") as caught:
        door.build(good, catalogue, 1.0)
    check_names_it(caught.value, door.names["action"], 1, 50)
    assert caught.value.count == 1  # rows 2 and 3 are of round 1


def test_a_novel_action_in_later_rounds_is_normal(
    door: Door, good: Columns, catalogue: Catalogue
) -> None:
    good["action"] = [10, 20, 50, 50]
    assert door.build(good, catalogue, 1.0).action.tolist() == [0, 1, 4, 4]


def test_without_rounds_all_rows_are_of_round_0(build: Callable[..., LoggedData]) -> None:
    with pytest.raises(DataError, match="round 0"):
        build(actions=[10, 10, 10, 50])


def test_a_deterministic_logging_policy_is_legal(
    door: Door, good: Columns, catalogue: Catalogue
) -> None:
    assert not door.build(good, catalogue, 1.0).deterministic
    good["propensity"] = [1.0] * 4
    assert door.build(good, catalogue, 1.0).deterministic
    good["propensity"] = [1] * 4
    assert door.build(good, catalogue, 1.0).deterministic


def test_an_empty_log_is_refused(door: Door, catalogue: Catalogue) -> None:
    with pytest.raises(DataError, match="at least one row"):
        door.build({role: [] for role in door.names}, catalogue, 1.0)


@pytest.mark.parametrize("r_max", [NAN, 0, 0.0, -1, INF, "1", None, True, [1.0], 1j])
def test_r_max_must_be_a_positive_number(
    door: Door, good: Columns, catalogue: Catalogue, r_max: Any
) -> None:
    good["reward"] = [0.0] * 4
    with pytest.raises(ConfigError, match="r_max must be declared as a positive number") as caught:
        door.build(good, catalogue, r_max)
    assert caught.value.found == repr(r_max) and "Cure: " in str(caught.value)


@pytest.mark.parametrize("wrong", [None, [10, 20], {"id": [10]}])
def test_the_catalogue_must_be_one(door: Door, good: Columns, wrong: Any) -> None:
    with pytest.raises(ConfigError, match="need the catalogue"):
        door.build(good, wrong, 1.0)


BAD_COLUMNS = [
    ("reward", ["0", "1", "0", "1"], "numbers"),
    ("propensity", ["0.5", "0.5", "0.5", "0.5"], "numbers"),
    ("propensity", [True, True, True, True], "numbers"),
    ("round", [True, False, True, False], "numbers"),
    ("round", ["0", "0", "0", "0"], "numbers"),
    ("time", [True, False, True, False], "numbers"),
    ("time", ["2026-01-01"] * 4, "numbers"),
    ("action", [True, False, True, False], "integers or strings"),
    ("unit", [True, False, True, False], "integers or strings"),
    ("reward", [Decimal("0.5")] * 4, "numbers"),
    ("propensity", [Decimal("0.5")] * 4, "numbers"),
    ("action", [Decimal(10)] * 4, "integers or strings"),
    ("unit", [b"u", b"v", b"w", b"u"], "integers or strings"),
    ("reward", [dt.date(2026, 1, 1)] * 4, "numbers"),
    ("unit", [dt.datetime(2026, 1, 1)] * 4, "integers or strings"),
    ("time", [dt.timedelta(1)] * 4, "numbers"),
    ("x", ["1", "2", "3", "4"], "numbers"),
    ("x", [Decimal(1)] * 4, "numbers"),
    ("x", [dt.datetime(2026, 1, 1)] * 4, "numbers"),
    ("action", ["10", "20", "30", "10"], "must be integers, as the catalogue's"),
]


@pytest.mark.parametrize(("role", "values", "rule"), BAD_COLUMNS)
def test_a_column_of_the_wrong_type_is_named(
    door: Door, good: Columns, catalogue: Catalogue, role: str, values: list[Any], rule: str
) -> None:
    good[role] = values
    with pytest.raises(DataError) as caught:
        door.build(good, catalogue, 1.0)
    error = caught.value
    assert (error.column, error.row, error.count) == (door.names[role], 0, 4)
    assert rule in error.rule and error.cure


OBJECTS = [
    ("reward", [0.0, "1", 0.0, 1.0], 1, "numbers"),
    ("reward", [0.0, 1.0, 1j, 1.0], 2, "numbers"),
    ("reward", [0.0, [1.0], 0.0, 1.0], 1, "numbers"),
    ("reward", [0.0, 10**400, 0.0, 1.0], 1, "numbers"),
    ("propensity", [0.5, 0.5, Decimal("0.5"), 0.5], 2, "numbers"),
    ("propensity", [0.5, True, 0.5, 0.5], 1, "numbers"),
    ("propensity", [0.5, object, 0.5, 0.5], 1, "numbers"),
    ("propensity", [0.5, pd.NA, 0.5, 0.5], 1, "missing"),
    ("action", [10, "20", 30, 10], 1, "all of one kind"),
    ("action", [10, True, 30, 10], 1, "all of one kind"),
    ("action", [10, 2**63, 30, 10], 1, "64 bits|whole"),
    ("action", [10, 2**70, 30, 10], 1, "64 bits"),
    ("action", [10, pd.NA, 30, 10], 1, "missing"),
    ("unit", ["u", 1, "v", "w"], 1, "all of one kind"),
    ("unit", ["u", NAN, "v", "w"], 1, "missing"),
    ("unit", [1, 1.5, 2, 3], 1, "whole"),
    ("time", [1.0, pd.NaT, 1.0, 1.0], 1, "missing"),
    ("time", [dt.datetime(2026, 1, 1), 5, 1.0, 1.0], 0, "numbers"),
    ("x", [0.5, "a", 0.5, 0.5], 1, "numbers"),
    ("x", [0.5, pd.NA, 0.5, 0.5], 1, "missing"),
]


@pytest.mark.parametrize(("role", "values", "row", "rule"), OBJECTS)
def test_mixtures_of_objects_are_named(
    object_door: Door,
    good: Columns,
    catalogue: Catalogue,
    role: str,
    values: list[Any],
    row: int,
    rule: str,
) -> None:
    good[role] = values
    with pytest.raises(DataError) as caught:
        object_door.build(good, catalogue, 1.0)
    assert (caught.value.column, caught.value.row) == (object_door.names[role], row)
    assert any(part in caught.value.rule for part in rule.split("|")) and caught.value.cure


@pytest.mark.parametrize("role", ["action", "reward", "propensity", "unit", "time", "round"])
@pytest.mark.parametrize("length", [3, 5])
@pytest.mark.parametrize("name", ["lists", "dict"])
def test_columns_of_another_length_are_named(
    role: str,
    length: int,
    name: str,
    good: Columns,
    build: Callable[..., LoggedData],
    read: Callable[[Any], LoggedData],
    in_frames: Columns,
) -> None:
    arguments = {"reward": "rewards", "propensity": "propensities", "action": "actions"}
    frames = {"reward": "click", "propensity": "p", "unit": "user", "time": "at", "round": "wave"}
    values = (good[role] * 2)[:length]
    with pytest.raises(DataError, match="same length") as caught:
        if name == "lists":
            build(**{arguments.get(role, f"{role}s"): values})
        else:
            read(in_frames | {frames.get(role, "item"): values})
    if role == "action":  # all other columns are then of another length: the first is named
        assert re.search(rf"4 rows, while .*\b{length}\b", str(caught.value))
    elif name == "lists":
        words = f"column '{role}': {length} rows, while there are 4 actions"
        assert caught.value.column == role and words in str(caught.value)
    else:
        words = f"column '{frames[role]}': {length} rows, while 'item' has 4"
        assert caught.value.column == frames[role] and words in str(caught.value)


def test_feature_columns_of_another_length_are_named(
    read: Callable[[Any], LoggedData], in_frames: Columns
) -> None:
    for name in ("age", "tenure"):
        with pytest.raises(DataError, match="1 rows, while 'item' has 4") as caught:
            read(in_frames | {name: [1.0]})
        assert caught.value.column == name


@pytest.mark.parametrize("role", ["item", "click", "p", "user", "at", "wave", "age"])
def test_a_missing_column_is_named(
    read: Callable[[Any], LoggedData], in_frames: Columns, role: str
) -> None:
    del in_frames[role]
    frames: list[Any] = [in_frames, pl.DataFrame(in_frames), pl.LazyFrame(in_frames)]
    frames += [pd.DataFrame(in_frames), pa.table(in_frames), pa.record_batch(in_frames)]
    for frame in frames:
        with pytest.raises(DataError, match="must be in the frame, once") as caught:
            read(frame)
        assert caught.value.column == role


@pytest.mark.parametrize(
    "frame", [{}, pl.DataFrame(), pl.LazyFrame(), pd.DataFrame(), pa.table({})]
)
def test_a_frame_without_columns(read: Callable[[Any], LoggedData], frame: Any) -> None:
    with pytest.raises(DataError, match="must be in the frame, once"):
        read(frame)


def test_a_column_that_is_there_twice(
    read: Callable[[Any], LoggedData], in_frames: Columns
) -> None:
    table = pd.DataFrame(in_frames)
    twice = pd.concat([table, table[["click"]]], axis=1)
    for frame in (
        twice,
        pa.Table.from_arrays(
            [*[pa.array(table[c]) for c in table], pa.array([0.0] * 4)],
            names=[*table.columns, "click"],
        ),
    ):
        with pytest.raises(DataError, match="2 of it among") as caught:
            read(frame)
        assert caught.value.column == "click"


@pytest.mark.parametrize(
    "frame",
    [
        None,
        5,
        "logs.parquet",
        [{"item": 1}],
        pd.Series([1]),
        pl.Series([1]),
        np.ones((4, 2)),
        pa.array([1]),
    ],
)
def test_what_is_not_a_frame(read: Callable[[Any], LoggedData], frame: Any) -> None:
    with pytest.raises(DataError, match="polars, pandas or Arrow frame"):
        read(frame)


def test_a_lazy_frame_that_fails(read: Callable[[Any], LoggedData], in_frames: Columns) -> None:
    failing = pl.LazyFrame(in_frames).with_columns(p=pl.col("user").cast(pl.Float64))
    with pytest.raises(DataError, match="must be computable"):
        read(failing)
    with pytest.raises(DataError, match="must be computable"):
        read(pl.LazyFrame(in_frames).select("nowhere"))


def test_only_the_named_columns_are_read(
    read: Callable[[Any], LoggedData], in_frames: Columns
) -> None:
    expected = read(in_frames).hash
    odd = pd.DataFrame(in_frames | {"junk": [object(), 1, "a", None]})
    assert read(odd).hash == expected
    lazy = pl.LazyFrame(in_frames).with_columns(junk=pl.col("user").cast(pl.Float64))
    assert read(lazy).hash == expected


def test_no_feature_columns(catalogue: Catalogue, in_frames: Columns) -> None:
    with pytest.raises(ConfigError, match="at least one feature column"):
        LoggedData.from_frame(in_frames, catalogue, r_max=1.0, context=[])


def test_an_id_of_a_decision_that_is_there_twice_is_refused() -> None:
    given = columns(10, ids=True)
    given["decisions"][7] = given["decisions"][2]
    with pytest.raises(DataError, match=r"in one row of the logs.*row 7.*keep each decision once"):
        LoggedData.from_arrays(**given)
