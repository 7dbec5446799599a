"""A cell's result: the truth that it states is the world's, and it is the same every time."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from depsue.policies import naive_safe_exploration
from depsue_research.paper.cells import Cell
from depsue_research.paper.recipe import Recipe
from depsue_research.paper.run_cell import run_cell
from depsue_research.paper.worlds import worlds_of

VARYING = ("seconds", "peak_mib")


def test_naive_safe_exploration_is_what_it_says(
    small_recipe: Recipe, movielens_folder: Path
) -> None:
    result = run_cell(small_recipe, Cell(1, -8.0, "naive_safe"), movielens_folder)
    train, test = worlds_of(small_recipe, -8.0, 1, movielens_folder)
    policy = naive_safe_exploration(train.logging_policy, train.catalogue, 0.05)
    (deployed,) = result["deployments"]
    assert deployed["value_test"] == pytest.approx(test.value(policy), rel=1e-8)
    assert deployed["value_train"] == pytest.approx(train.value(policy), rel=1e-8)
    assert deployed["novelty_test"] == pytest.approx(0.05)
    assert result["logging"]["value_test"] == pytest.approx(
        test.value(test.logging_policy), rel=1e-8
    )
    assert result["logging"]["best_test"] == pytest.approx(test.best_value(), rel=1e-8)
    assert result["logging"]["uniform_test"] == pytest.approx(test.q.mean())


@pytest.mark.parametrize("method", ["opg_mean", "opg_min", "opg_cql"])
def test_opg_cells_have_validation_and_distributions(
    small_recipe: Recipe, movielens_folder: Path, method: str
) -> None:
    result = run_cell(small_recipe, Cell(1, 8.0, method), movielens_folder)
    assert json.loads(json.dumps(result)) == result
    assert set(result["validation"]) == {"ips", "dm", "dr", "on_policy"}
    for table in result["distributions"].values():
        for part in table.values():
            assert sum(part["shares"]) == pytest.approx(1, abs=0.02)
            middles = (part["first"] + np.arange(len(part["shares"])) + 0.5) / 200
            assert middles @ part["shares"] == pytest.approx(part["mean"], abs=0.01)
    assert result["validation"]["on_policy"] != result["on_policy"]  # other rows
    assert set(result["seconds"]) == {"world", "logs", "reward model", "policy", "evaluation"}


def test_depsue_cells_have_a_row_for_each_deployment(
    small_recipe: Recipe, movielens_folder: Path
) -> None:
    result = run_cell(small_recipe, Cell(0, -8.0, "depsue_2"), movielens_folder)
    first, second = result["deployments"]
    assert first["need"] == pytest.approx(0.95 * result["on_policy"])
    margin = first["on_policy"] - first["floor"]
    assert second["need"] == pytest.approx(second["floor"] - margin)
    assert first["rows"] == second["rows"] == 1000
    assert len(result["history"]) == 2
    assert len(result["history"][0]["bound"]) == len(result["history"][0]["step"]) == 25
    assert {"bound", "policy", "reward model"} <= set(result["seconds"])


def test_the_same_cell_is_the_same_to_the_bit(small_recipe: Recipe, movielens_folder: Path) -> None:
    first, second = (
        run_cell(small_recipe, Cell(2, 8.0, "depsue_2"), movielens_folder) for _ in range(2)
    )
    other = run_cell(small_recipe, Cell(3, 8.0, "depsue_2"), movielens_folder)
    for name in VARYING:
        first.pop(name), second.pop(name)
    assert json.dumps(first) == json.dumps(second)
    assert first["deployments"] != other["deployments"]


def test_without_validation_rows_there_is_no_validation(
    small_recipe: Recipe, movielens_folder: Path
) -> None:
    recipe = replace(small_recipe, validation_rows=0)
    result = run_cell(recipe, Cell(1, 8.0, "opg_mean"), movielens_folder)
    assert "validation" not in result and "distributions" not in result


def test_users_who_are_not_in_the_logs_do_no_harm(
    small_recipe: Recipe, movielens_folder: Path
) -> None:
    recipe = replace(small_recipe, rows=100, validation_rows=2000)
    result = run_cell(recipe, Cell(1, 8.0, "opg_mean"), movielens_folder)
    assert 0 < result["validation"]["dm"] < 1
