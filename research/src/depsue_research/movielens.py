"""The MovieLens simulator of the paper's appendix, and the two worlds (train, test) of a seed.

Each categorical feature of a user (gender, age, occupation, zip region) and of a movie (year,
genre) has a 5-dimensional embedding, each user and movie a 10-dimensional one of its own: x has
30 dimensions, e_a has 20. An MLP (100, 50) of both gives logit q; all of it is trained on
whether a rating has five stars.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import nn

from depsue import rng
from depsue.data.catalogue import ActionCatalogue
from depsue.data.checks import FloatArray, IntArray
from depsue.errors import require
from depsue.progress import Watch, silent
from depsue.world import RewardTable, World, softmax_of_logit
from depsue_research.movielens_files import MovieLens


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
    kept = simulator.state_dict()
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
        kept = {name: value.clone() for name, value in simulator.state_dict().items()}
    simulator.load_state_dict(kept)
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
    catalogue: ActionCatalogue
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
        catalogue=ActionCatalogue(movies, np.arange(len(movies)) >= supported, features),
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
