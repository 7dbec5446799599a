from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from depsue.data import ConservativeTerms, LoggedData, WeightedTerms
from depsue.errors import ConfigError, DataError, NovelMassWarning
from depsue.estimators import IPS, SNIPS, ClippedIPS
from depsue.policies import OwnPolicy
from depsue.protocols import Estimator, RewardModel
from depsue.testing.estimators import EstimatorLaws, SmallWorld, quiet


class TestIPS(EstimatorLaws):
    terms_type = WeightedTerms

    def estimator(self, world: SmallWorld, model: RewardModel) -> Estimator:
        return IPS()

    def share_of_constant(self, world: SmallWorld, policy: OwnPolicy, logs: LoggedData) -> float:
        return float(world.weights(policy, logs).mean())


class TestClippedIPS(EstimatorLaws):
    terms_type = WeightedTerms
    test_unbiased_on_supported_policies = None  # type: ignore[assignment]  # clipping biases

    def estimator(self, world: SmallWorld, model: RewardModel) -> Estimator:
        return ClippedIPS(1.5)

    def share_of_constant(self, world: SmallWorld, policy: OwnPolicy, logs: LoggedData) -> float:
        return float(np.minimum(world.weights(policy, logs), 1.5).mean())


class TestSNIPS(EstimatorLaws):
    terms_type = None
    test_unbiased_on_supported_policies = None  # type: ignore[assignment]  # in the limit only

    def estimator(self, world: SmallWorld, model: RewardModel) -> Estimator:
        return SNIPS()


def test_ips_by_hand(by_hand: Any) -> None:
    estimate = quiet(IPS(), by_hand.pi, by_hand.logs)
    assert estimate.value == pytest.approx(0.5625, rel=1e-15)
    assert isinstance(estimate.terms, ConservativeTerms)
    np.testing.assert_allclose(estimate.terms.values, [0.5, 0.25, 1, 0.5], rtol=1e-15)
    assert estimate.terms.lower == 0 and "importance weighting" in estimate.terms.proof
    assert estimate.standard_error == pytest.approx(np.std([0.5, 0.25, 1, 0.5], ddof=1) / 2)


def test_ips_keeps_weights_and_rewards_apart_for_bounds_that_clip(by_hand: Any) -> None:
    terms = IPS().terms(by_hand.pi, by_hand.logs)
    np.testing.assert_allclose(terms.weights, [0.5, 0.5, 2, 0.5], rtol=1e-15)
    np.testing.assert_array_equal(terms.rewards, by_hand.logs.reward)
    assert terms.r_max == 2


def test_clipped_ips_by_hand(by_hand: Any) -> None:
    estimate = quiet(ClippedIPS(1.0), by_hand.pi, by_hand.logs)
    assert estimate.value == pytest.approx(0.4375, rel=1e-15)
    assert isinstance(estimate.terms, WeightedTerms)
    assert estimate.terms.weights.max() == 1


def test_clipped_ips_is_ips_for_a_large_tau(by_hand: Any) -> None:
    clipped = ClippedIPS(2.0).terms(by_hand.pi, by_hand.logs)
    np.testing.assert_array_equal(clipped.values, IPS().terms(by_hand.pi, by_hand.logs).values)


@pytest.mark.parametrize("tau", [0.0, -1.0, np.nan])
def test_a_clip_that_is_not_positive_is_refused(tau: float) -> None:
    with pytest.raises(ConfigError, match=r"tau must be positive. Found: .* Cure: use for example"):
        ClippedIPS(tau)


def test_snips_by_hand(by_hand: Any) -> None:
    estimate = quiet(SNIPS(), by_hand.pi, by_hand.logs)
    assert estimate.value == pytest.approx(0.5625 / 0.875, rel=1e-15)
    assert estimate.terms is None and estimate.standard_error is None
    assert not hasattr(SNIPS(), "terms")


def test_units_are_averaged_first(by_hand: Any) -> None:
    logs = by_hand.logs_with(units=["u", "u", "u", "v"])
    ips = quiet(IPS(), by_hand.pi, logs)
    assert ips.terms is not None
    np.testing.assert_allclose(ips.terms.per_unit(ips.terms.values), [1.75 / 3, 0.5], rtol=1e-15)
    assert ips.value == pytest.approx((1.75 / 3 + 0.5) / 2, rel=1e-15)
    snips = quiet(SNIPS(), by_hand.pi, logs)
    assert snips.value == pytest.approx((1.75 / 3 + 0.5) / (3 / 3 + 0.5), rel=1e-15)


def test_snips_without_a_common_action_is_refused(by_hand: Any) -> None:
    always_c = by_hand.policy([[0, 0, 1], [0, 0, 1]])
    message = "needs a row whose action the policy could choose. Found: .*all 4 weights are 0"
    with pytest.raises(DataError, match=message):
        SNIPS().estimate(always_c, by_hand.logs)
    assert quiet(IPS(), always_c, by_hand.logs).value == 0


def test_one_row_has_no_standard_error_to_speak_of(by_hand: Any) -> None:
    estimate = quiet(IPS(), by_hand.pi, by_hand.logs.take([0]))
    assert estimate.value == 0.5 and estimate.standard_error == np.inf


@pytest.mark.parametrize(
    ("estimator", "name"), [(IPS(), "IPS"), (ClippedIPS(1.0), "clipped IPS")], ids=["ips", "clip"]
)
def test_ips_says_how_much_it_may_understate(by_hand: Any, estimator: Estimator, name: str) -> None:
    with pytest.warns(NovelMassWarning) as caught:
        estimator.estimate(by_hand.pi, by_hand.logs)
    assert str(caught[0].message) == (
        f"{name}: the policy makes 0.3125 of its choices among 1 novel action that the logs never "
        "show; they count as reward 0, which understates the policy's value by at most 0.625 "
        "(their mass times r_max = 2)"
    )


def test_snips_says_that_it_overstates(by_hand: Any) -> None:
    with pytest.warns(NovelMassWarning) as caught:
        SNIPS().estimate(by_hand.pi, by_hand.logs)
    assert str(caught[0].message) == (
        "SNIPS: the policy makes 0.3125 of its choices among 1 novel action that the logs never "
        "show; the weights average 0.875, and dividing by that values those actions as if they "
        "were as good as the ones shown: SNIPS says 0.6429 where IPS, which counts them as 0, "
        "says 0.5625"
    )
