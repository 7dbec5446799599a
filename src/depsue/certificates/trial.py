"""The promises, tested on given rows for one policy after another."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace

import numpy as np

from depsue.certificates.certificate import Verdict
from depsue.certificates.rules import Credit, Rules
from depsue.certificates.terms import Zero, bound_for, largest_term, safety_terms
from depsue.data.checks import FloatArray, Mask
from depsue.data.logs import LoggedData
from depsue.data.terms import ConservativeTerms
from depsue.estimators.weights import importance_weights
from depsue.promises import Promise
from depsue.protocols import BoundValue, Policy


@dataclass(frozen=True, eq=False)
class Evidence:
    """What the rows say of some policies, or of mixtures of them.

    Args:
        weights: (parts, n) pi / p, or (n,) of one policy.
        control: the control variate of each, where there is one.
    """

    weights: FloatArray
    control: FloatArray | None = None

    def mixed(self, shares: FloatArray) -> Evidence:
        """Of the mixture with these shares of the parts."""
        control = None if self.control is None else shares @ self.control
        return Evidence(shares @ self.weights, control)


class PromiseTest:
    """The promises on given rows.

    Args:
        rows: the n rows.
        rules: the rules.
        delta: the level of the whole verdict.
        logging_policy: pi0, where another policy logged the rows.
        promises: those that the rows are about, where they are a part of the rows; None for all.
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
        self._delta = rules.left(delta) / len(rules.promises)
        about = rules.promises if promises is None else promises
        self._of = [(promise, *promise.rows(rows)) for promise in about]
        self._logging_policy = logging_policy
        self._pi0: Evidence | None = None

    def evidence(self, parts: Sequence[Policy | None]) -> Evidence:
        """What the rows say of each part; None stands for the policy that logged them.

        The first call looks at pi0 too, where terms are paired with it: one pass over the rows.
        """
        asked, clips = list(parts), [self._rules.clip] * len(parts)
        first = self._pi0 is None and any(paired(self._rules, one) for one in self._rules.promises)
        if first:
            asked, clips = [self._logging_policy, *asked], [self._rules.largest, *clips]
        weights = np.stack([self._weights(part) for part in asked])
        control = self._rules.control
        taken = None
        if control is not None:
            known = [control.base if part is None else part for part in asked]
            taken = control.of(known, self._rows, clips)
        if first:
            self._pi0 = Evidence(weights[0], None if taken is None else taken[0])
            weights, taken = weights[1:], None if taken is None else taken[1:]
        return Evidence(weights, taken)

    def __call__(self, found: Evidence) -> tuple[Verdict, ...]:
        """A verdict for each promise."""
        return tuple(self._verdict(place, found) for place in range(len(self._of)))

    def under(self, rules: Rules) -> PromiseTest:
        """The same rows and promises by other rules, for evidence that was found already."""
        other = copy(self)
        other._rules = rules
        return other

    def best_coefficient(self, place: int, found: Evidence) -> float:
        """Which of the control variate makes the terms of one promise vary least."""
        name = self._of[place][0].name
        control = self._rules.control
        if control is None:
            return 0.0
        whole = self.under(replace(self._rules, control=replace(control, coefficients={name: 1.0})))
        without = self.under(replace(self._rules, control=None))
        plain, less = without.terms(place, found)[0], whole.terms(place, found)[0]
        values = plain.per_unit(plain.values)
        zero = values - less.per_unit(less.values)
        variance = float(zero.var())
        if variance <= 0:
            return 0.0
        return min(max(float(((values - values.mean()) * zero).mean()) / variance, 0.0), 1.0)

    def rows(self, place: int) -> LoggedData:
        """The rows of one promise."""
        return self._of[place][1]

    def terms(self, place: int, found: Evidence) -> tuple[ConservativeTerms, float]:
        """The terms of one promise, and what none of them can exceed."""
        promise, rows, mask = self._of[place]
        pi0 = self._pi0 if paired(self._rules, promise) else None
        zero = self._zero(promise, mask, found, pi0)
        terms = safety_terms(
            promise,
            rows,
            found.weights[mask],
            clip=self._rules.clip,
            paired=None if pi0 is None else pi0.weights[mask],
            largest=self._rules.largest,
            zero=zero,
        )
        return terms, largest_term(self._rules.clip, rows.r_max, zero)

    def _weights(self, part: Policy | None) -> FloatArray:
        if part is None:
            return np.ones(len(self._rows))
        if self._rules.marginal is not None:
            return self._rules.marginal.weights(part, self._rows)
        return importance_weights(part, self._rows)

    def _zero(
        self, promise: Promise, mask: Mask, found: Evidence, pi0: Evidence | None
    ) -> Zero | None:
        """coefficient (g - rho g0): g is in [-most, clip most], g0 in [-most, largest most]."""
        control, rules = self._rules.control, self._rules
        if control is None or found.control is None:
            return None
        coefficient = control.coefficients.get(promise.name, 0.0)
        if not coefficient:
            return None
        values, rho, q = found.control[mask], 0.0, coefficient * control.most
        if pi0 is not None and pi0.control is not None and promise.floor.ratio is not None:
            rho = promise.floor.ratio
            values = values - rho * pi0.control[mask]
        lower, upper = -q * (1 + rho * rules.largest), q * (rules.clip + rho)
        return Zero(coefficient * values, lower, upper)

    def _verdict(self, place: int, found: Evidence) -> Verdict:
        terms, upper = self.terms(place, found)
        lower = bound_for(self._rules.bound, upper=upper).lower(terms, self._delta)
        return verdict_of(self._of[place][0], self._rules, lower, terms.proof)


def paired(rules: Rules, promise: Promise) -> bool:
    """Whether the promise is tested on terms that are paired with pi0's."""
    return promise.floor.ratio is not None and promise.name not in rules.ceilings


def verdict_of(promise: Promise, rules: Rules, lower: BoundValue, proof: str) -> Verdict:
    """The verdict on one promise, given the bound on its terms."""
    top = rules.ceilings.get(promise.name)
    credit = rules.credits.get(promise.name, Credit(0.0, 0.0)).value
    floor = 0.0
    if not paired(rules, promise):
        floor = promise.floor.of(0.0 if top is None else top.value)
    return Verdict(
        promise=promise,
        delta=lower.delta,
        n=lower.n,
        mean=lower.mean,
        bound=lower.value,
        need=floor - credit,
        credit=credit,
        ceiling=None if top is None else top.value,
        constants=dict(lower.constants),
        proof=proof,
    )
