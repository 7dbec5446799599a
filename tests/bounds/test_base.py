"""What bounds share: tuning rows, moments, products of many factors, the search for a mean."""

from __future__ import annotations

import math

import numpy as np
import pytest

from depsue.bounds import Hcope, Smoothing
from depsue.bounds.base import (
    BoundRun,
    MergedMoments,
    Partition,
    last_rejected,
    log_product,
    tuning_rows,
)
from depsue.data.terms import WeightedTerms
from depsue.errors import ConfigError

FIRST_TEN = [15, 25, 50, 73, 98, 118, 132, 147, 162, 188]


@pytest.mark.parametrize("n", [0, 1, 2, 3, 10, 1_000, 100_003])
def test_log_product_is_the_sum_of_logs(n: int) -> None:
    factors = np.random.default_rng(n).uniform(0.5, 3.0, n)
    expected = math.fsum(math.log(f) for f in factors.tolist())
    assert log_product(factors, 0.5, 3.0) == pytest.approx(expected, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("factor", [1e-300, 1e-20, 0.5, 1.0, 2.0, 1e20, 1e300])
def test_log_product_neither_overflows_nor_underflows(factor: float) -> None:
    log = log_product(np.full(5_000, factor), min(1.0, factor), max(1.0, factor))
    assert log == pytest.approx(5_000 * math.log(factor))


@pytest.mark.parametrize("root", [0.0, 1e-9, 0.3, 0.999999, 1.0])
@pytest.mark.parametrize("bend", [0.2, 1.0, 7.0])
def test_last_rejected_stops_just_below_the_root(root: float, bend: float) -> None:
    calls = []

    def excess(m: float) -> float:
        calls.append(m)
        return math.copysign(abs(root - m) ** bend, root - m)

    rejected = last_rejected(excess, 0.0, 1.0)
    assert root - 1e-10 <= rejected <= root
    assert excess(rejected) >= 0
    assert len(calls) <= 38  # both ends, and one step more than bisection


def test_last_rejected_at_the_ends() -> None:
    assert last_rejected(lambda m: -1.0, 2.0, 5.0) == 2.0
    assert last_rejected(lambda m: 1.0, 2.0, 5.0) == 5.0
    assert last_rejected(lambda m: 1.0, 2.0, 2.0) == 2.0


@pytest.mark.parametrize("n", [40, 59, 60, 1_000, 250_000])
def test_tuning_rows_are_one_of_every_twenty(n: int) -> None:
    rows = tuning_rows(n)
    assert len(rows) == n // 20
    assert np.array_equal(rows // 20, np.arange(n // 20))
    assert rows.max() < n


def test_tuning_rows_look_random() -> None:
    within = tuning_rows(200_000) % 20
    counts = np.bincount(within, minlength=20)
    assert counts.min() > 400 and counts.max() < 600  # 500 expected, sd 22
    assert abs(np.corrcoef(within[1:], within[:-1])[0, 1]) < 0.03


def test_tuning_rows_never_change() -> None:
    """A certificate must be checkable later: these rows are part of the promise."""
    assert tuning_rows(200).tolist() == FIRST_TEN
    assert tuning_rows(240)[:10].tolist() == FIRST_TEN


@pytest.mark.parametrize("cuts", [[], [1], [40, 41], [13, 500, 990]])
def test_moments_of_partitions_merge(cuts: list[int]) -> None:
    values = 1e6 + np.random.default_rng(3).standard_normal((2, 1_000))
    parts = [MergedMoments.of(part) for part in np.split(values, cuts, axis=1)]
    merged = sum(parts[1:], MergedMoments.of(values[:, :0]) + parts[0])
    assert merged.n == 1_000
    np.testing.assert_allclose(merged.mean, values.mean(axis=1), rtol=1e-14)
    np.testing.assert_allclose(merged.variance, values.var(axis=1), rtol=1e-9)


def test_a_partition_knows_its_tuning_rows() -> None:
    ones = np.ones(100)
    terms = WeightedTerms.of(ones, ones, r_max=1.0)
    places = [start + Partition(terms, start).tuning(300) for start in (0, 100, 200)]
    assert np.concatenate(places).tolist() == tuning_rows(300).tolist()


def test_a_pass_must_see_every_value() -> None:
    ones = np.ones(50)
    terms = WeightedTerms.of(ones, ones, r_max=1.0)
    run = BoundRun(Smoothing(), terms, 100, 0.05)
    run.see(Partition(terms))
    assert run.seen == 50
    with pytest.raises(ConfigError, match="a pass sees every value once.*50 of 100"):
        run.end_pass()
    run.see(Partition(terms, run.seen))
    run.end_pass()
    assert run.concluded().n == 100
    with pytest.raises(ConfigError, match="known after its last pass"):
        BoundRun(Hcope(), terms, 100, 0.05).concluded()


@pytest.mark.parametrize("bend", [0.01, 0.1, 0.5, 2.0])
@pytest.mark.parametrize("root", [1e-7, 0.01, 0.3, 0.77])
def test_the_search_for_the_last_rejected_is_short(root: float, bend: float) -> None:
    """Bisection needs 34 steps; interpolation that rounds onto an end must not fall back to it."""
    asked: list[float] = []

    def excess(m: float) -> float:
        asked.append(m)
        return math.log1p(bend * (1 - m)) - math.log1p(bend * (1 - root))

    last_rejected(excess, 0.0, 1.0)
    assert len(asked) <= 14


def test_moments_of_nothing_add_nothing() -> None:
    nothing = MergedMoments.of(np.zeros(0))
    some = MergedMoments.of(np.array([1.0, 2.0, 6.0]))
    assert (nothing + some).mean == (some + nothing).mean == 3.0
    assert (nothing + nothing).n == 0
