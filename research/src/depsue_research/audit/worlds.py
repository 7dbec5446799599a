"""Small worlds of which everything is known, and policies in them that just miss the floor."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from depsue import rng
from depsue.data.catalogue import Catalogue
from depsue.data.checks import FloatArray, IntArray, read_only
from depsue.data.logs import LoggedData
from depsue.data.requests import Requests
from depsue.errors import require
from depsue.policies import OwnPolicy, ScoreTable
from depsue.policies.base import whole
from depsue.protocols import Policy

RHO, MISS = 0.95, 0.001
"""The floor as a share of V(pi0), and by how much candidates miss it."""


@dataclass(frozen=True, eq=False)
class NearMissWorld:
    """A few contexts and actions, of which the last two are novel: worthless, unless drawn anew.

    Args:
        pi0: (u, A) the logging policy.
        q: (u, A) chances of reward 1.
        strength: how far candidates tilt pi0 towards q.
        clip: the largest weight that counts; above those of the candidates.
    """

    pi0: FloatArray
    q: FloatArray
    strength: float
    clip: float

    @cached_property
    def catalogue(self) -> Catalogue:
        """The actions."""
        return Catalogue(np.arange(self.q.shape[1]), self.pi0[0] == 0)

    @cached_property
    def contexts(self) -> FloatArray:
        """(u, 1) all equally likely."""
        return np.arange(len(self.q), dtype=np.float32)[:, None]

    def value(self, pi: FloatArray) -> FloatArray:
        """V of (..., u, A) distributions."""
        return np.asarray((pi * self.q).sum(axis=-1).mean(axis=-1))

    @cached_property
    def floor(self) -> float:
        """C = rho V(pi0)."""
        return RHO * float(self.value(self.pi0))

    def tilt(
        self, draw: np.random.Generator, strength: float | None = None, noise: float = 0.5
    ) -> FloatArray:
        """(u, A) a supported policy: pi0 exp(strength q + noise), q standardised."""
        size = self.strength if strength is None else strength
        known = self.q[self.pi0 > 0]
        score = size * (self.q - known.mean()) / max(known.std(), 1e-9)
        bent = self.pi0 * np.exp(score + draw.normal(scale=noise, size=self.q.shape))
        return np.asarray(bent / bent.sum(axis=1, keepdims=True))

    def share_for(self, pi: FloatArray, target: float) -> float:
        """The share of novel actions at which a supported policy has that value."""
        share = 1 - target / float(self.value(pi))
        require(0 <= share < 1, "the supported policy must be worth more", found=f"{share:g}")
        return share

    def mixed(self, pi: FloatArray, target: float) -> FloatArray:
        """(u, A) the policy with novel actions at the share that gives it that value."""
        share, novel = self.share_for(pi, target), self.catalogue.novel
        return np.asarray((1 - share) * pi + share * novel / novel.sum())

    def policy(self, pi: FloatArray) -> OwnPolicy:
        """The policy with these (u, A) distributions."""
        return OwnPolicy(ScoreTable(self.contexts, pi), pi.shape[1])

    def logs(self, pi: FloatArray, n: int, draw: np.random.Generator, round: int = 0) -> LoggedData:
        """n rows that `pi` logged, with a second reward and a segment."""
        return self._rows(pi, draw.integers(len(pi), size=n), draw, round=round)

    def deploy(self, policy: Policy, n: int, draw: np.random.Generator, round: int) -> LoggedData:
        """n rows that a policy logged."""
        return self.logs(self.distribution(policy), n, draw, round)

    def distribution(self, policy: Policy) -> FloatArray:
        """(u, A) what a policy does."""
        return np.asarray(whole(policy, Requests(self.contexts)), dtype=np.float64)

    def unit_logs(self, units: int, draw: np.random.Generator) -> LoggedData:
        """Rows of pi0 by units: 1 to 8 rows each, more in some contexts, lucky or unlucky."""
        own = draw.integers(len(self.pi0), size=units)
        size = 1 + draw.integers(1 + 7 * (own + 1) // len(self.pi0))
        unit = np.repeat(np.arange(units), size)
        luck = draw.choice([0.5, 1.5], units)[unit]
        return self._rows(self.pi0, own[unit], draw, luck=luck, unit=unit)

    def _rows(
        self,
        pi: FloatArray,
        context: IntArray,
        draw: np.random.Generator,
        *,
        luck: FloatArray | float = 1.0,
        unit: IntArray | None = None,
        round: int = 0,
    ) -> LoggedData:
        n, below = len(context), np.cumsum(pi, axis=1)[context]
        action = (draw.random(n)[:, None] * below[:, -1:] >= below).sum(axis=1)
        chance = self.q[context, action] * luck
        return LoggedData(
            catalogue=self.catalogue,
            contexts=self.contexts,
            context=context.astype(np.int32),
            action=action.astype(np.int32),
            reward=(draw.random(n) < chance).astype(np.float64),
            propensity=pi[context, action],
            r_max=1.0,
            unit=unit,
            units=None if unit is None else np.arange(int(unit.max()) + 1),
            round=np.full(n, round, dtype=np.int16),
            columns={
                "other": (draw.random(n) < 0.4).astype(np.float64),
                "segment": (context < len(pi) // 2).astype(np.int64),
            },
        )


def near_miss_world(name: str, draw: np.random.Generator | None = None) -> NearMissWorld:
    """One of `WORLDS`: always the same, or drawn anew.

    Args:
        name: which kind.
        draw: draws pi0 and rewards; None gives the world that a kind always has.
    """
    low, high, spread, strength, clip = WORLDS[name]
    draw = rng.generator(0, "small world", name) if draw is None else draw
    q = draw.uniform(low, high, (CONTEXTS, ACTIONS))
    pi0 = np.exp(draw.normal(scale=spread, size=q.shape))
    q[:, -NOVEL:] = pi0[:, -NOVEL:] = 0
    pi0 /= pi0.sum(axis=1, keepdims=True)
    return NearMissWorld(read_only(pi0), read_only(q), strength, clip)


CONTEXTS, ACTIONS, NOVEL = 6, 8, 2

WORLDS = {
    "plain": (0.1, 0.5, 0.7, 0.7, 3.0),
    "rare rewards": (0.002, 0.02, 0.7, 0.7, 3.0),
    "novel mass": (0.05, 0.6, 0.7, 2.0, 4.0),
    "heavy weights": (0.1, 0.5, 2.0, 1.0, 16.0),
    "calm": (0.2, 0.6, 0.3, 0.15, 2.5),
    "flat": (0.3, 0.3, 0.7, 0.0, 4.0),
}
"""Least and largest q, spread of pi0's logits, strength of tilts, clip."""
