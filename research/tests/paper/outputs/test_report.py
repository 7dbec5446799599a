"""The folder of outputs, the page, and the summary while a sweep runs."""

import csv
import re
from pathlib import Path

import pytest
from research.tests.paper.outputs.made_up import made_up_runs, movielens, wiki10

from depsue._version import __version__
from depsue.errors import ConfigError, FileError
from depsue_research.paper.cells import GATHERED, Cell, CellStore
from depsue_research.paper.outputs.figures import all_figures
from depsue_research.paper.outputs.reading import Runs
from depsue_research.paper.outputs.report import summary, write_outputs
from depsue_research.paper.outputs.tables import all_tables
from depsue_research.paper.recipe import load_recipe, recipe_folder, recipe_from

SMALL = movielens(levels=[-8, 0, 8])
COMMAND = "depsue-research reproduce movielens --seeds 2"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    runs = made_up_runs(SMALL, seeds=range(2))
    page = write_outputs(SMALL, runs.results, tmp_path_factory.mktemp("out") / "a" / "b", COMMAND)
    assert page.name == "index.html"
    return page.parent


def test_every_table_and_figure_has_its_files(folder: Path) -> None:
    runs = made_up_runs(SMALL, seeds=range(2))
    for table in all_tables(runs):
        assert (folder / f"{table.name}.md").read_text("utf-8") == table.markdown()
        with (folder / f"{table.name}.csv").open(encoding="utf-8", newline="") as file:
            assert tuple(next(csv.reader(file))) == table.headings
    pictures = all_figures(runs)
    assert len(pictures) == 7
    for picture in pictures:
        assert (folder / f"{picture.name}.svg").read_text("utf-8").startswith("<svg")
        png = (folder / f"{picture.name}.png").read_bytes()
        assert png[:4] == b"\x89PNG" and len(png) < 250_000
    assert "**" in (folder / "claims.md").read_text("utf-8")


def test_the_page_needs_nothing_else_and_its_links_arrive(folder: Path) -> None:
    page = (folder / "index.html").read_text("utf-8")
    assert page.count("<svg") == 7
    assert "<script" not in page and "<link" not in page
    links = re.findall(r'<a href="#([^"]+)"', page)
    assert len(links) >= 15
    assert all(f'id="{link}"' in page for link in links)
    assert re.findall(r'(?:src|href)="(?!#|data:)([^"]*)"', page) == []


def test_the_page_says_what_it_rests_on(folder: Path) -> None:
    page = (folder / "index.html").read_text("utf-8")
    for words in (COMMAND, "made-up", "2 seeds", "-8, 0, 8", f"depsue {__version__}", "30 seeds"):
        assert words in page
    assert "titles" not in page and "Not complete" not in page
    assert page.count('<td class="fails">') + page.count('<td class="holds">') > 0


def test_the_same_cells_make_the_same_files(tmp_path: Path) -> None:
    recipe = movielens(levels=[8], methods=["depsue_1"])
    results = made_up_runs(recipe, seeds=range(2)).results
    first, second = (write_outputs(recipe, results, tmp_path / n, "x").parent for n in ("a", "b"))
    for path in first.iterdir():
        assert (second / path.name).read_bytes() == path.read_bytes(), path.name


def test_names_and_commands_are_escaped(tmp_path: Path) -> None:
    recipe = recipe_from(
        {"experiment": "movielens", "levels": [8], "methods": ["naive_safe"]}, "<b>mine</b>"
    )
    results = made_up_runs(recipe, seeds=[0]).results
    page = write_outputs(recipe, results, tmp_path, "run <i> & go").read_text("utf-8")
    assert "<b>mine</b>" not in page and "&lt;b&gt;mine&lt;/b&gt;" in page
    assert "run &lt;i&gt; &amp; go" in page


def test_wiki10_says_at_the_top_that_titles_stand_in(tmp_path: Path) -> None:
    recipe = wiki10(methods=["naive_safe"])
    page = write_outputs(recipe, made_up_runs(recipe, seeds=[0]).results, tmp_path, "x")
    text = page.read_text("utf-8")
    assert "titles stand in for document text" in text[: text.index("<nav>")]
    assert "titles stand in" in (tmp_path / "claims.md").read_text("utf-8")
    assert (tmp_path / "wiki10.csv").exists() and not (tmp_path / "validation_ope.csv").exists()


def test_wiki10_of_whole_documents_says_nothing_of_titles(tmp_path: Path) -> None:
    recipe = wiki10(methods=["naive_safe"])
    results = made_up_runs(recipe, seeds=[0]).results
    for result in results.values():
        result["data"] = {"of_titles": False}
    text = write_outputs(recipe, results, tmp_path, "x").read_text("utf-8")
    assert "itles stand in" not in text
    next(iter(results.values()))["data"]["of_titles"] = True
    text = write_outputs(recipe, results, tmp_path, "x").read_text("utf-8")
    assert text.count("itles stand in") == 3  # at the top, table and figure


def test_another_simulator_says_which_levels_are_good_and_poor(tmp_path: Path) -> None:
    recipe = movielens(preset="fitted", levels=[2], methods=["naive_safe"])
    page = write_outputs(recipe, made_up_runs(recipe, seeds=[0]).results, tmp_path, "x")
    text = page.read_text("utf-8")
    assert "at least 0.85" in text[text.index('id="notes"') :]
    assert "at least 0.85" in (tmp_path / "claims.md").read_text("utf-8")


def test_what_differs_from_the_shipped_recipe_is_said_everywhere(tmp_path: Path) -> None:
    shipped = load_recipe(recipe_folder() / "paper-movielens.toml")
    recipe = shipped.with_options(bound_every=10, levels=(8.0,), methods=("naive_safe",))
    page = write_outputs(recipe, made_up_runs(recipe, seeds=[0]).results, tmp_path, "x")
    for path in (page, tmp_path / "claims.md", *tmp_path.glob("*.md")):
        text = path.read_text("utf-8")
        assert "Differs from recipes/paper-movielens.toml: " in text, path.name
        assert "bound_every 10 (recipe: 1)" in text


def test_a_run_that_is_not_complete_says_so(tmp_path: Path) -> None:
    recipe = movielens(levels=[-8, 8], methods=["naive_safe", "opg_cql"])
    runs = made_up_runs(recipe, seeds=[0], without=lambda c: c == Cell(0, 8.0, "opg_cql"))
    page = write_outputs(recipe, runs.results, tmp_path, "x").read_text("utf-8")
    assert "Not complete" in page and "not measured" in page


def test_no_finished_cell_is_refused(tmp_path: Path) -> None:
    others = made_up_runs(movielens(levels=[16]), seeds=[0]).results
    with pytest.raises(ConfigError, match="at least one finished cell"):
        write_outputs(movielens(levels=[8]), others, tmp_path, "x")
    assert summary(movielens(levels=[8]), others) == "no cell has finished yet"


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    results = made_up_runs(SMALL, seeds=[0]).results
    with pytest.raises(FileError, match="writable"):
        write_outputs(SMALL, results, tmp_path / "file", "x")


def test_the_summary_has_value_novelty_violations_and_the_time() -> None:
    def story(cell: Cell) -> dict[str, object]:
        return {"values": 0.9 if cell.level == 8 else 1.25, "novelties": 0.123}

    runs = made_up_runs(
        movielens(), story, without=lambda c: c.level == 24 or c.method == "opg_min"
    )
    lines = summary(runs.recipe, runs.results).splitlines()
    assert max(map(len, lines[:-1])) <= 80
    assert "5 seeds (90 cells not finished)" in lines[0]
    rows = [line.split() for line in lines if line.split()[0] == "opg_cql"]
    assert rows[0][1:] == ["1.250"] * 4 + ["0.900", "1.250", "-"]
    assert rows[1][1:] == ["0.123"] * 6 + ["-"]
    assert rows[2][1:] == ["0/5"] * 4 + ["5/5", "0/5", "-"]
    assert not [line for line in lines if "opg_min" in line]
    times = "world 330, policy 660, bound 360, evaluation 165"  # of 6 methods, 6 levels, 5 seeds
    assert lines[-1] == f"seconds in all: {times}; peak 604 MiB"


RESULTS = Path(__file__).parents[4] / "docs" / "results"
RUNS = sorted(record.parent for record in RESULTS.glob("*/run.json"))


@pytest.mark.parametrize("results_of", RUNS, ids=lambda path: path.name)
def test_committed_tables_are_those_of_the_committed_cells(results_of: Path) -> None:
    store = CellStore(results_of)
    record = store.record()
    results = store.with_configs(record.configs)
    assert len(results) == len((results_of / GATHERED).read_text("utf-8").splitlines())
    tables = all_tables(Runs(record.load_recipe(), results))
    assert len(tables) >= 9
    for table in tables:
        committed = (results_of / f"{table.name}.md").read_text("utf-8")
        assert table.markdown() == committed, table.name
