"""The linear reward model, blends, and optimism."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from depsue.data import Catalogue, LoggedData
from depsue.data.checks import FloatArray
from depsue.errors import ConfigError, DataError, FileError
from depsue.protocols import RewardModel
from depsue.rewards import Blend, LinearRewardModel, MlpRewardModel, OwnRewardModel, fit_linear
from depsue.rewards import linear as module
from depsue.rewards.mlp import BatchedMlp
from depsue.savable import REWARD_MODEL, described, rebuilt

DRAW = np.random.default_rng(4)
CONTEXTS = (DRAW.normal(size=(30, 3)) * [1.0, 5.0, 0.2] + [0.0, 3.0, -1.0]).astype(np.float32)
FEATURES = (DRAW.normal(size=(8, 2)) * [2.0, 0.5] + [1.0, 0.0]).astype(np.float32)
U, V, C = np.array([0.01, -0.004, 0.05]), np.array([0.02, 0.08]), 0.5
Q = C + (CONTEXTS @ U)[:, None] + (FEATURES @ V)[None]


def logs(n: int, noise: bool = False, features: Any = FEATURES, r_max: float = 1.0) -> LoggedData:
    draw = np.random.default_rng(5)
    context, action = draw.integers(0, 30, n), draw.integers(0, 6, n)
    mean = Q[context, action] * r_max
    return LoggedData.from_arrays(
        contexts=CONTEXTS,
        context_rows=context,
        actions=action,
        rewards=r_max * (draw.random(n) < mean / r_max) if noise else mean,
        propensities=np.full(n, 1 / 6),
        catalogue=Catalogue.of(range(8), novel=[6, 7], features=features),
        r_max=r_max,
    )


def test_it_finds_a_linear_truth_also_on_novel_actions() -> None:
    predictions = fit_linear(logs(40_000)).predict(CONTEXTS)
    np.testing.assert_allclose(predictions, Q, atol=2e-3)
    predictions = fit_linear(logs(40_000, r_max=10.0)).predict(CONTEXTS)
    np.testing.assert_allclose(predictions, 10 * Q, atol=2e-2)


def test_it_finds_it_through_noise() -> None:
    predictions = fit_linear(logs(60_000, noise=True)).predict(CONTEXTS)
    assert np.abs(predictions - Q).max() < 0.05
    assert np.corrcoef(predictions.ravel(), Q.ravel())[0, 1] > 0.98


def test_pieces_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = logs(1000, noise=True)
    at_once = fit_linear(rows).predict(CONTEXTS)
    monkeypatch.setattr(module, "AT_ONCE", 77)
    np.testing.assert_allclose(fit_linear(rows).predict(CONTEXTS), at_once, rtol=1e-9)


def test_a_constant_feature_does_no_harm() -> None:
    same = np.concatenate([FEATURES, np.ones((8, 1))], axis=1)
    np.testing.assert_allclose(
        fit_linear(logs(5000, features=same)).predict(CONTEXTS),
        fit_linear(logs(5000)).predict(CONTEXTS),
        atol=1e-6,
    )


def test_predictions_stay_within_the_rewards() -> None:
    model = LinearRewardModel(0.5, np.array([0.0, 1.0, 0.0]), np.arange(8.0) - 4, 2.0)
    whole = model.predict(CONTEXTS)
    assert whole.min() == 0.0 and whole.max() == 2.0


def mlp(seed: int, combine: Any = "mean") -> MlpRewardModel:
    draw = torch.Generator().manual_seed(seed)
    sizes = [(5, 4), (4, 1)]
    weights = [torch.randn(5, a, b, generator=draw) * 3 for a, b in sizes]
    biases = [torch.randn(5, 1, b, generator=draw) for _, b in sizes]
    net = BatchedMlp(weights, biases, 3, torch.zeros(5), torch.ones(5))
    return MlpRewardModel(net, FEATURES, 1.0, combine)


def some_models() -> list[Any]:
    linear = fit_linear(logs(500, noise=True))
    return [linear, Blend([linear, mlp(1)]), Blend([Blend([linear]), mlp(2), linear])]


@pytest.mark.parametrize("model", some_models(), ids=["linear", "blend", "nested"])
class TestModels:
    def test_it_is_a_reward_model(self, model: Any) -> None:
        assert isinstance(model, RewardModel)

    def test_pairs_and_whole_rows_agree(self, model: Any) -> None:
        rows, actions = np.array([3, 3, 0, 29]), np.array([0, 7, 2, 5])
        whole = model.predict(CONTEXTS)
        assert whole.shape == (30, 8)
        pairs = model.predict_pairs(CONTEXTS, actions, rows)
        np.testing.assert_allclose(pairs, whole[rows, actions], rtol=1e-5)
        pairs = model.predict_pairs(CONTEXTS[rows], actions)
        np.testing.assert_allclose(pairs, whole[rows, actions], rtol=1e-5)

    def test_its_state_rebuilds_it(self, model: Any) -> None:
        again = rebuilt(REWARD_MODEL, *described(model, REWARD_MODEL))
        np.testing.assert_array_equal(again.predict(CONTEXTS), model.predict(CONTEXTS))


def test_a_blend_is_the_mean() -> None:
    first, second = some_models()[0], mlp(1)
    expected: FloatArray = (first.predict(CONTEXTS) + second.predict(CONTEXTS)) / 2
    np.testing.assert_allclose(Blend([first, second]).predict(CONTEXTS), expected)


def test_optimism_adds_the_spread_of_the_members_up_to_r_max() -> None:
    model = mlp(3)
    members, hopeful = model.members(CONTEXTS), model.combined("optimistic").predict(CONTEXTS)
    free = members.mean(axis=0) + members.std(axis=0)
    assert (free > 1).any()  # so the limit matters here
    np.testing.assert_allclose(hopeful, np.minimum(free, 1), rtol=1e-5)
    actions, rows = np.tile(np.arange(8), 30), np.repeat(np.arange(30), 8)
    pairs = model.combined("optimistic").predict_pairs(CONTEXTS, actions, rows)
    np.testing.assert_allclose(pairs, hopeful.ravel(), rtol=1e-4)


def test_what_breaks_a_rule_is_refused() -> None:
    with pytest.raises(DataError, match=r"needs action features.*'features'.*give the catalogue"):
        fit_linear(logs(10, features=None))
    with pytest.raises(ConfigError, match=r"a blend needs a model.*Blend\("):
        Blend([])
    with pytest.raises(FileError, match="OwnRewardModel over a callable cannot be saved"):
        described(OwnRewardModel(lambda x: x, 8), REWARD_MODEL)
    with pytest.raises(FileError, match=r"one of blend, linear, mlp.*cubic.*version"):
        rebuilt(REWARD_MODEL, "cubic", {}, {})
    with pytest.raises(ConfigError, match=r"'mean', 'min' or 'optimistic'.*'best'"):
        mlp(1, "best")
