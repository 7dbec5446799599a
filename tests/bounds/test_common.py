"""Products of many factors, and the search for the last rejected mean."""

from __future__ import annotations

import math

import numpy as np
import pytest

from depsue.bounds._common import last_rejected, log_product


@pytest.mark.parametrize("n", [0, 1, 2, 3, 10, 1_000, 100_003])
def test_log_product_is_the_sum_of_logs(n: int) -> None:
    factors = np.random.default_rng(n).uniform(0.5, 3.0, n)
    expected = math.fsum(math.log(f) for f in factors.tolist())
    assert log_product(factors, 0.5, 3.0) == pytest.approx(expected, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("factor", [1e-300, 1e-20, 0.5, 1.0, 2.0, 1e20, 1e300])
def test_log_product_neither_overflows_nor_underflows(factor: float) -> None:
    found = log_product(np.full(5_000, factor), min(1.0, factor), max(1.0, factor))
    assert found == pytest.approx(5_000 * math.log(factor))


@pytest.mark.parametrize("root", [0.0, 1e-9, 0.3, 0.999999, 1.0])
@pytest.mark.parametrize("bend", [0.2, 1.0, 7.0])
def test_last_rejected_stops_just_below_the_root(root: float, bend: float) -> None:
    calls = []

    def excess(m: float) -> float:
        calls.append(m)
        return math.copysign(abs(root - m) ** bend, root - m)

    found = last_rejected(excess, 0.0, 1.0)
    assert root - 1e-10 <= found <= root
    assert excess(found) >= 0
    assert len(calls) <= 38  # both ends, and one step more than bisection


def test_last_rejected_at_the_ends() -> None:
    assert last_rejected(lambda m: -1.0, 2.0, 5.0) == 2.0
    assert last_rejected(lambda m: 1.0, 2.0, 5.0) == 5.0
    assert last_rejected(lambda m: 1.0, 2.0, 2.0) == 2.0
