"""Readings of the paper: a file of them, and the distance of their tables to the paper's."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from research.tests.paper.outputs.made_up import Story, made_up_runs, movielens

from depsue.errors import ConfigError, FileError
from depsue_research.paper.cells import Cell, CellStore, Result
from depsue_research.paper.outputs.published import published
from depsue_research.paper.outputs.reading import Runs
from depsue_research.paper.readings import (
    CLOSE,
    Reading,
    distance,
    load_readings,
    only,
    search,
    table,
)
from depsue_research.paper.recipe import METHODS, Recipe, load_recipe, recipe_folder

SHIPPED = recipe_folder() / "readings" / "movielens.toml"
ROWS = ("opg_cql", "depsue_1", "depsue_2")
PAPER = published("movielens")


def as_published(
    cell: Cell, value: float = 0.0, novelty: float = 0.0, spread: float = 1.0
) -> dict[str, Any]:
    """The paper's means, by two seeds with the paper's deviation of novelty; and then shifted."""
    mean = PAPER.get("value_mean", cell.method, cell.level)
    novel = PAPER.get("novelty_mean", cell.method, cell.level)
    deviation = PAPER.get("novelty_deviation", cell.method, cell.level)
    assert mean is not None and novel is not None and deviation is not None
    side = spread * deviation / 2**0.5 * (1 if cell.seed else -1)
    close_value, close_novelty = CLOSE[cell.method]
    return {
        "values": mean + value * close_value,
        "novelties": novel + novelty * close_novelty + side,
    }


def two_seeds(recipe: Recipe, story: Story) -> Runs:
    return made_up_runs(recipe, story, seeds=(0, 1))


def gaps(**shift: float) -> Mapping[str, tuple[float, ...]]:
    recipe = movielens(methods=list(ROWS))
    runs = two_seeds(recipe, lambda cell: as_published(cell, **shift))
    return distance("made up", runs).rows


def test_the_papers_own_figures_are_at_no_distance() -> None:
    for method, row in gaps().items():
        assert row[:3] == pytest.approx((0, 0, 0), abs=1e-9), method


def test_one_step_of_what_counts_as_close_is_one() -> None:
    for row in gaps(value=1.0).values():
        assert row[:3] == pytest.approx((1, 0, 0), abs=1e-9)
    for row in gaps(novelty=-2.0).values():
        assert row[:3] == pytest.approx((0, 2, 0), abs=1e-9)
    for row in gaps(spread=2.0).values():
        assert row[:2] == pytest.approx((0, 0), abs=1e-9) and 0.2 < row[2] < 1


def test_violations_and_adequate_novelty_count() -> None:
    recipe = movielens(methods=["depsue_1"])

    def gap(**figures: float) -> tuple[float, ...]:
        return distance("x", two_seeds(recipe, lambda cell: figures)).rows["depsue_1"]

    below, above = gap(values=0.94, novelties=0.05), gap(values=0.96, novelties=0.05)
    assert below[3] == 10 and above[3] == 0  # the paper's K = 1 has none below the floor
    reached = sum(PAPER.row("novelty_reached", "depsue_1").values()) / 30 / 7
    assert above[4] == pytest.approx(5 * reached)
    assert gap(values=0.96, novelties=0.2)[4] == pytest.approx(5 * (1 - reached))


def test_deployments_are_read_as_what_is_closer() -> None:
    recipe = movielens(methods=["depsue_2"])

    def story(first: float, last: float) -> Any:
        def of(cell: Cell) -> dict[str, Any]:
            paper = as_published(cell)
            v, n = paper["values"], paper["novelties"]
            return {"values": [v + first, v + last], "novelties": [n, n]}

        return of

    averaged = distance("x", two_seeds(recipe, story(-0.2, 0.2)))
    last = distance("x", two_seeds(recipe, story(0.4, 0.0)))
    assert (averaged.how, last.how) == ("average", "last")
    assert averaged.rows["depsue_2"][0] == pytest.approx(0, abs=1e-9)


def test_one_row_of_the_paper_stands_beside_mean_and_min() -> None:
    recipe = movielens(methods=["opg_mean", "opg_min", "depsue_1"])

    def story(cell: Cell) -> dict[str, Any]:
        return as_published(cell, value=3.0 if cell.method == "opg_mean" else 0.0)

    assert set(distance("x", two_seeds(recipe, story)).rows) == {"opg_min", "depsue_1"}


def test_a_search_puts_the_closest_first(tmp_path: Path) -> None:
    recipe = movielens(methods=list(METHODS))
    far, near = Reading("far", recipe, "rate = 9"), Reading("near", recipe, "rate = 1")
    ran: list[tuple[str, ...]] = []

    def run(recipe: Recipe, store: CellStore) -> Mapping[Cell, Result]:
        ran.append(recipe.methods)
        shift = 5.0 if store.folder.name == "far" else 0.0
        return two_seeds(recipe, lambda c: as_published(c, value=shift)).results

    found = search([far, near], tmp_path, run, levels=(-8.0, 8.0), methods=ROWS)
    assert [d.reading for d in found] == ["near", "far"] and ran == [ROWS, ROWS]
    assert found[0].total < found[1].total and found[0].seeds == 2
    lines = table(found, [far, near])
    assert lines[0].count("|") == lines[1].count("|") == lines[2].count("|") == 9
    assert lines[2].startswith("| near | **") and lines[2].endswith("| 2 | rate = 1 |")


def test_shipped_readings_are_recipes() -> None:
    readings = {reading.name: reading for reading in load_readings(SHIPPED)}
    shipped = load_recipe(recipe_folder() / "paper-movielens.toml")
    same = readings["as-shipped"]
    assert same.words == "nothing"
    assert all(same.recipe.hash_of(m) == shipped.hash_of(m) for m in METHODS)
    printed = readings["as-printed"].recipe
    assert printed.model_rows == "all" and printed.safe_opg.factor == "contexts"
    assert printed.safe_opg.rate == 0.001 and printed.opg.rate == 0.1
    words = readings["weak-q"].words
    assert "rewards.max_epochs = 1" in words and "safe_opg.factor_on = objective" in words
    configs = {r.recipe.hash_of("depsue_1") for r in readings.values()}
    assert len(configs) == len(readings) - 1  # one differs in the steps of CQL and OPG only
    assert only(readings.values(), ["weak-q"]) == [readings["weak-q"]]
    assert len(only(readings.values(), None)) == len(readings)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[reading.x]", "with the name of a recipe"),
        ('recipe = "nobody"', "with the name of a recipe"),
        ('recipe = "paper-movielens"', "needs a table for each"),
        ("recipe = [", "with the name of a recipe"),
    ],
)
def test_files_that_are_no_readings(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "readings.toml"
    path.write_text(text, "utf-8")
    with pytest.raises((FileError, ConfigError), match=message):
        load_readings(path)


def test_unknown_names_and_lines_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="readings must be in the file"):
        only(load_readings(SHIPPED), ["weak-p"])
    path = tmp_path / "readings.toml"
    path.write_text('recipe = "paper-movielens"\n[reading.x]\nsafe_opg = { factors = 1 }', "utf-8")
    with pytest.raises(ConfigError, match="a recipe's keys must be known"):
        load_readings(path)
