"""The promises on given rows: what these say of a policy, the terms of a promise, its verdict."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace

import numpy as np

from depsue.bounds import anticipated
from depsue.certificates.certificate import Verdict
from depsue.certificates.rules import Rules
from depsue.certificates.terms import LimitedTerms, ZeroMean, largest_term, safety_terms
from depsue.data.checks import FloatArray, Mask
from depsue.data.logs import LoggedData
from depsue.errors import require
from depsue.estimators.weights import importance_weights
from depsue.policies.chosen import ChosenPolicy
from depsue.promises import Promise
from depsue.protocols import BoundValue, Policy


class PromiseTest:
    """The promises of the rules, on rows in memory: all rows of a fold, or a partition of them.

    Args:
        rows: the n rows.
        rules: the rules.
        delta: the error budget of the whole verdict.
        logging_policy: pi0, where another policy logged the rows.
        promises: those that the rows are about, where they are a partition; None for all.
    """

    def __init__(
        self,
        rows: LoggedData,
        rules: Rules,
        delta: float,
        logging_policy: Policy | None = None,
        promises: Sequence[Promise] | None = None,
    ) -> None:
        self._rows, self._rules = rows, rules
        self._delta = rules.delta_each(delta)
        about = rules.promises if promises is None else promises
        self._about = [_About(promise, *promise.rows(rows)) for promise in about]
        self._logging_policy = logging_policy
        self._pi0: Evidence | None = None

    def evidence(self, parts: Sequence[Policy]) -> Evidence:
        """What the rows say of each part.

        The first call looks at pi0 too, where terms are paired with it: one pass over the rows.
        """
        asked, clips = list(parts), [self._rules.clip] * len(parts)
        with_pi0 = self._pi0 is None and any(map(self._rules.pairs, self._rules.promises))
        if with_pi0:
            pi0 = self._logging_policy or ChosenPolicy(len(self._rows.catalogue))
            asked, clips = [pi0, *asked], [self._rules.largest, *clips]
        weights = np.stack([self._weights(part) for part in asked])
        control = self._rules.control
        controls = None
        if control is not None:
            if with_pi0 and self._logging_policy is None:
                asked[0] = control.base
            controls = control.of(asked, self._rows, clips)
        if with_pi0:
            self._pi0 = Evidence(weights[0], None if controls is None else controls[0])
            weights, controls = weights[1:], None if controls is None else controls[1:]
        return Evidence(weights, controls)

    def __call__(self, evidence: Evidence) -> tuple[Verdict, ...]:
        """A verdict for each promise, from evidence of one policy."""
        return tuple(self._verdict(place, evidence) for place in range(len(self._about)))

    def under(self, rules: Rules) -> PromiseTest:
        """The same rows and promises by other rules, for evidence that is there already."""
        other = copy(self)
        other._rules = rules
        return other

    def rows(self, place: int) -> LoggedData:
        """The rows of one promise."""
        return self._about[place].rows

    def terms(self, place: int, evidence: Evidence) -> LimitedTerms:
        """The terms of one promise, and what none of them can exceed."""
        about = self._about[place]
        pi0 = self._pi0 if self._rules.pairs(about.promise) else None
        if pi0 is None and self._rules.pairs(about.promise):
            raise RuntimeError("evidence of pi0 comes first: terms are paired with it")
        zero = self._zero(about, evidence, pi0)
        terms = safety_terms(
            about.promise,
            about.rows,
            evidence.weights[about.mask],
            clip=self._rules.clip,
            paired=None if pi0 is None else pi0.weights[about.mask],
            largest=self._rules.largest,
            zero=zero,
            factor=self._later_factor,
        )
        r_max = about.rows.r_max
        limited = LimitedTerms(terms, largest_term(self._rules.clip, r_max, zero), r_max)
        return limited.with_lowest(self._rules.erased)

    def mean(self, place: int, evidence: Evidence) -> float:
        """The mean of the terms of one promise."""
        terms = self.terms(place, evidence).terms
        return float(terms.per_unit(terms.values).mean())

    def widths(self, rules: Rules, evidence: Evidence, times: float, delta: float) -> list[float]:
        """By promise: how far below the mean a bound on `times` as many such values would be."""
        out = []
        for place, about in enumerate(self._about):
            limited = self.terms(place, evidence)
            values = len(limited.terms.per_unit(limited.terms.values))
            bound = rules.bound_on(about.promise, limited)
            value = anticipated(bound, limited.terms, times * values, delta)
            out.append(value.mean - value.value)
        return out

    def best_coefficient(self, place: int, evidence: Evidence) -> float:
        """Which coefficient of the control variate makes the terms of one promise vary least."""
        name = self._about[place].promise.name
        control = self._rules.control
        if control is None:
            return 0.0
        full = self.under(replace(self._rules, control=replace(control, coefficients={name: 1.0})))
        without = self.under(replace(self._rules, control=None))
        plain, less = without.terms(place, evidence).terms, full.terms(place, evidence).terms
        values = plain.per_unit(plain.values)
        zero = values - less.per_unit(less.values)
        variance = float(zero.var())
        if variance <= 0:
            return 0.0
        return min(max(float(((values - values.mean()) * zero).mean()) / variance, 0.0), 1.0)

    def _weights(self, part: Policy) -> FloatArray:
        if isinstance(part, ChosenPolicy):  # a row knows what it counts for pi0
            return part.row_probabilities(self._rows) / self._rows.propensity
        if self._rules.marginal is not None:
            return self._rules.marginal.weights(part, self._rows)
        weights = importance_weights(part, self._rows)
        if self._rules.assumed is not None:
            weights = self._rules.assumed.weights(part, self._rows, weights)
        if self._logging_policy is None and self._rules.factor > 1:  # pi0 drew the rows: w0 is 1
            weights = weights / self._rules.factor
        return weights

    @property
    def _later_factor(self) -> float:
        """Gamma where another policy than pi0 drew the rows: pi / p and pi0 / p share one p."""
        if self._logging_policy is None:
            return 1.0
        require(
            self._rules.factor == 1 or self._rows.by_pi0 is None,
            "a pi0 that is known by what it chose goes with propensities that are right from the "
            "second round on",
            found=f"propensities-within={self._rules.factor:g}",
            cure="assume nothing in later rounds",
        )
        return self._rules.factor

    def _zero(self, about: _About, evidence: Evidence, pi0: Evidence | None) -> ZeroMean | None:
        """coefficient (g - rho g0): g is in [-most, clip most], g0 in [-most, largest most]."""
        control, rules = self._rules.control, self._rules
        if control is None or evidence.control is None:
            return None
        coefficient = control.coefficients.get(about.promise.name, 0.0)
        if not coefficient:
            return None
        values, rho, q = evidence.control[about.mask], 0.0, coefficient * control.most
        ratio = about.promise.floor.ratio
        if pi0 is not None and pi0.control is not None and ratio is not None:
            rho = ratio
            values = values - rho * pi0.control[about.mask]
        lower, upper = -q * (1 + rho * rules.largest), q * (rules.clip + rho)
        return ZeroMean(coefficient * values, lower, upper)

    def _verdict(self, place: int, evidence: Evidence) -> Verdict:
        limited, promise = self.terms(place, evidence), self._about[place].promise
        value = self._rules.bound_on(promise, limited).lower(limited.terms, self._delta)
        return verdict_of(promise, self._rules, value, limited.terms.proof, evidence.share)


@dataclass(frozen=True, eq=False)
class Evidence:
    """What the rows say of some policies, or of mixtures of them.

    Args:
        weights: (parts, n) pi / p, or (n,) of one policy.
        control: the control variate of each, where there is one.
        share: of the last part, in a mixture.
    """

    weights: FloatArray
    control: FloatArray | None = None
    share: float = 0.0

    def mixed(self, shares: FloatArray) -> Evidence:
        """Of the mixture with these shares of the parts."""
        control = None if self.control is None else shares @ self.control
        return Evidence(shares @ self.weights, control, float(shares[-1]))


@dataclass(frozen=True, eq=False)
class _About:
    """A promise, its rows with their reward, and (n,) which of all rows they are."""

    promise: Promise
    rows: LoggedData
    mask: Mask


def verdict_of(
    promise: Promise, rules: Rules, bound: BoundValue, proof: str, share: float
) -> Verdict:
    """The verdict on one promise, given the bound on its terms, and the last part's share."""
    ceiling, credit = rules.ceilings.get(promise.name), rules.credits.get(promise.name)
    return Verdict(
        promise=promise,
        delta=bound.delta,
        n=bound.n,
        mean=bound.mean,
        bound=bound.value,
        need=rules.need_at(promise, share),
        credit=rules.credit(promise),
        ceiling=None if ceiling is None else ceiling.value,
        constants=dict(bound.constants),
        proof=proof,
        fewest=None if credit is None else credit.fewest,
        surplus=None if credit is None else credit.surplus,
        worth=None if rules.assumed is None else rules.assumed.worth.get(promise.name),
    )
