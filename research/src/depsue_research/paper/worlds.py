"""From a recipe, a level and a seed to the worlds of training and test contexts."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path

import numpy as np

from depsue.data.checks import Array
from depsue.world import World
from depsue_research.data_files import data_folder
from depsue_research.movielens import (
    MovieLens,
    MovieLensSetting,
    movielens_setting,
    read_movielens,
    train_simulator,
)
from depsue_research.paper.recipe import Recipe
from depsue_research.wiki10 import (
    Documents,
    Wiki10Setting,
    documents_of,
    read_wiki10,
    wiki10_setting,
)

FOLDERS = {"movielens": "ml-1m", "wiki10": "wiki10"}


def worlds_of(recipe: Recipe, level: float, seed: int, data: Path | None) -> tuple[World, World]:
    """(training, test) worlds; what levels share is kept for the next cell of the same seed.

    Args:
        recipe: the experiment.
        level: beta or epsilon.
        seed: of all that is drawn.
        data: the folder with the data set's files; None looks below DEPSUE_DATA.
    """
    folder = data_folder(FOLDERS[recipe.experiment], data)
    size, official = (recipe.supported, recipe.novel), recipe.official_data
    if recipe.experiment == "wiki10":
        return _wiki10(folder, official, seed, size).worlds(level)
    return _movielens(folder, official, recipe.preset, seed, size).worlds(level)


def check_data(recipe: Recipe, data: Path | None) -> dict[str, object]:
    """Read the data set, so that what is missing or wrong is said before any work.

    Returns what a cell records of its data: a hash, and whether titles stand in for texts.
    """
    folder = data_folder(FOLDERS[recipe.experiment], data)
    if recipe.experiment == "wiki10":
        documents = _wiki10_data(folder, recipe.official_data, recipe.supported + recipe.novel)
        parts = (documents.contexts, documents.starts, documents.actions)
        return {"sha256": _digest(*parts), "of_titles": documents.of_titles}
    ratings = _movielens_data(folder, recipe.official_data)
    features = (ratings.user_features, ratings.movie_features)
    return {"sha256": _digest(*features, ratings.user, ratings.movie, ratings.stars)}


def _digest(*arrays: Array) -> str:
    whole = hashlib.sha256()
    for array in arrays:
        whole.update(f"{array.dtype}{array.shape}".encode())
        whole.update(np.ascontiguousarray(array).tobytes())
    return whole.hexdigest()[:16]


@lru_cache(maxsize=1)
def _movielens_data(folder: Path, official: bool) -> MovieLens:
    return read_movielens(folder, official=official)


@lru_cache(maxsize=1)
def _movielens(
    folder: Path, official: bool, preset: str, seed: int, size: tuple[int, int]
) -> MovieLensSetting:
    data = _movielens_data(folder, official)
    simulated = train_simulator(data, preset, seed=seed)
    return movielens_setting(data, simulated, seed=seed, supported=size[0], novel=size[1])


@lru_cache(maxsize=1)
def _wiki10_data(folder: Path, official: bool, n_actions: int) -> Documents:
    return documents_of(read_wiki10(folder, official=official), n_actions)


@lru_cache(maxsize=1)
def _wiki10(folder: Path, official: bool, seed: int, size: tuple[int, int]) -> Wiki10Setting:
    documents = _wiki10_data(folder, official, sum(size))
    return wiki10_setting(documents, seed=seed, supported=size[0])
