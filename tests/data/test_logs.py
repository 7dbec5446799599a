"""Logs in memory: what they keep, take, split and join; further columns."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from depsue.data import Catalogue, LoggedData
from depsue.data.checks import plain_column
from depsue.data.logs import joined
from depsue.errors import ConfigError, DataError

Build = Callable[..., LoggedData]


def logs_of(n: int, *, units: bool, seed: int = 0) -> LoggedData:
    """n rows over 7 contexts, each told apart by its reward."""
    rng = np.random.default_rng(seed)
    return LoggedData.from_arrays(
        contexts=rng.normal(size=(7, 3)),
        context_rows=rng.integers(0, 7, n),
        actions=rng.integers(0, 4, n),
        rewards=np.arange(n) / n,
        propensities=rng.uniform(0.1, 1, n),
        catalogue=Catalogue.of(np.arange(5), novel=[4]),
        r_max=1.0,
        units=rng.integers(0, max(1, n // 3), n) if units else None,
        times=np.arange(n),
        rounds=rng.integers(0, 3, n),
    )


def rows_of(logs: LoggedData) -> list[tuple[Any, ...]]:
    """Every row, written out in full."""
    columns = [logs.contexts[logs.context].tolist(), logs.catalogue.ids[logs.action].tolist()]
    columns += [logs.reward.tolist(), logs.propensity.tolist()]
    if logs.units is not None and logs.unit is not None:
        columns.append(logs.units[logs.unit].tolist())
    assert logs.time is not None and logs.round is not None
    columns += [logs.time.tolist(), logs.round.tolist()]
    return list(zip(*columns, strict=True))


def test_each_distinct_context_is_kept_once(build: Build) -> None:
    logs = build(contexts=[[3, 0], [1, 0], [3, -0.0], [1, 0]])
    assert logs.contexts.tolist() == [[3, 0], [1, 0]]  # in order of first appearance
    assert logs.contexts.dtype == np.float32 and not np.signbit(logs.contexts).any()
    assert logs.context.tolist() == [0, 1, 0, 1]
    assert logs.context_counts.tolist() == [2, 2]


def test_contexts_are_the_same_when_they_are_in_single_precision(build: Build) -> None:
    near = 1 + 2.0**-30  # rounds to 1 in float32
    apart = 1 + 2.0**-20  # does not
    logs = build(contexts=[[1.0], [near], [apart], [1.0]])
    assert logs.context.tolist() == [0, 0, 1, 0]


def test_context_rows_point_at_contexts_and_unused_ones_are_left_out(build: Build) -> None:
    logs = build(contexts=[[9], [5], [7], [5]], context_rows=[3, 2, 1, 2])
    assert logs.contexts.tolist() == [[5], [7]]
    assert logs.context.tolist() == [0, 1, 0, 1]


def test_units_are_numbered_by_first_appearance(build: Build) -> None:
    logs = build(units=["w", "a", "w", "b"])
    assert logs.units is not None and logs.units.tolist() == ["w", "a", "b"]
    assert logs.unit is not None and logs.unit.tolist() == [0, 1, 0, 2]
    assert build().unit is None and build().units is None and build().time is None


def test_mean_reward_and_length(build: Build) -> None:
    assert build().mean_reward() == 0.625
    assert len(build()) == 4


@given(st.integers(1, 30), st.booleans(), st.data())
def test_take_keeps_whole_rows(n: int, units: bool, data: st.DataObject) -> None:
    logs = logs_of(n, units=units)
    rows = data.draw(st.lists(st.integers(0, n - 1), min_size=1))
    part = logs.take(rows)
    every = rows_of(logs)
    assert rows_of(part) == [every[row] for row in rows]
    assert (part.context_counts > 0).all()
    if part.units is not None and part.unit is not None:
        assert set(part.unit.tolist()) == set(range(len(part.units)))


def test_take_by_mask_positions_or_slice() -> None:
    logs = logs_of(10, units=True)
    mask = np.arange(10) % 3 == 0
    expected = logs.take([0, 3, 6, 9]).hash
    for rows in (mask, mask.tolist(), slice(0, 10, 3), np.array([0, 3, 6, 9], dtype=np.uint8)):
        assert logs.take(rows).hash == expected


@pytest.mark.parametrize(
    ("rows", "row"),
    [
        ([0, 10], 1),
        ([-1], 0),
        ([0.5], 0),
        (["1"], 0),
        ([0, None], 1),
        ([float("nan")], 0),
        ([True] * 9, None),
        ([True] * 11, None),
        ([False] * 10, None),
        ([], None),
        (slice(5, 5), None),
        (3, None),
        ([[1, 2]], None),
    ],
)
def test_rows_that_are_not_there_cannot_be_taken(rows: Any, row: int | None) -> None:
    with pytest.raises(DataError) as caught:
        logs_of(10, units=False).take(rows)
    assert caught.value.row == row and caught.value.cure


@given(st.integers(60, 120), st.booleans(), st.text(max_size=5))
def test_a_split_neither_loses_nor_repeats_a_row(n: int, units: bool, salt: str) -> None:
    logs = logs_of(n, units=units)
    parts = logs.split([0.5, 0.5], salt=salt)
    every = rows_of(logs)
    rows = [row for part in parts for row in rows_of(part)]
    assert sorted(rows, key=lambda row: row[2]) == every  # rewards tell rows apart, in order
    for part in parts:
        assert rows_of(part) == sorted(rows_of(part), key=lambda row: row[2])
        assert part.catalogue is logs.catalogue and part.r_max == logs.r_max


def test_arrays_cannot_be_written_through() -> None:
    logs = logs_of(10, units=True)
    part = logs.take(slice(0, 5))
    names = "contexts context action reward propensity unit units time round".split()
    for whole in (logs, part):
        for name in names:
            with pytest.raises(ValueError, match="read-only"):
                getattr(whole, name)[0] = getattr(whole, name)[1]
    with pytest.raises(AttributeError):
        logs.r_max = 2.0  # type: ignore[misc]


def test_logs_do_not_change_with_the_arrays_they_were_made_from() -> None:
    given: dict[str, Any] = {
        "contexts": np.ones((4, 2), dtype=np.float32),
        "actions": np.zeros(4, dtype=np.int64),
        "rewards": np.ones(4),
        "propensities": np.ones(4),
        "units": np.array(["a", "b", "c", "d"], dtype=object),
        "times": np.zeros(4),
        "rounds": np.zeros(4, dtype=np.int16),
    }
    logs = LoggedData.from_arrays(**given, catalogue=Catalogue.of([0, 1]), r_max=1.0)
    before = rows_of(logs)
    for array in given.values():
        array[:] = array[::-1] if array.dtype == object else 7
    assert rows_of(logs) == before


def test_logs_can_be_pickled_between_processes() -> None:
    logs = logs_of(10, units=True)
    assert pickle.loads(pickle.dumps(logs)).hash == logs.hash


@pytest.mark.parametrize(
    ("changed", "column", "row"),
    [
        ({"action": np.array([0, 5])}, "action", 1),
        ({"action": np.array([-1, 0])}, "action", 0),
        ({"context": np.array([0, 2])}, "context", 1),
        ({"context": np.array([-1, 0])}, "context", 0),
        ({"context": np.array([0])}, "context", None),
        ({"propensity": np.array([1.0, 0.0])}, "propensity", 1),
        ({"reward": np.array([2.0, 0.0])}, "reward", 0),
        ({"unit": np.array([0])}, "unit", None),
    ],
)
def test_logs_that_are_built_by_hand_are_checked_too(
    catalogue: Catalogue, changed: dict[str, Any], column: str, row: int | None
) -> None:
    given: dict[str, Any] = {
        "contexts": np.array([[0.0], [1.0]], dtype=np.float32),
        "context": np.array([0, 1]),
        "action": np.array([0, 1]),
        "reward": np.array([0.0, 1.0]),
        "propensity": np.array([1.0, 0.5]),
    }
    assert len(LoggedData(catalogue=catalogue, r_max=1.0, **given)) == 2
    with pytest.raises(DataError) as caught:
        LoggedData(catalogue=catalogue, r_max=1.0, **{**given, **changed})
    assert (caught.value.column, caught.value.row) == (column, row)


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
    two = logs.take([3, 1])
    assert two.columns["country"].tolist() == ["DK", "NO"]
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


def test_frames_keep_the_columns_that_are_named(catalogue: Catalogue) -> None:
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


CATALOGUE = Catalogue.of(["a", "b", "c"], novel=["c"])
FIRST: dict[str, Any] = {
    "contexts": [[1.0], [2.0], [1.0]],
    "actions": ["a", "b", "a"],
    "rewards": [0.0, 1.0, 0.5],
    "propensities": [0.5, 0.25, 0.5],
    "units": ["u", "v", "u"],
    "times": [1.0, 2.0, 3.0],
    "rounds": [0, 0, 0],
    "columns": {"country": ["SE", "NO", "SE"], "minutes": [1.5, 2.5, 3.5]},
}
SECOND: dict[str, Any] = {
    "contexts": [[2.0], [3.0]],
    "actions": ["c", "a"],
    "rewards": [1.0, 0.0],
    "propensities": [0.1, 0.9],
    "units": ["v", "w"],
    "times": [4.0, 5.0],
    "rounds": [1, 1],
    "columns": {"country": ["DK", "SE"], "minutes": [4.5, 5.5]},
}


def part(given: dict[str, Any], **changed: Any) -> LoggedData:
    settings = {"catalogue": CATALOGUE, "r_max": 1.0, **given, **changed}
    return LoggedData.from_arrays(**settings)


def test_rows_follow_one_another_with_all_they_had() -> None:
    both = joined([part(FIRST), part(SECOND)])
    assert both.contexts[both.context, 0].tolist() == [1.0, 2.0, 1.0, 2.0, 3.0]
    assert len(both.contexts) == 3  # each distinct context once
    assert both.catalogue.ids[both.action].tolist() == ["a", "b", "a", "c", "a"]
    assert both.reward.tolist() == [0.0, 1.0, 0.5, 1.0, 0.0]
    assert both.propensity.tolist() == [0.5, 0.25, 0.5, 0.1, 0.9]
    assert np.asarray(both.units)[both.unit].tolist() == ["u", "v", "u", "v", "w"]
    assert np.asarray(both.time).tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert np.asarray(both.round).tolist() == [0, 0, 0, 1, 1]
    assert both.columns["country"].tolist() == ["SE", "NO", "SE", "DK", "SE"]
    assert both.columns["minutes"].tolist() == [1.5, 2.5, 3.5, 4.5, 5.5]


def test_parts_come_out_as_they_went_in() -> None:
    first, second = part(FIRST), part(SECOND)
    both = joined([first, second])
    assert both.take(slice(0, 3)).hash == first.hash
    assert both.take(slice(3, 5)).hash == second.hash
    assert joined([first]) is first
    assert joined([first, second]).hash != joined([second, first]).hash


def test_logs_without_options_join_too() -> None:
    bare = {name: FIRST[name] for name in ("contexts", "actions", "rewards", "propensities")}
    both = joined([part(bare), part(bare)])
    assert len(both) == 6 and both.unit is None and both.time is None and both.columns == {}


DATES = np.array(["2026-01-01", "2026-01-02"], dtype="datetime64[D]")


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"r_max": 2.0}, r"same r_max.*'r_max': 1.0 and 2.0.*same settings"),
        ({"units": None}, r"'unit': given and not given"),
        ({"times": None}, r"'time': numbers and not given"),
        ({"times": DATES}, r"'time': numbers and dates"),
        ({"columns": {}}, r"'columns': \['country', 'minutes'\] and \[\]"),
    ],
)
def test_logs_of_another_shape_are_refused(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(DataError, match=words):
        joined([part(FIRST), part(SECOND, **changed)])


def test_another_catalogue_and_no_logs_are_refused() -> None:
    other = Catalogue.of(["a", "b", "c", "d"], novel=["c", "d"])
    with pytest.raises(ConfigError, match=r"same catalogue.*3 and 4 actions.*one catalogue"):
        joined([part(FIRST), part(SECOND, catalogue=other)])
    with pytest.raises(ConfigError, match="logs to join"):
        joined([])
