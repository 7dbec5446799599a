"""Certificates by the rules, as a user would ask for them; and the same without the rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial

import numpy as np

from depsue import rng
from depsue.bounds import Hcope, Normal
from depsue.certificates import (
    Control,
    MixtureLadder,
    Reads,
    Rules,
    Served,
    certify,
    earned,
    surplus,
)
from depsue.certificates.folds import Folds
from depsue.certificates.terms import safety_terms
from depsue.data.checks import read_only
from depsue.data.logs import LoggedData, joined
from depsue.data.terms import WeightedTerms
from depsue.estimators import MIPS
from depsue.estimators.weights import importance_weights
from depsue.policies import OwnPolicy, ScoreTable, Uniform
from depsue.promises import Floor, Promise
from depsue.rewards import OwnRewardModel
from depsue.testing.splits import split
from depsue_research.error_rates.rates import DELTA, Outcome, Trial
from depsue_research.error_rates.worlds import MISS, RHO, NearMissWorld, near_miss_world

FRACTIONS = (0.1, 0.1, 0.8)
"""Nothing is learned here, so most rows certify."""

PAIRED, ALL = ("normal", "betting", "smoothing"), ("normal", "betting", "smoothing", "hcope")

ROWS, FEWER, BASE = 16_000, 8000, "novel mass"
"""Rows of a log, of a log that is read many times, and the world in which it is."""

ATTEMPTS, TRIES, ROUNDS = 5, 20, 5
"""Candidates on the same rows, splits of the same logs, and K."""


@cache
def candidates(name: str, count: int = 1) -> tuple[NearMissWorld, list[MixtureLadder]]:
    """A world and policies in it that just miss the floor, each as a list of one level."""
    world, draw = near_miss_world(name), rng.generator(0, "candidates", name)
    below = (1 - MISS) * world.floor
    mixed = [world.mixed(world.tilt(draw), below) for _ in range(count)]
    return world, [alone(world.policy(pi)) for pi in mixed]


def alone(policy: OwnPolicy) -> MixtureLadder:
    """A list of one level."""
    return MixtureLadder((policy,), np.array([[1.0]]))


def rules_for(world: NearMissWorld, bound: str, floor: Floor | None = None) -> Rules:
    """The rules of a verdict on one promise, a relative one by default."""
    return Rules((Promise(floor or Floor(RHO)),), DELTA, bound, clip=world.clip)


def folds_of(logs: LoggedData) -> Folds:
    """The folds of this campaign."""
    return split(logs, "error rates", FRACTIONS)


def issued(levels: MixtureLadder, folds: Folds, rules: Rules, reads: Reads | None = None) -> bool:
    """Whether a strict certificate is issued, by the first verdict unless reads are counted."""
    return certify(levels, folds, rules, reads or Reads()).passed


def one_floor(name: str, paired: Sequence[str] = PAIRED, absolute: Sequence[str] = ALL) -> Trial:
    """One candidate in the world of that name; the bounds for each of the two floors."""

    def trial(draw: np.random.Generator) -> Outcome:
        world, [levels] = candidates(name)
        floors = {"paired floor": Floor(RHO), "absolute floor": Floor(None, world.floor)}
        folds = folds_of(world.logs(world.pi0, ROWS, draw))
        return {
            ("strict", f"{kind}, {name}", bound): issued(
                levels, folds, rules_for(world, bound, floor)
            )
            for kind, floor in floors.items()
            for bound in (paired if floor.absolute is None else absolute)
        }

    return trial


def several_promises(draw: np.random.Generator) -> Outcome:
    """Three promises, of which two hold by far and the first is just missed."""
    world, [levels] = candidates(BASE)
    folds = folds_of(world.logs(world.pi0, FEWER, draw))
    other = Promise(Floor(0.4), "other", reward="other", r_max=1.0)
    segment = Promise(Floor(0.4), "segment", segment=("segment", 1))
    promises = (Promise(Floor(RHO)), other, segment)
    return {
        ("strict", "3 promises, one missed", bound): issued(
            levels, folds, Rules(promises, DELTA, bound, clip=world.clip)
        )
        for bound in PAIRED
    }


def with_units(draw: np.random.Generator) -> Outcome:
    """Rows that repeat units; the promise is about the mean over units."""
    world, [levels] = candidates(BASE)
    folds = folds_of(world.unit_logs(FEWER // 2, draw))
    return {
        ("strict", "rows that repeat units", bound): issued(levels, folds, rules_for(world, bound))
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
    out = {}
    for bound in PAIRED:
        certificate = certify(levels, folds, rules_for(world, bound), Reads())
        wrong = certificate.passed and certificate.shares[1] >= shares[10]
        out["strict", "list of 20 levels", bound] = bool(wrong)
    return out


def retried(draw: np.random.Generator) -> Outcome:
    """Up to 5 candidates on the same rows: attempt j at delta 2^-j, and each at delta."""
    world, levels = candidates(BASE, ATTEMPTS)
    folds = folds_of(world.logs(world.pi0, FEWER, draw))
    out = {}
    for bound in ALL:
        floor = Floor(None, world.floor) if bound == "hcope" else Floor(RHO)
        rules, reads = rules_for(world, bound, floor), Reads(retries=True)
        out["strict", "5 candidates on the same rows, counted", bound] = any(
            issued(candidate, folds, rules, reads) for candidate in levels
        )
        if bound in ("normal", "hcope"):
            out["naive", "5 candidates on the same rows, not counted", bound] = any(
                issued(candidate, folds, rules) for candidate in levels
            )
    return out


def split_again(draw: np.random.Generator) -> Outcome:
    """One candidate, up to 20 halves of the same logs: as `Reads` counts them, and not counted."""
    world, [levels] = candidates(BASE)
    logs = world.logs(world.pi0, FEWER, draw)
    weights, ones = importance_weights(levels.policy(0), logs), np.ones(len(logs))
    promise, reads = Promise(Floor(RHO)), Reads(retries=True)
    paired = safety_terms(promise, logs, weights, clip=world.clip, paired=ones, largest=1.0)
    bound = Normal(upper=world.clip)
    strict = naive = hcope = False
    for _ in range(TRIES):
        half = draw.random(len(logs)) < 0.5
        terms = replace(paired, values=paired.values[half])
        counted_at = reads.delta_of_attempt(DELTA, reads.begin(logs.hash))
        strict = strict or bound.lower(terms, counted_at).value >= 0
        naive = naive or bound.lower(terms, DELTA).value >= 0
        both = WeightedTerms.of(weights[half], logs.reward[half], r_max=1.0)
        hcope = hcope or Hcope().lower(both, DELTA).value >= world.floor
    return {
        ("strict", "20 splits of the same logs, counted", "normal"): strict,
        ("naive", "20 splits of the same logs, not counted", "normal"): naive,
        ("naive", "20 splits of the same logs, not counted", "hcope"): hcope,
    }


def cumulative(draw: np.random.Generator) -> Outcome:
    """The fifth deployment spends all the margin and a little more: Eq. 9, and strict.

    Four deployments of a good policy earned 4 (V - C). The fifth adds worthless novel actions, such
    that the five together are worth 0.1% less than 5 C. |D_k| = 4,000; Eq. 9 reads half of D_4.
    """
    world, m = near_miss_world("plain"), FEWER // 2
    deployed = 0.5 * world.pi0 + 0.5 * world.tilt(rng.generator(0, "deployed"), strength=1.3)
    target = ROUNDS * (1 - MISS) * world.floor - (ROUNDS - 1) * float(world.value(deployed))
    pi0, pi = world.policy(world.pi0), world.policy(world.mixed(deployed, target))
    first = world.logs(world.pi0, m, draw)
    rounds = [world.logs(deployed, m, draw, k) for k in range(1, ROUNDS)]
    newest = split(rounds[-1], "error rates", (0.25, 0.25, 0.5))
    s2 = newest.certify
    terms = WeightedTerms.of(importance_weights(pi, s2), s2.reward, r_max=1.0)
    total = Hcope().lower(terms, DELTA).value + sum(logs.mean_reward() for logs in rounds)
    estimated = RHO * first.mean_reward()
    out = {
        ("paper", "Eq. 9, K = 5, C known", "hcope"): bool(total > ROUNDS * world.floor),
        ("paper", "Eq. 9, K = 5, C estimated", "hcope"): bool(total > ROUNDS * estimated),
    }
    everything = [Served(logs, m) for logs in rounds]
    readable = joined([newest.learn, newest.select])
    served = [*everything[:-1], Served(readable, m, len(newest.certify))]
    for kind, floor in (("absolute", Floor(None, world.floor)), ("paired", Floor(RHO))):
        promise = Promise(floor)
        margin = partial(
            earned, promise, decisions=m, delta=DELTA / 2, logging_policy=pi0, largest=2.0
        )
        credit, broken = margin(served), True
        if credit.fewest is None:
            final = margin(everything)
        else:  # the promise is then about what was realised so far, which may be more
            final = replace(credit, surplus=surplus(promise, newest.certify))
            realised = sum(float(logs.reward.sum()) for logs in rounds)
            broken = realised + m * target < ROUNDS * m * world.floor
        for bound in PAIRED:
            credits = {promise.name: credit}
            rules = Rules((promise,), DELTA, bound, world.clip, largest=2.0, credits=credits)
            verdict = certify(
                alone(pi),
                newest,
                rules,
                Reads(),
                logging_policy=pi0,
                account=lambda fixed, last={promise.name: final}: last,
            )
            out["strict", f"cumulative, K = 5, {kind} floor", bound] = verdict.passed and broken
    return out


def sharper(draw: np.random.Generator) -> Outcome:
    """A control variate by a right and by a senseless model; and weights over groups."""
    world, [levels] = candidates(BASE)
    folds = folds_of(world.logs(world.pi0, FEWER, draw))
    pi0, out = world.policy(world.pi0), {}
    senseless = rng.generator(0, "senseless").random(world.q.shape)
    for kind, q in {"right": world.q, "senseless": senseless}.items():
        model = OwnRewardModel(ScoreTable(world.contexts, q), len(world.catalogue))
        control = Control(pi0, model, 1.0, {"reward": 1.0})
        for bound in PAIRED:
            rules = replace(rules_for(world, bound), control=control)
            out["strict", f"control variate, {kind} model", bound] = issued(levels, folds, rules)
    grouped, [levels] = by_groups()
    folds = folds_of(grouped.logs(grouped.pi0, FEWER, draw))
    marginal = MIPS(grouped.policy(grouped.pi0), np.arange(grouped.q.shape[1]) // 2)
    for bound in PAIRED:
        rules = replace(rules_for(grouped, bound), marginal=marginal)
        out["strict", "weights over groups, which decide the reward", bound] = issued(
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
    "plain": one_floor("plain"),
    "rare rewards": one_floor("rare rewards"),
    "novel mass": one_floor("novel mass"),
    "sharp pi0": one_floor("sharp pi0"),
    "promises": several_promises,
    "units": with_units,
    "levels": list_of_levels,
    "retried": retried,
    "split again": split_again,
    "cumulative": cumulative,
    "sharper": sharper,
}
"""Each draws its own logs and says which certificates were issued in error."""
