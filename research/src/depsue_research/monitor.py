"""How often the safety monitor stops without cause, and how soon with one.

A `Life` says what happens in a simulated round. `stops_at` runs the monitor's tests on its
decisions in a small world, where the truth is chosen. `monitor_table` does so for all lives.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from depsue.data.checks import FloatArray, IntArray
from depsue.promises import Floor, Promise
from depsue.serving.evidence import FloorTest, PropensityTest, Weighing, delta_of_test, weights

PI0: FloatArray = np.array([0.5, 0.3, 0.15, 0.05, 0.0])
POLICY: FloatArray = np.array([0.42, 0.24, 0.12, 0.12, 0.10])
"""Both over five items, of which pi0 never shows the last."""
BATCH = 250
"""Decisions between two looks."""
RATE, RATIO, DELTA, ROUNDS, HOLDOUT = 0.1, 0.95, 0.05, 3, 0.05
"""V(pi0), the floor over it, the campaign's delta, its rounds, and the share of traffic on pi0."""


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


LIVES = (
    Life("exactly at the need, V(pi) = .95 V(pi0)", 0.95),
    Life("just above it, .97", 0.97),
    Life("as good as pi0", 1.0),
    Life("items are worth less: .90", 0.90),
    Life("items are worth less: .85", 0.85),
    Life("the policy's decisions earn half, whatever they show", 1.0, drop=0.5),
    Life("5% of decisions show another item than was drawn", 1.0, skew=0.05),
)


def monitor_table(replications: int, decisions: int) -> Iterator[str]:
    """The page, line after line as they are measured.

    Args:
        replications: lives without a fault; of those with one, a tenth.
        decisions: how long each is watched.
    """
    yield "# The monitor: false alarms, and delay to detection"
    yield ""
    yield (
        f"Made by `depsue-research monitor --replications {replications} --decisions {decisions} "
        f"--out docs/results/monitor.md`. Five items, V(pi0) = {RATE}, floor {RATIO} V(pi0), "
        f"holdout {HOLDOUT:g}, delta {DELTA:g} for the life of a campaign of {ROUNDS} rounds; one "
        "epoch of one round, so that its false alarms must stay below "
        f"{DELTA / ROUNDS / 2:.4f}. Looked at after every {BATCH} decisions."
    )
    yield ""
    yield "| what happens | lives | stopped | decisions until then: median | nine in ten within |"
    yield "|---|---:|---:|---:|---:|"
    for life in LIVES:
        calm = life.value >= RATIO and life.drop == 1 and life.skew == 0
        lives = replications if calm else max(replications // 10, 1)
        stops = np.array(
            [
                stops_at(
                    life,
                    decisions=decisions,
                    rate=RATE,
                    holdout=HOLDOUT,
                    delta=DELTA,
                    rounds=ROUNDS,
                    ratio=RATIO,
                    seed=seed,
                )
                for seed in range(lives)
            ]
        )
        delays = np.quantile(stops, (0.5, 0.9), method="higher").tolist()
        words = ["not yet" if math.isinf(delay) else f"{delay:,.0f}" for delay in delays]
        shown = "– | –" if calm else " | ".join(words)
        yield f"| {life.name} | {lives:,} | {np.isfinite(stops).mean():.4f} | {shown} |"


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
    ways: tuple[Weighing, ...] = ("items", "holdout") if holdout > 0 else ("items",)
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
    items = np.searchsorted(np.cumsum(p), u, side="right")
    return np.asarray(np.minimum(items, np.flatnonzero(p)[-1]))


def _below(pi: FloatArray, shown: IntArray) -> FloatArray:
    rows = np.arange(len(shown))
    return np.asarray(np.cumsum(pi, axis=1)[rows, shown] - pi[rows, shown])
