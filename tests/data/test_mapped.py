"""Logs through a mapping: rewards, positions, contexts, times and estimated propensities."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from depsue.data.catalogue import ActionCatalogue
from depsue.data.mapping import EstimatedPropensities, LogMapping
from depsue.data.reading import Source, mapped, read_from, read_mapped
from depsue.errors import ConfigError, DataError

TABLE = pl.DataFrame(
    {
        "item": ["a", "b", "a", "a"],
        "money": [-2.0, 3.0, 50.0, 0.0],
        "prob": [0.5, 0.25, 0.5, 0.5],
        "when": ["2026-01-02T00:00:00.5Z", *["2026-01-01T12:00:00+02:00"] * 3],
        "slot": [1, 1, 2, 1],
        "who": ["u", "v", "u", "w"],
        "age": [1, 2, 1, 3],
        "device": ["app", "web", None, "tv"],
        "click": [0, 1, 1, 0],
    }
)
MAPPING = LogMapping(
    "item",
    "money",
    "prob",
    unit="who",
    time="when",
    position="slot",
    r_max=10.0,
    keep_position=1,
    numeric=("age",),
    categorical={"device": ("web", "app")},
    other_rewards={"click": 1.0},
    shift=2.0,
    cap=10.0,
)
CATALOGUE = ActionCatalogue.of(["a", "b", "c"], novel=["c"])


def test_logs_are_read_as_declared() -> None:
    logs = read_mapped(Source.of(TABLE), MAPPING, CATALOGUE)
    assert logs.reward.tolist() == [0.0, 5.0, 2.0]  # the row of slot 2 is left out
    assert logs.contexts[logs.context].tolist() == [[1, 0, 1], [2, 1, 0], [3, 0, 0]]
    assert logs.catalogue.ids[logs.action].tolist() == ["a", "b", "a"]
    assert logs.units is not None and logs.units.tolist() == ["u", "v", "w"]
    assert logs.columns["click"].tolist() == [0, 1, 0]
    assert logs.time is not None
    assert (
        logs.time.tolist()
        == np.array(["2026-01-02T00:00:00.5", *["2026-01-01T10:00"] * 2], dtype="M8[us]").tolist()
    )


def test_a_reward_is_capped_after_the_shift() -> None:
    logs = read_mapped(Source.of(TABLE), replace(MAPPING, keep_position=2), CATALOGUE)
    assert logs.reward.tolist() == [10.0]


def test_what_a_cap_does_not_mend_is_refused() -> None:
    with pytest.raises(DataError, match=r"rewards must lie.*'money', row 0"):
        read_mapped(Source.of(TABLE), replace(MAPPING, shift=0.0), CATALOGUE)


def test_slates_are_not_supported_yet() -> None:
    with pytest.raises(DataError, match=r"slates are not supported yet.*positions 1, 2.*position"):
        read_mapped(Source.of(TABLE), replace(MAPPING, keep_position=None), CATALOGUE)
    with pytest.raises(DataError, match="must occur in the logs"):
        read_mapped(Source.of(TABLE), replace(MAPPING, keep_position=3), CATALOGUE)
    with pytest.raises(ConfigError, match="needs a column of positions"):
        read_mapped(Source.of(TABLE), replace(MAPPING, position=None), CATALOGUE)


def test_estimated_propensities() -> None:
    base = replace(MAPPING, propensity=None, keep_position=None, position=None)
    every = replace(base, estimated=EstimatedPropensities(smoothing=1.0))
    source = Source.of(TABLE)
    found = source.collect(mapped(source, every))["propensity"].to_list()
    assert found == pytest.approx([4 / 6, 2 / 6, 4 / 6, 4 / 6])
    grouped = replace(base, estimated=EstimatedPropensities(("slot",), 0.5))
    table = source.collect(mapped(source, grouped))
    assert table["propensity"].to_list() == pytest.approx([2.5 / 4, 1.5 / 4, 1.5 / 2, 2.5 / 4])
    assert table["action"].to_list() == ["a", "b", "a", "a"]
    with pytest.raises(ConfigError, match="logs need propensities"):
        read_mapped(source, base, CATALOGUE)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"reward": "device", "categorical": {}}, "the column must hold numbers"),
        ({"numeric": ("device",), "categorical": {}}, "the column must hold numbers"),
        ({"propensity": "who", "unit": None}, "the column must hold numbers"),
        ({"reward": "none"}, "the column must be in the file"),
    ],
)
def test_columns_of_the_wrong_kind(change: dict[str, Any], words: str) -> None:
    source = Source.of(TABLE)
    with pytest.raises(DataError, match=words):
        read_mapped(source, replace(MAPPING, **change), CATALOGUE)


def test_times_of_the_wrong_kind() -> None:
    for wrong in (pl.lit(None), pl.lit(True)):
        source = Source.of(TABLE.with_columns(when=wrong))
        with pytest.raises(DataError, match="times must be times, numbers or text.*'when'"):
            read_mapped(source, MAPPING, CATALOGUE)


def test_names_that_look_like_patterns_are_names() -> None:
    odd = TABLE.rename({"money": "^m.*$", "age": "*", "who": "^.*$"})
    mapping = replace(MAPPING, reward="^m.*$", numeric=("*",), unit="^.*$")
    logs = read_mapped(Source.of(odd), mapping, CATALOGUE)
    assert logs.hash == read_mapped(Source.of(TABLE), MAPPING, CATALOGUE).hash


def test_a_file_through_a_mapping(tmp_path: Path) -> None:
    TABLE.write_csv(tmp_path / "logs.csv")
    logs = read_from(tmp_path / "logs.csv", MAPPING, CATALOGUE)
    assert logs.hash == read_mapped(Source.of(TABLE), MAPPING, CATALOGUE).hash


def test_propensities_of_logs_that_lost_the_rows_of_some_items() -> None:
    logs = read_mapped(Source.of(TABLE), replace(MAPPING, kept=0.8), CATALOGUE)
    np.testing.assert_allclose(logs.propensity, [0.625, 0.3125, 0.625])
    with pytest.raises(DataError, match="prob"):  # more than 1
        read_mapped(Source.of(TABLE), replace(MAPPING, kept=0.4), CATALOGUE)
