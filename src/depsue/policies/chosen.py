"""pi0 as what it chose: a ranker that is not at hand, of which each row knows one probability.

The logs of such a pi0 hold the probability of the item that it chose, and nothing of the others.
A mixture lambda pi0 + (1 - lambda) g can still be judged, for any g that does not need pi0, and
served: whoever asks brings pi0's own choice with its probability p0. With probability lambda that
choice is shown, else g draws among the candidates.

A logged row then says who drew it (`LoggedData.by_pi0`: p0 where pi0 chose the item itself, 0 where
g drew), and its propensity is that of both together: lambda p0, or (1 - lambda) g(a). What a row
counts for a candidate lambda' pi0 + (1 - lambda') g' is::

    drawn by pi0:   lambda' p0 + (1 - lambda') g'(a) 1(a old)
    drawn by g:                  (1 - lambda') g'(a) 1(a new)

over its propensity. In sum over both, each old item counts once, in the rows of pi0, and each new
one once, in those of g: the mean of weight times reward is at most the candidate's value, whatever
items pi0 knows. Old or new is a fixed property of the item.
"""

from __future__ import annotations

import numpy as np

from depsue.data.checks import FloatArray
from depsue.data.logs import LoggedData
from depsue.data.requests import Requests
from depsue.errors import PolicyError
from depsue.policies.base import BasePolicy
from depsue.savable import State


class ChosenPolicy(BasePolicy):
    """pi0 as what it chose: a part of mixtures, and what the caller of a service brings.

    Args:
        n_actions: A.
    """

    kind = "chosen"

    def __init__(self, n_actions: int) -> None:
        self._n_actions = int(n_actions)

    @property
    def n_actions(self) -> int:
        return self._n_actions

    @property
    def rests_on_choice(self) -> bool:
        return True

    def probabilities(self, contexts: FloatArray) -> FloatArray:
        return self.over(Requests(contexts))

    def over(self, requests: Requests) -> FloatArray:
        raise PolicyError(
            "a pi0 of which only the chosen items are known has no distributions",
            found="a question about all of them",
            cure="log pi0's probability of every candidate, or give a pi0 that can be called; with "
            "what it chose alone, mixtures of it with other policies can be judged and served",
        )

    def row_probabilities(self, rows: LoggedData) -> FloatArray:
        return rows.propensity if rows.by_pi0 is None else rows.by_pi0

    def drawn_probabilities(self, rows: LoggedData) -> FloatArray:
        return self.row_probabilities(rows)

    def pi0_share(self, requests: Requests) -> FloatArray:
        return np.ones(len(requests))

    def besides_pi0(self, requests: Requests) -> FloatArray:
        return np.zeros((len(requests), requests.width(self.n_actions)))

    def state(self) -> State:
        return State({"n_actions": self._n_actions})

    @classmethod
    def from_state(cls, state: State) -> ChosenPolicy:
        return cls(state.settings["n_actions"])
