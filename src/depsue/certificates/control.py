"""A control variate: what a reward model says of a row, less its mean, taken off the row's term.

With q any function of context and action that was fixed before the rows were read, and `base` the
policy that drew them, so that its distribution at each context is known::

    h(x, a) = min(pi(a|x) / base(a|x), clip) q(x, a) where base shows a, else 0
    g_i     = h(x_i, a_i) - sum over a of base(a|x_i) h(x_i, a)

has mean zero whatever q is. A term less coefficient times g keeps its mean, so it stays
conservative, and has the variance of w (r - q) instead of that of w r. A wrong q costs variance,
never validity. It is the doubly robust estimate over base's support at x, and no further.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from depsue.certificates.drawn_by import require_drawn_by
from depsue.data.checks import FloatArray
from depsue.data.logs import LoggedData
from depsue.errors import is_real, require, require_positive, short
from depsue.estimators.weights import distributions
from depsue.policies.base import whole
from depsue.protocols import Policy, RewardModel


@dataclass(frozen=True, eq=False)
class Control:
    """What is taken off the terms; all of it is fixed beforehand.

    Args:
        base: the policy that drew the rows.
        model: q.
        most: predictions are clipped to [0, most], which limits the terms.
        coefficients: by promise, in [0, 1]; a promise without one has no control variate.
    """

    base: Policy
    model: RewardModel
    most: float
    coefficients: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        require_positive(self.most, "most", "r_max, or the largest prediction on the select fold")
        wrong = {
            name: value
            for name, value in self.coefficients.items()
            if not (is_real(value) and 0 <= value <= 1)
        }
        require(
            not wrong,
            "the coefficients of a control variate must lie in [0, 1]",
            found=short(wrong),
            cure="take them from the select fold",
        )
        require(
            isinstance(self.model, RewardModel),
            "a control variate needs a reward model",
            found=short(self.model),
            cure="fit_rewards(learn_fold, seed=...)",
        )

    def of(self, parts: Sequence[Policy], logs: LoggedData, clips: Sequence[float]) -> FloatArray:
        """(parts, n) g for each policy's weights up to its clip: all in [-most, clip most]."""
        require_drawn_by(self.base, logs)
        mean = np.empty((len(parts), len(logs.contexts)))
        for piece, drawn in distributions(self.base, logs):
            contexts = logs.contexts[piece]
            q = np.clip(self.model.predict(contexts), 0.0, self.most)
            for place, (part, clip) in enumerate(zip(parts, clips, strict=True)):
                pi = drawn if part is self.base else whole(part, contexts)
                shown = np.minimum(pi, clip * drawn)
                mean[place, piece] = np.einsum("ca,ca->c", shown, q, dtype=np.float64)
        at = (logs.contexts, logs.action, logs.context)
        q_row = np.clip(self.model.predict_pairs(*at), 0.0, self.most).astype(np.float64)
        drawn_row = np.exp(self.base.log_prob(*at))
        out = -mean[:, logs.context]
        for place, (part, clip) in enumerate(zip(parts, clips, strict=True)):
            weight = np.asarray(np.exp(part.log_prob(*at)) / drawn_row, dtype=np.float64)
            out[place] += np.minimum(weight, clip) * q_row
        return out
