"""Smoothing, and betting with a declared horizon, may be read at any time."""

from __future__ import annotations

from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest

from depsue.bounds import Betting, Smoothing
from depsue.data.terms import ConservativeTerms, WeightedTerms
from depsue.protocols import Bound, BoundValue
from depsue.testing.bounds import NEAR, binomial_tail

LOOKS = (50, 100, 200, 400, 800, 1_600)
RUNS = 300
DELTA = 0.3


def ever_exceeds(bound: Bound) -> int:
    """Runs in which the bound exceeds the value at one of the looks or more."""
    world = replace(NEAR, n=LOOKS[-1])
    exceeds = 0
    for run in range(RUNS):
        terms = world.draw(np.random.default_rng([12, run]))
        assert isinstance(terms, WeightedTerms)
        first = [WeightedTerms.of(terms.weights[:n], terms.rewards[:n], r_max=1.0) for n in LOOKS]
        exceeds += any(bound.lower(some, DELTA).value > world.value for some in first)
    return exceeds


@pytest.mark.parametrize(
    "bound", [Smoothing(), Smoothing(scale=8.0), Betting(horizon=400), Betting(bets=(0.2,))]
)
def test_looking_often_keeps_the_level(bound: Bound) -> None:
    assert binomial_tail(ever_exceeds(bound), RUNS, DELTA) > 1e-4


class OneLook:
    """The normal approximation: right at each look, and wrong over all of them."""

    def lower(self, terms: ConservativeTerms, delta: float) -> BoundValue:
        mean, n = terms.mean(), len(terms.values)
        width = NormalDist().inv_cdf(1 - delta) * float(terms.values.std()) / n**0.5
        return BoundValue(mean - width, mean, n, delta)


def test_a_bound_for_one_look_would_fail() -> None:
    assert binomial_tail(ever_exceeds(OneLook()), RUNS, DELTA) < 1e-4
