"""A few sampled actions in place of all: the same gradient on average."""

from typing import Any

import numpy as np
import pytest
import torch
from tests.learners.conftest import Setting

from depsue.errors import ConfigError
from depsue.learners.gradient import OpgSettings, OwnObjective, SampledRewards
from depsue.learners.opg import train_opg
from depsue.rewards import OwnRewardModel


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


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match="sampled_actions must be a whole number"):
        OpgSettings(sampled_actions=0)
    with pytest.raises(ConfigError, match="linear in q-hat"):
        OpgSettings(sampled_actions=5, objective=OwnObjective(lambda log_pi, q: q.sum(dim=1)))
