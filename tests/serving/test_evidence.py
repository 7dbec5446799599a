"""The monitor: what it adds up, how often it errs, and that it sees what goes wrong."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from depsue.promises import Floor, Promise
from depsue.serving.evidence import (
    FRACTIONS,
    BettingEvidence,
    ConfidenceSequence,
    ContextDrift,
    FloorTest,
    PropensityTest,
    delta_of_test,
    weights,
)
from depsue_research.monitor import PI0, POLICY, Life, means, stops_at

DELTA = 0.2  # a large one, so that too many false alarms would show
LIVES = 300


def lives(life: Life, *, decisions: int, count: int = LIVES, holdout: float = 0.1) -> list[float]:
    return [
        stops_at(
            life,
            decisions=decisions,
            rate=0.3,
            holdout=holdout,
            delta=DELTA,
            rounds=1,
            ratio=0.95,
            seed=seed,
        )
        for seed in range(count)
    ]


def test_evidence_is_what_the_bets_have_earned() -> None:
    evidence = BettingEvidence(2.0)
    values = np.array([1.0, -2.0, 0.5])
    evidence.add(values[:1])
    evidence.add(values[1:])
    by_hand = np.mean([np.prod(1 + share / 2.0 * values) for share in FRACTIONS])
    assert math.exp(evidence.log_evidence) == pytest.approx(by_hand)


def test_false_alarms_at_the_edge_of_the_need_are_at_most_delta() -> None:
    """Of one epoch: half of delta, over its three tests together."""
    stopped = sum(math.isfinite(at) for at in lives(Life("edge", 0.95), decisions=4000))
    assert stats.binomtest(stopped, LIVES, DELTA / 2, alternative="greater").pvalue > 0.001


def test_a_test_that_ignores_what_was_looked_at_before_would_be_caught() -> None:
    """The same lives, judged by a t-test after every batch: far too many alarms."""
    alarms = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        values = rng.normal(size=4000)
        looks = np.arange(250, 4001, 250)
        z = np.array([values[:n].mean() * math.sqrt(n) for n in looks])
        alarms += bool((z < stats.norm.ppf(DELTA / 2)).any())
    assert stats.binomtest(alarms, 100, DELTA / 2, alternative="greater").pvalue < 0.001


@pytest.mark.parametrize(
    "life",
    [
        Life("items worth less", 0.85),
        Life("the policy is broken", 1.0, drop=0.3),
        Life("other items are shown", 1.0, skew=0.3),
    ],
)
def test_what_goes_wrong_is_seen(life: Life) -> None:
    at = lives(life, decisions=12_000, count=10)
    assert all(math.isfinite(one) for one in at), at


def test_margin_that_is_spent_does_not_stop() -> None:
    """Below the floor by what the round may spend: fine; without that credit: an alarm."""
    rng = np.random.default_rng(0)
    reward = (rng.random(20_000) < 0.27).astype(float)  # V(pi0) would be .3
    w, w0 = np.ones(20_000), np.full(20_000, 0.3 / 0.27)
    for credit, stops in ((0.03, False), (0.0, True)):
        test = FloorTest(
            Promise(Floor(0.95)), by="items", r_max=1.0, credit=credit, holdout=0.0, delta=0.01
        )
        test.add(reward, w, w0)
        assert test.refuted is stops


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
    test = PropensityTest(0.01)
    test.add(np.random.default_rng(0).random(1000), 0)
    assert not test.refuted and not test.doubtful
    test.add(np.array([0.5]), 1)
    assert test.refuted


def test_confidence_sequences_hold_at_all_times() -> None:
    missed = 0
    for seed in range(200):
        rng, sequence = np.random.default_rng(seed), ConfidenceSequence(1.0)
        wrong = False
        for _ in range(20):
            sequence.add((rng.random(100) < 0.2).astype(float))
            mean, low, high = sequence.limits
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


def test_levels_of_all_tests_a_campaign_may_need_sum_to_delta() -> None:
    spent = sum(delta_of_test(0.05, 3, 5, epoch) for epoch in range(1, 60)) * 3 * 5
    assert spent == pytest.approx(0.05)
