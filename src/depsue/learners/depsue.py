"""DEPSUE (Eq. 9): K deployments, each constrained by the floor and by the margin earned so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from depsue import rng
from depsue.data.logs import LoggedData
from depsue.diagnostics.drawn_by import observe_deployment
from depsue.errors import (
    is_whole,
    require,
    require_positive,
    require_settings,
    short,
)
from depsue.estimators.weights import novelty_on
from depsue.learners.history import SafelyTrained
from depsue.learners.safe_opg import SafeOpgSettings, train_safe_opg
from depsue.progress import Watch, silent
from depsue.promises import Floor
from depsue.protocols import Environment, Policy
from depsue.rewards import RewardSettings, fit_rewards


@dataclass(frozen=True)
class DepsueSettings:
    """How DEPSUE runs; the defaults are the paper's, but for `when_failed`."""

    deployments: int = 2
    """K."""
    floor: Floor = Floor()
    """C."""
    learner: SafeOpgSettings = field(default_factory=SafeOpgSettings)
    """Safe OPG's settings, the same in every round."""
    rewards: RewardSettings = field(default_factory=RewardSettings)
    """How q-hat is fitted, in each round anew."""
    clip: float | None = None
    """Count V_on(pi_k) as at most clip V_on(pi0) in the margin; the paper's Wiki10 uses 1.05."""
    when_failed: Literal["logging policy", "deploy anyway"] = "logging policy"
    """What is deployed when the bound stays below the need; the paper deploys anyway."""
    model_rows: Literal["S1", "all"] = "S1"
    """The rows that q-hat is fitted on: S1 keeps S2 unseen until the bound reads it; all rows give
    the q-hat of OPG (naive), which the paper says Safe OPG uses, too."""

    def __post_init__(self) -> None:
        require(
            is_whole(self.deployments) and self.deployments >= 1,
            "deployments (K) must be a whole number, at least 1",
            found=short(self.deployments),
            cure="the paper's are 1, 2 and 5",
        )
        if self.clip is not None:
            require_positive(self.clip, "clip", "the paper's for Wiki10 is 1.05; None is no clip")
        require(
            self.when_failed in ("logging policy", "deploy anyway"),
            "when_failed must be 'logging policy' or 'deploy anyway'",
            found=short(self.when_failed),
            cure="'deploy anyway' is the paper's",
        )
        require(
            self.model_rows in ("S1", "all"),
            "model_rows must be 'S1' or 'all'",
            found=short(self.model_rows),
            cure="'S1' keeps the rows of the bound apart",
        )
        require_settings(self.floor, Floor)
        require_settings(self.learner, SafeOpgSettings)
        require_settings(self.rewards, RewardSettings)


@dataclass(frozen=True, eq=False)
class Deployment:
    """The k-th deployment: the need, the bound, and the value and novelty of the policy served.

    Args:
        k: 1 .. K.
        trained: the policy that was learned, its bound V_-(pi_k; D_{k-1}^(S2)), and the need
            C - margin that the bound had to exceed.
        deployed: what was served: that policy, or pi0 where the bound failed.
        floor: C.
        margin: sum over earlier deployments of V_on (clipped) - C.
        novelty: N of what was served, over the contexts of its own logs.
        value: V_on(pi_k; D_k), the mean reward while it was served.
        rows: m_k, decisions served.
    """

    k: int
    trained: SafelyTrained
    deployed: Policy
    floor: float
    margin: float
    novelty: float
    value: float
    rows: int

    @property
    def served(self) -> str:
        """What was served, in words."""
        return "the policy" if self.deployed is self.trained.policy else "pi0"


@dataclass(frozen=True, eq=False)
class DepsueResult:
    """All deployments of a run.

    Args:
        logging_policy: pi0.
        logging_value: V_on(pi0), to which values are compared.
        deployments: those that were served.
        interrupted: True if the user stopped the run; nothing half-trained was deployed.
    """

    logging_policy: Policy
    logging_value: float
    deployments: tuple[Deployment, ...]
    interrupted: bool = False

    @property
    def policy(self) -> Policy:
        """What the last deployment served; pi0 if there was none yet."""
        return self.deployments[-1].deployed if self.deployments else self.logging_policy

    def rows(self) -> list[dict[str, float | int | bool]]:
        """One dict a deployment: k, value, bound, need, floor, margin, novelty, passed, rows."""
        names = ("k", "value", "floor", "margin", "novelty", "rows")
        return [
            {
                **{name: getattr(d, name) for name in names},
                "need": d.trained.need,
                "bound": d.trained.bound.value,
                "passed": d.trained.passed,
            }
            for d in self.deployments
        ]

    def __str__(self) -> str:
        lines = [
            f"{'k':>2} {'margin':>8} {'need':>7} {'bound':>7} {'verdict':>8} "
            f"{'served':>11} {'novelty':>8} {'value':>7} {'floor':>7}"
        ]
        for d in self.deployments:
            verdict = "passed" if d.trained.passed else "failed"
            lines.append(
                f"{d.k:>2} {d.margin:>8.4f} {d.trained.need:>7.4f} {d.trained.bound.value:>7.4f} "
                f"{verdict:>8} {d.served:>11} {d.novelty:>8.3f} {d.value:>7.4f} {d.floor:>7.4f}"
            )
        return "\n".join(lines)


def run_depsue(
    environment: Environment,
    n: int,
    settings: DepsueSettings | None = None,
    *,
    seed: int,
    logs: LoggedData | None = None,
    watch: Watch = silent,
) -> DepsueResult:
    """Learn and deploy pi_1 .. pi_K; later policies may spend the margin that earlier ones earned.

    Eq. 9: pi_k maximises F_k(pi; D_{k-1}^(S1)) subject to::

        V_-(pi_1; D_0^(S2)) > C                                              (k = 1)
        V_-(pi_k; D_{k-1}^(S2)) + sum_{k' < k} V_on(pi_k'; D_k') > k C       (k >= 2)

    The constraint is V_- > need with need = k C - sum V_on = C - margin. Every D_k has n / K rows.
    D_K, the logs of the last policy, only gives the last row of the result.

    Args:
        environment: where policies are deployed.
        n: |D|, the rows that are learned from; D_0 and each deployment have n // K.
        settings: how.
        seed: of weights, minibatches and splits.
        logs: D_0, if it is there already; else pi0 is deployed for it.
        watch: shows progress.
    """
    settings = settings or DepsueSettings()
    require_settings(settings, DepsueSettings)
    m = n // settings.deployments
    require(m >= 1, "there must be a row for each deployment", found=f"{n} rows")
    pi0 = environment.logging_policy
    logs = observe_deployment(environment, pi0, m, 0) if logs is None else logs
    logging_value = logs.mean_reward()
    floor = settings.floor.of(logging_value)
    cap = np.inf if settings.clip is None else settings.clip * logging_value
    deployments: list[Deployment] = []
    for k in range(1, settings.deployments + 1):
        margin = sum(min(d.value, cap) - floor for d in deployments)
        need = floor - margin  # = k C - sum of V_on
        own_seed = rng.derive(seed, "deployment", k)
        s1, s2 = logs.split((0.5, 0.5), salt=f"depsue {own_seed}")
        try:
            rows = s1 if settings.model_rows == "S1" else logs
            model = fit_rewards(
                rows, settings.rewards, seed=own_seed, watch=_prefixed(watch, k, settings)
            )
        except KeyboardInterrupt:  # keep what was served
            return DepsueResult(pi0, logging_value, tuple(deployments), interrupted=True)
        trained = train_safe_opg(
            s1,
            s2,
            model,
            need,
            settings.learner,
            seed=own_seed,
            name=_task(k, settings),
            watch=watch,
        )
        if trained.interrupted:  # nothing half-trained is served
            return DepsueResult(pi0, logging_value, tuple(deployments), interrupted=True)
        as_learned = trained.passed or settings.when_failed == "deploy anyway"
        serve = trained.policy if as_learned else pi0
        logs = observe_deployment(environment, serve, m, k)
        deployments.append(
            Deployment(
                k=k,
                trained=trained,
                deployed=serve,
                floor=floor,
                margin=margin,
                novelty=novelty_on(serve, logs),
                value=logs.mean_reward(),
                rows=len(logs),
            )
        )
    return DepsueResult(pi0, logging_value, tuple(deployments))


def _task(k: int, settings: DepsueSettings) -> str:
    return f"DEPSUE {k}/{settings.deployments}"


def _prefixed(watch: Watch, k: int, settings: DepsueSettings) -> Watch:
    return lambda task, done, total, words: watch(
        f"{_task(k, settings)} {task}", done, total, words
    )
