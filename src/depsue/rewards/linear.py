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
from depsue.rewards.base import BaseRewardModel, action_features
from depsue.savable import State

RIDGE = 10.0
"""Penalty on each standardised coefficient, in rows: it only steadies what rows do not settle."""
AT_ONCE = 1 << 17
"""Rows whose features are held at once."""


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
    x, x_mean, x_scale = _standardised(logs.contexts)
    e, e_mean, e_scale = _standardised(features)
    d, width = x.shape[1], 1 + x.shape[1] + e.shape[1]
    gram, moment = np.zeros((width, width)), np.zeros(width)
    for start in range(0, len(logs), AT_ONCE):
        piece = slice(start, start + AT_ONCE)
        ones = np.ones((len(logs.action[piece]), 1))
        inputs = np.concatenate([ones, x[logs.context[piece]], e[logs.action[piece]]], axis=1)
        gram += inputs.T @ inputs
        moment += inputs.T @ logs.reward[piece]
    penalty = np.full(width, RIDGE)
    penalty[0] = 0.0
    coefficients = np.linalg.solve(gram + np.diag(penalty), moment)
    u, v = coefficients[1 : 1 + d] * x_scale, coefficients[1 + d :] * e_scale
    constant = float(coefficients[0] - x_mean @ u - e_mean @ v)
    of_action = np.asarray(features, dtype=np.float64) @ v
    return LinearRewardModel(constant, u, of_action, logs.r_max)


def _standardised(values: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The columns with mean 0 and deviation 1, their means, and what they were multiplied by."""
    wide = np.asarray(values, dtype=np.float64)
    mean, deviation = wide.mean(axis=0), wide.std(axis=0)
    scale = 1 / np.where(deviation > 1e-8, deviation, 1.0)
    return (wide - mean) * scale, mean, scale
