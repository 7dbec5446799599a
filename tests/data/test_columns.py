"""Further columns: other rewards, and what tells segments apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from depsue.data import ActionCatalogue, LoggedData
from depsue.data.checks import plain_column
from depsue.errors import DataError

OTHERS: dict[str, Any] = {
    "minutes": [3.0, 8.0, 0.0, 1.5],
    "country": ["SE", "NO", "SE", "DK"],
    "cohort": [1, 2, 2, 1],
    "new": [True, False, False, True],
}


@pytest.fixture
def logs(build: Callable[..., LoggedData]) -> LoggedData:
    return build(columns=OTHERS, rounds=[0, 0, 1, 1])


def test_another_column_can_be_the_reward(logs: LoggedData) -> None:
    other = logs.with_reward("minutes", r_max=10.0)
    assert other.reward.tolist() == [3.0, 8.0, 0.0, 1.5] and other.r_max == 10.0
    assert other.action.tolist() == logs.action.tolist()
    assert logs.with_reward("new", r_max=1.0).reward.tolist() == [1.0, 0.0, 0.0, 1.0]
    assert logs.with_reward("cohort", r_max=2.0).reward.tolist() == [1.0, 2.0, 2.0, 1.0]
    assert logs.reward.tolist() == [0.0, 1.0, 0.5, 1.0]


@pytest.mark.parametrize(
    ("column", "value", "rows"),
    [("country", "SE", [0, 2]), ("cohort", 2, [1, 2]), ("new", True, [0, 3]), ("cohort", 9, [])],
)
def test_a_segment_is_where_a_column_has_a_value(
    logs: LoggedData, column: str, value: Any, rows: list[int]
) -> None:
    mask = logs.where(column, value)
    assert mask.dtype == bool and np.flatnonzero(mask).tolist() == rows


def test_a_value_of_another_kind_is_nowhere(logs: LoggedData) -> None:
    assert logs.where("cohort", "two").tolist() == [False] * 4
    assert logs.where("country", 3).tolist() == [False] * 4


def test_columns_follow_their_rows_and_cannot_be_written_to(logs: LoggedData) -> None:
    some = logs.take([3, 1])
    assert some.columns["country"].tolist() == ["DK", "NO"]
    with pytest.raises(ValueError, match="read-only"):
        logs.columns["minutes"][0] = 9.0


def test_columns_count_in_the_hash(build: Callable[..., LoggedData], logs: LoggedData) -> None:
    plain = build(rounds=[0, 0, 1, 1])
    assert plain.hash != logs.hash == build(columns=OTHERS, rounds=[0, 0, 1, 1]).hash
    for name, value in {"minutes": 0.5, "country": "FI", "cohort": 7, "new": False}.items():
        changed = {**OTHERS, name: [value, *OTHERS[name][1:]]}
        assert build(columns=changed, rounds=[0, 0, 1, 1]).hash != logs.hash
    renamed = {**OTHERS, "min": OTHERS["minutes"]}
    del renamed["minutes"]
    assert build(columns=renamed, rounds=[0, 0, 1, 1]).hash != logs.hash


def test_frames_keep_the_columns_that_are_named(catalogue: ActionCatalogue) -> None:
    frame = {
        "x": [0.5, 1.5],
        "action": [10, 20],
        "reward": [0.0, 1.0],
        "propensity": [0.5, 0.5],
        "country": ["SE", "NO"],
        "other": [1, 2],
    }
    logs = LoggedData.from_frame(frame, catalogue, r_max=1.0, context=["x"], columns=["country"])
    assert list(logs.columns) == ["country"]
    assert logs.columns["country"].tolist() == ["SE", "NO"]


def test_a_column_is_of_one_plain_kind() -> None:
    assert plain_column([True, False], "new").tolist() == [1.0, 0.0]
    assert plain_column([1, 2], "cohort").dtype == np.int64
    assert plain_column(["a", "b"], "country").dtype == object
    with pytest.raises(DataError, match=r"all of one kind.*'country'"):
        plain_column(["a", 1], "country")
    with pytest.raises(DataError, match=r"must not be missing.*'country', row 1"):
        plain_column(["a", None], "country")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda logs: logs.column("city"), r"further columns.*'city'.*cohort.*columns=\['city'\]"),
        (lambda logs: logs.where("city", 1), r"further columns.*'city'"),
        (lambda logs: logs.with_reward("minutes", r_max=5.0), r"'minutes', row 1: 8.0.*r_max"),
        (lambda logs: logs.with_reward("country", r_max=5.0), r"numbers.*'country', row 0: 'SE'"),
    ],
)
def test_errors_name_the_column(logs: LoggedData, call: Any, words: str) -> None:
    with pytest.raises(DataError, match=words):
        call(logs)


def test_a_column_of_another_length_is_refused(build: Callable[..., LoggedData]) -> None:
    with pytest.raises(DataError, match=r"same length.*'minutes'.*3 rows.*4 actions"):
        build(columns={"minutes": [1.0, 2.0, 3.0]}, rounds=[0, 0, 1, 1])
