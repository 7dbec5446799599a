"""What the options that save time do to a result: one MovieLens cell with each of them.

Usage: python benchmarks/options.py [--data FOLDER] [--level -8] [--seed 0] [--out FILE]

Runs DEPSUE (K=1) of recipes/paper-movielens.toml with the bound at every step, every 10 and every
100, with batches of 256, and with q-hat asked about 32 sampled actions instead of all 1,000.
Writes one Markdown table, the seconds as ratios to the first row.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from depsue_research.paper.cells import Cell, Result
from depsue_research.paper.recipe import Recipe, load_recipe, recipe_folder
from depsue_research.paper.run_cell import run_cell

COLUMNS = "| what differs from the recipe | value / pi0's | novelty | bound | need | time |"


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
    (found,) = result["deployments"]
    time = sum(result["seconds"].values()) / sum(first["seconds"].values())
    ratio = found["value_test"] / result["logging"]["value_test"]
    return (
        f"| {name} | {ratio:.4f} | {found['novelty_test']:.4f} | {found['bound']:.4f} "
        f"| {found['need']:.4f} | {time:.2f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=None)
    parser.add_argument("--level", type=float, default=-8.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    recipe = load_recipe(recipe_folder() / "paper-movielens.toml")
    cell = Cell(options.seed, options.level, "depsue_1")
    lines = [COLUMNS, "|---|--:|--:|--:|--:|--:|"]
    first: Result | None = None
    for name, changed in variants(recipe).items():
        result = run_cell(changed, cell, options.data)
        first = first or result
        lines.append(row(name, result, first))
        print(lines[-1], flush=True)
    if options.out is not None:
        options.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
