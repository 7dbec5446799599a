"""Tables: known figures in, exact cells out."""

import csv
import io

import pytest
from research.tests.paper.outputs.made_up import Story, made_up_runs, movielens, wiki10

from depsue_research.paper.cells import Cell
from depsue_research.paper.outputs.reading import Runs
from depsue_research.paper.outputs.table import Table, number, rate, signed
from depsue_research.paper.outputs.tables import all_tables


def tables(runs: Runs) -> dict[str, Table]:
    return {table.name: table for table in all_tables(runs)}


def row(table: Table, *start: str) -> tuple[str, ...]:
    """The cells of the one row that begins so."""
    rows = [r for r in table.rows if r[: len(start)] == start]
    assert len(rows) == 1, f"{len(rows)} rows begin with {start}"
    return rows[0][len(start) :]


def small(story: Story, seeds: int = 2, **changes: object) -> dict[str, Table]:
    recipe = movielens(**{"levels": [-8, 8], **changes})
    return tables(made_up_runs(recipe, story, seeds=range(seeds)))


def test_markdown_and_csv() -> None:
    table = Table("t", "A title", ("method", "x"), (("a|b", "1.5"), ("c, d", "-")), "A note.")
    assert table.numeric == (False, True)
    assert table.markdown() == (
        "### A title\n\n| method | x |\n| --- | ---: |\n| a\\|b | 1.5 |\n| c, d | - |\n\nA note.\n"
    )
    assert list(csv.reader(io.StringIO(table.csv()))) == [
        ["method", "x"],
        ["a|b", "1.5"],
        ["c, d", "-"],
    ]


def test_numbers_are_formatted_once() -> None:
    assert (number(0.12345), number(None), number(1.26, 1)) == ("0.123", "-", "1.3")
    assert (signed(0.0171), signed(-0.2), signed(None)) == ("+0.017", "-0.200", "-")
    assert (rate(2, 5), rate(0, 0), rate(None, 30)) == ("2/5", "-", "-")


def test_logging_policies_with_the_gap_to_the_paper() -> None:
    table = small(lambda c: {"pi0": 0.20 + 0.02 * c.seed, "best": 0.25, "uniform": 0.22})[
        "logging_policies"
    ]
    assert table.headings == ("figure", "source", "beta=-8", "beta=8")
    assert row(table, "V(pi0)", "here") == ("0.210", "0.210")
    assert row(table, "V(pi0)", "paper") == ("0.234", "0.268")
    assert row(table, "V(pi0)", "gap") == ("-0.024", "-0.058")
    assert row(table, "V(pi0) / V(pi*)", "here") == ("0.840", "0.840")
    assert row(table, "V(pi0) / V(pi*)", "gap") == ("+0.083", "-0.029")
    assert row(table, "V(uniform)", "here") == ("0.220", "0.220")
    assert "2 seeds" in table.title and "30 seeds" in table.note


def test_violations_of_last_average_and_any_against_both_kinds_of_users() -> None:
    def story(cell: Cell) -> dict[str, object]:
        if cell.method != "depsue_2" or cell.level < 0:
            return {}
        # seed 0: the last one falls, the average does not; seed 1: neither falls on test users
        values = [1.2, 0.9] if cell.seed == 0 else [1.0, 1.0]
        return {"values": values, "train": [1.0, 1.0] if cell.seed == 0 else [0.8, 0.9]}

    table = small(story)["violations"]
    name = "DEPSUE (K=2)"
    assert row(table, name, "last", "test", "here") == ("0/2", "1/2")
    assert row(table, name, "average over k", "test", "here") == ("0/2", "0/2")
    assert row(table, name, "any deployment", "test", "here") == ("0/2", "1/2")
    assert row(table, name, "last", "training", "here") == ("0/2", "1/2")
    assert row(table, name, "average over k", "training", "here") == ("0/2", "1/2")
    assert row(table, name, "-", "test", "paper") == ("0/30", "0/30")
    assert row(table, "OPG (naive, min)", "-", "test", "paper") == ("0/30", "21/30")
    assert row(table, "OPG (naive, mean)", "-", "test", "paper") == ("0/30", "21/30")
    assert not [r for r in table.rows if r[0] == "Naive Safe Exploration" and "paper" in r]
    assert not [r for r in table.rows if r[0] == "DEPSUE (K=1)" and r[1] == "any deployment"]


def test_relative_value_mean_and_worst() -> None:
    def story(cell: Cell) -> dict[str, object]:
        if cell.method == "depsue_2":
            return {"values": [1.0, 1.1 + 0.1 * cell.seed]}
        return {"values": 0.9 + 0.1 * cell.seed}

    table = small(story)["relative_value"]
    assert row(table, "OPG (w/ CQL)", "last", "mean", "here") == ("0.950", "0.950")
    assert row(table, "OPG (w/ CQL)", "last", "worst", "here") == ("0.900", "0.900")
    assert row(table, "OPG (w/ CQL)", "-", "worst", "paper") == ("0.819", "0.972")
    assert row(table, "DEPSUE (K=2)", "last", "mean", "here") == ("1.150", "1.150")
    assert row(table, "DEPSUE (K=2)", "average over k", "mean", "here") == ("1.075", "1.075")
    assert row(table, "DEPSUE (K=2)", "average over k", "worst", "here") == ("1.050", "1.050")
    assert "2 seeds" in table.title


def test_novelty_with_its_deviation_and_that_of_the_best_policy() -> None:
    table = small(lambda c: {"novelties": 0.1 + 0.1 * c.seed, "best_novelty": 0.17})["novelty"]
    assert row(table, "OPG (w/ CQL)", "last", "mean", "here") == ("0.150", "0.150")
    assert row(table, "OPG (w/ CQL)", "last", "deviation", "here") == ("0.071", "0.071")
    assert row(table, "OPG (w/ CQL)", "-", "deviation", "paper") == ("0.443", "0.359")
    assert row(table, "pi*", "-", "mean", "here") == ("0.170", "0.170")


def test_seeds_with_adequate_novelty() -> None:
    table = small(lambda c: {"novelties": 0.0999 if c.seed else 0.1})["adequate_novelty"]
    assert row(table, "DEPSUE (K=1)", "last", "here") == ("1/2", "1/2")
    assert row(table, "DEPSUE (K=1)", "-", "paper") == ("28/30", "0/30")
    rising = only_last_is_novel()["adequate_novelty"]
    assert row(rising, "DEPSUE (K=2)", "last", "here") == ("2/2", "2/2")
    assert row(rising, "DEPSUE (K=2)", "average over k", "here") == ("0/2", "0/2")


def only_last_is_novel() -> dict[str, Table]:
    return small(lambda c: {"novelties": [0.0, 0.15]}, methods=["depsue_2"])


def test_validation_counts_unsafe_accepted_and_safe_refused() -> None:
    def story(cell: Cell) -> dict[str, object]:
        worse = cell.level == 8  # both seeds there are worse than pi0
        estimates = (1.1, 1.2, 0.9) if cell.seed == 0 else (0.9, 1.2, 0.9)
        return {"values": 0.97 if worse else 1.2, "estimates": estimates}

    table = small(story)["validation_ope"]
    name = "OPG (w/ CQL)"
    assert row(table, name, "IPS") == ("0.500", "1/2", "0.319", "0.500", "1/2", "0.417")
    assert row(table, name, "DM") == ("1.000", "2/2", "1.000", "0.000", "0/2", "0.037")
    assert row(table, name, "DR") == ("0.000", "0/2", "0.468", "1.000", "2/2", "0.209")
    none_worse = small(lambda c: {"values": 1.2})["validation_ope"]
    assert row(none_worse, name, "IPS")[:2] == ("-", "-")
    none_better = small(lambda c: {"values": 1.0})["validation_ope"]
    assert row(none_better, name, "IPS")[3:5] == ("-", "-")


def test_wiki10_has_violation_value_and_novelty_of_every_epsilon() -> None:
    def story(cell: Cell) -> dict[str, object]:
        values = [1.2, 0.9] if cell.method == "depsue_2" else 0.9
        return {"values": values, "novelties": [0.0, 0.1] if cell.method == "depsue_2" else 0.2}

    made = tables(made_up_runs(wiki10(), story, seeds=range(3)))
    table = made["wiki10"]
    assert table.headings[3:6] == (
        "poor (0.8): violations",
        "poor (0.8): value",
        "poor (0.8): novelty",
    )
    assert row(table, "DEPSUE (K=2)", "last", "here") == ("3/3", "0.900", "0.100") * 3
    assert row(table, "DEPSUE (K=2)", "average over k", "here") == ("0/3", "1.050", "0.050") * 3
    printed = row(table, "Naive Safe Exploration", "-", "paper")
    assert printed[-3:] == ("0/30", "0.978", "0.050")
    assert "titles stand in for document text" in table.note
    assert "validation_ope" not in made
    assert "wiki10" not in small(lambda c: {})


def test_the_concept_table_says_what_was_measured() -> None:
    def story(cell: Cell) -> dict[str, object]:
        return {"values": 0.9 if cell.method == "opg_min" else 1.0, "novelties": 0.123}

    table = small(story)["concept"]
    assert "OPG (naive, mean) 0/4, OPG (naive, min) 4/4" in row(table, "safety")[0]
    assert "DEPSUE (K=5) 0.123" in row(table, "novelty")[1]
    assert row(table, "safety")[2].endswith("Not measured here")
    only_opg = small(lambda c: {}, methods=["opg_cql"])["concept"]
    assert "Not measured yet" in row(only_opg, "safety")[1]


def test_training_over_the_value_of_pi0() -> None:
    def story(cell: Cell) -> dict[str, object]:
        if cell.method != "depsue_2":
            return {}
        return {"bounds": [0.94, 1.0], "margins": [0.0, 0.1], "train": [1.05, 1.15], "pi0": 0.2}

    table = small(story)["training"]
    name = "DEPSUE (K=2)"
    assert row(table, name, "1", "need") == ("0.950", "0.950")
    assert row(table, name, "1", "bound") == ("0.940", "0.940")
    assert row(table, name, "1", "passed") == ("0/2", "0/2")
    assert row(table, name, "2", "margin") == ("0.100", "0.100")
    assert row(table, name, "2", "need") == ("0.850", "0.850")
    assert row(table, name, "2", "passed") == ("2/2", "2/2")
    assert row(table, name, "2", "true value") == ("1.150", "1.150")


def test_time_by_phase_and_peak_memory() -> None:
    table = small(lambda c: {}, methods=["opg_cql", "depsue_1"])["time"]
    assert table.headings[1:7] == (
        "world",
        "logs",
        "reward model",
        "policy",
        "bound",
        "evaluation",
    )
    assert row(table, "OPG (w/ CQL)") == ("1.0", "-", "-", "2.0", "-", "0.5", "3.5", "601")
    assert row(table, "DEPSUE (K=1)") == ("1.0", "-", "-", "2.0", "4.0", "0.5", "7.5", "601")
    assert row(table, "all, one after the other")[-2:] == ("11.0", "601")


def test_one_seed_has_no_deviation() -> None:
    table = small(lambda c: {}, seeds=1)["novelty"]
    assert row(table, "OPG (w/ CQL)", "last", "deviation", "here") == ("-", "-")
    assert row(table, "OPG (w/ CQL)", "last", "mean", "here") == ("0.200", "0.200")
    assert "1 seed" in table.title


def test_missing_cells_are_dashes_and_counts_are_of_what_is_there() -> None:
    recipe = movielens(levels=[-8, 8])

    def gone(cell: Cell) -> bool:
        return cell.method == "opg_cql" and (cell.level == 8 or cell.seed == 1)

    made = tables(made_up_runs(recipe, seeds=range(2), without=gone))
    assert row(made["violations"], "OPG (w/ CQL)", "last", "test", "here") == ("0/1", "-")
    assert row(made["relative_value"], "OPG (w/ CQL)", "last", "worst", "here") == ("1.000", "-")
    assert "3 cells not finished" in made["violations"].title


def test_another_simulator_has_no_rows_of_the_paper() -> None:
    made = small(lambda c: {}, preset="fitted")
    for table in made.values():
        assert not [r for r in table.rows if "paper" in r]
    assert "no figures of this simulator" in made["violations"].note


@pytest.mark.parametrize("recipe", [movielens(), wiki10()], ids=["movielens", "wiki10"])
def test_every_table_is_whole_and_named_once(recipe: object) -> None:
    made = all_tables(made_up_runs(recipe, seeds=range(2)))  # type: ignore[arg-type]
    assert len({table.name for table in made}) == len(made)
    for table in made:
        assert table.rows and all(len(r) == len(table.headings) for r in table.rows)
        assert "2 seeds" in table.title
