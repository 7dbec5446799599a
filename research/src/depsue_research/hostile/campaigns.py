"""One campaign of certified exploration in one world, and what it really was."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from depsue import rng
from depsue.errors import DepsueError, is_whole, require, short
from depsue.exploration.rounds import Exploration, run_exploration
from depsue.exploration.settings import ExploreSettings, in_words
from depsue.policies import naive_safe_exploration
from depsue.progress import Watch, silent
from depsue.rewards import RewardSettings
from depsue.world import World
from depsue_research.hostile.store import Result
from depsue_research.hostile.worlds import WORLDS

FLOOR, DELTA = 0.95, 0.05
RECIPE = "balanced"
"""The objective of the recipes; "most value", which pays nothing for novelty, stands beside it."""
REWARDS = RewardSettings(members=2, hidden=(16,), max_epochs=3)
"""Small networks, beside which exploration fits a linear model: this is about certificates."""


@dataclass(frozen=True, order=True)
class Case:
    """One campaign.

    Args:
        seed: of the world and of all that happens in it.
        world: a name in `WORLDS`.
        deployments: K.
        safety: what is promised.
        objective: what is sought.
    """

    seed: int
    world: str
    deployments: int
    safety: Literal["each", "cumulative"]
    objective: str = RECIPE

    def __str__(self) -> str:
        what = f"{self.world}, K = {self.deployments} {self.safety}, {self.objective}"
        return f"{what}, seed {self.seed}"

    @property
    def settings(self) -> ExploreSettings:
        """As in the recipe of the paper's experiment, but for the size of the networks."""
        return ExploreSettings(
            delta=DELTA,
            safety=self.safety,
            objective=self.objective,
            deployments=self.deployments,
            max_novelty=0.5,
            rewards=REWARDS,
            no_drift=True,
        )

    @property
    def config(self) -> str:
        """A hash of all settings: runs with others are not mixed with these."""
        explore = asdict(self.settings) | {"objective": in_words(self.objective)}
        kinds = {"world": asdict(WORLDS[self.world]), "explore": explore}
        return hashlib.sha256(json.dumps(kinds, sort_keys=True).encode()).hexdigest()[:12]


def cases(replications: int, worlds: Sequence[str] = tuple(WORLDS)) -> list[Case]:
    """All campaigns, seed after seed, so that a run cut short has whole replications.

    Every world has K = 1, 2 and 5 in both modes (one where K = 1, for they are the same); the
    world of worthless items also has the objective "most value".
    """
    require(
        is_whole(replications) and replications >= 1,
        "replications must be a whole number, at least 1",
        found=short(replications),
        cure="20 or more",
    )
    found: list[Case] = []
    for seed in range(replications):
        for world in worlds:
            found += [Case(seed, world, 1, "each")]
            found += [Case(seed, world, k, how) for k in (2, 5) for how in _MODES]
            if world == "worthless":
                found += [Case(seed, world, k, "each", "most value") for k in (1, 2, 5)]
    return found


_MODES: tuple[Literal["each", "cumulative"], ...] = ("each", "cumulative")


def run_case(case: Case, watch: Watch = silent) -> Result:
    """Run a campaign and measure the truth: values over V(pi0), exactly.

    Users do otherwise in every case of a seed, so that violations of two cases are two draws.
    """
    kind, began = WORLDS[case.world], time.process_time()
    world = kind.world(case.seed)
    own = world.reseeded(rng.derive(case.seed, str(case)))
    base = world.value(world.logging_policy)
    naive = naive_safe_exploration(world.logging_policy, world.catalogue, 1 - FLOOR)
    found: Result = {
        "key": str(case),
        "config": case.config,
        **asdict(case),
        "logging_value": _rounded(base),
        "naive_value": _rounded(world.value(naive) / base),
    }
    try:
        with rng.one_thread():
            result = run_exploration(
                own, kind.rows, case.settings, seed=case.seed, campaign=str(case), watch=watch
            )
    except DepsueError as problem:  # shown in the tables, for it is an answer
        return {**found, "refused": str(problem), "rounds": []}
    if result.interrupted:
        raise KeyboardInterrupt
    found["rounds"] = [_truth(world, base, one) for one in result.deployments]
    found["seconds"] = round(time.process_time() - began, 2)
    return found


def answer_of(why: str) -> str:
    """Which of the three answers it was."""
    if why.startswith("certified"):
        return "certified"
    return "certain" if why.startswith("Naive Safe Exploration") else "pi0"


def _truth(world: World, base: float, one: Exploration) -> Result:
    certificate = one.explored.certificate
    return {
        "k": one.k,
        "novelty": _rounded(world.novelty(one.explored.policy)),
        "value": _rounded(world.value(one.explored.policy) / base),
        "anticipated": _rounded(one.explored.anticipated["value"]),
        "answer": answer_of(one.explored.why),
        "why": one.explored.why,
        "bound": certificate.bound,
        "tested": certificate.tested,
    }


def _rounded(value: float) -> float:
    """Twelve digits: enough to tell the floor from what is just below it."""
    return float(f"{value:.12g}")
