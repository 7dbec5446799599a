"""MovieLens-1M: its files, the simulator of the paper's appendix, and the worlds of a seed.

The files are read as a user downloads them and held against their published counts. (F. M. Harper
and J. A. Konstan. 2015. The MovieLens Datasets: History and Context. ACM Transactions on
Interactive Intelligent Systems 5, 4. The licence allows research use and forbids redistribution, so
nothing of it is shipped.)

The simulator: each categorical feature of a user (gender, age, occupation, zip region) and of a
movie (year, genre) has a 5-dimensional embedding, each user and movie a 10-dimensional one of its
own: x has 30 dimensions, e_a has 20. An MLP (100, 50) of both gives logit q; all of it is trained
on whether a rating has five stars.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import nn

from depsue import rng
from depsue.data.catalogue import Catalogue
from depsue.data.checks import FloatArray, IntArray
from depsue.errors import DataError, FileError, require
from depsue.progress import Watch, silent
from depsue.world import RewardTable, World, softmax_of_logit
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
            count = int((stars == place).sum())
            require_count(f"the ratings of {place} stars", count, expected, CURE)
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


@dataclass(frozen=True)
class SimulatorSettings:
    """How the simulator is trained."""

    optimiser: Literal["sgd", "adam"]
    rate: float
    max_epochs: int
    heldout: float = 0.0
    """Share of the ratings held out; training stops when their loss no longer falls."""
    batch: int = 2048


PRESETS: dict[str, SimulatorSettings] = {
    "paper": SimulatorSettings("sgd", 0.006, max_epochs=1),
    "fitted": SimulatorSettings("adam", 1e-3, max_epochs=20, heldout=0.05),
}
"""`paper`: barely trained, which is what gives the paper's table of logging policies. `fitted`:
until held-out loss stops falling, so that items really differ."""


@dataclass(frozen=True, eq=False)
class Simulated:
    """What the trained simulator knows.

    Args:
        users: (6040, 30) contexts x.
        movies: (3883, 20) action features e_a.
        heldout_loss: binary cross entropy on held-out ratings after each epoch; empty without.
    """

    users: FloatArray
    movies: FloatArray
    network: nn.Sequential
    heldout_loss: tuple[float, ...]

    def q(self, users: IntArray, movies: IntArray) -> FloatArray:
        """(m, A) mean rewards of every pair of the given users and movies."""
        x = torch.from_numpy(self.users[users])
        e = torch.from_numpy(self.movies[movies])
        first = self.network[0]
        assert isinstance(first, nn.Linear)
        out = np.empty((len(x), len(e)), dtype=np.float32)
        with torch.no_grad():
            # The first layer is linear: users and movies go through it apart, so that it is not
            # applied to each of their millions of pairs.
            of_user = x @ first.weight[:, : x.shape[1]].T
            of_movie = e @ first.weight[:, x.shape[1] :].T + first.bias
            for start in range(0, len(x), 16):
                hidden = of_user[start : start + 16, None] + of_movie
                out[start : start + 16] = self.network[1:](hidden)[..., 0].sigmoid().numpy()
        return out


class _Simulator(nn.Module):
    """Embeddings and reward network."""

    def __init__(self, data: MovieLens) -> None:
        super().__init__()
        self.user_features = torch.from_numpy(data.user_features)
        self.movie_features = torch.from_numpy(data.movie_features)
        self.of_user = _embeddings(data.user_features)
        self.of_movie = _embeddings(data.movie_features)
        self.network = nn.Sequential(
            nn.Linear(50, 100), nn.ReLU(), nn.Linear(100, 50), nn.ReLU(), nn.Linear(50, 1)
        )

    def users(self, rows: torch.Tensor) -> torch.Tensor:
        return _embedded(self.of_user, self.user_features, rows)

    def movies(self, rows: torch.Tensor) -> torch.Tensor:
        return _embedded(self.of_movie, self.movie_features, rows)

    def forward(self, users: torch.Tensor, movies: torch.Tensor) -> torch.Tensor:
        inputs = torch.cat([self.users(users), self.movies(movies)], dim=1)
        return self.network(inputs)[:, 0]  # type: ignore[no-any-return]


def train_simulator(data: MovieLens, preset: str, *, seed: int, watch: Watch = silent) -> Simulated:
    """Train the simulator of one seed (about 4 s on one core for `paper`).

    Args:
        data: MovieLens-1M.
        preset: how long, and with which optimiser.
        seed: of weights, order and held-out ratings.
        watch: shows progress.
    """
    require(preset in PRESETS, f"preset must be one of {', '.join(PRESETS)}", found=preset)
    settings = PRESETS[preset]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(rng.derive(seed, "simulator"))
        simulator = _Simulator(data)
    draw = rng.generator(seed, "simulator")
    order = draw.permutation(len(data.stars))
    cut = round(settings.heldout * len(order))
    heldout, train = order[:cut], order[cut:]
    make = torch.optim.SGD if settings.optimiser == "sgd" else torch.optim.Adam
    optimiser = make(simulator.parameters(), lr=settings.rate)
    losses: list[float] = []
    best = simulator.state_dict()
    for epoch in range(settings.max_epochs):
        for rows in _batches(draw.permutation(train), settings.batch):
            optimiser.zero_grad()
            _loss(simulator, data, rows).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        if cut:
            with torch.no_grad():
                losses.append(float(_loss(simulator, data, heldout)))
        words = f"held-out loss {losses[-1]:.4f}" if cut else ""
        stop = cut > 0 and losses[-1] > min(losses)
        watch("simulator", epoch + 1, epoch + 1 if stop else settings.max_epochs, words)
        if stop:
            break
        best = {name: value.clone() for name, value in simulator.state_dict().items()}
    simulator.load_state_dict(best)
    with torch.no_grad():
        return Simulated(
            users=simulator.users(torch.arange(len(data.user_features))).numpy(),
            movies=simulator.movies(torch.arange(len(data.movie_features))).numpy(),
            network=simulator.network,
            heldout_loss=tuple(losses),
        )


@dataclass(frozen=True, eq=False)
class MovieLensSetting:
    """The actions and users of one seed, with their mean rewards; every beta shares them.

    Args:
        contexts: (u, 30) all users, of training and test.
        q: (u, A) mean rewards.
        catalogue: the movies drawn.
        train: users of the training world.
        test: users of the test world.
        seed: of what users do.
    """

    contexts: FloatArray
    q: FloatArray
    catalogue: Catalogue
    train: IntArray
    test: IntArray
    seed: int

    def worlds(self, beta: float) -> tuple[World, World]:
        """The worlds of the training and of the test users, with the same pi0."""
        pi0 = softmax_of_logit(self.contexts, self.q, beta, self.catalogue)
        train, test = (
            World(self.contexts[u], RewardTable(self.q[u]), self.catalogue, pi0, seed=self.seed)
            for u in (self.train, self.test)
        )
        return train, test


def movielens_setting(
    data: MovieLens, simulated: Simulated, *, seed: int, supported: int = 800, novel: int = 200
) -> MovieLensSetting:
    """Draw actions among the rated movies, and split the users with a rating among them 80/20."""
    draw = rng.generator(seed, "movies and users")
    rated = np.unique(data.movie)
    require(
        supported + novel <= len(rated),
        f"there are only {len(rated):,} rated movies",
        found=f"{supported:,} supported and {novel:,} novel ones asked for",
    )
    movies = draw.choice(rated, supported + novel, replace=False)
    users = np.unique(data.user[np.isin(data.movie, movies)])
    features = simulated.movies[movies]
    order = draw.permutation(len(users))
    cut = round(0.8 * len(users))
    return MovieLensSetting(
        contexts=simulated.users[users],
        q=simulated.q(users, movies),
        catalogue=Catalogue(movies, np.arange(len(movies)) >= supported, features),
        train=np.sort(order[:cut]),
        test=np.sort(order[cut:]),
        seed=seed,
    )


def _embeddings(features: IntArray) -> nn.ModuleList:
    sizes = [(int(column.max()) + 1, 5) for column in features.T] + [(len(features), 10)]
    return nn.ModuleList(nn.Embedding(*size) for size in sizes)


def _embedded(parts: nn.ModuleList, features: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    codes = [*features[rows].T, rows]
    return torch.cat([part(code) for part, code in zip(parts, codes, strict=True)], dim=1)


def _batches(rows: IntArray, size: int) -> list[IntArray]:
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def _loss(simulator: _Simulator, data: MovieLens, rows: IntArray) -> torch.Tensor:
    logits = simulator(torch.from_numpy(data.user[rows]), torch.from_numpy(data.movie[rows]))
    target = torch.from_numpy(data.liked[rows])
    return nn.functional.binary_cross_entropy_with_logits(logits, target)
