"""The direct method: what a reward model says the policy is worth."""

from __future__ import annotations

from dataclasses import dataclass

from depsue.data.logs import LoggedData
from depsue.data.terms import Terms
from depsue.estimators.report import mean_estimate
from depsue.estimators.weights import ModelSums, model_sums
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
