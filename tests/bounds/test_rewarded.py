"""Which rows tune, and sums over the grid of taus."""

from __future__ import annotations

import numpy as np
import pytest

from depsue.bounds import Rewarded, rewarded_rows, tuning_rows
from depsue.bounds.hcope import TAUS
from depsue.bounds.rewarded import tuning_and_rest
from depsue.data.terms import WeightedTerms

FIRST_TEN = [15, 25, 50, 73, 98, 118, 132, 147, 162, 188]


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


def test_rewarded_rows_split_the_rewarded() -> None:
    rewards = np.random.default_rng(0).random(1_000) * (np.arange(1_000) % 3 == 0)
    first, second = rewarded_rows(rewards)
    tuning = set(tuning_rows(1_000).tolist())
    wanted = np.flatnonzero(rewards).tolist()
    assert first.tolist() == [row for row in wanted if row in tuning]
    assert second.tolist() == [row for row in wanted if row not in tuning]


@pytest.mark.parametrize("units", [False, True])
def test_sums_over_the_grid_are_sums_at_each_tau(units: bool) -> None:
    rng = np.random.default_rng(1)
    weights = np.r_[np.exp(3 * rng.standard_normal(500)), TAUS]  # ties with the grid too
    sample = Rewarded(
        weights, rng.random(len(weights)), 1_000, np.arange(len(weights)) // 4 if units else None
    )
    total, squares = sample.sums(TAUS)
    for place, tau in enumerate(TAUS.tolist()):
        z = np.minimum(weights, tau) * sample.rewards
        if units:
            z = np.array([z[i : i + 4].sum() for i in range(0, len(z), 4)])
        assert total[place] == pytest.approx(z.sum())
        assert squares[place] == pytest.approx((z**2).sum())


def test_parts_with_units_keep_units_whole() -> None:
    rng = np.random.default_rng(2)
    unit = np.repeat(np.arange(100), 5)
    terms = WeightedTerms.of(rng.random(500), rng.random(500), r_max=1.0, unit=unit)
    tuning, rest = tuning_and_rest(terms, 100)
    assert (tuning.n, rest.n) == (5, 95)
    assert tuning.unit is not None and rest.unit is not None
    assert set(tuning.unit.tolist()) == set(tuning_rows(100).tolist())
    assert not set(tuning.unit.tolist()) & set(rest.unit.tolist())
    means = np.r_[tuning.clipped(9.0), rest.clipped(9.0)]
    assert sorted(means) == pytest.approx(sorted(terms.per_unit(terms.values)))
