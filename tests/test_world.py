"""Worlds tell the truth, and are as nasty as asked."""

from typing import Any

import numpy as np
import pytest

from depsue.data import Catalogue
from depsue.errors import ConfigError
from depsue.policies import Uniform, naive_safe_exploration
from depsue.world import RewardTable, SyntheticSettings, World, softmax_of_logit, synthetic_world

SMALL = {"users": 60, "supported": 12, "novel": 4, "d": 3}


def small(**options: Any) -> World:
    return synthetic_world(SyntheticSettings(**{**SMALL, **options}), seed=2)


def test_logs_agree_with_the_true_value_and_propensities() -> None:
    world = small()
    logs = world.deploy(world.logging_policy, 60_000, round=0)
    error = logs.reward.std() / np.sqrt(len(logs))
    assert abs(logs.mean_reward() - world.value(world.logging_policy)) < 4 * error
    # 1/p over the rows of a user adds up to the number of supported actions
    assert (1 / logs.propensity).mean() == pytest.approx(12, rel=0.05)
    assert not world.catalogue.novel[logs.action].any()


def test_value_and_novelty_are_exact() -> None:
    q = np.array([[0.1, 0.9, 0.5], [0.3, 0.7, 0.5]])
    catalogue = Catalogue(np.arange(3), np.array([False, False, True]))
    users = np.eye(2, dtype=np.float32)
    pi0 = softmax_of_logit(users, q, 0.0, catalogue)
    world = World(users, RewardTable(q), catalogue, pi0, seed=0)
    assert world.value(world.logging_policy) == pytest.approx(0.5)
    assert world.best_value() == pytest.approx(0.8)
    explore = naive_safe_exploration(world.logging_policy, catalogue, 0.2)
    assert world.novelty(explore) == pytest.approx(0.2)
    assert world.novelty(world.logging_policy) == 0


def test_beta_orders_the_logging_policies() -> None:
    values = []
    for beta in (-2.0, -1.0, 0.0, 1.0, 2.0):
        world = small(beta=beta)
        values.append(world.value(world.logging_policy))
    assert values == sorted(values)
    world = small(beta=0.0)
    uniform = Uniform(~world.catalogue.novel)
    assert world.value(world.logging_policy) == pytest.approx(world.value(uniform))


def test_deployments_are_repeatable_and_rounds_differ() -> None:
    world = small()
    first, again = (world.deploy(world.logging_policy, 100, round=0) for _ in range(2))
    other = world.deploy(world.logging_policy, 100, round=1)
    assert first.hash == again.hash != other.hash
    assert set(np.asarray(other.round)) == {1}


def test_worthless_novel_items_never_earn() -> None:
    world = small(novel_quality=0.0)
    explore = Uniform(world.catalogue.novel)
    assert world.value(explore) == 0
    assert world.deploy(explore, 500, round=1).mean_reward() == 0


def test_rare_rewards_are_rare() -> None:
    world = small(reward_rate=0.001)
    assert world.value(Uniform(np.ones(16, dtype=bool))) == pytest.approx(0.001, rel=0.01)
    assert small(reward_rate=0.3).q.mean() == pytest.approx(0.3, rel=0.01)


def test_drifting_rewards_fall_by_round() -> None:
    world = small(decay=0.5)
    pi0 = world.logging_policy
    assert world.value(pi0, round=2) == pytest.approx(world.value(pi0) / 4)
    early, late = (world.deploy(pi0, 20_000, round=k).mean_reward() for k in (0, 2))
    assert late == pytest.approx(early / 4, rel=0.2)


def test_units_are_users_when_asked() -> None:
    logs = small(with_units=True).deploy(Uniform(np.ones(16, dtype=bool)), 500, round=1)
    assert logs.unit is not None and logs.units is not None
    for user in range(len(logs.units)):
        assert len(np.unique(logs.context[logs.unit == user])) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"users": 0}, "users must be at least 1"),
        ({"reward_rate": 1.0}, "reward_rate must lie in"),
        ({"novel_quality": 2.0}, "novel_quality must lie in"),
        ({"decay": 1.0}, "decay must lie in"),
    ],
)
def test_bad_settings_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        small(**options)


def test_q_must_fit_users_and_actions() -> None:
    catalogue = Catalogue.of([0, 1])
    rewards, pi0 = RewardTable(np.full((2, 3), 0.5)), Uniform(np.ones(2, dtype=bool))
    with pytest.raises(ConfigError, match="one mean reward per user"):
        World(np.eye(2, dtype=np.float32), rewards, catalogue, pi0, seed=0)


def test_mean_rewards_outside_their_range_are_refused() -> None:
    with pytest.raises(ConfigError, match="must lie in"):
        RewardTable(np.array([[1.5, 0.1]]))


def test_further_columns_are_logged_and_known_exactly() -> None:
    small = synthetic_world(SyntheticSettings(users=20, supported=4, novel=2), seed=0)
    cost = np.random.default_rng(0).random((20, 6))
    parts = (small.contexts, small.rewards, small.catalogue, small.logging_policy)
    world = World(*parts, seed=0, others={"cost": cost})
    logs = world.deploy(world.logging_policy, 20_000, round=0)
    mean = world.mean_of("cost", world.logging_policy)
    assert logs.column("cost").mean() == pytest.approx(mean, abs=0.01)
    with pytest.raises(ConfigError, match="one value per user and action"):
        World(*parts, seed=0, others={"cost": cost[:, 1:]})
