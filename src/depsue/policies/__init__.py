"""Policies: three calls each (log-probabilities, samples, distributions), saved without pickle.

`NetworkPolicy` lives in `depsue.policies.network`, which loads torch.
"""

from depsue.onnx import OnnxScores
from depsue.policies.base import BasePolicy
from depsue.policies.files import load, save
from depsue.policies.named import NamedPolicy, named_policy
from depsue.policies.restricted import RestrictedPolicy
from depsue.policies.simple import (
    ByItem,
    EpsilonGreedy,
    Mixture,
    OwnPolicy,
    SoftmaxOfScores,
    Uniform,
    naive_safe_exploration,
)
from depsue.scores import ExternalModel, ScoreTable

__all__ = [
    "BasePolicy",
    "ByItem",
    "EpsilonGreedy",
    "ExternalModel",
    "Mixture",
    "NamedPolicy",
    "OnnxScores",
    "OwnPolicy",
    "RestrictedPolicy",
    "ScoreTable",
    "SoftmaxOfScores",
    "Uniform",
    "load",
    "naive_safe_exploration",
    "named_policy",
    "save",
]
