"""A policy after the catalogue has changed: items that arrived, items that were withdrawn."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from depsue.data.checks import FloatArray, IntArray, Mask
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

    Where pi0 is known by what it chose, its part keeps its share, for what pi0 would choose among
    fewer items is not known: it is pi0's own choice among them. What is drawn besides it is held to
    the candidates that are known and may be shown; where none is left, pi0's choice is shown.

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
        if requests.sets is None:
            return self.probabilities(requests.contexts)
        few = self._held(requests)
        out = held(few.table(self.policy.over(few.asked), requests, self.n_actions))
        none = out.sum(axis=1) == 0
        out[none] = held(requests.table(few.kept.astype(np.float64), self.n_actions)[none])
        return out

    @property
    def rests_on_choice(self) -> bool:
        return self.policy.rests_on_choice

    def row_probabilities(self, rows: LoggedData) -> FloatArray:
        if not self.rests_on_choice:
            return super().row_probabilities(rows)
        drawn_beside = None if rows.by_pi0 is None else rows.by_pi0 == 0
        new = rows.catalogue.novel[rows.action]
        return self._of_both(rows, True if drawn_beside is None else new == drawn_beside)

    def drawn_probabilities(self, rows: LoggedData) -> FloatArray:
        if not self.rests_on_choice:
            return super().drawn_probabilities(rows)
        return self._of_both(rows, True if rows.by_pi0 is None else rows.by_pi0 == 0)

    def _of_both(self, rows: LoggedData, counts: Any) -> FloatArray:
        """(n,) what pi0's own choice and what is drawn besides it make of each row, together.

        Args:
            rows: n rows.
            counts: (n,) where what is drawn besides pi0's choice counts.
        """
        own = rows.propensity if rows.by_pi0 is None else rows.by_pi0
        requests, which = rows.requests, rows.context
        place = requests.place(rows.action, which)
        beside = np.zeros(len(rows))
        order = np.argsort(which, kind="stable")
        for piece in requests.chunks(self.n_actions, CHUNK_CANDIDATES):
            first, last = np.searchsorted(which[order], [piece.start, piece.stop])
            mine = order[first:last]
            found = self.besides_pi0(requests[piece])[which[mine] - piece.start, place[mine]]
            beside[mine] = np.where(place[mine] >= 0, found, 0.0)
        return self.pi0_share(requests)[which] * own + np.where(counts, beside, 0.0)

    def pi0_share(self, requests: Requests) -> FloatArray:
        if not self.rests_on_choice:
            return super().pi0_share(requests)
        if requests.sets is None:
            inner = self.policy.pi0_share(requests)
            left = self.besides_pi0(requests).sum(axis=1) > 0
            return np.asarray(np.where(left, inner, 1.0))
        few, out = self._held(requests), np.ones(len(requests))
        out[few.some] = self.policy.pi0_share(few.asked)
        return out

    def besides_pi0(self, requests: Requests) -> FloatArray:
        if not self.rests_on_choice:
            return super().besides_pi0(requests)
        if requests.sets is not None:
            few = self._held(requests)
            return few.table(self.policy.besides_pi0(few.asked), requests, self.n_actions)
        known, out = self.policy.n_actions, np.zeros((len(requests), self.n_actions))
        inner = np.asarray(self.policy.besides_pi0(requests), dtype=np.float64)
        out[:, :known] = held(np.where(self._allowed[:known], inner, 0.0))
        return np.asarray(out * inner.sum(axis=1, keepdims=True))

    def _held(self, requests: Requests) -> _Held:
        """Requests with candidates, held to those that the policy knows and that may be shown."""
        sets = requests.sets
        if sets is None:
            raise RuntimeError("only candidates of requests are held to fewer")
        known = sets.items < self.policy.n_actions
        kept = known & self._allowed[np.where(known, sets.items, 0)]
        fewer = sets.only(kept)
        some = np.flatnonzero(fewer.sizes)
        return _Held(kept, some, Requests(requests.contexts[some], fewer.take(some)))

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


class _Held(NamedTuple):
    """Requests of which some candidates are left.

    Args:
        kept: (m,) which candidates are left.
        some: (v,) the requests that have any left.
        asked: those, with what is left.
    """

    kept: Mask
    some: IntArray
    asked: Requests

    def table(self, answers: FloatArray, requests: Requests, n_actions: int) -> FloatArray:
        """(u, L) answers about what is left, at the places of all candidates."""
        sets = self.asked.sets
        values = np.zeros(len(self.kept))
        if sets is not None:
            values[self.kept] = answers[np.arange(answers.shape[1]) < sets.sizes[:, None]]
        return requests.table(values, n_actions)
