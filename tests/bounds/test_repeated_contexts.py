"""Repeated contexts: which population the bound speaks of, with and without units.

Rows without units: the contexts that were logged, held fixed. Rows with units: the population
that units (users) were drawn from.
"""

from __future__ import annotations

import numpy as np
import pytest

from depsue.bounds import Betting, Hcope, Smoothing
from depsue.data.terms import WeightedTerms
from depsue.protocols import Bound
from depsue.testing.bounds import binomial_tail

LEVELS = (0.05, 0.005)
RUNS = 300
BOUNDS = [
    Hcope(),
    Hcope(tau=2.0),
    Smoothing(),
    Smoothing(scale=8.0),
    Betting(order="shuffled"),
    Betting(bets=(0.08,)),
]

# 40 contexts, three actions: what pi0 and pi do, and rewards, differ widely over contexts
_rng = np.random.default_rng(20)
LOGGING = _rng.dirichlet([2.0, 2.0, 2.0], 40) * 0.9 + 0.1 / 3
POLICY = 0.5 * LOGGING + 0.5 * _rng.dirichlet([2.0, 2.0, 2.0], 40)
REWARD = _rng.beta(0.4, 0.4, (40, 1)) * _rng.uniform(0.6, 1.0, (40, 3))
VALUE = (POLICY * REWARD).sum(axis=1)  # (40,) value of each context


def logged(contexts: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Weights and rewards of rows with these contexts."""
    steps = np.cumsum(LOGGING, axis=1)[contexts]
    action = (rng.random((len(contexts), 1)) > steps[:, :2]).sum(axis=1)
    weights = (POLICY / LOGGING)[contexts, action]
    return weights, (rng.random(len(contexts)) < REWARD[contexts, action]) * 1.0


def too_often(misses: dict[float, int]) -> bool:
    return any(binomial_tail(count, RUNS, delta) < 1e-4 for delta, count in misses.items())


def misses_with_fixed_contexts(bound: Bound, contexts: np.ndarray) -> dict[float, int]:
    """How often the bound exceeds the value averaged over the logged contexts, held fixed."""
    value = float(VALUE[contexts].mean())
    misses = dict.fromkeys(LEVELS, 0)
    for run in range(RUNS):
        weights, rewards = logged(contexts, np.random.default_rng([21, run]))
        terms = WeightedTerms.of(weights, rewards, r_max=1.0)
        for delta in LEVELS:
            misses[delta] += bound.lower(terms, delta).value > value
    return misses


@pytest.mark.parametrize("bound", BOUNDS, ids=repr)
@pytest.mark.parametrize("best_first", [False, True])
def test_rows_speak_of_the_logged_contexts(bound: Bound, best_first: bool) -> None:
    contexts = np.random.default_rng(22).integers(0, 40, 2_000)
    if best_first:
        contexts = contexts[np.argsort(-VALUE[contexts])]
    assert not too_often(misses_with_fixed_contexts(bound, contexts))


def test_betting_needs_an_order_that_does_not_go_with_the_value() -> None:
    """Rows sorted by value break bets that learn: hence constant ones, as above."""
    contexts = np.repeat(np.argsort(-VALUE), 50)
    assert too_often(misses_with_fixed_contexts(Betting(), contexts))


def misses_over_users(bound: Bound, units: bool) -> dict[float, int]:
    """How often the bound exceeds the population's value: 100 users drawn, 40 rows each."""
    misses = dict.fromkeys(LEVELS, 0)
    unit = np.repeat(np.arange(100), 40)
    for run in range(RUNS):
        rng = np.random.default_rng([23, run])
        users = rng.integers(0, 40, 100)
        weights, rewards = logged(users[unit], rng)
        terms = WeightedTerms.of(weights, rewards, r_max=1.0, unit=unit if units else None)
        for delta in LEVELS:
            misses[delta] += bound.lower(terms, delta).value > VALUE.mean()
    return misses


@pytest.mark.parametrize("bound", [*BOUNDS, Betting()], ids=repr)
def test_units_speak_of_the_population_of_users(bound: Bound) -> None:
    assert not too_often(misses_over_users(bound, units=True))


@pytest.mark.parametrize("bound", [Hcope(), Smoothing(), Betting()], ids=repr)
def test_rows_that_ignore_units_do_not_cover_the_population(bound: Bound) -> None:
    assert too_often(misses_over_users(bound, units=False))


@pytest.mark.parametrize("bound", [*BOUNDS, Betting()], ids=repr)
def test_units_that_come_best_first_are_covered(bound: Bound) -> None:
    """Active users are seen first in a log and like more: units come in order of their value."""
    misses = dict.fromkeys(LEVELS, 0)
    unit = np.repeat(np.arange(100), 20)
    for run in range(RUNS):
        rng = np.random.default_rng([24, run])
        users = rng.integers(0, 40, 100)
        users = users[np.argsort(-VALUE[users])]
        weights, rewards = logged(users[unit], rng)
        terms = WeightedTerms.of(weights, rewards, r_max=1.0, unit=unit)
        for delta in LEVELS:
            misses[delta] += bound.lower(terms, delta).value > VALUE.mean()
    assert not too_often(misses)
