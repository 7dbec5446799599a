"""Policies: three calls each (log-probabilities, samples, distributions), saved without pickle.

`NetworkPolicy` lives in `depsue.policies.network`, which loads torch.
"""

from depsue.onnx import OnnxScores
from depsue.policies.base import BasePolicy
from depsue.policies.by_features import FeatureSoftmax, LinearThompson
from depsue.policies.chosen import ChosenPolicy
from depsue.policies.files import load, save
from depsue.policies.named import NamedPolicy, known_by, named_policy
from depsue.policies.restricted import RestrictedPolicy
from depsue.policies.simple import (
    BroughtPolicy,
    ByItem,
    EpsilonGreedy,
    Mixture,
    OrElse,
    OwnPolicy,
    SoftmaxOfScores,
    Uniform,
    naive_safe_exploration,
)
from depsue.policies.tilted import RatioClipped
from depsue.scores import ExternalModel, ScoreTable

__all__ = [
    "BasePolicy",
    "BroughtPolicy",
    "ByItem",
    "ChosenPolicy",
    "EpsilonGreedy",
    "ExternalModel",
    "FeatureSoftmax",
    "LinearThompson",
    "Mixture",
    "NamedPolicy",
    "OnnxScores",
    "OrElse",
    "OwnPolicy",
    "RatioClipped",
    "RestrictedPolicy",
    "ScoreTable",
    "SoftmaxOfScores",
    "Uniform",
    "known_by",
    "load",
    "naive_safe_exploration",
    "named_policy",
    "save",
]
