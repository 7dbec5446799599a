from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from depsue.data import ConservativeTerms, Terms, WeightedTerms
from depsue.errors import ConfigError, DataError, DepsueError


def test_the_mean_is_over_rows_or_over_units() -> None:
    values = [1.0, 2.0, 3.0, 10.0]
    assert Terms(np.array(values), 0.0).mean() == 4
    assert Terms(np.array(values), 0.0, unit=np.array([0, 0, 0, 1])).mean() == 6
    one_each = Terms(np.array(values), 0.0, unit=np.array([3, 2, 1, 0]))
    assert one_each.mean() == 4
    assert one_each.per_unit(one_each.values).tolist() == values[::-1]


def test_only_some_terms_are_conservative() -> None:
    weighted = WeightedTerms.of(np.ones(2), np.ones(2), r_max=1.0)
    assert isinstance(weighted, ConservativeTerms) and "E[w r]" in weighted.proof
    assert not isinstance(Terms(np.ones(2), 0.0), ConservativeTerms)


def test_weighted_terms_are_weights_times_rewards() -> None:
    unit = np.array([0, 1, 1])
    terms = WeightedTerms.of(np.array([0.5, 2, 8]), np.array([1, 0.5, 1]), r_max=2, unit=unit)
    assert terms.values.tolist() == [0.5, 1, 8]
    assert (terms.lower, terms.r_max) == (0, 2.0)
    assert terms.mean() == (0.5 + 4.5) / 2


def test_clipping_caps_weights_and_keeps_the_rest() -> None:
    unit = np.array([0, 1, 1])
    terms = WeightedTerms.of(np.array([0.5, 2, 8]), np.array([1, 0.5, 1]), r_max=2.0, unit=unit)
    clipped = terms.clipped(1.0)
    assert clipped.values.tolist() == [0.5, 0.5, 1] and clipped.weights.tolist() == [0.5, 1, 1]
    assert clipped.unit is terms.unit and clipped.proof == terms.proof and clipped.r_max == 2
    assert terms.clipped(math.inf).values.tolist() == terms.values.tolist()


@pytest.mark.parametrize("tau", [0, -1.0, math.nan, "1", None])
def test_tau_is_a_positive_number(tau: Any) -> None:
    terms = WeightedTerms.of(np.ones(2), np.ones(2), r_max=1.0)
    with pytest.raises(ConfigError, match="tau must be a positive number"):
        terms.clipped(tau)


@pytest.mark.parametrize(
    ("values", "lower", "message"),
    [
        ([], 0.0, "at least one number. Found: shape \\(0,\\)"),
        (np.ones((2, 2)), 0.0, "Found: shape \\(2, 2\\)"),
        ([1.0, math.nan], 0.0, "must be finite. Found: row 1: nan"),
        ([1.0, math.inf], 0.0, "must be finite. Found: row 1: inf"),
        ([1.0, -0.5, -2.0], 0.0, "declared lower limit 0. Found: row 1: -0.5"),
        ([1.0], math.inf, "lower limit of the terms must be declared"),
        ([1.0], math.nan, "lower limit of the terms must be declared"),
        ([1.0], None, "lower limit of the terms must be declared"),
        ([1.0], "0", "lower limit of the terms must be declared"),
    ],
)
def test_bad_terms(values: Any, lower: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Terms(np.asarray(values), lower)


@pytest.mark.parametrize(
    "unit",
    [
        np.array([0, 1]),
        np.array([0.0, 1.0, 2.0]),
        np.array([0, -1, 1]),
        np.array(["a", "b", "c"]),
        np.zeros((3, 1), dtype=int),
        np.zeros(3, dtype=bool),
    ],
)
def test_units_are_one_whole_number_per_term(unit: Any) -> None:
    with pytest.raises(ConfigError, match="one whole number >= 0 per term.*Cure: "):
        Terms(np.ones(3), 0.0, unit=unit)


def test_units_have_no_gaps() -> None:
    with pytest.raises(ConfigError, match="without gaps. Found: unit 1 has no row"):
        Terms(np.ones(2), 0.0, unit=np.array([0, 2])).mean()


@pytest.mark.parametrize(
    ("weights", "rewards", "message"),
    [
        ([1.0, -0.5], [1.0, 1.0], "not negative. Found: row 1: -0.5"),
        ([1.0, math.nan], [1.0, 1.0], "not negative. Found: row 1: nan"),
        ([1.0, math.inf], [1.0, 1.0], "not negative. Found: row 1: inf"),
        ([1.0, 1.0], [1.0, 1.5], "r_max = 1. Found: row 1: 1.5"),
        ([1.0, 1.0], [-0.5, 1.0], "r_max = 1. Found: row 0: -0.5"),
        ([1.0, 1.0], [1.0, math.nan], "r_max = 1. Found: row 1: nan"),
        ([1.0], [1.0, 1.0], "one length, at least 1. Found: \\(1,\\) and \\(2,\\)"),
        ([], [], "one length, at least 1"),
    ],
)
def test_bad_weights_and_rewards(weights: Any, rewards: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        WeightedTerms.of(np.asarray(weights), np.asarray(rewards), r_max=1.0)


@pytest.mark.parametrize("wrong", [["1", "1"], [1j, 1j], [None, 1.0], [True, True], [[1], [1, 2]]])
def test_terms_are_numbers(wrong: Any) -> None:
    calls: list[Callable[[], Terms]] = [
        lambda: Terms(wrong, 0.0),
        lambda: WeightedTerms.of(wrong, np.ones(2), r_max=1.0),
        lambda: WeightedTerms.of(np.ones(2), wrong, r_max=1.0),
    ]
    for call in calls:
        with pytest.raises(DataError, match="must hold numbers|must not be missing"):
            call()


@pytest.mark.parametrize("r_max", [0, -1.0, math.nan, math.inf, "1", None])
def test_r_max_is_declared(r_max: Any) -> None:
    with pytest.raises(DepsueError, match="r_max must be declared"):
        WeightedTerms.of(np.ones(2), np.zeros(2), r_max=r_max)


def test_terms_cannot_be_written_through() -> None:
    terms = WeightedTerms.of(np.ones(2), np.ones(2), r_max=1.0, unit=np.array([0, 1]))
    for array in (terms.values, terms.unit, terms.weights, terms.rewards):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 5  # type: ignore[index]


def test_terms_without_a_lower_limit_are_no_conservative_ones() -> None:
    terms = Terms(np.array([-1e9, 1.0]), -math.inf)
    assert terms.mean() == (1 - 1e9) / 2
    with pytest.raises(ConfigError, match="lower limit of conservative terms must be finite"):
        ConservativeTerms(np.array([1.0]), -math.inf)


def test_weighted_terms_are_checked_however_they_are_made() -> None:
    good = WeightedTerms.of(np.array([1.0, 2.0]), np.array([1.0, 0.5]), r_max=1.0)
    with pytest.raises(ConfigError, match="rewards must lie in"):
        replace(good, rewards=np.array([1.0, 3.0]))
    with pytest.raises(ConfigError, match="finite and not negative"):
        replace(good, weights=np.array([1.0, -3.0]))
    with pytest.raises(ConfigError, match="columns of one length"):
        replace(good, weights=np.array([1.0]))
