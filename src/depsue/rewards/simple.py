"""Reward models without fitting: a team's own, and the mean of several."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from depsue.data.checks import FloatArray, IntArray
from depsue.errors import ConfigError, require
from depsue.protocols import RewardModel
from depsue.rewards.base import BaseRewardModel
from depsue.savable import REWARD_MODEL, State
from depsue.scores import Scores, scores_in, state_over


class OwnRewardModel(BaseRewardModel):
    """A team's own reward model: a callable (m, d) -> (m, A) of predicted rewards.

    Args:
        call: the callable; a `ScoreTable`, an `OnnxScores` or an `ExternalModel` can be saved.
        n_actions: A.
    """

    kind = "own"

    def __init__(self, call: Scores, n_actions: int) -> None:
        self._call, self._n_actions = call, int(n_actions)

    def predict(self, contexts: FloatArray) -> FloatArray:
        """(m, A) predictions for every action."""
        out = np.asarray(self._call(contexts), dtype=np.float64)
        require(
            out.shape == (len(contexts), self._n_actions) and bool(np.isfinite(out).all()),
            f"a reward model must return finite values of shape "
            f"({len(contexts)}, {self._n_actions})",
            found=f"shape {out.shape}",
            error=ConfigError,
        )
        return out

    def state(self) -> State:
        return state_over(self._call, self, {"n_actions": self._n_actions}, {})

    @classmethod
    def from_state(cls, state: State) -> OwnRewardModel:
        return cls(scores_in(state), state.settings["n_actions"])


class Blend(BaseRewardModel):
    """The mean of several reward models.

    Args:
        models: the models.
    """

    kind = "blend"
    part_families = {"models": REWARD_MODEL}

    def __init__(self, models: Sequence[RewardModel]) -> None:
        self.models = tuple(models)
        require(len(self.models) > 0, "a blend needs a model", found="none", cure="Blend([model])")

    def predict(self, contexts: FloatArray) -> FloatArray:
        """(m, A) predictions for every action."""
        return np.asarray(sum(model.predict(contexts) for model in self.models)) / len(self.models)

    def predict_pairs(
        self, contexts: FloatArray, actions: IntArray, rows: IntArray | None = None
    ) -> FloatArray:
        """(n,) predictions for pairs: `rows` points into the (u, d) contexts."""
        total = sum(model.predict_pairs(contexts, actions, rows) for model in self.models)
        return np.asarray(total) / len(self.models)

    def state(self) -> State:
        return State(parts={"models": self.models})

    @classmethod
    def from_state(cls, state: State) -> Blend:
        return cls(state.parts["models"])
