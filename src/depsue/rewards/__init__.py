"""Reward models: the bootstrapped ensemble, CQL, a linear one, their blend, and a team's own."""

from depsue.rewards.base import BaseRewardModel
from depsue.rewards.fit import CQL, RewardSettings, fit_rewards
from depsue.rewards.linear import Blend, LinearRewardModel, fit_linear
from depsue.rewards.model import FitReport, MlpRewardModel, OwnRewardModel

__all__ = [
    "CQL",
    "BaseRewardModel",
    "Blend",
    "FitReport",
    "LinearRewardModel",
    "MlpRewardModel",
    "OwnRewardModel",
    "RewardSettings",
    "fit_linear",
    "fit_rewards",
]
