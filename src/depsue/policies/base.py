"""What every policy shares: a subclass gives `probabilities`, the three calls follow.

At the door a plain (u, d) array of contexts means requests with all actions as candidates.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np

from depsue.data.checks import FloatArray, IntArray
from depsue.data.requests import Requests, as_requests
from depsue.errors import PolicyError, require, short
from depsue.protocols import Policy
from depsue.savable import POLICY, Savable

CHUNK_ENTRIES = 1 << 22
"""Probabilities held in memory at once: contexts are taken in chunks of this many over A."""


class BasePolicy(Savable):
    """A policy over A actions, by its distributions.

    A subclass gives `n_actions` and `probabilities`. To be saved it also gives `kind`, `state` and
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

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.n_actions:,} actions)"

    def distributions(
        self, requests: Requests | FloatArray, chunk: int | None = None
    ) -> Iterator[tuple[slice, FloatArray]]:
        """Whole distributions, a chunk of requests at a time: (slice, (c, A))."""
        requests = as_requests(requests)
        chunk = chunk or max(1, CHUNK_ENTRIES // self.n_actions)
        for start in range(0, len(requests), chunk):
            piece = slice(start, min(start + chunk, len(requests)))
            yield piece, self.probabilities(requests.contexts[piece])

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
        for piece, mine, probabilities in self._pieces(requests, rows):
            chosen[mine] = probabilities[rows[mine] - piece.start, actions[mine]]
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
            cumulative /= cumulative[:, -1:]
            cumulative += np.arange(len(cumulative))[:, None]
            # below the end of its own context, whatever the rounding
            target = np.minimum(local + uniform[mine], np.nextafter(local + 1.0, 0))
            flat = np.searchsorted(cumulative.reshape(-1), target, side="right")
            actions[mine] = flat - local * self.n_actions
            chosen[mine] = probabilities[local, actions[mine]]
        return actions, chosen

    def _pieces(
        self, requests: Requests, rows: IntArray
    ) -> Iterator[tuple[slice, Any, FloatArray]]:
        """In turn: a slice of the requests, the rows that point into it, their distributions."""
        if len(requests) * self.n_actions <= CHUNK_ENTRIES:
            yield slice(0, len(requests)), slice(None), self.probabilities(requests.contexts)
            return
        order = np.argsort(rows, kind="stable")
        ordered = rows[order]
        for piece, probabilities in self.distributions(requests):
            first, last = np.searchsorted(ordered, [piece.start, piece.stop])
            yield piece, order[first:last], probabilities


def whole(policy: Policy, requests: Requests | FloatArray) -> FloatArray:
    """(m, A) the distributions of any policy at m requests, few enough to be held at once."""
    requests = as_requests(requests)
    if isinstance(policy, BasePolicy):
        return policy.probabilities(requests.contexts)
    return np.concatenate([np.asarray(pi) for _, pi in policy.distributions(requests)])


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
