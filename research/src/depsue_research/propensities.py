"""How often the test of the propensities refuses: correct ones, and wrong ones of several kinds.

Each run draws the learn (40%) and select (10%) folds of so many rows, anew, and tests them at
level .01 with nothing declared and no policy to call.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from depsue import rng
from depsue.data.catalogue import Catalogue
from depsue.data.logs import LoggedData
from depsue.diagnostics import PropensityReport, check_propensities
from depsue.policies import EpsilonGreedy, ScoreTable, SoftmaxOfScores
from depsue.protocols import Policy
from depsue.world import SyntheticSettings, synthetic_world

SHARE = 0.5
"""Of the rows, those in the learn and select folds."""


class PropensityCase(NamedTuple):
    """A world and the policy that logs in it; `once` draws a new context for every row."""

    name: str
    settings: SyntheticSettings
    epsilon: float | None = None
    once: bool = False


SMALL = [PropensityCase(f"200 actions, beta {b}", SyntheticSettings(beta=b)) for b in range(-3, 4)]
LARGE = SyntheticSettings(users=4832, supported=800, novel=200)
CASES = [
    *SMALL,
    *(PropensityCase(f"1,000 actions, beta {b}", replace(LARGE, beta=b)) for b in (-8, 1, 8, 20)),
    PropensityCase("1,000 actions, epsilon .1", LARGE, epsilon=0.1),
    PropensityCase("200 actions, 50,000 users, beta 8", SyntheticSettings(users=50_000, beta=8)),
    PropensityCase(
        "200 actions, 50,000 users, epsilon .1", SyntheticSettings(users=50_000), epsilon=0.1
    ),
    *(
        PropensityCase(
            f"200 actions, contexts once, beta {b}", SyntheticSettings(users=1, beta=b), once=True
        )
        for b in (1, 8, 20)
    ),
    PropensityCase(
        "1,000 actions, contexts once, beta 8", replace(LARGE, users=1, beta=8), once=True
    ),
]

Error = Callable[[LoggedData, Policy, np.random.Generator], LoggedData]
"""What goes wrong: logs, a policy of another version, randomness -> logs."""


def correct(logs: LoggedData, stale: Policy, draw: np.random.Generator) -> LoggedData:
    """Nothing goes wrong."""
    return logs


def factor_two(logs: LoggedData, stale: Policy, draw: np.random.Generator) -> LoggedData:
    """20% of propensities are doubled or halved, at random."""
    n = len(logs)
    factor = np.where(draw.random(n) < 0.2, draw.choice([0.5, 2.0], n), 1.0)
    return replace(logs, propensity=np.minimum(logs.propensity * factor, 1))


def too_small(logs: LoggedData, stale: Policy, draw: np.random.Generator) -> LoggedData:
    """All propensities are divided by 1.05."""
    return replace(logs, propensity=logs.propensity / 1.05)


def too_large(logs: LoggedData, stale: Policy, draw: np.random.Generator) -> LoggedData:
    """All propensities are multiplied by 1.05."""
    return replace(logs, propensity=np.minimum(logs.propensity * 1.05, 1))


def of_stale_policy(logs: LoggedData, stale: Policy, draw: np.random.Generator) -> LoggedData:
    """20% of propensities are those of another version of the policy."""
    own = np.exp(stale.log_prob(logs.requests, logs.action, logs.context))
    mixed = np.where(draw.random(len(logs)) < 0.2, own, logs.propensity)
    return replace(logs, propensity=np.maximum(mixed, 1e-12))


def shuffled(logs: LoggedData, stale: Policy, draw: np.random.Generator) -> LoggedData:
    """Every row has the propensity of another row."""
    return replace(logs, propensity=draw.permutation(logs.propensity))


def dropped(logs: LoggedData, stale: Policy, draw: np.random.Generator) -> LoggedData:
    """The rows of some actions, up to about 10% of all rows, are not in the logs."""
    order = draw.permutation(len(logs.catalogue))
    share = np.cumsum(np.bincount(logs.action, minlength=len(order))[order]) / len(logs)
    lost = order[: max(1, int(np.searchsorted(share, 0.1)))]
    return logs.take(~np.isin(logs.action, lost))


MAIN: dict[str, Error] = {"correct": correct, "20% x2": factor_two}
OTHERS: dict[str, Error] = {
    "all / 1.05": too_small,
    "all x 1.05": too_large,
    "20% stale": of_stale_policy,
    "shuffled": shuffled,
    "10% dropped": dropped,
}


def propensity_tables(rows: int, runs: int, other_runs: int, only: str = "") -> Iterator[str]:
    """Both tables, line after line as they are measured.

    Args:
        rows: of the logs.
        runs: for correct propensities, and for those of which 20% are wrong by a factor of 2.
        other_runs: for the other errors.
        only: worlds whose name contains this.
    """
    yield f"{rows:,} rows; refused/runs (mean of m/p), seconds of a test"
    yield ""
    for errors, count in ((MAIN, runs), (OTHERS, other_runs)):
        if not count:
            continue
        yield "| " + " | ".join(["world", *errors, "seconds"]) + " |"
        yield "|---" * (len(errors) + 2) + "|"
        for case in CASES:
            if only in case.name:
                yield row(case, errors, rows, range(1, count + 1))
        yield ""


Draw = Callable[[int, int], LoggedData]
"""Rows and seed -> logs."""


def opened(case: PropensityCase) -> tuple[Draw, Policy]:
    """How logs are drawn, and the policy with scores that differ by noise of size 0.5."""
    return opened_once(case) if case.once else opened_world(case)


def opened_world(case: PropensityCase) -> tuple[Draw, Policy]:
    """Users that come back."""
    world = synthetic_world(case.settings, seed=0)
    scores = np.log(world.q) - np.log1p(-world.q)
    noise = rng.generator(0, "stale").normal(size=scores.shape[1])
    shown = ~world.catalogue.novel
    other = ScoreTable(world.contexts, case.settings.beta * scores + 0.5 * noise)
    policy: Policy = world.logging_policy
    stale: Policy = SoftmaxOfScores(other, 1.0, shown)
    if case.epsilon is not None:
        policy = EpsilonGreedy(ScoreTable(world.contexts, scores), case.epsilon, shown)
        stale = EpsilonGreedy(other, case.epsilon, shown)
    return lambda rows, seed: world.reseeded(seed).deploy(policy, rows, round=0), stale


def opened_once(case: PropensityCase) -> tuple[Draw, Policy]:
    """A new context for every row; scores like those of `synthetic_world`."""
    s, draw = case.settings, rng.generator(0, "once")
    features = draw.normal(size=(s.supported + s.novel, s.d))
    taste = s.spread * 0.8 * (draw.normal(size=(s.d, s.d)) / s.d) @ features.T
    popularity = s.spread * 0.6 * features @ draw.normal(size=s.d) / s.d**0.5
    noise = 0.5 * draw.normal(size=len(features))
    catalogue = Catalogue(
        np.arange(len(features)), np.arange(len(features)) >= s.supported, features
    )
    shown = ~catalogue.novel
    policy = SoftmaxOfScores(lambda x: x @ taste + popularity, s.beta, shown)
    stale = SoftmaxOfScores(lambda x: s.beta * (x @ taste + popularity) + noise, 1.0, shown)

    def logs(rows: int, seed: int) -> LoggedData:
        of_seed = rng.generator(seed, "contexts")
        contexts = of_seed.normal(size=(rows, s.d)).astype(np.float32)
        actions, propensities = policy.sample(contexts, of_seed)
        return LoggedData.from_arrays(
            contexts=contexts,
            actions=actions,
            rewards=np.zeros(rows),
            propensities=propensities,
            catalogue=catalogue,
            r_max=1.0,
        )

    return logs, stale


def row(case: PropensityCase, errors: dict[str, Error], rows: int, seeds: range) -> str:
    """How many of the runs were refused, for each error."""
    draw, stale = opened(case)
    refused, means, seconds = dict.fromkeys(errors, 0), dict.fromkeys(errors, 0.0), 0.0
    for seed in seeds:
        logs = draw(round(rows * SHARE), seed)
        for name, error in errors.items():
            report, took = timed(error(logs, stale, rng.generator(seed, name)))
            refused[name] += not report.ok
            means[name] += report.mean / len(seeds)
            seconds += took / len(seeds) / len(errors)
    cells = (f"{refused[name]}/{len(seeds)} ({means[name]:.3f})" for name in errors)
    return "| " + " | ".join([case.name, *cells, f"{seconds:.1f}"]) + " |"


def timed(logs: LoggedData) -> tuple[PropensityReport, float]:
    """The report on four fifths and one fifth of the rows, and its seconds."""
    learn, select = logs.split((0.8, 0.2), salt="propensities")
    start = time.perf_counter()
    return check_propensities(learn, select), time.perf_counter() - start
