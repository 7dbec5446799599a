"""What names and types are taken for."""

from typing import Any

import polars as pl
import pytest

from depsue.check import guess_mapping
from depsue.data.reading import Source
from depsue.errors import ConfigError


def test_a_common_layout(good: pl.DataFrame) -> None:
    mapping, notes = guess_mapping(Source.of(good))
    assert (mapping.action, mapping.reward, mapping.propensity) == (
        "item_id",
        "click",
        "propensity",
    )
    assert (mapping.unit, mapping.time, mapping.position) == ("user_id", "timestamp", None)
    assert mapping.numeric == ("age",) and mapping.categorical == {"country": ("NO", "SE")}
    assert "guessed from its name: action is the column 'item_id'" in notes
    assert any("r_max = 1 is a guess" in note for note in notes)


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (("arm", "Reward", "pscore"), ("arm", "Reward", "pscore")),
        (("action", "label", "probability"), ("action", "label", "probability")),
        (("Item ID", "is-click", "propensity_score"), ("Item ID", "is-click", "propensity_score")),
        (("action", "click", "weight"), ("action", "click", None)),
    ],
)
def test_names_of_other_teams(names: tuple[str, ...], found: tuple[str | None, ...]) -> None:
    columns = dict(zip(names, ([1, 2], [0, 1], [0.5, 0.5]), strict=True))
    mapping, _ = guess_mapping(Source.of(columns))
    assert (mapping.action, mapping.reward, mapping.propensity) == found


def test_what_comes_after_the_choice_is_no_context() -> None:
    columns: dict[str, Any] = {
        "": [0, 1],
        "action": [1, 2],
        "reward": [0, 1],
        "propensity": [0.5, 0.5],
        "revenue": [0.0, 9.0],
        "item_price": [3.0, 4.0],
        "event_id": [7, 8],
        "visits": [1, 2],
    }
    mapping, notes = guess_mapping(Source.of(columns))
    assert mapping.numeric == ("visits",)
    assert "columns that are not read: 'revenue', 'item_price'" in notes


def test_ids_that_name_decisions_are_told_from_ids_that_repeat() -> None:
    columns = {"action": [1, 2] * 50, "reward": [0, 1] * 50, "propensity": [0.5] * 100}
    ids = {"once": [f"e{k}" for k in range(100)], "again": [f"e{k // 2}" for k in range(100)]}
    mapping, notes = guess_mapping(Source.of({**columns, "EventId": ids["once"]}))
    assert mapping.decision == "EventId"
    assert "guessed from its name: decision is the column 'EventId'" in notes
    mapping, _ = guess_mapping(Source.of({**columns, "EventId": ids["again"]}))
    assert mapping.decision is None


def test_text_of_many_values_is_no_context(good: pl.DataFrame) -> None:
    wide = good.with_columns(query=pl.Series([f"q{k}" for k in range(len(good))]))
    assert list(guess_mapping(Source.of(wide))[0].categorical) == ["country"]


def test_the_open_bandit_layout() -> None:
    columns: dict[str, Any] = {
        "": [0, 1],
        "timestamp": ["2019-11-24 00:00:34.7+00:00"] * 2,
        "item_id": [3, 4],
        "position": [1, 2],
        "click": [0, 1],
        "propensity_score": [0.5, 0.5],
        "user_feature_0": ["aa", "bb"],
        "user-item_affinity_0": [0.0, 1.0],
    }
    mapping, _ = guess_mapping(Source.of(columns))
    assert mapping.position == "position" and mapping.time == "timestamp"
    assert mapping.numeric == () and mapping.categorical == {"user_feature_0": ("aa", "bb")}


def test_what_cannot_be_guessed_is_asked_for() -> None:
    with pytest.raises(ConfigError, match=r"column of the reward must be known.*--mapping"):
        guess_mapping(Source.of({"action": [1], "reward": ["high"]}))


def test_lists_beside_the_candidates_are_their_probabilities_and_a_ranker_is_a_version() -> None:
    logs = {
        "item_id": ["a", "b", "a"],
        "click": [0, 1, 0],
        "p": [0.75, 0.5, 1.0],
        "shortlist": [["a", "b"], ["b", "c"], ["a"]],
        "softmax": [[0.75, 0.25], [0.5, 0.5], [1.0]],
        "scores": [[0.7, 0.2], [0.5, 0.1], [1.0]],
        "ranker": ["v1", "v1", "v2"],
    }
    mapping, _ = guess_mapping(Source.of(logs))
    assert (mapping.probabilities, mapping.version) == ("softmax", "ranker")
    assert not mapping.categorical
    # without candidates the model may be that of a car
    plain = {name: logs[name] for name in ("item_id", "click", "p")}
    mapping, _ = guess_mapping(Source.of(plain | {"model": logs["ranker"]}))
    assert mapping.version is None and list(mapping.categorical) == ["model"]
