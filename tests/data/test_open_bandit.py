"""obp's `bandit_feedback`: the keys and shapes of its version 0.5.7."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from depsue.data import Catalogue, LoggedData
from depsue.data.open_bandit import simulated_draws
from depsue.errors import ConfigError, DataError


@pytest.fixture
def feedback() -> dict[str, Any]:
    """What a synthetic dataset of obp returns for four rounds over three actions."""
    return {
        "n_rounds": 4,
        "n_actions": 3,
        "context": np.array([[1.0, 2.0], [3.0, 4.0], [1.0, 2.0], [5.0, 6.0]]),
        "action_context": np.eye(3),
        "action": np.array([0, 1, 1, 0]),
        "position": None,
        "reward": np.array([1, 0, 0, 1]),
        "expected_reward": np.full((4, 3), 0.5),
        "pi_b": np.full((4, 3, 1), 1 / 3),
        "pscore": np.array([0.5, 0.25, 0.25, 0.5]),
    }


def test_feedback_becomes_logs(feedback: dict[str, Any]) -> None:
    logs = LoggedData.from_obp(feedback, r_max=1.0, novel=[2])
    catalogue = Catalogue.of([0, 1, 2], novel=[2], features=np.eye(3))
    same = LoggedData.from_arrays(
        contexts=feedback["context"],
        actions=feedback["action"],
        rewards=feedback["reward"],
        propensities=feedback["pscore"],
        catalogue=catalogue,
        r_max=1.0,
    )
    assert logs.hash == same.hash and len(logs.contexts) == 3


def test_action_context_is_optional(feedback: dict[str, Any]) -> None:
    feedback["action_context"] = None
    assert LoggedData.from_obp(feedback, r_max=1.0).catalogue.features is None
    del feedback["action_context"], feedback["position"]
    assert LoggedData.from_obp(feedback, r_max=1.0).catalogue.features is None


def test_one_position_is_kept(feedback: dict[str, Any]) -> None:
    plain = LoggedData.from_obp(feedback, r_max=1.0)
    feedback["position"] = np.zeros(4, dtype=int)
    assert LoggedData.from_obp(feedback, r_max=1.0).hash == plain.hash
    assert LoggedData.from_obp(feedback, r_max=1.0, position=0).hash == plain.hash
    feedback["position"] = np.array([0, 1, 0, 1])
    second = LoggedData.from_obp(feedback, r_max=1.0, position=1)
    assert second.hash == plain.take([1, 3]).hash


def test_slates_are_refused(feedback: dict[str, Any]) -> None:
    feedback["position"] = np.array([0, 1, 2, 0])
    with pytest.raises(DataError, match=r"positions \[0, 1, 2\].*choose one") as caught:
        LoggedData.from_obp(feedback, r_max=1.0)
    assert caught.value.column == "position"
    with pytest.raises(DataError, match="while 3 was asked for"):
        LoggedData.from_obp(feedback, r_max=1.0, position=3)


def test_a_position_needs_positions(feedback: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="a position needs feedback with positions"):
        LoggedData.from_obp(feedback, r_max=1.0, position=0)


@pytest.mark.parametrize(
    ("key", "row", "value", "column", "rule"),
    [
        ("pscore", 3, 0.0, "pscore", "(0, 1]"),
        ("pscore", 1, np.nan, "pscore", "(0, 1]"),
        ("reward", 3, 2, "reward", "[0, r_max]"),
        ("reward", 1, -1, "reward", "[0, r_max]"),
        ("action", 3, 3, "action", "in the catalogue"),
        ("action", 1, 2, "action", "novel must not be in the logs of round 0"),
        ("context", 3, np.inf, "context[0]", "finite"),
    ],
)
@pytest.mark.parametrize("position", [None, 1])
def test_bad_cells_are_named_by_the_feedbacks_own_keys_and_rows(
    feedback: dict[str, Any],
    key: str,
    row: int,
    value: Any,
    column: str,
    rule: str,
    position: int | None,
) -> None:
    if position is not None:
        feedback["position"] = np.array([0, 1, 0, 1])
    feedback[key][row] = value
    with pytest.raises(DataError) as caught:
        LoggedData.from_obp(feedback, r_max=1.0, novel=[2], position=position)
    assert (caught.value.column, caught.value.row) == (column, row)
    assert rule in caught.value.rule and caught.value.cure


@pytest.mark.parametrize("key", ["n_actions", "context", "action", "reward", "pscore"])
def test_missing_keys_are_named(feedback: dict[str, Any], key: str) -> None:
    for wrong in ({**feedback, key: None}, {k: v for k, v in feedback.items() if k != key}):
        with pytest.raises(DataError, match="bandit feedback needs") as caught:
            LoggedData.from_obp(wrong, r_max=1.0)
        assert caught.value.column == key


@pytest.mark.parametrize("key", ["context", "reward", "pscore", "position"])
def test_other_lengths_are_named(feedback: dict[str, Any], key: str) -> None:
    feedback["position"] = np.zeros(4, dtype=int)
    feedback[key] = feedback[key][:3]
    with pytest.raises(DataError, match="3 rows, while there are 4 actions") as caught:
        LoggedData.from_obp(feedback, r_max=1.0)
    assert caught.value.column == key


@pytest.mark.parametrize(
    ("key", "value", "column"),
    [
        ("context", 1.0, "context"),
        ("context", np.ones(4), "context"),
        ("context", [[1, 2], [1], [1, 2], [1, 2]], "context"),
        ("action", 0, "action"),
        ("action", [], "action"),
        ("action", np.zeros((4, 1), dtype=int), "action"),
        ("action", ["0", "1", "1", "0"], "action"),
        ("action", [0.5, 1, 1, 0], "action"),
        ("reward", ["1", "0", "0", "1"], "reward"),
        ("pscore", np.ones((4, 3)), "pscore"),
        ("pscore", 0.5, "pscore"),
        ("position", ["a"] * 4, "position"),
        ("position", [0, 1, None, 0], "position"),
        ("position", 0, "position"),
        ("action_context", np.eye(2), "action_context"),
        ("action_context", np.full((3, 2), np.nan), "action_context[0]"),
    ],
)
def test_bad_columns_are_named(feedback: dict[str, Any], key: str, value: Any, column: str) -> None:
    feedback[key] = value
    with pytest.raises(DataError) as caught:
        LoggedData.from_obp(feedback, r_max=1.0)
    assert caught.value.column == column


@pytest.mark.parametrize("n_actions", [0, -1, 2.5, "3", True, [3]])
def test_n_actions_is_a_whole_number(feedback: dict[str, Any], n_actions: Any) -> None:
    feedback["n_actions"] = n_actions
    with pytest.raises(ConfigError, match="n_actions must be a whole number"):
        LoggedData.from_obp(feedback, r_max=1.0)


@pytest.mark.parametrize("wrong", [None, [1, 2], "feedback", np.ones(3)])
def test_feedback_is_a_dict(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="must be a dict"):
        LoggedData.from_obp(wrong, r_max=1.0)


@pytest.mark.parametrize("novel", [[3], [-1], ["2"], 2])
def test_bad_novel_actions_are_named(feedback: dict[str, Any], novel: Any) -> None:
    with pytest.raises(DataError) as caught:
        LoggedData.from_obp(feedback, r_max=1.0, novel=novel)
    assert caught.value.column == "novel"


def test_n_rounds_must_be_the_number_of_rows(feedback: dict[str, Any]) -> None:
    feedback["n_rounds"] = len(feedback["action"]) + 1
    with pytest.raises(DataError, match="same length") as caught:
        LoggedData.from_obp(feedback, r_max=1.0)
    assert caught.value.column == "n_rounds"


def test_propensities_that_are_shares_of_200_000_simulated_draws_are_known() -> None:
    assert simulated_draws(np.array([0.243515, 0.332505, 0.000005])) == 200_000
    assert simulated_draws(np.array([0.243515, 1 / 3])) is None
    assert simulated_draws(np.array([1 / 80, 1 / 80])) is None  # one number is exact
