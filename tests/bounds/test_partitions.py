"""Bounds over partitions, where values are hard; the conformance suite has the ordinary ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from depsue.bounds import Betting, BoundRun, Hcope, Normal, Partition, Pilot, Smoothing
from depsue.data.terms import ConservativeTerms, WeightedTerms
from depsue.errors import ConfigError
from depsue.testing.bounds import in_partitions

HARD: dict[str, tuple[Any, float]] = {
    "one astronomic value": (np.append(np.zeros(500), 1e6), -1.0),
    "nothing": (np.zeros(500), 0.0),
    "at the lower limit": (np.full(500, -1.0), -1.0),
    "all alike": (np.full(500, 3.0), -1.0),
    "few": (np.ones(30), -1.0),
    "skewed": (np.random.default_rng(3).pareto(1.5, 2000), 0.0),
}


@pytest.mark.parametrize("name", HARD)
def test_partitions_do_not_matter_where_it_is_hard(name: str) -> None:
    values, lower = HARD[name]
    for bound in (
        Normal(upper=float(values.max()) + 1),
        Smoothing(unit_scale=1.0),
        Smoothing(scale=3.0),
        Betting(unit_scale=1.0),
        Betting(unit_scale=1.0, horizon=100, bets_for=0.1, cap=0.9),
        Betting(bets=(0.1,)),
        Betting(bets=(1.0, 0.1, 0.001)),
        Normal(upper=float(values.max()) + 1, pilot=Pilot.of(values[::7])),
    ):
        expected = bound.lower(ConservativeTerms(values, lower, proof="test"), 0.05)
        terms = ConservativeTerms(values, lower, proof="test")
        merged = in_partitions(bound, terms, 0.05, 37)
        assert (merged.n, merged.delta) == (expected.n, expected.delta)
        assert merged.value == pytest.approx(expected.value, rel=1e-9, abs=1e-9)
        assert merged.mean == pytest.approx(expected.mean, rel=1e-12)
        assert expected.mean == pytest.approx(float(values.mean()), rel=1e-9)
        assert merged.constants.keys() == expected.constants.keys()
        for name, constant in expected.constants.items():
            if isinstance(constant, float):
                constant = pytest.approx(constant, rel=1e-9, abs=1e-9)
            assert merged.constants[name] == constant


def test_what_partitions_cannot_give_is_refused() -> None:
    terms = ConservativeTerms(np.ones(50), -1.0, proof="test")
    run = BoundRun(Betting(order="shuffled"), terms, 100, 0.05)
    with pytest.raises(ConfigError, match=r"shuffled in one partition.*50 of 100.*into memory"):
        run.see(Partition(terms))
    with pytest.raises(ConfigError, match=r"weights and rewards apart.*ConservativeTerms"):
        BoundRun(Hcope(), terms, 100, 0.05)
    weighted = WeightedTerms.of(np.ones(50), np.ones(50), r_max=1.0)
    with pytest.raises(ConfigError, match=r"hcope needs at least 40 values.*30"):
        BoundRun(Hcope(), weighted, 30, 0.05)


def test_units_that_are_complete_within_partitions() -> None:
    draw = np.random.default_rng(4)
    unit = np.repeat(np.arange(400), 3)
    terms = WeightedTerms.of(draw.exponential(size=1200), draw.random(1200), r_max=1.0, unit=unit)
    halves = [
        replace(
            terms,
            values=terms.values[rows],
            weights=terms.weights[rows],
            rewards=terms.rewards[rows],
            unit=unit[rows] - unit[rows].min(),
        )
        for rows in (slice(600), slice(600, None))
    ]
    for bound in (Hcope(tau=2.0), Hcope(), Smoothing(), Normal(tau=3.0), Betting(bets=(0.1,))):
        run = BoundRun(bound, halves[0], 400, 0.05)
        while not run.done:
            for half in halves:
                run.see(Partition(half, run.seen))
            run.end_pass()
        expected, value = bound.lower(terms, 0.05), run.concluded()
        assert value.n == expected.n
        assert value.value == pytest.approx(expected.value, rel=1e-9)
