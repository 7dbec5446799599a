"""Policies and reward models that remember their answers at the contexts of the logs.

The parts of a mixture, the folds and the draws of a deployment all ask about the same contexts, and
a tilt asks a network about each. All answers are in single precision, remembered or not, so that a
result does not depend on which contexts are remembered.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np

from depsue.data.checks import FloatArray, IntArray, Mask
from depsue.data.keys import RowIndex
from depsue.data.logs import LoggedData
from depsue.data.requests import Requests
from depsue.errors import CannotBeSaved, short
from depsue.policies.base import CHUNK_ENTRIES, BasePolicy, whole
from depsue.protocols import Policy, RewardModel
from depsue.savable import REWARD_MODEL, Savable

MOST_REMEMBERED = 1 << 28
"""Answers that are kept in memory at most: 1 GiB."""
NOWHERE = np.zeros((0, 1), dtype=np.float32)
"""No contexts."""
Ask = Callable[[FloatArray], FloatArray]
"""(m, d) contexts to (m, A) answers."""
AskPairs = Callable[[FloatArray, IntArray, IntArray], FloatArray]
"""Contexts, actions, and the context of each pair, to (n,) answers."""


class CachedPolicy(BasePolicy):
    """A policy whose distributions are kept; other contexts are passed on to the policy.

    It is saved, and hashed, as the policy that it remembers.

    Args:
        policy: the policy that answers.
        contexts: (u, d) distinct contexts to remember.
    """

    def __init__(self, policy: Policy, contexts: FloatArray) -> None:
        self.policy = policy
        self._memory = AnswerMemory(contexts, policy.n_actions, self._ask)

    @property
    def remembers(self) -> bool:
        """Whether answers are held in memory."""
        return self._memory.holds

    def forget(self) -> None:
        """Free the room: everything is asked for again."""
        self._memory = AnswerMemory(NOWHERE, 0, self._ask)

    def _ask(self, contexts: FloatArray) -> FloatArray:
        return whole(self.policy, contexts)

    @property
    def n_actions(self) -> int:
        return self.policy.n_actions

    def probabilities(self, contexts: FloatArray) -> FloatArray:
        return self._memory.answers(contexts, self._ask)

    def over(self, requests: Requests) -> FloatArray:
        """(c, L); candidates are asked about anew, for a set hardly ever comes back."""
        if requests.sets is None:
            return self.probabilities(requests.contexts)
        return single(whole(self.policy, requests))

    def chosen_probabilities(
        self, requests: Requests, actions: IntArray, rows: IntArray
    ) -> FloatArray:
        if requests.sets is not None:
            chosen = np.exp(self.policy.log_prob(requests, actions, rows))
            return np.asarray(single(chosen), dtype=np.float64)
        known = self._memory.pairs(requests.contexts, actions, rows, self._ask_pairs)
        return np.asarray(known, dtype=np.float64)

    @property
    def rests_on_choice(self) -> bool:
        return isinstance(self.policy, BasePolicy) and self.policy.rests_on_choice

    def row_probabilities(self, rows: LoggedData) -> FloatArray:
        if isinstance(self.policy, BasePolicy) and self.policy.rests_on_choice:
            return self.policy.row_probabilities(rows)
        return super().row_probabilities(rows)

    def drawn_probabilities(self, rows: LoggedData) -> FloatArray:
        if isinstance(self.policy, BasePolicy) and self.policy.rests_on_choice:
            return self.policy.drawn_probabilities(rows)
        return super().drawn_probabilities(rows)

    def pi0_share(self, requests: Requests) -> FloatArray:
        if isinstance(self.policy, BasePolicy):
            return self.policy.pi0_share(requests)
        return super().pi0_share(requests)

    def besides_pi0(self, requests: Requests) -> FloatArray:
        if isinstance(self.policy, BasePolicy) and self.policy.rests_on_choice:
            return self.policy.besides_pi0(requests)
        return super().besides_pi0(requests)

    def _ask_pairs(self, contexts: FloatArray, actions: IntArray, rows: IntArray) -> FloatArray:
        return np.exp(self.policy.log_prob(Requests(contexts), actions, rows))

    def saved_as(self) -> Savable:
        return _remembered(self.policy)


class CachedRewardModel(Savable):
    """A reward model that keeps its answers; other contexts are passed on to the model.

    It is saved, and hashed, as the model that it remembers.

    Args:
        model: the model that answers.
        contexts: (u, d) distinct contexts to remember.
    """

    family = REWARD_MODEL

    def __init__(self, model: RewardModel, contexts: FloatArray | None = None) -> None:
        self.model = model
        known = NOWHERE if contexts is None else contexts
        n_actions = model.predict(known[:1]).shape[1] if len(known) else 0
        self._memory = AnswerMemory(known, n_actions, model.predict)
        self._last: tuple[FloatArray, FloatArray] | None = None
        self._scored: WeakKeyDictionary[Requests, _Scored] = WeakKeyDictionary()

    def predict(self, contexts: FloatArray) -> FloatArray:
        """(m, A) predictions for every action."""
        return self._memory.answers(contexts, self._ask)

    def forget(self) -> None:
        """Free the room: everything is asked for again."""
        self._memory, self._last = AnswerMemory(NOWHERE, 0, self._ask), None
        self._scored.clear()

    def predict_candidates(self, requests: Requests) -> FloatArray:
        """(m,) predictions for all candidates, one request after the other.

        Each pair is asked about once as long as the requests, or those that they are a piece of,
        are there.
        """
        whole, piece = requests.within or (requests, slice(0, len(requests)))
        sets = whole.sets
        if sets is None:
            raise RuntimeError("requests without candidates are asked about by `predict`")
        if whole not in self._scored:
            if len(sets.items) > MOST_REMEMBERED:
                return self._ask_candidates(requests)
            self._scored[whole] = _Scored(
                np.empty(len(sets.items), dtype=np.float32), np.zeros(len(whole), dtype=bool)
            )
        scored = self._scored[whole]
        first, last = sets.starts[piece.start], sets.starts[piece.stop]
        if not scored.done[piece].all():
            scored.values[first:last] = self._ask_candidates(requests)
            scored.done[piece] = True
        return scored.values[first:last]

    def _ask_candidates(self, requests: Requests) -> FloatArray:
        sets = requests.sets
        if sets is None:
            raise RuntimeError("requests without candidates are asked about by `predict`")
        return single(self.model.predict_pairs(requests.contexts, sets.items, sets.request))

    def _ask(self, contexts: FloatArray) -> FloatArray:
        last = self._last  # the parts of a mixture ask one after the other
        if last is None or not np.array_equal(last[0], contexts):
            last = (np.array(contexts), single(self.model.predict(contexts)))
            last[1].flags.writeable = False
            self._last = last
        return last[1]

    def predict_pairs(
        self, contexts: FloatArray, actions: IntArray, rows: IntArray | None = None
    ) -> FloatArray:
        """(n,) predictions for pairs: `rows` points into the (u, d) contexts."""
        return self._memory.pairs(contexts, actions, rows, self.model.predict_pairs)

    def saved_as(self) -> Savable:
        return _remembered(self.model)


@dataclass(frozen=True, eq=False)
class _Scored:
    """Predictions for the candidates of some requests, and for which of these they are there."""

    values: FloatArray
    done: Mask


class AnswerMemory:
    """(u, A) answers at u distinct contexts, none if they are too many; others are asked for.

    Args:
        contexts: (u, d) distinct contexts to remember.
        n_actions: A.
        ask: what answers.
    """

    def __init__(self, contexts: FloatArray, n_actions: int, ask: Ask) -> None:
        self._index: RowIndex | None = None
        if not len(contexts) or len(contexts) * n_actions > MOST_REMEMBERED:
            return
        self._index = RowIndex(contexts)
        self._answers = np.empty((len(contexts), n_actions), dtype=np.float32)
        at_once = max(1, CHUNK_ENTRIES // n_actions)
        for start in range(0, len(contexts), at_once):
            piece = slice(start, start + at_once)
            self._answers[piece] = ask(contexts[piece])

    @property
    def holds(self) -> bool:
        """Whether there is a table."""
        return self._index is not None

    def _find(self, contexts: FloatArray) -> tuple[IntArray, Mask]:
        """(m,) where the contexts are remembered, and which of them are."""
        if self._index is None:
            return np.zeros(len(contexts), dtype=np.intp), np.zeros(len(contexts), dtype=bool)
        return self._index.find(contexts)

    def answers(self, contexts: FloatArray, ask: Ask) -> FloatArray:
        """(m, A) the answers at these contexts."""
        rows, known = self._find(contexts)
        if not known.any():
            return single(ask(contexts))
        if known.all():
            return np.asarray(self._answers[rows])
        out = np.empty((len(contexts), self._answers.shape[1]), dtype=np.float32)
        out[known] = self._answers[rows[known]]
        out[~known] = ask(contexts[~known])
        return out

    def pairs(
        self, contexts: FloatArray, actions: IntArray, rows: IntArray | None, ask: AskPairs
    ) -> FloatArray:
        """(n,) the answers for pairs: `rows` points into the (u, d) contexts."""
        which = np.arange(len(actions)) if rows is None else rows
        place, known = self._find(contexts)
        if not known.any():
            return single(ask(contexts, actions, which))
        seen = known[which]
        if seen.all():
            return np.asarray(self._answers[place[which], actions])
        out = np.empty(len(actions), dtype=np.float32)
        out[seen] = self._answers[place[which[seen]], actions[seen]]
        number = np.cumsum(~known) - 1  # of the contexts that are asked about
        out[~seen] = ask(contexts[~known], actions[~seen], number[which[~seen]])
        return out


def _remembered(thing: object) -> Savable:
    """What a cache is saved, and hashed, as."""
    if isinstance(thing, Savable):
        return thing.saved_as()
    raise CannotBeSaved(
        f"a {type(thing).__name__} cannot be saved",
        found=short(thing),
        cure="a class that can be saved derives from BasePolicy or BaseRewardModel",
    )


def single(values: FloatArray) -> FloatArray:
    """In single precision."""
    return np.asarray(values, dtype=np.float32)
