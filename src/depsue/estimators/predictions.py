"""Predictions of a reward model, checked: finite, of the right shape, within [0, r_max].

The lower limits that estimators declare for their terms rest on this range.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from depsue.data.checks import FloatArray
from depsue.data.logs import LoggedData
from depsue.errors import require
from depsue.protocols import RewardModel

SLACK = 1e-6
"""Predictions may leave [0, r_max] by this share of r_max (rounding), and are then moved in."""


def predictions(model: RewardModel, logs: LoggedData, piece: slice) -> FloatArray:
    """(c, A) q(x, a) for the distinct contexts in `piece` and every action."""
    contexts = logs.contexts[piece]
    return _checked(model.predict(contexts), (len(contexts), len(logs.catalogue)), logs.r_max)


def logged_predictions(model: RewardModel, logs: LoggedData) -> FloatArray:
    """(n,) q(x_i, a_i) for the logged pairs."""
    pairs = model.predict_pairs(logs.contexts, logs.action, logs.context)
    return _checked(pairs, (len(logs),), logs.r_max)


def _checked(predicted: Any, shape: tuple[int, ...], r_max: float) -> FloatArray:
    values = np.asarray(predicted)
    require(
        values.shape == shape,
        "a reward model must predict one value per context and action",
        found=f"shape {values.shape} instead of {shape}",
        cure="predict for every action of the catalogue",
    )
    least, most = float(values.min()), float(values.max())
    # written so that NaN fails too
    require(
        least >= -SLACK * r_max and most <= (1 + SLACK) * r_max,
        f"a reward model must predict within [0, r_max] with r_max = {r_max:g}",
        found=f"[{least:g}, {most:g}]",
        cure="clip the predictions, or declare the r_max that the rewards have",
    )
    if least < 0 or most > r_max:
        return np.clip(values.astype(np.float64), 0, r_max)
    return values
