"""Reward models: the bootstrapped ensemble, CQL, and a team's own."""

from depsue.rewards.fit import CQL, RewardSettings, fit_rewards
from depsue.rewards.model import FitReport, MlpRewardModel, OwnRewardModel

__all__ = ["CQL", "FitReport", "MlpRewardModel", "OwnRewardModel", "RewardSettings", "fit_rewards"]
