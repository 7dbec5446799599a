"""The fifth world: logs whose propensities are wrong, and who refuses them.

20% of the propensities are doubled or halved at random. As E[1/factor] = .8 + .2 (.5 x 2 + .5 / 2)
= 1.05, weights are 5% too large on average: a policy that is worth .91 of pi0 would look like .95,
so no certificate can hold, and the logs must be refused. Three ways for them to come in:

- as logs, where pi0 can be asked: each propensity must be pi0's own;
- as logs, where it cannot: the test of m/p (docs/propensities.md) on the learn and select folds;
- with a pi0 that is itself wrong, so that policy and logs agree, and only the test of m/p can tell.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from depsue import rng
from depsue.data.catalogue import Catalogue
from depsue.data.logs import LoggedData
from depsue.diagnostics import check_propensities
from depsue.errors import DataError
from depsue.exploration.rounds import run_exploration
from depsue.policies import BasePolicy, OwnPolicy, ScoreTable
from depsue.protocols import Policy
from depsue.testing.splits import split
from depsue.world import World
from depsue_research.hostile.campaigns import WORLDS, Case, Result

WRONG = 0.2
"""Share of wrong propensities."""
SIZES = (40_000, 500_000)
"""Rows of the logs that the test of m/p is given."""


def misreported(logs: LoggedData, draw: np.random.Generator) -> LoggedData:
    """The logs with 20% of their propensities doubled or halved; none exceeds 1."""
    n = len(logs)
    factor = np.where(draw.random(n) < WRONG, draw.choice([0.5, 2.0], n), 1.0)
    return replace(logs, propensity=np.minimum(logs.propensity * factor, 1.0))


def mistaken(world: World, draw: np.random.Generator) -> BasePolicy:
    """A pi0 that says twice or half the odds in 20% of its (context, action) pairs."""
    pi = np.asarray(world.logging_policy.probabilities(world.contexts))
    factor = np.where(draw.random(pi.shape) < WRONG, draw.choice([0.5, 2.0], pi.shape), 1.0)
    said = pi * factor
    said /= said.sum(axis=1, keepdims=True)
    return OwnPolicy(ScoreTable(world.contexts, said), said.shape[1])


class Misreporting:
    """An environment that serves a policy and logs propensities that are not the policy's.

    Args:
        world: where.
        claimed: what pi0 says of itself; None is right about itself, and rows are misreported.
        seed: of the errors.
    """

    def __init__(self, world: World, claimed: BasePolicy | None, seed: int) -> None:
        self._world, self._claimed, self._seed = world, claimed, seed

    @property
    def catalogue(self) -> Catalogue:
        """The actions."""
        return self._world.catalogue

    @property
    def logging_policy(self) -> Policy:
        """pi0, or what is taken for it."""
        return self._world.logging_policy if self._claimed is None else self._claimed

    def deploy(self, policy: Policy, n: int, *, round: int) -> LoggedData:
        """n decisions, with the propensities that are logged of them."""
        if self._claimed is None:
            logs = self._world.deploy(policy, n, round=round)
            return misreported(logs, rng.generator(self._seed, "misreported", round))
        really = self._world.logging_policy if policy is self._claimed else policy
        logs = self._world.deploy(really, n, round=round)
        said = np.exp(policy.log_prob(logs.requests, logs.action, logs.context))
        return replace(logs, propensity=said)


def key_of(seed: int) -> str:
    """Its name among finished work."""
    return f"wrong propensities, seed {seed}"


def config_of(seed: int) -> str:
    """A hash of all settings."""
    return Case(seed, "plain", 1, "each").config + f"-{max(SIZES)}"


def refused(seed: int) -> Result:
    """Who refuses what, with which message (None: not refused), for the world of one seed."""
    case, kind = Case(seed, "plain", 1, "each"), WORLDS["plain"]
    world = kind.world(seed)
    liar = mistaken(world, rng.generator(seed, "mistaken pi0"))
    good = world.deploy(world.logging_policy, kind.rows, round=0)
    bad = misreported(good, rng.generator(seed, "misreported"))
    served, claims = Misreporting(world, None, seed), Misreporting(world, liar, seed)
    answers = [
        _answer("run_exploration, logs handed in", bad, _explored(world, case, bad)),
        _answer("run_exploration, a service that misreports", bad, _explored(served, case)),
        _answer("run_exploration, pi0 itself is wrong", bad, _explored(claims, case)),
    ]
    for size in SIZES:
        logs = world.deploy(world.logging_policy, size, round=0)
        wrong = misreported(logs, rng.generator(seed, "misreported", size))
        agreed = claims.deploy(liar, size, round=0)
        answers += [
            _answer("test of m/p, correct propensities", logs, _tested(logs)),
            _answer("test of m/p, 20% wrong", wrong, _tested(wrong)),
            _answer("test of m/p, pi0 itself is wrong", agreed, _tested(agreed)),
        ]
    return {"key": key_of(seed), "config": config_of(seed), "seed": seed, "answers": answers}


def _answer(what: str, logs: LoggedData, said: str | None) -> Result:
    return {"what": what, "rows": len(logs), "said": said}


def _explored(
    world: World | Misreporting, case: Case, logs: LoggedData | None = None
) -> str | None:
    try:
        with rng.one_thread():
            rows = WORLDS[case.world].rows
            run_exploration(
                world, rows, case.settings, seed=case.seed, campaign="refusals", logs=logs
            )
    except DataError as problem:
        return str(problem)
    return None


def _tested(logs: LoggedData) -> str | None:
    folds = split(logs, "refusals")
    report = check_propensities(folds.learn, folds.select)
    return None if report.ok else report.findings[0]
