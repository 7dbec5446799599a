"""Certified exploration over K deployments: what was shown counts, and margin is spent.

`CampaignState` is what a campaign knows when a round begins, from all rounds before it;
`run_exploration` runs all rounds against an environment.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from depsue import rng
from depsue.certificates import (
    Ceiling,
    Credit,
    Folds,
    LoggedRound,
    Reads,
    Registration,
    Served,
    Stake,
    ceiling,
    declared_units,
    earned,
    promised_rows,
    surplus,
    teaching_rows,
    three_folds,
)
from depsue.data.logs import LoggedData, joined
from depsue.diagnostics import DriftReport, check_drift
from depsue.diagnostics.drawn_by import observe_deployment
from depsue.diagnostics.unit_rows import require_testable
from depsue.errors import require, require_settings
from depsue.estimators.weights import novelty_on
from depsue.exploration.assumed import RungReport, check_rung
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
from depsue.promises import Promise
from depsue.protocols import Environment, Policy

CEILING_SHARE = 0.1
"""Share of delta for the ceiling on V(pi0)."""
MARGIN_SHARE = 0.5
"""Share of delta for the margin's confidence sequence."""
NO_DRIFT = "no_drift"
"""The assumption that pi0's value does not change, by its name among what was refuted."""
MOST_PAIRED = 1e6
"""Rows are paired with pi0 up to this pi0 / p; beyond it what logged them kept no share of pi0."""
DRIFT_DELTA = 0.01
"""How often drift is suspected, over a campaign without any."""


def rows_logged(logs: LoggedData) -> int:
    """How many rows there were, those included that were erased since."""
    return len(logs) + sum(erasure.rows for erasure in logs.erased)


def of_pi0(novelty: float, *, certified: bool, pi0_share: float) -> float:
    """The share of pi0 that a policy keeps, which is not quite 0.

    Args:
        novelty: its nu.
        certified: whether it is a certified mixture, not pi0 or the certain level beside it.
        pi0_share: of pi0 in the old part of a certified one.
    """
    return max((1 - min(novelty, 1.0)) * (pi0_share if certified else 1.0), 1e-12)


def require_countable(settings: ExploreSettings, logs: LoggedData) -> None:
    """Refuse to count margin where rows belong to units: the promise is then of another mean."""
    require(
        settings.safety == "each" or logs.unit is None,
        "safety='cumulative' counts decisions, and promises with units are means over units",
        found="logs whose rows belong to units",
        cure="safety='each' (--safety each), or leave the unit out where rows are independent",
    )


def _why_alone(settings: ExploreSettings, logs: LoggedData) -> str:
    """Why verdicts read the newest rows alone, by what was declared; "" if they may pool."""
    if settings.deployments < 3:
        return "the first logs reserve nothing, and there are fewer than three rounds"
    if not settings.no_drift:
        return "it is not declared that nothing drifts (no_drift)"
    if settings.safety != "each":
        return "with safety='cumulative' all rows served are in the account"
    if logs.unit is not None:
        return "rows belong to units, each of which certifies in one verdict anyway"
    return "" if logs.estimating is None else "propensities were estimated"


class CampaignState:
    """The logs of every round so far, and what logged the newest.

    The same calls in the same order give the same state: a campaign is taken up again by telling
    it what happened.

    Args:
        settings: how.
        logging_policy: pi0.
        logs: D_0.
        registration: what its folds hang on.
        delta: of a first attempt.
        campaign: its name, a label.
        base: the policy that logged D_0, where pi0 is no longer quite that: items were withdrawn.
        stretch: the largest pi0 / base, then.
        decisions: of each deployment, as declared when the campaign began; None takes the number
            of rows of D_0.
        refuted: assumptions that an earlier round refuted; they are not rested on again.
        fixed_length: whether the number of rows of D_0 was fixed before their rewards were seen.
        unpooled: why rows of earlier rounds may not be pooled, in words; "" if they may.
    """

    def __init__(
        self,
        settings: ExploreSettings,
        logging_policy: Policy,
        logs: LoggedData,
        registration: Registration,
        delta: float,
        *,
        campaign: str = "",
        base: Policy | None = None,
        stretch: float = 1.0,
        decisions: int | None = None,
        refuted: Iterable[str] = (),
        fixed_length: bool = True,
        unpooled: str = "",
    ) -> None:
        require_countable(settings, logs)
        if declared_units(logs, settings.units) == "all rows":
            require_testable(logging_policy)
        self.settings, self.pi0 = settings, logging_policy
        self.campaign, self.delta = campaign, delta
        self.logging_value = promised_rows(logs, settings.units).mean_reward()
        self.newest, self.registration, self.stretch = logs, registration, stretch
        self.base = logging_policy if base is None else base
        self.largest = self.largest_ever = stretch
        self.earlier: list[LoggedRound] = []
        self.served: list[Served] = []
        self.ceilings: dict[str, Ceiling] = {}
        self.drift: DriftReport | None = None
        self.trust: float | None = None
        self.declared = rows_logged(logs) if decisions is None else decisions
        self.fixed_length = fixed_length
        self.refuted: set[str] = set(refuted)  # what was refuted stays refuted
        self._asked = bool(settings.reserve or settings.reserved or unpooled)
        self._unpooled = unpooled or _why_alone(settings, logs)
        self.rungs: tuple[RungReport, ...] = ()
        if NO_DRIFT in self.refuted:
            self.settings = replace(settings, no_drift=False)
        self._leave_out_refuted()

    def inputs(self, decisions: int) -> RoundInputs:
        """What is there when the next round begins; margin is per decision of `decisions`."""
        folds = self._split()
        self._look_for_drift(folds)
        self._look_at_rungs(folds)
        if folds.reserve != self._reserve(len(self.earlier), self.fixed_length):
            folds = self._split()  # refuted just now: nothing is pooled any more
        poolable = [past for past in self.earlier[1:] if past.fixed_length and folds.reserve]
        return RoundInputs(
            folds,
            self.pi0,
            self.base,
            tuple(self._teaching()),
            self._ceilings_now(),
            self._credits(folds, decisions),
            self.largest,
            self.trust,
            None if self.settings.safety == "each" else self._account,
            # a bound that holds at any time also holds with missing values at their lowest
            fixed_length=self.fixed_length and not folds.erased,
            poolable=tuple(poolable),
            unpooled=tuple(self._words_on_unpooled()),
        )

    def _split(self) -> Folds:
        """The folds of the newest rows."""
        return three_folds(
            self.newest,
            self.registration,
            campaign=self.campaign,
            units=self.settings.units,
            group=self._group,
            reserve=self._reserve(len(self.earlier), self.fixed_length),
        )

    def _reserve(self, served: int, fixed_length: bool) -> float:
        """Share of a round's certifying rows that is reserved, if it ended as declared.

        The first logs reserve nothing: pi0 shows no new item, so later verdicts gain less by its
        rows than the first one loses. Once it is 0 it stays so: rows that were reserved teach from
        then on.

        Args:
            served: the round whose rows they are; 0 is pi0's.
            fixed_length: whether it ended as declared.
        """
        reserves = served > 0 and fixed_length and not self._unpooled
        return self.settings.reserved if reserves else 0.0

    def _words_on_unpooled(self) -> Iterator[str]:
        """Why rows of earlier rounds are not pooled, where a share was to be reserved."""
        if not (self._asked and self.earlier):
            return
        if self._unpooled:
            yield self._unpooled
        elif NO_DRIFT in self.refuted:
            yield "that nothing drifts (no_drift) is refuted"
        elif not self.fixed_length:
            yield "the newest round was ended by choice"
        else:
            served = enumerate(self.earlier[1:], 1)
            ended = [str(k) for k, past in served if not past.fixed_length]
            if ended:
                yield f"those of round {', '.join(ended)}, which was ended by choice"

    @property
    def can_pair(self) -> bool:
        """Whether the newest rows say what pi0 earns beside what logged them."""
        return self.largest <= MOST_PAIRED

    def _ceilings_now(self) -> dict[str, Ceiling]:
        """Ceilings on V(pi0): from the first logs, or the largest reward where nothing else is."""
        if self.ceilings or self.can_pair:
            return dict(self.ceilings)
        return {
            promise.name: Ceiling.of_all(promise, self.newest)
            for promise in self.settings.promises
            if promise.floor.ratio is not None
        }

    @property
    def _group(self) -> tuple[int, int]:
        """(k, K): users come back, so that each is to certify in one round only."""
        k = len(self.earlier) + 1
        return k, max(k, self.settings.deployments)

    def _teaching(self) -> list[LoggedData]:
        """Rows of earlier rounds without those, or the units, of verdicts to come."""
        parts = [
            teaching_rows(
                past.logs, past.registration, self._group, self._reserve(k, past.fixed_length)
            )
            for k, past in enumerate(self.earlier)
        ]
        return [promised_rows(part, self.settings.units) for part in parts if part is not None]

    def _look_at_rungs(self, folds: Folds) -> None:
        """Learn and select rows are held against what was declared; refuting is for good."""
        self.rungs = ()
        if not self.earlier or getattr(self.pi0, "rests_on_choice", False):
            return
        rows, first = joined([folds.learn, folds.select]), self.earlier[0].registration
        reports = [check_rung(rung, rows, self.base, first) for rung in self.settings.assume]
        self.rungs = tuple(report for report in reports if report is not None)
        self.refuted |= {str(report.rung) for report in self.rungs if not report.ok}
        self._leave_out_refuted()

    @property
    def spoken(self) -> tuple[str, ...]:
        """What the newest round says of declared rungs, a sentence each."""
        return tuple(str(report) for report in self.rungs)

    def _leave_out_refuted(self) -> None:
        """A round falls back to the next declared rung, and to nothing in the end."""
        left = tuple(rung for rung in self.settings.assume if str(rung) not in self.refuted)
        if left != self.settings.assume:
            self.settings = replace(self.settings, assume=left)

    def _look_for_drift(self, folds: Folds) -> None:
        """Ceilings and pools rest on pi0 earning what it did; where that is refuted, nothing does.

        Rows are then paired with pi0 instead, and those of the newest round are read alone.

        A policy prefers what happened to earn well in the rows that taught it. On these pi0 seems
        to earn more, on the part that both could show, than it ever does again. So the newest rows
        are held against the certifying fold of the round before, which did not teach the policy
        that logged them. Against all of the first logs, most of which did, only a rise counts:
        what was learned hides one, and never feigns it.

        Reads no certifying row of the coming verdict and spends no delta: without drift the
        certificate holds anyway.
        """
        self.drift = None
        pools = bool(self._reserve(len(self.earlier), fixed_length=True))
        tested = [p for p in self.settings.promises if pools or p.name in self.ceilings]
        if not tested:
            return
        k, readable = len(self.earlier), joined([folds.learn, folds.select])
        before = self.earlier[-1]
        untaught = three_folds(
            before.logs,
            before.registration,
            units=self.settings.units,
            group=(k, max(k, self.settings.deployments)),
            reserve=self._reserve(k - 1, before.fixed_length),
        ).certify
        share = DRIFT_DELTA / (self.settings.deployments - 1)
        looks: list[tuple[LoggedData, bool]] = [(untaught, False)]
        if k > 1:
            looks.append((self._teaching()[0], True))
        reports = [
            check_drift(
                rows,
                readable,
                logging_policy=self.pi0,
                deployed={k - 1: before.policy, folds.round: self.base},
                promises=tested,
                within=False,
                delta=share / len(looks),
                rise_only=rise_only,
            )
            for rows, rise_only in looks
        ]
        self.drift = reports[0] if k == 1 else reports[0].with_other(reports[1])
        if not self.drift.ok:
            self.settings, self.ceilings = replace(self.settings, no_drift=False), {}
            self.refuted.add(NO_DRIFT)

    def observe(
        self,
        served: LoggedData,
        policy: Policy,
        registration: Registration,
        *,
        novelty: float,
        certified: bool,
        trust: float,
        decisions: int | None = None,
        by_pi0: int = 0,
        fixed_length: bool = True,
        pi0_share: float | None = None,
        holdout: float = 0.0,
        pi0_kept: float = 1.0,
    ) -> None:
        """A deployment was served: its rows are the newest, those before are reused for training,
        but for what is reserved for verdicts to come.

        Args:
            served: its rows.
            policy: what drew the rows.
            registration: what the folds of these rows hang on.
            novelty: the share of its new part, at most which pi_old and pi0 give way to.
            certified: whether it is a certified mixture, not pi0 or the certain level beside it.
            trust: of the round that made it.
            decisions: that were served in the round, whoever decided; None is one for each row.
            by_pi0: decisions without a row that pi0 took, as holdout or fallback.
            fixed_length: whether the round ended as was declared when it was deployed.
            pi0_share: of pi0 in the policy's old part; None as the settings now have it.
            holdout: the share of decisions that pi0 took and whose rows are among these: a further
                part of pi0 in what drew them, whatever the policy is.
            pi0_kept: the smallest share of pi0 in any policy that was deployed in the round; more
                than in this one counts as this one's.
        """
        self.earlier.append(
            LoggedRound(self.newest, self.registration, self.base, self.fixed_length)
        )
        if len(self.earlier) == 1 and self.settings.no_drift:
            promises = self.settings.promises
            share = CEILING_SHARE * self.delta / len(promises)
            folds = three_folds(
                self.newest,
                self.registration,
                units=self.settings.units,
                group=(1, self.settings.deployments),
            )
            others = joined([folds.learn, folds.certify])
            erased = sum(erasure.values for erasure in self.newest.erased)
            self.ceilings = {
                promise.name: replace(
                    ceiling(promise, others, share, pilot=folds.select, erased=erased),
                    data=self.newest.hash,
                )
                for promise in promises
                if promise.floor.ratio is not None
            }
        self.newest, self.registration = served, registration
        self.base, self.trust = policy, trust
        total = rows_logged(served) if decisions is None else decisions
        self.fixed_length = fixed_length
        pi0_share = self.settings.pi0_share if pi0_share is None else pi0_share
        own = of_pi0(novelty, certified=certified, pi0_share=pi0_share)
        self.largest = self.stretch / ((1 - holdout) * own + holdout)
        if self.can_pair:
            self.largest_ever = max(self.largest_ever, self.largest)
        self.served.append(
            Served(
                served,
                total,
                fixed_length=fixed_length,
                by_pi0=by_pi0,
                paired=self.can_pair,
                pi0_kept=min(own, pi0_kept) / self.stretch,
            )
        )

    def _credits(self, folds: Folds, decisions: int) -> dict[str, Credit]:
        """The account without the rows of the coming verdict, which count like those beside them.

        A debt is carried as a margin is. The look has its part of delta either way: what it shows
        must not decide what it costs.
        """
        if self.settings.safety == "each" or not self.served:
            return {}
        readable = joined([folds.learn, folds.select])
        newest = replace(self.served[-1], logs=readable, unread=len(folds.certify))
        served = [*self.served[:-1], newest]
        return {
            promise.name: self._earned(promise, served, decisions)
            for promise in self.settings.promises
        }

    def _account(self, fixed: Mapping[str, Credit]) -> dict[str, Credit]:
        """The account at the verdict: of all rows served.

        Where a credit takes the certifying rows to have earned a fixed sum, it stays as it was
        fixed, and their own sum is put beside it.
        """
        promises = {promise.name: promise for promise in self.settings.promises}
        certify = three_folds(self.newest, self.registration, campaign=self.campaign).certify
        credits = {}
        for name, credit in fixed.items():
            if credit.fewest is not None:
                credits[name] = replace(credit, surplus=surplus(promises[name], certify))
            else:
                credits[name] = self._earned(promises[name], self.served, credit.decisions)
        return credits

    def _earned(self, promise: Promise, served: Sequence[Served], decisions: int) -> Credit:
        """What a promise's account shows."""
        delta = MARGIN_SHARE * self.delta / len(self.settings.promises)
        rows = self.declared * len(served)
        return earned(
            promise,
            served,
            decisions=decisions,
            delta=delta,
            ceiling=self.ceilings.get(promise.name),
            logging_policy=self.pi0,
            largest=self.largest_ever,
            stake=Stake.of(promise, self.earlier[0].logs, rows, delta),
        )


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
        rungs: what the round before said of declared rungs.
    """

    k: int
    explored: Explored
    novelty: float
    value: float
    rows: int
    drift: DriftReport | None = None
    rungs: tuple[RungReport, ...] = ()


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
            lines += [f"   before {d.k}: {report}" for report in d.rungs]
        return "\n".join(lines)


def run_exploration(
    environment: Environment,
    n: int,
    settings: ExploreSettings | None = None,
    *,
    seed: int,
    campaign: str = "exploration",
    logs: LoggedData | None = None,
    reads: Reads | None = None,
    watch: Watch = silent,
) -> ExplorationResult:
    """Learn, certify and deploy K policies; D_0 and each deployment have n // K rows.

    Args:
        environment: where policies are deployed.
        n: rows in all.
        settings: how.
        seed: of the reward models, and of the folds' secret where no `reads` are given.
        campaign: its name, a label.
        logs: D_0, if it is there already; else pi0 is deployed for it.
        reads: registers logs and counts verdicts; None does so in memory.
        watch: shows progress.
    """
    settings = settings or ExploreSettings()
    require_settings(settings, ExploreSettings)
    m = n // settings.deployments
    require(m >= 1, "there must be a row for each deployment", found=f"{n} rows")
    pi0 = environment.logging_policy
    reads = Reads(secret=rng.secret(seed, "exploration")) if reads is None else reads
    logs = observe_deployment(environment, pi0, m, 0) if logs is None else logs
    first = reads.register(logs, settings.fractions)
    delta = reads.delta_of_attempt(settings.delta_of_deployment, 1)
    state = CampaignState(settings, pi0, logs, first, delta, campaign=campaign)
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
                rungs=state.rungs,
            )
        )
        state.observe(
            served,
            explored.policy,
            reads.register(served, settings.fractions, first=first),
            novelty=explored.choice.part,
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
