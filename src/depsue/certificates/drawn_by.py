"""Were these rows drawn by this policy? The exact check, where the policy can be asked."""

from __future__ import annotations

import numpy as np

from depsue.data.logs import LoggedData
from depsue.errors import DataError
from depsue.protocols import Policy

TOLERANCE = 1e-3


def require_drawn_by(policy: Policy, logs: LoggedData) -> None:
    """Refuse propensities that are not the policy's own probabilities, to 0.1%."""
    log_prob = policy.log_prob(logs.contexts, logs.action, logs.context)
    wrong = np.flatnonzero(~(np.abs(np.exp(log_prob) / logs.propensity - 1) < TOLERANCE))
    if len(wrong):
        row = int(wrong[0])
        raise DataError(
            "propensities must be those of the deployed policy, to 0.1%",
            column="propensity",
            row=row,
            value=f"{logs.propensity[row]:.6g}, while the policy says {np.exp(log_prob[row]):.6g}",
            count=len(wrong),
            cure="log the probability that policy.sample returned with the action",
        )
