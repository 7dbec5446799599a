"""How often the test of drift refuses: where V(pi0) stays the same, and where it changes.

Each run draws so many rows of round 0, by pi0, and of round 1, by the policy named, in a world of
2,000 users, 30 old and 8 novel actions, in which all mean rewards change by a share from round 0
to round 1; and tests one round against the other at delta .01.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from depsue.diagnostics.drift import check_drift
from depsue.policies import Mixture, ScoreTable, SoftmaxOfScores, Uniform
from depsue.protocols import Policy
from depsue.world import SyntheticSettings, World, synthetic_world

WORLD = SyntheticSettings(users=2000, supported=30, novel=8)
SHIFTS = (0.0, -0.03, -0.05, -0.1, 0.1, -0.2)


class DriftCase(NamedTuple):
    """What was served in round 1, and what is known of it."""

    name: str
    beta: float
    novelty: float
    callable: bool = True
    with_units: bool = False

    def policy(self, world: World) -> Policy:
        """A softmax over the old actions (pi0 has beta 1), and novel ones evenly."""
        novel = world.catalogue.novel
        scores = ScoreTable(world.contexts, np.log(world.q) - np.log1p(-world.q))
        old = SoftmaxOfScores(scores, self.beta, ~novel)
        return Mixture([old, Uniform(novel)], [1 - self.novelty, self.novelty])


CASES = [
    DriftCase("95% pi0, 5% novel", 1.0, 0.05),
    DriftCase("beta 1.5, 10% novel", 1.5, 0.1),
    DriftCase("beta 1.5, 10% novel, cannot be called", 1.5, 0.1, callable=False),
    DriftCase("beta 2.5, 30% novel", 2.5, 0.3),
    DriftCase("beta 2.5, 30% novel, cannot be called", 2.5, 0.3, callable=False),
    DriftCase("beta 1.5, 10% novel, 2,000 users as units", 1.5, 0.1, with_units=True),
]


def drift_table(rows: int, runs: int, shifts: Sequence[float] = SHIFTS) -> Iterator[str]:
    """The table, line after line as they are measured.

    Args:
        rows: of each round.
        runs: of each case, with seeds 1 to `runs`.
        shifts: changes of all mean rewards; 0 is no drift.
    """
    base = synthetic_world(WORLD, seed=0)
    yield f"{rows:,} rows a round; refused/runs at each change of all mean rewards"
    yield ""
    words = [f"{shift:+.0%}" if shift else "none" for shift in shifts]
    yield "| " + " | ".join(["served in round 1", *words, "seen 9 in 10", "seconds"]) + " |"
    yield "|---" * (len(shifts) + 3) + "|"
    for case in CASES:
        yield row(base, case, rows, range(1, runs + 1), shifts)


def changing(base: World, seed: int, shift: float, with_units: bool) -> World:
    """The world with other draws, in which mean rewards change by a share in round 1."""
    return World(
        base.contexts,
        base.rewards,
        base.catalogue,
        base.logging_policy,
        seed=seed,
        decay=-shift,
        with_units=with_units,
    )


def row(base: World, case: DriftCase, rows: int, seeds: range, shifts: Sequence[float]) -> str:
    """How many of the runs were refused at each shift, and what could be seen without one."""
    pi0, policy = base.logging_policy, case.policy(base)
    refused, seen, seconds = dict.fromkeys(shifts, 0), 0.0, 0.0
    for seed in seeds:
        first = changing(base, seed, 0.0, case.with_units).deploy(pi0, rows, round=0)
        for shift in shifts:
            world = changing(base, seed, shift, case.with_units)
            newest = world.deploy(policy, rows, round=1)
            known = {1: policy} if case.callable else None
            start = time.process_time()
            report = check_drift(first, newest, logging_policy=pi0, deployed=known, within=False)
            seconds += (time.process_time() - start) / len(seeds) / len(shifts)
            refused[shift] += not report.ok
            if shift == 0:
                change = report.tests[0].change
                seen += change.smallest / change.before / len(seeds)
    cells = [f"{refused[shift]}/{len(seeds)}" for shift in shifts]
    return "| " + " | ".join([case.name, *cells, f"{seen:.1%}", f"{seconds:.2f}"]) + " |"
