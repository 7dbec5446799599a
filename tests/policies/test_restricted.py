"""Policies after the catalogue has changed."""

import numpy as np
import pytest

from depsue.errors import PolicyError
from depsue.policies import ScoreTable, SoftmaxOfScores
from depsue.policies.base import whole
from depsue.policies.restricted import RestrictedPolicy
from depsue.testing.policies import PolicyConformance

DRAW = np.random.default_rng(11)
CONTEXTS = DRAW.normal(size=(5, 2)).astype(np.float32)
ALL = np.ones(4, dtype=bool)
INNER = SoftmaxOfScores(ScoreTable(CONTEXTS, DRAW.normal(size=(5, 4))), 1.5, ALL)
ALLOWED = np.array([True, False, True, True, True, True])


class TestAdapted(PolicyConformance):
    policy, contexts = RestrictedPolicy(INNER, ALLOWED), CONTEXTS


def test_what_stays_keeps_its_odds_and_the_rest_is_never_shown() -> None:
    before, after = whole(INNER, CONTEXTS), whole(RestrictedPolicy(INNER, ALLOWED), CONTEXTS)
    assert after[:, [1, 4, 5]].max() == 0.0
    np.testing.assert_allclose(after[:, 0] / after[:, 3], before[:, 0] / before[:, 3])
    share = RestrictedPolicy(INNER, ALLOWED).withdrawn_share(CONTEXTS)
    assert share == pytest.approx(before[:, 1].max())
    assert (after[:, :4] <= before / (1 - share) + 1e-12).all()


def test_where_nothing_is_left_the_known_ones_are_shown_evenly() -> None:
    only = SoftmaxOfScores(ScoreTable(CONTEXTS, np.zeros((5, 4))), 1.0, [True, False, False, False])
    pi = whole(RestrictedPolicy(only, [False, True, True, True, True]), CONTEXTS)
    np.testing.assert_allclose(pi, np.tile([0, 1 / 3, 1 / 3, 1 / 3, 0], (5, 1)))


@pytest.mark.parametrize("allowed", [[True] * 3, [False] * 4 + [True]])
def test_lists_that_do_not_fit_are_refused(allowed: list[bool]) -> None:
    with pytest.raises(PolicyError, match="that it knows and that may be shown"):
        RestrictedPolicy(INNER, allowed)
