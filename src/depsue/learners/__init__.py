"""Learners: OPG, Safe OPG (Algorithm 1) and DEPSUE (Eq. 9)."""

from depsue.learners.depsue import Deployment, DepsueResult, DepsueSettings, run_depsue
from depsue.learners.gradient import Objective, OpgSettings, OwnObjective, ValueWithEntropy
from depsue.learners.history import History, SafelyTrained, Trained
from depsue.learners.opg import train_opg
from depsue.learners.safe_opg import SafeOpgSettings, train_safe_opg

__all__ = [
    "Deployment",
    "DepsueResult",
    "DepsueSettings",
    "History",
    "Objective",
    "OpgSettings",
    "OwnObjective",
    "SafeOpgSettings",
    "SafelyTrained",
    "Trained",
    "ValueWithEntropy",
    "run_depsue",
    "train_opg",
    "train_safe_opg",
]
