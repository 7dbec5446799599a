"""What every policy shares: a subclass gives `probabilities`, the three calls follow.

At the door a plain (u, d) array of contexts means requests with all actions as candidates. Where
requests bring candidates of their own, a policy is held to them: its probabilities of the
candidates, divided by their sum. Tables then have L places a request (`depsue.data.requests`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np

from depsue.data.checks import FloatArray, IntArray
from depsue.data.logs import LoggedData
from depsue.data.requests import Requests, as_requests
from depsue.errors import PolicyError, require, short
from depsue.protocols import Policy
from depsue.savable import POLICY, Savable

CHUNK_ENTRIES = 1 << 22
"""Probabilities held in memory at once: contexts are taken in chunks of this many over A."""
CHUNK_CANDIDATES = 1 << 20
"""The same where requests bring candidates: their tables are made and thrown away many times."""


class BasePolicy(Savable):
    """A policy over A actions, by its distributions.

    A subclass gives `n_actions` and `probabilities`, and `over` if it need not work out all A
    actions to answer about a few candidates. To be saved it also gives `kind`, `state` and
    `from_state` (`depsue.savable`).
    """

    family = POLICY

    @property
    @abstractmethod
    def n_actions(self) -> int:
        """A."""

    @abstractmethod
    def probabilities(self, contexts: FloatArray) -> FloatArray:
        """(m, A) distributions at m contexts with all actions as candidates: the dense case."""

    def over(self, requests: Requests) -> FloatArray:
        """(c, L) distributions over the candidates of c requests; 0 at places without a candidate.

        A row is all 0 where the policy shows none of the candidates.
        """
        if requests.sets is None:
            return self.probabilities(requests.contexts)
        out = np.zeros((len(requests), requests.width(self.n_actions)))
        for piece in dense_pieces(requests, self.n_actions):
            few = requests[piece]
            places = few.places(self.n_actions)
            every = np.asarray(self.probabilities(few.contexts), dtype=np.float64)
            mine = np.take_along_axis(every, places.items, axis=1)
            out[piece, : mine.shape[1]] = mine if places.there is None else mine * places.there
        return held(out)

    @property
    def rests_on_choice(self) -> bool:
        """Whether it needs pi0's own choice to be drawn from: see `depsue.policies.chosen`."""
        return False

    def row_probabilities(self, rows: LoggedData) -> FloatArray:
        """(n,) what each logged row counts for this policy; over its propensity, its weight.

        That is the probability of its action; where pi0 is known by what it chose, of old items in
        pi0's own rows and of new ones in the others.
        """
        chosen = np.exp(self.log_prob(rows.requests, rows.action, rows.context))
        if rows.by_pi0 is None:
            return chosen
        new = rows.catalogue.novel[rows.action]
        return np.where(new == (rows.by_pi0 == 0), chosen, 0.0)

    def drawn_probabilities(self, rows: LoggedData) -> FloatArray:
        """(n,) with which probability this policy draws each row as it was logged."""
        chosen = np.exp(self.log_prob(rows.requests, rows.action, rows.context))
        return chosen if rows.by_pi0 is None else np.where(rows.by_pi0 == 0, chosen, 0.0)

    def pi0_share(self, requests: Requests) -> FloatArray:
        """(u,) lambda: with which probability pi0's own choice is shown."""
        return np.zeros(len(requests))

    def besides_pi0(self, requests: Requests) -> FloatArray:
        """(u, L) with which probability each candidate is drawn otherwise; they sum to 1 - lambda.

        For a policy that does not rest on pi0's choice, its distributions.
        """
        return self.over(requests)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.n_actions:,} actions)"

    def distributions(
        self, requests: Requests | FloatArray, chunk: int | None = None
    ) -> Iterator[tuple[slice, FloatArray]]:
        """Whole distributions, a chunk of requests at a time: (slice, (c, L))."""
        requests = as_requests(requests)
        if chunk is None:
            pieces = requests.chunks(self.n_actions, _at_once(requests))
        else:
            starts = range(0, len(requests), chunk)
            pieces = [slice(k, min(k + chunk, len(requests))) for k in starts]
        for piece in pieces:
            yield piece, self.over(requests[piece])

    def log_prob(
        self, requests: Requests | FloatArray, actions: IntArray, rows: IntArray | None = None
    ) -> FloatArray:
        """(n,) log pi(a_i | requests[rows_i])."""
        requests = as_requests(requests)
        rows = _rows(requests, rows, len(actions))
        chosen = self.chosen_probabilities(requests, actions, rows)
        with np.errstate(divide="ignore"):
            return np.log(chosen)

    def chosen_probabilities(
        self, requests: Requests, actions: IntArray, rows: IntArray
    ) -> FloatArray:
        """(n,) pi(a_i | requests[rows_i]): for a subclass that need not work out all A of them."""
        chosen = np.empty(len(rows))
        place = requests.place(actions, rows)
        for piece, mine, probabilities in self._pieces(requests, rows):
            at = place[mine]
            found = probabilities[rows[mine] - piece.start, at]
            chosen[mine] = found if requests.sets is None else np.where(at >= 0, found, 0.0)
        return chosen

    def sample(
        self,
        requests: Requests | FloatArray,
        rng: np.random.Generator,
        rows: IntArray | None = None,
    ) -> tuple[IntArray, FloatArray]:
        """(n,) actions drawn from pi and (n,) the probabilities they were drawn with.

        All rows of a chunk are drawn by one search: the cumulative distribution of the chunk's
        i-th context is shifted by i, so the chunk is one increasing sequence.
        """
        require(
            isinstance(rng, np.random.Generator),
            "rng must be a numpy generator",
            found=short(rng),
            cure="np.random.default_rng(seed)",
            error=PolicyError,
        )
        requests = as_requests(requests)
        rows = _rows(requests, rows, len(requests))
        uniform = rng.random(len(rows))
        actions = np.empty(len(rows), dtype=np.int32)
        chosen = np.empty(len(rows))
        for piece, mine, probabilities in self._pieces(requests, rows):
            local = rows[mine] - piece.start
            cumulative = np.cumsum(probabilities, axis=1, dtype=np.float64)
            if requests.sets is not None:
                _require_shown(cumulative[:, -1], piece)
            cumulative /= cumulative[:, -1:]
            cumulative += np.arange(len(cumulative))[:, None]
            # below the end of its own context, whatever the rounding
            target = np.minimum(local + uniform[mine], np.nextafter(local + 1.0, 0))
            flat = np.searchsorted(cumulative.reshape(-1), target, side="right")
            place = flat - local * probabilities.shape[1]
            chosen[mine] = probabilities[local, place]
            if requests.sets is not None:
                place = requests.sets.items[requests.sets.starts[rows[mine]] + place]
            actions[mine] = place
        return actions, chosen

    def _pieces(
        self, requests: Requests, rows: IntArray
    ) -> Iterator[tuple[slice, Any, FloatArray]]:
        """In turn: a slice of the requests, the rows that point into it, their distributions."""
        if len(requests) * requests.width(self.n_actions) <= _at_once(requests):
            yield slice(0, len(requests)), slice(None), self.over(requests)
            return
        order = np.argsort(rows, kind="stable")
        ordered = rows[order]
        for piece, probabilities in self.distributions(requests):
            first, last = np.searchsorted(ordered, [piece.start, piece.stop])
            yield piece, order[first:last], probabilities


def whole(policy: Policy, requests: Requests | FloatArray) -> FloatArray:
    """(m, L) the distributions of any policy at m requests, few enough to be held at once."""
    requests = as_requests(requests)
    if isinstance(policy, BasePolicy):
        return policy.over(requests)
    width = requests.width(policy.n_actions)
    out = np.zeros((len(requests), width))
    for piece, pi in policy.distributions(requests):
        out[piece, : pi.shape[1]] = pi
    return out


def _at_once(requests: Requests) -> int:
    return CHUNK_ENTRIES if requests.sets is None else CHUNK_CANDIDATES


def held(shares: FloatArray) -> FloatArray:
    """(c, L) divided by the sum of each row, in place; rows of zeros stay as they are."""
    total = shares.sum(axis=1, keepdims=True)
    shares /= np.where(total > 0, total, 1.0)
    return shares


def dense_pieces(requests: Requests, n_actions: int) -> list[slice]:
    """Pieces of requests whose whole distributions over A actions can be held at once."""
    each = max(1, CHUNK_ENTRIES // n_actions)
    return [slice(k, min(k + each, len(requests))) for k in range(0, len(requests), each)]


def _require_shown(total: FloatArray, piece: slice) -> None:
    """Refuse to draw where a policy shows none of the candidates."""
    none = np.flatnonzero(~(total > 0))
    require(
        len(none) == 0,
        "a policy can only be drawn from where it shows a candidate",
        found=f"none of the candidates of request {piece.start + none[0]}" if len(none) else "",
        cure="ask about candidates that it knows, or mix it with a policy that shows the others",
        error=PolicyError,
    )


def _rows(requests: Requests, rows: IntArray | None, n: int) -> IntArray:
    """(n,) which request each row has; the i-th one if nobody says."""
    if rows is not None:
        return rows
    require(
        len(requests) == n,
        "without rows there must be one context per action",
        found=f"{len(requests)} contexts, {n} actions",
        error=PolicyError,
    )
    return np.arange(n)
