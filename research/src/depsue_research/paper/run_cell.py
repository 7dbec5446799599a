"""What is done in one cell: build the worlds, learn by the method, measure the truth."""

from __future__ import annotations

import resource
import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from depsue import rng
from depsue._version import __version__
from depsue.data.checks import FloatArray
from depsue.data.logs import LoggedData
from depsue.errors import NovelMassWarning
from depsue.estimators import IPS, DirectMethod, DoublyRobust
from depsue.exploration.rounds import run_exploration
from depsue.learners.depsue import DepsueSettings, run_depsue
from depsue.learners.gradient import LARGEST_TABLE
from depsue.learners.history import History, smoothed
from depsue.learners.opg import train_opg
from depsue.policies import BasePolicy, ScoreTable, Uniform, naive_safe_exploration
from depsue.progress import Watch, silent
from depsue.promises import Floor, Promise
from depsue.protocols import Estimator, Policy, RewardModel
from depsue.rewards import MlpRewardModel, OwnRewardModel, fit_rewards
from depsue.world import World
from depsue_research.paper.cells import Cell, Result
from depsue_research.paper.recipe import Recipe, deployments_of, method_of
from depsue_research.paper.worlds import check_data, worlds_of

BINS = 200
"""Bins of the distributions of q and q-hat over [0, 1]."""
POINTS = 25
"""Points that are kept of a training's history."""


def run_cell(recipe: Recipe, cell: Cell, data: Path | None = None, watch: Watch = silent) -> Result:
    """Run one cell with one thread: the same cell gives the same result, to the bit.

    Args:
        recipe: the experiment.
        cell: which of its cells.
        data: the folder with the data set's files; None looks below DEPSUE_DATA.
        watch: shows progress.
    """
    clock = Clock(watch)
    with rng.one_thread():
        with clock("world"):
            worlds = worlds_of(recipe, cell.level, cell.seed, data)
        match method_of(cell.method).learner:
            case "naive_safe":
                outcome = _naive_safe(recipe, worlds, clock)
            case "opg":
                outcome = _opg(recipe, cell, worlds, clock)
            case "explore":
                outcome = _explore(recipe, cell, worlds, clock)
            case "depsue":
                outcome = _depsue(recipe, cell, worlds, clock)
        with clock("evaluation"):
            logging = _logging_policy(worlds)
    result: Result = _short({
        "recipe": recipe.name,
        "config": recipe.hash_of(cell.method),
        "data": check_data(recipe, data),
        "version": __version__,
        "method": cell.method,
        "level": cell.level,
        "seed": cell.seed,
        "logging": logging,
        **outcome,
        "seconds": {name: round(spent, 2) for name, spent in clock.seconds.items()},
        "peak_mib": _peak_mib(),
    })  # fmt: skip
    return result


def _short(value: Any) -> Any:
    """With eight digits of every number: files of hundreds of cells stay small."""
    if isinstance(value, float):
        return float(f"{value:.8g}")
    if isinstance(value, dict):
        return {name: _short(part) for name, part in value.items()}
    return [_short(part) for part in value] if isinstance(value, list) else value


class Clock:
    """Where the time went; learners' progress passes through it.

    Args:
        watch: shows progress.
    """

    def __init__(self, watch: Watch) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._show, self._mark = watch, 0.0

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Time a block."""
        began = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - began
            self.seconds[name] += spent
            self._mark += spent  # within `split` it is no part of what is learned

    @contextmanager
    def split(self) -> Iterator[Watch]:
        """Time a block whose parts are known from the progress that they report."""
        self._mark = time.perf_counter()

        def watch(task: str, done: int, total: int, words: str) -> None:
            now = time.perf_counter()
            # learners report no phases: the name of the task on the progress bar tells them
            name = "reward model" if "reward model" in task else "policy"
            self.seconds[name] += now - self._mark
            self._mark = now
            self._show(task, done, total, words)

        yield watch
        self.seconds["policy"] += time.perf_counter() - self._mark

    def of_which_bound(self, histories: list[History]) -> None:
        """Tell the bound's part of the time from the gradient's."""
        bound = sum(history.bound_seconds for history in histories)
        self.seconds["bound"] += bound
        self.seconds["policy"] -= bound


def _naive_safe(recipe: Recipe, worlds: tuple[World, World], clock: Clock) -> Result:
    train = worlds[0]
    policy = naive_safe_exploration(train.logging_policy, train.catalogue, recipe.explore)
    with clock("evaluation"):
        return {"deployments": [{"k": 1, **_truth(worlds, policy)}]}


def _opg(recipe: Recipe, cell: Cell, worlds: tuple[World, World], clock: Clock) -> Result:
    train, method = worlds[0], method_of(cell.method)
    with clock("logs"):
        logs = train.deploy(train.logging_policy, recipe.rows, round=0)
    settings = recipe.cql if method.model == "cql" else recipe.rewards
    with clock.split() as watch:
        model = fit_rewards(logs, settings, seed=cell.seed, watch=watch)
        q_hat = _known(model.combined("min" if method.model == "min" else "mean"), train)
        name = f"OPG ({method.model})"
        trained = train_opg(logs, q_hat, recipe.opg, seed=cell.seed, name=name, watch=watch)
    _stop_if_interrupted(trained.interrupted)
    with clock("evaluation"):
        result: Result = {
            "on_policy": logs.mean_reward(),
            "deployments": [{"k": 1, **_truth(worlds, trained.policy)}],
            "history": [_thinned(trained.history)],
        }
        if model.report is not None:
            names = ("cross_entropy", "baseline", "calibration_error")
            result["model"] = {name: getattr(model.report, name) for name in names}
        if recipe.validation_rows:
            seed = rng.derive(cell.seed, "validation")
            validation = train.reseeded(seed).deploy(
                train.logging_policy, recipe.validation_rows, round=0
            )
            result["validation"] = _validated(trained.policy, validation, q_hat)
            result["distributions"] = _distributions(train, logs, q_hat)
    return result


def _depsue(recipe: Recipe, cell: Cell, worlds: tuple[World, World], clock: Clock) -> Result:
    settings = DepsueSettings(
        deployments=deployments_of(cell.method),
        floor=Floor(recipe.floor),
        learner=recipe.safe_opg,
        rewards=recipe.rewards,
        clip=recipe.clip,
        when_failed=recipe.when_failed,
        model_rows=recipe.model_rows,
    )
    with clock.split() as watch:
        result = run_depsue(worlds[0], recipe.rows, settings, seed=cell.seed, watch=watch)
    _stop_if_interrupted(result.interrupted)
    histories = [d.trained.history for d in result.deployments]
    clock.of_which_bound(histories)
    with clock("evaluation"):
        deployments = [
            {**row, **_truth(worlds, d.deployed)}
            for row, d in zip(result.rows(), result.deployments, strict=True)
        ]
    for row in deployments:
        row["on_policy"] = row.pop("value")
        row.pop("novelty")
    return {
        "on_policy": result.logging_value,
        "deployments": deployments,
        "history": [_thinned(history) for history in histories],
    }


def _explore(recipe: Recipe, cell: Cell, worlds: tuple[World, World], clock: Clock) -> Result:
    settings = replace(
        recipe.exploration,
        promises=(Promise(Floor(recipe.floor)),),
        safety=method_of(cell.method).safety,
        deployments=deployments_of(cell.method),
        rewards=replace(recipe.rewards, members=recipe.exploration.rewards.members),
    )
    measured = _Measured(worlds, clock)
    with clock.split() as watch:
        result = run_exploration(
            measured,
            recipe.rows,
            settings,
            seed=cell.seed,
            campaign=f"{recipe.name} {cell.method} {cell.level:g} {cell.seed}",
            watch=watch,
        )
    _stop_if_interrupted(result.interrupted)
    deployments = []
    for d in result.deployments:
        certificate = d.explored.certificate
        verdict = certificate.verdicts[0]
        deployments.append(
            {
                "k": d.k,
                "on_policy": d.value,
                "rows": d.rows,
                "certified": d.explored.certified,
                "why": d.explored.why,
                "bound": verdict.bound,
                "need": verdict.need,
                "bound_name": certificate.bound,
                "levels_tested": certificate.tested,
                "anticipated": d.explored.choice.value,
                "trust": d.explored.candidate.trust,
                **measured.truth[d.k],
            }
        )
    return {"on_policy": result.logging_value, "deployments": deployments}


class _Measured:
    """The training world, which measures a policy when it is deployed: its tables are there then.

    Args:
        worlds: of the training and the test contexts.
        clock: counts the time.
    """

    def __init__(self, worlds: tuple[World, World], clock: Clock) -> None:
        self._worlds, self._clock = worlds, clock
        self.catalogue, self.logging_policy = worlds[0].catalogue, worlds[0].logging_policy
        self.truth: dict[int, dict[str, float]] = {}

    def deploy(self, policy: Policy, n: int, *, round: int) -> LoggedData:
        """As the world does."""
        if round > 0:
            with self._clock("evaluation"):
                self.truth[round] = _truth(self._worlds, policy)
        return self._worlds[0].deploy(policy, n, round=round)


def _known(model: MlpRewardModel, world: World) -> RewardModel:
    """The model with its predictions for all users computed once, where they fit."""
    n_actions = len(world.catalogue)
    if len(world.contexts) * n_actions > LARGEST_TABLE:
        return model
    table = ScoreTable(world.contexts, model.predict(world.contexts))
    return OwnRewardModel(table, n_actions)


def _truth(worlds: tuple[World, World], policy: Policy) -> dict[str, float]:
    """Exact value and novelty over the training and the test contexts."""
    truth: dict[str, float] = {}
    for name, world in zip(("train", "test"), worlds, strict=True):
        value, novelty = world.value_and_novelty(policy)
        truth |= {f"value_{name}": value, f"novelty_{name}": novelty}
    return truth


def _logging_policy(worlds: tuple[World, World]) -> dict[str, float]:
    facts = {}
    for name, world in zip(("train", "test"), worlds, strict=True):
        uniform: BasePolicy = Uniform(np.ones(len(world.catalogue), dtype=bool))
        facts[f"value_{name}"] = world.value(world.logging_policy)
        facts[f"best_{name}"] = world.best_value()
        facts[f"best_novelty_{name}"] = world.best_novelty()
        facts[f"uniform_{name}"] = world.value(uniform)
    return facts


def _validated(policy: Policy, rows: LoggedData, model: RewardModel) -> dict[str, float]:
    """What OPE says of a policy on validation rows, beside pi0's mean reward on them."""
    estimators: dict[str, Estimator] = {
        "ips": IPS(),
        "dm": DirectMethod(model),
        "dr": DoublyRobust(model),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NovelMassWarning)  # that is what the table shows
        estimates = {name: e.estimate(policy, rows).value for name, e in estimators.items()}
    return {**estimates, "on_policy": rows.mean_reward()}


def _distributions(world: World, logs: LoggedData, model: RewardModel) -> dict[str, Any]:
    """q and q-hat: at the pairs that pi0 logged, and at all novel actions of the same contexts."""
    users = logs.contexts[:1000]  # in the order of first appearance: a random sample of users
    novel = logs.catalogue.novel
    rows = np.flatnonzero(logs.context < len(users))
    context, action = logs.context[rows], logs.action[rows]
    q, q_hat = _q_at(world, users), model.predict(users)
    return {
        name: {"supported": _histogram(t[context, action]), "novel": _histogram(t[:, novel])}
        for name, t in (("q", q), ("q_hat", q_hat))
    }


def _q_at(world: World, contexts: FloatArray) -> FloatArray:
    return ScoreTable(world.contexts, world.q)(contexts)


def _histogram(values: FloatArray) -> dict[str, Any]:
    """Shares per bin of [0, 1], from the first bin that is not empty, and the mean."""
    counts = np.histogram(values, bins=BINS, range=(0.0, 1.0))[0]
    filled = np.flatnonzero(counts)
    part = counts[filled[0] : filled[-1] + 1] / counts.sum()
    return {
        "first": int(filled[0]),
        "shares": [float(f"{share:.3g}") for share in part],
        "mean": float(values.mean()),
    }


def _thinned(history: History) -> dict[str, list[float]]:
    """A few points of what happened in training."""
    places = np.unique(np.linspace(0, len(history) - 1, POINTS).astype(int))
    series = {"novelty": smoothed(history.novelty), "regulariser": smoothed(history.regulariser)}
    if history.bound:
        series |= {"bound": np.array(history.bound), "lambda": np.array(history.lambda_)}
    points = {
        name: [float(f"{values[place]:.4g}") for place in places] for name, values in series.items()
    }
    return {"step": [int(place) + 1 for place in places], **points}


def _stop_if_interrupted(interrupted: bool) -> None:
    """A learner keeps what it has when the user stops it; a cell is whole or not there."""
    if interrupted:
        raise KeyboardInterrupt


def _peak_mib() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (1 << 20 if sys.platform == "darwin" else 1 << 10), 1)
