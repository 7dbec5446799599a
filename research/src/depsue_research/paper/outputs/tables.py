"""All tables of a reproduction, in the order in which they are shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from depsue_research.paper.outputs.differences import differences
from depsue_research.paper.outputs.published import Published, published_for
from depsue_research.paper.outputs.reading import Runs
from depsue_research.paper.outputs.table import Table
from depsue_research.paper.outputs.tables_exploration import exploration
from depsue_research.paper.outputs.tables_outcome import (
    adequate_novelty,
    logging_policies,
    novelty_table,
    relative_value,
    violations,
)
from depsue_research.paper.outputs.tables_run import time_spent, training
from depsue_research.paper.outputs.tables_summary import concept, wiki10
from depsue_research.paper.outputs.tables_validation import validation

__all__ = ["TABLES", "Table", "all_tables"]

TABLES: tuple[Callable[[Runs, Published], Table | None], ...] = (
    logging_policies,
    exploration,
    wiki10,
    violations,
    relative_value,
    novelty_table,
    adequate_novelty,
    validation,
    concept,
    training,
    time_spent,
)
"""Each makes its table from the finished cells and the paper's figures, or None where the
experiment has nothing to fill it with."""


def all_tables(runs: Runs) -> list[Table]:
    """The tables that this run can fill; each note says what differs from the shipped recipe."""
    paper = published_for(runs.recipe)
    made = [table for make in TABLES if (table := make(runs, paper)) is not None]
    words = differences(runs.recipe)
    return [replace(table, note=f"{table.note} {words}".strip()) for table in made]
