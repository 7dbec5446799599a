"""Certified exploration over K deployments: what was shown counts, and margin is spent."""

from __future__ import annotations

from dataclasses import dataclass

from depsue import rng
from depsue.certificates import CountsReads, DriftReport, Reads
from depsue.data.logs import LoggedData
from depsue.errors import require, require_settings
from depsue.learners.course import Course
from depsue.learners.depsue import novelty_on, observed
from depsue.learners.explore_settings import ExploreSettings
from depsue.learners.exploring import Explored, settle
from depsue.learners.prepare import Prepared, prepare
from depsue.policies.memory import Remembered, Remembering
from depsue.progress import Watch, silent
from depsue.protocols import Environment, Policy


@dataclass(frozen=True, eq=False)
class Exploration:
    """One deployment of certified exploration.

    Args:
        k: 1 .. K.
        explored: the policy, its certificate, and why.
        novelty: N of what was served, over the contexts of its own logs.
        value: the mean reward while it was served.
        rows: decisions served.
        drift: whether `no_drift` was refuted before this deployment; None where it was not asked.
    """

    k: int
    explored: Explored
    novelty: float
    value: float
    rows: int
    drift: DriftReport | None = None


@dataclass(frozen=True, eq=False)
class ExplorationResult:
    """All deployments of a run.

    Args:
        logging_policy: pi0.
        logging_value: the mean reward of pi0's logs.
        deployments: those that were served.
        interrupted: True if the user stopped the run.
    """

    logging_policy: Policy
    logging_value: float
    deployments: tuple[Exploration, ...]
    interrupted: bool = False

    @property
    def policy(self) -> Policy:
        """What the last deployment served; pi0 if there was none yet."""
        if not self.deployments:
            return self.logging_policy
        return self.deployments[-1].explored.policy

    def __str__(self) -> str:
        lines = [f"{'k':>2} {'novelty':>8} {'value':>7}  why"]
        for d in self.deployments:
            lines.append(f"{d.k:>2} {d.novelty:>8.3f} {d.value:>7.4f}  {d.explored.why}")
            if d.drift is not None and not d.drift.ok:
                lines.append(f"   drift before {d.k}: {d.drift.findings[0]}")
                lines.append("   earlier certificates that rest on `no_drift` are refuted with it")
        return "\n".join(lines)


def run_exploration(
    environment: Environment,
    n: int,
    settings: ExploreSettings | None = None,
    *,
    seed: int,
    campaign: str = "exploration",
    logs: LoggedData | None = None,
    reads: CountsReads | None = None,
    watch: Watch = silent,
) -> ExplorationResult:
    """Learn, certify and deploy K policies; D_0 and each deployment have n // K rows.

    Args:
        environment: where policies are deployed.
        n: rows in all.
        settings: how.
        seed: of the reward models.
        campaign: its name, the salt of the folds.
        logs: D_0, if it is there already; else pi0 is deployed for it.
        reads: counts verdicts; None counts in memory.
        watch: shows progress.
    """
    settings = settings or ExploreSettings()
    require_settings(settings, ExploreSettings)
    m = n // settings.deployments
    require(m >= 1, "there must be a row for each deployment", found=f"{n} rows")
    pi0 = environment.logging_policy
    reads = Reads() if reads is None else reads
    logs = observed(environment, pi0, m, 0) if logs is None else logs
    course = Course(settings, pi0, logs, campaign, reads.level(settings.level, 1))
    deployments: list[Exploration] = []
    remembered: list[Remembered] = []
    for k in range(1, settings.deployments + 1):
        named = _named(watch, f"exploration {k}/{settings.deployments}")
        try:
            before = course.before(m)
            of_round = rng.derive(seed, "exploration", k)
            prepared = prepare(before, course.settings, seed=of_round, watch=named)
            explored = settle(prepared, before, course.settings, reads=reads, watch=named)
        except KeyboardInterrupt:  # what was served is not lost
            stopped = tuple(deployments)
            return ExplorationResult(pi0, course.logging_value, stopped, interrupted=True)
        served = observed(environment, explored.policy, m, k)
        deployments.append(
            Exploration(
                k=k,
                explored=explored,
                novelty=novelty_on(explored.policy, served),
                value=served.mean_reward(),
                rows=len(served),
                drift=course.drift,
            )
        )
        course.observe(
            served,
            explored.policy,
            novelty=explored.novelty,
            certified=explored.certified,
            trust=prepared.trust,
        )
        remembered = _forget(prepared, remembered)
    return ExplorationResult(pi0, course.logging_value, tuple(deployments))


def _forget(prepared: Prepared, remembered: list[Remembered]) -> list[Remembered]:
    """Free the tables of contexts x actions that the next round does not need.

    Returns what remembers the others, to be freed a round later.
    """
    newest = [part for part in prepared.levels.parts if isinstance(part, Remembered)]
    for model in (prepared.model, *(getattr(part.policy, "model", None) for part in newest)):
        if isinstance(model, Remembering):
            model.forget()
    for part in remembered:
        if not any(part is one for one in newest):
            part.forget()
    return newest


def _named(watch: Watch, task: str) -> Watch:
    """Progress that says of which round it is."""
    return lambda what, done, total, words: watch(f"{task} {what}", done, total, words)
