"""Verdicts that read what earlier rounds reserved for them."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from depsue import rng
from depsue.bounds import BaseBound, Betting, Normal, Pilot, best_bet
from depsue.certificates import (
    Certificate,
    Control,
    Folds,
    LoggedRound,
    MixtureLadder,
    Pool,
    Reads,
    Registration,
    Rules,
    certify,
    pooled,
    teaching_rows,
    three_folds,
    verify,
)
from depsue.certificates.folds import reserved_rows
from depsue.data import Catalogue, LoggedData
from depsue.data.checks import FloatArray
from depsue.data.terms import WeightedTerms
from depsue.errors import ConfigError
from depsue.estimators.weights import importance_weights
from depsue.policies import OwnPolicy, ScoreTable
from depsue.promises import Floor, Promise
from depsue.rewards import OwnRewardModel
from depsue.testing.bounds import binomial_tail

CATALOGUE = Catalogue.of(range(4), novel=[3])
USERS = np.arange(5, dtype=np.float32)[:, None]
Q = np.array([[0.1, 0.3, 0.9, 0.4]] * 5) * np.linspace(0.4, 1.0, 5)[:, None]
PI = [
    np.array([[0.5, 0.48, 0.02, 0.0]] * 5),
    np.array([[0.1, 0.55, 0.05, 0.3]] * 5),
    np.array([[0.02, 0.83, 0.1, 0.05]] * 5),
]
"""What logged rounds 0, 1 and 2: each hardly shows what another prefers."""
CANDIDATE = np.array([[0.05, 0.1, 0.55, 0.3]] * 5)
VALUE = float((CANDIDATE * Q).sum(axis=1).mean())
RESERVE, K, DELTA = 0.5, 3, 0.05
FRACTIONS = (0.2, 0.2, 0.6)
RUNS = 200


def policy(pi: FloatArray) -> OwnPolicy:
    return OwnPolicy(ScoreTable(USERS, pi), 4)


def logs(k: int, n: int, draw: np.random.Generator, *, times: bool = False) -> LoggedData:
    """n rows of round k."""
    context = draw.integers(5, size=n)
    action = (draw.random(n)[:, None] >= np.cumsum(PI[k], axis=1)[context]).sum(axis=1)
    return LoggedData(
        catalogue=CATALOGUE,
        contexts=USERS,
        context=context.astype(np.int32),
        action=action.clip(max=3).astype(np.int32),
        reward=(draw.random(n) < Q[context, action.clip(max=3)]).astype(np.float64),
        propensity=PI[k][context, action.clip(max=3)],
        r_max=1.0,
        time=draw.random(n) if times else None,
        round=np.full(n, k, dtype=np.int16),
    )


def registered(rows: LoggedData, seed: int) -> Registration:
    secret = rng.secret(seed, "pooling")
    if rows.time is None:
        return Registration("tests", secret, "row", FRACTIONS, family="tests")
    return Registration("tests", secret, "time", FRACTIONS, family="tests")


def campaign(
    seed: int, n: int = 1500, *, times: bool = False
) -> tuple[Folds, OwnPolicy, list[LoggedRound]]:
    """What verdict 3 of 3 has: the newest folds, what logged them, and the rounds before."""
    draw = rng.generator(seed, "rows to pool")
    every = [logs(k, n, draw, times=times) for k in range(3)]
    rounds = [
        LoggedRound(rows, registered(rows, 10 * seed + k), policy(PI[k]))
        for k, rows in enumerate(every)
    ]
    newest = three_folds(rounds[2].logs, rounds[2].registration, group=(3, K), reserve=RESERVE)
    return newest, policy(PI[2]), rounds[:2]


@cache
def pool(seed: int, n: int = 1500, *, times: bool = False) -> Pool:
    made = pooled(*campaign(seed, n, times=times))
    assert made is not None
    return made


def test_each_certifying_row_is_for_one_verdict_and_teaches_after_it() -> None:
    rows = logs(0, 4000, rng.generator(0, "slices"))
    rows = replace(rows, columns={"number": np.arange(len(rows))})
    registration = registered(rows, 0)

    def numbers(part: LoggedData | None) -> set[int]:
        return set() if part is None else set(part.columns["number"].tolist())

    whole = three_folds(rows, registration)
    own = three_folds(rows, registration, group=(1, K), reserve=RESERVE)
    read = [numbers(own.certify)]
    for k in (2, 3):
        slices = reserved_rows(rows, registration, (k, K), RESERVE)
        assert slices is not None
        read.append(numbers(slices[1]))
        teach = numbers(teaching_rows(rows, registration, (k, K), RESERVE))
        certifying = numbers(whole.certify)
        assert teach & certifying == set.union(*read[:-1])  # what was read before, nothing else
        assert not teach & numbers(slices[0])
        assert teach >= numbers(whole.learn)
    assert sum(map(len, read)) == len(set.union(*read)) == len(whole.certify)
    shares = [len(part) / len(whole.certify) for part in read]
    assert shares == pytest.approx([0.5, 0.25, 0.25], abs=0.04)
    last = three_folds(replace(rows, round=np.full(len(rows), 2)), registration, group=(3, K))
    assert len(last.certify) == len(whole.certify)  # the last round reserves nothing


def expected(made: Pool) -> list[int]:
    """n s_j of a pool, by the formula."""
    reserved = [stratum.reserved for stratum in made.folds.strata]
    varying = [*reserved[:-1], min(reserved[-1], sum(reserved[:-1]))]
    log = math.log(K * 1e6)
    return [
        math.floor(n - log / 3 - math.sqrt(log**2 / 9 + 2 * v * log))
        for n, v in zip(reserved, varying, strict=True)
    ]


def test_rows_count_as_draws_of_the_mixture_that_the_labels_drew() -> None:
    made = pool(1)
    strata, certify = made.folds.strata, made.folds.certify
    assert [stratum.round for stratum in strata] == [0, 1, 2]
    assert np.bincount(certify.round).tolist() == [stratum.rows for stratum in strata]  # type: ignore[arg-type]
    shares = np.array(expected(made)) / len(certify)
    mixture = sum(share * pi[0] for share, pi in zip(shares, PI, strict=True))
    assert certify.propensity == pytest.approx(np.asarray(mixture)[certify.action], rel=1e-6)


def test_the_number_of_rows_of_a_round_varies_as_draws_do() -> None:
    """Fixed strata are not drawn alike: the variance between them must be in the sample."""
    apart, runs = [], RUNS // 2
    for seed in range(runs):
        made = pool(seed, 1000)
        wanted, taken = expected(made), [stratum.rows for stratum in made.folds.strata]
        assert sum(taken) == sum(wanted)
        mean, n = wanted[0], sum(wanted)
        apart.append((taken[0] - mean) / math.sqrt(mean * (1 - mean / n)))
    assert abs(np.mean(apart)) < 4 / math.sqrt(runs)
    assert 0.75 < np.std(apart) < 1.25


def test_nothing_depends_on_the_order_of_a_file() -> None:
    newest, base, earlier = campaign(3, times=True)
    plain, order = pooled(newest, base, earlier), rng.generator(0, "order")
    mixed = [
        replace(past, logs=past.logs.take(order.permutation(len(past.logs)))) for past in earlier
    ]
    shuffled = replace(newest, certify=newest.certify.take(order.permutation(len(newest.certify))))
    other = pooled(shuffled, base, mixed)
    assert plain is not None and other is not None
    for rows in ("select", "certify"):
        one, two = getattr(plain.folds, rows), getattr(other.folds, rows)
        keys = [np.lexsort((part.time, part.round)) for part in (one, two)]
        for name in ("time", "reward", "propensity", "action"):
            assert (getattr(one, name)[keys[0]] == getattr(two, name)[keys[1]]).all()
    rules = Rules((Promise(Floor(None, VALUE)),), DELTA, "normal", clip=40.0)
    ladder = MixtureLadder((policy(CANDIDATE),), np.ones((1, 1)))
    bounds = [
        certify(ladder, made.folds, rules, Reads()).verdicts[0].bound for made in (plain, other)
    ]
    assert bounds[0] == pytest.approx(bounds[1], abs=1e-12)


def test_no_reward_decides_which_rows_are_read() -> None:
    newest, base, earlier = campaign(4)
    turned = [
        replace(past, logs=replace(past.logs, reward=1 - past.logs.reward)) for past in earlier
    ]
    plain, other = pooled(newest, base, earlier), pooled(newest, base, turned)
    assert plain is not None and other is not None
    assert (plain.folds.certify.action == other.folds.certify.action).all()
    assert [s.rows for s in plain.folds.strata] == [s.rows for s in other.folds.strata]


def test_coverage_on_strata_with_other_means_and_rare_large_weights() -> None:
    """The mean of w r differs between rounds by a factor of 3 and more, and weights reach 7."""
    wrong = {(name, delta): 0 for name in ("normal", "betting") for delta in (DELTA, 0.4)}
    means, by_round = list[float](), list[list[float]]()
    for seed in range(RUNS):
        made = pool(seed, 1000)
        terms = []
        for rows in (made.folds.select, made.folds.certify):
            weights = importance_weights(policy(CANDIDATE), rows)
            terms.append(WeightedTerms.of(weights, rows.reward, r_max=1.0))
        before, values = terms[0].values, terms[1].values
        bounds: dict[str, BaseBound] = {
            "normal": Normal(upper=8.0, pilot=Pilot.of(before)),
            "betting": Betting(bets=(best_bet(float(before.var()), len(values), DELTA),)),
        }
        for name, delta in wrong:
            wrong[name, delta] += bounds[name].lower(terms[1], delta).value > VALUE
        means.append(float(values.mean()))
        rounds = made.folds.certify.round
        by_round.append([float(values[rounds == k].mean()) for k in range(3)])
    for (_, delta), errors in wrong.items():
        assert binomial_tail(errors, RUNS, delta) > 1e-3, wrong
    assert wrong["normal", 0.4] > 0.1 * RUNS  # not by slack alone
    error = float(np.std(means)) / math.sqrt(RUNS)
    assert np.mean(means) == pytest.approx(VALUE, abs=4 * error)
    each = np.mean(by_round, axis=0)
    assert each.max() > 3 * each.min()


def test_rounds_ended_by_choice_and_slices_that_are_too_small_are_left_out() -> None:
    newest, base, earlier = campaign(5)
    ended = [replace(past, fixed_length=False) for past in earlier]
    assert pooled(newest, base, ended) is None
    one = pooled(newest, base, [earlier[0], ended[1]])
    assert one is not None and [stratum.round for stratum in one.folds.strata] == [0, 2]
    assert pooled(*campaign(5, 60)) is None
    few = replace(earlier[0], logs=earlier[0].logs.take(np.arange(2)))  # no slice at all
    beside = pooled(newest, base, [few, earlier[1]])
    assert beside is not None and [stratum.round for stratum in beside.folds.strata] == [1, 2]
    assert pooled(newest, base, []) is None


def certified(seed: int = 6) -> tuple[Certificate, OwnPolicy, list[LoggedRound], LoggedData]:
    newest, base, earlier = campaign(seed)
    made = pooled(newest, base, earlier)
    assert made is not None
    model = OwnRewardModel(ScoreTable(USERS, 0.8 * Q), 4)
    control = Control(made.policy, model, 1.0, {"reward": 0.7})
    rules = Rules((Promise(Floor(None, 0.5 * VALUE)),), DELTA, "normal", clip=8.0, control=control)
    ladder = MixtureLadder((policy(CANDIDATE),), np.ones((1, 1)))
    draw = rng.generator(seed, "rows to pool")
    whole = [logs(k, 1500, draw) for k in range(3)][2]
    return certify(ladder, made.folds, rules, Reads()), base, earlier, whole


def test_a_pooled_certificate_is_recomputed_and_says_what_it_rests_on() -> None:
    certificate, base, earlier, newest = certified()
    assert certificate.passed and Certificate.from_json(certificate.to_json()) == certificate
    rounds = {k: (past.logs, past.policy) for k, past in enumerate(earlier)}
    model = OwnRewardModel(ScoreTable(USERS, 0.8 * Q), 4)

    def again(**more: object) -> tuple[str, ...]:
        options = {"base": base, "model": model, "earlier": rounds, **more}
        return verify(certificate, newest, policy(CANDIDATE), **options).differences  # type: ignore[arg-type]

    assert again() == ()
    text = str(certificate)
    assert "and " in text and "that were reserved in round 0, 1: passed" in text
    assert "changed between these rounds (no_drift, for all items)" in text
    other = replace(earlier[0].logs, reward=1 - earlier[0].logs.reward)
    [words] = again(earlier={**rounds, 0: (other, earlier[0].policy)})
    assert "the logs of round 0 have the hash" in words
    forged = replace(
        certificate,
        strata=(replace(certificate.strata[0], rows=1), *certificate.strata[1:]),
    )
    differs = verify(
        forged, newest, policy(CANDIDATE), base=base, model=model, earlier=rounds
    ).differences
    assert differs == ("other rows are pooled than were certified on",)
    with pytest.raises(ConfigError, match=r"all rounds in it.*no rows of the rounds \[1\]"):
        again(earlier={0: rounds[0]})
