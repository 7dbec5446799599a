"""The hostile worlds, one campaign of certified exploration in one of them, and finished campaigns.

`HostileWorld` makes a world of a seed, `Case` names a campaign in it, `run_case` runs it and
measures what it really was. `keep` and `finished` hold results in a file of lines, so that a run
goes on where it was interrupted.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from depsue import rng
from depsue.errors import DepsueError, FileError, is_whole, require, short
from depsue.exploration.rounds import Exploration, run_exploration
from depsue.exploration.settings import ExploreSettings, in_words
from depsue.policies import EpsilonGreedy, ScoreTable, naive_safe_exploration
from depsue.progress import Watch, silent
from depsue.rewards import RewardSettings
from depsue.world import SyntheticSettings, World, synthetic_world

Result = dict[str, Any]
"""A JSON object with a "key" that names what it is of, and a "config", a hash of its settings."""

FLOOR, DELTA = 0.95, 0.05

RECIPE = "balanced"
"""The objective of the recipes; "most value", which pays nothing for novelty, stands beside it."""

REWARDS = RewardSettings(members=2, hidden=(16,), max_epochs=3)
"""Small networks, beside which exploration fits a linear model: this is about certificates."""

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

WORLDS = {kind.name: kind for kind in _ALL}
"""By name; `refusals` adds the fifth, whose logs cannot be relied on."""

_MODES: tuple[Literal["each", "cumulative"], ...] = ("each", "cumulative")


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
    chosen: list[Case] = []
    for seed in range(replications):
        for world in worlds:
            chosen += [Case(seed, world, 1, "each")]
            chosen += [Case(seed, world, k, how) for k in (2, 5) for how in _MODES]
            if world == "worthless":
                chosen += [Case(seed, world, k, "each", "most value") for k in (1, 2, 5)]
    return chosen


def run_case(case: Case, watch: Watch = silent) -> Result:
    """Run a campaign and measure the truth: values over V(pi0), exactly.

    Users do otherwise in every case of a seed, so that violations of two cases are two draws.
    """
    kind, began = WORLDS[case.world], time.process_time()
    world = kind.world(case.seed)
    own = world.reseeded(rng.derive(case.seed, str(case)))
    base = world.value(world.logging_policy)
    naive = naive_safe_exploration(world.logging_policy, world.catalogue, 1 - FLOOR)
    answer: Result = {
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
        return {**answer, "refused": str(problem), "rounds": []}
    if result.interrupted:
        raise KeyboardInterrupt
    answer["rounds"] = [_truth(world, base, deployment) for deployment in result.deployments]
    answer["seconds"] = round(time.process_time() - began, 2)
    return answer


def _truth(world: World, base: float, deployment: Exploration) -> Result:
    explored = deployment.explored
    return {
        "k": deployment.k,
        "novelty": _rounded(world.novelty(explored.policy)),
        "value": _rounded(world.value(explored.policy) / base),
        "anticipated": _rounded(explored.choice.value),
        "answer": explored.choice.what,
        "why": explored.choice.why,
        "bound": explored.certificate.bound,
        "tested": explored.certificate.tested,
    }


def _rounded(value: float) -> float:
    """Twelve digits: enough to tell the floor from what is just below it."""
    return float(f"{value:.12g}")


def keep(result: Result, path: Path) -> None:
    """Add what is finished; it is on the disk when this returns."""
    with path.open("ab") as file:
        file.write((json.dumps(result) + "\n").encode())
        file.flush()
        os.fsync(file.fileno())


def finished(path: Path, wanted: Mapping[str, str]) -> dict[str, Result]:
    """Of what is wanted (key: config), the results that are there, in the order of `wanted`.

    A last line that was cut off by an interrupt is removed. The code is not part of a config:
    after a change of it, start with another file.
    """
    if not path.exists():
        return {}
    results: dict[str, Result] = {}
    *lines, rest = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines, start=1):
        result = _read(line, f"{path}, line {number}")
        if wanted.get(result["key"]) == result["config"]:
            results[result["key"]] = result
    if rest:
        path.write_bytes(b"".join(line + b"\n" for line in lines))
    return {key: results[key] for key in wanted if key in results}


def _read(line: bytes, where: str) -> Result:
    try:
        result: Result = json.loads(line)
        if type(result["key"]) is not str or type(result["config"]) is not str:
            raise ValueError("key and config must be text")
        return result
    except (ValueError, TypeError, KeyError) as problem:
        raise FileError(
            "a line of finished work must be a JSON object with a key and a config",
            found=f"{where}: {type(problem).__name__} {problem}",
            cure="delete that line, and it is run again",
        ) from problem
