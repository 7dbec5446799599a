"""What is remembered is not worked out again, and what is not is asked for."""

import numpy as np
import pytest

from depsue.data.checks import FloatArray
from depsue.policies import Mixture, OwnPolicy, Uniform
from depsue.policies.cached import CachedPolicy, CachedRewardModel
from depsue.rewards import OwnRewardModel
from depsue.testing.policies import PolicyConformance

DRAW = np.random.default_rng(3)
CONTEXTS = DRAW.normal(size=(6, 3)).astype(np.float32)
WEIGHTS = DRAW.normal(size=(3, 4))


class Counted:
    """Answers, and counts the contexts that it was asked about."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, contexts: FloatArray) -> FloatArray:
        self.asked += len(contexts)
        weights = np.exp(contexts @ WEIGHTS)
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))


class TestPartlyRemembered(PolicyConformance):
    policy = CachedPolicy(OwnPolicy(Counted(), 4), CONTEXTS[:3])
    contexts, savable = CONTEXTS, False


class TestMixtureOfRemembered(PolicyConformance):
    policy = Mixture([TestPartlyRemembered.policy, Uniform(np.ones(4, dtype=bool))], [0.6, 0.4])
    contexts, savable = CONTEXTS, False


@pytest.mark.parametrize("known", [0, 3, 6])
def test_a_model_is_asked_about_new_contexts_only(known: int) -> None:
    model = Counted()
    memory = CachedRewardModel(OwnRewardModel(model, 4), CONTEXTS[:known])
    model.asked = 0
    expected = Counted()(CONTEXTS)
    answer = memory.predict(CONTEXTS)
    assert model.asked == 6 - known
    np.testing.assert_allclose(answer, expected, rtol=1e-6)
    rows, actions = np.array([5, 0, 3, 0, 2]), np.array([1, 2, 3, 0, 1])
    np.testing.assert_allclose(
        memory.predict_pairs(CONTEXTS, actions, rows), expected[rows, actions], rtol=1e-6
    )


@pytest.mark.parametrize("known", [0, 3, 6])
def test_a_policy_is_asked_about_new_contexts_only(known: int) -> None:
    inner = Counted()
    policy = CachedPolicy(OwnPolicy(inner, 4), CONTEXTS[:known])
    expected = Counted()(CONTEXTS)
    rows, actions = np.array([5, 0, 3, 0, 2]), np.array([1, 2, 3, 0, 1])
    inner.asked = 0
    log_prob = policy.log_prob(CONTEXTS, actions, rows)
    assert inner.asked <= 6 - known
    np.testing.assert_allclose(np.exp(log_prob), expected[rows, actions], rtol=1e-6)


def test_what_is_forgotten_is_asked_for_again() -> None:
    inner, model = Counted(), Counted()
    policy, memory = (
        CachedPolicy(OwnPolicy(inner, 4), CONTEXTS),
        CachedRewardModel(OwnRewardModel(model, 4), CONTEXTS),
    )
    before = policy.probabilities(CONTEXTS), memory.predict(CONTEXTS)
    policy.forget()
    memory.forget()
    inner.asked = model.asked = 0
    np.testing.assert_array_equal(policy.probabilities(CONTEXTS), before[0])
    np.testing.assert_array_equal(memory.predict(CONTEXTS), before[1])
    assert (inner.asked, model.asked) == (6, 6)
