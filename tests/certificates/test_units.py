"""Units: which of their rows a promise is about, and that each certifies in one verdict."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from depsue import rng
from depsue.certificates import (
    Certificate,
    Folds,
    MixtureLadder,
    Reads,
    Registration,
    Rules,
    certify,
    teaching_rows,
    three_folds,
    verify,
)
from depsue.data import Catalogue, LoggedData
from depsue.data.checks import FloatArray, IntArray
from depsue.data.logs import joined
from depsue.diagnostics import check_unit_rows
from depsue.errors import ConfigError
from depsue.policies import BasePolicy, OwnPolicy, ScoreTable
from depsue.promises import Floor, Promise
from depsue.testing.bounds import binomial_tail
from depsue.testing.splits import split

DELTA = 0.2
CATALOGUE = Catalogue.of(range(3), novel=[2])
CONTEXT = np.zeros((1, 1), dtype=np.float32)
PI0, Q = np.array([0.5, 0.5, 0.0]), np.array([0.6, 0.4, 0.0])


def own(*probabilities: float) -> OwnPolicy:
    return OwnPolicy(ScoreTable(CONTEXT, np.array([probabilities])), 3)


def sessions(draw: np.random.Generator, users: int, pi: FloatArray = PI0) -> LoggedData:
    """Sessions that go on, nine times in ten, while the user clicks."""
    columns: list[list[Any]] = [[], [], [], []]
    alive: IntArray = np.arange(users)
    for step in range(40):
        a = draw.choice(3, size=len(alive), p=pi)
        r = (draw.random(len(alive)) < Q[a]).astype(float)
        for column, values in zip(columns, (alive, a, r, 0 * r + step), strict=True):
            column.append(values)
        alive = alive[draw.random(len(alive)) < 0.9 * r]
    u, a, r, t = (np.concatenate(column) for column in columns)
    order = draw.permutation(len(u))
    return LoggedData.from_arrays(
        contexts=np.zeros((len(u), 1)),
        actions=a[order],
        rewards=r[order],
        propensities=np.where(a[order] == 2, 1.0, 0.5),
        catalogue=CATALOGUE,
        r_max=1.0,
        units=u[order],
        times=t[order],
        rounds=np.full(len(u), int(pi[2] > 0)),
    )


def verdict(policy: BasePolicy, folds: Folds, ratio: float) -> Certificate:
    rules = Rules(promises=(Promise(Floor(ratio)),), delta=DELTA, bound="normal", clip=5.0)
    return certify(MixtureLadder((policy,), np.ones((1, 1))), folds, rules, Reads())


def test_sessions_that_go_on_while_the_user_clicks() -> None:
    """A floor over units that is missed passes on all rows; the declaration is refuted there."""
    bold, floor = own(0.7, 0.0, 0.3), 0.83
    draw = np.random.default_rng(1)
    served = sessions(draw, 100_000, np.array([0.7, 0.0, 0.3])).mean_reward()
    assert served < 0.815 * sessions(draw, 100_000).mean_reward()  # far below the floor
    passed, refuted = [], []
    for seed in range(20):
        logs = sessions(np.random.default_rng(seed), 11_000)  # about 20,000 rows
        folds = split(logs, str(seed), units="all rows")
        passed.append(verdict(bold, folds, floor).passed)
        report = check_unit_rows(joined([folds.learn, folds.select]), own(*PI0))
        refuted.append(not report.ok)
    assert np.mean(passed) > 0.5  # what the declaration is worth in this world
    assert np.mean(refuted) >= 0.95


def test_a_missed_floor_of_first_rows_passes_at_most_delta() -> None:
    below, runs, wrong = own(0.7915, 0.0, 0.2085), 200, 0  # 0.4749 where 0.475 is the floor
    for seed in range(runs):
        logs = sessions(np.random.default_rng(seed), 1000)
        wrong += verdict(below, split(logs, str(seed), units="first row"), 0.95).passed
    assert binomial_tail(wrong, runs, DELTA) > 1e-4


def test_first_rows_are_first_by_time_and_the_certificate_says_so() -> None:
    logs = sessions(np.random.default_rng(0), 3000)
    folds = split(logs, "first", units="first row")
    rows = joined([folds.learn, folds.select, folds.certify])
    assert len(rows) == 3000 and rows.time is not None and not rows.time.any()
    policy = own(0.6, 0.4, 0.0)
    certificate = verdict(policy, folds, 0.8)
    assert certificate.units == "first row" and certificate.data == logs.hash
    assert "first row of each unit in a round, by its time, and says nothing" in str(certificate)
    assert verify(certificate, logs, policy).equal
    whole = verdict(policy, split(logs, "first", units="all rows"), 0.8)
    assert "number of rows of a unit does not depend on what it was shown: declared" in str(whole)
    assert whole.verdicts[0].n == certificate.verdicts[0].n  # units, either way
    assert whole.verdicts[0].mean != certificate.verdicts[0].mean
    assert Certificate.from_json(certificate.to_json()) == certificate


def test_what_is_not_declared_is_refused_with_both_cures() -> None:
    logs = sessions(np.random.default_rng(0), 300)
    with pytest.raises(ConfigError, match="--units first-row.*--units all-rows"):
        split(logs, "none", units=None)
    single = split(logs.first_rows, "single", units=None)
    assert single.units is None


def test_the_first_row_is_told_by_time_not_by_the_order_of_a_file() -> None:
    logs = sessions(np.random.default_rng(0), 300)
    assert logs.time is not None
    best_first = logs.take(np.argsort(-logs.reward, kind="stable"))
    first = np.sort(logs.first_rows.reward)
    assert (np.sort(best_first.first_rows.reward) == first).all()
    assert logs.first_rows.first_rows is logs.first_rows
    for times, words in ((None, "no times"), (np.zeros(len(logs)), "one time in .* of 300 units")):
        with pytest.raises(ConfigError, match=f"tells which row.*{words}.*fine enough"):
            split(replace(logs, time=times), "untold", units="first row")


# Groups of units: users come back in every round, and each certifies once.

USERS, CLUSTERS, ROUNDS = 900, 300, 3


def taste(draw: np.random.Generator) -> IntArray:
    """(USERS, 2) what each user likes, for good: half of what is shown."""
    return (draw.random((USERS, 2)) < 0.5).astype(np.int64)


def visits(draw: np.random.Generator, likes: IntArray, k: int) -> LoggedData:
    """Every user once in round k, shown one of two items at random."""
    action = draw.integers(2, size=USERS)
    return LoggedData.from_arrays(
        contexts=np.arange(USERS, dtype=np.float32)[:, None] % CLUSTERS,
        actions=action,
        rewards=likes[np.arange(USERS), action],
        propensities=np.full(USERS, 0.5),
        catalogue=CATALOGUE,
        r_max=1.0,
        units=np.arange(USERS),
        rounds=np.full(USERS, k),
    )


def greedy(rows: LoggedData) -> OwnPolicy:
    """What the rows liked best in each cluster of users; worthless items make it miss 95%."""
    sums = np.full((CLUSTERS, 2), 0.5)
    np.add.at(sums, (rows.contexts[rows.context, 0].astype(int), rows.action), rows.reward - 0.5)
    best = np.eye(2)[sums.argmax(axis=1)]
    pi = np.concatenate([0.949 * best, np.full((CLUSTERS, 1), 0.051)], axis=1)
    contexts = np.arange(CLUSTERS, dtype=np.float32)[:, None]
    return OwnPolicy(ScoreTable(contexts, pi), 3)


def campaign(seed: int, *, reserved: bool) -> list[bool]:
    """Whether a policy that misses the floor for other users passed, in rounds 2 and 3."""
    draw = np.random.default_rng(seed)
    likes = taste(draw)
    reads = Reads(secret=rng.secret(seed, "persistent"))
    earlier: list[tuple[LoggedData, Registration]] = []
    passed, first = [], None
    for k in range(1, ROUNDS + 1):
        logs = visits(draw, likes, k)
        registration = reads.register(logs, first=first)
        first = registration if first is None else first
        group = (k, ROUNDS) if reserved else (1, 1)
        folds = three_folds(logs, registration, group=group)
        known = [teaching_rows(*pair, group) if reserved else pair[0] for pair in earlier]
        policy = greedy(joined([folds.learn, *(rows for rows in known if rows is not None)]))
        if k > 1:
            passed.append(verdict(policy, folds, 0.95).passed)
        earlier.append((logs, registration))
    return passed


def test_users_who_come_back_certify_what_does_not_know_them() -> None:
    """Reading the same users in every round makes the promise about these users."""
    reused = [wrong for seed in range(6) for wrong in campaign(seed, reserved=False)]
    assert np.mean(reused) > 0.9
    runs = [wrong for seed in range(60) for wrong in campaign(seed, reserved=True)]
    assert binomial_tail(sum(runs), len(runs), DELTA) > 1e-4


def test_each_unit_certifies_in_one_verdict_and_teaches_after_it() -> None:
    draw = np.random.default_rng(0)
    logs = visits(draw, taste(draw), 1)
    registration = Reads().register(logs)
    whole = three_folds(logs, registration)
    rounds = [three_folds(logs, registration, group=(k, 3)) for k in (1, 2, 3)]
    groups = [set(np.asarray(folds.certify.units).tolist()) for folds in rounds]
    assert sum(map(len, groups)) == len(whole.certify) and not groups[0] & groups[1]
    assert set.union(*groups) == set(np.asarray(whole.certify.units).tolist())
    for k, folds in enumerate(rounds, 1):
        learned = set(np.asarray(folds.learn.units).tolist())
        assert all(group <= learned for group in groups[: k - 1])
        assert not any(group & learned for group in groups[k - 1 :])
        taught = teaching_rows(logs, registration, (k, 3))
        assert taught is not None
        known = set(np.asarray(taught.units).tolist())
        assert not any(group & known for group in groups[k - 1 :])
        assert folds.group == (k, 3) and len(folds.select) == len(whole.select)
    with pytest.raises(ConfigError, match="one of K groups"):
        three_folds(logs, registration, group=(4, 3))


def test_rows_without_units_are_not_divided() -> None:
    draw = np.random.default_rng(0)
    likes = taste(draw)
    logs = visits(draw, likes, 1)
    plain = LoggedData.from_arrays(
        contexts=logs.contexts[logs.context],
        actions=logs.action,
        rewards=logs.reward,
        propensities=logs.propensity,
        catalogue=CATALOGUE,
        r_max=1.0,
        rounds=logs.round,
    )
    registration = Reads().register(plain)
    folds = three_folds(plain, registration, group=(2, 3))
    assert len(folds.certify) == len(three_folds(plain, registration).certify)
    assert folds.group == (1, 1) and teaching_rows(plain, registration, (2, 3)) is plain
