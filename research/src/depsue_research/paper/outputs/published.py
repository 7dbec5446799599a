"""The figures that the paper published, to stand beside ours."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from depsue.errors import require, short
from depsue_research.paper.recipe import LEVEL, Recipe

ROWS = {"opg_mean": "opg_naive", "opg_min": "opg_naive"}
"""Rows of the paper by our methods, where the names differ: it has one row for both."""


@dataclass(frozen=True)
class Published:
    """What the paper printed of one experiment.

    Args:
        reference: the paper's title.
        seeds: how many its figures rest on; 0 where nothing was published.
        levels: beta or epsilon of its columns.
        level_names: its words for them, if it has any.
        notes: what to know when reading them.
        figures: by table and row, one number a level.
        validation: its error rates "type_1" and "type_2", by estimator and row.
    """

    reference: str
    seeds: int = 0
    levels: tuple[float, ...] = ()
    level_names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    figures: Mapping[str, Mapping[str, Sequence[float]]] = field(default_factory=dict)
    validation: Mapping[str, Mapping[str, Mapping[str, float]]] = field(default_factory=dict)

    def get(self, table: str, method: str, level: float) -> float | None:
        """The figure of a method at a level; None where the paper has none."""
        row = self.figures.get(table, {}).get(ROWS.get(method, method))
        if row is None or level not in self.levels:
            return None
        return row[self.levels.index(level)]

    def row(self, table: str, method: str) -> dict[float, float]:
        """The figures of a method, by level; empty where the paper has none."""
        row = self.figures.get(table, {}).get(ROWS.get(method, method), ())
        return dict(zip(self.levels, row, strict=False))

    def error_rate(self, estimator: str, method: str, name: str) -> float | None:
        """An error rate of validation OPE; None where the paper has none."""
        return self.validation.get(estimator, {}).get(ROWS.get(method, method), {}).get(name)

    def level_name(self, level: float) -> str:
        """The paper's word for a level, or an empty string."""
        return dict(zip(self.levels, self.level_names, strict=False)).get(level, "")


@cache
def published(experiment: str) -> Published:
    """The paper's figures of "movielens" or "wiki10"."""
    require(
        experiment in LEVEL,
        f"experiment must be one of {', '.join(LEVEL)}",
        found=short(experiment),
        cure="name one of the paper's experiments",
    )
    whole: dict[str, Any] = json.loads(
        (files("depsue_research.paper.outputs") / "published.json").read_text("utf-8")
    )
    part = whole[experiment]
    return Published(
        reference=whole["reference"],
        seeds=part["seeds"],
        levels=tuple(float(level) for level in part["levels"]),
        level_names=tuple(part.get("level_names", ())),
        notes=tuple(part["notes"]),
        figures=part["figures"],
        validation=part["validation"],
    )


def published_for(recipe: Recipe) -> Published:
    """What may stand beside the results of a recipe: nothing beside another simulator's."""
    whole = published(recipe.experiment)
    if recipe.experiment == "movielens" and recipe.preset != "paper":
        return Published(whole.reference)
    return whole
