"""The bound of a changing policy on fixed logs, fast enough for every training step.

A row with reward 0 has the term 0 whatever its weight, and rows share contexts. So one pass over
the distinct contexts gives the normalising constants of the softmax, and only the logits of
rewarded rows are looked up.
"""

from __future__ import annotations

import numpy as np
import torch

from depsue.data.logs import LoggedData
from depsue.data.terms import WeightedTerms
from depsue.policies.network import NetworkPolicy
from depsue.protocols import Bound, BoundValue

CONTEXTS_AT_ONCE = 512
"""Contexts whose logits are held at once: small enough to stay near the processor."""
LARGEST_EXPONENT = 60.0


class BoundOnLogs:
    """A lower bound on V(pi) from fixed logs, for one network after another.

    Args:
        logs: the rows, with the propensities of the policy that drew them.
        bound: which bound.
        delta: its level.
    """

    def __init__(self, logs: LoggedData, bound: Bound, delta: float) -> None:
        self._logs, self._bound, self._delta = logs, bound, delta
        rewarded = np.flatnonzero(logs.reward > 0)
        self._rewarded = rewarded[np.argsort(logs.context[rewarded], kind="stable")]
        self._context = logs.context[self._rewarded].astype(np.int64)
        places = self._context * len(logs.catalogue) + logs.action[self._rewarded]
        self._places = torch.from_numpy(places)
        self._log_propensity = torch.from_numpy(
            np.log(logs.propensity[self._rewarded]).astype(np.float32)
        )
        self._weights = np.zeros(len(logs))

    def __call__(self, policy: NetworkPolicy) -> BoundValue:
        """The bound for `policy`."""
        self._weights[self._rewarded] = self.rewarded_weights(policy).numpy()
        terms = WeightedTerms.of(
            self._weights, self._logs.reward, r_max=self._logs.r_max, unit=self._logs.unit
        )
        return self._bound.lower(terms, self._delta)

    def rewarded_weights(self, policy: NetworkPolicy) -> torch.Tensor:
        """pi(a_i|x_i) / p_i of the rows with a reward, in order of their contexts."""
        logs, n_actions = self._logs, policy.n_actions
        hidden = policy.hidden(policy.inputs(logs.contexts))[-1]
        chosen = torch.empty(len(self._places))
        normaliser = torch.empty(len(hidden))
        tame = _largest_logit(policy, hidden) < LARGEST_EXPONENT
        buffer = torch.empty(min(CONTEXTS_AT_ONCE, len(hidden)), n_actions)
        for start in range(0, len(hidden), CONTEXTS_AT_ONCE):
            stop = min(start + CONTEXTS_AT_ONCE, len(hidden))
            first, last = np.searchsorted(self._context, [start, stop])
            logits = policy.logits(hidden[start:stop], out=buffer[: stop - start])
            torch.take(logits, self._places[first:last] - start * n_actions, out=chosen[first:last])
            if tame:
                torch.sum(logits.exp_(), dim=1, out=normaliser[start:stop])
            else:
                torch.logsumexp(logits, dim=1, out=normaliser[start:stop])
        if tame:
            normaliser.log_()
        chosen -= normaliser[torch.from_numpy(self._context)]
        return chosen.sub_(self._log_propensity).exp_()


def _largest_logit(policy: NetworkPolicy, hidden: torch.Tensor) -> float:
    """An upper limit of |logit| over all contexts and actions, by Cauchy and Schwarz."""
    weight, bias = policy.layers[-1]
    largest = hidden.square().sum(dim=1).max().sqrt() * weight.square().sum(dim=0).max().sqrt()
    return float(largest + bias.abs().max())
