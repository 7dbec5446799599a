"""A small world with its logs and reward model, shared by the learners' tests."""

from typing import NamedTuple

import pytest

from depsue.data import LoggedData
from depsue.rewards import MlpRewardModel, RewardSettings, fit_rewards
from depsue.world import SyntheticSettings, World, synthetic_world


class Setting(NamedTuple):
    """World, logs, and a reward model that was fitted on them."""

    world: World
    logs: LoggedData
    model: MlpRewardModel


@pytest.fixture(scope="session")
def setting() -> Setting:
    options = SyntheticSettings(users=150, supported=24, novel=6, d=4, spread=1.0)
    world = synthetic_world(options, seed=11)
    logs = world.deploy(world.logging_policy, 12_000, round=0)
    return Setting(world, logs, fit_rewards(logs, RewardSettings(max_epochs=6), seed=0))
