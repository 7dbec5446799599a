"""Certified exploration over K deployments: what was shown counts, and margin is spent."""

from __future__ import annotations

from dataclasses import dataclass, replace

from depsue import rng
from depsue.certificates import (
    Ceiling,
    CountsReads,
    Credit,
    DriftReport,
    Folds,
    Reads,
    Served,
    ceiling,
    check_drift,
    earned,
    three_folds,
)
from depsue.data.joined import joined
from depsue.data.logs import LoggedData
from depsue.errors import require, require_settings
from depsue.learners.depsue import novelty_on, observed
from depsue.learners.explore_settings import ExploreSettings
from depsue.learners.exploring import Explored, settle
from depsue.learners.prepare import Before, prepare
from depsue.progress import Watch, silent
from depsue.protocols import Environment, Policy

CEILING_SHARE = 0.1
"""Share of delta for the ceiling on V(pi0)."""
MARGIN_SHARE = 0.5
"""Share of delta for the margin's confidence sequence."""
DRIFT_LEVEL = 0.01
"""How often drift is suspected, over a campaign without any."""


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
    run = _Run(settings, pi0, logs, campaign, m, reads.level(settings.level, 1))
    deployments: list[Exploration] = []
    for k in range(1, settings.deployments + 1):
        try:
            explored = run.round(k, reads, rng.derive(seed, "exploration", k), watch)
        except KeyboardInterrupt:  # what was served is not lost
            return ExplorationResult(pi0, run.logging_value, tuple(deployments), interrupted=True)
        served = observed(environment, explored.policy, m, k)
        deployments.append(
            Exploration(
                k=k,
                explored=explored,
                novelty=novelty_on(explored.policy, served),
                value=served.mean_reward(),
                rows=len(served),
                drift=run.drift,
            )
        )
        run.observe(served, explored)
    return ExplorationResult(pi0, run.logging_value, tuple(deployments))


class _Run:
    """What is known so far: the logs of every round, and what logged the newest."""

    def __init__(
        self,
        settings: ExploreSettings,
        pi0: Policy,
        logs: LoggedData,
        campaign: str,
        m: int,
        level: float,
    ) -> None:
        self.settings, self.pi0, self.campaign, self.m = settings, pi0, campaign, m
        self.level = level  # delta of a first attempt
        self.logging_value = logs.mean_reward()
        self.newest, self.base, self.largest = logs, pi0, 1.0
        self.largest_ever = 1.0
        self.earlier: list[LoggedData] = []
        self.served: list[Served] = []
        self.ceilings: dict[str, Ceiling] = {}
        self.drift: DriftReport | None = None
        self.trust: float | None = None

    def round(self, k: int, reads: CountsReads, seed: int, watch: Watch) -> Explored:
        folds = three_folds(self.newest, self.campaign, self.settings.fractions)
        self._look_for_drift(folds)
        task = f"exploration {k}/{self.settings.deployments}"

        def named(what: str, done: int, total: int, words: str) -> None:
            watch(f"{task} {what}", done, total, words)

        before = Before(
            folds,
            self.pi0,
            self.base,
            self.earlier,
            self.ceilings,
            self._credits(folds),
            self.largest,
            self.trust,
        )
        prepared = prepare(before, self.settings, seed=seed, watch=named)
        return settle(prepared, before, self.settings, reads=reads, watch=named)

    def _look_for_drift(self, folds: Folds) -> None:
        """Ceilings rest on pi0 earning what it did: where that is refuted, rows are paired instead.

        Reads no certifying row and spends no delta: without drift the certificate holds anyway.
        """
        self.drift = None
        relative = [one for one in self.settings.promises if one.name in self.ceilings]
        if not relative:
            return
        self.drift = check_drift(
            self.earlier[0],
            joined([folds.learn, folds.select]),
            logging_policy=self.pi0,
            deployed={folds.round: self.base},
            promises=relative,
            within=False,
            level=DRIFT_LEVEL / (self.settings.deployments - 1),
        )
        if not self.drift.ok:
            self.settings, self.ceilings = replace(self.settings, no_drift=False), {}

    def observe(self, served: LoggedData, explored: Explored) -> None:
        """A deployment was served: its rows are the newest, the last ones serve learning."""
        if not self.earlier and self.settings.no_drift:
            promises = self.settings.promises
            share = CEILING_SHARE * self.level / len(promises)
            self.ceilings = {
                one.name: ceiling(one, self.newest, share)
                for one in promises
                if one.floor.ratio is not None
            }
        self.earlier.append(self.newest)
        self.newest, self.base, self.trust = served, explored.policy, explored.prepared.trust
        self.served.append(Served(served, len(served)))
        if explored.policy is self.pi0:
            self.largest = 1.0
        elif explored.certified:
            kept = max(self.settings.kept, 1e-12)
            self.largest = 1 / ((1 - explored.novelty) * kept) if explored.novelty < 1 else 1e12
        else:
            self.largest = 1 / (1 - explored.novelty)
        self.largest_ever = max(self.largest_ever, self.largest)

    def _credits(self, folds: Folds) -> dict[str, Credit]:
        """Margin to spend: of every deployment so far, without the rows of the coming verdict.

        Where none can be shown, the deployment must reach the floor by itself, as all before it
        did: then the sum does, too.
        """
        if self.settings.safety == "each" or not self.served:
            return {}
        readable = joined([folds.learn, folds.select])
        served = [*self.served[:-1], Served(readable, self.served[-1].decisions)]
        delta = MARGIN_SHARE * self.level / len(self.settings.promises)
        found = {
            one.name: earned(
                one,
                served,
                decisions=self.m,
                delta=delta,
                ceiling=self.ceilings.get(one.name),
                logging_policy=self.pi0,
                largest=self.largest_ever,
            )
            for one in self.settings.promises
        }
        return {name: credit for name, credit in found.items() if credit.value > 0}
