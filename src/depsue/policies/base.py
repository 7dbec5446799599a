"""What every policy shares: a subclass gives `probabilities`, the three calls follow."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np

from depsue.data.checks import FloatArray, IntArray
from depsue.errors import PolicyError, require, short
from depsue.protocols import Policy

CHUNK_ENTRIES = 1 << 22
"""Probabilities held in memory at once: contexts are taken in chunks of this many over A."""


class BasePolicy(ABC):
    """A policy over A actions, by its distributions."""

    kind: str
    """Name of the policy in saved files."""

    @property
    @abstractmethod
    def n_actions(self) -> int:
        """A."""

    @abstractmethod
    def probabilities(self, contexts: FloatArray) -> FloatArray:
        """(m, A) distributions for a chunk of m contexts."""

    def state(self) -> tuple[dict[str, Any], dict[str, np.ndarray[Any, Any]]]:
        """Settings (JSON) and arrays from which `from_state` rebuilds the policy."""
        raise PolicyError(
            f"a {type(self).__name__} cannot be saved",
            found="it wraps a callable",
            cure="save its scores as a ScoreTable, or save the model on its own",
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.n_actions:,} actions)"

    def distributions(
        self, contexts: FloatArray, chunk: int | None = None
    ) -> Iterator[tuple[slice, FloatArray]]:
        """Whole distributions, a chunk of contexts at a time: (slice, (c, A))."""
        chunk = chunk or max(1, CHUNK_ENTRIES // self.n_actions)
        for start in range(0, len(contexts), chunk):
            piece = slice(start, min(start + chunk, len(contexts)))
            yield piece, self.probabilities(contexts[piece])

    def log_prob(
        self, contexts: FloatArray, actions: IntArray, rows: IntArray | None = None
    ) -> FloatArray:
        """(n,) log pi(a_i | contexts[rows_i])."""
        rows, pieces = self._rows(contexts, rows, len(actions))
        out = np.empty(len(rows))
        for piece, mine, probabilities in pieces:
            out[mine] = probabilities[rows[mine] - piece.start, actions[mine]]
        with np.errstate(divide="ignore"):
            return np.log(out)

    def sample(
        self, contexts: FloatArray, rng: np.random.Generator, rows: IntArray | None = None
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
        rows, pieces = self._rows(contexts, rows, len(contexts))
        uniform = rng.random(len(rows))
        actions = np.empty(len(rows), dtype=np.int32)
        chosen = np.empty(len(rows))
        for piece, mine, probabilities in pieces:
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

    def _rows(
        self, contexts: FloatArray, rows: IntArray | None, n: int
    ) -> tuple[IntArray, Iterator[tuple[slice, Any, FloatArray]]]:
        """The rows, and an iterator over (slice of contexts, rows within it, probabilities)."""
        if rows is None:
            require(
                len(contexts) == n,
                "without rows there must be one context per action",
                found=f"{len(contexts)} contexts, {n} actions",
                error=PolicyError,
            )
            rows = np.arange(n)
        return rows, self._pieces(contexts, rows)

    def _pieces(
        self, contexts: FloatArray, rows: IntArray
    ) -> Iterator[tuple[slice, Any, FloatArray]]:
        if len(contexts) * self.n_actions <= CHUNK_ENTRIES:
            yield slice(0, len(contexts)), slice(None), self.probabilities(contexts)
            return
        order = np.argsort(rows, kind="stable")
        ordered = rows[order]
        for piece, probabilities in self.distributions(contexts):
            first, last = np.searchsorted(ordered, [piece.start, piece.stop])
            yield piece, order[first:last], probabilities


def whole(policy: Policy, contexts: FloatArray) -> FloatArray:
    """(m, A) the distributions of any policy at m contexts, few enough to be held at once."""
    if isinstance(policy, BasePolicy):
        return policy.probabilities(contexts)
    return np.concatenate([np.asarray(pi) for _, pi in policy.distributions(contexts)])
