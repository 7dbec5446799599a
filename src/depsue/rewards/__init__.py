"""Reward models: the bootstrapped ensemble, CQL, a linear one, their blend, and a team's own."""

from depsue.rewards.base import CQL, BaseRewardModel, RewardSettings
from depsue.rewards.linear import LinearRewardModel, fit_linear
from depsue.rewards.mlp import FitReport, MlpRewardModel, fit_rewards, heldout_split
from depsue.rewards.simple import Blend, OwnRewardModel

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
    "heldout_split",
]
