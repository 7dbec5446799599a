"""Level and slope of a reward model, corrected on rows that it was not fitted on."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from depsue.data.checks import FloatArray, Mask
from depsue.data.logs import LoggedData
from depsue.protocols import RewardModel

STEADY = 50
"""Rows for which the common calibration counts in that of novel, or of supported, actions."""


@dataclass(frozen=True)
class Calibration:
    """q-hat with level and slope corrected on rows that it was not fitted on, novel actions apart.

    Args:
        centre, level: the mean prediction on those rows, and the mean reward.
        slope: of the reward by its prediction.
        supported, novel: what is added for actions of either kind.
        r_max: the largest reward.
    """

    centre: float
    level: float
    slope: float
    supported: float
    novel: float
    r_max: float

    @classmethod
    def on(cls, model: RewardModel, rows: LoggedData) -> Calibration:
        """Of a model, on rows."""
        given = model.predict_pairs(rows.contexts, rows.action, rows.context)
        centre, level = float(given.mean()), float(rows.reward.mean())
        slope = _slope(given, rows.reward)
        novel = rows.catalogue.novel[rows.action]
        left = rows.reward - level - slope * (given - centre)
        off = [float(left[mine].sum()) / (int(mine.sum()) + STEADY) for mine in (~novel, novel)]
        return cls(centre, level, slope, off[0], off[1], rows.r_max)

    def corrected(self, q_hat: FloatArray, novel: Mask) -> FloatArray:
        """(..., A) predictions, corrected; `novel` says of which kind the A actions are."""
        out = np.asarray(q_hat, dtype=np.float64) - self.centre
        out *= self.slope
        out += np.where(novel, self.novel, self.supported) + self.level
        return np.asarray(np.clip(out, 0.0, self.r_max, out=out))


def _slope(given: FloatArray, reward: FloatArray) -> float:
    """Of the reward by its prediction, less its standard error, kept within [0, 1]."""
    x, y = float(given.mean()), float(reward.mean())
    variance = float(((given - x) ** 2).mean())
    if variance <= 0:
        return 0.0
    together = float(((given - x) * (reward - y)).mean())
    error = float(reward.std()) / math.sqrt(variance * len(reward))
    return min(max(together / variance - error, 0.0), 1.0)
