"""Importance weighting: IPS, clipped IPS and the self-normalised SNIPS."""

from __future__ import annotations

from dataclasses import dataclass

from depsue.data.logs import LoggedData
from depsue.data.terms import WeightedTerms
from depsue.errors import DataError, require
from depsue.estimators.weights import (
    Unseen,
    average,
    importance_weights,
    mean_estimate,
    unseen,
    unseen_notes,
)
from depsue.protocols import Estimate, Policy


@dataclass(frozen=True)
class IPS:
    """Inverse propensity scoring: the mean over rows of w r, with w = pi(a|x) / p.

    Conservative: E[w r] is what pi earns on the logging policy's support, and what it earns
    elsewhere is counted as 0.

    Reference: Horvitz & Thompson, 1952; Strehl et al., Learning from logged implicit exploration
    data, 2010.
    """

    def terms(self, policy: Policy, logs: LoggedData) -> WeightedTerms:
        """(n,) terms w_i r_i."""
        weights = importance_weights(policy, logs)
        return WeightedTerms.of(weights, logs.reward, r_max=logs.r_max, unit=logs.unit)

    def estimate(self, policy: Policy, logs: LoggedData) -> Estimate:
        """The mean of the terms."""
        away = unseen(policy, logs)
        return mean_estimate("IPS", self.terms(policy, logs), away, _counted_zero(away, logs))


@dataclass(frozen=True)
class ClippedIPS:
    """IPS with weights cut off: the mean over rows of min(w, tau) r.

    Conservative, and its terms are at most tau r_max: this is the mean in the paper's Eq. 4.

    Args:
        tau: the largest weight that counts.

    Reference: Ionides, Truncated importance sampling, 2008; Strehl et al., 2010.
    """

    tau: float

    def __post_init__(self) -> None:
        require(self.tau > 0, "tau must be positive", found=self.tau, cure="use for example 10")

    def terms(self, policy: Policy, logs: LoggedData) -> WeightedTerms:
        """(n,) terms min(w_i, tau) r_i."""
        return IPS().terms(policy, logs).clipped(self.tau)

    def estimate(self, policy: Policy, logs: LoggedData) -> Estimate:
        """The mean of the terms."""
        away = unseen(policy, logs)
        terms = self.terms(policy, logs)
        return mean_estimate("clipped IPS", terms, away, _counted_zero(away, logs))


@dataclass(frozen=True)
class SNIPS:
    """Self-normalised IPS: the sum of w r over the sum of w.

    A ratio, not a mean, so it has no terms. The weights average 1 only if pi stays on the
    logging policy's support; with novel mass they average less, and SNIPS overstates V(pi).

    Reference: Swaminathan & Joachims, The self-normalized estimator for counterfactual
    learning, 2015.
    """

    def estimate(self, policy: Policy, logs: LoggedData) -> Estimate:
        """The ratio of the mean of w r to the mean of w (means over units where there are any)."""
        weights = importance_weights(policy, logs)
        mean_weight = average(weights, logs)
        if mean_weight == 0:
            raise DataError(
                "SNIPS needs a row whose action the policy could choose",
                column="action",
                found=f"all {len(logs):,} weights are 0",
                cure="use IPS, which counts them as 0, or logs that share actions with the policy",
            )
        ips = average(weights * logs.reward, logs)
        value = ips / mean_weight
        away = unseen(policy, logs)
        effect = (
            f"the weights average {mean_weight:.4g}, and dividing by that values those actions as "
            f"if they were as good as the ones shown: SNIPS says {value:.4g} where IPS, which "
            f"counts them as 0, says {ips:.4g}"
        )
        notes = unseen_notes("SNIPS", away, effect, stacklevel=3)
        return Estimate(value, None, None, away.mass, notes)


def _counted_zero(away: Unseen, logs: LoggedData) -> str:
    return (
        "they count as reward 0, which understates the policy's value by at most "
        f"{away.mass * logs.r_max:.4g} (their mass times r_max = {logs.r_max:g})"
    )
