"""The test of drift: what it refuses, what it must not, and what it says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from depsue.data.catalogue import Catalogue
from depsue.data.checks import FloatArray
from depsue.data.logs import LoggedData, joined
from depsue.diagnostics.drift import check_drift, require_no_drift
from depsue.errors import ConfigError, DataError
from depsue.policies import OwnPolicy, ScoreTable
from depsue.promises import Floor, Promise
from depsue.testing.bounds import binomial_tail

CATALOGUE = Catalogue.of(range(4), novel=[3])
CONTEXTS = np.array([[0.0], [1.0]], dtype=np.float32)
PI0 = np.array([[0.5, 0.3, 0.2, 0.0], [0.2, 0.2, 0.6, 0.0]])
PI1 = np.array([[0.6, 0.2, 0.1, 0.1], [0.1, 0.1, 0.6, 0.2]])
Q = np.array([[0.1, 0.2, 0.3, 0.9], [0.4, 0.2, 0.1, 0.9]])
VALUE = float((PI0 * Q).sum() / 2)


def policy(pi: FloatArray) -> OwnPolicy:
    return OwnPolicy(ScoreTable(CONTEXTS, pi), 4)


POLICIES = {0: policy(PI0), 1: policy(PI1), 2: policy(PI1)}


def logs(
    n: int, rng: np.random.Generator, *, round: int = 0, times: FloatArray | float = 1.0
) -> LoggedData:
    """Rows of pi0 (round 0) or pi1; mean rewards of the old actions are `times` what they were."""
    pi = PI0 if round == 0 else PI1
    context = rng.integers(0, 2, n)
    action = (rng.random((n, 1)) >= np.cumsum(pi, axis=1)[context]).sum(axis=1)
    action = np.minimum(action, 3)
    mean = Q[context, action] * np.where(action < 3, times, 1.0)
    return LoggedData.from_arrays(
        contexts=CONTEXTS,
        context_rows=context,
        actions=action,
        rewards=rng.random(n) < mean,
        propensities=pi[context, action],
        catalogue=CATALOGUE,
        r_max=1.0,
        rounds=np.full(n, round),
        columns={"country": context.astype(np.float64), "minutes": 60.0 * rng.random(n) ** 3},
    )


def users(
    n: int, each: int, rng: np.random.Generator, *, round: int, first: int = 0, rate: float = 0.3
) -> LoggedData:
    """n users with `each` rows of pi0; a user likes everything or nothing, but for 5% of rows."""
    likes = np.repeat(rng.random(n) < rate, each)
    made = logs(n * each, rng, round=0)
    return replace(
        made,
        reward=np.where(rng.random(n * each) < 0.05, ~likes, likes).astype(np.float64),
        unit=np.repeat(np.arange(n), each),
        units=np.arange(first, first + n),
        round=np.full(n * each, round, dtype=np.int16),
    )


def test_without_drift_no_more_are_refused_than_delta() -> None:
    runs, refused, delta = 2000, 0, 0.05
    rng = np.random.default_rng(1)
    for _ in range(runs):
        refused += not check_drift(
            logs(150, rng),
            logs(200, rng, round=1),
            logging_policy=POLICIES[0],
            deployed=POLICIES,
            delta=delta,
        ).ok
    assert binomial_tail(refused, runs, delta) > 0.01, f"{refused} of {runs} refused"


def test_a_shift_of_a_tenth_is_seen() -> None:
    seen = {"fell": 0, "rose": 0}
    for run in range(10):
        rng = np.random.default_rng([2, run])
        first = logs(40_000, rng)
        for name, times in (("fell", 0.9), ("rose", 1.1)):
            report = check_drift(
                first,
                logs(40_000, rng, round=1, times=times),
                logging_policy=POLICIES[0],
                deployed=POLICIES,
                within=False,
            )
            seen[name] += not report.ok
            change = report.tests[0].change
            assert change.before == pytest.approx(VALUE, rel=0.06)
            assert change.after == pytest.approx(times * VALUE, rel=0.06)
            assert change.smallest < 0.1 * VALUE
            assert change.low < (times - 1) * VALUE < change.high
    assert min(seen.values()) >= 9, seen


def test_what_novel_actions_earn_is_no_drift_of_pi0() -> None:
    """The newest rows earn far more than round 0, but not where pi0 would have been."""
    rng = np.random.default_rng(3)
    first, newest = logs(20_000, rng), logs(20_000, rng, round=1)
    assert newest.mean_reward() > 1.2 * first.mean_reward()
    report = check_drift(first, newest, logging_policy=POLICIES[0], deployed=POLICIES)
    assert report.ok, str(report)


def test_a_policy_that_cannot_be_called_sees_less() -> None:
    rng = np.random.default_rng(4)
    first, newest = logs(10_000, rng), logs(10_000, rng, round=1)
    known = check_drift(first, newest, logging_policy=POLICIES[0], deployed=POLICIES, within=False)
    blind = check_drift(first, newest, logging_policy=POLICIES[0], within=False)
    assert known.ok and blind.ok
    assert known.tests[0].change.smallest < 0.95 * blind.tests[0].change.smallest
    gone = logs(10_000, rng, round=1, times=0.3)
    assert not check_drift(first, gone, logging_policy=POLICIES[0], within=False).ok


def test_a_policy_that_hardly_covers_pi0_is_compared_where_it_does() -> None:
    """Two of pi0's actions are hardly shown: the third tells, and no more is claimed."""
    narrow = np.array([[0.9, 0.004, 0.001, 0.095], [0.001, 0.004, 0.9, 0.095]])
    rng, n = np.random.default_rng(13), 20_000
    first = logs(n, rng)
    context = rng.integers(0, 2, n)
    action = np.minimum((rng.random((n, 1)) >= np.cumsum(narrow, axis=1)[context]).sum(axis=1), 3)
    uniform = rng.random(n)
    changes = {}
    for times in (1.0, 0.7):
        newest = LoggedData.from_arrays(
            contexts=CONTEXTS,
            context_rows=context,
            actions=action,
            rewards=uniform < times * Q[context, action],
            propensities=narrow[context, action],
            catalogue=CATALOGUE,
            r_max=1.0,
            rounds=np.ones(n),
        )
        for known in (None, {1: policy(narrow)}):
            report = check_drift(
                first, newest, logging_policy=POLICIES[0], deployed=known, within=False
            )
            changes[times, known is None] = report.tests[0]
    assert changes[1.0, False].change.compared == pytest.approx(0.57, abs=0.02)
    assert "on the 57% of its decisions compared" in str(changes[1.0, False])
    assert {key: one.drifted for key, one in changes.items()} == {
        (1.0, True): False,
        (1.0, False): False,
        (0.7, True): False,  # blind: what is not covered may be worth anything
        (0.7, False): True,
    }


def test_rows_of_few_users_do_not_count_as_many() -> None:
    """Other users in every round: row by row the test is far too eager, by user it is not."""
    runs, by_row, by_user = 200, 0, 0
    rng = np.random.default_rng(5)
    for _ in range(runs):
        first = users(60, 15, rng, round=0)
        newest = users(60, 15, rng, round=0, first=60)
        by_user += not check_drift(first, newest, within=False, delta=0.05).ok
        rows = [replace(one, unit=None, units=None) for one in (first, newest)]
        by_row += not check_drift(rows[0], rows[1], within=False, delta=0.05).ok
    assert binomial_tail(by_user, runs, 0.05) > 0.01, by_user
    assert by_row > 0.25 * runs, by_row


def test_users_that_come_back_make_changes_easier_to_see() -> None:
    rng = np.random.default_rng(6)
    whole = users(400, 10, rng, round=0)
    early = np.tile(np.arange(10) < 5, 400)
    first, newest = whole.take(early), whole.take(~early)
    same = check_drift(first, newest, within=False).tests[0].change
    assert newest.units is not None
    strangers = replace(newest, units=newest.units + 400)
    other = check_drift(first, strangers, within=False).tests[0].change
    assert same.n == 380 and other.n == 760
    assert same.smallest < 0.7 * other.smallest


def test_drift_within_a_round_is_seen_in_row_order_or_by_time() -> None:
    rng, n = np.random.default_rng(7), 20_000
    falling = logs(n, rng, times=np.linspace(1.4, 0.6, n))
    report = check_drift((), falling)
    assert [one.what for one in report.tests] == ["first to second half of round 0"]
    assert not report.ok
    assert report.tests[0].change.high < 0
    mixed = rng.permutation(n)
    shuffled = falling.take(mixed)
    assert check_drift((), shuffled).ok
    timed = replace(shuffled, time=mixed.astype(np.float64))
    assert not check_drift((), timed).ok
    assert not any("in the order" in one for one in check_drift((), timed).assumed)
    assert any("in the order" in one for one in report.assumed)


def test_drift_in_a_segment_or_another_column_is_seen() -> None:
    rng = np.random.default_rng(8)
    promises = (
        Promise(Floor(0.95)),
        Promise(Floor(0.9), name="country 0", segment=("country", 0.0)),
        Promise(Floor(0.9), name="country 1", segment=("country", 1.0)),
        Promise(Floor(0.9), name="minutes", reward="minutes", r_max=60.0),
    )
    first, newest = logs(40_000, rng), logs(40_000, rng, round=1)
    options = {"logging_policy": POLICIES[0], "deployed": POLICIES, "within": False}
    assert check_drift(first, newest, promises=promises, **options).ok  # type: ignore[arg-type]
    one = newest.where("country", 1.0)
    reward = np.where(one & (rng.random(len(newest)) < 0.5), 0.0, newest.reward)
    columns = {**newest.columns, "minutes": 0.8 * newest.columns["minutes"]}
    worse = replace(newest, reward=reward, columns=columns)
    report = check_drift(first, worse, promises=promises, **options)  # type: ignore[arg-type]
    drifted = {one.promise for one in report.tests if one.drifted}
    assert {"country 1", "minutes"} <= drifted
    assert "country 0" not in drifted
    assert {one.delta for one in report.tests} == {0.0025}
    with pytest.raises(DataError) as error:
        require_no_drift(first, worse, promises=promises[3:], **options)  # type: ignore[arg-type]
    assert error.value.column == "minutes"


def test_every_earlier_round_is_held_against_the_newest() -> None:
    rng = np.random.default_rng(9)
    parts = [logs(20_000, rng), logs(20_000, rng, round=1, times=0.5)]
    newest = logs(20_000, rng, round=2, times=0.5)
    for earlier in (parts, joined(parts)):
        report = check_drift(
            earlier, newest, logging_policy=POLICIES[0], deployed=POLICIES, within=False
        )
        drifted = {one.what: one.drifted for one in report.tests}
        assert drifted == {"round 0 to round 2": True, "round 1 to round 2": False}
        assert report.worst.what == "round 0 to round 2"
        assert len(report.findings) == 1
    assert len(check_drift(parts[:1], newest, logging_policy=POLICIES[0]).tests) == 3


def test_the_report_says_what_was_found_and_what_could_not_be() -> None:
    rng = np.random.default_rng(10)
    first, newest = logs(3_000, rng), logs(60, rng, round=1)
    report = require_no_drift(first, newest, logging_policy=POLICIES[0])
    assert report == check_drift(first, newest, logging_policy=POLICIES[0])
    assert len(report.tests) == 2
    assert report.notes == (
        "reward, first to second half of round 1: fewer than 40 values on a side, no test",
    )
    text = str(report)
    assert "nothing refutes that pi0 earns what it did" in text
    assert "is seen 9 times in 10" in text
    assert "assumed: rows are drawn alike" in text


def test_drift_is_an_error_with_rule_and_cure() -> None:
    rng = np.random.default_rng(11)
    first, newest = logs(20_000, rng), logs(20_000, rng, round=1, times=0.5)
    with pytest.raises(DataError) as error:
        require_no_drift(first, newest, logging_policy=POLICIES[0], deployed=POLICIES)
    text = str(error.value)
    assert "only while pi0 earns what it did" in text
    assert "column 'reward': reward, round 0 to round 1: what pi0 earns went from 0.17" in text
    assert "Cure: do not declare no_drift" in text


def test_what_cannot_be_compared_is_refused() -> None:
    rng = np.random.default_rng(12)
    first, newest = logs(200, rng), logs(200, rng, round=1)
    pi0 = POLICIES[0]
    with pytest.raises(ConfigError, match="only where its probabilities are known"):
        check_drift(first, newest)
    with pytest.raises(ConfigError, match="the newest logs must be of one round"):
        check_drift((), joined([first, newest]), logging_policy=pi0)
    with pytest.raises(ConfigError, match="drift is tested on logs"):
        check_drift([None], newest, logging_policy=pi0)  # type: ignore[list-item]
    with pytest.raises(ConfigError, match="there must be logs to compare"):
        check_drift((), first, within=False)
    with pytest.raises(ConfigError, match="at least 40 values"):
        check_drift((), first.take(slice(0, 50)))
    with pytest.raises(DataError, match="the same r_max"):
        check_drift(replace(first, r_max=2.0), newest, logging_policy=pi0)
    with pytest.raises(DataError, match="all have units or none"):
        check_drift(users(50, 2, rng, round=0), newest, logging_policy=pi0)
    other = Catalogue.of(range(4), novel=[2, 3])
    with pytest.raises(ConfigError, match="the same catalogue"):
        check_drift(replace(newest, catalogue=other), newest, logging_policy=pi0)
    with pytest.raises(DataError, match="propensities must be those of the deployed policy"):
        check_drift(first, newest, logging_policy=pi0, deployed={1: policy(PI0)})
    with pytest.raises(ConfigError, match="delta must lie in"):
        check_drift((), first, delta=1.0)
