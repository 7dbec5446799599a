"""OPG and the gradient step that all learners share."""

import numpy as np
import pytest
import torch
from tests.learners.conftest import Setting

from depsue.errors import ConfigError
from depsue.learners import OpgSettings, OwnObjective, ValueWithEntropy, train_opg
from depsue.learners import gradient as gradient_module
from depsue.learners.gradient import PolicyGradient
from depsue.learners.opg import initial_policy
from depsue.policies import Uniform
from depsue.rewards import OwnRewardModel

QUICK = OpgSettings(steps=400)


def test_one_step_is_the_papers_formula(setting: Setting) -> None:
    """Eq. 6 and 7 by autograd: F + lambda R, its gradient scaled by rate / max pi."""
    logs, model = setting.logs, setting.model
    settings = OpgSettings(rate=0.5, batch=32)
    policy = initial_policy(logs, settings, seed=3)
    before = policy.copy()
    rows = np.random.default_rng(0).integers(0, len(logs), 32)
    facts = PolicyGradient(policy, logs, model, settings, seed=0).step(rows, 0.7)

    leaves = [t.requires_grad_(True) for layer in before.copy().layers for t in layer]
    hidden = (before.inputs(logs.contexts[logs.context[rows]]) @ leaves[0] + leaves[1]).relu()
    log_pi = torch.log_softmax(hidden @ leaves[2] + leaves[3], dim=1)
    pi, q = log_pi.exp(), torch.from_numpy(model.predict(logs.contexts)[logs.context[rows]])
    chosen = log_pi[torch.arange(32), torch.from_numpy(logs.action[rows].astype(np.int64))]
    r = torch.from_numpy(logs.reward[rows].astype(np.float32))
    objective = (0.9 * pi * q - 0.1 * pi * log_pi).sum(dim=1).mean()
    regulariser = (r * chosen).mean()
    gradients = torch.autograd.grad(objective + 0.7 * regulariser, leaves)
    moved = [t for layer in policy.layers for t in layer]
    rate = 0.5 / float(pi.detach().max())
    for leaf, gradient, after in zip(leaves, gradients, moved, strict=True):
        torch.testing.assert_close(after, leaf.detach() + rate * gradient, rtol=1e-4, atol=1e-6)
    assert facts.objective == pytest.approx(objective.item(), rel=1e-5)
    assert facts.regulariser == pytest.approx(regulariser.item(), rel=1e-5)
    novel = torch.from_numpy(logs.catalogue.novel.copy())
    assert facts.novelty == pytest.approx(pi[:, novel].sum(dim=1).mean().item(), rel=1e-5)


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


def test_the_objective_is_pluggable(setting: Setting) -> None:
    novel = torch.from_numpy(setting.world.catalogue.novel.astype(np.float32))
    objective = OwnObjective(lambda log_pi, q: log_pi.exp() @ novel)
    trained = train_opg(
        setting.logs, setting.model, OpgSettings(steps=300, objective=objective), seed=0
    )
    assert setting.world.novelty(trained.policy) > 0.8


def test_a_large_table_is_predicted_per_minibatch(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = OpgSettings(steps=20)
    kept = train_opg(setting.logs, setting.model, few, seed=0).policy
    monkeypatch.setattr(gradient_module, "LARGEST_TABLE", 1)
    asked = train_opg(setting.logs, setting.model, few, seed=0).policy
    contexts = setting.world.contexts
    np.testing.assert_allclose(
        kept.probabilities(contexts), asked.probabilities(contexts), atol=1e-5
    )


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
