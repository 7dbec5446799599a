from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from depsue.data.checks import FloatArray, IntArray
from depsue.data.requests import Requests
from depsue.errors import PolicyError
from depsue.estimators.weights import (
    average,
    importance_weights,
    mass_on,
    model_sums,
    unseen,
)
from depsue.policies import ScoreTable
from depsue.policies.simple import Uniform
from depsue.testing.estimators import Rechunked, SmallWorld, TableModel


def test_weights_by_hand(by_hand: Any) -> None:
    np.testing.assert_allclose(importance_weights(by_hand.pi, by_hand.logs), [0.5, 0.5, 2, 0.5])


def test_weights_of_actions_that_the_policy_never_chooses_are_zero(by_hand: Any) -> None:
    always_c = by_hand.policy([[0, 0, 1], [0, 0, 1]])
    assert (importance_weights(always_c, by_hand.logs) == 0).all()


def test_weights_under_a_deterministic_logging_policy_are_probabilities(by_hand: Any) -> None:
    logs = by_hand.logs_with(actions=["a", "a", "b", "b"], propensities=[1, 1, 1, 1])
    assert logs.deterministic
    np.testing.assert_allclose(
        importance_weights(by_hand.pi, logs), [0.25, 0.25, 0.375, 0.375], rtol=1e-15
    )


def test_average_over_rows_or_units(by_hand: Any) -> None:
    values = np.array([1.0, 2.0, 3.0, 10.0])
    assert average(values, by_hand.logs) == 4
    assert average(values, by_hand.logs_with(units=["u", "u", "u", "v"])) == 6


def test_unseen_mass_by_hand(by_hand: Any) -> None:
    away = unseen(by_hand.pi, by_hand.logs)
    assert away.actions.tolist() == [2]
    assert away.mass == pytest.approx((0.5 + 0.5 + 0.125 + 0.125) / 4)


def test_unseen_mass_is_weighted_by_units(by_hand: Any) -> None:
    away = unseen(by_hand.pi, by_hand.logs_with(units=["u", "u", "u", "v"]))
    assert away.mass == pytest.approx(((0.5 + 0.5 + 0.125) / 3 + 0.125) / 2)


def test_a_novel_action_that_later_rounds_show_is_seen(by_hand: Any) -> None:
    logs = by_hand.logs_with(actions=["c", "b", "a", "c"], rounds=[1, 1, 1, 1])
    assert unseen(by_hand.pi, logs).mass == 0


def test_rows_of_round_0_do_not_see_what_a_later_round_shows(by_hand: Any) -> None:
    logs = by_hand.logs_with(actions=["a", "b", "a", "c"], rounds=[0, 0, 0, 1])
    away = unseen(by_hand.pi, logs)
    assert away.actions.tolist() == [2]
    assert away.mass == pytest.approx((0.5 + 0.5 + 0.125) / 4)
    sums = model_sums(by_hand.pi, logs, by_hand.model)
    assert sums.unseen.mass == pytest.approx(away.mass)


def test_a_supported_action_that_the_logs_never_show_is_not_counted(by_hand: Any) -> None:
    logs = by_hand.logs_with(actions=["a", "a", "a", "a"])
    assert unseen(by_hand.pi, logs).actions.tolist() == [2]


def test_model_sums_by_hand(by_hand: Any) -> None:
    sums = model_sums(by_hand.pi, by_hand.logs, by_hand.model)
    np.testing.assert_allclose(sums.value, [0.75, 0.75, 0.46875, 0.46875], rtol=1e-15)
    assert sums.unseen_value == pytest.approx((0.5 * 1 + 0.125 * 0.5) / 2)
    assert sums.unseen.mass == pytest.approx(0.3125)


class Single(Rechunked):
    """A policy that answers in single precision, as networks do."""

    def distributions(
        self, requests: Requests, chunk: int | None = None
    ) -> Iterator[tuple[slice, FloatArray]]:
        for piece, probabilities in super().distributions(requests, chunk):
            yield piece, probabilities.astype(np.float32)


def test_single_precision_is_summed_in_double() -> None:
    world = SmallWorld()
    logs = world.draw(50, np.random.default_rng(1))
    model = world.model(world.q.astype(np.float32))
    got = model_sums(Single(world.exploring, 6), logs, model).value
    assert got.dtype == np.float64
    table = world.exploring.probabilities(world.contexts).astype(np.float32).astype(np.float64)
    exact = (table * world.q.astype(np.float32)).sum(axis=1, keepdims=True)
    expected = ScoreTable(world.contexts, exact)(logs.contexts)[logs.context, 0]
    np.testing.assert_allclose(got, expected, rtol=1e-14)


class Watched(TableModel):
    """A table model that notes the shapes it was asked for."""

    asked: list[int]

    def predict(self, contexts: FloatArray) -> FloatArray:
        self.asked.append(len(contexts))
        return super().predict(contexts)

    def predict_pairs(
        self, contexts: FloatArray, actions: IntArray, rows: IntArray | None = None
    ) -> FloatArray:
        raise AssertionError("sums need whole rows only")


def test_the_model_is_asked_once_per_distinct_context_a_chunk_at_a_time() -> None:
    world = SmallWorld()
    logs = world.draw(500, np.random.default_rng(1))
    model = Watched(world.model(world.q).table)
    object.__setattr__(model, "asked", [])
    model_sums(Rechunked(world.exploring, 4), logs, model)
    assert model.asked == [4, 2]


def test_a_policy_over_other_actions_is_refused(by_hand: Any) -> None:
    other = Uniform(np.ones(5, dtype=bool))
    message = (
        "a policy must be over the actions of the catalogue. Found: 5 actions in the policy, "
        "3 in the catalogue. Cure: build both from the same catalogue."
    )
    with pytest.raises(PolicyError, match=f"^{message}$"):
        importance_weights(other, by_hand.logs)
    with pytest.raises(PolicyError, match=f"^{message}$"):
        mass_on(other, by_hand.logs, np.array([2]))
