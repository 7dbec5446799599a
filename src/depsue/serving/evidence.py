"""Evidence against a promise that may be looked at after every decision.

While a policy serves, a decision was drawn from the policy with probability 1 - h and from pi0 with
probability h, the holdout. Its reward is weighed for both in two ways:

- by items: w = p_policy / p and w0 = p_pi0 / p, where p is the mixture of the two. This uses every
  decision, and sees soonest that the shown items are worth less.
- by holdout: w = 1 / (1 - h) if the policy decided, else 0, and w0 = 1 / h if the holdout did. This
  sees anything that goes wrong with the policy's decisions, and needs more of them.

Against a relative floor rho the terms are r (w - rho w0), against an absolute floor they are r w.
The promise is about the mean of these terms. The round's need is the floor, less the margin that
the round may spend.

Evidence that the mean lies below the need is what a bet against the need would have earned: a fixed
fraction is staked on every term, and the winnings are averaged over a fixed grid of fractions. If
the mean of each term, given all earlier ones, is at least the need, the evidence ever reaches
1 / delta with probability at most delta (Ville). That is why every look is free.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Literal

import numpy as np

from depsue.bounds import SMOOTHING_SCALES, log_sums, smoothing_from_sums
from depsue.data.checks import FloatArray, IntArray, Mask, read_only
from depsue.promises import Promise

Weighing = Literal["items", "holdout"]
FRACTIONS: FloatArray = read_only(0.5 ** np.arange(1, 12))
"""Bets, as fractions of the largest that cannot lose everything."""
BINS = 16
"""Of the places of actions in their distributions."""
SHOWN = 0.05
"""Error rate of the confidence sequences that pages show."""


class SequentialTest(ABC):
    """A claim, and the evidence against it.

    Args:
        name: of the claim.
        delta: the probability of a false alarm, over all time.
    """

    def __init__(self, name: str, delta: float) -> None:
        self.name, self.delta = name, delta

    @property
    @abstractmethod
    def log_evidence(self) -> float:
        """The logarithm of the evidence; at log(1 / delta) the claim is refuted."""

    @property
    @abstractmethod
    def words(self) -> str:
        """How the test stands, in a sentence."""

    @property
    def refuted(self) -> bool:
        """Whether the evidence is enough."""
        return self.log_evidence >= math.log(1 / self.delta)

    @property
    def doubtful(self) -> bool:
        """Whether it has come half the way, in the logarithm."""
        return self.log_evidence >= 0.5 * math.log(1 / self.delta)

    @property
    def share(self) -> float:
        """How far it has come, in the logarithm: 0 at the start, 1 where the claim is refuted."""
        return min(max(self.log_evidence / math.log(1 / self.delta), 0.0), 1.0)

    @property
    def _so_far(self) -> str:
        return f"evidence {math.exp(min(self.log_evidence, 700)):.3g} of {1 / self.delta:,.0f}"


class FloorTest(SequentialTest):
    """Evidence that one promise is not kept.

    Args:
        promise: the promise.
        by: how rewards are weighed.
        r_max: the largest reward.
        credit: margin per decision that the round spends.
        holdout: the share of traffic on pi0.
        delta: the probability of a false alarm, over all time.
    """

    def __init__(
        self,
        promise: Promise,
        *,
        by: Weighing,
        r_max: float,
        credit: float,
        holdout: float,
        delta: float,
    ) -> None:
        super().__init__(f"{promise.name}, by {by}", delta)
        self.promise, self.by = promise, by
        self.need = (promise.floor.absolute or 0.0) - credit
        self._ratio = promise.floor.ratio
        largest = r_max / max(1 - holdout, 1e-9)  # of a term
        self._evidence = BettingEvidence(max(largest - self.need, 1e-12))
        self.n, self._sum = 0, 0.0

    def add(self, reward: FloatArray, w: FloatArray, w0: FloatArray) -> None:
        """Take in (n,) rewards with their weights for the policy and for pi0."""
        terms = reward * (w if self._ratio is None else w - self._ratio * w0)
        self._evidence.add(self.need - terms)
        self.n += len(terms)
        self._sum += float(terms.sum())

    @property
    def log_evidence(self) -> float:
        """The logarithm of the evidence that the mean of the terms lies below the need."""
        return self._evidence.log_evidence

    @property
    def words(self) -> str:
        """How the test stands, in a sentence."""
        mean = self._sum / max(self.n, 1)
        value = "V(pi) - rho V(pi0)" if self._ratio is not None else "V(pi)"
        return (
            f"{value} is {mean:.4g} on {self.n:,} decisions, needed is {self.need:.4g}; "
            f"{self._so_far}"
        )


class PropensityTest(SequentialTest):
    """Evidence that shown actions do not follow the distributions they are said to be drawn from.

    The place of an action in its distribution, with chance where it has mass, is uniform on
    [0, 1] if it was drawn from it. The evidence is the likelihood of the bins that the places fall
    into under the mixture of all distributions over bins (Dirichlet with parameters 1/2), against
    the uniform one.

    Args:
        delta: the probability of a false alarm, over all time.
    """

    def __init__(self, delta: float) -> None:
        super().__init__("propensities", delta)
        self.counts: IntArray = np.zeros(BINS, dtype=np.int64)
        self.wrong, self.n = 0, 0

    def add(self, places: FloatArray, wrong: int) -> None:
        """Take in (n,) places in [0, 1], and how many logged propensities were not the policy's."""
        bins = np.minimum((places * BINS).astype(np.int64), BINS - 1)
        self.counts += np.bincount(bins, minlength=BINS)
        self.n += len(places)
        self.wrong += wrong

    @property
    def log_evidence(self) -> float:
        """The logarithm of the evidence against uniform places."""
        n, half = int(self.counts.sum()), 0.5
        mixed = sum(math.lgamma(c + half) - math.lgamma(half) for c in self.counts.tolist())
        mixed += math.lgamma(BINS * half) - math.lgamma(n + BINS * half)
        return mixed + n * math.log(BINS)

    @property
    def refuted(self) -> bool:
        """Whether a logged propensity was wrong, or the frequencies refute them all."""
        return self.wrong > 0 or super().refuted  # one wrong propensity is no matter of chance

    @property
    def words(self) -> str:
        """How the test stands, in a sentence."""
        wrong = f"; {self.wrong:,} were logged with another probability" if self.wrong else ""
        return (
            f"shown actions against their propensities: {self.n:,} decisions, {self._so_far}{wrong}"
        )


class BettingEvidence:
    """Evidence against the claim that the mean of these values is at most 0.

    Args:
        limit: values are at least -limit.
    """

    def __init__(self, limit: float) -> None:
        self._bets = FRACTIONS / limit
        self._logs = np.zeros(len(FRACTIONS))

    def add(self, values: FloatArray) -> None:
        """Take in (n,) values, each >= -limit."""
        for place, bet in enumerate(self._bets.tolist()):
            self._logs[place] += float(np.log1p(bet * values).sum())

    @property
    def log_evidence(self) -> float:
        """The logarithm of what the bets have earned on average."""
        return float(np.logaddexp.reduce(self._logs)) - math.log(len(self._logs))


def weights(
    p_policy: FloatArray, p_pi0: FloatArray, held: Mask, holdout: FloatArray, by: Weighing
) -> tuple[FloatArray, FloatArray]:
    """(w, w0) of (n,) decisions, for the policy and for pi0.

    Args:
        p_policy, p_pi0: of the action.
        held: whether the holdout decided.
        holdout: its share at the time.
        by: how rewards are weighed.
    """
    if by == "holdout":
        with np.errstate(divide="ignore", invalid="ignore"):
            return ~held / (1 - holdout), np.where(held, 1 / holdout, 0.0)
    mixed = (1 - holdout) * p_policy + holdout * p_pi0
    return p_policy / mixed, p_pi0 / mixed


def delta_of_test(delta: float, rounds: int, tests: int, epoch: int) -> float:
    """Of one test in the j-th epoch of a round: delta is split over all that a campaign may need.

    Args:
        delta: for the campaign's life.
        rounds: K.
        tests: in parallel.
        epoch: j, from 1: another policy, or a resumption, begins a new one.
    """
    return delta / rounds / tests * 2.0**-epoch


class ConfidenceSequence:
    """A mean with a confidence sequence: right at all times together in 95% of runs.

    Args:
        r_max: values lie in [0, r_max].
    """

    def __init__(self, r_max: float) -> None:
        self._scales = SMOOTHING_SCALES * r_max
        self._low, self._high = np.zeros(len(self._scales)), np.zeros(len(self._scales))
        self.n, self._sum, self._r_max = 0, 0.0, r_max

    def add(self, values: FloatArray) -> None:
        """Take in (n,) values."""
        self._low += log_sums(values, self._scales)
        self._high += log_sums(self._r_max - values, self._scales)
        self.n += len(values)
        self._sum += float(values.sum())

    @property
    def limits(self) -> tuple[float, float, float]:
        """(mean, lower, upper)."""
        if self.n == 0:
            return math.nan, 0.0, self._r_max
        low = smoothing_from_sums(self._low, self.n, self._scales, SHOWN / 2)
        high = self._r_max - smoothing_from_sums(self._high, self.n, self._scales, SHOWN / 2)
        return self._sum / self.n, low, high


class ContextDrift:
    """Whether contexts are still like those of the logs that certified the policy.

    Args:
        mean, deviation: (d,) of the logs' contexts.
        n: how many they are.
    """

    def __init__(self, mean: FloatArray, deviation: FloatArray, n: int) -> None:
        self._mean, self._deviation, self._reference = mean, deviation, n
        self._sum, self.n = np.zeros(len(mean)), 0

    def add(self, contexts: FloatArray) -> None:
        """Take in (n, d) contexts."""
        self._sum += np.asarray(contexts, dtype=np.float64).sum(axis=0)
        self.n += len(contexts)

    @property
    def worst(self) -> tuple[int, float]:
        """(column, standard errors) of the mean that has moved most."""
        if self.n < 100:
            return 0, 0.0
        spread = np.where(self._deviation > 0, self._deviation, np.inf)
        error = spread * math.sqrt(1 / self.n + 1 / self._reference)
        apart = np.abs(self._sum / self.n - self._mean) / error
        return int(apart.argmax()), float(apart.max())

    @property
    def doubtful(self) -> bool:
        """Whether a mean has moved by more than chance explains, looked at again and again."""
        d = len(self._mean)
        looks = math.log(max(self.n, 2)) * d / 0.001
        return self.worst[1] > math.sqrt(2 * math.log(looks))
