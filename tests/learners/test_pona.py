"""PONA: LCPI is exact where it should be, kappa steers the share of new actions, limits hold it."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from depsue.data import Catalogue, LoggedData
from depsue.data.checks import FloatArray
from depsue.data.requests import Candidates, Requests
from depsue.errors import ConfigError, DataError
from depsue.learners import PonaSettings, binned, combinations, lcpi, train_pona
from depsue.learners.ascent import AscentSettings
from depsue.policies import BasePolicy, ByItem, Uniform
from depsue.rewards import fit_linear

FEATURES = np.array(list(product(range(3), range(3), range(2))), dtype=np.float32)
NOVEL = np.zeros(18, dtype=bool)
NOVEL[[2, 7, 15]] = True
CATALOGUE = Catalogue(np.arange(18), NOVEL, FEATURES)
CONTEXTS = np.array([[0.0], [1.0], [2.0]], dtype=np.float32)
SHARES = np.where(NOVEL, 0.0, np.arange(1, 19))
PI0 = ByItem(SHARES / SHARES.sum())


def rewards_of(order: int) -> FloatArray:
    """(3, 18) mean rewards that are sums over combinations of so many dimensions."""
    v = combinations(FEATURES, order)
    part = np.random.default_rng(order).random((3, v.shape[1]))
    part[0, v[7] > 0] = 1.0  # a new one is the best of the first context
    q = part @ v.T
    return np.asarray(q / q.max())


def expected_logs(q: FloatArray) -> LoggedData:
    """Rows in exact proportion to pi0, each with its mean reward: estimates are expectations."""
    old = np.flatnonzero(~NOVEL)
    counts = np.arange(1, 19)[old]
    action = np.tile(np.repeat(old, counts), 3)
    context = np.repeat(np.arange(3), counts.sum())
    return LoggedData.from_arrays(
        contexts=CONTEXTS,
        context_rows=context,
        actions=action,
        rewards=q[context, action],
        propensities=(SHARES / SHARES.sum())[action],
        catalogue=CATALOGUE,
        r_max=1.0,
    )


def estimated(policy: BasePolicy, logs: LoggedData, order: int) -> float:
    table = lcpi(logs, PI0, combinations(FEATURES, order)).values
    return float((policy.over(logs.requests) * table).sum())


POLICIES = [Uniform(NOVEL), Uniform(np.ones(18, dtype=bool)), PI0, ByItem(np.eye(18)[7])]


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("policy", POLICIES)
def test_lcpi_is_exact_where_rewards_add_up_over_combinations(
    policy: BasePolicy, order: int
) -> None:
    """New actions included, of which no row has any."""
    q = rewards_of(order)
    truth = float((policy.probabilities(CONTEXTS) * q).sum() / 3)
    assert estimated(policy, expected_logs(q), order) == pytest.approx(truth, abs=1e-9)


def test_lcpi_with_too_low_an_order_misses_interactions() -> None:
    q = rewards_of(2)
    policy = ByItem(np.eye(18)[7])
    truth = float((policy.probabilities(CONTEXTS) * q).sum() / 3)
    assert abs(estimated(policy, expected_logs(q), 1) - truth) > 0.01


def test_lcpi_weights_can_be_negative() -> None:
    """So a row with a reward can lower the estimate: nothing conservative rests on them."""
    once = LoggedData.from_arrays(
        contexts=CONTEXTS[:1],
        context_rows=np.zeros(2, dtype=int),
        actions=[0, 1],
        rewards=[1.0, 0.0],
        propensities=(SHARES / SHARES.sum())[[0, 1]],
        catalogue=CATALOGUE,
        r_max=1.0,
    )
    assert lcpi(once, PI0, combinations(FEATURES, 1)).values.min() < 0


def test_lcpi_is_exact_on_candidate_sets() -> None:
    q = rewards_of(1)
    first, second = [0, 2, 3, 4, 6, 9, 12, 13, 16], [1, 2, 4, 6, 7, 8, 12, 17]
    lists = [first, second, [0, 3, 5, 7, 8, 11, 13, 14, 15]]
    pi0 = [np.where(NOVEL[items], 0.0, 1.0) / (~NOVEL[items]).sum() for items in lists]
    sets = Candidates.of_lists(lists, pi0)
    rows = [(x, a) for x, items in enumerate(lists) for a in items if not NOVEL[a]]
    context, action = np.array(rows).T
    logs = LoggedData.from_arrays(
        contexts=CONTEXTS,
        context_rows=context,
        candidates=sets,
        actions=action,
        rewards=q[context, action],
        propensities=1 / np.bincount(context)[context],
        catalogue=CATALOGUE,
        r_max=1.0,
    )
    table = lcpi(logs, Uniform(~NOVEL), combinations(FEATURES, 1)).values
    places = Requests(CONTEXTS, sets).places(18)
    truth = np.take_along_axis(q, places.items, axis=1) * np.bincount(context)[:, None]
    there = np.ones_like(table) if places.there is None else places.there
    np.testing.assert_allclose(table, truth / len(rows) * there, atol=1e-9)


def trained(kappa: float, share: tuple[float, float] | None = None) -> tuple[FloatArray, float]:
    """(3, 18) what PONA shows, and its novelty; new items are among the best."""
    q = rewards_of(1)
    logs = expected_logs(q)
    settings = PonaSettings(kappa=kappa, share=share, ascent=AscentSettings(steps=200))
    policy = train_pona(logs, PI0, fit_linear(logs), settings).policy
    pi = policy.probabilities(CONTEXTS)
    return pi, float(pi[:, NOVEL].sum() / 3)


def test_kappa_steers_the_share_of_new_actions() -> None:
    """The published shape: none without LCPI, more with more of it."""
    shares = [trained(kappa)[1] for kappa in (0.0, 0.9, 1.0)]
    q = rewards_of(1)
    assert shares[0] < 0.02
    assert shares[0] <= shares[1] + 1e-6 < shares[2]
    assert shares[2] > 0.2
    pi, _ = trained(1.0)
    assert (pi * q).sum() > 1.2 * (PI0.probabilities(CONTEXTS) * q).sum()


def test_the_share_of_new_actions_is_held_between_limits() -> None:
    assert trained(0.0, (0.1, 0.3))[1] == pytest.approx(0.1, abs=1e-6)
    assert trained(1.0, (0.0, 0.05))[1] == pytest.approx(0.05, abs=1e-6)
    free = trained(1.0)[1]
    assert trained(1.0, (free - 0.1, 1.0))[1] == pytest.approx(free, abs=1e-9)


def test_rows_of_later_rounds_teach_what_new_actions_earn() -> None:
    q = rewards_of(1)
    logs = expected_logs(q)
    everyone = Uniform(np.ones(18, dtype=bool))
    context, action = (part.ravel() for part in np.meshgrid(np.arange(3), np.arange(18)))
    reward = q[context, action].copy()
    reward[NOVEL[action]] = 0.0  # not what their features promise
    later = LoggedData.from_arrays(
        contexts=CONTEXTS,
        context_rows=np.tile(context, 50),
        actions=np.tile(action, 50),
        rewards=np.tile(reward, 50),
        propensities=np.full(50 * 54, 1 / 18),
        catalogue=CATALOGUE,
        r_max=1.0,
        rounds=np.ones(50 * 54, dtype=int),
    )
    settings = PonaSettings(kappa=0.5, ascent=AscentSettings(steps=200))
    policy = train_pona(logs, PI0, fit_linear(logs), settings, later=[(later, everyone)]).policy
    assert policy.probabilities(CONTEXTS)[:, NOVEL].sum() / 3 < 0.05


def test_features_that_are_not_discrete_are_refused_or_binned() -> None:
    many = np.random.default_rng(0).normal(size=(200, 2))
    with pytest.raises(DataError, match="PONA needs discrete features"):
        combinations(many, 1)
    few = binned(many, 3)
    assert set(few.ravel()) == {0.0, 1.0, 2.0}
    assert combinations(few, 2).shape == (200, 9)
    assert (combinations(few, 1).sum(axis=1) == 2).all()
    with pytest.raises(ConfigError, match="order .* at most the number"):
        combinations(few, 3)
    with pytest.raises(ConfigError, match="bins must be"):
        binned(many, 1)
    wide = np.random.default_rng(0).integers(0, 60, size=(9000, 2)).astype(float)
    with pytest.raises(ConfigError, match="values of combinations"):
        combinations(wide, 2)


def test_settings_that_cannot_be_are_refused() -> None:
    with pytest.raises(ConfigError, match="kappa must lie in"):
        PonaSettings(kappa=2)
    with pytest.raises(ConfigError, match="order"):
        PonaSettings(order=0)
    with pytest.raises(ConfigError, match="held between two limits"):
        PonaSettings(share=(0.5, 0.2))
    q = rewards_of(1)
    logs = expected_logs(q)
    known = Catalogue(np.arange(18), np.zeros(18, dtype=bool), FEATURES)
    none = LoggedData.from_arrays(
        contexts=CONTEXTS,
        context_rows=logs.context,
        actions=logs.action,
        rewards=logs.reward,
        propensities=logs.propensity,
        catalogue=known,
        r_max=1.0,
    )
    with pytest.raises(ConfigError, match="cannot exceed the share of requests"):
        train_pona(
            none,
            PI0,
            fit_linear(none),
            PonaSettings(share=(0.1, 0.2), ascent=AscentSettings(steps=2)),
        )
