"""The paper's figures stand beside the right cells of ours."""

import pytest
from research.tests.paper.outputs.made_up import BETAS, movielens, wiki10

from depsue.errors import ConfigError
from depsue_research.paper.outputs.published import published, published_for
from depsue_research.paper.recipe import METHODS


def test_figures_are_those_of_the_papers_tables() -> None:
    paper = published("movielens")
    assert paper.seeds == 30
    assert list(paper.levels) == list(BETAS)
    assert paper.get("violations", "opg_cql", -8) == 19
    assert paper.get("value_worst", "depsue_5", 16) == 0.936
    assert paper.get("novelty_deviation", "depsue_1", -24) == 0.003
    assert paper.get("logging_optimality", "pi0", 24) == 0.938
    assert paper.error_rate("ips", "opg_cql", "type_2") == 0.319
    assert published("wiki10").get("novelty_mean", "naive_safe", 0.2) == 0.05
    assert published("wiki10").level_name(0.5) == "medium"


def test_the_one_naive_row_stands_beside_mean_and_min() -> None:
    paper = published("movielens")
    for method in ("opg_mean", "opg_min"):
        assert paper.get("novelty_mean", method, 8) == 0.265
        assert paper.error_rate("dr", method, "type_1") == 0.189
        assert paper.row("violations", method)[16.0] == 30


def test_what_the_paper_has_not_is_none() -> None:
    paper = published("movielens")
    assert paper.get("violations", "naive_safe", 8) is None
    assert paper.get("violations", "opg_cql", 5) is None
    assert paper.get("no such table", "opg_cql", 8) is None
    assert paper.row("violations", "naive_safe") == {}
    assert paper.error_rate("dm", "depsue_1", "type_1") is None
    assert paper.level_name(8) == ""


@pytest.mark.parametrize("experiment", ["movielens", "wiki10"])
def test_every_row_has_a_figure_for_every_level(experiment: str) -> None:
    paper = published(experiment)
    for rows in paper.figures.values():
        for name, row in rows.items():
            assert name in (*METHODS, "opg_naive", "pi0")
            assert len(row) == len(paper.levels)


def test_the_paper_has_nothing_to_say_of_the_fitted_simulator() -> None:
    fitted = published_for(movielens(preset="fitted"))
    assert fitted.seeds == 0 and fitted.get("violations", "opg_cql", -8) is None
    assert published_for(movielens()) is published("movielens")
    assert published_for(wiki10()) is published("wiki10")


def test_an_unknown_experiment_is_refused() -> None:
    with pytest.raises(ConfigError, match="movielens, wiki10"):
        published("netflix")
