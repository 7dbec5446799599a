"""From results to arrays by method, level and seed."""

import numpy as np
import pytest
from research.tests.paper.outputs.made_up import made_up_cell, made_up_runs, movielens, wiki10
from scipy import stats

from depsue.testing.bounds import rate_interval
from depsue_research.paper.cells import Cell
from depsue_research.paper.outputs.reading import (
    Runs,
    deviation,
    half_width,
    mean,
    novelty,
    policies_of,
    relative_values,
    shares,
    shown_levels,
    t_quantile,
    value,
)


def test_last_average_and_any_deployment() -> None:
    recipe = movielens()
    result = made_up_cell(
        recipe, Cell(0, 8.0, "depsue_2"), values=[0.9, 1.1], novelties=[0.1, 0.3], train=[1, 2]
    )
    assert relative_values(result) == pytest.approx([0.9, 1.1])
    assert value("last")(result) == pytest.approx(1.1)
    assert value("average")(result) == pytest.approx(1.0)
    assert value("any")(result) == pytest.approx(0.9)
    assert value("last", "train")(result) == pytest.approx(2.0)
    assert novelty("average")(result) == pytest.approx(0.2)
    assert policies_of("depsue_2") == ("last", "average") and policies_of("opg_min") == ("last",)


def test_violations_are_strictly_below_the_floor() -> None:
    recipe = movielens(levels=[8], methods=["opg_cql"], floor=0.75)
    by_seed = {0: 0.5, 1: 0.75, 2: 0.7499}
    runs = made_up_runs(recipe, lambda c: {"values": by_seed[c.seed]}, seeds=range(3))
    assert runs.violations("opg_cql", 8) == (2, 3)


def test_figures_of_pi0_come_from_whatever_method_is_there() -> None:
    recipe = movielens(levels=[8], methods=["opg_cql", "depsue_1"])
    runs = made_up_runs(
        recipe,
        lambda c: {"pi0": 0.2 + c.seed / 10, "best": 0.4},
        seeds=range(2),
        without=lambda c: c == Cell(0, 8.0, "opg_cql"),
    )
    assert runs.logging(8, "value_test") == pytest.approx([0.2, 0.3])
    assert runs.optimality(8) == pytest.approx([0.5, 0.75])


def test_missing_cells_and_seeds_are_said() -> None:
    recipe = movielens(levels=[0, 8], methods=["opg_cql", "depsue_1"])
    assert made_up_runs(recipe, seeds=[3]).seeds_in_words() == "1 seed"
    runs = made_up_runs(recipe, seeds=[0, 1], without=lambda c: c == Cell(1, 8.0, "depsue_1"))
    assert runs.missing() == 1
    assert runs.seeds_in_words() == "2 seeds (1 cells not finished)"
    assert len(runs.numbers("depsue_1", 8, value())) == 1
    assert len(runs.numbers("depsue_1", 16, value())) == 0


def test_cells_of_other_methods_and_levels_are_not_looked_at() -> None:
    whole = made_up_runs(movielens())
    runs = Runs(movielens(levels=[8], methods=["opg_cql"]), whole.results)
    assert runs.methods == ("opg_cql",) and runs.missing() == 0
    assert len(runs.over("opg_cql")) == 5


def test_three_levels_are_shown() -> None:
    assert shown_levels(made_up_runs(movielens())) == (-16, 0, 16)
    assert shown_levels(made_up_runs(movielens(levels=[-1, 0, 1, 2, 4]))) == (-1, 1, 4)
    assert shown_levels(made_up_runs(movielens(levels=[8]))) == (8,)
    assert shown_levels(made_up_runs(wiki10())) == (0.2, 0.5, 0.8)


def test_kept_histograms_are_whole_again() -> None:
    whole = shares({"first": 2, "shares": [0.25, 0.75], "mean": 0.5}, 5)
    assert np.array_equal(whole, [0, 0, 0.25, 0.75, 0])


@pytest.mark.parametrize("freedom", [1, 2, 4, 9, 10, 11, 15, 29, 100, 1000])
def test_t_quantiles(freedom: int) -> None:
    assert t_quantile(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), abs=5e-4)


def test_half_width_of_five_seeds() -> None:
    values = np.array([0.1, 0.2, 0.3, 0.4, 0.5])
    assert half_width(values) == pytest.approx(2.7764 * np.std(values, ddof=1) / np.sqrt(5))


def test_one_seed_has_no_deviation_and_no_interval() -> None:
    single = np.array([0.3])
    assert mean(single) == 0.3 and deviation(single) is None and half_width(single) is None
    assert mean(np.array([])) is None


@pytest.mark.parametrize(("count", "n"), [(0, 5), (5, 5), (1, 5), (21, 30), (0, 1)])
def test_rate_intervals_are_exact(count: int, n: int) -> None:
    exact = stats.binomtest(count, n).proportion_ci(0.95, method="exact")
    assert rate_interval(count, n) == pytest.approx((exact.low, exact.high), abs=1e-9)
