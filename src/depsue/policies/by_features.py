"""Policies that choose by the features of items: a softmax of scores, and Thompson sampling.

A score is linear in products of context and item features, z(x)' W e_a with z(x) = (1, standardised
x). So an item that nobody has seen has a score, as soon as it has features; and sets of candidates
are scored one by one, however large the catalogue is.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from depsue.data.checks import FloatArray, IntArray
from depsue.data.requests import Requests
from depsue.errors import PolicyError, require
from depsue.policies.base import BasePolicy
from depsue.policies.simple import checked_support
from depsue.savable import State

AT_ONCE = 1 << 17
"""Candidates whose features are held at once in double precision."""


class FeatureScores:
    """Scores z(x)' W e_a of candidates, and the derivative of a sum of them by W.

    Args:
        features: (A, k) e_a.
        support: (A,) True where an item may be chosen; the score elsewhere is -inf.
        shift: (d,) subtracted from a context.
        scale: (d,) multiplied after that.
    """

    def __init__(self, features: Any, support: Any, shift: Any, scale: Any) -> None:
        self.features = np.asarray(features, dtype=np.float64)
        self.support = checked_support(support)
        self.shift = np.asarray(shift, dtype=np.float64)
        self.scale = np.asarray(scale, dtype=np.float64)
        require(
            self.features.ndim == 2 and len(self.features) == len(self.support),
            "every item needs a row of features",
            found=f"features {self.features.shape} for {len(self.support)} items",
            cure="Catalogue(ids, novel, features)",
            error=PolicyError,
        )
        require(
            self.shift.shape == self.scale.shape == (len(self.shift),),
            "shift and scale must have an entry for each feature of a context",
            found=f"{self.shift.shape} and {self.scale.shape}",
            error=PolicyError,
        )

    @property
    def shape(self) -> tuple[int, int]:
        """(1 + d, k) of W."""
        return 1 + len(self.shift), self.features.shape[1]

    def inputs(self, contexts: FloatArray) -> FloatArray:
        """(c, 1 + d) z(x)."""
        require(
            contexts.ndim == 2 and contexts.shape[1] == len(self.shift),
            f"contexts must have {len(self.shift)} features",
            found=f"shape {contexts.shape}",
            cure="pass contexts with the features that the policy was learned on",
            error=PolicyError,
        )
        out = np.ones((len(contexts), self.shape[0]))
        out[:, 1:] = (np.asarray(contexts, dtype=np.float64) - self.shift) * self.scale
        return out

    def of(self, requests: Requests, weights: FloatArray) -> FloatArray:
        """(c, L) scores; -inf outside the support and at places without a candidate."""
        mixed = self.inputs(requests.contexts) @ weights  # (c, k)
        sets = requests.sets
        if sets is None:
            return np.where(self.support, mixed @ self.features.T, -np.inf)
        scores = np.empty(len(sets.items))
        for start in range(0, len(scores), AT_ONCE):
            piece = slice(start, start + AT_ONCE)
            items = sets.items[piece]
            own = (mixed[sets.request[piece]] * self.features[items]).sum(axis=1)
            scores[piece] = np.where(self.support[items], own, -np.inf)
        there = np.arange(requests.width(len(self.support))) < sets.sizes[:, None]
        out = np.full(there.shape, -np.inf)
        out[there] = scores
        return out

    def derivative(self, requests: Requests, by_score: FloatArray) -> FloatArray:
        """(1 + d, k) the derivative by W, given (c, L) those by the scores."""
        sets = requests.sets
        if sets is None:
            summed = by_score @ self.features
        else:
            there = np.arange(by_score.shape[1]) < sets.sizes[:, None]
            flat, summed = by_score[there], np.empty((len(requests), self.shape[1]))
            for place, feature in enumerate(self.features.T):
                own = flat * feature[sets.items]
                summed[:, place] = np.bincount(sets.request, own, minlength=len(requests))
        return np.asarray(self.inputs(requests.contexts).T @ summed)

    def arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """What a policy over it is saved with."""
        return {
            "features": self.features,
            "support": self.support.astype(np.uint8),
            "shift": self.shift,
            "scale": self.scale,
        }

    @classmethod
    def from_arrays(cls, arrays: Any) -> FeatureScores:
        """From what `arrays` gave."""
        support = arrays["support"].astype(bool)
        return cls(arrays["features"], support, arrays["shift"], arrays["scale"])


class FeatureSoftmax(BasePolicy):
    """pi(a|x) = softmax over the candidates of z(x)' W e_a + b_a.

    Args:
        scores: features of items, and how contexts are standardised.
        weights: (1 + d, k) W.
        bias: (A,) b_a, or None for 0: what holds the share of some items within limits.
    """

    kind = "feature-softmax"

    def __init__(self, scores: FeatureScores, weights: FloatArray, bias: Any = None) -> None:
        self.scores, self.weights = scores, np.asarray(weights, dtype=np.float64)
        self.bias = np.zeros(self.n_actions) if bias is None else np.asarray(bias, np.float64)
        require(
            self.weights.shape == scores.shape
            and self.bias.shape == (self.n_actions,)
            and bool(np.isfinite(self.weights).all() and np.isfinite(self.bias).all()),
            f"a softmax over features needs finite weights of shape {scores.shape}",
            found=f"shape {self.weights.shape}, {self.bias.shape} biases",
            cure="training diverged: lower the rate",
            error=PolicyError,
        )

    @property
    def n_actions(self) -> int:
        return len(self.scores.support)

    def probabilities(self, contexts: FloatArray) -> FloatArray:
        return self.over(Requests(contexts))

    def over(self, requests: Requests) -> FloatArray:
        """(c, L) distributions; a row is all 0 where no candidate is in the support."""
        logits = self.scores.of(requests, self.weights)
        logits += requests.places(self.n_actions).pick(self.bias, 0.0)
        return softmax(logits)

    def state(self) -> State:
        arrays = {**self.scores.arrays(), "weights": self.weights, "bias": self.bias}
        return State({}, arrays)

    @classmethod
    def from_state(cls, state: State) -> FeatureSoftmax:
        scores = FeatureScores.from_arrays(state.arrays)
        return cls(scores, state.arrays["weights"], state.arrays["bias"])


class LinearThompson(BasePolicy):
    """Thompson sampling by a linear model, with its draws fixed beforehand.

    Each of M draws of the coefficients is greedy; pi(a|x) is the share of draws in which a has the
    highest score. So propensities are exact, decisions can be replayed, and the policy can be
    saved. An item that is best in no draw is never shown.

    Args:
        scores: features of items, and how contexts are standardised.
        draws: (M, 1 + d, k) coefficients W of each draw.
    """

    kind = "linear-thompson"

    def __init__(self, scores: FeatureScores, draws: FloatArray) -> None:
        self.scores, self.draws = scores, np.asarray(draws, dtype=np.float32)
        require(
            self.draws.ndim == 3
            and len(self.draws) > 0
            and self.draws.shape[1:] == scores.shape
            and bool(np.isfinite(self.draws).all()),
            f"Thompson sampling needs finite draws of shape {scores.shape}",
            found=f"shape {self.draws.shape}",
            error=PolicyError,
        )

    @property
    def n_actions(self) -> int:
        return len(self.scores.support)

    def probabilities(self, contexts: FloatArray) -> FloatArray:
        return self.over(Requests(contexts))

    def over(self, requests: Requests) -> FloatArray:
        """(c, L) shares of the draws; a row is all 0 where no candidate is in the support."""
        shares = np.zeros((len(requests), requests.width(self.n_actions)))
        every: IntArray = np.arange(len(requests))
        for draw in self.draws:
            scores = self.scores.of(requests, draw.astype(np.float64))
            best = scores.argmax(axis=1)
            shares[every, best] += np.isfinite(scores[every, best])
        return np.asarray(shares / len(self.draws))

    def state(self) -> State:
        return State({}, {**self.scores.arrays(), "draws": self.draws})

    @classmethod
    def from_state(cls, state: State) -> LinearThompson:
        return cls(FeatureScores.from_arrays(state.arrays), state.arrays["draws"])


def softmax(logits: FloatArray) -> FloatArray:
    """(c, L) softmax of each row; -inf has probability 0, a row of -inf is all 0."""
    most = logits.max(axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):
        g = np.exp(logits - np.where(np.isfinite(most), most, 0.0))
    total = g.sum(axis=1, keepdims=True)
    return np.asarray(g / np.where(total > 0, total, 1.0))
