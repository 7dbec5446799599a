from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from depsue.errors import ConfigError
from depsue.estimators import DirectMethod, DoublyRobust
from depsue.estimators.weights import logged_predictions, predictions


def test_predictions_by_hand(by_hand: Any) -> None:
    logs = by_hand.logs.take([2, 3])  # the second context alone
    got = predictions(by_hand.model, logs, slice(0, 1))
    np.testing.assert_array_equal(got, [[0.25, 0.75, 0.5]])
    pairs = logged_predictions(by_hand.model, by_hand.logs)
    np.testing.assert_array_equal(pairs, [0.5, 0.5, 0.25, 0.75])


@pytest.mark.parametrize("bad", [-0.1, 2.1, np.nan, np.inf])
def test_predictions_outside_the_range_are_refused(by_hand: Any, bad: float) -> None:
    model = by_hand.model_of([[bad, 0.5, 1], [0.25, 0.75, 0.5]])
    message = r"must predict within \[0, r_max\] with r_max = 2. Found: .*Cure: clip"
    with pytest.raises(ConfigError, match=message):
        DirectMethod(model).terms(by_hand.pi, by_hand.logs)
    with pytest.raises(ConfigError, match=message):
        logged_predictions(model, by_hand.logs)


def test_rounding_at_the_edges_is_moved_inside(by_hand: Any) -> None:
    table = np.array([[2 + 1e-7, -1e-7, 1], [0.25, 0.75, 0.5]])
    got = predictions(by_hand.model_of(table), by_hand.logs, slice(0, 2))
    assert got.min() == 0 and got.max() == 2


def test_a_model_over_other_actions_is_refused(by_hand: Any) -> None:
    model = by_hand.model_of([[0.5, 0.5], [0.5, 0.5]])
    message = r"one value per context and action. Found: shape \(2, 2\) instead of \(2, 3\)"
    with pytest.raises(ConfigError, match=message):
        DoublyRobust(model).terms(by_hand.pi, by_hand.logs)
