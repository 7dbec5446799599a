from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from depsue.data import Terms
from depsue.data.checks import FloatArray, IntArray
from depsue.data.requests import Requests
from depsue.errors import ConfigError, NovelMassWarning, PolicyError
from depsue.estimators import IPS, DirectMethod, DoublyRobust
from depsue.estimators.weights import (
    Unseen,
    average,
    importance_weights,
    logged_predictions,
    mass_on,
    mean_estimate,
    model_sums,
    predictions,
    standard_error,
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


@pytest.mark.parametrize(("mass", "warned"), [(1e-13, False), (1e-11, True)])
def test_mass_that_is_only_rounding_is_not_warned_of(
    by_hand: Any, mass: float, warned: bool
) -> None:
    policy = by_hand.policy([[0.5 - mass, 0.5, mass], [0.5 - mass, 0.5, mass]])
    if warned:
        with pytest.warns(NovelMassWarning):
            estimate = IPS().estimate(policy, by_hand.logs)
    else:
        estimate = IPS().estimate(policy, by_hand.logs)
    assert estimate.unseen_mass == pytest.approx(mass)
    assert len(estimate.notes) == int(warned)


def test_the_note_counts_the_actions() -> None:
    terms = Terms(np.array([0.0, 1.0]), 0.0)
    with pytest.warns(NovelMassWarning) as caught:
        estimate = mean_estimate("X", terms, Unseen(np.arange(1200), 0.25), "so be it")
    assert estimate.notes == (
        "X: the policy makes 0.25 of its choices among 1,200 novel actions that the logs never "
        "show; so be it",
    )
    assert [str(warning.message) for warning in caught] == list(estimate.notes)
    assert estimate.value == 0.5 and estimate.standard_error == pytest.approx(0.5)


def test_units_are_what_the_standard_error_counts() -> None:
    one = Terms(np.array([0.0, 1.0]), 0.0)
    again = Terms(np.repeat([0.0, 1.0], 50), 0.0, unit=np.repeat([0, 1], 50))
    assert standard_error(again) == standard_error(one)
