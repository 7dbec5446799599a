"""Learners: OPG, Safe OPG (Algorithm 1), DEPSUE (Eq. 9), and certified exploration."""

from depsue.learners.depsue import Deployment, DepsueResult, DepsueSettings, run_depsue
from depsue.learners.exploration import Exploration, ExplorationResult, run_exploration
from depsue.learners.explore_settings import ExploreSettings
from depsue.learners.exploring import Explored, explore
from depsue.learners.frontier import plan
from depsue.learners.gradient import OpgSettings
from depsue.learners.history import History, SafelyTrained, Trained
from depsue.learners.objective import Objective, OwnObjective, ValueWithEntropy
from depsue.learners.opg import train_opg
from depsue.learners.planned import Plan, PlanSettings
from depsue.learners.room import Aim
from depsue.learners.safe_opg import SafeOpgSettings, train_safe_opg

__all__ = [
    "Aim",
    "Deployment",
    "DepsueResult",
    "DepsueSettings",
    "Exploration",
    "ExplorationResult",
    "ExploreSettings",
    "Explored",
    "History",
    "Objective",
    "OpgSettings",
    "OwnObjective",
    "Plan",
    "PlanSettings",
    "SafeOpgSettings",
    "SafelyTrained",
    "Trained",
    "ValueWithEntropy",
    "explore",
    "plan",
    "run_depsue",
    "run_exploration",
    "train_opg",
    "train_safe_opg",
]
