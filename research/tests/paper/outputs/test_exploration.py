"""The table and the figure that hold certified exploration against DEPSUE and the paper."""

from typing import Any

from research.tests.paper.outputs.made_up import made_up_runs, movielens

from depsue_research.paper.cells import Cell
from depsue_research.paper.outputs.figures import exploration as figure
from depsue_research.paper.outputs.published import published
from depsue_research.paper.outputs.reading import Runs
from depsue_research.paper.outputs.table import Table
from depsue_research.paper.outputs.tables import exploration


def story(cell: Cell) -> dict[str, Any]:
    if cell.method.startswith("explore"):
        return {"values": 0.94 if cell.level == 24 else 1.3, "novelties": 0.15}
    return {"values": 1.2, "novelties": 0.16 if cell.level == 0 else 0.1}


def made() -> tuple[Runs, Table]:
    runs = made_up_runs(movielens(), story)
    table = exploration(runs, published("movielens"))
    assert table is not None
    return runs, table


def verdicts(table: Table, method: str, words: str) -> list[str]:
    return next(
        list(row[3:])
        for row in table.rows
        if row[0].endswith(method) and row[1] == words and row[2] == "at least these"
    )


def test_a_cell_that_falls_short_is_said() -> None:
    _, table = made()
    # DEPSUE here has .16 at beta 0; the paper's .12 at -8 is below .15
    assert verdicts(table, "(K=1)", "novelty") == ["yes"] * 3 + ["no"] + ["yes"] * 3
    assert verdicts(table, "(K=1)", "value") == ["yes"] * 6 + ["no"]
    # the paper's K = 5 has .169 and .157 at -8 and 0
    assert verdicts(table, "(K=5)", "average novelty") == ["yes"] * 2 + ["no"] * 2 + ["yes"] * 3


def test_violations_are_pooled_in_both_modes() -> None:
    runs, table = made()
    seeds = len(runs.seeds)
    assert f"every deployment, test users: {3 * seeds}/{21 * seeds}" in table.note
    assert f"the sum up to each deployment, test users: {5 * seeds}/{35 * seeds}" in table.note


def test_the_figure_has_a_panel_for_each_k_with_every_level() -> None:
    runs, _ = made()
    drawn = figure(runs, published("movielens"))
    assert drawn is not None and len(drawn.axes) == 3
    for axis in drawn.axes:
        stars = [line for line in axis.lines if line.get_marker() == "*"]
        assert len(stars) == len(runs.levels)


def test_without_certified_exploration_there_is_neither() -> None:
    runs = made_up_runs(movielens(methods=["depsue_1"]), story)
    assert exploration(runs, published("movielens")) is None
    assert figure(runs, published("movielens")) is None
