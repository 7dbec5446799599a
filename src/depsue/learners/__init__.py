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

Beside it what others do, to compare with (`baselines`, `pona`): epsilon-greedy, Thompson sampling,
the ratio clip of PRPO, and PONA. They learn from the features of items, on sets of candidates, too.
"""

from depsue.learners.ascent import AscentSettings, FeatureTrained
from depsue.learners.baselines import (
    PrpoSettings,
    ThompsonSettings,
    epsilon_greedy,
    linear_thompson,
    train_prpo,
)
from depsue.learners.depsue import Deployment, DepsueResult, DepsueSettings, run_depsue
from depsue.learners.gradient import Objective, OpgSettings, OwnObjective, ValueWithEntropy
from depsue.learners.history import History, SafelyTrained, Trained
from depsue.learners.opg import train_opg
from depsue.learners.pona import PonaSettings, binned, combinations, lcpi, train_pona
from depsue.learners.safe_opg import SafeOpgSettings, train_safe_opg

__all__ = [
    "AscentSettings",
    "Deployment",
    "DepsueResult",
    "DepsueSettings",
    "FeatureTrained",
    "History",
    "Objective",
    "OpgSettings",
    "OwnObjective",
    "PonaSettings",
    "PrpoSettings",
    "SafeOpgSettings",
    "SafelyTrained",
    "ThompsonSettings",
    "Trained",
    "ValueWithEntropy",
    "binned",
    "combinations",
    "epsilon_greedy",
    "lcpi",
    "linear_thompson",
    "run_depsue",
    "train_opg",
    "train_pona",
    "train_prpo",
    "train_safe_opg",
]
