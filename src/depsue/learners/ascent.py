"""Learning a softmax over features from tables of pseudo-rewards: what PONA and PRPO share.

A pseudo-reward is a number C(x, a) whose sum against pi estimates a value from logs,
V^(pi) = sum over requests and candidates of pi(a|x) C(x, a). The rows of a request are added up
once, so a step of ascent costs one pass over the candidates of the distinct requests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from depsue.data.checks import FloatArray, Mask
from depsue.data.logs import LoggedData
from depsue.data.requests import Requests
from depsue.errors import is_real, is_whole, require, require_positive, short
from depsue.policies.by_features import FeatureScores, FeatureSoftmax, softmax
from depsue.progress import Watch, silent
from depsue.protocols import RewardModel, predicted
from depsue.rewards.base import mean_and_scale

LARGEST = 1 << 26
"""Candidates of all distinct requests: beyond it the tables would not fit (512 MB each)."""
DECAYS = (0.9, 0.999)
"""Adam's, of the mean and of the square of the gradient."""


@dataclass(frozen=True)
class AscentSettings:
    """How a softmax over features is trained: Adam, on all rows at once."""

    steps: int = 300
    """Gradient steps."""
    rate: float = 0.05
    """Adam's step size."""
    entropy: float = 0.0
    """Weight of the policy's entropy, in units of the mean logged reward; 0 is none."""
    products: bool = True
    """Whether scores have products of context and item features; else items are ranked alike in
    every context."""

    def __post_init__(self) -> None:
        require(
            is_whole(self.steps) and self.steps >= 1,
            "steps must be a whole number, at least 1",
            found=short(self.steps),
        )
        require_positive(self.rate, "rate", "0.05 is a good start")
        require(
            is_real(self.entropy) and 0 <= self.entropy < np.inf,
            "entropy must be a finite number >= 0",
            found=short(self.entropy),
        )


@dataclass(frozen=True, eq=False)
class PseudoRewards:
    """C(x, a) over the candidates of u distinct requests.

    Args:
        requests: the u requests.
        values: (u, L) C, divided by the number of rows: sums against pi are means over rows.
        base: (u, L) the probabilities of the policy that logged them; None where nobody asks.
    """

    requests: Requests
    values: FloatArray
    base: FloatArray | None = None


Gain = Callable[[FloatArray, PseudoRewards], tuple[float, FloatArray]]
"""Of (u, L) probabilities: the objective on one table, and its derivative by them."""


@dataclass(frozen=True, eq=False)
class FeatureTrained:
    """A policy that was learned by ascent on pseudo-rewards. Nothing is promised of it.

    Args:
        policy: after the last step.
        objective: (S,) the objective before each step, as the logs estimate it.
        interrupted: True if the user stopped training before its last step.
    """

    policy: FeatureSoftmax
    objective: FloatArray = field(repr=False)
    interrupted: bool


def linear(pi: FloatArray, table: PseudoRewards) -> tuple[float, FloatArray]:
    """V^(pi) itself."""
    return float((pi * table.values).sum()), table.values


def ascend(
    scores: FeatureScores,
    tables: Sequence[PseudoRewards],
    settings: AscentSettings,
    *,
    unit: float,
    gain: Gain = linear,
    name: str,
    watch: Watch = silent,
) -> FeatureTrained:
    """Maximise the sum of `gain` over the tables, from the even choice on.

    Args:
        scores: the features, and the items that may be chosen.
        tables: pseudo-rewards, one table for each log.
        settings: how.
        unit: what counts as one unit of reward, > 0: the mean logged reward.
        gain: the objective.
        name: shown with the progress.
        watch: shows progress.
    """
    weights = np.zeros(scores.shape)
    mean, square = np.zeros_like(weights), np.zeros_like(weights)
    free = np.ones_like(weights)
    free[1:] = settings.products
    shares = [np.abs(table.values).sum() for table in tables]
    history: list[float] = []
    interrupted = False
    try:
        for step in range(1, settings.steps + 1):
            value, gradient = 0.0, np.zeros_like(weights)
            for table, share in zip(tables, shares, strict=True):
                pi = softmax(scores.of(table.requests, weights))
                own, by_pi = gain(pi, table)
                if settings.entropy and share > 0:
                    with np.errstate(divide="ignore"):
                        log_pi = np.where(pi > 0, np.log(pi), 0.0)
                    weight = settings.entropy * unit / (len(pi) * len(tables))
                    by_pi = by_pi - weight * log_pi
                by_score = pi * (by_pi - (pi * by_pi).sum(axis=1, keepdims=True))
                gradient += scores.derivative(table.requests, by_score) / unit
                value += own
            history.append(value)
            gradient *= free
            mean += (1 - DECAYS[0]) * (gradient - mean)
            square += (1 - DECAYS[1]) * (gradient**2 - square)
            corrected = mean / (1 - DECAYS[0] ** step)
            spread = np.sqrt(square / (1 - DECAYS[1] ** step))
            weights = weights + settings.rate * corrected / (spread + 1e-12)
            if step % 20 == 0 or step == settings.steps:
                watch(name, step, settings.steps, f"objective {value:.4f}")
    except KeyboardInterrupt:
        interrupted = True
    return FeatureTrained(FeatureSoftmax(scores, weights), np.asarray(history), interrupted)


def doubly_robust(logs: LoggedData, model: RewardModel, among: Mask) -> PseudoRewards:
    """C(x, a) = q-hat(x, a) + 1{a = a_i} (r_i - q-hat) / p_i, summed over the rows of a request.

    Args:
        logs: the rows.
        model: q-hat.
        among: (A,) the items that count; C is 0 for the others.
    """
    requests, n, n_actions = logs.requests, len(logs), len(logs.catalogue)
    values = _empty(requests, n_actions)
    values += predicted(model, requests) * requests.places(n_actions).pick(among, False)
    predictions = values[logs.context, requests.place(logs.action, logs.context)]
    values *= (logs.context_counts / n)[:, None]
    place = requests.place(logs.action, logs.context)
    more = np.where(among[logs.action], (logs.reward - predictions) / logs.propensity, 0.0)
    np.add.at(values, (logs.context, place), more / n)
    return PseudoRewards(requests, values)


def feature_scores(
    logs: LoggedData, features: FloatArray, support: Mask, *, standardise: bool = False
) -> FeatureScores:
    """Scores over these item features and the contexts of the logs, which are standardised.

    Args:
        logs: the rows.
        features: (A, k) of items.
        support: (A,) the items that may be chosen.
        standardise: whether item features are standardised, too.
    """
    shift, scale = mean_and_scale(logs.contexts)
    if standardise:
        mean, spread = mean_and_scale(features)
        features = (features - mean) * spread
    return FeatureScores(features, support, shift, scale)


def _empty(requests: Requests, n_actions: int) -> FloatArray:
    entries = len(requests) * requests.width(n_actions)
    require(
        entries <= LARGEST,
        f"the candidates of all distinct requests must number at most {LARGEST:,}",
        found=f"{entries:,}",
        cure="learn from a sample of the rows: logs.take(rows)",
    )
    return np.zeros((len(requests), requests.width(n_actions)))
