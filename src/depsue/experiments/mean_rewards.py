"""Mean rewards q(x, a) of simulated worlds: a table, or labels where a table would not fit."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from depsue.data.checks import FloatArray, IntArray, Mask
from depsue.errors import require


class MeanRewards(Protocol):
    """q over u contexts and A actions."""

    @property
    def shape(self) -> tuple[int, int]:
        """(u, A)."""

    @property
    def q(self) -> FloatArray:
        """(u, A) the whole table; for small worlds."""

    def pairs(self, context: IntArray, action: IntArray) -> FloatArray:
        """(n,) q at the given pairs."""

    def expected(self, contexts: slice, pi: FloatArray) -> FloatArray:
        """(m,) sum over actions of pi q at these contexts, given pi (m, A) there."""

    def best(self) -> FloatArray:
        """(u,) the largest q of each context."""

    def best_within(self, actions: Mask) -> FloatArray:
        """(u,) share of each context's best actions that are among the given ones (A,)."""


class RewardTable:
    """q as a table.

    Args:
        q: (u, A) mean rewards in [0, 1].
    """

    def __init__(self, q: FloatArray) -> None:
        require(
            q.ndim == 2 and bool(((q >= 0) & (q <= 1)).all()),
            "mean rewards must lie in [0, 1]",
            found=f"shape {q.shape}" + ("" if q.ndim != 2 else f", {q.min():g} to {q.max():g}"),
        )
        self._q = q

    @property
    def shape(self) -> tuple[int, int]:
        return (len(self._q), self._q.shape[1])

    @property
    def q(self) -> FloatArray:
        return self._q

    def pairs(self, context: IntArray, action: IntArray) -> FloatArray:
        return np.asarray(self._q[context, action])

    def expected(self, contexts: slice, pi: FloatArray) -> FloatArray:
        return np.asarray((pi * self._q[contexts]).sum(axis=1, dtype=np.float64))

    def best(self) -> FloatArray:
        return np.asarray(self._q.max(axis=1))

    def best_within(self, actions: Mask) -> FloatArray:
        best = self._q == self.best()[:, None]
        return np.asarray(best[:, actions].sum(axis=1) / best.sum(axis=1))


class LabelRewards:
    """q = `hit` where the label holds for the document and `miss` elsewhere; only hits are kept.

    Args:
        starts: (u + 1,) where the labels of each context begin in `labels`.
        labels: the actions that hold, context after context, ascending within each.
        n_actions: A.
        hit: mean reward of a label that holds.
        miss: mean reward of the others.
    """

    def __init__(
        self, starts: IntArray, labels: IntArray, n_actions: int, *, hit: float, miss: float
    ) -> None:
        require(
            0 <= miss <= hit <= 1,
            "mean rewards must lie in [0, 1], a hit's not below a miss's",
            found=f"hit {hit:g}, miss {miss:g}",
        )
        self._starts, self._labels, self._n_actions = starts, labels, n_actions
        self._hit, self._miss = hit, miss
        context = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
        self._context = context
        self._keys = context * n_actions + labels  # ascending, so pairs are found by bisection

    @property
    def shape(self) -> tuple[int, int]:
        return (len(self._starts) - 1, self._n_actions)

    @property
    def q(self) -> FloatArray:
        out = np.full(self.shape, self._miss)
        out[self._context, self._labels] = self._hit
        return out

    def pairs(self, context: IntArray, action: IntArray) -> FloatArray:
        wanted = np.asarray(context, dtype=np.int64) * self._n_actions + action
        place = np.minimum(np.searchsorted(self._keys, wanted), len(self._keys) - 1)
        return np.where(self._keys[place] == wanted, self._hit, self._miss)

    def expected(self, contexts: slice, pi: FloatArray) -> FloatArray:
        first, last = self._starts[contexts.start], self._starts[contexts.stop]
        row = self._context[first:last] - contexts.start
        on_hits = np.bincount(row, pi[row, self._labels[first:last]], minlength=len(pi))
        return np.asarray(self._miss + (self._hit - self._miss) * on_hits)

    def best(self) -> FloatArray:
        return np.where(np.diff(self._starts) > 0, self._hit, self._miss)

    def best_within(self, actions: Mask) -> FloatArray:
        hits = np.diff(self._starts)
        within = np.bincount(self._context, actions[self._labels], minlength=len(hits))
        return np.where(hits > 0, within / np.maximum(hits, 1), actions.mean())
