"""The conformance suite catches estimators that promise what they do not keep."""

from __future__ import annotations

import warnings
from dataclasses import replace

import pytest

from depsue.data import LoggedData, Terms, WeightedTerms
from depsue.estimators import IPS, SNIPS, DoublyRobust
from depsue.protocols import Estimate, Estimator, Policy, RewardModel
from depsue.testing.estimators import EstimatorLaws, SmallWorld


class SelfNormalised:
    """IPS with its weights divided by their mean, which calls itself conservative."""

    def estimate(self, policy: Policy, logs: LoggedData) -> Estimate:
        inner = IPS().estimate(policy, logs)
        weights = IPS().terms(policy, logs).weights
        terms = WeightedTerms.of(weights / weights.mean(), logs.reward, r_max=logs.r_max)
        return replace(inner, value=terms.mean(), terms=terms)


class LawsOfSelfNormalised(EstimatorLaws):
    terms_type = WeightedTerms

    def estimator(self, world: SmallWorld, model: RewardModel) -> Estimator:
        return SelfNormalised()


class LawsOfShyDR(EstimatorLaws):
    terms_type = Terms

    def estimator(self, world: SmallWorld, model: RewardModel) -> Estimator:
        return DoublyRobust(world.model(0 * world.by_group))


class LawsOfSilence(EstimatorLaws):
    terms_type = None

    def estimator(self, world: SmallWorld, model: RewardModel) -> Estimator:
        return Silent()


class Silent:
    """SNIPS without a word of the mass that the logs never show."""

    def estimate(self, policy: Policy, logs: LoggedData) -> Estimate:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return replace(SNIPS().estimate(policy, logs), notes=())


def test_a_false_claim_to_be_conservative_fails() -> None:
    with pytest.raises(AssertionError):
        name = "test_novel_mass_can_raise_it_above_the_value_unless_it_is_conservative"
        getattr(LawsOfSelfNormalised(), name)()


def test_a_model_that_is_not_the_one_given_fails() -> None:
    with pytest.raises(AssertionError):
        LawsOfShyDR().test_constant_rewards()


def test_silence_fails() -> None:
    with pytest.raises(AssertionError):
        LawsOfSilence().test_it_warns_once_of_unseen_mass_and_only_then()
