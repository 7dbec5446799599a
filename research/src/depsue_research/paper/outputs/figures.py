"""All figures of a reproduction, in the order in which they are shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from matplotlib.figure import Figure

from depsue_research.paper.outputs.figures_exploration import exploration
from depsue_research.paper.outputs.figures_models import (
    bound_against_r,
    distributions,
    ope_against_truth,
)
from depsue_research.paper.outputs.figures_outcome import over_k, over_levels, stages, wiki10
from depsue_research.paper.outputs.published import Published, published_for
from depsue_research.paper.outputs.reading import Runs


@dataclass(frozen=True, eq=False)
class Picture:
    """A figure with its words.

    Args:
        name: of its files.
        title: one line.
        caption: how to read it.
        figure: the drawing.
    """

    name: str
    title: str
    caption: str
    figure: Figure


FIGURES: tuple[tuple[Callable[[Runs, Published], Figure | None], str, str, str], ...] = (
    (
        exploration,
        "exploration",
        "Novelty against value: certified exploration, DEPSUE, and the paper",
        "The last policy of K deployments, means over the seeds; a line leads from DEPSUE to "
        "certified exploration at the same logging policy. Up and to the right is better.",
    ),
    (
        over_levels,
        "over_levels",
        "Safety and novelty of OPG and Safe OPG over the logging policies",
        "Means with 95% t-intervals; violations with exact binomial intervals.",
    ),
    (
        wiki10,
        "wiki10",
        "Wiki10: value and novelty by epsilon",
        "The last policy of each method: means with 95% t-intervals.",
    ),
    (
        over_k,
        "over_k",
        "DEPSUE with one, two and five deployments",
        "Means with 95% t-intervals.",
    ),
    (
        stages,
        "stages",
        "The five deployments of DEPSUE (K=5)",
        "Means over the seeds. Eq. 9 keeps the average over the deployments so far above the "
        "floor; a single later one may lie below it.",
    ),
    (
        ope_against_truth,
        "ope_against_truth",
        "Validation OPE against the truth",
        "One mark per policy and estimator. Left of the dotted line a policy is worse than pi0; "
        "above the dashed line the estimator accepts it: in the upper left are unsafe policies "
        "accepted, in the lower right safe ones refused. Where estimates are far off, the "
        "vertical scale is stretched around 1.",
    ),
    (
        distributions,
        "distributions",
        "Distributions of q and of both q-hats, supported against novel",
        "Shares of pairs, averaged over the seeds. CQL's row has a scale of its own.",
    ),
    (
        bound_against_r,
        "bound_against_r",
        "R against the bound while Safe OPG trains",
        "Assumption 3 asks that a large R goes with a bound above the floor (dashed). R is a mean "
        "over a few minibatches, so part of its scatter is noise; the bound is of all rows.",
    ),
)
"""Each is drawn from the finished cells and the paper's figures, or None where there is nothing
to draw; with its name, title and caption."""


WITH_MARKS = (over_levels, wiki10, over_k)
HOLLOW = (
    " Hollow marks: the paper's figures of {seeds} seeds. Its one row for OPG (naive) stands "
    "beside mean and min, its rows for K >= 2 beside the last policy and the average: it does not "
    "say which they are."
)


def all_figures(runs: Runs) -> list[Picture]:
    """The figures that this run can fill."""
    paper = published_for(runs.recipe)
    made = []
    for draw, name, title, caption in FIGURES:
        figure = draw(runs, paper)
        if figure is not None:
            hollow = HOLLOW.format(seeds=paper.seeds) if draw in WITH_MARKS and paper.seeds else ""
            titles = " Document titles stand in for document text." if runs.of_titles else ""
            words = f"{caption}{_without_interval(runs, draw)}{hollow}{titles} "
            words += f"Here: {runs.seeds_in_words()}."
            made.append(Picture(name, title, words, figure))
    return made


def _without_interval(runs: Runs, draw: object) -> str:
    """Said where intervals are drawn, but some level of a method has one seed."""
    groups = [len(runs.of(method, level)) for method in runs.methods for level in runs.levels]
    if draw not in WITH_MARKS or 1 not in groups:
        return ""
    return " No interval with one seed" + ("." if max(groups) == 1 else ", where there is but one.")
