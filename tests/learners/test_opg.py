"""OPG and the gradient step that all learners share."""

import numpy as np
import pytest
from tests.learners.conftest import Setting

from depsue.errors import ConfigError
from depsue.learners import OpgSettings, ValueWithEntropy, train_opg
from depsue.policies import Uniform
from depsue.rewards import OwnRewardModel

QUICK = OpgSettings(steps=400)


def test_opg_raises_the_value(setting: Setting) -> None:
    settings = OpgSettings(steps=400, objective=ValueWithEntropy(0.0))
    trained = train_opg(setting.logs, setting.model, settings, seed=0)
    uniform = setting.world.value(Uniform(np.ones(30, dtype=bool)))
    assert setting.world.value(trained.policy) > 1.2 * uniform
    assert len(trained.history) == 400 and not trained.interrupted
    assert trained.history.objective[-1] > trained.history.objective[0]


def test_more_entropy_is_closer_to_uniform(setting: Setting) -> None:
    def largest(alpha: float) -> float:
        settings = OpgSettings(steps=400, objective=ValueWithEntropy(alpha))
        policy = train_opg(setting.logs, setting.model, settings, seed=0).policy
        return float(policy.probabilities(setting.world.contexts).max(axis=1).mean())

    assert largest(0.0) > largest(0.1) > largest(0.9)


def test_same_seed_same_policy(setting: Setting) -> None:
    few = OpgSettings(steps=30)
    first, again, other = (
        train_opg(setting.logs, setting.model, few, seed=s).policy.probabilities(
            setting.world.contexts
        )
        for s in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.allclose(first, other)


def test_an_interrupt_leaves_a_usable_policy(setting: Setting) -> None:
    def stop(task: str, done: int, total: int, words: str) -> None:
        raise KeyboardInterrupt

    trained = train_opg(setting.logs, setting.model, QUICK, seed=0, watch=stop)
    assert trained.interrupted and 0 < len(trained.history) < 400
    np.testing.assert_allclose(
        trained.policy.probabilities(setting.world.contexts).sum(axis=1), 1, atol=1e-5
    )


def test_bad_settings_are_refused() -> None:
    for steps in (0, 1e2, "9"):
        with pytest.raises(ConfigError, match="steps must be a whole number, at least 1"):
            OpgSettings(steps=steps)  # type: ignore[arg-type]
    for rate in (0.0, float("nan"), float("inf"), "0.1"):
        with pytest.raises(ConfigError, match="rate must be a positive number"):
            OpgSettings(rate=rate)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="objective must be an Objective"):
        OpgSettings(objective=0.1)  # type: ignore[arg-type]


def test_what_is_not_settings_or_a_model_is_refused(setting: Setting) -> None:
    with pytest.raises(ConfigError, match="settings must be OpgSettings. Found: 100"):
        train_opg(setting.logs, setting.model, 100, seed=0)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="model must be a reward model. Found: None"):
        train_opg(setting.logs, None, QUICK, seed=0)  # type: ignore[arg-type]
    wrong = OwnRewardModel(lambda x: np.zeros((len(x), 7)), 7)
    with pytest.raises(ConfigError, match="a finite reward for each of 30 actions"):
        train_opg(setting.logs, wrong, QUICK, seed=0)


def test_divergence_is_said(setting: Setting) -> None:
    with pytest.raises(ConfigError, match="must not diverge.*lower the rate, which is 1e"):
        train_opg(setting.logs, setting.model, OpgSettings(steps=50, rate=1e30), seed=0)
