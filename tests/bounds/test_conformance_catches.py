"""The conformance suite fails bounds whose promise is false."""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import NormalDist

import pytest

from depsue.bounds import Betting, Hcope, Smoothing
from depsue.data.terms import ConservativeTerms, WeightedTerms
from depsue.protocols import Bound, BoundValue
from depsue.testing.bounds import (
    ALMOST_SURE,
    MANY_ROWS,
    NEAR,
    NOVEL_MASS,
    RARE_LOSSES,
    BoundConformance,
    Hard,
    binomial_tail,
)


@dataclass
class HalfTheBonus:
    """A bound whose distance from the mean is half of what it should be."""

    bound: Bound

    def lower(self, terms: ConservativeTerms, delta: float) -> BoundValue:
        bound = self.bound.lower(terms, delta)
        return replace(bound, value=(bound.value + bound.mean) / 2)


@dataclass
class Normalised:
    """A bound on self-normalised weights, as in SNIPS: takes E[w] = 1 for granted."""

    bound: Bound

    def lower(self, terms: ConservativeTerms, delta: float) -> BoundValue:
        assert isinstance(terms, WeightedTerms)
        weights = terms.weights / terms.weights.mean()
        return self.bound.lower(WeightedTerms.of(weights, terms.rewards, r_max=1.0), delta)


@dataclass
class LimitFromTheSample:
    """A bound that takes the smallest term of the sample for the lower limit."""

    bound: Bound

    def lower(self, terms: ConservativeTerms, delta: float) -> BoundValue:
        return self.bound.lower(replace(terms, lower=float(terms.values.min())), delta)


class Normal:
    """The central limit theorem, which knows no limits at all."""

    def lower(self, terms: ConservativeTerms, delta: float) -> BoundValue:
        mean, n = terms.mean(), len(terms.values)
        width = NormalDist().inv_cdf(1 - delta) * float(terms.values.std()) / n**0.5
        return BoundValue(mean - width, mean, n, delta, {"bound": "normal"})


@pytest.mark.parametrize(
    ("bound", "world", "effort"),
    [
        pytest.param(HalfTheBonus(Hcope()), MANY_ROWS, 1.5, id="half the bonus of hcope"),
        pytest.param(HalfTheBonus(Smoothing()), NEAR, 0.5, id="half the bonus of smoothing"),
        pytest.param(HalfTheBonus(Betting()), NEAR, 0.5, id="half the bonus of betting"),
        pytest.param(Normalised(Hcope()), NOVEL_MASS, 0.1, id="normalised weights in hcope"),
        pytest.param(
            Normalised(Smoothing()), NOVEL_MASS, 0.1, id="normalised weights in smoothing"
        ),
        pytest.param(Normalised(Betting()), NOVEL_MASS, 0.1, id="normalised weights in betting"),
        pytest.param(LimitFromTheSample(Betting()), RARE_LOSSES, 0.5, id="limit from the sample"),
        pytest.param(Normal(), ALMOST_SURE, 0.5, id="normal approximation"),
    ],
)
def test_a_false_promise_fails(bound: Bound, world: Hard, effort: float) -> None:
    suite = BoundConformance()
    suite.bound, suite.effort = bound, effort
    with pytest.raises(AssertionError, match="the bound exceeded the value"):
        suite.covers(world)


def test_binomial_tail_is_exact() -> None:
    assert binomial_tail(0, 10, 0.5) == 1
    assert binomial_tail(9, 10, 0.5) == pytest.approx(11 / 1024)
    assert binomial_tail(1, 3, 0.1) == pytest.approx(1 - 0.9**3)


def test_the_worlds_have_the_values_they_claim() -> None:
    assert NOVEL_MASS.value == pytest.approx(0.5 * 0.5 + 0.3 * 0.6)
    assert RARE_LOSSES.value == pytest.approx(1 - 0.95)
