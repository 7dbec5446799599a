"""Runs that went as the paper says, or otherwise, and the claims on them."""

from typing import Any

from research.tests.paper.outputs.made_up import Story, made_up_runs, movielens

from depsue_research.paper.cells import Cell
from depsue_research.paper.outputs.claims import all_claims
from depsue_research.paper.outputs.evidence import Claim
from depsue_research.paper.outputs.reading import DEPSUE, NAIVE, OPG
from depsue_research.paper.recipe import Recipe, deployments_of

LOGGING = {-24: 0.647, -16: 0.69, -8: 0.757, 0: 0.82, 8: 0.869, 16: 0.908, 24: 0.938}
"""V(pi0) / V(pi*) of the paper."""


def as_the_paper_says(cell: Cell) -> dict[str, Any]:
    """A MovieLens run in which all statements of the paper hold."""
    beta, seed, method = cell.level, cell.seed, cell.method
    good, poor = beta > 0, beta < 0
    figures: dict[str, Any] = {
        "pi0": 0.3 * LOGGING[int(beta)],
        "best": 0.3,
        "uniform": 0.3 * 0.82,
        "q": (0.28 if good else 0.22, 0.25),
    }
    if (
        method in NAIVE
    ):  # novelty either high or none: a large deviation, at least .1 in two of five
        figures |= {"values": 0.85 if good else 1.2, "novelties": 0.7 if seed < 2 else 0.0}
        figures |= {"q_hat": (0.28, 0.28), "estimates": (0.5, 1.3, 1.2 if seed % 2 else 0.9)}
    elif method == "opg_cql":
        unsafe = -24 < beta <= 0
        figures |= {"values": 0.88 if unsafe else 0.99, "novelties": 0.9 if seed == 0 else 0.05}
        figures |= {
            "q_hat": (0.4, 0.02),
            "estimates": (1.1 if seed % 2 else 0.9, 1.2, 0.9 + seed / 25),
        }
    elif method in DEPSUE:
        rank = DEPSUE.index(method)
        bold = 0.03 if good else 0.10
        k = (1, 2, 5)[rank]
        figures |= {
            "values": [1.05 + 0.01 * i for i in range(k)],
            "novelties": [bold * (1 + 0.1 * rank * (i + 1) / k) for i in range(k)],
            "bounds": 0.97 if abs(beta) <= 8 else 0.96,
            "margins": 0.2 if poor else 0.05,
        }
    elif method.startswith("explore"):
        k = deployments_of(method)
        figures |= {"values": [1.1] * k, "novelties": [0.2 + 0.05 * i for i in range(k)]}
    return figures


def on_wiki10(cell: Cell) -> dict[str, Any]:
    """A Wiki10 run in which all statements of the paper hold."""
    figures: dict[str, Any] = {"pi0": 0.25, "uniform": 0.201}
    if cell.method in OPG:
        figures |= {"values": 0.7}
    elif cell.method == "naive_safe":
        figures |= {"values": 0.99, "novelties": 0.05}
    else:
        k = deployments_of(cell.method)
        figures |= {"values": 1.05, "novelties": [0.06 + 0.01 * i for i in range(k)]}
    return figures


def claim_on(words: str, recipe: Recipe, story: Story, **options: Any) -> Claim:
    """The first claim whose statement contains the words."""
    claims = all_claims(made_up_runs(recipe, story, **options))
    return next(claim for claim in claims if words in claim.statement)


def movielens_claim(words: str, changes: Story = lambda cell: {}, **options: Any) -> Claim:
    return claim_on(words, movielens(), lambda c: {**as_the_paper_says(c), **changes(c)}, **options)


def only(methods: tuple[str, ...], **figures: Any) -> Story:
    return lambda cell: figures if cell.method in methods else {}


def uniform(cell: Cell) -> dict[str, Any]:
    """OPG (naive) near the uniform policy, but never below the floor."""
    value = max(0.955, 0.82 / LOGGING[int(cell.level)])
    return {"values": value, "novelties": 0.199} if cell.method in NAIVE else {}
