"""Certified exploration: one forecaster, one round, all rounds, and the plan."""

from depsue.exploration.plan import Plan, plan
from depsue.exploration.round import Explored, explore
from depsue.exploration.rounds import Exploration, ExplorationResult, run_exploration
from depsue.exploration.settings import ExploreSettings

__all__ = [
    "Exploration",
    "ExplorationResult",
    "ExploreSettings",
    "Explored",
    "Plan",
    "explore",
    "plan",
    "run_exploration",
]
