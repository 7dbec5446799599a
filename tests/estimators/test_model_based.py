from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from depsue.data import ConservativeTerms, Terms
from depsue.errors import ConfigError, NovelMassWarning
from depsue.estimators import IPS, DirectMethod, DoublyRobust, SwitchDR
from depsue.estimators.weights import importance_weights
from depsue.protocols import Estimator, RewardModel
from depsue.testing.estimators import EstimatorLaws, SmallWorld, quiet


class TestDirectMethod(EstimatorLaws):
    terms_type = Terms
    test_on_policy_it_is_the_mean_reward = None  # type: ignore[assignment]  # it is the model's

    def estimator(self, world: SmallWorld, model: RewardModel) -> Estimator:
        return DirectMethod(model)


def test_by_hand(by_hand: Any) -> None:
    estimate = quiet(DirectMethod(by_hand.model), by_hand.pi, by_hand.logs)
    assert estimate.value == pytest.approx(0.609375, rel=1e-15)
    assert estimate.terms is not None and estimate.terms.lower == 0
    assert not isinstance(estimate.terms, ConservativeTerms)


def test_the_warning_says_how_much_is_the_models_word(by_hand: Any) -> None:
    with pytest.warns(NovelMassWarning) as caught:
        DirectMethod(by_hand.model).estimate(by_hand.pi, by_hand.logs)
    assert str(caught[0].message) == (
        "DM: the policy makes 0.3125 of its choices among 1 novel action that the logs never show; "
        "0.2812 of the estimate 0.6094 is what the reward model says of those actions, and no "
        "reward in these logs speaks for it"
    )


def test_the_rewards_are_not_used(by_hand: Any) -> None:
    other = by_hand.logs_with(rewards=[0, 0, 0, 0], propensities=[1, 1, 1, 1])
    estimator = DirectMethod(by_hand.model)
    terms = estimator.terms(by_hand.pi, other).values
    np.testing.assert_array_equal(terms, estimator.terms(by_hand.pi, by_hand.logs).values)


class TestDoublyRobust(EstimatorLaws):
    terms_type = Terms

    def estimator(self, world: SmallWorld, model: RewardModel) -> Estimator:
        return DoublyRobust(model)


class TestSwitchDR(EstimatorLaws):
    terms_type = Terms

    def estimator(self, world: SmallWorld, model: RewardModel) -> Estimator:
        return SwitchDR(model, 1.5)


def test_dr_by_hand(by_hand: Any) -> None:
    estimate = quiet(DoublyRobust(by_hand.model), by_hand.pi, by_hand.logs)
    assert estimate.value == pytest.approx(0.828125, rel=1e-15)
    assert estimate.terms is not None
    np.testing.assert_allclose(
        estimate.terms.values, [0.75 + 0.25, 0.75, 0.46875 + 0.5, 0.46875 + 0.125], rtol=1e-15
    )


def test_switch_dr_leaves_large_weights_to_the_model(by_hand: Any) -> None:
    estimate = quiet(SwitchDR(by_hand.model, 1.0), by_hand.pi, by_hand.logs)
    assert estimate.value == pytest.approx(0.703125, rel=1e-15)
    assert estimate.terms is not None
    np.testing.assert_allclose(
        estimate.terms.values, [0.75 + 0.25, 0.75, 0.46875, 0.46875 + 0.125], rtol=1e-15
    )


def test_a_weight_of_exactly_tau_is_corrected(by_hand: Any) -> None:
    at = SwitchDR(by_hand.model, 2.0).terms(by_hand.pi, by_hand.logs)
    np.testing.assert_array_equal(
        at.values, DoublyRobust(by_hand.model).terms(by_hand.pi, by_hand.logs).values
    )


def test_tau_zero_is_the_direct_method(by_hand: Any) -> None:
    none = SwitchDR(by_hand.model, 0.0).terms(by_hand.pi, by_hand.logs)
    direct = DirectMethod(by_hand.model).terms(by_hand.pi, by_hand.logs)
    np.testing.assert_array_equal(none.values, direct.values)


def test_dr_with_a_model_that_says_zero_is_ips() -> None:
    world = SmallWorld()
    logs = world.draw(100, np.random.default_rng(3))
    nothing = DoublyRobust(world.model(np.zeros(world.q.shape)))
    np.testing.assert_allclose(
        nothing.terms(world.exploring, logs).values,
        IPS().terms(world.exploring, logs).values,
        rtol=1e-15,
    )


def test_dr_is_unbiased_on_the_support_whatever_the_model_says() -> None:
    world, rng = SmallWorld(), np.random.default_rng(5)
    wrong = DoublyRobust(world.model(rng.random((6, 8))))
    values = [wrong.estimate(world.supported, world.draw(100, rng)).value for _ in range(200)]
    z = (np.mean(values) - world.value(world.supported)) / (np.std(values, ddof=1) / np.sqrt(200))
    assert abs(z) < 4.5


def test_declared_limits(by_hand: Any) -> None:
    dr = DoublyRobust(by_hand.model).terms(by_hand.pi, by_hand.logs)
    switch = SwitchDR(by_hand.model, 1.5).terms(by_hand.pi, by_hand.logs)
    assert dr.lower == -math.inf
    assert switch.lower == -1.5 * 2
    assert not isinstance(dr, ConservativeTerms) and not isinstance(switch, ConservativeTerms)


def test_the_declared_limit_of_switch_dr_holds_and_is_nearly_reached(by_hand: Any) -> None:
    # the worst case: the model says r_max of the action shown and 0 elsewhere, the reward is 0
    logs = by_hand.logs_with(rewards=[0, 0, 0, 0], propensities=[1e-3, 1, 1, 1])
    pi = by_hand.policy([[1e-2, 0.99, 0], [0, 1, 0]])
    model = by_hand.model_of([[2.0, 0, 0], [0, 0, 0]])
    terms = SwitchDR(model, 10.0).terms(pi, logs)
    assert terms.lower == -20
    assert -20 <= terms.values.min() < -19.9


def test_rounding_does_not_switch_a_weight_of_tau() -> None:
    # on-policy every weight is 1, but exp(log p) / p is often 1 + 2e-16
    world = SmallWorld()
    logs = world.draw(500, np.random.default_rng(2))
    assert (importance_weights(world.pi0, logs) > 1).any()
    model = world.model(world.q)
    np.testing.assert_allclose(
        SwitchDR(model, 1.0).terms(world.pi0, logs).values,
        DoublyRobust(model).terms(world.pi0, logs).values,
        rtol=1e-12,
    )


@pytest.mark.parametrize("tau", [-1.0, np.nan, np.inf])
def test_a_switch_without_a_finite_tau_is_refused(by_hand: Any, tau: float) -> None:
    message = r"tau must be a finite number, 0 or more. Found: .* Cure: use DoublyRobust"
    with pytest.raises(ConfigError, match=message):
        SwitchDR(by_hand.model, tau)


def test_a_deterministic_logging_policy(by_hand: Any) -> None:
    logs = by_hand.logs_with(actions=["a", "a", "b", "b"], propensities=[1, 1, 1, 1])
    estimate = quiet(DoublyRobust(by_hand.model), by_hand.pi, logs)
    residuals = 0.25 * (1 - 0.5) + 0.25 * (0.5 - 0.5) + 0.375 * (0.5 - 0.75) + 0.375 * (1 - 0.75)
    assert estimate.value == pytest.approx(0.609375 + residuals / 4, rel=1e-15)


@pytest.mark.parametrize(("switch", "value"), [(False, "0.8281"), (True, "0.7031")])
def test_the_warning_names_the_part_that_is_pure_model(
    by_hand: Any, switch: bool, value: str
) -> None:
    estimator: Estimator = DoublyRobust(by_hand.model)
    if switch:
        estimator = SwitchDR(by_hand.model, 1.0)
    with pytest.warns(NovelMassWarning) as caught:
        estimator.estimate(by_hand.pi, by_hand.logs)
    assert str(caught[0].message) == (
        f"{'Switch-DR' if switch else 'DR'}: the policy makes 0.3125 of its choices among 1 novel "
        f"action that the logs never show; 0.2812 of the estimate {value} is what the reward model "
        "says of those actions: that part is pure model, no logged reward corrects it"
    )
