"""How well does q-hat choose among actions that it has never seen? A rehearsal on the logs.

Some supported actions are hidden: their rows are kept from a reward model, which then chooses among
them as it would among novel ones. What that choice is worth can be read off the hidden rows, for
these actions were shown. It says how much of what q-hat promises will come true where the logs
cannot say so themselves: of novel actions before they have been shown, and of supported ones that
a policy shows far more often than the logs do. Before that, level and slope of q-hat are corrected
on rows that it was not fitted on (`Calibration`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from depsue import rng
from depsue.data.checks import FloatArray, Mask
from depsue.data.logs import LoggedData
from depsue.policies.tilted import ModelSoftmax
from depsue.protocols import RewardModel
from depsue.rewards import Blend, RewardSettings, fit_linear, fit_rewards
from depsue.rewards.mlp import heldout_split

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
        predicted = model.predict_pairs(rows.contexts, rows.action, rows.context)
        centre, level = float(predicted.mean()), float(rows.reward.mean())
        slope = _slope(predicted, rows.reward)
        novel = rows.catalogue.novel[rows.action]
        left = rows.reward - level - slope * (predicted - centre)
        off = [float(left[mine].sum()) / (int(mine.sum()) + STEADY) for mine in (~novel, novel)]
        return cls(centre, level, slope, off[0], off[1], rows.r_max)

    def corrected(self, q_hat: FloatArray, novel: Mask) -> FloatArray:
        """(..., A) predictions, corrected; `novel` says of which kind the A actions are."""
        out = np.asarray(q_hat, dtype=np.float64) - self.centre
        out *= self.slope
        out += np.where(novel, self.novel, self.supported) + self.level
        return np.asarray(np.clip(out, 0.0, self.r_max, out=out))


def _slope(predicted: FloatArray, reward: FloatArray) -> float:
    """Of the reward by its prediction, less its standard error, kept within [0, 1]."""
    x, y = float(predicted.mean()), float(reward.mean())
    variance = float(((predicted - x) ** 2).mean())
    if variance <= 0:
        return 0.0
    together = float(((predicted - x) * (reward - y)).mean())
    error = float(reward.std()) / math.sqrt(variance * len(reward))
    return min(max(together / variance - error, 0.0), 1.0)


MOST_HIDDEN = 0.2
"""Share of the supported actions that are hidden; fewer if fewer are novel."""
MOST_ROWS, MOST_PAIRS = 100_000, 4_000_000
"""Rows that the rehearsal's q-hat is fitted on, and pairs that it is asked about, at most."""
HIGHEST_SHARE = 0.01
"""No hidden row has more than this share of all weight."""


def trust_on_hidden_items(
    rows: LoggedData,
    settings: RewardSettings,
    *,
    strength: float,
    even: float,
    seed: int,
) -> float:
    """What a choice among unseen actions was worth, as a share of what q-hat promised; at most 1.

    One standard error is taken off, so that little evidence means little trust; 0 if there is none.

    Args:
        rows: the logs.
        settings: how q-hat is fitted; here with one network.
        strength: how strongly q-hat decides among the actions.
        even: share that is spread evenly.
        seed: of the choice of hidden actions and of the network.
    """
    draw = rng.generator(seed, "unseen")
    novel = rows.catalogue.novel
    supported = np.flatnonzero(~novel)
    count = min(int(novel.sum()), int(MOST_HIDDEN * len(supported)))
    if count < 2:
        return 0.0
    hidden = np.zeros(len(novel), dtype=bool)
    hidden[draw.choice(supported, count, replace=False)] = True
    known = np.flatnonzero(~hidden[rows.action])
    contexts = draw.permutation(len(rows.contexts))[: max(1, MOST_PAIRS // count)]
    asked = np.flatnonzero(hidden[rows.action] & np.isin(rows.context, contexts))
    if len(asked) < 2 or len(known) < 2:
        return 0.0
    if len(known) > MOST_ROWS:
        known = np.sort(draw.choice(known, MOST_ROWS, replace=False))
    seen, tested = rows.take(known), rows.take(asked)
    fitted, held = heldout_split(seen, settings, seed=seed)
    networks = fit_rewards(seen, replace(settings, members=1), seed=seed)
    model = Blend([networks, fit_linear(fitted)])
    every = np.flatnonzero(hidden)
    u = len(tested.contexts)
    pairs = model.predict_pairs(tested.contexts, np.tile(every, u), np.repeat(np.arange(u), count))
    q_hat = np.zeros((u, len(novel)))
    q_hat[:, every] = pairs.reshape(u, count)
    centred = q_hat[:, every] - q_hat[:, every].mean(axis=1, keepdims=True)
    scale = max(float(centred.std()), 1e-9)
    pi = ModelSoftmax(model, hidden, strength=strength, scale=scale, even=even).choice(q_hat)
    weight = pi[tested.context, tested.action] / tested.propensity
    weight = np.minimum(weight, HIGHEST_SHARE * weight.sum())
    share = weight / weight.sum()
    earned = float(share @ tested.reward)
    error = float(np.sqrt(share**2 @ (tested.reward - earned) ** 2))
    hoped = Calibration.on(model, held).corrected(q_hat, np.zeros(len(novel), dtype=bool))
    promised = float(share @ hoped[tested.context, tested.action])
    return float(np.clip((earned - error) / promised, 0.0, 1.0)) if promised > 0 else 0.0
