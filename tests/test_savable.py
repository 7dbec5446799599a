"""What can be saved: a class of one's own, in parts, by name; and what cannot."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from depsue.data.checks import FloatArray
from depsue.errors import CannotBeSaved, ConfigError, FileError
from depsue.policies import BasePolicy, ExternalModel, Mixture, OwnPolicy, Uniform, load, save
from depsue.policies.cached import CachedPolicy, CachedRewardModel
from depsue.policies.tilted import Tilted
from depsue.rewards import BaseRewardModel, Blend, LinearRewardModel, OwnRewardModel
from depsue.savable import POLICY, REWARD_MODEL, State, described, hash_of, outside_of, rebuilt

CONTEXTS = np.random.default_rng(0).normal(size=(4, 2)).astype(np.float32)
LINEAR = LinearRewardModel(0.1, np.array([0.1, 0.2]), np.array([0.1, 0.2, 0.3]), 1.0)
EVEN = Uniform(np.ones(3, dtype=bool))


class Favourite(BasePolicy):
    """A toy: one action always."""

    kind = "test favourite"

    def __init__(self, action: int, n_actions: int) -> None:
        self.action, self._n_actions = action, n_actions

    @property
    def n_actions(self) -> int:
        return self._n_actions

    def probabilities(self, contexts: FloatArray) -> FloatArray:
        return np.tile(np.eye(self.n_actions)[self.action], (len(contexts), 1))

    def state(self) -> State:
        return State({"action": self.action, "n_actions": self.n_actions})

    @classmethod
    def from_state(cls, state: State) -> Favourite:
        return cls(**state.settings)


class Constant(BaseRewardModel):
    """A toy: one reward for all; it has no kind, so it cannot be saved."""

    def predict(self, contexts: FloatArray) -> FloatArray:
        return np.full((len(contexts), 3), 0.5)


def test_a_class_of_ones_own_is_saved_also_as_a_part(tmp_path: Path) -> None:
    mixture = Mixture([EVEN, Favourite(2, 3)], [0.9, 0.1])
    save(mixture, tmp_path / "p")
    again = load(tmp_path / "p")
    np.testing.assert_array_equal(again.probabilities(CONTEXTS), mixture.probabilities(CONTEXTS))
    assert (
        hash_of(again) == hash_of(mixture) != hash_of(Mixture([EVEN, Favourite(1, 3)], [0.9, 0.1]))
    )


def test_the_layout_names_every_part() -> None:
    tilted = Tilted(EVEN, Blend([LINEAR, LINEAR]), strength=1.0, cap=2.0, scale=1.0)
    kind, settings, arrays = described(tilted, POLICY)
    assert kind == "tilted" and settings["base"] == {"kind": "uniform", "settings": {}}
    linear = {"kind": "linear", "settings": {"constant": 0.1, "r_max": 1.0}}
    assert settings["model"] == {"kind": "blend", "settings": {"models": [linear, linear]}}
    assert sorted(arrays) == [
        "base.support",
        *(f"model.{k}.of_{x}" for k in (0, 1) for x in ("action", "context")),
    ]


def test_pairs_are_taken_from_whole_rows() -> None:
    actions, rows = np.array([0, 2, 1]), np.array([3, 0, 0])
    pairs = BaseRewardModel.predict_pairs(LINEAR, CONTEXTS, actions, rows)
    np.testing.assert_allclose(pairs, LINEAR.predict_pairs(CONTEXTS, actions, rows))
    assert LINEAR.predict(CONTEXTS)[3, 0] == pairs[0]


def test_a_cache_is_hashed_as_what_it_remembers() -> None:
    assert hash_of(CachedPolicy(EVEN, CONTEXTS)) == hash_of(EVEN) is not None
    assert hash_of(CachedRewardModel(LINEAR)) == hash_of(LINEAR) is not None
    assert hash_of(CachedRewardModel(OwnRewardModel(lambda x: x, 3))) is None
    assert hash_of("a policy") is None


def test_a_policy_and_a_model_with_the_same_content_differ() -> None:
    call = ExternalModel("ranker-7")
    assert hash_of(OwnPolicy(call, 3)) != hash_of(OwnRewardModel(call, 3))


def test_what_is_outside_is_found_in_every_part() -> None:
    def ranker(contexts: FloatArray) -> FloatArray:
        return np.ones((len(contexts), 3)) / 3

    own = OwnPolicy(ExternalModel("ranker-7", ranker), 3)
    assert outside_of(Mixture([EVEN, own], [0.5, 0.5])) == {"ranker-7": ranker}
    assert outside_of(OwnPolicy(ranker, 3)) == outside_of(EVEN) == {}


def test_a_part_that_cannot_be_saved_is_named(tmp_path: Path) -> None:
    tilted = Tilted(EVEN, Constant(), strength=1.0, cap=2.0, scale=1.0)
    with pytest.raises(CannotBeSaved, match=r"only reward models.*Constant.*BaseRewardModel"):
        save(tilted, tmp_path / "p")
    assert hash_of(tilted) is None
    with pytest.raises(CannotBeSaved, match="a Uniform cannot be saved: only reward models"):
        described(EVEN, REWARD_MODEL)


def test_a_kind_has_one_class() -> None:
    with pytest.raises(ConfigError, match=r"a name of its own.*'uniform' is Uniform of depsue"):
        type("Other", (Uniform,), {"kind": "uniform"})


def test_what_does_not_fit_together_is_refused() -> None:
    kind, settings, arrays = described(Blend([LINEAR]), REWARD_MODEL)
    for broken in ({}, {"models": 3}, {"models": [{"kind": "linear"}]}):
        with pytest.raises(FileError, match="saved blend reward model must fit together"):
            rebuilt(REWARD_MODEL, kind, broken, arrays)
    with pytest.raises(FileError, match=r"must fit together.*of_context"):
        rebuilt(REWARD_MODEL, kind, settings, {})
