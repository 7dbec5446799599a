"""The bound of a changing policy on fixed logs, fast enough for every training step.

A row with reward 0 has the term 0 whatever its weight, and rows share contexts. So one pass over
the distinct contexts of rewarded rows gives the normalising constants of the softmax, and only the
logits of those rows are looked up. What a step needs is allocated once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from depsue.bounds import Hcope
from depsue.bounds.hcope import hcope_from_rewarded
from depsue.bounds.rewarded import Rewarded, rewarded_rows, tuning_rows
from depsue.data.checks import FloatArray, IntArray
from depsue.data.logs import LoggedData
from depsue.data.terms import WeightedTerms
from depsue.policies.network import NetworkPolicy
from depsue.protocols import Bound, BoundValue

LOGITS_AT_ONCE = 1 << 19
"""Logits that are held at once: few enough to stay near the processor."""
FEWEST_AT_ONCE = 208
"""Contexts at once, at least, however many actions: fewer would waste the product with weights."""
LARGEST_EXPONENT = 60.0
"""Beyond it exp loses precision in float32, and logits are shifted by the largest first."""


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
        self._weights_of = _RewardedWeights(logs, self._rewarded)
        self._kernel = None
        if isinstance(bound, Hcope) and bound.tau is None and logs.unit is None:
            self._kernel = _HcopeKernel(logs, self._rewarded, delta)

    def __call__(self, policy: NetworkPolicy) -> BoundValue:
        """The bound for `policy`, with all that it rests on."""
        weights = np.zeros(len(self._logs))
        weights[self._rewarded] = self._weights_of(policy)
        terms = WeightedTerms.of(
            weights, self._logs.reward, r_max=self._logs.r_max, unit=self._logs.unit
        )
        return self._bound.lower(terms, self._delta)

    def value(self, policy: NetworkPolicy) -> float:
        """The bound's value alone; for `Hcope` on rows, without touching unrewarded ones."""
        if self._kernel is None:
            return self(policy).value
        return self._kernel(self._weights_of(policy))


class _HcopeKernel:
    """Eq. 4 from the weights of rewarded rows."""

    def __init__(self, logs: LoggedData, rewarded: IntArray, delta: float) -> None:
        self._delta, self._r_max = delta, logs.r_max
        place = np.empty(len(logs), dtype=np.int64)
        place[rewarded] = np.arange(len(rewarded))
        tuning = len(tuning_rows(len(logs)))
        self._parts = [
            (place[rows], logs.reward[rows], n)
            for rows, n in zip(
                rewarded_rows(logs.reward), (tuning, len(logs) - tuning), strict=True
            )
        ]

    def __call__(self, weights: FloatArray) -> float:
        tuning, rest = (
            Rewarded(weights[place].astype(np.float64), rewards, n)
            for place, rewards, n in self._parts
        )
        found = hcope_from_rewarded(tuning, rest, r_max=self._r_max, delta=self._delta)
        return max(found.value, 0.0)


class _RewardedWeights:
    """pi(a_i|x_i) / p_i of the given rows, which are in the order of their contexts."""

    def __init__(self, logs: LoggedData, rows: IntArray) -> None:
        used, context = np.unique(logs.context[rows], return_inverse=True)
        self._contexts, self._a = logs.contexts[used], len(logs.catalogue)
        self._context = torch.from_numpy(context)
        self._log_propensity = torch.from_numpy(np.log(logs.propensity[rows]).astype(np.float32))
        at_once = min(max(FEWEST_AT_ONCE, LOGITS_AT_ONCE // self._a), len(used))
        self._pieces = []
        for start in range(0, len(used), max(at_once, 1)):
            stop = min(start + at_once, len(used))
            first, last = np.searchsorted(context, [start, stop])
            places = (context[first:last] - start) * self._a + logs.action[rows[first:last]]
            self._pieces.append((slice(start, stop), slice(first, last), torch.from_numpy(places)))
        self._logits = torch.empty(at_once, self._a)
        self._normaliser = torch.empty(len(used))
        self._chosen = torch.empty(len(rows))
        self._spread = torch.empty(len(rows))
        self._inputs: torch.Tensor | None = None
        self._inputs_of: tuple[torch.Tensor, torch.Tensor] | None = None

    def __call__(self, policy: NetworkPolicy) -> FloatArray:
        hidden = policy.hidden(self._inputs_for(policy))[-1]
        self._pass(policy, hidden, _log_of_sum)
        if not bool((self._normaliser.abs() < LARGEST_EXPONENT).all()):  # NaN is not below
            self._pass(policy, hidden, torch.logsumexp)
        torch.index_select(self._normaliser, 0, self._context, out=self._spread)
        return self._chosen.sub_(self._spread).sub_(self._log_propensity).exp_().numpy()

    def _pass(self, policy: NetworkPolicy, hidden: torch.Tensor, log_sum: Any) -> None:
        """The logits of the rows' actions, and log sum exp over all actions per context."""
        for contexts, mine, places in self._pieces:
            logits = self._logits[: contexts.stop - contexts.start]
            policy.logits(hidden[contexts], out=logits)
            torch.take(logits, places, out=self._chosen[mine])
            log_sum(logits, dim=1, out=self._normaliser[contexts])

    def _inputs_for(self, policy: NetworkPolicy) -> torch.Tensor:
        """The contexts as this policy takes them; the same for all steps of a training."""
        standard = (policy.shift, policy.scale)
        if (
            self._inputs is None
            or self._inputs_of is None
            or any(a is not b for a, b in zip(standard, self._inputs_of, strict=True))
        ):
            self._inputs, self._inputs_of = policy.inputs(self._contexts), standard
        return self._inputs


def _log_of_sum(logits: torch.Tensor, *, dim: int, out: torch.Tensor) -> None:
    """log sum exp without shifting by the largest first: faster, and overwrites the logits."""
    torch.sum(logits.exp_(), dim=dim, out=out).log_()
