"""Bets from every start at once: evidence that a mean has fallen, whenever it began to fall.

The claim is about values y_1, y_2, ... in their order of arrival: that the mean of each, given all
before it, is at least the need. Bets are placed on x = need - y.

**One start.** For a bet L the product over i from s to t of 1 + L (need - y_i) is what betting
against the need since s would have earned. If the mean of each y_i, given all before it, is at
least the need (the null), each factor has a conditional mean of at most 1. So the product is a
test supermartingale from 1: it ever reaches 1 / delta with probability at most delta (Ville). That
is why every look is free. But a product from the start loses while all is well, and a fault after
100,000 decisions must first win that back.

**All starts** (`StartMixture`). With weights pi_s >= 0 that sum to at most 1 and are known when s
begins,

    E_t  =  sum over s <= t of pi_s x mean over bets of (product from s to t)  +  what is left,

where what is left is 1 less the sum of pi_s over s <= t. *Why it is a test supermartingale:* it
begins at 1. Given the past, each product that has begun has a conditional mean of at most its
present value. A start at t + 1 moves pi from what is left into a product whose first factor has a
conditional mean of at most 1. So E[E_{t+1} given the past] <= E_t. A fault at s is found as soon as
pi_s times its own product is large: the price is log(1 / pi_s), not what was lost before. *The
average over the products started so far is none:* if A_t < 1 is the average of t products, the
next average has the conditional mean (t A_t + 1) / (t + 1) > A_t. Its mean is 1 at each fixed t,
but it is pulled back up whenever it is low, and so it reaches 1 / delta too often.
For each bet the sum over starts is one number, M_t = (M_{t-1} + pi_t) (1 + L (need - y_t)).

**Whole cycles.** Some promises hold on average, not at every decision: an absolute floor with busy
and slow hours, and a mean over units (users), whose heavy users come first and often. There the
null is about whole cycles of a declared length (a day): given what came before the cycle, its
values are independent and their means mu_1 .. mu_m *average* at least the need. Then the
product over the whole cycle has the conditional mean

    (1 + L (need - mu_1)) ... (1 + L (need - mu_m))  <=  (1 + L (need - average mu))^m  <=  1

(arithmetic and geometric mean), in any order. So products begin and are looked at between
cycles only (`hold` and `close`), and every value keeps its own bet: nothing is lost but the wait
for the end of the cycle.
"""

from __future__ import annotations

import numpy as np

from depsue.data.checks import FloatArray, IntArray, first_bad, read_only
from depsue.errors import require, require_positive, short

FRACTIONS: FloatArray = read_only(0.5 ** np.arange(1, 12))
"""Bets, as fractions of the largest that cannot lose everything."""
AT_START, WITHIN = 0.4, 0.3
"""Weight of the product from the first value on, and of those that begin evenly over the declared
length. The rest begins later, ever more rarely: a round may last longer than was declared."""
EVERY = 64
"""Values between two starts."""
CHUNK = 8192
"""Values whose products are computed at once."""


class StartMixture:
    """Evidence against the claim that values have a mean of at most 0, from every start at once.

    The evidence is a function of the values and of where cycles end, not of how they were batched.

    Args:
        limit: values are at least -limit.
        length: values that are expected, over which most starts are spread; None begins at the
            first only.
    """

    def __init__(self, limit: float, length: int | None) -> None:
        require_positive(limit, "the limit of values", "declare how far below 0 a value can be")
        require(
            length is None or length >= 1,
            "the declared length is at least 1",
            found=short(length),
            cure="declare how many decisions the round is for",
        )
        self.limit, self._length, self.n = limit, length, 0
        self._bets = FRACTIONS / limit
        self._begun = 0.0  # the weight of all starts so far
        self._logs = np.full(len(FRACTIONS), -np.inf)  # log M of each bet
        self._open, self._waiting = np.zeros(len(FRACTIONS)), 0

    def add(self, values: FloatArray) -> FloatArray:
        """(n,) the logarithm of the evidence after each of (n,) values."""
        self.check(values)
        pieces = [self._add(values[k : k + CHUNK]) for k in range(0, len(values), CHUNK)]
        return np.concatenate(pieces) if pieces else np.zeros(0)

    def hold(self, values: FloatArray) -> None:
        """Take in (n,) values of a cycle that is not over: they change nothing yet."""
        self.check(values)
        for k in range(0, len(values), CHUNK):
            self._open += np.log1p(values[k : k + CHUNK, None] * self._bets).sum(axis=0)
        self._waiting += len(values)

    def close(self) -> None:
        """End a cycle: its product counts, for starts before it only."""
        if self._waiting == 0:
            return
        total = float(self._weight(np.array([self.n]))[0])
        with np.errstate(divide="ignore"):
            began = np.log(max(total - self._begun, 0.0))
        self._logs = np.logaddexp(self._logs, began) + self._open
        self._begun = total
        self.n += self._waiting
        self._open, self._waiting = np.zeros(len(FRACTIONS)), 0

    def check(self, values: FloatArray) -> None:
        """A DataError for a value that is not a number or lies below -limit."""
        first_bad(
            ~((values >= -self.limit * (1 + 1e-9)) & (values < np.inf)),
            values,
            f"a value of the monitor is a number that is at least {-self.limit:g}",
            "need less term",
            "leave out decisions whose reward or probabilities are outside their range",
        )

    @property
    def log_evidence(self) -> float:
        """The logarithm of the evidence after the newest value, or the newest cycle."""
        with np.errstate(divide="ignore"):
            left = np.log(1 - self._begun)
        return float(np.logaddexp(left, _log_mean(self._logs)))

    def _weight(self, n: IntArray) -> FloatArray:
        """Of all starts at or before the value that n others come before."""
        if self._length is None:
            return np.ones(len(n))
        return weight_begun(n // EVERY * EVERY / self._length)

    def _add(self, values: FloatArray) -> FloatArray:
        steps = np.log1p(values[:, None] * self._bets)
        sums = np.cumsum(steps, axis=0)
        starts = np.arange(-self.n % EVERY, len(values), EVERY)
        begun = np.concatenate([[self._begun], self._weight(self.n + starts)])
        with np.errstate(divide="ignore"):
            began, left = np.log(np.diff(begun)), np.log(1 - begun)
        # a start at s is worth pi_s x product from s = pi_s x product now / product before s
        at_start = began[:, None] - (sums[starts] - steps[starts])
        worth = np.logaddexp.accumulate(np.vstack([self._logs, at_start]), axis=0)
        newest = np.searchsorted(starts, np.arange(len(values)), side="right")
        logs = sums + worth[newest]
        self._logs, self._begun = logs[-1], float(begun[-1])
        self.n += len(values)
        return np.asarray(np.logaddexp(left[newest], _log_mean(logs)))


def weight_begun(lengths: FloatArray) -> FloatArray:
    """The weight of all starts up to so many times the declared length; it rises towards 1.

    Beyond the length the density falls as 1 / lengths^2. So a fault after twice the length finds a
    quarter of the weight that one within it finds, which costs log 4 more evidence.
    """
    within, beyond = np.minimum(lengths, 1.0), 1 - 1 / np.maximum(lengths, 1.0)
    return np.asarray(AT_START + WITHIN * within + (1 - AT_START - WITHIN) * beyond)


def _log_mean(logs: FloatArray) -> FloatArray:
    """Of exp(logs) over the last axis, in the logarithm."""
    most = logs.max(axis=-1, keepdims=True)
    most = np.where(np.isfinite(most), most, 0.0)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.exp(logs - most).mean(axis=-1)) + most[..., 0])
