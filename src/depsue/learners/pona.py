"""PONA: offline learning with new actions by their features (Kishimoto et al., TMLR 2026).

The gradient is kappa x LCPI + (1 - kappa) x DR. LCPI (local combination pseudo-inverse) gives each
action the indicator vector v(a) of all values of all combinations of s feature dimensions, and a
row the weight

    (sum over a of pi(a|x) v(a))' G+ v(a_i),    G = E_pi0[v(a) v(a)' | x].

If q(x, .) is a sum of functions of such combinations, and v of every new action is a linear
combination of those that pi0 shows at x, its mean is V(pi) exactly, new actions included. DR learns
among the actions that were logged. Weights of LCPI can be negative: no bound of this package takes
them, and PONA promises nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations as choose

import numpy as np

from depsue.data.checks import FloatArray
from depsue.data.logs import LoggedData
from depsue.errors import DataError, is_real, is_whole, require, require_settings, short
from depsue.learners.ascent import (
    AscentSettings,
    FeatureTrained,
    PseudoRewards,
    ascend,
    doubly_robust,
    feature_scores,
)
from depsue.policies.base import whole
from depsue.policies.by_features import FeatureSoftmax
from depsue.progress import Watch, silent
from depsue.protocols import Policy, RewardModel
from depsue.rewards.base import action_features

MOST_LEVELS = 64
"""Values that one feature dimension may have: with more it is not discrete."""
MOST_COMBINATIONS = 2000
"""Entries of v(a)."""
PRECISION = 1e-9
"""Singular values of G below this share of the largest count as 0."""


@dataclass(frozen=True)
class PonaSettings:
    """How PONA learns."""

    kappa: float = 0.5
    """The weight of LCPI; 1 - kappa is that of DR. A larger one shows more new actions."""
    order: int = 1
    """s: how many feature dimensions a combination has."""
    share: tuple[float, float] | None = None
    """The share of new actions is held between these limits, over the logged requests; None lets
    kappa alone decide."""
    ascent: AscentSettings = field(default_factory=AscentSettings)
    """How the policy is trained."""

    def __post_init__(self) -> None:
        require(
            is_real(self.kappa) and 0 <= self.kappa <= 1,
            "kappa must lie in [0, 1]",
            found=short(self.kappa),
            cure="0 is DR alone, 1 is LCPI alone",
        )
        require(
            is_whole(self.order) and self.order >= 1,
            "order (s) must be a whole number, at least 1",
            found=short(self.order),
        )
        low, high = (0.0, 1.0) if self.share is None else self.share
        require(
            is_real(low) and is_real(high) and 0 <= low <= high <= 1,
            "the share of new actions is held between two limits in [0, 1]",
            found=short(self.share),
            cure="share=(0.05, 0.2)",
        )
        require_settings(self.ascent, AscentSettings)


def train_pona(
    logs: LoggedData,
    logging_policy: Policy,
    model: RewardModel,
    settings: PonaSettings | None = None,
    *,
    later: Sequence[tuple[LoggedData, Policy]] = (),
    watch: Watch = silent,
) -> FeatureTrained:
    """A softmax over the combinations v(a) and "is new", times the context, by PONA's gradient.

    Args:
        logs: the rows; the catalogue's features are discrete (`binned` makes them so).
        logging_policy: what drew them: pi0.
        model: q-hat of DR, which counts for logged actions only.
        settings: how.
        later: further logs, each with the policy that drew them.
        watch: shows progress.
    """
    settings = settings or PonaSettings()
    require_settings(settings, PonaSettings)
    v = combinations(action_features(logs), settings.order)
    novel, rounds = logs.catalogue.novel, [(logs, logging_policy), *later]
    total = sum(len(rows) for rows, _ in rounds)
    tables = []
    for rows, drawn_by in rounds:
        shown = ~novel if rows is logs else np.ones(len(novel), dtype=bool)
        local, robust = lcpi(rows, drawn_by, v), doubly_robust(rows, model, shown)
        mixed = settings.kappa * local.values + (1 - settings.kappa) * robust.values
        tables.append(PseudoRewards(rows.requests, mixed * (len(rows) / total)))
    features = np.concatenate([novel[:, None].astype(np.float64), v], axis=1)
    scores = feature_scores(logs, features, np.ones(len(novel), dtype=bool))
    unit = max(logs.mean_reward(), 1e-12)
    trained = ascend(scores, tables, settings.ascent, unit=unit, name="PONA", watch=watch)
    if settings.share is None:
        return trained
    policy = held_share(trained.policy, logs, settings.share)
    return FeatureTrained(policy, trained.objective, trained.interrupted)


def lcpi(logs: LoggedData, logging_policy: Policy, v: FloatArray) -> PseudoRewards:
    """C(x, a) = sum over the rows of x of r_i v(a)' G+ v(a_i), for every candidate a.

    Args:
        logs: the rows.
        logging_policy: what drew them, which gives G.
        v: (A, k) indicators of combinations.
    """
    requests, n_actions, n = logs.requests, len(logs.catalogue), len(logs)
    table = np.zeros((len(requests), requests.width(n_actions)))
    rewarded = np.zeros_like(table)
    place = requests.place(logs.action, logs.context)
    np.add.at(rewarded, (logs.context, place), logs.reward / n)
    each = max(1, (1 << 22) // (v.shape[1] * max(table.shape[1], v.shape[1])))
    for start in range(0, len(requests), each):
        piece = slice(start, min(start + each, len(requests)))
        few = requests[piece]
        items = few.places(n_actions)
        mine = np.broadcast_to(v[items.items], (len(few), items.items.shape[1], v.shape[1]))
        if items.there is not None:
            mine = mine * items.there[:, :, None]
        width = mine.shape[1]
        p0 = np.asarray(whole(logging_policy, few), dtype=np.float64)
        gram = np.einsum("cl,clk,clj->ckj", p0, mine, mine, optimize=True)
        inverse = np.linalg.pinv(gram, rcond=PRECISION, hermitian=True)
        moment = np.einsum("cl,clk->ck", rewarded[piece, :width], mine)
        right = np.einsum("ckj,cj->ck", inverse, moment)
        table[piece, :width] = np.einsum("clk,ck->cl", mine, right)
    return PseudoRewards(requests, table)


def combinations(features: FloatArray, order: int) -> FloatArray:
    """(A, k) v(a): an indicator for each value of each combination of `order` dimensions.

    Args:
        features: (A, d) discrete features.
        order: s, at most d.
    """
    columns = []
    for place, column in enumerate(np.asarray(features).T):
        levels, which = np.unique(column, return_inverse=True)
        if len(levels) > MOST_LEVELS:
            raise DataError(
                "PONA needs discrete features: each has a few values",
                column=f"features[{place}]",
                found=f"{len(levels):,} values",
                cure="bin them: depsue.learners.binned(features, 2)",
            )
        columns.append(which.reshape(-1))
    require(
        order <= len(columns),
        "order (s) must be at most the number of feature dimensions",
        found=f"{order} of {len(columns)}",
    )
    parts = []
    for dimensions in choose(range(len(columns)), order):
        together = np.stack([columns[place] for place in dimensions], axis=1)
        _, which = np.unique(together, axis=0, return_inverse=True)
        parts.append(np.eye(int(which.max()) + 1)[which.reshape(-1)])
        require(
            sum(part.shape[1] for part in parts) <= MOST_COMBINATIONS,
            f"there may be at most {MOST_COMBINATIONS:,} values of combinations",
            found=f"more, with order {order} and {len(columns)} dimensions",
            cure="lower the order, or bin the features more coarsely",
        )
    return np.concatenate(parts, axis=1)


def binned(features: FloatArray, bins: int) -> FloatArray:
    """(A, d) the number of the quantile bin that each feature falls into, column by column."""
    require(
        is_whole(bins) and 2 <= bins <= MOST_LEVELS,
        f"bins must be a whole number from 2 to {MOST_LEVELS}",
        found=short(bins),
    )
    values = np.asarray(features, dtype=np.float64)
    inner = np.linspace(0, 1, bins + 1)[1:-1]
    cuts = np.quantile(values, inner, axis=0)
    return np.stack(
        [np.searchsorted(cut, column) for cut, column in zip(cuts.T, values.T, strict=True)], axis=1
    ).astype(np.float64)


def held_share(
    policy: FeatureSoftmax, logs: LoggedData, limits: tuple[float, float]
) -> FeatureSoftmax:
    """The policy with its share of new actions within limits, by one constant on their scores.

    Args:
        policy: a softmax over features.
        logs: over whose rows the share is counted.
        limits: the least and the largest share.
    """
    novel = logs.catalogue.novel
    counts = logs.context_counts / len(logs)

    def shifted(by: float) -> FeatureSoftmax:
        return FeatureSoftmax(policy.scores, policy.weights, policy.bias + by * novel)

    def share(of: FeatureSoftmax) -> float:
        total = 0.0
        for piece, pi in of.distributions(logs.requests):
            mine = logs.requests[piece].places(len(novel)).pick(novel, False)
            total += float((counts[piece, None] * pi * mine).sum())
        return total

    low, high = limits
    now = share(policy)
    if low <= now <= high:
        return policy
    target = low if now < low else high
    most = share(shifted(200.0))
    require(
        target <= most + 1e-9,
        "the share of new actions cannot exceed the share of requests with a new candidate",
        found=f"at least {target:g} asked for, {most:g} possible",
        cure="lower the limit",
    )
    below, above = (0.0, 200.0) if now < low else (-200.0, 0.0)
    for _ in range(60):
        middle = (below + above) / 2
        if share(shifted(middle)) < target:
            below = middle
        else:
            above = middle
    return shifted(above if now < low else below)
