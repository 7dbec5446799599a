"""What may enter a certificate: terms whose mean cannot exceed what is promised to be large.

With an absolute floor (or a ceiling on V(pi0) that was found elsewhere) the terms are
min(w, clip) r and their bound must reach C. With a relative floor the terms are paired::

    (min(w, clip) - rho w0) r,     w = pi / p,  w0 = pi0 / p,     tested for E >= 0

E[w r] is what pi earns where the logging policy could look; rewards elsewhere count as zero and
clipping only lowers a weight, so E[term] <= V(pi) - rho V(pi0). Near pi0 both parts of a term
are nearly equal, and its variance is a fraction of that of w r. A control variate (`Control`)
may be taken off both.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from depsue.bounds import Normal, Pilot, Smoothing, bound_named
from depsue.data.checks import FloatArray, IntArray
from depsue.data.logs import LoggedData
from depsue.data.partitions import UnitNumbers
from depsue.data.terms import ConservativeTerms, WeightedTerms
from depsue.errors import require
from depsue.promises import Promise

PAIRED = (
    "paired importance weighting: E[(min(w, clip) - rho w0) r] is at most V(pi) - rho V(pi0), for "
    "rewards outside the logging policy's support are >= 0 and pi0 has none there"
)

ROUNDING = 1e-9
"""A control variate may leave its limits by this share of its range."""
SINGLE = 1e-6
"""pi0 / p may exceed its limit by this share of it: policies answer in single precision."""


@dataclass(frozen=True)
class Ceiling:
    """An upper bound on V(pi0), from rows that pi0 logged.

    Args:
        value: the bound.
        delta: what the bound is at.
        n: values it was computed from.
        data: SHA-256 of their logs.
    """

    value: float
    delta: float
    n: int
    data: str

    @classmethod
    def of_all(cls, promise: Promise, logs: LoggedData) -> Ceiling:
        """The largest reward, which no policy exceeds: where nothing else is known of V(pi0)."""
        return cls(promise.r_max if promise.r_max is not None else logs.r_max, 0.0, 0, "")

    @property
    def is_r_max(self) -> bool:
        """Whether it is the largest reward and rests on no rows."""
        return self.n == 0 and self.delta == 0


def ceiling(
    promise: Promise,
    logs: LoggedData,
    delta: float,
    *,
    pilot: LoggedData | None = None,
    erased: int = 0,
) -> Ceiling:
    """An upper bound on V(pi0) for that promise, from logs of pi0: of r_max - r, from below.

    Args:
        promise: whose reward.
        logs: rows that pi0 logged, whose number was fixed before they were seen.
        delta: the error budget of the bound.
        pilot: other rows of pi0, which set the constants of the bound; without them one row in 20
            does, chosen by its place, and rows must come in an order that does not go with rewards.
        erased: values that are missing because they were erased; each counts at r_max.
    """
    gap = _gap(promise, logs)
    r_max = logs.r_max if promise.r_max is None else promise.r_max
    if erased:  # a constant bet is never better off when a value is lower; `Normal` may be
        lower = Smoothing(unit_scale=r_max).lower(_with_lowest(gap, erased), delta)
        return Ceiling(r_max - lower.value, delta, lower.n, logs.hash)
    beside = None
    if pilot is not None and promise.count(pilot):
        other = _gap(promise, pilot)
        beside = Pilot.of(other.per_unit(other.values))
    bound = Normal(upper=r_max, pilot=beside).lower(gap, delta)
    return Ceiling(r_max - bound.value, delta, bound.n, logs.hash)


def _gap(promise: Promise, logs: LoggedData) -> ConservativeTerms:
    """What is missing to r_max, in rows of a promise."""
    rows, _ = promise.rows(logs)
    missing = rows.r_max - rows.reward
    return ConservativeTerms(missing, 0.0, unit=rows.unit, proof="what is missing to r_max")


def is_paired(promise: Promise, ceiling: Ceiling | None) -> bool:
    """Whether terms are paired with pi0's: a relative floor, and no ceiling to take it of."""
    return promise.floor.ratio is not None and ceiling is None


def threshold(promise: Promise, ceiling: Ceiling | None) -> float:
    """What the mean of the terms must reach: C, or 0 where C is in the terms (paired)."""
    if is_paired(promise, ceiling):
        return 0.0
    return promise.floor.of(0.0 if ceiling is None else ceiling.value)


def surplus(promise: Promise, rows: LoggedData) -> float:
    """What rows earned above an absolute floor, together; 0 if none of them is in the segment."""
    if not promise.count(rows):
        return 0.0
    values = promise.rows(rows)[0].reward
    return float(values.sum(dtype=np.float64)) - promise.floor.of(0.0) * len(values)


@dataclass(frozen=True, eq=False)
class ZeroMean:
    """A control variate: (n,) values of mean zero to be taken off the terms, and their limits."""

    values: FloatArray
    lower: float
    upper: float


@dataclass(frozen=True, eq=False)
class LimitedTerms:
    """The terms of a promise, a declared number that none can exceed, and the largest reward."""

    terms: ConservativeTerms
    upper: float
    r_max: float

    def with_lowest(self, count: int) -> LimitedTerms:
        """The same with further values, each of which is as low as a term can be."""
        return replace(self, terms=_with_lowest(self.terms, count)) if count else self


class UnitMeans:
    """The terms of one promise by unit, for units whose rows lie in several partitions.

    One sum for each unit and level is kept; the means then go to the bound as one partition.

    Args:
        levels: how many levels.
        units: how many units there are at most; 0 if rows stand for themselves.
    """

    def __init__(self, levels: int, units: int) -> None:
        self._numbers = UnitNumbers(units)
        self._sums = np.zeros((levels, units))
        self._at: IntArray = np.zeros(0, dtype=np.int32)
        self._like: list[LimitedTerms | None] = [None] * levels

    def begin(self, rows: LoggedData) -> None:
        """The rows of the next partition, which have units."""
        if rows.units is not None and rows.unit is not None:
            self._at = self._numbers.of(rows.units, rows.unit)

    def add(self, level: int, limited: LimitedTerms) -> None:
        """The terms of these rows at one level."""
        unit, values = np.asarray(limited.terms.unit), limited.terms.values
        sums = np.bincount(unit, weights=values, minlength=len(self._at))
        self._sums[level, self._at] += sums
        self._like[level] = limited

    def of(self, level: int) -> LimitedTerms:
        """(v,) the means of units at one level, as terms that declare what those of rows did."""
        limited, rows = cast(LimitedTerms, self._like[level]), self._numbers.rows
        means, like = self._sums[level, : len(rows)] / rows, limited.terms
        unit = np.arange(len(means))
        terms = ConservativeTerms(means, like.lower, unit=unit, proof=like.proof)
        if isinstance(like, WeightedTerms):
            rewards = np.full(len(means), like.r_max)
            terms = WeightedTerms.of(means / like.r_max, rewards, r_max=like.r_max, unit=unit)
        return LimitedTerms(terms, limited.upper, limited.r_max)


def _with_lowest(terms: ConservativeTerms, count: int) -> ConservativeTerms:
    unit = terms.unit
    if unit is not None:
        unit = np.concatenate([unit, int(unit.max()) + 1 + np.arange(count)])
    if isinstance(terms, WeightedTerms):
        none = np.zeros(count)
        weights, rewards = (np.concatenate([v, none]) for v in (terms.weights, terms.rewards))
        return WeightedTerms.of(weights, rewards, r_max=terms.r_max, unit=unit)
    values = np.concatenate([terms.values, np.full(count, terms.lower)])
    return ConservativeTerms(values, terms.lower, unit=unit, proof=terms.proof)


def safety_terms(
    promise: Promise,
    rows: LoggedData,
    weights: FloatArray,
    *,
    clip: float,
    paired: FloatArray | None,
    largest: float,
    zero: ZeroMean | None = None,
    factor: float = 1.0,
) -> ConservativeTerms:
    """The terms of one promise.

    Args:
        promise: what is promised.
        rows: its n rows.
        weights: (n,) pi / p.
        clip: the largest weight that counts.
        paired: (n,) w0 = pi0 / p, for a relative floor; None where C is a number.
        largest: the declared largest w0.
        zero: the control variate, if there is one.
        factor: Gamma >= 1, within which the propensities of rows are right that both weights share.
    """
    clipped = np.minimum(weights, clip)
    if paired is None or promise.floor.ratio is None:
        clipped = clipped / factor
        plain = WeightedTerms.of(clipped, rows.reward, r_max=rows.r_max, unit=rows.unit)
        return plain if zero is None else _controlled(plain, zero)
    rho = promise.floor.ratio
    most = float(paired.max())
    require(
        most <= largest * (1 + SINGLE),
        "pi0 / p must stay below its declared largest value",
        found=f"{most:g}, declared {largest:g}",
        cure="keep a share of pi0 in every policy that is deployed (keep), and declare 1 / share",
    )
    values = (clipped - rho * paired) * rows.reward
    if factor > 1:  # at its worst: p is larger where pi gains, and smaller where it loses
        values = np.where(values > 0, values / factor, values * factor)
    lower = -rho * largest * (1 + SINGLE) * rows.r_max * factor
    terms = ConservativeTerms(values, lower, unit=rows.unit, proof=PAIRED)
    return terms if zero is None else _controlled(terms, zero)


def _controlled(terms: ConservativeTerms, zero: ZeroMean) -> ConservativeTerms:
    slack = ROUNDING * (zero.upper - zero.lower)
    return ConservativeTerms(
        terms.values - zero.values,
        terms.lower - zero.upper - slack,
        unit=terms.unit,
        proof=f"{terms.proof}; less a control variate of mean zero",
    )


def largest_term(clip: float, r_max: float, zero: ZeroMean | None) -> float:
    """What no term above can exceed."""
    if zero is None:
        return clip * r_max
    return clip * r_max - zero.lower + ROUNDING * (zero.upper - zero.lower)


def require_bound(name: str) -> None:
    """Refuse a name that is no bound's."""
    if name != "normal":
        bound_named(name)
