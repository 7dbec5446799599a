"""MovieLens: files are read and checked; the simulator has the paper's shape and learns."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from depsue.errors import ConfigError, DataError, FileError
from depsue_research.movielens import (
    PRESETS,
    MovieLens,
    SimulatorSettings,
    movielens_setting,
    read_movielens,
    train_simulator,
)

USERS = ["1::F::1::10::48067", "2::M::56::16::70072", "3::M::25::15::55117"]
MOVIES = [
    "1::Toy Story (1995)::Animation|Children's|Comedy",
    "2::Jumanji (1995)::Adventure|Children's",
    "9::Café (1996)::Comedy",
]
RATINGS = ["1::1::5::978824268", "1::9::3::978302174", "2::2::5::978298124", "3::1::1::978298147"]


def written(folder: Path, **changed: list[str]) -> Path:
    files = {"users": USERS, "movies": MOVIES, "ratings": RATINGS, **changed}
    for name, lines in files.items():
        (folder / f"{name}.dat").write_text("\n".join(lines) + "\n", "latin-1")
    return folder


def made_up(n_users: int = 80, n_movies: int = 50) -> MovieLens:
    """Ratings in which one genre is liked and nothing else matters."""
    draw = np.random.default_rng(3)
    genre = np.arange(n_movies) % 5
    user, movie = np.divmod(np.arange(n_users * n_movies), n_movies)
    liked = draw.random(len(user)) < np.where(genre[movie] == 0, 0.8, 0.1)
    features = [draw.integers(0, k, n_users) for k in (2, 7, 21, 10)]
    year = draw.integers(0, 30, n_movies)
    return MovieLens(
        np.stack(features, 1), np.stack([year, genre], 1), user, movie, np.where(liked, 5, 3)
    )


def test_files_are_read_with_and_without_times(tmp_path: Path) -> None:
    data = read_movielens(written(tmp_path), official=False)
    assert data.stars.tolist() == [5, 3, 5, 1]
    assert data.liked.tolist() == [1, 0, 1, 0]
    assert data.movie.tolist() == [0, 2, 1, 0]
    assert data.user_features.shape == (3, 4) and data.movie_features.shape == (3, 2)
    assert data.movie_features[:, 0].tolist() == [0, 0, 1]  # 1995, 1995, 1996
    assert len(set(data.movie_features[:, 1])) == 3  # Animation, Adventure, Comedy
    assert data.user_features[:, 0].tolist() == [0, 1, 1]
    short = written(tmp_path, ratings=[line.rsplit("::", 1)[0] for line in RATINGS])
    np.testing.assert_array_equal(read_movielens(short, official=False).stars, data.stars)


def test_a_missing_file_is_named_with_where_to_get_it(tmp_path: Path) -> None:
    (written(tmp_path) / "ratings.dat").unlink()
    with pytest.raises(FileError, match=r"no ratings\.dat in .*grouplens\.org.*DEPSUE_DATA"):
        read_movielens(tmp_path)


def test_other_files_than_the_published_ones_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"users\.dat must have the SHA-256"):
        read_movielens(written(tmp_path))


@pytest.mark.parametrize("line", ["1::1", "1::77::5", "7::1::5", "1::1::many"])
def test_bad_ratings_are_refused(tmp_path: Path, line: str) -> None:
    with pytest.raises(DataError, match="user::movie::stars"):
        read_movielens(written(tmp_path, ratings=[*RATINGS, line]), official=False)


def test_bad_users_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"users\.dat must have 5 fields.*line 2 has 2"):
        read_movielens(written(tmp_path, users=[USERS[0], "2::M"]), official=False)


def test_the_simulator_has_the_papers_shape_and_finds_what_is_liked() -> None:
    data = made_up()
    simulated = train_simulator(data, "fitted", seed=1)
    assert simulated.users.shape == (80, 30) and simulated.movies.shape == (50, 20)
    assert simulated.heldout_loss[-1] < simulated.heldout_loss[0]
    q = simulated.q(np.arange(80), np.arange(50))
    liked = np.arange(50) % 5 == 0
    assert q[:, liked].mean() > q[:, ~liked].mean() + 0.3


def test_fitting_stops_when_heldout_loss_rises(monkeypatch: pytest.MonkeyPatch) -> None:
    quick = SimulatorSettings("adam", 0.02, max_epochs=50, heldout=0.1, batch=128)
    monkeypatch.setitem(PRESETS, "fitted", quick)
    losses = train_simulator(made_up(), "fitted", seed=1).heldout_loss
    assert len(losses) < 50 and losses[-1] > min(losses)
    assert all(later < earlier for earlier, later in pairwise(losses[:-1]))


def test_the_simulator_is_the_same_for_the_same_seed() -> None:
    data = made_up()
    first, again, other = (train_simulator(data, "paper", seed=s) for s in (1, 1, 2))
    np.testing.assert_array_equal(first.users, again.users)
    assert not np.array_equal(first.users, other.users)


def test_settings_split_users_and_share_the_logging_policy() -> None:
    data = made_up()
    simulated = train_simulator(data, "paper", seed=1)
    setting = movielens_setting(data, simulated, seed=4, supported=16, novel=4)
    assert len(setting.train) == 64 and len(setting.test) == 16
    assert not set(setting.train) & set(setting.test)
    train, test = setting.worlds(8.0)
    assert train.logging_policy is test.logging_policy
    assert train.catalogue.novel.sum() == 4 and train.novelty(train.logging_policy) == 0
    values = [setting.worlds(beta)[1] for beta in (-8.0, 0.0, 8.0)]
    poor, middle, good = (world.value(world.logging_policy) for world in values)
    assert poor < middle < good < test.best_value()


def test_more_movies_than_there_are_is_refused() -> None:
    data = made_up()
    simulated = train_simulator(data, "paper", seed=1)
    with pytest.raises(ConfigError, match="only 50 rated movies"):
        movielens_setting(data, simulated, seed=0)
