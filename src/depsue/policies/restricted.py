"""A policy after the catalogue has changed: items that arrived, items that were withdrawn."""

from __future__ import annotations

from typing import Any

import numpy as np

from depsue.data.checks import FloatArray, Mask
from depsue.data.logs import LoggedData
from depsue.data.requests import Requests, as_requests
from depsue.errors import PolicyError, require
from depsue.policies.base import CHUNK_CANDIDATES, BasePolicy, held
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

    @property
    def rests_on_choice(self) -> bool:
        return self.policy.rests_on_choice

    def pi0_share(self, requests: Requests) -> FloatArray:
        return self._beside(requests)[0]

    def besides_pi0(self, requests: Requests) -> FloatArray:
        if not self.rests_on_choice:
            return super().besides_pi0(requests)
        return self._beside(requests)[1]

    def row_probabilities(self, rows: LoggedData) -> FloatArray:
        if not self.rests_on_choice:
            return super().row_probabilities(rows)
        new = rows.catalogue.novel[rows.action]
        counts = np.ones(len(rows), dtype=bool)
        return self._of_rows(rows, counts if rows.by_pi0 is None else new == (rows.by_pi0 == 0))

    def drawn_probabilities(self, rows: LoggedData) -> FloatArray:
        if not self.rests_on_choice:
            return super().drawn_probabilities(rows)
        counts = np.ones(len(rows), dtype=bool)
        return self._of_rows(rows, counts if rows.by_pi0 is None else rows.by_pi0 == 0)

    def _of_rows(self, rows: LoggedData, counts: Mask) -> FloatArray:
        """(n,) lambda times pi0's probability, and what is drawn otherwise in rows that count."""
        requests, g = rows.requests, np.zeros(len(rows))
        share = np.zeros(len(requests))
        place = requests.place(rows.action, rows.context)
        for piece in requests.chunks(self.n_actions, CHUNK_CANDIDATES):
            share[piece], table = self._beside(requests[piece])
            mine = np.flatnonzero((rows.context >= piece.start) & (rows.context < piece.stop))
            g[mine] = table[rows.context[mine] - piece.start, place[mine]]
        pi0 = rows.propensity if rows.by_pi0 is None else rows.by_pi0
        return share[rows.context] * pi0 + np.where(counts, g, 0.0)

    def _beside(self, requests: Requests) -> tuple[FloatArray, FloatArray]:
        """(lambda, g), (c,) and (c, L), where the policy rests on pi0's own choice.

        That choice may be shown whatever it is; where g has nothing to show, it is.
        """
        if not self.rests_on_choice:
            return np.zeros(len(requests)), self.over(requests)
        share, sets = np.ones(len(requests)), requests.sets
        if sets is None:
            share = np.array(self.policy.pi0_share(requests))
            table = np.zeros((len(requests), self.n_actions))
            inner = self.policy.besides_pi0(requests)
            table[:, : inner.shape[1]] = inner * self._allowed[: inner.shape[1]]
        else:
            known = sets.items < self.policy.n_actions
            kept = known & self._allowed[np.where(known, sets.items, 0)]
            fewer = sets.only(kept)
            some = np.flatnonzero(fewer.sizes)
            asked = Requests(requests.contexts[some], fewer.take(some))
            inner, values = self.policy.besides_pi0(asked), np.zeros(len(sets.items))
            values[kept] = inner[np.arange(inner.shape[1]) < fewer.sizes[some, None]]
            share[some] = self.policy.pi0_share(asked)
            table = np.array(requests.table(values, self.n_actions), dtype=np.float64)
        total = share + table.sum(axis=1)
        share, total = np.where(total > 0, share, 1.0), np.where(total > 0, total, 1.0)
        return share / total, table / total[:, None]

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
