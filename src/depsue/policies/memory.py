"""Answers that are kept: of a reward model, or of a policy, at the contexts of the logs.

The parts of a mixture, the folds and the draws of a deployment all ask about the same contexts.
All answers are in single precision, so that it does not matter which contexts are remembered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from depsue.data.checks import FloatArray, IntArray
from depsue.data.keys import row_keys
from depsue.policies.base import CHUNK_ENTRIES, BasePolicy, whole
from depsue.protocols import Policy, RewardModel

MOST_REMEMBERED = 1 << 28
"""Answers that are kept in memory at most: 1 GiB."""


class Memory:
    """(u, A) answers at u distinct contexts; none if they are too many.

    Args:
        contexts: (u, d) distinct contexts to remember.
        n_actions: A.
        ask: (m, d) contexts to (m, A) answers.
    """

    def __init__(
        self, contexts: FloatArray, n_actions: int, ask: Callable[[FloatArray], FloatArray]
    ) -> None:
        self._keys: Any = None
        if not len(contexts) or len(contexts) * n_actions > MOST_REMEMBERED:
            return
        self._contexts = _plain(contexts)
        keys = row_keys(self._contexts)
        self._order = np.argsort(keys, kind="stable")
        self._keys = keys[self._order]
        self._answers = np.empty((len(contexts), n_actions), dtype=np.float32)
        at_once = max(1, CHUNK_ENTRIES // n_actions)
        for start in range(0, len(contexts), at_once):
            piece = slice(start, start + at_once)
            self._answers[piece] = ask(contexts[piece])

    def rows(self, contexts: FloatArray) -> IntArray | None:
        """(m,) where the contexts are remembered; None if one of them is not."""
        if self._keys is None:
            return None
        wanted = _plain(contexts)
        place = np.minimum(np.searchsorted(self._keys, row_keys(wanted)), len(self._keys) - 1)
        rows = self._order[place]
        return rows if bool((self._contexts[rows] == wanted).all()) else None

    def answers(self, contexts: FloatArray) -> FloatArray | None:
        """(m, A) what was answered at these contexts; None if one of them is not remembered."""
        rows = self.rows(contexts)
        return None if rows is None else self._answers[rows]

    def pairs(
        self, contexts: FloatArray, actions: IntArray, rows: IntArray | None
    ) -> FloatArray | None:
        """(n,) what was answered for pairs, given as in `Policy.log_prob`; None as above."""
        known = self.rows(contexts)
        if known is None:
            return None
        return np.asarray(self._answers[known if rows is None else known[rows], actions])


class Remembering:
    """A reward model that keeps its answers; other contexts are passed on to the model.

    Args:
        model: the model that answers.
        contexts: (u, d) distinct contexts to remember.
    """

    def __init__(self, model: RewardModel, contexts: FloatArray | None = None) -> None:
        self.model = model
        some = np.zeros((0, 1)) if contexts is None else contexts
        n_actions = model.predict(some[:1]).shape[1] if len(some) else 0
        self._memory = Memory(some, n_actions, model.predict)
        self._last: tuple[FloatArray, FloatArray] | None = None

    def predict(self, contexts: FloatArray) -> FloatArray:
        """(m, A) predictions for every action."""
        known = self._memory.answers(contexts)
        if known is not None:
            return known
        last = self._last  # the parts of a mixture ask one after the other
        if last is None or not np.array_equal(last[0], contexts):
            last = (np.array(contexts), single(self.model.predict(contexts)))
            last[1].flags.writeable = False
            self._last = last
        return last[1]

    def predict_pairs(
        self, contexts: FloatArray, actions: IntArray, rows: IntArray | None = None
    ) -> FloatArray:
        """(n,) predictions for pairs, given as in `Policy.log_prob`."""
        known = self._memory.pairs(contexts, actions, rows)
        if known is None:
            return single(self.model.predict_pairs(contexts, actions, rows))
        return known


class Remembered(BasePolicy):
    """A policy whose distributions are kept; other contexts are passed on to the policy.

    It is saved, and hashed, as the policy that it remembers.

    Args:
        policy: the policy that answers.
        contexts: (u, d) distinct contexts to remember.
    """

    def __init__(self, policy: Policy, contexts: FloatArray) -> None:
        self.policy = policy
        self._memory = Memory(contexts, policy.n_actions, lambda some: whole(policy, some))

    @property
    def kind(self) -> str:  # type: ignore[override]
        """Of the policy that is remembered."""
        return self.policy.kind if isinstance(self.policy, BasePolicy) else "own"

    @property
    def n_actions(self) -> int:
        return self.policy.n_actions

    def probabilities(self, contexts: FloatArray) -> FloatArray:
        known = self._memory.answers(contexts)
        return single(whole(self.policy, contexts)) if known is None else known

    def log_prob(
        self, contexts: FloatArray, actions: IntArray, rows: IntArray | None = None
    ) -> FloatArray:
        known = self._memory.pairs(contexts, actions, rows)
        if known is None:
            return super().log_prob(contexts, actions, rows)
        with np.errstate(divide="ignore"):
            return np.log(np.asarray(known, dtype=np.float64))

    def state(self) -> tuple[dict[str, Any], dict[str, np.ndarray[Any, Any]]]:
        return self.policy.state() if isinstance(self.policy, BasePolicy) else super().state()


def single(values: FloatArray) -> FloatArray:
    """In single precision."""
    return np.asarray(values, dtype=np.float32)


def _plain(contexts: FloatArray) -> FloatArray:
    return np.asarray(contexts, dtype=np.float32) + np.float32(0)
