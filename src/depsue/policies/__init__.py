"""Policies: three calls each (log-probabilities, samples, distributions), saved without pickle.

`NetworkPolicy` lives in `depsue.policies.network`, which loads torch.
"""

from depsue.policies.base import BasePolicy
from depsue.policies.files import load, save
from depsue.policies.scores import OwnPolicy, ScoreTable
from depsue.policies.simple import (
    EpsilonGreedy,
    Mixture,
    SoftmaxOfScores,
    Uniform,
    naive_safe_exploration,
)

__all__ = [
    "BasePolicy",
    "EpsilonGreedy",
    "Mixture",
    "OwnPolicy",
    "ScoreTable",
    "SoftmaxOfScores",
    "Uniform",
    "load",
    "naive_safe_exploration",
    "save",
]
