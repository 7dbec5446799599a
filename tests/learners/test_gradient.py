"""The objective F, the gradient step that all learners share, and sampled actions."""

from typing import Any

import numpy as np
import pytest
import torch
from tests.learners.conftest import Setting

from depsue.errors import ConfigError
from depsue.learners import gradient as gradient_module
from depsue.learners.gradient import (
    OpgSettings,
    OwnObjective,
    PolicyGradient,
    SampledRewards,
    ValueWithEntropy,
)
from depsue.learners.opg import initial_policy, train_opg
from depsue.rewards import OwnRewardModel

DRAW = np.random.default_rng(0)
LOG_PI = torch.log_softmax(torch.from_numpy(DRAW.normal(size=(4, 6))), dim=1)
Q = torch.from_numpy(DRAW.random((4, 6)))


def eq2(log_pi: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    pi = log_pi.exp()
    return 0.7 * (pi * q).sum(dim=1) - 0.3 * (pi * log_pi).sum(dim=1)


def test_eq_2_and_its_derivative() -> None:
    values, gradient = ValueWithEntropy(0.3)(LOG_PI, LOG_PI.exp(), Q)
    expected, by_autograd = OwnObjective(eq2)(LOG_PI, LOG_PI.exp(), Q)
    torch.testing.assert_close(values, eq2(LOG_PI, Q))
    torch.testing.assert_close(values, expected)
    torch.testing.assert_close(gradient, by_autograd)


def test_without_entropy_it_is_eq_1() -> None:
    values, gradient = ValueWithEntropy(0.0)(LOG_PI, LOG_PI.exp(), Q)
    torch.testing.assert_close(values, (LOG_PI.exp() * Q).sum(dim=1))
    torch.testing.assert_close(gradient, LOG_PI.exp() * Q)


def test_bad_objectives_are_refused() -> None:
    with pytest.raises(ConfigError, match="alpha must lie in"):
        ValueWithEntropy(1.5)
    with pytest.raises(ConfigError, match="one finite value per context"):
        OwnObjective(lambda log_pi, q: log_pi.sum())(LOG_PI, LOG_PI.exp(), Q)
    with pytest.raises(ConfigError, match="depends on log_pi"):
        OwnObjective(lambda log_pi, q: q.sum(dim=1))(LOG_PI, LOG_PI.exp(), Q)


def test_the_estimate_has_the_predictions_as_its_mean() -> None:
    draw = np.random.default_rng(0)
    contexts, weights = draw.normal(size=(3, 4)).astype(np.float32), draw.normal(size=(4, 12))
    model = OwnRewardModel(lambda x: 1 / (1 + np.exp(-x @ weights)), 12)
    pi = torch.softmax(torch.from_numpy(2 * draw.normal(size=(3, 12)).astype(np.float32)), dim=1)
    sampled = SampledRewards(model, contexts, 0.4, 5, seed=1)
    draws = torch.stack([sampled.of(np.arange(3), pi) for _ in range(6000)])
    error = draws.std(dim=0) / 6000**0.5
    gap = (draws.mean(dim=0) - torch.from_numpy(model.predict(contexts))).abs()
    assert bool((gap < 4.5 * error + 1e-6).all())
    assert float(draws.std(dim=0).max()) > 0.1  # it is a sample


def test_it_asks_only_about_so_many_actions() -> None:
    asked: list[int] = []

    class Counted(OwnRewardModel):
        def predict_pairs(self, contexts: Any, actions: Any, rows: Any = None) -> Any:
            asked.append(len(actions))
            return super().predict_pairs(contexts, actions, rows)

    model = Counted(lambda x: np.zeros((len(x), 30)), 30)
    sampled = SampledRewards(model, np.zeros((9, 2), np.float32), 0.1, 4, seed=1)
    sampled.of(np.array([3, 3, 8]), torch.full((3, 30), 1 / 30))
    assert asked == [12]


def test_training_ends_where_it_ends_with_all_actions(setting: Setting) -> None:
    common: dict[str, Any] = {"steps": 600, "rate": 0.05, "batch": 64}
    full = train_opg(setting.logs, setting.model, OpgSettings(**common), seed=1).policy
    few = train_opg(
        setting.logs, setting.model, OpgSettings(**common, sampled_actions=8), seed=1
    ).policy
    uniform = setting.world.q.mean()
    gain = setting.world.value(full) - uniform
    assert gain > 0.005
    assert setting.world.value(few) - uniform == pytest.approx(gain, rel=0.2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sampled_actions": 0}, "sampled_actions must be a whole number"),
        (
            {"sampled_actions": 5, "objective": OwnObjective(lambda log_pi, q: q.sum(dim=1))},
            "linear in q-hat",
        ),
        ({"factor": "maximum"}, "factor must be one of 'minibatch', 'contexts', 'none'"),
        ({"factor_on": "V"}, "factor_on must be one of 'all', 'objective'"),
        ({"baseline": 1}, "baseline must be True or False"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        OpgSettings(**settings)


@pytest.mark.parametrize(
    ("factor", "factor_on"),
    [("minibatch", "all"), ("minibatch", "objective"), ("contexts", "all"), ("none", "all")],
)
def test_one_step_is_the_papers_formula(setting: Setting, factor: Any, factor_on: Any) -> None:
    """Eq. 6 and 7 by autograd: F + lambda R, with the factor 1 / max pi on all or on F alone."""
    logs, model = setting.logs, setting.model
    settings = OpgSettings(rate=0.5, batch=32, factor=factor, factor_on=factor_on)
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
    largest = {
        "minibatch": float(pi.detach().max()),
        "contexts": float(before.probabilities(logs.contexts).max()),
        "none": 1.0,
    }[factor]
    unscaled = largest if factor_on == "objective" else 1.0
    gradients = torch.autograd.grad(objective + 0.7 * unscaled * regulariser, leaves)
    moved = [t for layer in policy.layers for t in layer]
    for leaf, gradient, after in zip(leaves, gradients, moved, strict=True):
        step = 0.5 / largest * gradient
        torch.testing.assert_close(after, leaf.detach() + step, rtol=1e-4, atol=1e-6)
    assert facts.objective == pytest.approx(objective.item(), rel=1e-5)
    assert facts.regulariser == pytest.approx(regulariser.item(), rel=1e-5)
    novel = torch.from_numpy(logs.catalogue.novel.copy())
    assert facts.novelty == pytest.approx(pi[:, novel].sum(dim=1).mean().item(), rel=1e-5)


def test_the_largest_probability_of_all_contexts_is_at_least_a_minibatchs(
    setting: Setting,
) -> None:
    """So a step with the factor over all contexts is the shorter one, in the same direction."""
    steps = []
    for factor in ("minibatch", "contexts"):
        settings = OpgSettings(rate=0.5, batch=4, factor=factor)
        policy = initial_policy(setting.logs, settings, seed=3)
        start = policy.copy().layers[-1][1]
        learner = PolicyGradient(policy, setting.logs, setting.model, settings, seed=0)
        learner.step(np.arange(4), 0.0)
        steps.append(policy.layers[-1][1] - start)
    ratio = float(steps[1].norm() / steps[0].norm())
    assert ratio < 1
    torch.testing.assert_close(steps[1], ratio * steps[0], rtol=1e-3, atol=1e-8)


def test_entropy_of_one_action_adds_noise_and_pulls_nowhere(setting: Setting) -> None:
    """Over many draws a step is that of the value alone, which Eq. 2 exactly is not."""
    rows = np.arange(64)

    def step(objective: ValueWithEntropy, seed: int) -> torch.Tensor:
        settings = OpgSettings(rate=0.5, batch=64, objective=objective)
        policy = initial_policy(setting.logs, settings, seed=3)
        start = policy.copy().layers[-1][1]
        PolicyGradient(policy, setting.logs, setting.model, settings, seed=seed).step(rows, 0.0)
        return policy.layers[-1][1] - start

    drawn = torch.stack([step(ValueWithEntropy(0.5, "one action"), seed) for seed in range(400)])
    value = step(ValueWithEntropy(0.0), 0) / 2  # 1 - alpha = .5
    error = drawn.std(dim=0) / 400**0.5
    assert bool(((drawn.mean(dim=0) - value).abs() < 4.5 * error).all())
    assert not torch.equal(drawn[0], drawn[1])
    exact = step(ValueWithEntropy(0.5), 0)
    assert bool(((exact - value).abs() > 4.5 * error).any())


def test_sampled_actions_without_a_baseline_have_the_same_mean_and_more_noise(
    setting: Setting,
) -> None:
    """A reward that is the same everywhere teaches nothing: at once with a baseline, on average
    without one."""
    mean, n_actions = setting.logs.mean_reward(), len(setting.world.catalogue)
    model = OwnRewardModel(lambda x: np.full((len(x), n_actions), mean), n_actions)

    def step(baseline: bool, seed: int) -> torch.Tensor:
        objective = ValueWithEntropy(0.0)
        settings = OpgSettings(rate=0.5, sampled_actions=1, baseline=baseline, objective=objective)
        policy = initial_policy(setting.logs, settings, seed=3)
        start = policy.copy().layers[-1][1]
        PolicyGradient(policy, setting.logs, model, settings, seed=seed).step(np.arange(64), 0.0)
        return policy.layers[-1][1] - start

    assert float(step(True, 0).abs().max()) < 1e-6
    moved = torch.stack([step(False, seed) for seed in range(300)])
    error = moved.std(dim=0) / 300**0.5
    assert bool((moved.mean(dim=0).abs() < 4.5 * error).all())
    assert float(moved.std(dim=0).min()) > 1e-3


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
    sampled = train_opg(setting.logs, setting.model, few, seed=0).policy
    monkeypatch.setattr(gradient_module, "LARGEST_TABLE", 1)
    asked = train_opg(setting.logs, setting.model, few, seed=0).policy
    contexts = setting.world.contexts
    np.testing.assert_allclose(
        sampled.probabilities(contexts), asked.probabilities(contexts), atol=1e-5
    )
