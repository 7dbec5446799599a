"""What a team would try first: epsilon-greedy, Thompson sampling, and a clip of pi / pi0.

None of them knows a floor; a certificate can be asked of what they return like of any policy.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from depsue import rng
from depsue.data.catalogue import Catalogue
from depsue.data.checks import FloatArray
from depsue.data.logs import LoggedData
from depsue.errors import is_real, is_whole, require, require_positive, require_settings, short
from depsue.learners.ascent import (
    AscentSettings,
    FeatureTrained,
    PseudoRewards,
    ascend,
    doubly_robust,
    feature_scores,
)
from depsue.policies.base import whole
from depsue.policies.by_features import LinearThompson
from depsue.policies.tilted import ModelSoftmax
from depsue.progress import Watch, silent
from depsue.protocols import Policy, RewardModel
from depsue.rewards.base import action_features

GREEDY = 1e9
"""Strength of a softmax, per r_max, at which it is greedy: predictions that differ by 1e-7 r_max
differ by a factor of e^100."""
AT_ONCE = 1 << 13
"""Pairs of a context and an item whose products are held at once."""


def epsilon_greedy(
    model: RewardModel, catalogue: Catalogue, epsilon: float = 0.1, *, r_max: float = 1.0
) -> ModelSoftmax:
    """The candidate with the largest q-hat, new or old; with probability epsilon an even choice.

    Args:
        model: q-hat; equal predictions share evenly.
        catalogue: the items, all of which may be chosen.
        epsilon: share of even choices.
        r_max: the largest reward.
    """
    everything = np.ones(len(catalogue), dtype=bool)
    return ModelSoftmax(model, everything, strength=GREEDY, scale=r_max, even=epsilon)


@dataclass(frozen=True)
class ThompsonSettings:
    """How the linear model of Thompson sampling is fitted."""

    draws: int = 200
    """M: draws of the coefficients; propensities are multiples of 1 / M."""
    products: bool = True
    """Whether the model has products of context and item features."""
    ridge: float = 10.0
    """Prior precision of each standardised coefficient, in rows."""
    spread: float = 1.0
    """What the posterior's standard deviation is multiplied by; 0 is greedy."""

    def __post_init__(self) -> None:
        require(
            is_whole(self.draws) and 1 <= self.draws <= 100_000,
            "draws must be a whole number from 1 to 100,000",
            found=short(self.draws),
            cure="200 are enough to explore",
        )
        require_positive(self.ridge, "ridge", "10 rows steady what rows do not settle")
        require(
            is_real(self.spread) and 0 <= self.spread < np.inf,
            "spread must be a finite number >= 0",
            found=short(self.spread),
            cure="1 is the posterior of the model",
        )


def linear_thompson(
    logs: LoggedData, settings: ThompsonSettings | None = None, *, seed: int
) -> LinearThompson:
    """Thompson sampling by Bayesian linear regression on item features, contexts and products.

    r = z(x)' W e_a + noise, W with a normal prior, the noise's variance as the rows have it. M
    draws of W are fixed once; the policy shows each item in the share of draws in which it is best.

    Args:
        logs: the rows; their catalogue has item features.
        settings: how.
        seed: of the draws.
    """
    settings = settings or ThompsonSettings()
    require_settings(settings, ThompsonSettings)
    features = action_features(logs)
    everything = np.ones(len(features), dtype=bool)
    plain = feature_scores(logs, features, everything, standardise=True)
    with_one = np.concatenate([np.ones((len(features), 1)), plain.features], axis=1)
    scores = feature_scores(logs, with_one, everything)
    pairs, which = np.unique(
        logs.context.astype(np.int64) * len(features) + logs.action, return_inverse=True
    )
    counts, sums = np.bincount(which), np.bincount(which, logs.reward)
    context, action = np.divmod(pairs, len(features))
    z = scores.inputs(logs.contexts)
    free = _free(scores.shape, settings.products)
    gram, moment = np.zeros((int(free.sum()),) * 2), np.zeros(int(free.sum()))
    for start in range(0, len(pairs), AT_ONCE):
        piece = slice(start, start + AT_ONCE)
        left, right = z[context[piece]], scores.features[action[piece]]
        inputs = (left[:, :, None] * right[:, None, :]).reshape(len(left), -1)[:, free]
        gram += inputs.T @ (inputs * counts[piece, None])
        moment += inputs.T @ sums[piece]
    precision = gram + settings.ridge * np.eye(len(gram))
    mean = np.linalg.solve(precision, moment)
    squares = float(np.square(logs.reward).sum()) - float(mean @ (2 * moment - gram @ mean))
    noise = max(squares / len(logs), 0.0) ** 0.5
    root = np.linalg.cholesky(precision)
    normal = rng.generator(seed, "thompson").standard_normal((len(gram), settings.draws))
    spread: FloatArray = np.linalg.solve(root.T, normal)
    draws = np.zeros((settings.draws, int(np.prod(scores.shape))))
    draws[:, free] = (mean[:, None] + settings.spread * noise * spread).T
    return LinearThompson(scores, draws.reshape(settings.draws, *scores.shape))


def _free(shape: tuple[int, int], products: bool) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """(flat) coefficients that are fitted: all, or those of contexts and items by themselves."""
    free = np.ones(shape, dtype=bool)
    if not products:
        free[1:, 1:] = False
    return free.reshape(-1)


@dataclass(frozen=True)
class PrpoSettings:
    """PRPO's clip; the paper sets low = 1 / high."""

    low: float = 0.5
    """epsilon_-: where the pseudo-reward is negative, nothing is gained below low pi0."""
    high: float = 2.0
    """epsilon_+: where it is positive, nothing is gained above high pi0."""
    baseline: bool = True
    """Count rewards from their mean, so that pseudo-rewards have both signs; else, as rewards are
    at least 0, nearly all are positive and the lower clip hardly ever acts."""
    ascent: AscentSettings = field(default_factory=AscentSettings)
    """How the policy is trained."""

    def __post_init__(self) -> None:
        require(
            is_real(self.low) and is_real(self.high) and 0 <= self.low <= 1 <= self.high < np.inf,
            "the clip is low <= pi / pi0 <= high, with low in [0, 1] and high at least 1",
            found=f"low {short(self.low)}, high {short(self.high)}",
            cure="PrpoSettings(low=0.5, high=2)",
        )
        require_settings(self.ascent, AscentSettings)


def train_prpo(
    logs: LoggedData,
    logging_policy: Policy,
    model: RewardModel,
    settings: PrpoSettings | None = None,
    *,
    watch: Watch = silent,
) -> FeatureTrained:
    """PRPO's objective (Gupta, Oosterhuis & de Rijke 2024) for single items.

    ::

        max over pi of sum over x, a of f(pi(a|x) / pi0(a|x), rho(x, a)),
        f(w, rho) = min(w, high) rho  if rho >= 0, else  max(w, low) rho

    with rho = pi0 C, C the doubly robust pseudo-reward. In the paper the weight of a document in a
    ranking stands where pi(a|x) stands here. The clip takes away what pi could gain from leaving
    the limits; it does not hold pi within them: where other items pull, or the softmax cannot do
    otherwise, ratios do leave. The rule that holds is `RatioClipped`. Items that pi0 never shows
    have no ratio, and are never shown.

    Args:
        logs: the rows; their catalogue has item features.
        logging_policy: pi0.
        model: q-hat, of the doubly robust pseudo-rewards.
        settings: how.
        watch: shows progress.
    """
    settings = settings or PrpoSettings()
    require_settings(settings, PrpoSettings)
    old = ~logs.catalogue.novel
    base = np.asarray(whole(logging_policy, logs.requests), dtype=np.float64)
    values = doubly_robust(logs, model, old).values
    if settings.baseline:
        values = values - logs.mean_reward() * (logs.context_counts / len(logs))[:, None]
    table = PseudoRewards(logs.requests, np.where(base > 0, values, 0.0), base)
    low, high = settings.low, settings.high

    def clipped(pi: FloatArray, table: PseudoRewards) -> tuple[float, FloatArray]:
        ratio = np.where(base > 0, pi / np.where(base > 0, base, 1.0), 1.0)
        held = np.where(table.values >= 0, np.minimum(ratio, high), np.maximum(ratio, low))
        acts = np.where(table.values >= 0, ratio < high, ratio > low)
        return float((held * base * table.values).sum()), table.values * acts

    scores = feature_scores(logs, action_features(logs), old, standardise=True)
    unit = max(logs.mean_reward(), 1e-12)
    return ascend(
        scores, [table], settings.ascent, unit=unit, gain=clipped, name="PRPO", watch=watch
    )
