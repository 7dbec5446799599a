"""Made-up results of cells, with figures that a test knows."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from depsue_research.paper.cells import Cell, Result, cells_of
from depsue_research.paper.outputs.reading import Runs
from depsue_research.paper.recipe import Recipe, deployments_of, recipe_from

BETAS = (-24.0, -16.0, -8.0, 0.0, 8.0, 16.0, 24.0)
Story = Callable[[Cell], dict[str, Any]]
"""What differs from the defaults of `made_up_cell`, cell by cell."""


def movielens(**changes: Any) -> Recipe:
    return recipe_from({"experiment": "movielens", "levels": list(BETAS), **changes}, "made-up")


def wiki10(**changes: Any) -> Recipe:
    changes = {"supported": 8000, "novel": 2000, "validation_rows": 0, **changes}
    return recipe_from({"experiment": "wiki10", "levels": [0.8, 0.5, 0.2], **changes}, "made-up")


def made_up_cell(
    recipe: Recipe,
    cell: Cell,
    *,
    values: Sequence[float] | float = 1.0,
    novelties: Sequence[float] | float = 0.2,
    train: Sequence[float] | None = None,
    pi0: float = 0.25,
    best: float = 0.3,
    best_novelty: float = 0.18,
    uniform: float = 0.25,
    bounds: Sequence[float] | float = 0.97,
    margins: Sequence[float] | float = 0.0,
    lambdas: Sequence[float] | float = 0.5,
    regulariser: Sequence[float] = (-1.6, -1.5, -1.4, -1.3),
    bound_history: Sequence[float] = (0.9, 0.92, 0.95, 0.97),
    estimates: tuple[float, float, float] = (1.0, 1.0, 1.0),
    q: tuple[float, float] = (0.25, 0.25),
    q_hat: tuple[float, float] = (0.25, 0.25),
) -> Result:
    """A cell's result; values, bounds, margins and estimates (IPS, DM, DR) are over V(pi0)."""
    k = deployments_of(cell.method)
    values, novelties = _each(values, k), _each(novelties, k)
    result: Result = {
        "recipe": recipe.name,
        "config": recipe.hash_of(cell.method),
        "version": "0.1.0",
        "method": cell.method,
        "level": cell.level,
        "seed": cell.seed,
        "logging": {
            f"{name}_{users}": figure
            for users in ("train", "test")
            for name, figure in (
                ("value", pi0),
                ("best", best),
                ("best_novelty", best_novelty),
                ("uniform", uniform),
            )
        },
        "on_policy": pi0,
        "deployments": [
            {
                "k": i + 1,
                "value_test": values[i] * pi0,
                "value_train": (train or values)[i] * pi0,
                "novelty_test": novelties[i],
                "novelty_train": novelties[i],
            }
            for i in range(k)
        ],
        "seconds": {"world": 1.0, "policy": 2.0, "evaluation": 0.5},
        "peak_mib": 600.0 + cell.seed,
    }
    if cell.method.startswith("depsue"):
        bounds, margins, lambdas = _each(bounds, k), _each(margins, k), _each(lambdas, k)
        for i, deployment in enumerate(result["deployments"]):
            need = (recipe.floor - margins[i]) * pi0
            deployment |= {"margin": margins[i] * pi0, "need": need, "bound": bounds[i] * pi0}
            deployment |= {"passed": bounds[i] * pi0 > need, "rows": 100}
        result["history"] = [
            {
                "step": [1, 10, 20, 30],
                "novelty": [0.2] * 4,
                "regulariser": list(regulariser),
                "bound": [b * pi0 for b in bound_history],
                "lambda": [lambdas[i]] * 4,
            }
            for i in range(k)
        ]
        result["seconds"]["bound"] = 4.0
    if cell.method.startswith("opg") and recipe.experiment == "movielens":
        names = ("ips", "dm", "dr")
        result["validation"] = {n: e * pi0 for n, e in zip(names, estimates, strict=True)}
        result["validation"]["on_policy"] = pi0
        result["distributions"] = {
            name: {kind: _peak(m) for kind, m in zip(("supported", "novel"), means, strict=True)}
            for name, means in (("q", q), ("q_hat", q_hat))
        }
    return result


def made_up_runs(
    recipe: Recipe,
    story: Story = lambda cell: {},
    *,
    seeds: Iterable[int] = range(5),
    without: Callable[[Cell], bool] = lambda cell: False,
) -> Runs:
    """The runs of a recipe in which every cell went as the story says."""
    cells = [cell for cell in cells_of(recipe, seeds) if not without(cell)]
    return Runs(recipe, {cell: made_up_cell(recipe, cell, **story(cell)) for cell in cells})


def _each(figure: Sequence[float] | float, k: int) -> list[float]:
    return [float(figure)] * k if isinstance(figure, int | float) else list(figure)


def _peak(mean: float) -> dict[str, Any]:
    """A histogram of three bins of width .005 around a mean."""
    return {"first": int(mean * 200) - 1, "shares": [0.25, 0.5, 0.25], "mean": mean}
