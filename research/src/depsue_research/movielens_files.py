"""MovieLens-1M as a user downloads it: found, read, and held against its published counts.

F. M. Harper and J. A. Konstan. 2015. The MovieLens Datasets: History and Context. ACM
Transactions on Interactive Intelligent Systems 5, 4. The licence allows research use and forbids
redistribution, so nothing of it is shipped.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from depsue.data.checks import FloatArray, IntArray
from depsue.errors import DataError, FileError, require
from depsue_research.data_files import require_count, require_files, require_sha256

FILES = ("users.dat", "movies.dat", "ratings.dat")
STARS = (56_174, 107_557, 261_197, 348_971, 226_310)
"""How many ratings of 1, 2, 3, 4 and 5 stars there are."""
STARS_OF = {"1": 1, "2": 2, "3": 3, "4": 4, "5": 5}
SHA256 = {
    "users.dat": "1dc3a95300cb19f7c10e027daf29b8cdf1d908dab65b5edfb45950aa389a10a3",
    "movies.dat": "0140fc2356357c1a851d0f52e893a1e4d3696df632c4141cea8d5bc3d621f0b9",
    "ratings.dat": "f8b17a948f6989e77fab98068ccff0ace87b387c2f20939fbbc04c27b4a6b249",
}
"""Of ratings.dat: of its lines without the fourth field, the time, which some copies lack."""
CURE = (
    "download ml-1m.zip from https://grouplens.org/datasets/movielens/1m/, unpack it, and name the "
    "folder with --data, or the folder above it with the variable DEPSUE_DATA"
)


@dataclass(frozen=True, eq=False)
class MovieLens:
    """The ratings, and the categorical features of users and movies.

    Args:
        user_features: (6040, 4) codes of gender, age, occupation and zip region (first digit).
        movie_features: (3883, 2) codes of year and first genre.
        user: (n,) row of `user_features` of each rating.
        movie: (n,) row of `movie_features` of each rating.
        stars: (n,) 1 to 5.
    """

    user_features: IntArray
    movie_features: IntArray
    user: IntArray
    movie: IntArray
    stars: IntArray

    @property
    def liked(self) -> FloatArray:
        """(n,) 1 where a rating has five stars: the paper's positive feedback."""
        return np.asarray(self.stars == 5, dtype=np.float32)


def read_movielens(folder: str | Path, *, official: bool = True) -> MovieLens:
    """Read users.dat, movies.dat and ratings.dat (with or without timestamps), all checked.

    Args:
        folder: where the three files are.
        official: hold them against the published counts and against SHA-256 sums.
    """
    target = Path(folder)
    require_files(target, FILES, "MovieLens-1M", CURE)
    if official:
        for name in ("users.dat", "movies.dat"):
            require_sha256(name, (target / name).read_bytes(), SHA256[name], CURE)
    users = _fields(target / "users.dat", 5)
    movies = _fields(target / "movies.dat", 3)
    user_of = {row[0]: place for place, row in enumerate(users)}
    movie_of = {row[0]: place for place, row in enumerate(movies)}
    user, movie, stars = _ratings(target / "ratings.dat", user_of, movie_of, official)
    return MovieLens(
        user_features=np.stack(
            [_codes([row[k] for row in users]) for k in (1, 2, 3)]
            + [_codes([row[4][:1] for row in users])],
            axis=1,
        ),
        movie_features=np.stack(
            [
                _codes([row[1].rstrip()[-5:-1] for row in movies]),
                _codes([row[2].split("|")[0] for row in movies]),
            ],
            axis=1,
        ),
        user=user,
        movie=movie,
        stars=stars,
    )


def _ratings(
    path: Path, user_of: dict[str, int], movie_of: dict[str, int], official: bool
) -> tuple[IntArray, IntArray, IntArray]:
    rows = [line.split("::", 3)[:3] for line in _lines(path)]
    try:
        user = np.array([user_of[row[0]] for row in rows])
        movie = np.array([movie_of[row[1]] for row in rows])
        stars = np.array([STARS_OF[row[2]] for row in rows])
    except (KeyError, IndexError, ValueError) as problem:
        raise DataError(
            "every line of ratings.dat must be user::movie::stars, of users and movies listed",
            column="ratings.dat",
            found=f"{type(problem).__name__}: {problem}",
            cure=CURE,
        ) from problem
    if official:
        require_count("the ratings in ratings.dat", len(rows), sum(STARS), CURE)
        for place, expected in enumerate(STARS, start=1):
            found = int((stars == place).sum())
            require_count(f"the ratings of {place} stars", found, expected, CURE)
        without_times = "\n".join("::".join(row) for row in rows).encode("latin-1")
        require_sha256("ratings.dat (times left out)", without_times, SHA256["ratings.dat"], CURE)
    return user, movie, stars


def _lines(path: Path) -> list[str]:
    """The lines; not splitlines(), which would cut at bytes that are letters elsewhere."""
    return path.read_text("latin-1").rstrip("\n").split("\n")


def _fields(path: Path, width: int) -> list[list[str]]:
    rows = [line.split("::") for line in _lines(path)]
    for place, row in enumerate(rows):
        require(
            len(row) == width,
            f"every line of {path.name} must have {width} fields separated by ::",
            found=f"line {place + 1} has {len(row)}",
            cure=CURE,
            error=FileError,
        )
    return rows


def _codes(values: list[str]) -> IntArray:
    codes: IntArray = np.unique(values, return_inverse=True)[1]
    return codes
