"""One-shot certificates by the rules, as a user would ask for them; and without a rule.

Every candidate misses its floor by 0.1%, so every certificate is an error, unless a trial says
otherwise. Bounds, floors, promises, levels, sorted files, retries, looks, margins and controls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial

import numpy as np

from depsue import rng
from depsue.bounds import Betting, Hcope, Normal, Pilot
from depsue.certificates import (
    Account,
    Control,
    MixtureLadder,
    Reads,
    Rules,
    certify,
)
from depsue.certificates.folds import Folds
from depsue.certificates.terms import largest_term, safety_terms
from depsue.data.checks import read_only
from depsue.data.logs import LoggedData
from depsue.data.terms import ConservativeTerms, WeightedTerms
from depsue.estimators import MIPS
from depsue.estimators.weights import importance_weights
from depsue.exploration.rounds import CampaignState
from depsue.exploration.settings import ExploreSettings
from depsue.policies import ScoreTable, Uniform
from depsue.promises import Floor, Promise
from depsue.protocols import Policy
from depsue.rewards import OwnRewardModel
from depsue.testing.splits import split
from depsue_research.audit.answers import DELTA, Answer, Key, Outcome, Trial, asked, judged
from depsue_research.audit.worlds import MISS, RHO, NearMissWorld, near_miss_world

FRACTIONS = (0.1, 0.1, 0.8)
"""Nothing is learned here, so most rows certify."""
FOLDS = (0.2, 0.2, 0.6)
"""Where rows that may be read forecast the margin."""

PAIRED, ALL = ("normal", "betting", "smoothing"), ("normal", "betting", "smoothing", "hcope")

ROWS, FEWER, BASE = 16_000, 8000, "novel mass"
"""Rows of a log, of a log that is read many times, and the world in which it is."""

ATTEMPTS, ROUNDS, LOOKS, MOST = 12, 5, 2000, 40_000
"""Candidates on the same rows, K, looks at a round that is ended by choice, and its
rows if it is not."""


@cache
def candidates(name: str, count: int = 1) -> tuple[NearMissWorld, list[MixtureLadder]]:
    """A world and policies in it that just miss the floor, each as a list of one level."""
    world, draw = near_miss_world(name), rng.generator(0, "candidates", name)
    below = (1 - MISS) * world.floor
    mixed = [world.mixed(world.tilt(draw), below) for _ in range(count)]
    return world, [alone(world.policy(pi)) for pi in mixed]


def alone(policy: Policy) -> MixtureLadder:
    """A list of one level."""
    return MixtureLadder((policy,), np.array([[1.0]]))


def rules_for(world: NearMissWorld, bound: str, floor: Floor | None = None) -> Rules:
    """The rules of a verdict on one promise, a relative one by default."""
    return Rules((Promise(floor or Floor(RHO)),), DELTA, bound, clip=world.clip)


def folds_of(logs: LoggedData) -> Folds:
    """The folds of logs whose rows stand for themselves."""
    return split(logs, "audit", FRACTIONS)


def issued(
    levels: MixtureLadder,
    folds: Folds,
    rules: Rules,
    reads: Reads | None = None,
    *,
    logging_policy: Policy | None = None,
    account: Account | None = None,
) -> bool:
    """Whether a strict certificate is issued, by the first verdict unless reads are counted."""
    return certify(
        levels, folds, rules, reads or Reads(), logging_policy=logging_policy, account=account
    ).passed


def answered(
    levels: MixtureLadder,
    folds: Folds,
    rules: Rules,
    *,
    logging_policy: Policy | None = None,
    account: Account | None = None,
    true: bool = False,
) -> Answer:
    """What comes of asking for a certificate, an error unless what it promises is true."""
    asking = partial(issued, levels, folds, rules, logging_policy=logging_policy, account=account)
    return asked(asking, true=true)


def one_floor(name: str, paired: Sequence[str] = PAIRED, absolute: Sequence[str] = ALL) -> Trial:
    """One candidate in the world of that name; the bounds for each of the two floors."""

    def trial(draw: np.random.Generator) -> Outcome:
        world, [levels] = candidates(name)
        floors = {"relative floor": Floor(RHO), "absolute floor": Floor(None, world.floor)}
        folds = folds_of(world.logs(world.pi0, ROWS, draw))
        return {
            ("strict", f"{kind}, {name}", bound): answered(
                levels, folds, rules_for(world, bound, floor)
            )
            for kind, floor in floors.items()
            for bound in (paired if floor.absolute is None else absolute)
        }

    return trial


def several_promises(draw: np.random.Generator) -> Outcome:
    """Three promises, each at full delta, of which two hold by far and the first is missed."""
    world, [levels] = candidates(BASE)
    folds = folds_of(world.logs(world.pi0, FEWER, draw))
    other = Promise(Floor(0.4), "other", reward="other", r_max=1.0)
    segment = Promise(Floor(0.4), "segment", segment=("segment", 1))
    promises = (Promise(Floor(RHO)), other, segment)
    return {
        ("strict", "3 promises, one missed", bound): answered(
            levels, folds, Rules(promises, DELTA, bound, clip=world.clip)
        )
        for bound in PAIRED
    }


def list_of_levels(draw: np.random.Generator) -> Outcome:
    """20 levels, safest first; from the eleventh on they are below the floor."""
    world, _ = candidates(BASE)
    folds = folds_of(world.logs(world.pi0, FEWER, draw))
    best = world.tilt(rng.generator(0, "candidates", BASE))
    ends = np.concatenate([np.linspace(1.2, 1.005, 10), np.linspace(1 - MISS, 0.95, 10)])
    shares = np.array([world.share_for(best, float(end) * world.floor) for end in ends])
    parts = (world.policy(best), Uniform(world.catalogue.novel))
    levels = MixtureLadder(parts, np.column_stack([1 - shares, shares]))
    out: dict[Key, Answer] = {}
    for bound in PAIRED:
        certificate = certify(levels, folds, rules_for(world, bound), Reads())
        true = certificate.shares[1] < shares[10]
        out["strict", "list of 20 levels", bound] = judged(certificate.passed, true=true)
    return out


@cache
def rivals() -> tuple[NearMissWorld, list[MixtureLadder]]:
    """Policies near pi0, so that bounds have little slack; they differ, and all just miss."""
    world, draw = near_miss_world("calm"), rng.generator(0, "rivals")
    below = (1 - MISS) * world.floor
    mixed = [world.mixed(world.tilt(draw, 0.15, noise=0.3), below) for _ in range(ATTEMPTS)]
    return world, [alone(world.policy(pi)) for pi in mixed]


def retried(draw: np.random.Generator) -> Outcome:
    """Up to 12 candidates on the same rows: attempt j at delta 2^-j, and each at delta."""
    world, levels = rivals()
    folds = folds_of(world.logs(world.pi0, ROWS, draw))
    out: dict[Key, Answer] = {}
    for bound in ("normal", "betting"):
        rules, reads = rules_for(world, bound), Reads(retries=True)
        out["strict", "retries: 12 candidates, counted", bound] = judged(
            any(issued(candidate, folds, rules, reads) for candidate in levels)
        )
        out["tempting", "retries: 12 candidates, not counted", bound] = judged(
            any(issued(candidate, folds, rules) for candidate in levels)
        )
    return out


@cache
def by_country() -> tuple[NearMissWorld, MixtureLadder]:
    """Countries (contexts) whose reward rates differ by far, and a policy that just misses."""
    world = near_miss_world("plain")
    rates = np.linspace(0.05, 0.9, len(world.q))[:, None]
    q = rates * np.linspace(0.8, 1.1, world.q.shape[1]) * (world.pi0 > 0)
    world = replace(world, q=read_only(np.minimum(q, 1.0)))
    tilt = world.tilt(rng.generator(0, "by country"))
    return world, alone(world.policy(world.mixed(tilt, (1 - MISS) * world.floor)))


def sorted_files(draw: np.random.Generator) -> Outcome:
    """A file sorted by country, the one that earns most first; and last.

    Rows without times are named by their numbers, so a secret favours some countries: each
    replication draws another, as a ledger would.
    """
    world, levels = by_country()
    out: dict[Key, Answer] = {}
    logs = world.logs(world.pi0, FEWER, draw)
    for words, sign in (("best", -1), ("worst", 1)):
        rows = logs.take(np.argsort(sign * logs.context, kind="stable"))
        folds = split(rows, f"audit {draw.integers(2**62)}", FRACTIONS)
        floor = Floor(None, world.floor)
        for bound in ALL:
            out["strict", f"sorted by country, {words} first", bound] = answered(
                levels, folds, rules_for(world, bound, floor)
            )
        terms = _terms(levels, folds.certify, Promise(floor), world)
        out["tempting", f"sorted by country, {words} first, bets that learn", "betting"] = judged(
            Betting().lower(terms, DELTA).value >= world.floor
        )
    return out


def _terms(
    levels: MixtureLadder, rows: LoggedData, promise: Promise, world: NearMissWorld
) -> ConservativeTerms:
    """The terms of a promise on rows that pi0 logged."""
    weights = importance_weights(levels.policy(0), rows)
    ones = np.ones(len(rows)) if promise.floor.ratio is not None else None
    return safety_terms(promise, rows, weights, clip=world.clip, paired=ones, largest=1.0)


def ended_by_choice(draw: np.random.Generator) -> Outcome:
    """Somebody looks at the certifying rows again and again, and ends the round when they please.

    It ends when a fixed-n bound at full delta would pass, else after all rows.
    """
    world, [levels] = candidates("plain")
    logs, promise = world.logs(world.pi0, MOST, draw), Promise(Floor(RHO))
    folds, tempted = folds_of(logs), False
    every = _terms(levels, folds.certify, promise, world)
    above = _terms(levels, folds.select, promise, world).values
    bound = Normal(upper=largest_term(world.clip, 1.0, None), pilot=Pilot.of(above))
    end = len(folds.certify)
    looks = np.unique(np.geomspace(MOST // 100, end, LOOKS).astype(int))
    n = np.arange(1, end + 1)
    mean = np.cumsum(every.values) / n
    spread = np.sqrt(np.maximum(np.cumsum(every.values**2) / n - mean**2, 1e-12))
    near = (mean * np.sqrt(n) >= 1.6 * spread)[looks - 1]  # no bound passes at the other looks
    for rows in looks[near].tolist():
        tempted = bound.lower(replace(every, values=every.values[:rows]), DELTA).value >= 0
        if tempted:
            end = rows
            break
    out: dict[Key, Answer] = {
        ("tempting", "round ended by choice, fixed-n bound", "normal"): judged(tempted)
    }
    shorter = replace(folds, certify=folds.certify.take(np.arange(end)))
    terms = ((promise,), DELTA)
    out["strict", "round ended by choice", "normal"] = asked(
        lambda: issued(levels, shorter, Rules(*terms, "normal", fixed_length=False))
    )
    for name in ("betting", "smoothing"):
        rules = Rules(*terms, name, clip=world.clip, fixed_length=False)
        out["strict", "round ended by choice", name] = answered(levels, shorter, rules)
    return out


def cumulative(draw: np.random.Generator) -> Outcome:
    """The fifth deployment spends all the margin and a little more: Eq. 9, and strict.

    Four deployments of a good policy earned 4 (V - C). The fifth adds worthless novel actions, such
    that the five together are worth 0.1% less than 5 C. |D_k| = 4,000; Eq. 9 reads half of D_4.
    An absolute floor promises what was realised so far plus what is expected.
    """
    world, m = near_miss_world("plain"), FEWER // 2
    deployed = 0.5 * world.pi0 + 0.5 * world.tilt(rng.generator(0, "deployed"), strength=1.3)
    target = ROUNDS * (1 - MISS) * world.floor - (ROUNDS - 1) * float(world.value(deployed))
    pi0, pi = world.policy(world.pi0), world.policy(world.mixed(deployed, target))
    first = world.logs(world.pi0, m, draw)
    rounds = [world.logs(deployed, m, draw, k) for k in range(1, ROUNDS)]
    s2 = split(rounds[-1], "audit", (0.25, 0.25, 0.5)).certify
    terms = WeightedTerms.of(importance_weights(pi, s2), s2.reward, r_max=1.0)
    total = Hcope().lower(terms, DELTA).value + sum(logs.mean_reward() for logs in rounds)
    estimated = RHO * first.mean_reward()
    out: dict[Key, Answer] = {
        ("paper", "Eq. 9, K = 5, C known", "hcope"): judged(total > ROUNDS * world.floor),
        ("paper", "Eq. 9, K = 5, C estimated", "hcope"): judged(total > ROUNDS * estimated),
    }
    realised = sum(float(logs.reward.sum()) for logs in rounds) + m * target
    reads = Reads(secret=rng.secret(0, "cumulative"))
    own = reads.register(first, FOLDS)
    registered = [own, *(reads.register(logs, FOLDS, first=own) for logs in rounds)]
    for kind, floor in (("absolute", Floor(None, world.floor)), ("relative", Floor(RHO))):
        promise = Promise(floor)
        settings = ExploreSettings(
            (promise,), DELTA, safety="cumulative", deployments=ROUNDS, fractions=FOLDS, keep=0.5
        )
        state = CampaignState(settings, pi0, first, registered[0], DELTA)
        for logs, registration in zip(rounds, registered[1:], strict=True):
            state.observe(
                logs, world.policy(deployed), registration, novelty=0.0, certified=True, trust=1.0
            )
        inputs = state.inputs(m)
        true = kind == "absolute" and realised >= ROUNDS * m * world.floor
        for bound in PAIRED:
            rules = Rules(
                (promise,),
                DELTA,
                bound,
                world.clip,
                largest=inputs.largest,
                credits=inputs.credits,
            )
            out["strict", f"cumulative, K = 5, {kind} floor", bound] = answered(
                alone(pi),
                inputs.folds,
                rules,
                logging_policy=pi0,
                account=inputs.account,
                true=true,
            )
    return out


def sharper(draw: np.random.Generator) -> Outcome:
    """A control variate by a right and by a senseless model; and weights over groups."""
    world, [levels] = candidates(BASE)
    folds = folds_of(world.logs(world.pi0, FEWER, draw))
    pi0 = world.policy(world.pi0)
    out: dict[Key, Answer] = {}
    senseless = rng.generator(0, "senseless").random(world.q.shape)
    for kind, q in {"right": world.q, "senseless": senseless}.items():
        model = OwnRewardModel(ScoreTable(world.contexts, q), len(world.catalogue))
        control = Control(pi0, model, 1.0, {"reward": 1.0})
        for bound in PAIRED:
            rules = replace(rules_for(world, bound), control=control)
            out["strict", f"control variate, {kind} model", bound] = answered(levels, folds, rules)
    grouped, [levels] = by_groups()
    folds = folds_of(grouped.logs(grouped.pi0, FEWER, draw))
    marginal = MIPS(grouped.policy(grouped.pi0), np.arange(grouped.q.shape[1]) // 2)
    for bound in PAIRED:
        rules = replace(rules_for(grouped, bound), marginal=marginal)
        out["strict", "weights over groups, which decide the reward", bound] = answered(
            levels, folds, rules
        )
    return out


@cache
def by_groups() -> tuple[NearMissWorld, list[MixtureLadder]]:
    """Two actions a group, of equal reward; and a policy that just misses the floor."""
    world = near_miss_world(BASE)
    q = np.repeat(world.q.reshape(len(world.q), -1, 2).mean(axis=2), 2, axis=1)
    world = replace(world, q=read_only(q))
    mixed = world.mixed(world.tilt(rng.generator(0, "groups")), (1 - MISS) * world.floor)
    return world, [alone(world.policy(mixed))]


TRIALS: dict[str, Trial] = {
    **{name: one_floor(name) for name in ("plain", "rare rewards", BASE, "heavy weights")},
    "promises": several_promises,
    "levels": list_of_levels,
    "retried": retried,
    "sorted": sorted_files,
    "ended by choice": ended_by_choice,
    "cumulative": cumulative,
    "sharper": sharper,
}
"""Each draws its own logs and says what came of every certificate."""
