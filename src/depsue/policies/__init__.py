"""Policies: three calls each (log-probabilities, samples, distributions), saved without pickle.

`NetworkPolicy` lives in `depsue.policies.network`, which loads torch.
"""

from depsue.onnx import OnnxScores
from depsue.policies.base import BasePolicy
from depsue.policies.files import load, save
from depsue.policies.given import NamedPolicy, given_policy
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
