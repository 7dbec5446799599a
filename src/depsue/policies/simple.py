"""Policies without learning: uniform, by item, over a team's own scores, and mixtures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np

from depsue.data.catalogue import Catalogue
from depsue.data.checks import FloatArray, IntArray, Mask
from depsue.data.logs import LoggedData
from depsue.data.requests import Requests
from depsue.errors import PolicyError, is_real, require, short
from depsue.policies.base import CHUNK_ENTRIES, BasePolicy, dense_pieces, held, whole
from depsue.protocols import Policy
from depsue.savable import POLICY, State
from depsue.scores import Scores, read_scores, scores_in, state_over


class Uniform(BasePolicy):
    """The same probability for every supported action.

    Args:
        support: (A,) True where the policy may choose.
    """

    kind = "uniform"

    def __init__(self, support: Any) -> None:
        self._support = checked_support(support)

    @property
    def n_actions(self) -> int:
        return len(self._support)

    def probabilities(self, contexts: FloatArray) -> FloatArray:
        each = self._support / self._support.sum()
        return np.broadcast_to(each, (len(contexts), len(each)))

    def over(self, requests: Requests) -> FloatArray:
        if requests.sets is None:
            return self.probabilities(requests.contexts)
        return held(requests.places(self.n_actions).pick(self._support, False).astype(np.float64))

    def state(self) -> State:
        return State({}, {"support": self._support.astype(np.uint8)})

    @classmethod
    def from_state(cls, state: State) -> Uniform:
        return cls(state.arrays["support"].astype(bool))


class ByItem(BasePolicy):
    """pi(a|x) = p_a: one probability per action, whatever the context.

    Args:
        shares: (A,) p_a >= 0, which sum to 1.
    """

    kind = "by-item"

    def __init__(self, shares: Any) -> None:
        self._shares = np.array(shares, dtype=np.float64)
        total = float(self._shares.sum())
        require(
            self._shares.ndim == 1 and bool((self._shares >= 0).all()) and abs(total - 1) < 1e-9,
            "a policy by item needs one share >= 0 per action, and shares must sum to 1",
            found=f"shape {self._shares.shape}, sum {total:.9g}",
            cure="divide the shares by their sum",
            error=PolicyError,
        )

    @property
    def n_actions(self) -> int:
        return len(self._shares)

    def probabilities(self, contexts: FloatArray) -> FloatArray:
        return np.broadcast_to(self._shares, (len(contexts), len(self._shares)))

    def over(self, requests: Requests) -> FloatArray:
        if requests.sets is None:
            return self.probabilities(requests.contexts)
        return held(requests.places(self.n_actions).pick(self._shares, 0.0))

    def state(self) -> State:
        return State({}, {"shares": self._shares})

    @classmethod
    def from_state(cls, state: State) -> ByItem:
        return cls(state.arrays["shares"])


class SoftmaxOfScores(BasePolicy):
    """pi(a|x) proportional to exp(beta score(x, a)) on the support.

    With score = logit q(x, a) this is the paper's logging policy: beta < 0 is worse than
    uniform, a large beta is near-optimal and near-deterministic.

    Args:
        scores: a callable (m, d) -> (m, A); a `ScoreTable` or an `OnnxScores` can be saved.
        beta: inverse temperature.
        support: (A,) True where the policy may choose.
    """

    kind = "softmax"

    def __init__(self, scores: Scores, beta: float, support: Any) -> None:
        require(np.isfinite(beta), "beta must be finite", found=beta)
        self._scores, self._beta = scores, float(beta)
        self._support = checked_support(support)

    @property
    def n_actions(self) -> int:
        return len(self._support)

    def probabilities(self, contexts: FloatArray) -> FloatArray:
        scaled = self._beta * read_scores(self._scores, contexts, self.n_actions)
        scaled = np.where(self._support, scaled, -np.inf)
        weights = np.exp(scaled - scaled.max(axis=1, keepdims=True))
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))

    def state(self) -> State:
        support = self._support.astype(np.uint8)
        return state_over(self._scores, self, {"beta": self._beta}, {"support": support})

    @classmethod
    def from_state(cls, state: State) -> SoftmaxOfScores:
        support = state.arrays["support"].astype(bool)
        return cls(scores_in(state), state.settings["beta"], support)


class EpsilonGreedy(BasePolicy):
    """The best supported action with probability 1 - epsilon, else uniform on the support.

    Args:
        scores: a callable (m, d) -> (m, A); a `ScoreTable` or an `OnnxScores` can be saved.
        epsilon: share of uniform choices.
        support: (A,) True where the policy may choose.
    """

    kind = "epsilon-greedy"

    def __init__(self, scores: Scores, epsilon: float, support: Any) -> None:
        require(0 <= epsilon <= 1, "epsilon must lie in [0, 1]", found=epsilon)
        self._scores, self._epsilon = scores, float(epsilon)
        self._support = checked_support(support)
        self._never = np.where(self._support, 0.0, -np.inf)

    @property
    def n_actions(self) -> int:
        return len(self._support)

    def probabilities(self, contexts: FloatArray) -> FloatArray:
        best = self._best(contexts)
        out = np.tile(self._each(), (len(contexts), 1))
        out[np.arange(len(out)), best] += 1 - self._epsilon
        return out

    def over(self, requests: Requests) -> FloatArray:
        """(c, L) the best supported candidate, else even among the supported ones."""
        if requests.sets is None:
            return self.probabilities(requests.contexts)
        shown = requests.places(self.n_actions).pick(self._support, False)
        out = self._epsilon * held(shown.astype(np.float64))
        for piece in dense_pieces(requests, self.n_actions):
            few = requests[piece]
            scores = read_scores(self._scores, few.contexts, self.n_actions)
            mine = np.take_along_axis(scores, few.places(self.n_actions).items, axis=1)
            mine = np.where(shown[piece, : mine.shape[1]], mine, -np.inf)
            some = np.flatnonzero(shown[piece].any(axis=1))
            out[piece.start + some, mine[some].argmax(axis=1)] += 1 - self._epsilon
        return out

    def chosen_probabilities(
        self, requests: Requests, actions: IntArray, rows: IntArray
    ) -> FloatArray:
        """(n,) pi(a_i | requests[rows_i]): by the best action alone, no distribution."""
        if requests.sets is not None:
            return super().chosen_probabilities(requests, actions, rows)
        contexts = requests.contexts
        at_once = max(1, CHUNK_ENTRIES // self.n_actions)
        pieces = [contexts[k : k + at_once] for k in range(0, len(contexts), at_once)]
        best = np.concatenate([self._best(piece) for piece in pieces or [contexts]])
        chosen = self._each()[actions]
        chosen[best[rows] == actions] += 1 - self._epsilon
        return chosen

    def _best(self, contexts: FloatArray) -> IntArray:
        """(m,) the supported action with the highest score."""
        scores = read_scores(self._scores, contexts, self.n_actions)
        return np.asarray((scores + self._never).argmax(axis=1))

    def _each(self) -> FloatArray:
        """(A,) what every action has of the uniform choices."""
        return np.asarray(self._epsilon * self._support / self._support.sum())

    def state(self) -> State:
        support = self._support.astype(np.uint8)
        return state_over(self._scores, self, {"epsilon": self._epsilon}, {"support": support})

    @classmethod
    def from_state(cls, state: State) -> EpsilonGreedy:
        support = state.arrays["support"].astype(bool)
        return cls(scores_in(state), state.settings["epsilon"], support)


class OwnPolicy(BasePolicy):
    """A team's own policy: a callable, a table, or an ONNX model, that returns probabilities.

    Args:
        probabilities: (m, d) -> (m, A) distributions; a `ScoreTable`, an `OnnxScores` or an
            `ExternalModel` can be saved.
        n_actions: A.
    """

    kind = "own"

    def __init__(self, probabilities: Scores, n_actions: int) -> None:
        self._call, self._n_actions = probabilities, int(n_actions)

    @property
    def n_actions(self) -> int:
        return self._n_actions

    def probabilities(self, contexts: FloatArray) -> FloatArray:
        out = read_scores(self._call, contexts, self.n_actions, "a policy")
        total = out.sum(axis=1)
        wrong = np.flatnonzero((out < 0).any(axis=1) | (np.abs(total - 1) > 1e-5))
        require(
            len(wrong) == 0,
            "a policy's probabilities must be >= 0 and sum to 1",
            found=f"context {wrong[0]} of the chunk: smallest {out[wrong[0]].min():g}, "
            f"sum {out[wrong[0]].sum():.9g}"
            if len(wrong)
            else "",
            cure="normalise them, or use SoftmaxOfScores for raw scores",
            error=PolicyError,
        )
        return np.asarray(out / total[:, None])

    def state(self) -> State:
        return state_over(self._call, self, {"n_actions": self._n_actions}, {})

    @classmethod
    def from_state(cls, state: State) -> OwnPolicy:
        return cls(scores_in(state), state.settings["n_actions"])


class Mixture(BasePolicy):
    """Draws one of several policies with fixed weights, then an action from it.

    Args:
        parts: the policies, over the same A actions.
        weights: their shares, which sum to 1.
    """

    kind = "mixture"
    part_families = {"parts": POLICY}

    def __init__(self, parts: Sequence[Policy], weights: Sequence[float]) -> None:
        shares = np.asarray(weights, dtype=np.float64)
        require(
            len(parts) == len(shares) > 0
            and bool((shares >= 0).all())
            and abs(shares.sum() - 1) < 1e-9,
            "a mixture needs one share >= 0 per policy, and shares must sum to 1",
            found=f"{len(parts)} policies, shares {list(weights)}",
        )
        sizes = {part.n_actions for part in parts}
        require(len(sizes) == 1, "policies must be over the same actions", found=f"A in {sizes}")
        self.parts, self.weights = tuple(parts), shares

    @property
    def n_actions(self) -> int:
        return self.parts[0].n_actions

    def probabilities(self, contexts: FloatArray) -> FloatArray:
        return self.over(Requests(contexts))

    def over(self, requests: Requests) -> FloatArray:
        out = np.zeros((len(requests), requests.width(self.n_actions)))
        for share, part in zip(self.weights, self.parts, strict=True):
            for piece, pi in part.distributions(requests):
                out[piece, : pi.shape[1]] += share * pi
        return out

    def chosen_probabilities(
        self, requests: Requests, actions: IntArray, rows: IntArray
    ) -> FloatArray:
        """(n,) pi(a_i | requests[rows_i]): a part that remembers need not work it out again."""
        total = np.zeros(len(actions))
        for share, part in zip(self.weights, self.parts, strict=True):
            total += share * np.exp(part.log_prob(requests, actions, rows))
        return total

    @property
    def rests_on_choice(self) -> bool:
        return any(isinstance(part, BasePolicy) and part.rests_on_choice for part in self.parts)

    def row_probabilities(self, rows: LoggedData) -> FloatArray:
        if not self.rests_on_choice:
            return super().row_probabilities(rows)
        return sum(
            (share * part.row_probabilities(rows) for share, part in self._own_parts()),
            np.zeros(len(rows)),
        )

    def drawn_probabilities(self, rows: LoggedData) -> FloatArray:
        if not self.rests_on_choice:
            return super().drawn_probabilities(rows)
        return sum(
            (share * part.drawn_probabilities(rows) for share, part in self._own_parts()),
            np.zeros(len(rows)),
        )

    def pi0_share(self, requests: Requests) -> FloatArray:
        return sum(
            (share * part.pi0_share(requests) for share, part in self._own_parts()),
            np.zeros(len(requests)),
        )

    def besides_pi0(self, requests: Requests) -> FloatArray:
        return sum(
            (share * part.besides_pi0(requests) for share, part in self._own_parts()),
            np.zeros((len(requests), requests.width(self.n_actions))),
        )

    def _own_parts(self) -> Iterator[tuple[float, BasePolicy]]:
        """Shares and parts that have one."""
        for share, part in zip(self.weights.tolist(), self.parts, strict=True):
            require(
                isinstance(part, BasePolicy),
                "policies beside a pi0 that is known by what it chose derive from BasePolicy",
                found=short(part),
                error=PolicyError,
            )
            if share > 0:
                yield share, cast(BasePolicy, part)

    def state(self) -> State:
        return State({"weights": self.weights.tolist()}, parts={"parts": self.parts})

    @classmethod
    def from_state(cls, state: State) -> Mixture:
        return cls(state.parts["parts"], state.settings["weights"])


class BroughtPolicy(BasePolicy):
    """pi0 as each request brings it: with its probabilities of the candidates.

    For a ranker that cannot be called here, but logs its probabilities, and whose caller sends
    them along with each decision to be made.

    Args:
        n_actions: A.
    """

    kind = "brought"

    def __init__(self, n_actions: int) -> None:
        self._n_actions = int(n_actions)

    @property
    def n_actions(self) -> int:
        return self._n_actions

    def probabilities(self, contexts: FloatArray) -> FloatArray:
        return self.over(Requests(contexts))

    def over(self, requests: Requests) -> FloatArray:
        sets = requests.sets
        known = None if sets is None else sets.pi0
        if known is None:
            raise PolicyError(
                "every request must bring pi0's probabilities of its candidates",
                found="requests without them",
                cure="log them beside the candidates, and send them with each request",
            )
        return np.asarray(requests.table(known, self.n_actions), dtype=np.float64)

    def chosen_probabilities(
        self, requests: Requests, actions: IntArray, rows: IntArray
    ) -> FloatArray:
        """(n,) pi(a_i | requests[rows_i]): looked up, no table."""
        sets = requests.sets
        if sets is None or sets.pi0 is None:
            return super().chosen_probabilities(requests, actions, rows)
        entry = sets.entry(rows, actions)
        return np.where(entry >= 0, np.asarray(sets.pi0, dtype=np.float64)[entry], 0.0)

    def state(self) -> State:
        return State({"n_actions": self._n_actions})

    @classmethod
    def from_state(cls, state: State) -> BroughtPolicy:
        return cls(state.settings["n_actions"])


class OrElse(BasePolicy):
    """A policy, and another one for requests in which it shows none of the candidates.

    A choice among new items has nothing to show where a request brings none: there the old part of
    a mixture decides, and the mixture stays linear in its shares.

    Args:
        first: decides where it shows a candidate.
        otherwise: decides elsewhere.
    """

    kind = "or-else"
    part_families = {"first": POLICY, "otherwise": POLICY}

    def __init__(self, first: BasePolicy, otherwise: BasePolicy) -> None:
        require(
            first.n_actions == otherwise.n_actions,
            "policies must be over the same actions",
            found=f"{first.n_actions} and {otherwise.n_actions}",
            error=PolicyError,
        )
        self.first, self.otherwise = first, otherwise

    @property
    def n_actions(self) -> int:
        return self.first.n_actions

    @property
    def rests_on_choice(self) -> bool:
        return self.otherwise.rests_on_choice

    def row_probabilities(self, rows: LoggedData) -> FloatArray:
        if not self.rests_on_choice:
            return super().row_probabilities(rows)
        decides = self._decides(rows.requests)[rows.context]
        return np.where(
            decides, self.first.row_probabilities(rows), self.otherwise.row_probabilities(rows)
        )

    def drawn_probabilities(self, rows: LoggedData) -> FloatArray:
        if not self.rests_on_choice:
            return super().drawn_probabilities(rows)
        decides = self._decides(rows.requests)[rows.context]
        return np.where(
            decides, self.first.drawn_probabilities(rows), self.otherwise.drawn_probabilities(rows)
        )

    def pi0_share(self, requests: Requests) -> FloatArray:
        return np.where(self._decides(requests), 0.0, self.otherwise.pi0_share(requests))

    def besides_pi0(self, requests: Requests) -> FloatArray:
        out = np.array(self.first.over(requests), dtype=np.float64)
        none = np.flatnonzero(out.sum(axis=1) == 0)
        if len(none):
            other = self.otherwise.besides_pi0(requests.take(none))
            out[none, : other.shape[1]] = other
        return out

    def _decides(self, requests: Requests) -> Mask:
        """(u,) where the first policy shows a candidate."""
        shows = np.zeros(len(requests), dtype=bool)
        for piece, pi in self.first.distributions(requests):
            shows[piece] = pi.sum(axis=1) > 0
        return shows

    def probabilities(self, contexts: FloatArray) -> FloatArray:
        return self.over(Requests(contexts))

    def over(self, requests: Requests) -> FloatArray:
        out = np.array(whole(self.first, requests), dtype=np.float64)
        none = np.flatnonzero(out.sum(axis=1) == 0)
        if len(none):
            other = whole(self.otherwise, requests.take(none))
            out[none, : other.shape[1]] = other
        return out

    def state(self) -> State:
        return State({}, parts={"first": self.first, "otherwise": self.otherwise})

    @classmethod
    def from_state(cls, state: State) -> OrElse:
        return cls(state.parts["first"], state.parts["otherwise"])


def naive_safe_exploration(
    logging_policy: Policy, catalogue: Catalogue, share: float = 0.05
) -> Mixture:
    """Naive Safe Exploration: (1 - share) pi0 + share uniform over the novel actions.

    Whatever the novel actions are worth, its value is at least (1 - share) V(pi0).
    """
    require(
        is_real(share) and 0 < share < 1,
        "share must lie in (0, 1)",
        found=short(share),
        cure="0.05 explores in 5% of the decisions",
    )
    require(
        bool(catalogue.novel.any()),
        "there must be a novel action to explore",
        found="none in the catalogue",
        cure="mark the novel actions",
    )
    return Mixture([logging_policy, Uniform(catalogue.novel)], [1 - share, share])


def checked_support(support: Any) -> Mask:
    """(A,) True where a policy may choose, checked to allow at least one action."""
    mask = np.asarray(support)
    require(
        mask.dtype == bool and mask.ndim == 1 and bool(mask.any()),
        "a policy's support must be a mask over the actions that allows at least one",
        found=f"{mask.dtype} of shape {mask.shape}, {int(mask.sum())} allowed",
        cure="~catalogue.novel is the support of pi0, catalogue.novel the novel actions",
        error=PolicyError,
    )
    return mask
