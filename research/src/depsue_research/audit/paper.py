"""The paper's certificates on counts of (context, action) cells, for all replications at once."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from depsue import rng
from depsue.bounds.hcope import TAUS, empirical_bernstein
from depsue.data.checks import FloatArray, Mask
from depsue_research.audit.answers import DELTA, Group, Key
from depsue_research.audit.worlds import MISS, RHO, NearMissWorld, near_miss_world

LARGE, MANY, STEPS, RATE, RATE_LAMBDA = 100_000, (1000, 10_000), 600, 20.0, 5.0
"""Rows, candidates to choose among, and how Algorithm 1 is run."""
FIXED = ("plain", "rare rewards", "heavy weights")
"""Worlds in which a policy is fixed beforehand."""


class Counts(NamedTuple):
    """R logs of pi0 in two halves, as counts over the C = u A cells.

    Args:
        shown: (R, C) rows of S1.
        rewarded: (R, C) rewarded rows of S1.
        tuning: (R, C) rewarded rows of the twentieth of S2 that tunes tau.
        rest: (R, C) rewarded rows of the rest of S2.
        sizes: rows of S1, of the twentieth, of the rest.
    """

    shown: FloatArray
    rewarded: FloatArray
    tuning: FloatArray
    rest: FloatArray
    sizes: tuple[int, int, int]

    @property
    def floor(self) -> FloatArray:
        """(R,) C as the paper has it: rho times the mean reward of the whole log."""
        rewarded = self.rewarded + self.tuning + self.rest
        return np.asarray(RHO * rewarded.sum(axis=1) / sum(self.sizes))


def counted(world: NearMissWorld, replications: int, draw: np.random.Generator) -> Counts:
    """Logs of pi0, as counts."""
    half = LARGE // 2
    sizes = (half, half // 20, half - half // 20)
    cells, q = (world.pi0 / len(world.pi0)).ravel(), world.q.ravel()
    shown = [draw.multinomial(size, cells, replications) for size in sizes]
    rewarded = [draw.binomial(rows, q).astype(np.float64) for rows in shown]
    return Counts(shown[0].astype(np.float64), rewarded[0], rewarded[1], rewarded[2], sizes)


def eq4(weights: FloatArray, counts: Counts) -> FloatArray:
    """(R,) Eq. 4 on S2, tau tuned on its twentieth, for rewards 0 or 1.

    Args:
        weights: (C,) or (R, C) pi / pi0, 0 where pi0 is 0.
        counts: the logs.
    """
    taus = TAUS[: np.searchsorted(TAUS, weights.max()) + 1]  # a larger one is never better
    clipped = np.minimum(weights[..., None, :], taus[:, None])
    _, first, second = counts.sizes

    def at_each_tau(rows: FloatArray, n: int) -> FloatArray:
        mean = np.einsum("...tc,...c->...t", clipped, rows) / n
        square = np.einsum("...tc,...c->...t", clipped**2, rows) / n
        variance = np.maximum(square - mean**2, 0)
        return np.asarray(empirical_bernstein(mean, variance, second, taus, DELTA))

    best = at_each_tau(counts.tuning, first).argmax(axis=1)[:, None]
    return np.take_along_axis(at_each_tau(counts.rest, second), best, axis=1)[:, 0]


def central_limit(weights: FloatArray, counts: Counts) -> FloatArray:
    """(R,) mean - 1.645 standard errors on S2: no slack, and no guarantee at small n."""
    n, rows = counts.sizes[1] + counts.sizes[2], counts.tuning + counts.rest
    mean = (weights * rows).sum(axis=1) / n
    variance = (weights**2 * rows).sum(axis=1) / n - mean**2
    return np.asarray(mean - 1.6449 * np.sqrt(variance / n))


S2Bound = Callable[[FloatArray, Counts], FloatArray]
S2_BOUNDS: dict[str, tuple[Group, S2Bound]] = {
    "hcope": ("paper", eq4),
    "central limit": ("what if", central_limit),
}
"""Bounds on S2, and the group of what they certify."""


def weights_of(pi: FloatArray, world: NearMissWorld) -> FloatArray:
    """(..., C) pi / pi0 by cells, 0 where pi0 is 0."""
    ratio = np.divide(pi, world.pi0, out=np.zeros_like(pi), where=world.pi0 > 0)
    return ratio.reshape(*pi.shape[:-2], -1)


def fixed_policy(name: str, replications: int, seed: int) -> dict[Key, Mask]:
    """Eq. 4 for a policy that was there before the logs: the bound's own errors."""
    world = near_miss_world(name)
    counts = counted(world, replications, rng.generator(seed, "fixed policy", name))
    below = (1 - MISS) * world.floor
    pi = world.mixed(world.tilt(rng.generator(0, "candidates", name)), below)
    bound = eq4(weights_of(pi, world), counts)
    kind = f"Eq. 4, fixed policy, {name}"
    return {
        ("paper", f"{kind}, C known", "hcope"): bound > world.floor,
        ("paper", f"{kind}, C estimated", "hcope"): bound > counts.floor,
    }


def best_of_many(spread: float, replications: int, seed: int) -> dict[Key, Mask]:
    """The policy with the best bound on S2 of many, none of which reaches the floor.

    Args:
        spread: of the candidates' logits around pi0's.
        replications: R.
        seed: of the logs.
    """
    world, draw = near_miss_world("flat"), rng.generator(0, "many")
    counts = counted(world, replications, rng.generator(seed, "best of many"))
    floors = {"C known": world.floor, "C estimated": counts.floor}
    best = {name: np.full(replications, -np.inf) for name in S2_BOUNDS}
    out: dict[Key, Mask] = {}
    for many in range(1, max(MANY) + 1):
        bent = world.pi0 * np.exp(spread * draw.normal(size=world.q.shape))
        bent /= bent.sum(axis=1, keepdims=True)
        weights = weights_of(world.mixed(bent, (1 - MISS) * world.floor), world)
        for name, (group, bound) in S2_BOUNDS.items():
            np.maximum(best[name], bound(weights, counts), out=best[name])
            for words, floor in floors.items() if many in MANY else ():
                kind = f"best of {many:,} by S2, spread {spread:g}, {words}"
                out[group, kind, name] = best[name] > floor
    return out


def safe_opg(name: str, replications: int, seed: int) -> dict[Key, Mask]:
    """Algorithm 1, C estimated; in the flat world no policy that it can learn reaches the floor."""
    world = near_miss_world(name)
    counts = counted(world, replications, rng.generator(seed, "safe opg", name))
    share = 1 - RHO * (1 - MISS) if name == "flat" else None
    return {
        (group, f"Algorithm 1, {name}, {which}", bound): wrong
        for bound, (group, function) in S2_BOUNDS.items()
        for which, wrong in algorithm_1(world, counts, function, share, STEPS).items()
    }


def softmax(logits: FloatArray) -> FloatArray:
    """Distributions over the last axis."""
    pi = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(pi / pi.sum(axis=-1, keepdims=True))


def algorithm_1(
    world: NearMissWorld, counts: Counts, bound: S2Bound, share: float | None, steps: int
) -> dict[str, Mask]:
    """Algorithm 1 with a softmax over cells, R times at once.

    Each step follows the gradient of F + lambda R on all of S1, F with the reward model's direct
    estimate and entropy .1, then moves lambda by bound - C on S2 (Eq. 8). The reward model is the
    mean of a cell drawn to the mean of all; novel actions get the mean of all, which is too much.
    Step sizes are divided by 1 + lambda, so that a large lambda does not overshoot.

    Args:
        world: where.
        counts: R logs.
        bound: on S2.
        share: of novel actions, fixed; None lets the softmax choose among all A actions.
        steps: how many.

    Returns:
        (R,) True where a certificate is issued in error: for the last policy, for the last that
        passed.
    """
    replications, (u, a) = len(counts.shown), world.q.shape
    shape, n = (replications, u, a), counts.sizes[0]
    shown, rewarded = counts.shown.reshape(shape), counts.rewarded.reshape(shape)
    overall = rewarded.sum(axis=(1, 2), keepdims=True) / n
    q_hat = (rewarded + 5 * overall) / (shown + 5)
    contexts, gain = shown.sum(axis=2, keepdims=True) / n, rewarded / n
    novel, need = world.catalogue.novel, counts.floor
    allowed = np.where(novel, -np.inf, 0.0) if share is not None else np.zeros(a)
    logits, lambda_ = np.zeros(shape) + allowed, np.zeros(replications)
    passing, unsafe, passes, below = np.zeros((4, replications), dtype=bool)
    pi = softmax(logits)
    for _ in range(steps):
        pull = q_hat - 0.1 * np.log(np.maximum(pi, 1e-12))
        step = contexts * pi * (pull - (pi * pull).sum(axis=2, keepdims=True))
        step += lambda_[:, None, None] * (gain - pi * gain.sum(axis=2, keepdims=True))
        logits = logits + RATE / (1 + lambda_[:, None, None]) * step
        pi = softmax(logits)
        served = pi if share is None else (1 - share) * pi + share * novel / novel.sum()
        lower = bound(weights_of(served, world), counts)
        lambda_ = np.maximum(lambda_ - RATE_LAMBDA * (lower - need), 0.0)
        passes, below = lower > need, world.value(served) < world.floor
        passing |= passes
        unsafe = np.where(passes, below, unsafe)
    return {"last policy": passes & below, "last passing policy": passing & unsafe}


BATCHES: dict[str, Callable[[int, int], dict[Key, Mask]]] = {
    **{f"Eq. 4, {name}": partial(fixed_policy, name) for name in FIXED},
    **{f"Algorithm 1, {name}": partial(safe_opg, name) for name in ("flat", "plain")},
    **{f"best of many, {spread:g}": partial(best_of_many, spread) for spread in (0.4, 1.0)},
}
"""Each gives, for so many replications and a seed, which certificates are wrong."""
