"""A policy after the catalogue has changed: items that arrived, items that were withdrawn."""

from __future__ import annotations

from typing import Any

import numpy as np

from depsue.data.checks import FloatArray, Mask
from depsue.data.requests import Requests, as_requests
from depsue.errors import PolicyError, require
from depsue.policies.base import BasePolicy, held
from depsue.policies.simple import checked_support
from depsue.savable import POLICY, WRAPPED, State


class RestrictedPolicy(BasePolicy):
    """The policy over a longer list of actions, held to those that may be shown.

    pi(a|x) = p(a|x) / sum of p over the allowed actions, for allowed a. Actions that the policy
    does not know, at the end of the list, have probability 0. Where it shows nothing that is
    allowed, it chooses evenly among the allowed actions that it knows.

    Args:
        policy: over the first actions of the list.
        allowed: (A,) which actions may be shown.
    """

    kind = "adapted"  # in files, since before the class had its name; hashes rest on it
    part_families = {WRAPPED: POLICY}

    def __init__(self, policy: BasePolicy, allowed: Any) -> None:
        self.policy, self._allowed = policy, checked_support(allowed)
        known: Mask = self._allowed[: policy.n_actions]
        require(
            len(self._allowed) >= policy.n_actions and bool(known.any()),
            "a restricted policy needs an action that it knows and that may be shown",
            found=f"{policy.n_actions} known, {len(self._allowed)} listed",
            cure="add items at the end of the list, and withdraw some, not all",
            error=PolicyError,
        )

    @property
    def n_actions(self) -> int:
        return len(self._allowed)

    def probabilities(self, contexts: FloatArray) -> FloatArray:
        known = self._allowed[: self.policy.n_actions]
        out = np.zeros((len(contexts), self.n_actions))
        inner = out[:, : self.policy.n_actions]
        for piece, pi in self.policy.distributions(contexts):
            inner[piece] = np.where(known, pi, 0.0)
        total = inner.sum(axis=1, keepdims=True)
        inner[:] = np.where(total > 0, inner / np.where(total > 0, total, 1.0), known / known.sum())
        return out

    def over(self, requests: Requests) -> FloatArray:
        """(c, L) the policy over the candidates that it knows and that may be shown."""
        sets = requests.sets
        if sets is None:
            return self.probabilities(requests.contexts)
        known = sets.items < self.policy.n_actions
        kept = known & self._allowed[np.where(known, sets.items, 0)]
        fewer = sets.only(kept)
        some = np.flatnonzero(fewer.sizes)
        asked = Requests(requests.contexts[some], fewer.take(some))
        table = self.policy.over(asked)
        values = np.zeros(len(sets.items))
        values[kept] = table[np.arange(table.shape[1]) < fewer.sizes[some, None]]
        out = held(requests.table(values, self.n_actions))
        none = out.sum(axis=1) == 0
        out[none] = held(requests.table(kept.astype(np.float64), self.n_actions)[none])
        return out

    def withdrawn_share(self, requests: Requests | FloatArray) -> float:
        """The largest probability, over these requests, of what may no longer be shown."""
        most, requests = 0.0, as_requests(requests)
        known = self._allowed[: self.policy.n_actions]
        if requests.sets is not None:
            fewer = requests.sets.only(requests.sets.items < self.policy.n_actions)
            some = np.flatnonzero(fewer.sizes)
            requests = Requests(requests.contexts[some], fewer.take(some))
        for piece, pi in self.policy.distributions(requests):
            shown = requests[piece].places(self.policy.n_actions).pick(known, True)
            most = max(most, float(np.where(shown, 0.0, pi).sum(axis=1).max()))
        return most

    def state(self) -> State:
        return State({}, {"allowed": self._allowed.astype(np.uint8)}, {WRAPPED: self.policy})

    @classmethod
    def from_state(cls, state: State) -> RestrictedPolicy:
        return cls(state.parts[WRAPPED], state.arrays["allowed"].astype(bool))
