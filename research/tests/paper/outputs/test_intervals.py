"""Intervals over few seeds."""

import numpy as np
import pytest
from scipy import stats

from depsue.testing.binomial import rate_interval
from depsue_research.paper.outputs.intervals import (
    deviation,
    half_width,
    mean,
    t_quantile,
)


@pytest.mark.parametrize("freedom", [1, 2, 4, 9, 10, 11, 15, 29, 100, 1000])
def test_t_quantiles(freedom: int) -> None:
    assert t_quantile(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), abs=5e-4)


def test_half_width_of_five_seeds() -> None:
    values = np.array([0.1, 0.2, 0.3, 0.4, 0.5])
    assert half_width(values) == pytest.approx(2.7764 * np.std(values, ddof=1) / np.sqrt(5))


def test_one_seed_has_no_deviation_and_no_interval() -> None:
    one = np.array([0.3])
    assert mean(one) == 0.3 and deviation(one) is None and half_width(one) is None
    assert mean(np.array([])) is None


@pytest.mark.parametrize(("count", "n"), [(0, 5), (5, 5), (1, 5), (21, 30), (0, 1)])
def test_rate_intervals_are_exact(count: int, n: int) -> None:
    exact = stats.binomtest(count, n).proportion_ci(0.95, method="exact")
    assert rate_interval(count, n) == pytest.approx((exact.low, exact.high), abs=1e-9)
