"""The worlds: plain, worthless novel items, rare rewards, an almost deterministic pi0."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from depsue import rng
from depsue.policies import EpsilonGreedy, ScoreTable
from depsue.world import SyntheticSettings, World, synthetic_world

PLAIN = SyntheticSettings(users=200, supported=40, novel=10)
EPSILON = 0.001
"""Of the almost deterministic policy: one action of each context has .999 and a little."""
TASTE = 0.8
"""Noise on the logits by which it takes an action for the best, so that it is often mistaken."""


@dataclass(frozen=True)
class HostileWorld:
    """A kind of world; every seed gives another one of it.

    Args:
        name: a short name.
        words: what is hostile about it.
        settings: of the synthetic world.
        rows: |D|; each deployment has |D| / K.
        epsilon: makes pi0 epsilon-greedy by noisy scores; None leaves the softmax.
    """

    name: str
    words: str
    settings: SyntheticSettings
    rows: int
    epsilon: float | None = None

    def world(self, seed: int) -> World:
        """The world of that seed."""
        world = synthetic_world(self.settings, seed=seed)
        if self.epsilon is None:
            return world
        logit = np.log(world.q) - np.log1p(-world.q)
        noise = rng.generator(seed, "mistaken").normal(scale=TASTE, size=logit.shape)
        scores = ScoreTable(world.contexts, logit + noise)
        greedy = EpsilonGreedy(scores, self.epsilon, ~world.catalogue.novel)
        return World(world.contexts, world.rewards, world.catalogue, greedy, seed=seed)


_ALL = (
    HostileWorld("plain", "a control: novel items are like the others", PLAIN, 40_000),
    HostileWorld(
        "worthless",
        "novel items look as good as the others and never earn anything",
        replace(PLAIN, novel_quality=0.0),
        40_000,
    ),
    HostileWorld(
        "rare rewards",
        "about one decision in 1,000 is rewarded",
        replace(PLAIN, reward_rate=0.0006),
        200_000,
    ),
    HostileWorld(
        "deterministic",
        f"pi0 shows one action in {1 - EPSILON:.1%} of the decisions of a context, and is often "
        "mistaken about which is best",
        PLAIN,
        40_000,
        EPSILON,
    ),
)
WORLDS = {one.name: one for one in _ALL}
"""By name; `refusals` adds the fifth, whose logs cannot be relied on."""
