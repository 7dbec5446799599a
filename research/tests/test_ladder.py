"""The ladder, measured: worlds at the edge of each rung, and the table of cells."""

from pathlib import Path

from depsue.testing.bounds import binomial_tail
from depsue_research.ladder import DELTA, LadderCell, cells_table, edges, edges_table, read_cells


def test_no_rung_errs_more_than_delta_at_its_edge() -> None:
    runs = 12
    wrong = edges(runs)
    assert len(wrong) == 5
    assert all(binomial_tail(count, runs, DELTA) > 1e-3 for count in wrong.values())
    assert "| delta |" in edges_table(wrong, runs)


def test_a_rung_is_compared_with_nothing_on_the_same_rows(tmp_path: Path) -> None:
    def cell(rung: str, certified: float, seed: int) -> LadderCell:
        return LadderCell("r", 1.0, seed, rung, 10, certified, certified, 1.0, 1.0, True)

    cells = [cell("nothing", 0.1, 1), cell("exchangeable", 0.3, 1), cell("exchangeable", 0.1, 2)]
    assert "| r | 1 | 2 | 0.100 | 0.200 | 2.00 | 1.000 | 1.000 | 0 |" in cells_table(cells)
    assert read_cells(tmp_path / "none.jsonl") == []
