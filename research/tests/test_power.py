"""The table of novelty before and after, and the trials of ways to more rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from depsue.errors import DepsueError
from depsue_research.cli import app
from depsue_research.power import below_floor, cells_in, table_lines, with_table
from depsue_research.power_trials import (
    NOVELTIES,
    ShownRows,
    block_lines,
    certified_novelty,
    reserved_rows,
)


def cell(novelties: list[float], value: float = 1.0, method: str = "explore_2") -> dict[str, Any]:
    """A result as `reproduce` writes it, as far as the table reads it."""
    deployments = [
        {"k": k, "novelty_test": nu, "value_test": value, "value_train": value}
        for k, nu in enumerate(novelties, 1)
    ]
    logging = {"value_test": 1.0, "value_train": 1.0}
    return {
        "method": method, "level": 8.0, "seed": 100, "logging": logging, "deployments": deployments,
    }  # fmt: skip


def test_the_table_is_made_from_two_folders_of_cells(tmp_path: Path) -> None:
    before, after, page = tmp_path / "before", tmp_path / "after", tmp_path / "power.md"
    before.mkdir()
    (before / "cells.jsonl").write_text(json.dumps(cell([0.1, 0.3])), encoding="utf-8")
    (after / "cells").mkdir(parents=True)
    (after / "cells" / "one.json").write_text(json.dumps(cell([0.2, 0.4], 0.9)), encoding="utf-8")
    page.write_text("# Power\n\n<!-- table -->\nold\n<!-- end of table -->\n\nEnd.\n", "utf-8")
    arguments = ["power", "--before", str(before), "--after", str(after), "--out", str(page)]
    for _ in range(2):  # it can be made again
        assert CliRunner().invoke(app, arguments).exit_code == 0
    text = page.read_text("utf-8")
    assert "old" not in text and text.endswith("End.\n") and text.count("| method |") == 1
    assert "| 8 | 1 | 0.300 -> 0.400 | 0.200 -> 0.300 | +0.100 | 1.000 -> 0.900 | 0 -> 1 |" in text
    assert "| all | 1 |  | 0.200 -> 0.300 | +0.100 |  |  |" in text
    assert "<!-- table -->" in with_table("", "| table |")
    two = with_table(text, "| other |", "wiki10")
    assert "| 8 | 1 | 0.300" in two and two.endswith("| other |\n<!-- end of table wiki10 -->\n")
    with pytest.raises(DepsueError, match="both folders must have a cell in common"):
        list(table_lines(cells_in(before), {}))


def test_a_sum_may_lie_above_the_floor_where_a_deployment_does_not() -> None:
    result = cell([0.1, 0.1], method="explore_2_cumulative")
    result["deployments"][1]["value_train"] = 0.92
    assert not below_floor(result)
    assert below_floor({**result, "method": "explore_2"})


def test_what_a_round_reserves_its_own_verdict_does_not_have() -> None:
    assert reserved_rows(2, 100, 0.25, first=True) == [[75], [0, 100]]  # too few to pool
    counts = reserved_rows(5, 100_000_000, 0.4, first=True)
    assert sum(map(sum, counts)) == pytest.approx(5e8, rel=0.001)  # hardly any is left out by lot
    assert [round(sum(rows) / 1e6) for rows in counts] == [60, 70, 83, 103, 183]
    some = reserved_rows(5, 60_000, 0.1, first=True)[4]
    assert some == [1279, 1746, 2690, 5564, 59373]


def test_the_first_logs_reserve_nothing() -> None:
    assert reserved_rows(2, 100, 0.25) == [[100], [0, 100]]
    counts = reserved_rows(5, 100_000_000, 0.4)
    assert sum(map(sum, counts)) == pytest.approx(5e8, rel=0.001)
    assert [round(sum(rows) / 1e6) for rows in counts] == [100, 60, 73, 93, 173]
    assert all(rows[0] == 0 for rows in counts[1:])


def test_pooled_rows_of_pi0_tell_nothing_of_new_items() -> None:
    q = np.full((1, 2), 0.5)
    pi0, old, new = np.array([[1.0, 0.0]]), np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]])
    served = 0.9 * old + 0.1 * new
    alone = [ShownRows(2000.0, served)]
    joint = [ShownRows(1e9, pi0), *alone]
    few, many = (certified_novelty(s, (old, new), q, 0.46, None) for s in (alone, joint))
    assert 0 < few <= many < NOVELTIES[-1]  # however many rows of pi0 are added
    assert certified_novelty([ShownRows(1e7, pi0)], (old, new), q, 0.0, pi0) == pytest.approx(
        0.05, abs=0.002
    )


def test_blocks_are_tried_on_small_logs() -> None:
    head, _, row = block_lines([2000], 1)
    assert "20 blocks" in head and row.startswith("| 2,000 | 0.")


def test_differences_come_with_their_error(tmp_path: Path) -> None:
    sides = []
    for name, novelties in (("before", (0.1, 0.2, 0.3)), ("after", (0.2, 0.2, 0.2))):
        (tmp_path / name).mkdir()
        cells = [cell([nu]) | {"seed": seed} for seed, nu in enumerate(novelties)]
        lines = "\n".join(json.dumps(one) for one in cells)
        (tmp_path / name / "cells.jsonl").write_text(lines, "utf-8")
        sides.append(cells_in(tmp_path / name))
    assert "+0.000 (0.058)" in list(table_lines(*sides))[1]
