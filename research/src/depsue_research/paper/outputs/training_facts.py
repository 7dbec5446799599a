"""What is read off the kept points of a training: R, and the bound."""

from __future__ import annotations

import numpy as np

from depsue.data.checks import FloatArray
from depsue_research.paper.cells import Result


def over_training(result: Result) -> tuple[FloatArray, FloatArray]:
    """R and the bound over V_on(pi0), at the steps kept of the first deployment's training."""
    history = result["history"][0]
    return np.asarray(history["regulariser"]), np.asarray(history["bound"]) / result["on_policy"]


def r_and_bound(result: Result) -> float | None:
    """Their correlation over the training; None where one of them does not move."""
    r, bound = over_training(result)
    if len(r) < 3 or np.ptp(r) == 0 or np.ptp(bound) == 0:
        return None
    return float(np.corrcoef(r, bound)[0, 1])
