"""Certified exploration over K deployments: what was shown counts, and margin is spent.

`CampaignState` is what a campaign knows when a round begins, from all rounds before it;
`run_exploration` runs all rounds against an environment.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from depsue import rng
from depsue.certificates import (
    Ceiling,
    CountsReads,
    Credit,
    Folds,
    Reads,
    Served,
    ceiling,
    earned,
    three_folds,
)
from depsue.data.logs import LoggedData, joined
from depsue.diagnostics import DriftReport, check_drift
from depsue.diagnostics.drawn_by import observe_deployment
from depsue.errors import require, require_settings
from depsue.estimators.weights import novelty_on
from depsue.exploration.round import (
    Explored,
    FrozenCandidate,
    RoundInputs,
    certify_round,
    look_ahead,
)
from depsue.exploration.settings import ExploreSettings
from depsue.policies.cached import CachedPolicy, CachedRewardModel
from depsue.progress import Watch, silent
from depsue.protocols import Environment, Policy

CEILING_SHARE = 0.1
"""Share of delta for the ceiling on V(pi0)."""
MARGIN_SHARE = 0.5
"""Share of delta for the margin's confidence sequence."""
DRIFT_DELTA = 0.01
"""How often drift is suspected, over a campaign without any."""


def require_countable(settings: ExploreSettings, logs: LoggedData) -> None:
    """Refuse to count margin where rows belong to units: the promise is then of another mean."""
    require(
        settings.safety == "each" or logs.unit is None,
        "safety='cumulative' counts decisions, and promises with units are means over units",
        found="logs whose rows belong to units",
        cure="safety='each' (--safety each), or leave the unit out where rows are independent",
    )


class CampaignState:
    """The logs of every round so far, and what logged the newest.

    The same calls in the same order give the same state: a campaign is taken up again by telling
    it what happened.

    Args:
        settings: how.
        logging_policy: pi0.
        logs: D_0.
        campaign: its name, the salt of the folds.
        delta: of a first attempt.
        base: the policy that logged D_0, where pi0 is no longer quite that: items were withdrawn.
        stretch: the largest pi0 / base, then.
    """

    def __init__(
        self,
        settings: ExploreSettings,
        logging_policy: Policy,
        logs: LoggedData,
        campaign: str,
        delta: float,
        *,
        base: Policy | None = None,
        stretch: float = 1.0,
    ) -> None:
        require_countable(settings, logs)
        self.settings, self.pi0, self.campaign, self.delta = (
            settings,
            logging_policy,
            campaign,
            delta,
        )
        self.logging_value = logs.mean_reward()
        self.newest, self.stretch = logs, stretch
        self.base = logging_policy if base is None else base
        self.largest = self.largest_ever = stretch
        self.earlier: list[LoggedData] = []
        self.served: list[Served] = []
        self.ceilings: dict[str, Ceiling] = {}
        self.drift: DriftReport | None = None
        self.trust: float | None = None
        self.may_owe: set[str] = set()  # promises that something served without a certificate for

    def inputs(self, decisions: int) -> RoundInputs:
        """What is there when the next round begins; margin is per decision of `decisions`."""
        folds = three_folds(self.newest, self.campaign, self.settings.fractions)
        self._look_for_drift(folds)
        return RoundInputs(
            folds,
            self.pi0,
            self.base,
            tuple(self.earlier),
            dict(self.ceilings),
            self._credits(folds, decisions),
            self.largest,
            self.trust,
        )

    def _look_for_drift(self, folds: Folds) -> None:
        """Ceilings rest on pi0 earning what it did: where that is refuted, rows are paired instead.

        Reads no certifying row and spends no delta: without drift the certificate holds anyway.
        """
        self.drift = None
        relative = [p for p in self.settings.promises if p.name in self.ceilings]
        if not relative:
            return
        self.drift = check_drift(
            self.earlier[0],
            joined([folds.learn, folds.select]),
            logging_policy=self.pi0,
            deployed={folds.round: self.base},
            promises=relative,
            within=False,
            delta=DRIFT_DELTA / (self.settings.deployments - 1),
        )
        if not self.drift.ok:
            self.settings, self.ceilings = replace(self.settings, no_drift=False), {}

    def observe(
        self, served: LoggedData, policy: Policy, *, novelty: float, certified: bool, trust: float
    ) -> None:
        """A deployment was served: its rows are the newest, those before are reused for training.

        Args:
            served: its rows.
            policy: what served.
            novelty: its nu.
            certified: whether it is a certified mixture, not pi0 or the certain level beside it.
            trust: of the round that made it.
        """
        if not self.earlier and self.settings.no_drift:
            promises = self.settings.promises
            share = CEILING_SHARE * self.delta / len(promises)
            folds = three_folds(self.newest, self.campaign, self.settings.fractions)
            others = joined([folds.learn, folds.certify])
            self.ceilings = {
                promise.name: replace(
                    ceiling(promise, others, share, pilot=folds.select), data=self.newest.hash
                )
                for promise in promises
                if promise.floor.ratio is not None
            }
        self.earlier.append(self.newest)
        self.newest, self.base, self.trust = served, policy, trust
        self.served.append(Served(served, len(served)))
        if not certified:  # what is certain, or pi0, keeps relative floors up to 1 only
            ratios = {promise.name: promise.floor.ratio for promise in self.settings.promises}
            self.may_owe |= {name for name, rho in ratios.items() if rho is None or rho > 1}
        pi0_share = max(self.settings.pi0_share, 1e-12) if certified else 1.0
        self.largest = self.stretch / ((1 - novelty) * pi0_share) if novelty < 1 else 1e12
        self.largest_ever = max(self.largest_ever, self.largest)

    def _credits(self, folds: Folds, decisions: int) -> dict[str, Credit]:
        """Margin to spend: of every deployment so far, without the rows of the coming verdict.

        Where none can be shown, the deployment must reach the floor by itself, as all before it
        did: then the sum does, too. Where something served that had no such promise, a debt counts.
        The look has its part of delta either way: what it shows must not decide what it costs.
        """
        if self.settings.safety == "each" or not self.served:
            return {}
        readable = joined([folds.learn, folds.select])
        served = [*self.served[:-1], Served(readable, self.served[-1].decisions)]
        delta = MARGIN_SHARE * self.delta / len(self.settings.promises)
        margins = {
            promise.name: earned(
                promise,
                served,
                decisions=decisions,
                delta=delta,
                ceiling=self.ceilings.get(promise.name),
                logging_policy=self.pi0,
                largest=self.largest_ever,
            )
            for promise in self.settings.promises
        }
        return {
            name: credit if name in self.may_owe else replace(credit, value=max(credit.value, 0.0))
            for name, credit in margins.items()
        }


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
    logs = observe_deployment(environment, pi0, m, 0) if logs is None else logs
    delta = reads.delta_of_attempt(settings.delta_of_deployment, 1)
    state = CampaignState(settings, pi0, logs, campaign, delta)
    deployments: list[Exploration] = []
    remembered: list[CachedPolicy] = []
    for k in range(1, settings.deployments + 1):
        named = _named(watch, f"exploration {k}/{settings.deployments}")
        try:
            inputs, own_seed = state.inputs(m), rng.derive(seed, "exploration", k)
            candidate = look_ahead(inputs, state.settings, seed=own_seed, watch=named).frozen()
            explored = certify_round(candidate, inputs, state.settings, reads=reads, watch=named)
        except KeyboardInterrupt:  # what was served is not lost
            stopped = tuple(deployments)
            return ExplorationResult(pi0, state.logging_value, stopped, interrupted=True)
        served = observe_deployment(environment, explored.policy, m, k)
        deployments.append(
            Exploration(
                k=k,
                explored=explored,
                novelty=novelty_on(explored.policy, served),
                value=served.mean_reward(),
                rows=len(served),
                drift=state.drift,
            )
        )
        state.observe(
            served,
            explored.policy,
            novelty=explored.novelty,
            certified=explored.certified,
            trust=candidate.trust,
        )
        remembered = _forget(candidate, remembered)
    return ExplorationResult(pi0, state.logging_value, tuple(deployments))


def _forget(candidate: FrozenCandidate, remembered: list[CachedPolicy]) -> list[CachedPolicy]:
    """Free the tables of contexts x actions that the next round does not need.

    Returns what remembers the others, to be freed a round later.
    """
    newest = [part for part in candidate.levels.parts if isinstance(part, CachedPolicy)]
    for model in (candidate.model, *(getattr(part.policy, "model", None) for part in newest)):
        if isinstance(model, CachedRewardModel):
            model.forget()
    for part in remembered:
        if not any(part is other for other in newest):
            part.forget()
    return newest


def _named(watch: Watch, task: str) -> Watch:
    """Progress that says of which round it is."""
    return lambda what, done, total, words: watch(f"{task} {what}", done, total, words)
