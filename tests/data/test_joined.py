"""Logs of several rounds as one: every row keeps what it had."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from depsue.data import ActionCatalogue, LoggedData
from depsue.data.logs import joined
from depsue.errors import ConfigError, DataError

CATALOGUE = ActionCatalogue.of(["a", "b", "c"], novel=["c"])
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


def logs(given: dict[str, Any], **changed: Any) -> LoggedData:
    settings = {"catalogue": CATALOGUE, "r_max": 1.0, **given, **changed}
    return LoggedData.from_arrays(**settings)


def test_rows_follow_one_another_with_all_they_had() -> None:
    both = joined([logs(FIRST), logs(SECOND)])
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
    first, second = logs(FIRST), logs(SECOND)
    both = joined([first, second])
    assert both.take(slice(0, 3)).hash == first.hash
    assert both.take(slice(3, 5)).hash == second.hash
    assert joined([first]) is first
    assert joined([first, second]).hash != joined([second, first]).hash


def test_logs_without_options_join_too() -> None:
    bare = {name: FIRST[name] for name in ("contexts", "actions", "rewards", "propensities")}
    both = joined([logs(bare), logs(bare)])
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
        joined([logs(FIRST), logs(SECOND, **changed)])


def test_another_catalogue_and_no_logs_are_refused() -> None:
    other = ActionCatalogue.of(["a", "b", "c", "d"], novel=["c", "d"])
    with pytest.raises(ConfigError, match=r"same catalogue.*3 and 4 actions.*one catalogue"):
        joined([logs(FIRST), logs(SECOND, catalogue=other)])
    with pytest.raises(ConfigError, match="logs to join"):
        joined([])
