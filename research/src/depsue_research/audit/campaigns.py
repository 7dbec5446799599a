"""Whole campaigns in hostile worlds: K rounds by the rules, every certificate held to the truth.

Each replication draws a world. A campaign learns, freezes, certifies and serves as
`run_exploration` does (`CampaignState`, `look_ahead`, `certify_round`), with a table of means for a
reward model. Between rounds the world changes, or whoever serves does not do what was declared.
Truth: `each` promises the value of the certified policy; `cumulative` the sum over all that was
really served, with all declared decisions of the coming round (with an absolute floor: what was
realised so far plus what is expected).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast

import numpy as np

from depsue import rng
from depsue.certificates import (
    Ceiling,
    LoggedRound,
    Reads,
    Registration,
    Rules,
    pooled,
    teaching_rows,
    three_folds,
)
from depsue.data.catalogue import Catalogue
from depsue.data.checks import FloatArray, read_only
from depsue.data.logs import LoggedData, joined
from depsue.errors import DepsueError
from depsue.exploration.round import RoundInputs, certified_policy, certify_round, look_ahead
from depsue.exploration.rounds import CampaignState
from depsue.exploration.settings import ExploreSettings
from depsue.policies import OwnPolicy, ScoreTable
from depsue.promises import Floor, Promise
from depsue.protocols import Policy
from depsue.rewards import OwnRewardModel
from depsue_research.audit.answers import DELTA, Answer, Group, Key, Outcome, Trial, judged
from depsue_research.audit.verdicts import alone, answered
from depsue_research.audit.worlds import MISS, NOVEL, RHO, NearMissWorld, near_miss_world

ROWS = 4000
"""Of the first logs, and of each round as it is declared."""
FOLDS = (0.25, 0.15, 0.6)
STEADY = 5.0
"""Rows for which the mean of all counts in the mean of a pair of context and action."""
SLACK = 1e-9
"""Rounding, in units of the largest reward."""

Change = Callable[[NearMissWorld, int], NearMissWorld]
"""The world as round k finds it."""


@dataclass(frozen=True, eq=False)
class Serving:
    """What is done while a round serves, other than was declared.

    Args:
        decisions: how many are served, as a multiple of what was declared.
        looks: somebody looks so often, and ends the round when its rewards look best.
        called_fixed: such a round is said to have ended as declared.
    """

    decisions: int = 1
    looks: int = 0
    called_fixed: bool = False


def as_declared(k: int) -> Serving:
    """Nothing else."""
    return Serving()


@dataclass(eq=False)
class Play:
    """One campaign under way, and what is true of it.

    Args:
        world: as it was at first.
        settings: of the campaign.
        draw: draws rows.
        change: the world as a round finds it.
        serving: what is done in round k.
        forget: what the tempting rule forgets before a round is certified.
        rows: of the first logs, and of each round as it is declared.
    """

    world: NearMissWorld
    settings: ExploreSettings
    draw: np.random.Generator
    change: Change = lambda world, k: world
    serving: Callable[[int], Serving] = as_declared
    forget: Callable[[CampaignState, RoundInputs], RoundInputs] = lambda state, inputs: inputs
    rows: int = ROWS
    sums: list[tuple[float, float, int]] = field(default_factory=list)
    """By round: V(pi) and V(pi0) when it served, and decisions."""
    realised: float = 0.0

    def run(self) -> list[Answer]:
        """What came of the certificate of every round."""
        pi0 = self.world.policy(self.world.pi0)
        reads = Reads(secret=rng.secret(0, "campaigns"))
        logs = self.world.deploy(pi0, self.rows, self.draw, 0)
        first = reads.register(logs, FOLDS)
        state = CampaignState(self.settings, pi0, logs, first, DELTA)
        answers: list[Answer] = []
        for k in range(1, self.settings.deployments + 1):
            try:
                answer, policy, novelty, certified, trust = self._round(state, reads, k)
            except DepsueError:  # what is refused ends the campaign; pi0 goes on serving
                left: list[Answer] = ["refused"] * (self.settings.deployments + 1 - k)
                return [*answers, *left]
            answers.append(answer)
            self._serve(state, reads, first, k, policy, novelty, certified, trust)
        return answers

    def _round(
        self, state: CampaignState, reads: Reads, k: int
    ) -> tuple[Answer, Policy, float, bool, float]:
        inputs = self.forget(state, state.inputs(self.rows))
        world = self.change(self.world, k - 1)  # that of the rows that certify
        seed = int(self.draw.integers(2**31))
        prospect = look_ahead(inputs, state.settings, seed=seed, fit=partial(table_of, world))
        candidate = prospect.frozen()
        explored = certify_round(candidate, inputs, state.settings, reads=reads)
        answer: Answer = "failed"
        if explored.certificate.passed:
            policy = certified_policy(explored.certificate, candidate)
            answer = judged(True, true=self.keeps(world, policy))
        return (
            answer,
            explored.policy,
            explored.novelty,
            explored.certified,
            candidate.trust,
        )

    def keeps(self, world: NearMissWorld, policy: Policy) -> bool:
        """Whether what a certificate of this policy promises is true."""
        value = float(world.value(world.distribution(policy)))
        base = float(world.value(world.pi0))
        [promise] = self.settings.promises
        floor = promise.floor
        need = floor.of(base) if floor.ratio is not None else floor.of(0.0)
        if self.settings.safety == "each":
            return value >= need - SLACK
        if floor.ratio is None:
            served = sum(n for _, _, n in self.sums)
            return self.realised - served * need + self.rows * (value - need) >= -SLACK * self.rows
        so_far = sum(n * (v - floor.of(v0)) for v, v0, n in self.sums)
        return so_far + self.rows * (value - need) >= -SLACK * self.rows

    def _serve(
        self,
        state: CampaignState,
        reads: Reads,
        first: Registration,
        k: int,
        policy: Policy,
        novelty: float,
        certified: bool,
        trust: float,
    ) -> None:
        world, how = self.change(self.world, k), self.serving(k)
        logs = world.deploy(policy, self.rows * how.decisions, self.draw, k)
        if how.looks:
            logs = _ended_at_its_best(logs, how.looks)
        pi = world.distribution(policy)
        self.sums.append((float(world.value(pi)), float(world.value(world.pi0)), len(logs)))
        self.realised += float(logs.reward.sum())
        state.observe(
            logs,
            policy,
            reads.register(logs, FOLDS, first=first),
            novelty=novelty,
            certified=certified,
            trust=trust,
            fixed_length=how.called_fixed or (how.looks == 0 and how.decisions == 1),
        )


def _ended_at_its_best(logs: LoggedData, looks: int) -> LoggedData:
    """The rows up to the look, after a quarter of them, at which their mean reward was largest."""
    ends = np.linspace(len(logs) // 4, len(logs), looks).astype(int)
    means = np.cumsum(logs.reward)[ends - 1] / ends
    return logs.take(np.arange(int(ends[means.argmax()])))


def table_of(world: NearMissWorld, rows: LoggedData) -> OwnRewardModel:
    """The mean reward of every pair of context and action, drawn to the mean of all."""
    shape = world.q.shape
    place = rows.contexts[rows.context, 0].astype(np.int64) * shape[1] + rows.action
    shown = np.bincount(place, minlength=shape[0] * shape[1])
    earned = np.bincount(place, rows.reward, minlength=shape[0] * shape[1])
    q = (earned + STEADY * rows.mean_reward()) / (shown + STEADY)
    return OwnRewardModel(ScoreTable(world.contexts, q.reshape(shape)), shape[1])


def settings_for(**more: Any) -> ExploreSettings:
    """Two deployments that show as much as they may."""
    plain = ExploreSettings(
        delta=DELTA,
        deployments=2,
        objective="most novelty",
        max_novelty=0.5,
        fractions=FOLDS,
    )
    return replace(plain, **more)


def novel_worth(world: NearMissWorld, share: float, draw: np.random.Generator) -> NearMissWorld:
    """The world with new items that are worth this share of the others, on average."""
    q, known = np.array(world.q), float(world.q[world.pi0 > 0].mean())
    q[:, -NOVEL:] = draw.uniform(0, 2 * share * known, (len(q), NOVEL))
    return replace(world, q=read_only(q))


MODES: dict[str, dict[str, Any]] = {
    "each": {},
    "each, no_drift": {"no_drift": True},
    "each, no_drift, pooled": {"no_drift": True, "deployments": 3, "reserve": 0.3},
    "cumulative": {"safety": "cumulative"},
    "cumulative, no_drift": {"safety": "cumulative", "no_drift": True},
    "cumulative, absolute floor": {"safety": "cumulative"},
}
"""What is promised, and whether `no_drift` is declared, which is true unless a trial drifts."""


def new_items(kind: str, share: float, modes: Sequence[str], rows: int = ROWS) -> Trial:
    """Campaigns in worlds of a kind, whose new items are worth a share of the others."""

    def trial(draw: np.random.Generator) -> Outcome:
        out: dict[Key, Answer] = {}
        world = near_miss_world(kind, draw)
        world = novel_worth(world, share, draw) if share else world
        words = {0.0: "worthless", 0.5: "lucky"}[share]
        name = f"campaigns, {words} new items" + ("" if kind == BASE else f", {kind}")
        for mode in modes:
            settings = settings_for(**MODES[mode])
            if "absolute" in mode:
                settings = replace(settings, promises=(Promise(Floor(None, world.floor)),))
            play = Play(world, settings, draw, rows=rows)
            out |= by_round("strict", f"{name}, {mode}", play.run())
        return out

    return trial


BASE = "plain"


def by_round(group: Group, kind: str, answers: Sequence[Answer]) -> dict[Key, Answer]:
    """The answers of a campaign, each by its round."""
    return {(group, kind, f"round {k}"): answer for k, answer in enumerate(answers, start=1)}


def drifting(world: NearMissWorld, k: int, factors: Sequence[float]) -> NearMissWorld:
    """What pi0 likes best in each context earns so much more or less in the rows of round k."""
    q = np.array(world.q)
    best = world.pi0 >= np.median(world.pi0[:, :-NOVEL], axis=1, keepdims=True)
    q[best] *= factors[min(k, len(factors) - 1)]
    return replace(world, q=read_only(np.minimum(q, 1.0)))


def late_drift(draw: np.random.Generator) -> Outcome:
    """`no_drift` is declared, and what pi0 earns changes in the rows of round 1.

    It falls by 40%, or rises by 60% and stays 25% above what it was from then on.
    """
    out: dict[Key, Answer] = {}
    world = near_miss_world(BASE, draw)
    settings = settings_for(no_drift=True, deployments=3)
    for words, factors in (("falls", (1.0, 0.6)), ("rises", (1.0, 1.6, 1.25))):
        change = partial(drifting, factors=factors)
        answers = Play(world, settings, draw, change).run()
        out |= by_round("strict", f"campaigns, late drift, pi0's value {words}", answers)
    tempting = Forgetting(world, settings, draw, partial(drifting, factors=(1.0, 1.6, 1.25)))
    key: Key = (
        "tempting",
        "campaigns, late drift, pi0's value rises, used after it was refuted",
        "round 3",
    )
    out[key] = tempting.run()[2]
    return out


@dataclass(eq=False)
class Forgetting(Play):
    """A campaign that uses the ceiling of the first logs again after it was refuted."""

    ceilings: Mapping[str, Ceiling] = field(default_factory=dict)

    def _round(
        self, state: CampaignState, reads: Reads, k: int
    ) -> tuple[Answer, Policy, float, bool, float]:
        if k == 2:
            self.ceilings = dict(state.ceilings)
        if k == 3:
            self.forget = lambda state, inputs: replace(inputs, ceilings=self.ceilings)
            state.settings = replace(state.settings, no_drift=True)
        return super()._round(state, reads, k)


def ended_at_will(draw: np.random.Generator) -> Outcome:
    """Every round is ended when its rewards look best, in 20 looks."""
    out: dict[Key, Answer] = {}
    world = near_miss_world(BASE, draw)
    for mode in ("each", "cumulative, no_drift"):
        settings = settings_for(**MODES[mode])
        play = Play(world, settings, draw, serving=lambda k: Serving(looks=20))
        out |= by_round("strict", f"campaigns, rounds ended by choice, {mode}", play.run())
    return out


def too_much_served(draw: np.random.Generator) -> Outcome:
    """In each round three times the declared decisions are served, and all are observed."""
    out: dict[Key, Answer] = {}
    world = near_miss_world(BASE, draw)
    for words, promise in (
        ("relative", Promise(Floor(RHO))),
        ("absolute", Promise(Floor(None, world.floor))),
    ):
        settings = settings_for(promises=(promise,), safety="cumulative")
        play = Play(world, settings, draw, serving=lambda k: Serving(decisions=3))
        kind = f"campaigns, three times the declared decisions, {words} floor"
        out |= by_round("strict", kind, play.run())
    return out


DEBT_ROWS, BELOW = 6000, 0.09
"""Decisions of the round that leaves a debt, ten times the first logs; how far below its floor."""


def debts(draw: np.random.Generator) -> Outcome:
    """After ten times the declared decisions below the floor: does the next round know of it?

    The next policy is above its floor by 0.1% less than the debt asks for.
    """
    world, n = near_miss_world(BASE), DEBT_ROWS
    base = float(world.value(world.pi0))
    tilt = world.tilt(rng.generator(0, "debts"), strength=1.0, noise=0.0)
    half = 0.5 * world.pi0 + 0.5 * tilt
    bad = world.mixed(half, (1 - BELOW) * world.floor)
    target = world.floor + BELOW * world.floor - MISS * world.floor
    good = world.mixed(half, target)
    pi0, next_one = world.policy(world.pi0), world.policy(good)
    kinds: dict[str, tuple[Floor, bool]] = {
        "absolute floor": (Floor(None, world.floor), False),
        "relative floor, no_drift": (Floor(RHO), True),
        "relative floor, paired": (Floor(RHO), False),
    }
    first = world.logs(world.pi0, n // 10, draw)
    second = world.logs(bad, n, draw, 1)
    reads = Reads(secret=rng.secret(0, "debts"))
    registered = reads.register(first, FOLDS)
    then = reads.register(second, FOLDS, first=registered)
    out: dict[Key, Answer] = {}
    for kind, (floor, no_drift) in kinds.items():
        promise = Promise(floor)
        settings = settings_for(
            promises=(promise,), safety="cumulative", no_drift=no_drift, keep=0.4
        )
        state = CampaignState(settings, pi0, first, registered, DELTA)
        novelty = float(bad[:, world.catalogue.novel].sum(axis=1).mean())
        state.observe(second, world.policy(bad), then, novelty=novelty, certified=True, trust=1.0)
        inputs = state.inputs(n)
        # the ceiling of a few first rows is far too high; pi0's own value is what is at stake
        ceilings = {name: Ceiling(base, top.delta, 1, "") for name, top in inputs.ceilings.items()}
        state.ceilings = ceilings
        rules = Rules(
            (promise,),
            DELTA,
            clip=world.clip,
            credits=inputs.credits,
            ceilings=ceilings,
            largest=inputs.largest,
        )
        realised = float(second.reward.sum()) + n * target
        true = floor.ratio is None and realised >= 2 * n * world.floor
        levels = alone(next_one)
        answer = partial(answered, levels, inputs.folds, logging_policy=pi0, true=true)
        out["strict", "debts, ten times the declared decisions", kind] = answer(
            rules=rules, account=inputs.account
        )
        forgotten = {
            name: replace(credit, value=0.0, fewest=None) for name, credit in inputs.credits.items()
        }
        out["tempting", "debts forgotten", kind] = answer(rules=replace(rules, credits=forgotten))
    return out


KINDS_OF_USERS, POOLED_ROWS, POOLED_ROUNDS, RESERVE, SERVED = 1000, 4000, 3, 0.5, 0.5
"""Of pooled verdicts: contexts, rows of a round, K, what is reserved, and how far served policies
follow what was learned."""
TWO_OLD = Catalogue.of(range(3), novel=[2])
USERS = read_only(np.arange(KINDS_OF_USERS, dtype=np.float32)[:, None])


def _alike(pi: FloatArray, draw: np.random.Generator, k: int) -> LoggedData:
    """Rows of round k, whose reward knows nothing of what was shown."""
    context = draw.integers(KINDS_OF_USERS, size=POOLED_ROWS)
    action = (draw.random(POOLED_ROWS) >= pi[context, 0]).astype(np.int32)
    return LoggedData(
        catalogue=TWO_OLD,
        contexts=USERS,
        context=context.astype(np.int32),
        action=action,
        reward=(draw.random(POOLED_ROWS) < 0.5).astype(np.float64),
        propensity=pi[context, action],
        r_max=1.0,
        round=np.full(POOLED_ROWS, k, dtype=np.int16),
    )


def _liked(rows: LoggedData) -> FloatArray:
    """(u, 3) the old item that rows liked best in each context."""
    sums = np.full((KINDS_OF_USERS, 2), 0.5)
    kind = rows.contexts[rows.context, 0].astype(np.int64)
    np.add.at(sums, (kind, rows.action), rows.reward - 0.5)
    return np.asarray(np.eye(3)[sums.argmax(axis=1)])


def pooled_verdicts(draw: np.random.Generator) -> Outcome:
    """Every round learns by heart what it may read, and its verdict pools what was reserved.

    Old items are all worth the same, so whatever was learned misses the floor by 0.1%. Policies
    that serve follow what was learned, so that rounds were logged by policies which rows made.
    """
    policy = partial(_own, TWO_OLD)
    even, old = np.full((KINDS_OF_USERS, 3), [0.5, 0.5, 0.0]), (1 - MISS) * RHO
    reads = Reads(secret=rng.secret(int(draw.integers(2**31)), "pooled verdicts"))
    served, logs = policy(even), _alike(even, draw, 0)
    first = registration = reads.register(logs, FOLDS)
    earlier: list[LoggedRound] = []
    out: dict[Key, Answer] = {}
    for k in range(1, POOLED_ROUNDS + 1):
        group = (k, POOLED_ROUNDS)
        folds = three_folds(logs, registration, group=group, reserve=RESERVE)
        known = [teaching_rows(p.logs, p.registration, group, RESERVE) for p in earlier]
        rules_learned = {
            ("strict", "pooled slices, learned by heart"): [r for r in known if r is not None],
            ("tempting", "pooled slices that taught"): [past.logs for past in earlier],
        }
        pool = pooled(folds, served, earlier)
        tested = folds if pool is None else pool.folds
        for (group_name, kind), rows in rules_learned.items():
            best = old * _liked(joined([*rows, folds.learn]))
            best[:, 2] = 1 - old
            rules = Rules((Promise(Floor(None, 0.5 * RHO)),), DELTA, "normal", clip=4.0)
            if k > 1:
                answer = answered(alone(policy(best)), tested, rules)
                out[cast(Group, group_name), kind, f"round {k}"] = answer
            if group_name == "strict":
                learned = best
        earlier.append(LoggedRound(logs, registration, served))
        follows = (1 - SERVED) * even + SERVED * learned / old * np.array([1.0, 1.0, 0.0])
        served, logs = policy(follows), _alike(follows, draw, k)
        registration = reads.register(logs, FOLDS, first=first)
    return out


def _own(catalogue: Catalogue, pi: FloatArray) -> OwnPolicy:
    return OwnPolicy(ScoreTable(USERS, pi), len(catalogue))


VERDICTS: dict[str, Trial] = {"debts": debts, "pooled": pooled_verdicts}
"""Cheap enough for as many replications as one-shot verdicts."""

TRIALS: dict[str, Trial] = {
    "worthless": new_items(BASE, 0.0, [mode for mode in MODES if "pooled" not in mode]),
    "lucky": new_items(BASE, 0.5, ["each", "cumulative, no_drift"]),
    "rare rewards, campaigns": new_items("rare rewards", 0.0, ["each, no_drift"], 20_000),
    "heavy weights, campaigns": new_items("heavy weights", 0.0, ["each", "cumulative, no_drift"]),
    "pooled campaigns": new_items(BASE, 0.0, ["each, no_drift, pooled"]),
    "pooled campaigns, heavy weights": new_items("heavy weights", 0.5, ["each, no_drift, pooled"]),
    "late drift": late_drift,
    "ended at will": ended_at_will,
    "too much served": too_much_served,
}
"""Each plays campaigns in a world of its own and says what came of every certificate."""
