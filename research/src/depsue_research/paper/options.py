"""What the options that save time do to a result: one MovieLens cell with each of them.

DEPSUE (K=1) of recipes/paper-movielens.toml with the bound at every step, every 10 and every 100,
with batches of 256, and with q-hat asked about 32 sampled actions instead of all 1,000.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from depsue_research.paper.cells import Cell, Result
from depsue_research.paper.recipe import Recipe, load_recipe, recipe_folder
from depsue_research.paper.run_cell import run_cell

COLUMNS = "| what differs from the recipe | value / pi0's | novelty | bound | need | time |"


def options_table(data: Path | None, level: float, seed: int) -> Iterator[str]:
    """One Markdown table, line after line as cells finish; times are ratios to the first row's.

    Args:
        data: the folder with the data set's files; None looks below DEPSUE_DATA.
        level: beta of the cell.
        seed: of the cell.
    """
    recipe = load_recipe(recipe_folder() / "paper-movielens.toml")
    cell = Cell(seed, level, "depsue_1")
    yield COLUMNS
    yield "|---|--:|--:|--:|--:|--:|"
    first: Result | None = None
    for name, changed in variants(recipe).items():
        result = run_cell(changed, cell, data)
        first = first or result
        yield row(name, result, first)


def variants(recipe: Recipe) -> dict[str, Recipe]:
    """The recipe and what is changed, one thing at a time; all but the first save the bound."""
    ten = recipe.with_options(bound_every=10)

    def with_safe(**options: int) -> Recipe:
        return replace(ten, safe_opg=replace(ten.safe_opg, **options))  # type: ignore[arg-type]

    return {
        "nothing: the bound at every step, batches of 64, all actions": recipe,
        "bound every 10 steps": ten,
        "bound every 100 steps": recipe.with_options(bound_every=100),
        "bound every 10 steps, batches of 256": with_safe(batch=256),
        "bound every 10 steps, 32 sampled actions": with_safe(sampled_actions=32),
    }


def row(name: str, result: Result, first: Result) -> str:
    """One line of the table."""
    (deployed,) = result["deployments"]
    time = sum(result["seconds"].values()) / sum(first["seconds"].values())
    ratio = deployed["value_test"] / result["logging"]["value_test"]
    return (
        f"| {name} | {ratio:.4f} | {deployed['novelty_test']:.4f} | {deployed['bound']:.4f} "
        f"| {deployed['need']:.4f} | {time:.2f} |"
    )
