"""Estimates by a reward model: the direct method, and doubly robust ones, which correct it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from depsue.data.checks import FloatArray
from depsue.data.logs import LoggedData
from depsue.data.terms import Terms
from depsue.errors import require
from depsue.estimators.weights import (
    ModelSums,
    importance_weights,
    logged_predictions,
    mean_estimate,
    model_sums,
)
from depsue.protocols import Estimate, Policy, RewardModel


@dataclass(frozen=True)
class DirectMethod:
    """DM: the mean over rows of sum_a pi(a|x) q(x, a).

    No weights, so little variance; as biased as the model. The terms lie in [0, r_max] but are
    not conservative: the model may overstate any action, and novel ones most of all.

    Args:
        model: q, the reward model.

    Reference: Beygelzimer & Langford, The offset tree for learning with partial labels, 2009.
    """

    model: RewardModel

    def terms(self, policy: Policy, logs: LoggedData) -> Terms:
        """(n,) terms sum_a pi(a|x_i) q(x_i, a)."""
        return _terms(model_sums(policy, logs, self.model), logs)

    def estimate(self, policy: Policy, logs: LoggedData) -> Estimate:
        """The mean of the terms."""
        sums = model_sums(policy, logs, self.model)
        terms = _terms(sums, logs)
        effect = (
            f"{sums.unseen_value:.4g} of the estimate {terms.mean():.4g} is what the reward model "
            "says of those actions, and no reward in these logs speaks for it"
        )
        return mean_estimate("DM", terms, sums.unseen, effect)


def _terms(sums: ModelSums, logs: LoggedData) -> Terms:
    return Terms(sums.value, 0.0, unit=logs.unit)


TIE = 1e-12
"""A weight that exceeds tau by this share is tau but for rounding, and still counts."""


@dataclass(frozen=True)
class DoublyRobust:
    """DR: the mean over rows of sum_a pi(a|x) q(x, a) + w (r - q(x, a_i)).

    Unbiased on the logging policy's support whatever the model is; on novel actions that the
    logs never show it is the model alone, so not conservative. A term may fall as low as
    -w r_max, and the logs declare no largest weight, so the terms have no finite lower limit
    (`SwitchDR` has one).

    Args:
        model: q, the reward model.

    Reference: Dudik et al., Doubly robust policy evaluation and optimization, 2014.
    """

    model: RewardModel

    def terms(self, policy: Policy, logs: LoggedData) -> Terms:
        """(n,) terms sum_a pi(a|x_i) q(x_i, a) + w_i (r_i - q(x_i, a_i))."""
        return self._terms(model_sums(policy, logs, self.model), policy, logs)

    def estimate(self, policy: Policy, logs: LoggedData) -> Estimate:
        """The mean of the terms."""
        sums = model_sums(policy, logs, self.model)
        terms = self._terms(sums, policy, logs)
        return mean_estimate("DR", terms, sums.unseen, _pure_model(sums, terms))

    def _terms(self, sums: ModelSums, policy: Policy, logs: LoggedData) -> Terms:
        weights = importance_weights(policy, logs)
        return Terms(_corrected(sums, weights, self.model, logs), -math.inf, unit=logs.unit)


@dataclass(frozen=True)
class SwitchDR:
    """Switch-DR: as DR, but rows with a weight above tau are left to the model.

    The mean over rows of sum_a pi(a|x) q(x, a) + w (r - q(x, a_i)) 1{w <= tau}. A term cannot
    fall below -tau r_max. Not conservative, for the reason that DR is not.

    Args:
        model: q, the reward model.
        tau: the largest weight whose residual counts; 0 gives the direct method.

    Reference: Wang, Agarwal & Dudik, Optimal and adaptive off-policy evaluation in contextual
    bandits, 2017.
    """

    model: RewardModel
    tau: float

    def __post_init__(self) -> None:
        require(
            0 <= self.tau < math.inf,
            "tau must be a finite number, 0 or more",
            found=self.tau,
            cure="use DoublyRobust for no limit on the weights",
        )

    def terms(self, policy: Policy, logs: LoggedData) -> Terms:
        """(n,) terms sum_a pi(a|x_i) q(x_i, a) + w_i (r_i - q(x_i, a_i)) 1{w_i <= tau}."""
        return self._terms(model_sums(policy, logs, self.model), policy, logs)

    def estimate(self, policy: Policy, logs: LoggedData) -> Estimate:
        """The mean of the terms."""
        sums = model_sums(policy, logs, self.model)
        terms = self._terms(sums, policy, logs)
        return mean_estimate("Switch-DR", terms, sums.unseen, _pure_model(sums, terms))

    def _terms(self, sums: ModelSums, policy: Policy, logs: LoggedData) -> Terms:
        weights = importance_weights(policy, logs)
        counted = np.where(weights <= self.tau * (1 + TIE), np.minimum(weights, self.tau), 0.0)
        values = _corrected(sums, counted, self.model, logs)
        return Terms(values, -self.tau * logs.r_max, unit=logs.unit)


def _corrected(
    sums: ModelSums, weights: FloatArray, model: RewardModel, logs: LoggedData
) -> FloatArray:
    """(n,) the model's value of pi plus the weighted residual."""
    values: FloatArray = sums.value + weights * (logs.reward - logged_predictions(model, logs))
    return values


def _pure_model(sums: ModelSums, terms: Terms) -> str:
    return (
        f"{sums.unseen_value:.4g} of the estimate {terms.mean():.4g} is what the reward model says "
        "of those actions: that part is pure model, no logged reward corrects it"
    )
