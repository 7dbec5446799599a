"""A made-up data set in the format of MovieLens-1M, and a recipe that takes seconds."""

from pathlib import Path

import numpy as np
import pytest

from depsue_research.paper.recipe import Recipe, recipe_from

USERS, MOVIES, RATINGS = 60, 40, 1_500
GENRES = ("Action", "Comedy", "Drama", "Children's", "Film-Noir")


@pytest.fixture(scope="session")
def movielens_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """users.dat, movies.dat and ratings.dat as GroupLens writes them, of nobody."""
    draw = np.random.default_rng(5)
    users = [
        f"{user}::{'FM'[draw.integers(2)]}::{draw.choice([1, 18, 25, 35, 45, 50, 56])}"
        f"::{draw.integers(21)}::{draw.integers(100_000):05d}"
        for user in range(1, USERS + 1)
    ]
    movies = [
        f"{2 * movie}::Caf\xe9 {movie}, The ({draw.integers(1930, 2001)})"
        f"::{'|'.join(draw.choice(GENRES, draw.integers(1, 4), replace=False))}"
        for movie in range(1, MOVIES + 1)
    ]
    pairs = draw.choice(USERS * MOVIES, RATINGS, replace=False)
    ratings = [
        f"{pair // MOVIES + 1}::{2 * (pair % MOVIES + 1)}::{draw.integers(1, 6)}"
        f"::{draw.integers(956_700_000, 1_046_500_000)}"
        for pair in np.sort(pairs)
    ]
    folder = tmp_path_factory.mktemp("ml-1m")
    for name, lines in (("users", users), ("movies", movies), ("ratings", ratings)):
        (folder / f"{name}.dat").write_text("\n".join(lines) + "\n", "latin-1")
    return folder


@pytest.fixture(scope="session")
def small_recipe() -> Recipe:
    """All methods at two levels, with few actions, rows and steps."""
    training = {"steps": 40, "batch": 32, "hidden": [16], "standardise": False}
    rewards = {"hidden": [8], "batch": 256, "max_epochs": 2}
    text = {
        "experiment": "movielens",
        "preset": "paper",
        "official_data": False,
        "levels": [-8, 8],
        "supported": 20,
        "novel": 5,
        "rows": 2_000,
        "validation_rows": 500,
        "opg": {**training, "rate": 0.1},
        "safe_opg": {**training, "bound_every": 5},
        "rewards": {**rewards, "members": 2},
        "cql": {**rewards, "members": 1, "conservatism": 2.0},
    }
    return recipe_from(text, "small")
