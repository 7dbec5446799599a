"""Estimators of V(pi) from the logs of another policy."""

from depsue.estimators.marginal import MIPS
from depsue.estimators.model_based import DirectMethod, DoublyRobust, SwitchDR
from depsue.estimators.weighting import IPS, SNIPS, ClippedIPS

__all__ = [
    "ClippedIPS",
    "DirectMethod",
    "DoublyRobust",
    "IPS",
    "MIPS",
    "SNIPS",
    "SwitchDR",
]
