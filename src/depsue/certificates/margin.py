"""The margin: one account over all decisions that earlier deployments served.

Margin is counted in decisions: the sum over everything that was served so far, fallbacks and
rollbacks included, of V(pi_k) - C. Each row that a deployed policy logged is a fresh draw from it,
so its own reward (or, for a relative floor, r (1 - rho w0) with w0 = pi0 / p) has that mean. A
decision that was served and not observed counts at the worst of all policies that were deployed in
its round, for any of them may have taken it: one that keeps a share s of pi0 is worth at least
s V(pi0), so it owes at most (rho - s) r_max. Rows of a deployment that kept no share of pi0 are
held against the largest reward where no ceiling on V(pi0) is left. A debt is carried: nothing is
clipped at zero.

How the rows' part is bounded from below (rows that were erased count at their lowest in it, for
whose rows are erased may go with rewards):

- Absolute floor: not at all. The promise is "what was realised so far plus what is expected next",
  so the margin is a sum of rewards, and costs no delta. Rows that the coming verdict reads count at
  a sum that is fixed before (`Credit.fewest`); the verdict fails where they earned less. Were they
  to count at what they earned, the first level that breaks the promise would depend on the rows
  that test it, and levels in a fixed order would need a correction.
- Relative floor with a ceiling, one earlier round of declared length, rewards 0 or r_max, rows
  independent: the exact limit of Clopper and Pearson.
- Else `Smoothing` with one scale, a constant bet: valid although means differ from round to round,
  each policy was chosen by what earlier ones logged, and rounds end when they like (see its proof).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from depsue.bounds import Smoothing, log_sums, smoothing_from_sums
from depsue.certificates.rules import Credit
from depsue.certificates.terms import SINGLE, Ceiling, is_paired, threshold
from depsue.data.checks import FloatArray
from depsue.data.logs import LoggedData
from depsue.data.terms import ConservativeTerms
from depsue.errors import require
from depsue.estimators.weights import importance_weights
from depsue.promises import Promise
from depsue.protocols import Policy

ROUNDING = 1e-9
"""A term may fall below its limit by this share of r_max, through rounding."""
ALLOWED_ERRORS = 2.0
"""Standard errors by which rows that are not read yet may earn less than the others promise."""


@dataclass(frozen=True, eq=False)
class Served:
    """What a deployment served.

    Args:
        logs: rows that it logged and that may be read now.
        decisions: how many decisions it served in all, whoever decided: fallbacks and rollbacks
            included.
        unread: rows that it logged beside `logs`, which the coming verdict will read.
        fixed_length: whether it ended as was declared when it was deployed.
        by_pi0: how many of the decisions without a row pi0 took, as holdout or fallback: they keep
            a relative floor up to 1.
        paired: whether what served kept enough of pi0 for its rows to be paired with pi0; rows that
            cannot be are held against the largest reward where there is no ceiling on V(pi0).
        pi0_kept: the smallest share of pi0 in any policy that was deployed meanwhile, whether or
            not its rows are here: V of each is at least that share of V(pi0). 0 where that is not
            known.
    """

    logs: LoggedData
    decisions: int
    unread: int = 0
    fixed_length: bool = True
    by_pi0: int = 0
    paired: bool = True
    pi0_kept: float = 0.0

    @property
    def unobserved(self) -> int:
        """Decisions without a row."""
        return self.decisions - len(self.logs) - self.unread


@dataclass(frozen=True)
class Stake:
    """What is fixed about a promise's margin before any row was served.

    Args:
        scale: of the constant bet; None averages over the grid of `Smoothing`.
        binary: whether the reward is 0 or r_max, as in the first logs; any other reward then
            counts as 0.
    """

    scale: float | None = None
    binary: bool = False

    @classmethod
    def of(cls, promise: Promise, first: LoggedData, decisions: int, delta: float) -> Stake:
        """From the first logs: sqrt(n variance / (2 log(1/delta))) is near the best scale.

        Args:
            promise: whose reward.
            first: logs of pi0, from before the first deployment.
            decisions: that will have been served (n), as declared.
            delta: of the bound.
        """
        rows, _ = promise.rows(first)
        spread = float(rows.reward.var()) + rows.r_max**2 / len(rows)
        binary = bool(np.isin(rows.reward, (0.0, rows.r_max)).all())
        return cls(math.sqrt(max(decisions, 1) * spread / (2 * math.log(1 / delta))), binary)


def earned(
    promise: Promise,
    served: Sequence[Served],
    *,
    decisions: int,
    delta: float,
    ceiling: Ceiling | None = None,
    logging_policy: Policy | None = None,
    largest: float = 1.0,
    stake: Stake | None = None,
) -> Credit:
    """The margin as a credit per decision of the next deployment; negative where it is a debt.

    Rows that may not be read yet (`Served.unread`) count like those beside them: a forecast, which
    the verdict replaces by the rows themselves. For an absolute floor see the module.

    Args:
        promise: whose floor.
        served: every deployment so far.
        decisions: how many the next deployment will serve.
        delta: the error budget of the lower bound; an absolute floor needs none.
        ceiling: an upper bound on V(pi0); None pairs each row with pi0 instead.
        logging_policy: pi0, for paired rows.
        largest: the declared largest pi0 / p: every item that pi0 may show keeps a probability of
            at least pi0 / largest.
        stake: what was fixed beforehand; None averages bets over a fixed grid.
    """
    require(
        decisions >= 1 and all(d.unobserved >= d.by_pi0 >= 0 for d in served),
        "a deployment serves at least one decision, and all that it logged",
        found=f"{decisions} to come; so far (served, logged) "
        f"{[(d.decisions, len(d.logs) + d.unread) for d in served]}",
        cure="count every decision, the fallback's included: Served(logs, decisions)",
    )
    if not served:
        return Credit(0.0, 0.0)
    parts = [_part(promise, deployment, ceiling, logging_policy, largest) for deployment in served]
    rows = sum(part.rows for part in parts)
    counted = sum(part.counted for part in parts)
    to_come = decisions * rows / sum(len(d.logs) + d.unread for d in served)  # in the segment
    floor = threshold(promise, ceiling)
    charged = sum(part.charged for part in parts)
    if promise.floor.ratio is None:
        realised = sum(float((part.terms - floor).sum()) for part in parts)
        unread = [part for part in parts if part.unread]
        fewest = sum(_fewest(part.terms - floor, part) for part in unread)
        value = (realised + charged + fewest) / to_come
        return Credit(value, 0.0, decisions, fewest if unread else None)
    lower = min(part.lower for part in parts)
    stake = Stake() if stake is None else stake
    alone = len(served) == 1 and served[0].fixed_length and served[0].logs.unit is None
    if ceiling is not None and stake.binary and alone:
        hits = parts[0].terms >= parts[0].r_max
        successes = round(float(hits.sum()) * parts[0].stands_for)
        mean = parts[0].r_max * clopper_pearson(successes, round(counted), delta)
    else:
        mean = _constant_bet(parts, lower, stake.scale, delta)
    mean = max(mean, sum(part.counted * part.worst for part in parts) / counted + floor)
    return Credit((counted * (mean - floor) + charged) / to_come, delta, decisions)


@dataclass(frozen=True, eq=False)
class _ServedTerms:
    """What one deployment brings to a promise's account.

    Args:
        terms: (n,) of the rows that may be read.
        stands_for: how many rows each of them stands for, with those that may not be read.
        unread: of the latter, those that the promise is about, as far as the others tell.
        charged: for decisions without a row; all of them count, whatever the segment.
        worst: the least that a decision of it is worth on average, less the threshold.
        lower: the declared lower limit of the terms.
        r_max: the largest reward.
        erased: rows that were erased, perhaps for their rewards: each counts at `lower`.
    """

    terms: FloatArray
    stands_for: float
    unread: float
    charged: float
    worst: float
    lower: float
    r_max: float
    erased: int = 0

    @property
    def rows(self) -> float:
        """Rows that the promise is about."""
        return len(self.terms) * self.stands_for

    @property
    def counted(self) -> float:
        """The same with those that were erased."""
        return self.rows + self.erased


def _part(
    promise: Promise,
    deployment: Served,
    ceiling: Ceiling | None,
    logging_policy: Policy | None,
    largest: float,
) -> _ServedTerms:
    rows, mask = promise.rows(deployment.logs)
    terms = np.asarray(rows.reward, dtype=np.float64)
    lower, worst = 0.0, -threshold(promise, ceiling)
    if is_paired(promise, ceiling) and not deployment.paired:  # V(pi0) <= r_max, and no more
        worst = -float(promise.floor.ratio or 0.0) * rows.r_max
        lower, terms = worst, terms + worst
    elif is_paired(promise, ceiling):
        rho = float(promise.floor.ratio or 0.0)
        require(
            logging_policy is not None,
            "a paired margin needs pi0",
            found="None",
            cure="give logging_policy, or a ceiling on V(pi0)",
        )
        paired = importance_weights(logging_policy, deployment.logs)[mask]  # type: ignore[arg-type]
        require(
            float(paired.max()) <= largest * (1 + SINGLE),
            "pi0 / p must stay below its declared largest value",
            found=f"{float(paired.max()):g}, declared {largest:g}",
            cure="keep a share of pi0 in every policy that is deployed, and declare 1 / share",
        )
        terms = terms * (1 - rho * paired)
        lower = -(max(rho * largest * (1 + SINGLE) - 1, 0.0) + ROUNDING) * rows.r_max
        worst = -max(rho - deployment.pi0_kept, 0.0) * rows.r_max  # V(pi) >= pi0_kept V(pi0)
    stands_for = 1 + deployment.unread / len(deployment.logs)
    unread = len(terms) * (stands_for - 1)
    ratio, by_pi0 = promise.floor.ratio, deployment.by_pi0
    own = worst if ratio is None else min(1 - ratio, 0.0) * rows.r_max  # V(pi0) - rho V(pi0)
    missing, erased = deployment.unobserved - by_pi0, 0
    if ratio is not None:  # their lowest belongs into the limit; a sum that is exact needs none
        erased = min(sum(each.values for each in deployment.logs.erased), missing)
    charged = (missing - erased) * worst + by_pi0 * max(own, worst)
    return _ServedTerms(terms, stands_for, unread, charged, worst, lower, rows.r_max, erased)


def _fewest(above: FloatArray, part: _ServedTerms) -> float:
    """What the unread rows must earn above the floor: what the others promise, less some errors."""
    n = len(above)
    spread = float(above.var()) + part.r_max**2 / n
    error = math.sqrt(part.unread * spread * part.stands_for)
    return part.unread * float(above.mean()) - ALLOWED_ERRORS * error


def _constant_bet(
    parts: Sequence[_ServedTerms], lower: float, scale: float | None, delta: float
) -> float:
    """A lower bound on the mean over all rows: `Smoothing`, from sums."""
    bound = Smoothing(scale=scale, unit_scale=None if scale else max(p.r_max for p in parts))
    scales = bound.scales(ConservativeTerms(parts[0].terms, lower, proof="on-policy rewards"))
    sums: FloatArray = np.sum([part.stands_for * log_sums(part.terms, scales) for part in parts], 0)
    erased = [part.erased * log_sums(np.array([part.lower]), scales) for part in parts]
    rows = max(round(sum(part.counted for part in parts)), 1)
    return smoothing_from_sums(sums + np.sum(erased, 0), rows, scales, delta, lower)


def clopper_pearson(successes: int, n: int, delta: float) -> float:
    """The exact lower limit of a probability (Clopper and Pearson, 1934).

    The p at which so many successes or more have probability delta; 0 without any.

    Args:
        successes: of n independent trials.
        n: fixed beforehand.
        delta: the error budget, in (0, 1).
    """
    require(
        0 <= successes <= n and n >= 1,
        "successes are at most as many as trials",
        found=f"{successes} of {n}",
    )
    if successes == 0:
        return 0.0
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        rare = incomplete_beta(middle, successes, n - successes + 1) < delta
        low, high = (middle, high) if rare else (low, middle)
    return low


def incomplete_beta(x: float, a: float, b: float) -> float:
    """I_x(a, b), regularised: P(X >= a) of a binomial X of a + b - 1 trials at x.

    By its continued fraction (Lentz), from the side on which that converges fast.
    """
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - incomplete_beta(1 - x, b, a)
    front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front += a * math.log(x) + b * math.log1p(-x) - math.log(a)
    fraction, c, d = 1.0, 1.0, 0.0
    for step in range(200_000):
        m = step // 2
        if step == 0:
            numerator = 1.0
        elif step % 2 == 0:
            numerator = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        else:
            numerator = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        d = 1 / ((1 + numerator * d) or 1e-300)
        c = (1 + numerator / c) or 1e-300
        fraction *= c * d
        if step and abs(1 - c * d) < 1e-14:
            break
    return min(max(math.exp(front) * (fraction - 1), 0.0), 1.0)
