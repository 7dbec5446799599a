"""The monitor's evidence: what it adds up, how often it errs, and that it sees what goes wrong."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from depsue.bounds import StartMixture
from depsue.bounds.starts import EVERY, FRACTIONS
from depsue.certificates import UnitRows
from depsue.data.checks import FloatArray
from depsue.errors import ConfigError, DataError
from depsue.promises import Floor, Promise
from depsue.serving.account import ConfidenceSequence
from depsue.serving.evidence import (
    EpochEvidence,
    FloorPart,
    JudgedRows,
    PropensityPart,
    Weighing,
    delta_of_epoch,
    weights,
)
from depsue.serving.served import ContextDrift
from depsue_research.monitor import CYCLE, PI0, POLICY, Life, Watch, means, stops_at

DELTA = 0.4  # a large one, half of which is this epoch's: too many false alarms would show
SMALL = Watch(4000, rate=0.3, holdout=0.1, delta=DELTA, rounds=1, length=4000)
RELATIVE, ABSOLUTE = Promise(Floor(0.95)), Promise(Floor(None, absolute=0.3))


def stops(life: Life, watch: Watch, count: int) -> FloatArray:
    return np.array([stops_at(life, watch, seed) for seed in range(count)])


def too_many(life: Life, watch: Watch, count: int) -> float:
    """The p-value of so many stops, were they allowed."""
    stopped = int(np.isfinite(stops(life, watch, count)).sum())
    return float(stats.binomtest(stopped, count, watch.allowed, alternative="greater").pvalue)


def floor_part(
    promise: Promise = RELATIVE,
    *,
    by: Weighing = "items",
    credit: float = 0.0,
    length: int | None = 1000,
    units: UnitRows | None = None,
) -> FloorPart:
    return FloorPart(promise, by=by, r_max=1.0, credit=credit, length=length, units=units)


def rows(
    reward: Sequence[float] | FloatArray,
    *,
    at: Sequence[float] | FloatArray | None = None,
    unit: Sequence[str] | None = None,
    p_pi0: float = 0.5,
    places: FloatArray | None = None,
    wrong: int = 0,
) -> JudgedRows:
    n = len(reward)
    return JudgedRows(
        at=np.arange(n, dtype=float) if at is None else np.asarray(at, dtype=float),
        held=np.zeros(n, dtype=bool),
        p_policy=np.full(n, 0.5),
        p_pi0=np.full(n, p_pi0),
        holdout=np.zeros(n),
        rewards={"reward": np.asarray(reward, dtype=float)},
        within={},
        unit=unit,
        audited=None if places is None else np.arange(len(places)),
        places=places,
        wrong=wrong,
    )


def by_hand(values: FloatArray, length: int | None) -> float:
    """The sum over starts, product by product."""
    weight = {0: 1.0} if length is None else {0: 0.4}
    if length is not None:
        places = range(EVERY, 50 * length, EVERY)
        within = [0.3 * min(place / length, 1.0) for place in places]
        beyond = [0.3 * (1 - min(length / place, 1.0)) for place in places]
        steps = np.diff([0.0, *np.add(within, beyond)])
        weight |= dict(zip(places, steps.tolist(), strict=True))
    begun = {s: w for s, w in weight.items() if s < len(values)}
    worth = sum(
        w * np.mean([np.prod(1 + share / 2.0 * values[s:]) for share in FRACTIONS])
        for s, w in begun.items()
    )
    return float(worth + 1 - sum(begun.values()))


@pytest.mark.parametrize("length", [None, 100, 200, 1000])
def test_evidence_is_what_bets_from_all_starts_have_earned(length: int | None) -> None:
    values = np.random.default_rng(0).uniform(-2.0, 2.5, 300)
    mixture = StartMixture(2.0, length)
    path = mixture.add(values)
    assert math.exp(mixture.log_evidence) == pytest.approx(by_hand(values, length))
    for n in (1, EVERY, EVERY + 1, 250):
        assert math.exp(path[n - 1]) == pytest.approx(by_hand(values[:n], length))


def delay(after: int, length: int, seed: int) -> int:
    """Values from a fault to the stop; .105 is earned before it and .08 after it, .095 needed."""
    draw, need = np.random.default_rng(seed), 0.095
    mean = np.where(np.arange(after + 40_000) < after, 0.105, 0.08)
    path = StartMixture(1 - need, length).add(need - (draw.random(len(mean)) < mean))
    return int((path[after:] >= math.log(1 / 0.01)).argmax())


def test_a_fault_after_twice_the_declared_length_is_found_in_time() -> None:
    """With all starts within the length it took four to ten times as long."""
    length = 20_000
    early, *late = (
        float(np.median([delay(after, length, seed) for seed in range(20)]))
        for after in (0, length, 2 * length)
    )
    assert 0 < max(late) <= 2.5 * early


def shares(n: int, *pieces: tuple[int, float]) -> FloatArray:
    """(n,) the share of traffic on pi0: from each place on another one."""
    held = np.zeros(n)
    for first, share in pieces:
        held[first:] = share
    return held


@pytest.mark.parametrize("by", ["items", "holdout"])
def test_a_share_that_changes_is_fair_and_a_fault_at_any_share_is_seen(by: Weighing) -> None:
    """A ramp of 5%, 50% and 100%: no more alarms than allowed, and a half of value is found."""
    n, rng, alarms, found = 6000, np.random.default_rng(5), 0, 0
    held_back = shares(n, (0, 0.95), (2000, 0.5), (4000, 0.05))
    for _ in range(120):
        held = rng.random(n) < held_back
        kept, lost = (rng.random(n) < np.where(held, 0.5, 0.5 * f) for f in (0.95, 0.4))
        for reward in (kept, lost):
            part = floor_part(by=by, length=n)
            judged = replace(
                rows(reward.astype(float)),
                held=held,
                holdout=held_back,
                p_policy=np.where(held, 0.0, 1.0),
                p_pi0=np.where(held, 1.0, 0.0),
            )
            _, values = part.values(judged)
            path = part.mixture.add(values / part.limit(judged.holdout))
            enough = bool(path.max() >= math.log(1 / 0.1))
            alarms, found = (
                alarms + (enough and reward is kept),
                found + (enough and reward is lost),
            )
    assert stats.binomtest(alarms, 120, 0.1, alternative="greater").pvalue > 1e-3
    assert found > 100


def test_a_shadow_and_a_lone_policy_say_nothing() -> None:
    rng, n = np.random.default_rng(0), 500
    for by, held_back in (("items", 1.0), ("holdout", 0.0)):
        part = floor_part(by=by)  # type: ignore[arg-type]
        judged = replace(
            rows((rng.random(n) < 0.5).astype(float)),
            held=np.full(n, held_back == 1),
            holdout=np.full(n, held_back),
        )
        _, values = part.values(judged)
        assert not (values / part.limit(judged.holdout)).any()


def test_a_cycle_weighs_alike_by_the_share_that_it_begins_with() -> None:
    """Whatever rises within it counts as if it had not; what falls counts its least."""
    need, n = 0.3, 40
    at, reward = np.arange(n) * (CYCLE / 20), np.tile([0.0, 1.0], n // 2)
    for held_back, first in (
        (shares(n, (0, 0.5), (10, 0.2), (20, 0.2)), [0.5, 0.2]),
        (shares(n, (0, 0.2), (10, 0.5), (20, 0.5)), [0.2, 0.5]),
    ):
        part = floor_part(ABSOLUTE, length=None)
        evidence = EpochEvidence([part], delta=0.01, length=None, cycle=CYCLE)
        evidence.add(replace(rows(reward, at=at), holdout=held_back))
        evidence.add(replace(rows([0.0], at=[2 * CYCLE]), holdout=held_back[-1:]))
        more = held_back > np.repeat(first, 20)
        value = np.where(more, need - 1.0, need - reward)
        limit = 1 / (1 - np.repeat(first, 20)) - need
        by_hand = np.mean([np.prod(1 + share * value / limit) for share in FRACTIONS])
        assert math.exp(part.log_evidence) == pytest.approx(by_hand)


def test_evidence_does_not_depend_on_batches() -> None:
    """By decisions, by days and over users: the same parts and the same stop for any batching."""
    rng = np.random.default_rng(1)
    n = 20_000
    reward = (rng.random(n) < 0.2).astype(float)
    at, users = np.sort(rng.uniform(0, 5 * CYCLE, n)), rng.integers(0, 300, n)
    places = rng.random(n)

    def judged(batch: int) -> EpochEvidence:
        parts = [
            floor_part(replace(promise, name=f"{promise.floor} {units}"), units=units)
            for promise in (RELATIVE, ABSOLUTE)
            for units in (None, "all rows", "first row")
        ]
        evidence = EpochEvidence(parts, delta=0.01, length=n, cycle=CYCLE)
        for first in range(0, n, batch):
            cut = slice(first, first + batch)
            one = rows(reward[cut], at=at[cut], p_pi0=0.53, places=places[cut],
                       unit=users[cut].astype(str).tolist())  # fmt: skip
            every = {part.promise.name: reward[cut] for part in parts}
            evidence.add(replace(one, rewards=every))
        return evidence

    whole = judged(n)
    assert whole.refuted
    for batch in (7, 1000):
        other = judged(batch)
        assert other.stopped_after == whole.stopped_after
        for part, same in zip(other.parts, whole.parts, strict=True):
            assert part.log_evidence == pytest.approx(same.log_evidence, abs=1e-7)
            assert part.words == same.words and part.refuted == same.refuted


def test_false_alarms_at_the_edge_of_the_need_are_at_most_delta() -> None:
    assert too_many(Life("edge", 0.95), SMALL, 200) > 0.001


def test_a_daily_swing_stops_no_absolute_floor_that_is_kept_over_days() -> None:
    """Looked at within the day it would, as would the evidence of one start."""
    life = Life("swing", 0.95, floor="absolute", swing=-0.5, a_day=2000)
    assert too_many(life, SMALL, 100) > 0.001
    assert too_many(life, replace(SMALL, cycle=CYCLE / 20), 30) < 0.001
    assert too_many(life, replace(SMALL, cycle=CYCLE / 20, length=None), 30) < 0.001


def test_a_promise_over_users_is_not_judged_by_their_decisions() -> None:
    """At the need over users; over decisions, most of which are heavy users', it lies below."""
    life = Life("heavy users", 0.95, users=100, a_day=2000)
    watch = replace(SMALL, decisions=16_000)
    assert too_many(life, watch, 60) > 0.001
    assert too_many(life, replace(watch, by_units=False), 30) < 0.001


def test_an_average_over_the_products_so_far_would_be_caught() -> None:
    """Why weights are fixed beforehand: the same bets, averaged over starts, err too often."""
    alarms, allowed = {"average": 0, "mixture": 0}, 0.05
    for seed in range(300):
        x = np.random.default_rng(seed).choice([-1.0, 1.0], 3000)
        worth, steps = 0.0, np.log1p(0.2 * x).tolist()
        highest = 0.0
        for t, step in enumerate(steps, 1):  # a start before every value
            worth = (worth + 1.0) * math.exp(step)
            highest = max(highest, worth / t)
        alarms["average"] += highest >= 1 / allowed
        alarms["mixture"] += bool(StartMixture(1.0, 3000).add(x).max() >= math.log(1 / allowed))
    error = {
        name: stats.binomtest(count, 300, allowed, alternative="greater").pvalue
        for name, count in alarms.items()
    }
    assert error["average"] < 0.001 < error["mixture"], alarms


def test_a_test_that_ignores_what_was_looked_at_before_would_be_caught() -> None:
    """Judged by a t-test after every batch: far too many alarms."""
    alarms = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        values = rng.normal(size=4000)
        looks = np.arange(250, 4001, 250)
        z = np.array([values[:n].mean() * math.sqrt(n) for n in looks])
        alarms += bool((z < stats.norm.ppf(DELTA / 4)).any())
    assert stats.binomtest(alarms, 100, DELTA / 4, alternative="greater").pvalue < 0.001


@pytest.mark.parametrize(
    "life",
    [
        Life("items worth less", 0.85),
        Life("the policy is broken", 1.0, drop=0.3),
        Life("other items are shown", 1.0, skew=0.3),
        Life("items worth less, absolute", 0.85, floor="absolute", a_day=1000),
        Life("the policy is broken, over users", 1.0, drop=0.3, users=300, a_day=1000),
    ],
)
def test_what_goes_wrong_is_seen(life: Life) -> None:
    at = stops(life, replace(SMALL, decisions=12_000, delta=0.2), 8)
    assert np.isfinite(at).all(), at


@pytest.mark.parametrize("life", [Life("items worth less", 0.85), Life("other items", 1, skew=0.2)])
def test_a_late_fault_is_found_nearly_as_soon_as_an_early_one(life: Life) -> None:
    """Within 2.5 times the delay; with one start it takes far longer."""
    watch = replace(SMALL, decisions=40_000, delta=0.1, length=40_000)
    late = replace(life, after=20_000)
    early = float(np.median(stops(life, watch, 12)))
    for length, soon in ((40_000, True), (None, False)):
        at = stops(late, replace(watch, length=length), 12) - 20_000
        assert (np.median(at[at > 0]) <= 2.5 * early) is np.bool_(soon)


def test_margin_that_is_spent_does_not_stop() -> None:
    """Below the floor by what the round may spend: fine; without that credit: an alarm."""
    rng = np.random.default_rng(0)
    reward = (rng.random(20_000) < 0.27).astype(float)  # V(pi0) would be .3
    for credit, stopped in ((0.03, False), (0.0, True)):
        evidence = EpochEvidence([floor_part(credit=credit)], delta=0.01, length=20_000)
        evidence.add(rows(reward, p_pi0=0.5 * 0.3 / 0.27))
        assert evidence.refuted is stopped


def test_promises_share_one_delta() -> None:
    """Parts are added up with their weights, so several that are half sure stop together."""
    reward = np.tile([0.0, 0.0, 0.0, 1.0], 200)

    def stopped(count: int) -> tuple[EpochEvidence, int | None]:
        parts = [floor_part(replace(RELATIVE, name=f"{k}")) for k in range(count)]
        evidence = EpochEvidence(parts, delta=0.01, length=1000)
        one = rows(reward, p_pi0=0.6)
        evidence.add(replace(one, rewards={f"{k}": reward for k in range(count)}))
        return evidence, evidence.stopped_after

    alone, first = stopped(1)
    together, second = stopped(20)
    assert first is not None and second is not None and second <= first
    assert sum(part.weight for part in together.parts) == pytest.approx(1)
    assert [part.name for part in together.parts if part.refuted] == ["0, by items"]
    part, propensities = alone.parts
    assert part.share == 1 and part.log_evidence > math.log(1 / 0.01)
    assert "evidence" in part.words and "the policy must earn" in part.words
    assert propensities.share == 0 and not propensities.refuted


def test_words_of_a_stop_tell_the_evidence_at_the_stop() -> None:
    """Rewards that recover in the same look lower the evidence again; the reason stays true."""
    p_pi0 = np.where(np.arange(2500) < 500, 0.6, 0.2)  # what is shown suits pi0, then the policy
    evidence = EpochEvidence([floor_part()], delta=0.01, length=1000)
    evidence.add(replace(rows(np.ones(2500)), p_pi0=p_pi0))
    part = evidence.parts[0]
    assert part.refuted and part.log_evidence < math.log(200)
    after = evidence.stopped_after
    found = re.search(r"evidence reached ([0-9.,]+) of 200 after ([0-9,]+) decisions", part.words)
    assert found, part.words
    assert float(found[1].replace(",", "")) >= 199 and found[2] == f"{after:,}"


def test_a_unit_has_one_value_in_a_cycle() -> None:
    """The mean of its decisions in the cycle, or its first decision in the epoch."""
    reward = [1.0, 0.0, 0.0, 0.0, 1.0, 0.0]
    unit, at = ["a", "a", "a", "b", "a", "c"], [0.0, 1.0, 2.0, 3.0, 10.0, 20.0]
    expected: dict[UnitRows, list[list[float]]] = {
        "all rows": [[1 / 3, 0.0], [1.0]],
        "first row": [[1.0, 0.0], []],
    }
    for units, values in expected.items():
        part = floor_part(ABSOLUTE, units=units)
        evidence = EpochEvidence([part], delta=0.01, length=1000, cycle=10.0)
        evidence.add(rows(reward, at=at, unit=unit))
        mixture = StartMixture(0.7, 1000)
        for cycle in values:
            mixture.hold(0.3 - np.array(cycle))
            mixture.close()
        assert part.log_evidence == pytest.approx(mixture.log_evidence)
        assert evidence.parts[0].clock == "cycles"
        assert "values of units in whole cycles" in evidence.parts[0].words


def test_a_cycle_that_is_not_over_says_nothing() -> None:
    evidence = EpochEvidence([floor_part(ABSOLUTE)], delta=0.01, length=1000, cycle=1000.0)
    evidence.add(rows(np.zeros(999)))
    assert evidence.parts[0].log_evidence == pytest.approx(0.0) and not evidence.refuted
    evidence.add(rows([0.0, 0.0], at=[999.0, 1000.0]))
    assert evidence.stopped_after == 1000


@pytest.mark.parametrize("reward", [math.nan, math.inf, -0.1, 1.1])
@pytest.mark.parametrize("promise", [RELATIVE, ABSOLUTE])
@pytest.mark.parametrize(("p_pi0", "worst"), [(0.1, 0.0), (0.9, 1.0)])
def test_a_reward_outside_its_range_counts_at_its_worst_for_the_promise(
    promise: Promise, reward: float, p_pi0: float, worst: float
) -> None:
    """Of an item that pi0 would show less often: as if it earned nothing; else as if all."""

    def of(last: float) -> list[float]:
        evidence = EpochEvidence([floor_part(promise)], delta=0.01, length=1000, cycle=10.0)
        given = [0.5, last if promise is RELATIVE or last not in (0.0, 1.0) else 0.0]
        evidence.add(replace(rows(given, p_pi0=p_pi0), at=np.array([0.0, 1.0])))
        evidence.add(replace(rows([0.5]), at=np.array([20.0])))  # ends the cycle
        return [part.log_evidence for part in evidence.parts]

    assert of(reward) == of(worst)


def test_what_is_no_number_is_refused() -> None:
    mixture = StartMixture(1.0, 10)
    for value in (math.nan, math.inf, -1.1):
        with pytest.raises(DataError, match="is a number that is at least -1"):
            mixture.add(np.array([value]))
    assert mixture.log_evidence == 0
    evidence = EpochEvidence([floor_part()], delta=0.01, length=10)
    with pytest.raises(DataError, match="need less term"):
        evidence.add(rows([1.0], p_pi0=math.nan))
    with pytest.raises(DataError, match="times are numbers"):
        evidence.add(rows([1.0], at=[math.nan]))
    with pytest.raises(DataError, match=r"lies in \[0, 1\]"):
        evidence.add(rows([1.0], places=np.array([math.nan])))
    with pytest.raises(DataError, match="needs the unit of each decision"):
        over_units = floor_part(units="all rows")
        EpochEvidence([over_units], delta=0.01, length=10).add(rows([1.0]))
    with pytest.raises(ConfigError, match="length is at least 1"):
        StartMixture(1.0, 0)
    with pytest.raises(ConfigError, match="a cycle takes some seconds"):
        EpochEvidence([floor_part()], delta=0.01, length=10, cycle=0.0)
    assert evidence.n == 0 and not evidence.refuted


def test_both_ways_of_weighing_have_the_mean_they_should() -> None:
    rng = np.random.default_rng(0)
    n, h, q = 400_000, 0.2, means(0.9, 0.3)
    held = rng.random(n) < h
    action = np.where(held, rng.choice(5, n, p=PI0), rng.choice(5, n, p=POLICY))
    reward = (rng.random(n) < q[action]).astype(float)
    for by in ("items", "holdout"):
        w, w0 = weights(POLICY[action], PI0[action], held, np.full(n, h), by)
        assert (w * reward).mean() == pytest.approx(POLICY @ q, rel=0.02)
        assert (w0 * reward).mean() == pytest.approx(PI0 @ q, rel=0.02)
        assert w.max() <= 1 / (1 - h) + 1e-12
    assert PI0 @ q == pytest.approx(0.3) and POLICY @ q == pytest.approx(0.27)


def test_a_propensity_that_is_not_the_policys_stops() -> None:
    evidence = EpochEvidence([floor_part()], delta=0.01, length=1000)
    evidence.add(rows(np.ones(1000), places=np.random.default_rng(0).random(1000)))
    assert not evidence.refuted and not any(part.doubtful for part in evidence.parts)
    evidence.add(rows([1.0], places=np.array([0.5]), wrong=1))
    assert evidence.stopped_after == 1001
    assert "1 were logged with another probability" in evidence.parts[1].words


def test_places_are_weighed_against_uniform_ones() -> None:
    """Their likelihood from the first place on is the Dirichlet mixture's, by hand."""
    places, part = np.random.default_rng(0).beta(2, 1, 500), PropensityPart()
    path = part.add(places, np.arange(500))
    counts = np.bincount((places * 16).astype(int), minlength=16)
    mixed = sum(math.lgamma(c + 0.5) - math.lgamma(0.5) for c in counts.tolist())
    mixed += math.lgamma(8) - math.lgamma(508) + 500 * math.log(16)
    assert part.log_evidence == pytest.approx(mixed) and path[-1] == pytest.approx(mixed)


def test_confidence_sequences_hold_at_all_times() -> None:
    missed = 0
    for seed in range(200):
        rng, sequence = np.random.default_rng(seed), ConfidenceSequence(1.0)
        wrong = False
        for _ in range(20):
            sequence.add((rng.random(100) < 0.2).astype(float))
            limits = sequence.limits
            assert limits is not None
            mean, low, high = limits
            assert low <= mean <= high
            wrong |= not low <= 0.2 <= high
        missed += wrong
    assert stats.binomtest(missed, 200, 0.05, alternative="greater").pvalue > 0.001
    assert high - low < 0.15


def test_contexts_that_move_are_noticed() -> None:
    rng = np.random.default_rng(0)
    for shift, seen in ((0.0, False), (0.2, True)):
        drift = ContextDrift(np.zeros(3), np.ones(3), 100_000)
        drift.add(rng.normal(size=(5000, 3)) + [0.0, shift, 0.0])
        assert drift.doubtful is seen
    assert drift.worst[0] == 1


def test_levels_of_all_epochs_a_campaign_may_need_sum_to_delta() -> None:
    spent = sum(delta_of_epoch(0.05, 3, epoch) for epoch in range(1, 60)) * 3
    assert spent == pytest.approx(0.05)
