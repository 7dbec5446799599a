"""Simulated worlds: an `Environment` whose mean rewards q(x, a) are known, so truth can be shown.

`World` takes any `MeanRewards`; `RewardTable` is the plain one. `synthetic_world` makes a world
like the paper's out of a few settings: the demo, tests and benchmarks use it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from depsue import rng
from depsue.data.catalogue import Catalogue
from depsue.data.checks import FloatArray, IntArray, Mask
from depsue.data.logs import LoggedData
from depsue.data.requests import Requests
from depsue.errors import require
from depsue.policies import BasePolicy, ScoreTable, SoftmaxOfScores
from depsue.protocols import Policy


class World:
    """An `Environment` with known truth: u users, A actions, Bernoulli rewards with mean q.

    Args:
        contexts: (u, d) distinct contexts, one per user.
        rewards: q, over the same u users and A actions.
        catalogue: the actions and which are novel.
        logging_policy: pi0.
        seed: of what users do.
        decay: share of every mean reward that is lost from one round to the next.
        with_units: log the user as the unit of a row.
        others: (u, A) further columns of the logs by name, such as what an action costs.
    """

    def __init__(
        self,
        contexts: FloatArray,
        rewards: MeanRewards,
        catalogue: Catalogue,
        logging_policy: BasePolicy,
        *,
        seed: int,
        decay: float = 0.0,
        with_units: bool = False,
        others: Mapping[str, FloatArray] | None = None,
    ) -> None:
        self.others = dict(others or {})
        shapes = {rewards.shape, *(table.shape for table in self.others.values())}
        require(
            len(shapes) == 1,
            "further columns must have one value per user and action, as rewards have",
            found=f"{sorted(shapes)}",
        )
        require(
            rewards.shape == (len(contexts), len(catalogue)),
            "there must be one mean reward per user and action",
            found=f"{rewards.shape} for {len(contexts)} users and {len(catalogue)} actions",
        )
        self.contexts, self.rewards, self._catalogue = contexts, rewards, catalogue
        self._logging_policy = logging_policy
        self._seed, self._decay, self._with_units = seed, decay, with_units

    @property
    def catalogue(self) -> Catalogue:
        """The actions."""
        return self._catalogue

    @property
    def logging_policy(self) -> BasePolicy:
        """pi0."""
        return self._logging_policy

    @property
    def q(self) -> FloatArray:
        """(u, A) mean rewards in round 0; for small worlds."""
        return self.rewards.q

    def deploy(self, policy: Policy, n: int, *, round: int) -> LoggedData:
        """n decisions for users drawn uniformly, as the logs of that round."""
        draw = rng.generator(self._seed, "deploy", round)
        users = draw.integers(0, len(self.contexts), n)
        actions, propensities = policy.sample(Requests(self.contexts), draw, users)
        mean = self.rewards.pairs(users, actions) * self._remaining(round)
        return LoggedData.from_arrays(
            contexts=self.contexts,
            context_rows=users,
            actions=self._catalogue.ids[actions],
            rewards=draw.random(n) < mean,
            propensities=propensities,
            catalogue=self._catalogue,
            r_max=1.0,
            units=users if self._with_units else None,
            rounds=np.full(n, round),
            columns={name: table[users, actions] for name, table in self.others.items()},
        )

    def value(self, policy: Policy, *, round: int = 0) -> float:
        """V(pi) in that round, exactly."""
        return self.value_and_novelty(policy)[0] * self._remaining(round)

    def novelty(self, policy: Policy) -> float:
        """N(pi), exactly."""
        return self.value_and_novelty(policy)[1]

    def mean_of(self, column: str, policy: Policy) -> float:
        """The mean of a further column under a policy, exactly."""
        table = self.others[column]
        sums = (
            float((pi * table[piece]).sum())
            for piece, pi in policy.distributions(Requests(self.contexts))
        )
        return sum(sums) / len(self.contexts)

    def value_and_novelty(self, policy: Policy) -> tuple[float, float]:
        """V(pi) in round 0 and N(pi), exactly; the policy is asked once."""
        novel, value, shown = self._catalogue.novel, 0.0, 0.0
        for piece, pi in policy.distributions(Requests(self.contexts)):
            value += float(self.rewards.expected(piece, pi).sum())
            shown += float(pi[:, novel].sum())
        return value / len(self.contexts), shown / len(self.contexts)

    def best_value(self) -> float:
        """V(pi*): every user gets the best of all actions."""
        return float(self.rewards.best().mean())

    def best_novelty(self) -> float:
        """N(pi*); where several actions are best, pi* takes each of them equally often."""
        return float(self.rewards.best_within(self._catalogue.novel).mean())

    def reseeded(self, seed: int) -> World:
        """The same world with other draws of users, actions and rewards."""
        return World(
            self.contexts,
            self.rewards,
            self._catalogue,
            self._logging_policy,
            seed=seed,
            decay=self._decay,
            with_units=self._with_units,
        )

    def _remaining(self, round: int) -> float:
        """The share of every mean reward that is left in that round."""
        return float((1 - self._decay) ** round)


@dataclass(frozen=True)
class SyntheticSettings:
    """A world shaped like the paper's, small enough for a laptop; nasty on demand."""

    users: int = 1000
    supported: int = 160
    novel: int = 40
    d: int = 10
    """Features of a user, and of an action."""
    beta: float = 1.0
    """Inverse temperature of the logging policy: below 0 poor, large near-optimal."""
    reward_rate: float = 0.2
    """Mean reward of a uniform policy, about; 0.001 makes rewards rare."""
    spread: float = 0.8
    """Standard deviation of logit q over the actions of a user, about."""
    novel_quality: float = 1.0
    """Novel actions earn this share of what their features promise; 0 makes them worthless."""
    decay: float = 0.0
    """Share of every mean reward that is lost from one round to the next."""
    with_units: bool = False
    """Log the user as the unit of a row."""

    def __post_init__(self) -> None:
        for name in ("users", "supported", "novel", "d"):
            require(
                getattr(self, name) >= 1, f"{name} must be at least 1", found=getattr(self, name)
            )
        require(0 < self.reward_rate < 1, "reward_rate must lie in (0, 1)", found=self.reward_rate)
        require(
            0 <= self.novel_quality <= 1,
            "novel_quality must lie in [0, 1]",
            found=self.novel_quality,
        )
        require(0 <= self.decay < 1, "decay must lie in [0, 1)", found=self.decay)


def synthetic_world(settings: SyntheticSettings | None = None, *, seed: int) -> World:
    """A world whose logit q is bilinear in user and action features, plus a popularity.

    Features of supported and novel actions come from one distribution, so what is learned of
    the supported ones says something about the novel ones.
    """
    s = settings or SyntheticSettings()
    draw = rng.generator(seed, "world")
    users = draw.normal(size=(s.users, s.d)).astype(np.float32)
    n_actions = s.supported + s.novel
    features = draw.normal(size=(n_actions, s.d)).astype(np.float32)
    taste = draw.normal(size=(s.d, s.d)) / s.d
    popularity = draw.normal(size=s.d) / s.d**0.5
    logit = s.spread * (0.8 * users @ taste @ features.T + 0.6 * features @ popularity)
    q = 1 / (1 + np.exp(-(logit + _offset(logit, s.reward_rate))))
    novel = np.arange(n_actions) >= s.supported
    q[:, novel] *= s.novel_quality
    catalogue = Catalogue(np.arange(n_actions), novel, features)
    return World(
        users,
        RewardTable(q),
        catalogue,
        softmax_of_logit(users, q, s.beta, catalogue),
        seed=seed,
        decay=s.decay,
        with_units=s.with_units,
    )


def softmax_of_logit(
    contexts: FloatArray, q: FloatArray, beta: float, catalogue: Catalogue
) -> SoftmaxOfScores:
    """The paper's pi0: softmax of beta logit q over the supported actions.

    Args:
        contexts: (u, d) all users that it may be asked about.
        q: (u, A) their mean rewards.
        beta: inverse temperature: below 0 poor, large near-optimal.
        catalogue: the actions and which are novel.
    """
    mean = np.clip(q, 1e-6, 1 - 1e-6)
    scores = ScoreTable(contexts, np.log(mean) - np.log1p(-mean))
    return SoftmaxOfScores(scores, beta, ~catalogue.novel)


def _offset(logit: FloatArray, rate: float) -> float:
    """The number to add to all logits so that the mean reward is `rate`, by bisection."""
    low, high = -40.0, 40.0
    for _ in range(60):
        middle = (low + high) / 2
        if float((1 / (1 + np.exp(-(logit + middle)))).mean()) < rate:
            low = middle
        else:
            high = middle
    return low


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
