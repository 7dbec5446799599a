"""What a certificate's error rate really is: simulated where the floor is just missed.

An error is a certificate that is issued for a policy whose true value is below the floor. The
candidates are (1 - share) pi_s + share pi_n with worthless novel actions and a value 0.1% below
the floor, so that every certificate is an error and nothing but the bound stands in its way.
Strict kinds go through `certify` as a user's would; the paper's run on counts of (context, action)
cells, for all replications at once. Shapes: u contexts, A actions, R replications.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from typing import NamedTuple

import numpy as np

from depsue import rng
from depsue.bounds import Hcope
from depsue.bounds.hcope import TAUS, empirical_bernstein
from depsue.certificates import (
    Floor,
    Levels,
    Promise,
    Reads,
    Rules,
    Served,
    certify,
    earned,
    three_folds,
)
from depsue.certificates.folds import Folds
from depsue.certificates.terms import bound_for, safety_terms
from depsue.data.catalogue import ActionCatalogue
from depsue.data.checks import FloatArray, IntArray, Mask, read_only
from depsue.data.logs import LoggedData
from depsue.data.terms import WeightedTerms
from depsue.errors import is_whole, require, short
from depsue.estimators.weights import importance_weights
from depsue.policies import OwnPolicy, ScoreTable, Uniform
from depsue.progress import Watch, silent

DELTA, RHO, MISS = 0.05, 0.95, 0.001
"""The level, the floor as a share of V(pi0), and by how much candidates miss it."""
FRACTIONS = (0.1, 0.1, 0.8)
"""Nothing is learned here, so most rows certify."""
GROUPS = ("strict", "paper", "naive", "what if")
"""By the rules; as published; attempts not counted; the paper's with a bound without slack."""
PAIRED, ALL = ("normal", "betting", "smoothing"), ("normal", "betting", "smoothing", "hcope")
ROWS, FEWER, BASE = 16_000, 8000, "novel mass"
"""Rows of a log, of a log that is read many times, and the world in which it is."""
ATTEMPTS, TRIES, ROUNDS = 5, 20, 5
"""Candidates on the same rows, splits of the same logs, and K."""
LARGE, MANY, STEPS, RATE, RATE_LAMBDA = 100_000, (1000, 10_000), 600, 20.0, 5.0
"""Of the paper's kinds: rows, candidates to choose among, and how Algorithm 1 is run."""


@dataclass(frozen=True)
class Rate:
    """How often one kind of certificate was wrong.

    Args:
        group: one of `GROUPS`.
        kind: what was done.
        bound: which bound.
        errors: certificates that were issued although the policy was below the floor.
        n: replications.
        delta: the promised error rate.
    """

    group: str
    kind: str
    bound: str
    errors: int
    n: int
    delta: float = DELTA

    @property
    def rate(self) -> float:
        """The share of errors."""
        return self.errors / self.n

    @property
    def interval(self) -> tuple[float, float]:
        """The exact 95% interval (Clopper and Pearson)."""
        k, n = self.errors, self.n
        low = 0.0 if k == 0 else _root(lambda p: at_least(k, n, p) - 0.025)
        high = 1.0 if k == n else _root(lambda p: at_least(k + 1, n, p) - 0.975)
        return low, high

    @property
    def p_value(self) -> float:
        """One-sided: so many errors or more, if the true rate were delta."""
        return at_least(self.errors, self.n, self.delta)


def at_least(k: int, n: int, p: float) -> float:
    """P(at least k of n), each with probability p."""
    if k <= 0 or p >= 1:
        return 1.0
    if p <= 0:
        return 0.0
    i = np.arange(n + 1)
    ways = np.concatenate([[0.0], np.cumsum(np.log((n - i[:-1]) / (i[:-1] + 1)))])
    return float(min(np.exp(ways + i * math.log(p) + (n - i) * math.log1p(-p))[k:].sum(), 1.0))


def _root(rising: Callable[[float], float]) -> float:
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < 0 else (low, middle)
    return (low + high) / 2


@dataclass(frozen=True, eq=False)
class SmallWorld:
    """A few contexts and actions, of which the last two are novel and worthless.

    Args:
        pi0: (u, A) the logging policy.
        q: (u, A) chances of reward 1.
        strength: how far candidates tilt pi0 towards q.
        clip: the largest weight that counts; above those of the candidates.
    """

    pi0: FloatArray
    q: FloatArray
    strength: float
    clip: float

    @cached_property
    def catalogue(self) -> ActionCatalogue:
        """The actions."""
        return ActionCatalogue(np.arange(self.q.shape[1]), self.pi0[0] == 0)

    @cached_property
    def contexts(self) -> FloatArray:
        """(u, 1) all equally likely."""
        return np.arange(len(self.q), dtype=np.float32)[:, None]

    def value(self, pi: FloatArray) -> FloatArray:
        """V of (..., u, A) distributions."""
        return np.asarray((pi * self.q).sum(axis=-1).mean(axis=-1))

    @cached_property
    def floor(self) -> float:
        """C = rho V(pi0)."""
        return RHO * float(self.value(self.pi0))

    def tilt(self, draw: np.random.Generator, strength: float | None = None) -> FloatArray:
        """(u, A) a supported policy: pi0 exp(strength q + noise), q standardised."""
        size = self.strength if strength is None else strength
        known = self.q[self.pi0 > 0]
        score = size * (self.q - known.mean()) / max(known.std(), 1e-9)
        bent = self.pi0 * np.exp(score + draw.normal(scale=0.5, size=self.q.shape))
        return np.asarray(bent / bent.sum(axis=1, keepdims=True))

    def share_for(self, pi: FloatArray, target: float) -> float:
        """The share of novel actions at which a supported policy has that value."""
        share = 1 - target / float(self.value(pi))
        require(0 <= share < 1, "the supported policy must be worth more", found=f"{share:g}")
        return share

    def mixed(self, pi: FloatArray, target: float) -> FloatArray:
        """(u, A) the policy with novel actions at the share that gives it that value."""
        share, novel = self.share_for(pi, target), self.catalogue.novel
        return np.asarray((1 - share) * pi + share * novel / novel.sum())

    def policy(self, pi: FloatArray) -> OwnPolicy:
        """The policy with these (u, A) distributions."""
        return OwnPolicy(ScoreTable(self.contexts, pi), pi.shape[1])

    def logs(self, pi: FloatArray, n: int, draw: np.random.Generator, round: int = 0) -> LoggedData:
        """n rows that `pi` logged, with a second reward and a segment."""
        return self._rows(pi, draw.integers(len(pi), size=n), draw, round=round)

    def unit_logs(self, units: int, draw: np.random.Generator) -> LoggedData:
        """Rows of pi0 by units: 1 to 8 rows each, more in some contexts, lucky or unlucky."""
        own = draw.integers(len(self.pi0), size=units)
        size = 1 + draw.integers(1 + 7 * (own + 1) // len(self.pi0))
        unit = np.repeat(np.arange(units), size)
        luck = draw.choice([0.5, 1.5], units)[unit]
        return self._rows(self.pi0, own[unit], draw, luck=luck, unit=unit)

    def _rows(
        self,
        pi: FloatArray,
        context: IntArray,
        draw: np.random.Generator,
        *,
        luck: FloatArray | float = 1.0,
        unit: IntArray | None = None,
        round: int = 0,
    ) -> LoggedData:
        n, below = len(context), np.cumsum(pi, axis=1)[context]
        action = (draw.random(n)[:, None] * below[:, -1:] >= below).sum(axis=1)
        chance = self.q[context, action] * luck
        return LoggedData(
            catalogue=self.catalogue,
            contexts=self.contexts,
            context=context.astype(np.int32),
            action=action.astype(np.int32),
            reward=(draw.random(n) < chance).astype(np.float64),
            propensity=pi[context, action],
            r_max=1.0,
            unit=unit,
            units=None if unit is None else np.arange(int(unit.max()) + 1),
            round=np.full(n, round, dtype=np.int16),
            columns={
                "other": (draw.random(n) < 0.4).astype(np.float64),
                "segment": (context < len(pi) // 2).astype(np.int64),
            },
        )


def small_world(name: str) -> SmallWorld:
    """One of `WORLDS`, always the same."""
    low, high, spread, strength, clip = WORLDS[name]
    draw = rng.generator(0, "small world", name)
    q = draw.uniform(low, high, (6, 8))
    pi0 = np.exp(draw.normal(scale=spread, size=q.shape))
    q[:, 6:] = pi0[:, 6:] = 0
    pi0 /= pi0.sum(axis=1, keepdims=True)
    return SmallWorld(read_only(pi0), read_only(q), strength, clip)


WORLDS = {
    "plain": (0.1, 0.5, 0.7, 0.7, 3.0),
    "rare rewards": (0.002, 0.02, 0.7, 0.7, 3.0),
    "novel mass": (0.05, 0.6, 0.7, 2.0, 4.0),
    "sharp pi0": (0.1, 0.5, 2.0, 1.0, 12.0),
    "flat": (0.3, 0.3, 0.7, 0.0, 4.0),
}
"""Least and largest q, spread of pi0's logits, strength of tilts, clip."""

Key = tuple[str, str, str]
"""Group, kind and bound."""
Outcome = dict[Key, bool]
"""Whether a certificate was issued in error."""
Trial = Callable[[np.random.Generator], Outcome]


@cache
def candidates(name: str, count: int = 1) -> tuple[SmallWorld, list[Levels]]:
    """A world and policies in it that just miss the floor, each as a list of one level."""
    world, draw = small_world(name), rng.generator(0, "candidates", name)
    below = (1 - MISS) * world.floor
    mixed = [world.mixed(world.tilt(draw), below) for _ in range(count)]
    return world, [alone(world.policy(pi)) for pi in mixed]


def alone(policy: OwnPolicy) -> Levels:
    """A list of one level."""
    return Levels((policy,), np.array([[1.0]]))


def rules_for(world: SmallWorld, bound: str, floor: Floor | None = None) -> Rules:
    """The rules of a verdict on one promise, a relative one unless told."""
    return Rules((Promise(floor or Floor(RHO)),), DELTA, bound, clip=world.clip)


def folds_of(logs: LoggedData) -> Folds:
    """The folds of this campaign."""
    return three_folds(logs, "error rates", FRACTIONS)


def issued(levels: Levels, folds: Folds, rules: Rules, reads: Reads | None = None) -> bool:
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
    levels = Levels(parts, np.column_stack([1 - shares, shares]))
    out = {}
    for bound in PAIRED:
        found = certify(levels, folds, rules_for(world, bound), Reads())
        wrong = found.passed and found.shares[1] >= shares[10]
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
            issued(one, folds, rules, reads) for one in levels
        )
        if bound in ("normal", "hcope"):
            out["naive", "5 candidates on the same rows, not counted", bound] = any(
                issued(one, folds, rules) for one in levels
            )
    return out


def split_again(draw: np.random.Generator) -> Outcome:
    """One candidate, up to 20 halves of the same logs: as `Reads` counts them, and not counted."""
    world, [levels] = candidates(BASE)
    logs = world.logs(world.pi0, FEWER, draw)
    weights, ones = importance_weights(levels.policy(0), logs), np.ones(len(logs))
    promise, reads = Promise(Floor(RHO)), Reads(retries=True)
    paired = safety_terms(promise, logs, weights, clip=world.clip, paired=ones, largest=1.0)
    bound = bound_for("normal", clip=world.clip, r_max=1.0)
    strict = naive = hcope = False
    for _ in range(TRIES):
        half = draw.random(len(logs)) < 0.5
        terms = replace(paired, values=paired.values[half])
        counted_at = reads.level(DELTA, reads.begin(logs.hash))
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
    world, m = small_world("plain"), FEWER // 2
    deployed = 0.5 * world.pi0 + 0.5 * world.tilt(rng.generator(0, "deployed"), strength=1.3)
    target = ROUNDS * (1 - MISS) * world.floor - (ROUNDS - 1) * float(world.value(deployed))
    pi0, pi = world.policy(world.pi0), world.policy(world.mixed(deployed, target))
    first = world.logs(world.pi0, m, draw)
    rounds = [world.logs(deployed, m, draw, k) for k in range(1, ROUNDS)]
    newest = three_folds(rounds[-1], "error rates", (0.25, 0.25, 0.5))
    s2 = newest.certify
    terms = WeightedTerms.of(importance_weights(pi, s2), s2.reward, r_max=1.0)
    total = Hcope().lower(terms, DELTA).value + sum(one.mean_reward() for one in rounds)
    estimated = RHO * first.mean_reward()
    out = {
        ("paper", "Eq. 9, K = 5, C known", "hcope"): bool(total > ROUNDS * world.floor),
        ("paper", "Eq. 9, K = 5, C estimated", "hcope"): bool(total > ROUNDS * estimated),
    }
    served = [Served(one, m) for one in rounds[:-1]]
    served += [Served(newest.learn, m // 2), Served(newest.select, m // 2)]
    for kind, floor in (("absolute", Floor(None, world.floor)), ("paired", Floor(RHO))):
        promise = Promise(floor)
        credit = earned(
            promise, served, decisions=m, delta=DELTA / 2, logging_policy=pi0, largest=2.0
        )
        credits = {promise.name: credit}
        for bound in PAIRED:
            rules = Rules((promise,), DELTA, bound, world.clip, largest=2.0, credits=credits)
            found = certify(alone(pi), newest, rules, Reads(), logging_policy=pi0)
            out["strict", f"cumulative, K = 5, {kind} floor", bound] = found.passed
    return out


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
}
"""Each draws its own logs and says which certificates were issued in error."""


def repeated(name: str, trial: Trial, replications: int, seed: int) -> list[Rate]:
    """The trial so many times: a rate for each kind in it."""
    errors: Counter[Key] = Counter()
    for place in range(replications):
        outcome = trial(rng.generator(seed, name, place))
        errors.update({key: int(wrong) for key, wrong in outcome.items()})
    return [Rate(*key, count, replications) for key, count in errors.items()]


class Counts(NamedTuple):
    """R logs of pi0 in two halves, as counts over the C = u A cells.

    Args:
        shown: (R, C) rows of S1.
        rewarded: (R, C) rewarded rows of S1.
        tuning: (R, C) rewarded rows of the twentieth of S2 that tunes tau.
        rest: (R, C) rewarded rows of the rest of S2.
        sizes: rows of S1, of the twentieth, of the rest.
    """

    shown: FloatArray
    rewarded: FloatArray
    tuning: FloatArray
    rest: FloatArray
    sizes: tuple[int, int, int]

    @property
    def floor(self) -> FloatArray:
        """(R,) C as the paper has it: rho times the mean reward of the whole log."""
        rewarded = self.rewarded + self.tuning + self.rest
        return np.asarray(RHO * rewarded.sum(axis=1) / sum(self.sizes))


def counted(world: SmallWorld, replications: int, draw: np.random.Generator) -> Counts:
    """Logs of pi0, as counts."""
    half = LARGE // 2
    sizes = (half, half // 20, half - half // 20)
    cells, q = (world.pi0 / len(world.pi0)).ravel(), world.q.ravel()
    shown = [draw.multinomial(size, cells, replications) for size in sizes]
    rewarded = [draw.binomial(one, q).astype(np.float64) for one in shown]
    return Counts(shown[0].astype(np.float64), rewarded[0], rewarded[1], rewarded[2], sizes)


def eq4(weights: FloatArray, counts: Counts) -> FloatArray:
    """(R,) Eq. 4 on S2, tau tuned on its twentieth, for rewards 0 or 1.

    Args:
        weights: (C,) or (R, C) pi / pi0, 0 where pi0 is 0.
        counts: the logs.
    """
    taus = TAUS[: np.searchsorted(TAUS, weights.max()) + 1]  # a larger one is never better
    clipped = np.minimum(weights[..., None, :], taus[:, None])
    _, first, second = counts.sizes

    def at_each_tau(rows: FloatArray, n: int) -> FloatArray:
        mean = np.einsum("...tc,...c->...t", clipped, rows) / n
        square = np.einsum("...tc,...c->...t", clipped**2, rows) / n
        variance = np.maximum(square - mean**2, 0)
        return np.asarray(empirical_bernstein(mean, variance, second, taus, DELTA))

    best = at_each_tau(counts.tuning, first).argmax(axis=1)[:, None]
    return np.take_along_axis(at_each_tau(counts.rest, second), best, axis=1)[:, 0]


def central_limit(weights: FloatArray, counts: Counts) -> FloatArray:
    """(R,) mean - 1.645 standard errors on S2: no slack, and no guarantee at small n."""
    n, rows = counts.sizes[1] + counts.sizes[2], counts.tuning + counts.rest
    mean = (weights * rows).sum(axis=1) / n
    variance = (weights**2 * rows).sum(axis=1) / n - mean**2
    return np.asarray(mean - 1.6449 * np.sqrt(variance / n))


S2Bound = Callable[[FloatArray, Counts], FloatArray]
S2_BOUNDS: dict[str, tuple[str, S2Bound]] = {
    "hcope": ("paper", eq4),
    "central limit": ("what if", central_limit),
}
"""Bounds on S2, and the group of what they certify."""


def weights_of(pi: FloatArray, world: SmallWorld) -> FloatArray:
    """(..., C) pi / pi0 by cells, 0 where pi0 is 0."""
    ratio = np.divide(pi, world.pi0, out=np.zeros_like(pi), where=world.pi0 > 0)
    return ratio.reshape(*pi.shape[:-2], -1)


def fixed_policy(name: str, replications: int, seed: int) -> dict[Key, Mask]:
    """Eq. 4 for a policy that was there before the logs: the bound's own errors."""
    world = small_world(name)
    counts = counted(world, replications, rng.generator(seed, "fixed policy", name))
    below = (1 - MISS) * world.floor
    pi = world.mixed(world.tilt(rng.generator(0, "candidates", name)), below)
    bound = eq4(weights_of(pi, world), counts)
    kind = f"Eq. 4, fixed policy, {name}"
    return {
        ("paper", f"{kind}, C known", "hcope"): bound > world.floor,
        ("paper", f"{kind}, C estimated", "hcope"): bound > counts.floor,
    }


def best_of_many(spread: float, replications: int, seed: int) -> dict[Key, Mask]:
    """The policy with the best bound on S2 of many, none of which reaches the floor.

    Args:
        spread: of the candidates' logits around pi0's.
        replications: R.
        seed: of the logs.
    """
    world, draw = small_world("flat"), rng.generator(0, "many")
    counts = counted(world, replications, rng.generator(seed, "best of many"))
    floors = {"C known": world.floor, "C estimated": counts.floor}
    best = {name: np.full(replications, -np.inf) for name in S2_BOUNDS}
    out: dict[Key, Mask] = {}
    for many in range(1, max(MANY) + 1):
        bent = world.pi0 * np.exp(spread * draw.normal(size=world.q.shape))
        bent /= bent.sum(axis=1, keepdims=True)
        weights = weights_of(world.mixed(bent, (1 - MISS) * world.floor), world)
        for name, (group, bound) in S2_BOUNDS.items():
            np.maximum(best[name], bound(weights, counts), out=best[name])
            for words, floor in floors.items() if many in MANY else ():
                kind = f"best of {many:,} by S2, spread {spread:g}, {words}"
                out[group, kind, name] = best[name] > floor
    return out


def safe_opg(name: str, replications: int, seed: int) -> dict[Key, Mask]:
    """Algorithm 1, C estimated; in the flat world no policy that it can learn reaches the floor."""
    world = small_world(name)
    counts = counted(world, replications, rng.generator(seed, "safe opg", name))
    share = 1 - RHO * (1 - MISS) if name == "flat" else None
    return {
        (group, f"Algorithm 1, {name}, {which}", bound): wrong
        for bound, (group, function) in S2_BOUNDS.items()
        for which, wrong in algorithm_1(world, counts, function, share, STEPS).items()
    }


def softmax(logits: FloatArray) -> FloatArray:
    """Distributions over the last axis."""
    pi = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(pi / pi.sum(axis=-1, keepdims=True))


def algorithm_1(
    world: SmallWorld, counts: Counts, bound: S2Bound, share: float | None, steps: int
) -> dict[str, Mask]:
    """Algorithm 1 with a softmax over cells, R times at once.

    Each step follows the gradient of F + lambda R on all of S1, F with the reward model's direct
    estimate and entropy .1, then moves lambda by bound - C on S2 (Eq. 8). The reward model is the
    mean of a cell drawn to the mean of all; novel actions get the mean of all, which is too much.
    Step sizes are divided by 1 + lambda, so that a large lambda does not overshoot.

    Args:
        world: where.
        counts: R logs.
        bound: on S2.
        share: of novel actions, fixed; None lets the softmax choose among all A actions.
        steps: how many.

    Returns:
        (R,) True where a certificate is issued in error: for the last policy, for the last that
        passed.
    """
    replications, (u, a) = len(counts.shown), world.q.shape
    shape, n = (replications, u, a), counts.sizes[0]
    shown, rewarded = counts.shown.reshape(shape), counts.rewarded.reshape(shape)
    overall = rewarded.sum(axis=(1, 2), keepdims=True) / n
    q_hat = (rewarded + 5 * overall) / (shown + 5)
    contexts, gain = shown.sum(axis=2, keepdims=True) / n, rewarded / n
    novel, need = world.catalogue.novel, counts.floor
    allowed = np.where(novel, -np.inf, 0.0) if share is not None else np.zeros(a)
    logits, lambda_ = np.zeros(shape) + allowed, np.zeros(replications)
    passing, unsafe, passes, below = np.zeros((4, replications), dtype=bool)
    pi = softmax(logits)
    for _ in range(steps):
        pull = q_hat - 0.1 * np.log(np.maximum(pi, 1e-12))
        step = contexts * pi * (pull - (pi * pull).sum(axis=2, keepdims=True))
        step += lambda_[:, None, None] * (gain - pi * gain.sum(axis=2, keepdims=True))
        logits = logits + RATE / (1 + lambda_[:, None, None]) * step
        pi = softmax(logits)
        served = pi if share is None else (1 - share) * pi + share * novel / novel.sum()
        found = bound(weights_of(served, world), counts)
        lambda_ = np.maximum(lambda_ - RATE_LAMBDA * (found - need), 0.0)
        passes, below = found > need, world.value(served) < world.floor
        passing |= passes
        unsafe = np.where(passes, below, unsafe)
    return {"last policy": passes & below, "last passing policy": passing & unsafe}


def paper_rates(replications: int, seed: int) -> Iterator[list[Rate]]:
    """The paper's kinds, one group after another."""
    runs: list[Callable[[int, int], dict[Key, Mask]]] = [
        *(partial(fixed_policy, name) for name in ("plain", "rare rewards", "sharp pi0")),
        *(partial(safe_opg, name) for name in ("flat", "plain")),
        *(partial(best_of_many, spread) for spread in (0.4, 1.0)),
    ]
    for run in runs:
        found = run(replications, seed)
        yield [Rate(*key, int(wrong.sum()), replications) for key, wrong in found.items()]


def error_rates(replications: int = 2000, *, seed: int = 0, watch: Watch = silent) -> list[Rate]:
    """The error rate of every kind of certificate.

    Args:
        replications: of each kind.
        seed: of the logs; worlds and candidates are always the same.
        watch: shows progress.
    """
    require(
        is_whole(replications) and replications >= 1,
        "replications must be a whole number, at least 1",
        found=short(replications),
        cure="2000 tells 5% from 7%",
    )
    rates: list[Rate] = []
    for place, (name, trial) in enumerate(TRIALS.items()):
        watch("error rates", place, len(TRIALS) + 1, name)
        rates += repeated(name, trial, replications, seed)
    watch("error rates", len(TRIALS), len(TRIALS) + 1, "the paper's")
    for some in paper_rates(replications, seed):
        rates += some
    return sorted(rates, key=lambda rate: GROUPS.index(rate.group))
