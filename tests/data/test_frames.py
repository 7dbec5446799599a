"""The same logs through every door, whatever types a library chose for the columns."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from typing import Any, Protocol
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from depsue.data import Catalogue, LoggedData
from depsue.errors import DataError

Columns = dict[str, list[Any]]
Read = Callable[[Any], LoggedData]


class Door(Protocol):
    def build(self, columns: Any, catalogue: Catalogue, r_max: float) -> LoggedData: ...


@pytest.fixture
def expected(read: Read, in_frames: Columns) -> str:
    """The hash of the good rows, from plain lists."""
    return read(in_frames).hash


def test_every_door_gives_the_same_logs(
    door: Door, good: Columns, catalogue: Catalogue, expected: str
) -> None:
    logs = door.build(good, catalogue, 1.0)
    assert logs.hash == expected
    np.testing.assert_array_equal(
        logs.contexts[logs.context], np.column_stack([good["x"], good["y"]])
    )
    assert logs.catalogue.ids[logs.action].tolist() == good["action"]
    assert logs.reward.tolist() == good["reward"]
    assert logs.propensity.tolist() == good["propensity"]
    assert logs.units is not None and logs.unit is not None
    assert logs.units[logs.unit].tolist() == good["unit"]
    assert logs.time is not None and logs.time.tolist() == good["time"]
    assert logs.round is not None and logs.round.tolist() == good["round"]


def _categories(series: Any) -> Any:
    return pl.Series(series, dtype=pl.Categorical)


@pytest.mark.parametrize(
    "columns",
    [
        {"item": np.array([10, 20, 30, 10], dtype=np.uint8)},
        {"item": np.array([10, 20, 30, 10], dtype=">i8")},
        {"item": [10.0, 20.0, 30.0, 10.0]},
        {"item": pd.Series([10, 20, 30, 10], dtype="category")},
        {"item": pd.Series([10, 20, 30, 10], dtype="Int64")},
        {"item": pd.Series([10, 20.0, 30, 10], dtype=object)},
        {"item": pl.Series([10, 20, 30, 10], dtype=pl.UInt16)},
        {"item": pa.chunked_array([[10, 20], [30, 10]])},
        {"item": pa.array([10, 20, 30, 10]).dictionary_encode()},
        {"item": pa.chunked_array([pa.array([10, 20, 30, 10]).dictionary_encode()])},
        {"user": np.array(["u", "v", "u", "w"])},
        {"user": pd.Series(["u", "v", "u", "w"], dtype=object)},
        {"user": pd.Series(["u", "v", "u", "w"], dtype="category")},
        {"user": pd.Series(["u", "v", "u", "w"], dtype="string")},
        {"user": _categories(["u", "v", "u", "w"])},
        {"user": pl.Series(["u", "v", "u", "w"], dtype=pl.Enum(["w", "v", "u"]))},
        {"user": pa.array(["u", "v", "u", "w"], type=pa.large_string())},
        {"user": pa.array(["u", "v", "u", "w"]).dictionary_encode()},
        {"click": np.array([0, 1, 0.5, 1], dtype=np.float16)},
        {"click": [0, 1, 0.5, True]},
        {"click": np.array([-0.0, 1, 0.5, 1])},
        {"p": np.array([0.5, 0.25, 1, 0.125], dtype=np.float32)},
        {"p": pd.Series([0.5, 0.25, 1, 0.125], dtype="Float64")},
        {"at": np.array([1.5, 2.5, 3.5, 4.5], dtype=">f8")},
        {"wave": [0.0, 0.0, 1.0, 1.0]},
        {"wave": pd.Series([0, 0, 1, 1], dtype="UInt8")},
        {"age": [0.5, 1.5, 0.5 + 1e-12, 2.5]},
        {"tenure": [1, 2, 1, 3]},
        {"tenure": [True, 2, 1, 3]},
    ],
)
def test_the_type_of_a_column_does_not_matter(
    read: Read, in_frames: Columns, expected: str, columns: dict[str, Any]
) -> None:
    assert read(in_frames | columns).hash == expected


def test_strings_of_numpys_own_type(read: Read, in_frames: Columns, expected: str) -> None:
    if not hasattr(np.dtypes, "StringDType"):
        return  # numpy 1
    text = np.array(in_frames["user"], dtype=np.dtypes.StringDType())
    assert read(in_frames | {"user": text}).hash == expected


def test_clicks_may_be_true_and_false(build: Callable[..., LoggedData]) -> None:
    flags = [True, False, False, True]
    assert build(rewards=flags).hash == build(rewards=[1, 0, 0, 1]).hash
    assert build(rewards=pd.Series(flags, dtype="boolean")).reward.tolist() == [1, 0, 0, 1]


NAIVE = [dt.datetime(2026, 1, 1, 12, 0, 0, k) for k in range(4)]
UTC = [time.replace(tzinfo=dt.UTC) for time in NAIVE]
PARIS = [time.astimezone(ZoneInfo("Europe/Paris")) for time in UTC]


@pytest.mark.parametrize(
    "times",
    [
        UTC,
        PARIS,
        np.array(NAIVE, dtype="M8[us]"),
        np.array(NAIVE, dtype="M8[ns]"),
        np.array(NAIVE, dtype=">M8[us]"),
        pd.Series(NAIVE),
        pd.Series(NAIVE).astype("datetime64[ns]"),
        pd.Series(NAIVE, dtype=object),
        pd.Series(NAIVE).dt.tz_localize("UTC"),
        pd.Series(NAIVE).dt.tz_localize("UTC").dt.tz_convert("Europe/Paris"),
        pd.Series(PARIS, dtype=object),
        pd.Series(NAIVE, dtype=pd.ArrowDtype(pa.timestamp("us"))),
        pl.Series(NAIVE),
        pl.Series(NAIVE).dt.replace_time_zone("UTC").dt.convert_time_zone("Europe/Paris"),
        pa.array(NAIVE),
        pa.array(NAIVE, type=pa.timestamp("us", "Europe/Paris")),
    ],
    ids=lambda times: f"{type(times).__module__}-{getattr(times, 'dtype', '')}",
)
def test_times_are_read_in_utc(build: Callable[..., LoggedData], times: Any) -> None:
    logs = build(times=times)
    assert logs.time is not None and logs.time.dtype == np.dtype("M8[us]")
    assert logs.time.tolist() == NAIVE
    assert logs.hash == build(times=NAIVE).hash


def test_dates_are_times_too(build: Callable[..., LoggedData]) -> None:
    days = [dt.date(2026, 1, day) for day in (1, 2, 3, 4)]
    expected = np.array(days, dtype="M8[us]").tolist()
    for times in (days, np.array(days, dtype="M8[D]"), pl.Series(days), pa.array(days)):
        assert build(times=times).time.tolist() == expected  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("times", "row", "rule"),
    [
        ([*NAIVE[:2], UTC[0], NAIVE[3]], 2, "all have a time zone"),
        (np.array(["2026-01-01", "NaT", "2026-01-01", "NaT"], dtype="M8[s]"), 1, "present"),
        (np.array(["2026-01-01", "NaT", "2026-01-01", "NaT"], dtype="M8[ns]"), 1, "present"),
        (np.array([0, 0, 0, 2**62], dtype="M8[s]"), 3, "within datetime64[us]"),
        (pd.Series([NAIVE[0], None, NAIVE[0], NAIVE[0]]), 1, "missing"),
        (pl.Series([NAIVE[0], None, NAIVE[0], NAIVE[0]]), 1, "missing"),
        (pa.array([NAIVE[0], None, NAIVE[0], NAIVE[0]]), 1, "missing"),
        ([NAIVE[0], None, NAIVE[0], NAIVE[0]], 1, "missing"),
    ],
)
def test_bad_times(build: Callable[..., LoggedData], times: Any, row: int, rule: str) -> None:
    with pytest.raises(DataError) as caught:
        build(times=times)
    assert (caught.value.column, caught.value.row) == ("time", row)
    assert rule in caught.value.rule and caught.value.cure


PAIRS = [[0.5, 1.0], [1.5, 2.0], [0.5, 1.0], [2.5, 3.0]]


@pytest.mark.parametrize(
    "pairs",
    [
        PAIRS,
        np.array(PAIRS),
        pd.Series(PAIRS),
        pd.Series([np.array(pair) for pair in PAIRS]),
        pl.Series(PAIRS),
        pl.Series(PAIRS, dtype=pl.Array(pl.Float32, 2)),
        pa.array(PAIRS),
        pa.chunked_array([PAIRS[:1], PAIRS[1:]]),
        pa.array(PAIRS, type=pa.list_(pa.float64(), 2)),
    ],
)
def test_a_column_of_lists_counts_as_several(
    catalogue: Catalogue, in_frames: Columns, read: Read, pairs: Any
) -> None:
    def logs(frame: Any, context: Any) -> LoggedData:
        names = {"action": "item", "reward": "click", "propensity": "p", "round": "wave"}
        return LoggedData.from_frame(frame, catalogue, r_max=1.0, context=context, **names)

    plain = logs(in_frames, ["age", "tenure"])
    assert logs(in_frames | {"features": pairs}, "features").hash == plain.hash
    assert logs(in_frames | {"features": pairs}, ["features"]).hash == plain.hash
    wide = logs(in_frames | {"features": pairs}, ["age", "features"])
    assert wide.contexts.shape == (3, 3)


@pytest.mark.parametrize(
    ("lists", "column", "row"),
    [
        ([[1.0, 2.0], [1.0], [1.0, 2.0], [1.0, 2.0]], "age", 1),
        ([[1.0, 2.0], [1.0, None], [1.0, 2.0], [1.0, 2.0]], "age[1]", 1),
        ([[1.0, 2.0], [1.0, 2.0], None, [1.0, 2.0]], "age", 2),
        ([[], [], [], []], "age", None),
        ([["1", "2"]] * 4, "age[0]", 0),
    ],
)
def test_bad_lists_of_features_are_named(
    read: Read, in_frames: Columns, lists: Any, column: str, row: int | None
) -> None:
    makers: list[Callable[[Any], Any]] = [list, pd.Series, pl.Series, pa.array]
    for make in makers:
        with pytest.raises(DataError) as caught:
            read(in_frames | {"age": make(lists)})
        assert (caught.value.column, caught.value.row) == (column, row)
        assert caught.value.cure


FRAMES: Mapping[str, Callable[[dict[str, Any]], Any]] = {
    "dict": dict,
    "polars": pl.DataFrame,
    "pandas": pd.DataFrame,
    "arrow": pa.table,
}
finite = st.floats(-(2.0**49), 2.0**49, width=32)  # features are 1e15 in size at most


@st.composite
def rows(draw: st.DrawFn) -> dict[str, Any]:
    n = draw(st.integers(1, 12))

    def column(of: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(of, min_size=n, max_size=n))

    text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=6)
    return {
        "x": np.array(column(finite), dtype=np.float32),
        "y": np.array(column(st.sampled_from([-0.0, 0.0, 1.0])), dtype=np.float64),
        "action": column(st.sampled_from(["a", "b", "é", ""])),
        "reward": np.array(column(st.floats(0, 5))),
        "propensity": np.array(column(st.floats(0, 1, exclude_min=True))),
        "unit": column(draw(st.sampled_from([text, st.integers(-(2**63), 2**63 - 1)]))),
        "round": np.array(column(st.integers(0, 2**15 - 1))),
    }


@given(rows())
def test_what_goes_in_comes_out(columns: dict[str, Any]) -> None:
    catalogue = Catalogue.of(["a", "b", "é", "", "new"], novel=["new"])
    hashes = set()
    for make in FRAMES.values():
        logs = LoggedData.from_frame(
            make(columns), catalogue, r_max=5.0, context=["x", "y"], unit="unit", round="round"
        )
        assert logs.units is not None and logs.unit is not None and logs.round is not None
        seen = logs.contexts[logs.context]
        np.testing.assert_array_equal(seen, np.column_stack([columns["x"], columns["y"]]))
        assert len(np.unique(logs.contexts, axis=0)) == len(logs.contexts)
        assert catalogue.ids[logs.action].tolist() == columns["action"]
        assert logs.units[logs.unit].tolist() == columns["unit"]
        np.testing.assert_array_equal(logs.reward, columns["reward"])
        np.testing.assert_array_equal(logs.propensity, columns["propensity"])
        np.testing.assert_array_equal(logs.round, columns["round"])
        hashes.add(logs.hash)
    assert len(hashes) == 1
