from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from depsue.data import ConservativeTerms, Terms
from depsue.errors import NovelMassWarning
from depsue.estimators import DirectMethod
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
