"""Policies: three calls each (log-probabilities, samples, distributions), saved without pickle.

`NetworkPolicy` lives in `depsue.policies.network`, which loads torch.
"""

from depsue.policies.base import BasePolicy
from depsue.policies.files import load, save
from depsue.policies.given import NamedPolicy, given_policy
from depsue.policies.onnx import OnnxScores
from depsue.policies.scores import ExternalModel, OwnPolicy, ScoreTable
from depsue.policies.simple import (
    ByItem,
    EpsilonGreedy,
    Mixture,
    SoftmaxOfScores,
    Uniform,
    naive_safe_exploration,
)

__all__ = [
    "BasePolicy",
    "ByItem",
    "EpsilonGreedy",
    "NamedPolicy",
    "Mixture",
    "OnnxScores",
    "ExternalModel",
    "OwnPolicy",
    "ScoreTable",
    "SoftmaxOfScores",
    "Uniform",
    "given_policy",
    "load",
    "naive_safe_exploration",
    "save",
]
