"""Mean rewards as labels say the same as the table they stand for."""

import numpy as np
import pytest

from depsue.errors import ConfigError
from depsue.world import LabelRewards, MeanRewards, RewardTable

STARTS = np.array([0, 2, 2, 5, 6])
LABELS = np.array([1, 4, 0, 2, 3, 4])
NOVEL = np.array([False, False, False, True, True])


def both() -> tuple[MeanRewards, MeanRewards]:
    labels = LabelRewards(STARTS, LABELS, 5, hit=0.8, miss=0.2)
    table = np.full((4, 5), 0.2)
    for context in range(4):
        table[context, LABELS[STARTS[context] : STARTS[context + 1]]] = 0.8
    return labels, RewardTable(table)


def test_labels_agree_with_their_table() -> None:
    labels, table = both()
    assert labels.shape == table.shape == (4, 5)
    np.testing.assert_array_equal(labels.q, table.q)
    context, action = np.divmod(np.arange(20), 5)
    np.testing.assert_array_equal(labels.pairs(context, action), table.pairs(context, action))
    np.testing.assert_array_equal(labels.best(), table.best())
    np.testing.assert_allclose(labels.best_within(NOVEL), table.best_within(NOVEL))


@pytest.mark.parametrize("piece", [slice(0, 4), slice(1, 3), slice(3, 4)])
def test_expected_rewards_agree_with_the_table(piece: slice) -> None:
    labels, table = both()
    pi = np.random.default_rng(1).dirichlet(np.ones(5), piece.stop - piece.start)
    np.testing.assert_allclose(labels.expected(piece, pi), table.expected(piece, pi))


def test_best_shares_by_hand() -> None:
    labels, _ = both()  # contexts: one of two novel; no label, so all tie; one of three; one
    np.testing.assert_allclose(labels.best_within(NOVEL), [1 / 2, 2 / 5, 1 / 3, 1])


def test_rewards_outside_their_range_are_refused() -> None:
    with pytest.raises(ConfigError, match="must lie in"):
        RewardTable(np.array([[1.5, 0.1]]))
    with pytest.raises(ConfigError, match="a hit's not below"):
        LabelRewards(STARTS, LABELS, 5, hit=0.1, miss=0.2)
