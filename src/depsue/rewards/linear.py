"""A linear reward model: little to learn, so little to get wrong.

Where rewards are rare or noisy (a few per mille of their variance explained) an MLP that stops
early keeps much of the noise it started with. Ridge regression on context and action features has
a few dozen coefficients, no random start and no epochs. The mean of both (`Blend`) ranks actions
better than either, in rich and in poor logs.
"""

from __future__ import annotations

import numpy as np

from depsue.data.checks import FloatArray, IntArray
from depsue.data.logs import LoggedData
from depsue.rewards.base import AT_ONCE, BaseRewardModel, action_features, mean_and_scale
from depsue.savable import State

RIDGE = 10.0
"""Penalty on each standardised coefficient, in rows: it only steadies what rows do not settle."""


class LinearRewardModel(BaseRewardModel):
    """q-hat(x, a) = clip(c + x u + e_a v, 0, r_max).

    Args:
        constant: c.
        of_context: (d,) u.
        of_action: (A,) e_a v of every action.
        r_max: the declared largest reward.
    """

    kind = "linear"

    def __init__(
        self, constant: float, of_context: FloatArray, of_action: FloatArray, r_max: float
    ) -> None:
        self.constant, self.r_max = float(constant), float(r_max)
        self.of_context, self.of_action = np.asarray(of_context), np.asarray(of_action)

    def predict(self, contexts: FloatArray) -> FloatArray:
        """(m, A) predictions for every action."""
        by_context = self.constant + np.asarray(contexts, dtype=np.float64) @ self.of_context
        out = by_context[:, None] + self.of_action[None]
        return np.asarray(np.clip(out, 0.0, self.r_max, out=out))

    def predict_pairs(
        self, contexts: FloatArray, actions: IntArray, rows: IntArray | None = None
    ) -> FloatArray:
        """(n,) predictions for pairs: `rows` points into the (u, d) contexts."""
        by_context = self.constant + np.asarray(contexts, dtype=np.float64) @ self.of_context
        out = (by_context if rows is None else by_context[rows]) + self.of_action[actions]
        return np.asarray(np.clip(out, 0.0, self.r_max))

    def state(self) -> State:
        settings = {"constant": self.constant, "r_max": self.r_max}
        return State(settings, {"of_context": self.of_context, "of_action": self.of_action})

    @classmethod
    def from_state(cls, state: State) -> LinearRewardModel:
        of_context, of_action = state.arrays["of_context"], state.arrays["of_action"]
        return cls(state.settings["constant"], of_context, of_action, state.settings["r_max"])


def fit_linear(logs: LoggedData) -> LinearRewardModel:
    """Ridge regression of the reward on standardised context and action features.

    Args:
        logs: the rows; their catalogue must have action features.
    """
    features = action_features(logs)
    x_mean, x_scale = mean_and_scale(logs.contexts)
    e_mean, e_scale = mean_and_scale(features)
    d, width = len(x_mean), 1 + len(x_mean) + len(e_mean)
    gram, moment = np.zeros((width, width)), np.zeros(width)
    for start in range(0, len(logs), AT_ONCE):
        piece = slice(start, start + AT_ONCE)
        inputs = np.ones((len(logs.action[piece]), width))
        np.subtract(logs.contexts[logs.context[piece]], x_mean, out=inputs[:, 1 : 1 + d])
        np.subtract(features[logs.action[piece]], e_mean, out=inputs[:, 1 + d :])
        inputs[:, 1:] *= np.concatenate([x_scale, e_scale])
        gram += inputs.T @ inputs
        moment += inputs.T @ logs.reward[piece]
    penalty = np.full(width, RIDGE)
    penalty[0] = 0.0
    coefficients = np.linalg.solve(gram + np.diag(penalty), moment)
    u, v = coefficients[1 : 1 + d] * x_scale, coefficients[1 + d :] * e_scale
    constant = float(coefficients[0] - x_mean @ u - e_mean @ v)
    pieces = [features[k : k + AT_ONCE] for k in range(0, len(features), AT_ONCE)]
    of_action = np.concatenate([np.asarray(piece, dtype=np.float64) @ v for piece in pieces])
    return LinearRewardModel(constant, u, of_action, logs.r_max)
