"""Lives of a campaign's monitor in a small world, where the truth is chosen."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from depsue.data.checks import FloatArray, IntArray
from depsue.promises import Floor, Promise
from depsue.serving.monitor import FloorTest, PropensityTest, delta_of_test, weights

PI0: FloatArray = np.array([0.5, 0.3, 0.15, 0.05, 0.0])
POLICY: FloatArray = np.array([0.42, 0.24, 0.12, 0.12, 0.10])
"""Both over five items, of which pi0 never shows the last."""
BATCH = 250
"""Decisions between two looks."""


@dataclass(frozen=True)
class Life:
    """What happens in one simulated life.

    Args:
        name: in words.
        value: V(pi) / V(pi0).
        drop: factor on what the policy's decisions earn, whatever they show.
        skew: share of decisions that show another item than was drawn.
    """

    name: str
    value: float
    drop: float = 1.0
    skew: float = 0.0


def means(value: float, rate: float) -> FloatArray:
    """(5,) mean rewards with V(pi0) = rate and V(pi) = value x rate; value is at least .83.

    The three items that pi0 shows most earn alike, and so do the two that the policy shows more.
    """
    few = PI0[3:].sum(), POLICY[3:].sum()
    apart = (value - 1) * rate / (few[1] - few[0])
    q = np.full(5, rate - few[0] * apart)
    q[3:] += apart
    return q


def stops_at(
    life: Life,
    *,
    decisions: int,
    rate: float,
    holdout: float,
    delta: float,
    rounds: int,
    ratio: float,
    seed: int,
) -> float:
    """After how many decisions the monitor stops the policy; infinity if it does not.

    Args:
        life: what happens.
        decisions: how long it is watched.
        rate: V(pi0).
        holdout: share of traffic on pi0.
        delta: for the campaign's life.
        rounds: K; this is one of them, at the share of delta of its first epoch.
        ratio: rho.
        seed: of everything.
    """
    rng = np.random.default_rng(seed)
    q = means(life.value, rate)
    ways = ("items", "holdout") if holdout > 0 else ("items",)
    share = delta_of_test(delta, rounds, len(ways) + 1, 1)
    promise = Promise(Floor(ratio))
    tests = [
        FloorTest(promise, by=by, r_max=1.0, credit=0.0, holdout=holdout, delta=share)
        for by in ways
    ]
    frequencies = PropensityTest(share)
    for start in range(0, decisions, BATCH):
        held = rng.random(BATCH) < holdout
        u = rng.random(BATCH)
        drawn = np.where(held, _draw(PI0, u), _draw(POLICY, u))
        pi = np.where(held[:, None], PI0, POLICY)
        shown = np.where(rng.random(BATCH) < life.skew, 0, drawn)
        p = pi[np.arange(BATCH), shown]
        frequencies.add(_below(pi, shown) + rng.random(BATCH) * p, 0)
        mean = q[shown] * np.where(held, 1.0, life.drop)
        reward = (rng.random(BATCH) < mean).astype(float)
        h = np.full(BATCH, holdout)
        for test in tests:
            test.add(reward, *weights(POLICY[shown], PI0[shown], held, h, test.by))
        if frequencies.refuted or any(test.refuted for test in tests):
            return start + BATCH
    return math.inf


def _draw(p: FloatArray, u: FloatArray) -> IntArray:
    found = np.searchsorted(np.cumsum(p), u, side="right")
    return np.asarray(np.minimum(found, np.flatnonzero(p)[-1]))


def _below(pi: FloatArray, shown: IntArray) -> FloatArray:
    rows = np.arange(len(shown))
    return np.asarray(np.cumsum(pi, axis=1)[rows, shown] - pi[rows, shown])
