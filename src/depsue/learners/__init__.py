"""The paper's system, by its own names.

==========================  ====================================================================
Eq. 1, Eq. 2                `gradient.ValueWithEntropy`: the objective F
the step, Eq. 7             `gradient.PolicyGradient.step`
OPG                         `opg.train_opg`
Eq. 4 (HCOPE's bound)       `bounds/hcope.py`, on every step by `safe_opg.BoundOnLogs`
Algorithm 1, Eq. 3 to 8     `safe_opg.train_safe_opg`
DEPSUE, Eq. 9               `depsue.run_depsue`
Naive Safe Exploration      `policies.naive_safe_exploration`
==========================  ====================================================================
"""

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
