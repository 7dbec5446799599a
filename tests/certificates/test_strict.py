"""Strict certificates: a false level passes at most delta of the time, however it is tried."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from depsue.certificates import (
    Ceiling,
    Certificate,
    Credit,
    Folds,
    MixtureLadder,
    Reads,
    Registration,
    Rules,
    ceiling,
    certify,
    safety_terms,
)
from depsue.certificates.promise_test import PromiseTest
from depsue.data import Catalogue, LoggedData
from depsue.data.checks import FloatArray
from depsue.errors import ConfigError, DataError, PolicyError
from depsue.policies import ChosenPolicy, Mixture, OwnPolicy, ScoreTable, Uniform
from depsue.promises import Floor, Promise
from depsue.savable import hash_of
from depsue.testing.bounds import binomial_tail
from depsue.testing.splits import split

RUNS, DELTA = 1000, 0.2
"""At this level 1,000 small samples tell a right rate from a wrong one."""
CATALOGUE = Catalogue.of(range(3), novel=[2])
CONTEXT = np.zeros((1, 1), dtype=np.float32)
PI0 = np.array([0.5, 0.5, 0.0])
Q = np.array([0.6, 0.4, 0.0])  # V(pi0) = 0.5: a floor of 95% is 0.475


def own(*probabilities: float) -> OwnPolicy:
    return OwnPolicy(ScoreTable(CONTEXT, np.array([probabilities])), 3)


BELOW = own(0.7915, 0.0, 0.2085)  # V = 0.4749, just below the floor
NOVEL = Uniform(CATALOGUE.novel)


def rows(draw: np.random.Generator, n: int, copies: int = 1, **more: Any) -> LoggedData:
    action = draw.choice(3, size=n, p=PI0)
    reward = (draw.random(n) < Q[action]).astype(float)
    action, reward = np.repeat(action, copies), np.repeat(reward, copies)
    if copies > 1 and "unit" in more:
        more = {"unit": np.repeat(np.arange(n), copies), "units": np.arange(n)}
    return LoggedData(
        catalogue=CATALOGUE,
        contexts=CONTEXT,
        context=np.zeros(len(action), dtype=np.int64),
        action=action.astype(np.int32),
        reward=reward,
        propensity=PI0[action],
        r_max=1.0,
        **more,
    )


def folds_of(logs: LoggedData, data: str = "rows") -> Folds:
    """All rows certify: the split has tests of its own."""
    registration = Registration("test", "0" * 64, "row", (0.1, 0.1, 0.8), "rows")
    return Folds(logs, logs, logs, data, registration, 0, "test")


def one(policy: OwnPolicy = BELOW) -> MixtureLadder:
    return MixtureLadder((policy,), np.ones((1, 1)))


def passes(logs: LoggedData, rules: Rules, levels: MixtureLadder | None = None) -> bool:
    return certify(levels or one(), folds_of(logs), rules, Reads()).passed


def count(run: Callable[[np.random.Generator], bool], seed: int) -> int:
    draw = np.random.default_rng(seed)
    return sum(run(draw) for _ in range(RUNS))


PAIRED = Rules(delta=DELTA, clip=2.0)
ABSOLUTE = Rules((Promise(Floor(ratio=None, absolute=0.475)),), delta=DELTA, clip=2.0)


@pytest.mark.parametrize("rules", [PAIRED, ABSOLUTE], ids=["paired", "absolute"])
def test_a_level_just_below_the_floor_passes_at_most_delta_of_the_time(rules: Rules) -> None:
    wrong = count(lambda draw: passes(rows(draw, 1000), rules), seed=1)
    assert binomial_tail(wrong, RUNS, DELTA) > 1e-3, f"{wrong} of {RUNS} passed"
    assert wrong > RUNS / 10  # the test is near its level, so it could have failed


def test_rows_of_one_unit_are_one_value() -> None:
    def run(draw: np.random.Generator, **more: Any) -> bool:
        return passes(rows(draw, 400, copies=4, **more), PAIRED)

    by_unit = count(lambda draw: run(draw, unit=True), seed=2)
    by_row = count(run, seed=2)
    assert binomial_tail(by_unit, RUNS, DELTA) > 1e-3, f"{by_unit} of {RUNS} passed"
    assert binomial_tail(by_row, RUNS, DELTA) < 1e-9  # what units protect from


def test_thirty_levels_in_a_fixed_order_err_at_most_delta() -> None:
    tilt = own(0.95, 0.05, 0.0)  # V = 0.59: nu of novel actions is safe up to 0.1949
    nus = np.concatenate([np.linspace(0.05, 0.19, 5), np.linspace(0.195, 0.25, 25)])
    levels = MixtureLadder((tilt, NOVEL), np.stack([1 - nus, nus], axis=1))
    reached: list[float] = []

    def run(draw: np.random.Generator) -> bool:
        certificate = certify(levels, folds_of(rows(draw, 1000)), PAIRED, Reads())
        reached.append(certificate.shares[1] if certificate.passed else 0.0)
        return reached[-1] > 0.1949

    wrong = count(run, seed=3)
    assert binomial_tail(wrong, RUNS, DELTA) > 1e-3, f"{wrong} of {RUNS} passed"
    assert wrong > RUNS / 10 and sum(nu > 0 for nu in reached) > RUNS / 2


def test_a_gate_that_is_retried_errs_at_most_delta_in_all() -> None:
    draw = np.random.default_rng(4)

    def gate(counted: bool) -> bool:
        """Three attempts on one data set, each on another part of it."""
        reads, logs = Reads(retries=True), rows(draw, 2400)
        for attempt in range(1, 4):
            part = folds_of(logs.take(draw.choice(2400, 800, replace=False)))
            certificate = certify(one(), part, PAIRED, reads if counted else Reads())
            assert certificate.attempt == (attempt if counted else 1)
            if certificate.passed:
                return True
        return False

    wrong = sum(gate(counted=True) for _ in range(RUNS))
    assert binomial_tail(wrong, RUNS, DELTA) > 1e-3, f"{wrong} of {RUNS} passed"
    wrong = sum(gate(counted=False) for _ in range(200))
    assert binomial_tail(wrong, 100, DELTA) < 1e-3, "retrying is harmless here"


def test_a_second_verdict_on_the_same_data_is_refused_whatever_the_campaign() -> None:
    logs, reads = rows(np.random.default_rng(5), 500), Reads()
    certify(one(), split(logs, "first"), PAIRED, reads)
    with pytest.raises(ConfigError, match=r"one verdict.*attempt 2.*certify on new rows"):
        certify(one(own(0.6, 0.4, 0.0)), split(logs, "second"), PAIRED, reads)


def test_attempt_j_is_tested_at_delta_two_to_the_minus_j() -> None:
    logs, reads = rows(np.random.default_rng(6), 500), Reads(retries=True)
    folds = split(logs, "test")
    certificates = [certify(one(), folds, PAIRED, reads) for _ in range(4)]
    assert [c.attempt for c in certificates] == [1, 2, 3, 4]
    assert [c.delta for c in certificates] == pytest.approx([DELTA / 2**j for j in (1, 2, 3, 4)])
    assert [c.verdicts[0].delta for c in certificates] == pytest.approx(
        [c.delta for c in certificates]
    )
    bounds = [c.verdicts[0].bound for c in certificates]
    assert bounds == sorted(bounds, reverse=True) and all(c.retries for c in certificates)


def test_a_credit_that_leaves_nothing_to_an_attempt_is_refused_before_it_counts() -> None:
    reads = Reads(retries=True)
    rules = Rules(delta=0.05, clip=2.0, credits={"reward": Credit(0.1, 0.03)})
    with pytest.raises(ConfigError, match=r"0.03 of 0.025 is spent.*smaller deltas"):
        certify(one(), folds_of(rows(np.random.default_rng(6), 500)), rules, reads)
    assert reads.count("rows") == 0


def many_promises(draw: np.random.Generator) -> tuple[LoggedData, tuple[Promise, ...]]:
    n = 4000
    country = np.where(draw.random(n) < 0.5, "SE", "NO").astype(object)
    watched = 10 * (draw.random(n) < 0.5)
    logs = rows(draw, n, columns={"country": country, "minutes": watched.astype(float)})
    return logs, (
        Promise(),
        Promise(name="sweden", segment=("country", "SE")),
        Promise(Floor(0.9), name="minutes", reward="minutes", r_max=10.0),
    )


def test_several_promises_are_tested_at_full_delta_and_all_must_pass() -> None:
    logs, promises = many_promises(np.random.default_rng(7))
    better = own(0.55, 0.45, 0.0)
    certificate = certify(
        one(better), folds_of(logs), Rules(promises, delta=DELTA, clip=2.0), Reads()
    )
    assert certificate.passed and [v.promise.name for v in certificate.verdicts] == [
        p.name for p in promises
    ]
    assert all(v.delta == DELTA for v in certificate.verdicts)
    assert certificate.spent.tests == {p.name: DELTA for p in promises}
    assert certificate.spent.ceilings == {} and certificate.spent.margins == {}
    assert certificate.verdicts[1].n == int(logs.where("country", "SE").sum())
    weights = np.where(logs.action == 0, 1.1, 0.9)
    expected = ((weights - 0.9) * logs.columns["minutes"]).mean()
    assert certificate.verdicts[2].mean == pytest.approx(float(expected))

    strict = (*promises[:2], Promise(Floor(1.05), "minutes", "minutes", 10.0))
    certificate = certify(
        one(better), folds_of(logs), Rules(strict, delta=DELTA, clip=2.0), Reads()
    )
    assert [v.passed for v in certificate.verdicts] == [
        True,
        True,
        False,
    ] and not certificate.passed


def test_a_credit_lowers_the_need_and_takes_its_part_of_delta() -> None:
    logs = rows(np.random.default_rng(8), 2000)
    plain = certify(one(), folds_of(logs), Rules(clip=2.0), Reads())
    rules = Rules(clip=2.0, credits={"reward": Credit(0.04, 0.02)})
    helped = certify(one(), folds_of(logs), rules, Reads())
    assert not plain.passed and plain.verdicts[0].need == 0.0
    assert helped.passed and helped.verdicts[0].need == pytest.approx(-0.04)
    assert helped.spent.tests == pytest.approx({"reward": 0.03})
    assert helped.spent.margins == {"reward": 0.02} and helped.spent.ceilings == {}
    assert helped.verdicts[0].bound < plain.verdicts[0].bound


def test_a_ceiling_replaces_the_pairing() -> None:
    logs = rows(np.random.default_rng(9), 2000)
    top = Ceiling(0.5, 0.01, 100, "other rows")
    rules = Rules(clip=2.0, ceilings={"reward": top})
    certificate = certify(one(own(0.9, 0.1, 0.0)), folds_of(logs), rules, Reads())
    assert certificate.passed and certificate.verdicts[0].need == pytest.approx(0.475)
    assert certificate.verdicts[0].ceiling == 0.5
    assert certificate.spent.tests == pytest.approx({"reward": 0.04})
    assert certificate.spent.ceilings == {"reward": 0.01} and certificate.spent.margins == {}
    assert any("has not changed" in words for words in certificate.assumptions)


def test_ceilings_cover_the_value_of_pi0() -> None:
    def too_low(draw: np.random.Generator) -> bool:
        return ceiling(Promise(), rows(draw, 500), DELTA).value < 0.5

    wrong = count(too_low, seed=10)
    assert binomial_tail(wrong, RUNS, DELTA) > 1e-3, f"{wrong} of {RUNS} too low"
    top = ceiling(Promise(), rows(np.random.default_rng(0), 20_000), DELTA)
    assert 0.5 < top.value < 0.52 and (top.n, top.delta) == (20_000, DELTA)


@pytest.mark.parametrize("rho", [0.5, 0.9, 0.95])
def test_paired_terms_of_a_mixture_with_pi0_are_never_negative(rho: float) -> None:
    draw = np.random.default_rng(11)
    logs = rows(draw, 400)
    for share in (*draw.uniform(0, 1 - rho, 5), 1 - rho):
        for new in (np.zeros(400), draw.exponential(2.0, 400)):
            weights: FloatArray = (1 - share) + share * new
            terms = safety_terms(
                Promise(Floor(rho)), logs, weights, clip=20.0, paired=np.ones(400), largest=1.0
            )
            assert terms.values.min() >= -1e-12
            assert terms.lower == pytest.approx(-rho)


def test_naive_safe_exploration_is_certain_on_few_rows() -> None:
    levels = MixtureLadder((ChosenPolicy(NOVEL.n_actions), NOVEL), np.array([[0.95, 0.05]]))
    terms = certify(levels, folds_of(rows(np.random.default_rng(12), 30)), PAIRED, Reads())
    assert terms.verdicts[0].mean == pytest.approx(0.0, abs=1e-12)


def test_clipping_only_lowers_and_a_novel_action_earns_nothing() -> None:
    logs = rows(np.random.default_rng(13), 300)
    free = safety_terms(Promise(), logs, np.full(300, 3.0), clip=9.0, paired=None, largest=1.0)
    cut = safety_terms(Promise(), logs, np.full(300, 3.0), clip=2.0, paired=None, largest=1.0)
    assert cut.mean() == pytest.approx(free.mean() * 2 / 3)
    assert PromiseTest(logs, PAIRED, 0.05).evidence([NOVEL]).weights.max() == 0.0


def test_testing_stops_at_the_first_failure() -> None:
    logs, worst = rows(np.random.default_rng(14), 3000), own(0.0, 0.5, 0.5)
    better = own(0.55, 0.45, 0.0)
    shares = np.array([[1.0, 0.0], [0.0, 1.0], [0.9, 0.1]])
    certificate = certify(MixtureLadder((better, worst), shares), folds_of(logs), PAIRED, Reads())
    assert (
        certificate.passed
        and certificate.shares == (1.0, 0.0)
        and (certificate.tested, certificate.listed) == (2, 3)
    )
    certificate = certify(
        MixtureLadder((better, worst), shares[1:]), folds_of(logs), PAIRED, Reads()
    )
    assert not certificate.passed and certificate.shares == (0.0, 1.0) and certificate.tested == 1


def test_rows_of_another_policy_are_paired_with_pi0() -> None:
    logs = rows(np.random.default_rng(15), 3000)  # logged by (.5, .5); pi0 shall be (.6, .4)
    pi0 = own(0.6, 0.4, 0.0)
    rules = Rules(clip=2.0, largest=1.2)
    certificate = certify(one(pi0), folds_of(logs), rules, Reads(), logging_policy=pi0)
    w0 = np.where(logs.action == 0, 1.2, 0.8)
    assert certificate.verdicts[0].mean == pytest.approx(float((0.05 * w0 * logs.reward).mean()))
    with pytest.raises(ConfigError, match=r"pi0 / p must stay below.*1.2, declared 1.*keep"):
        certify(one(pi0), folds_of(logs), PAIRED, Reads(), logging_policy=pi0)


def test_a_certificate_says_what_it_rests_on() -> None:
    draw = np.random.default_rng(16)
    rules = Rules(clip=2.0, assumptions=("weekdays are alike",))
    plain = certify(one(), folds_of(rows(draw, 300)), rules, Reads())
    with_units = certify(one(), folds_of(rows(draw, 300, copies=2, unit=True)), rules, Reads())
    assert "weekdays are alike" in plain.assumptions
    assert any("rows are independent" in words for words in plain.assumptions)
    assert any("mean over units" in words for words in with_units.assumptions)
    assert with_units.verdicts[0].n == 300


def test_policies_have_hashes() -> None:
    assert hash_of(BELOW) == hash_of(own(0.7915, 0.0, 0.2085)) != hash_of(NOVEL)
    a, b = Mixture([BELOW, NOVEL], [0.5, 0.5]), Mixture([BELOW, NOVEL], [0.4, 0.6])
    assert hash_of(a) != hash_of(b)
    assert hash_of(OwnPolicy(lambda x: np.full((len(x), 3), 1 / 3), 3)) is None


def test_what_pi0_chose_is_a_part_like_others() -> None:
    levels = MixtureLadder((ChosenPolicy(NOVEL.n_actions), NOVEL), np.array([[0.9, 0.1]]))
    logs = rows(np.random.default_rng(17), 100)
    certificate: Certificate = certify(levels, folds_of(logs), PAIRED, Reads())
    assert certificate.policy == hash_of(levels.policy(0)) is not None
    assert PromiseTest(logs, PAIRED, 0.05).evidence(levels.parts).weights[0].tolist() == [1.0] * 100
    with pytest.raises(PolicyError, match=r"has no distributions.*probability of every candidate"):
        next(levels.policy(0).distributions(logs.requests))


REFUSED: list[tuple[Callable[[], object], str]] = [
    (lambda: MixtureLadder((BELOW,), np.array([[0.5]])), r"shares must sum to 1.*for 1 parts"),
    (lambda: MixtureLadder((BELOW, NOVEL), np.ones((1, 1))), r"one share >= 0 for every part"),
    (lambda: Rules(delta=5.0), r"delta must lie in \(0, 1\).*5.0.*0.05"),
    (lambda: Rules(clip=0.0), r"clip must be a positive number.*0.0.*20"),
    (lambda: Rules(bound="best"), r"a bound must be one of.*'best'"),
    (lambda: Rules(bound="hcope"), r"hcope takes no paired terms.*\['reward'\].*ceiling"),
    (lambda: Rules(promises=()), r"at least one promise.*promises=\["),
    (lambda: Rules(promises=(Promise(), Promise())), r"names of their own.*name="),
    (lambda: Rules(credits={"reward": Credit(0.1, 0.05)}), r"0.05 of 0.05 is spent.*smaller"),
    (lambda: Rules(credits={"other": Credit(0.1, 0.01)}), r"name of a promise.*other.*reward"),
]


@pytest.mark.parametrize(("call", "words"), REFUSED)
def test_what_breaks_a_rule_is_refused(call: Callable[[], object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        call()


def test_an_empty_segment_is_refused() -> None:
    logs, _ = many_promises(np.random.default_rng(18))
    rules = Rules((Promise(segment=("country", "DK")),))
    with pytest.raises(DataError, match=r"a segment needs rows.*'country'.*'DK'.*more data"):
        certify(one(), folds_of(logs), rules, Reads())


def _without_the_worst(logs: LoggedData, count: int) -> LoggedData:
    """The rows after those with the lowest terms were erased: who earned nothing asked for it."""
    weight = np.array([0.7915, 0.0, 0.0])[logs.action] / logs.propensity
    order = np.argsort(weight * logs.reward, kind="stable")
    return logs.take(np.sort(order[count:]))


@pytest.mark.parametrize("bound", ["betting", "smoothing", "normal"])
def test_erasing_rows_before_a_verdict_does_not_help_it(bound: str) -> None:
    n, gone, wrong, careless = 1200, 480, 0, 0
    rules = Rules((Promise(floor=Floor(ratio=None, absolute=0.475)),), delta=DELTA, bound=bound)
    for seed in range(100):
        logs = rows(np.random.default_rng(seed), n)
        left = folds_of(_without_the_worst(logs, gone))
        careless += certify(one(), left, rules, Reads()).passed
        wrong += certify(one(), replace(left, erased=gone), rules, Reads()).passed
    assert binomial_tail(wrong, 100, DELTA) > 0.001
    assert binomial_tail(careless, 100, DELTA) < 1e-6


@pytest.mark.parametrize("floor", [Floor(ratio=0.9), Floor(ratio=None, absolute=0.4)])
def test_an_erased_value_never_raises_the_bound(floor: Floor) -> None:
    draw = np.random.default_rng(5)
    logs = rows(draw, 300, copies=2, unit=True)
    rules = Rules((Promise(floor=floor),), delta=DELTA, bound="smoothing")
    whole = certify(one(), folds_of(logs), rules, Reads()).verdicts[0]
    for user in range(0, 300, 30):
        left = folds_of(logs.take(np.asarray(logs.unit) != user))
        less = certify(one(), replace(left, erased=1), rules, Reads()).verdicts[0]
        assert less.bound <= whole.bound + 1e-12 and less.n == whole.n == 300


def test_a_ceiling_counts_what_was_erased_at_its_highest() -> None:
    logs, promise = rows(np.random.default_rng(6), 500), Promise(floor=Floor(ratio=0.9))
    whole = ceiling(promise, logs, 0.05, erased=0)
    highest = logs.take(np.argsort(logs.reward, kind="stable")[:-50])
    assert ceiling(promise, highest, 0.05).value < whole.value  # careless
    assert ceiling(promise, highest, 0.05, erased=50).value >= whole.value


def test_where_values_were_erased_a_bound_that_may_gain_by_it_is_not_used() -> None:
    with pytest.raises(ConfigError, match="never be higher when a value is lower"):
        Rules(bound="normal", erased=1)
    rules = Rules(bound="normal").without(2)
    assert (rules.bound, rules.erased, rules.fixed_length) == ("betting", 2, False)
    assert Rules(bound="smoothing").without(2).bound == "smoothing"
    assert Rules(bound="normal").without(0) == Rules(bound="normal")
