from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from depsue.errors import ConfigError
from depsue.rng import cores, derive, generator, on_all_cores, one_thread, torch_generator


def test_the_same_names_give_the_same_stream() -> None:
    assert derive(7, "deploy", 2) == derive(7, "deploy", 2)
    a, b = generator(7, "deploy", 2), generator(7, "deploy", 2)
    np.testing.assert_array_equal(a.random(5), b.random(5))


def test_seeds_are_pinned() -> None:
    # results that were published with a seed must come out again
    assert derive(0) == 2033344993903900207
    assert derive(7, "deploy", 2) == 4166878600243928910


def test_other_names_give_other_streams() -> None:
    paths: list[tuple[Any, ...]] = [
        (),
        ("a",),
        ("b",),
        ("a", "b"),
        ("b", "a"),
        ("a/b",),
        ("a%2Fb",),
        ("ab",),
        ("a", ""),
        ("", "a"),
        ("a", 0),
        ("a", 1),
        (0, 1),
    ]
    seeds = [derive(seed, *path) for seed, path in itertools.product((0, 1, -1, 10**30), paths)]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_the_order_of_drawing_does_not_matter() -> None:
    a, b = generator(1, "a"), generator(1, "b")
    first = (a.random(3), b.random(3))
    b, a = generator(1, "b"), generator(1, "a")
    b.random(100)
    np.testing.assert_array_equal(a.random(3), first[0])
    np.testing.assert_array_equal(generator(1, "b").random(3), first[1])


def test_streams_are_uncorrelated() -> None:
    draws = np.stack([generator(3, "user", k).normal(size=400) for k in range(30)])
    correlations = np.asarray(np.corrcoef(draws))[np.triu_indices(30, 1)]
    assert np.abs(correlations).max() < 0.25  # 435 pairs, standard deviation 0.05
    assert np.abs(correlations.mean()) < 0.01


def test_torch_streams_follow_the_same_rule() -> None:
    import torch

    def draw(*names: Any) -> list[float]:
        return torch.rand(4, generator=torch_generator(5, *names)).tolist()

    assert draw("a") == draw("a") != draw("b")


@pytest.mark.parametrize("seed", [1.5, "1", None, True, [1]])
def test_a_seed_is_a_whole_number(seed: Any) -> None:
    with pytest.raises(ConfigError, match="seed must be a whole number"):
        derive(seed)


def test_seeds_may_be_of_any_integer_type() -> None:
    seeds: list[Any] = [3, np.int64(3), np.uint8(3)]
    assert len({derive(seed, "a") for seed in seeds}) == 1


def test_one_thread_within_the_block_and_as_before_after_it() -> None:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with pytest.raises(ZeroDivisionError), one_thread():
            assert torch.get_num_threads() == 1
            _ = 1 / 0
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_work_is_cut_into_slices_and_an_error_in_one_is_raised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert cores() == 3
    monkeypatch.setenv("OMP_NUM_THREADS", "all")
    assert cores() >= 1
    out = np.zeros(10)

    def square(piece: slice) -> None:
        out[piece] = np.arange(10)[piece] ** 2

    on_all_cores(square, 10, 4)
    np.testing.assert_array_equal(out, np.arange(10) ** 2)

    def broken(piece: slice) -> None:
        if piece.start:
            raise ValueError("the second slice")

    with pytest.raises(ValueError, match="the second slice"):
        on_all_cores(broken, 10, 5)
