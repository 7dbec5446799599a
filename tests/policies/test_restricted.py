"""Policies after the catalogue has changed."""

import numpy as np
import pytest

from depsue.data import Candidates, Catalogue, LoggedData
from depsue.data.requests import Requests
from depsue.errors import PolicyError
from depsue.policies import Mixture, ScoreTable, SoftmaxOfScores, Uniform
from depsue.policies.base import whole
from depsue.policies.chosen import ChosenPolicy
from depsue.policies.restricted import RestrictedPolicy
from depsue.policies.simple import OrElse
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


def test_pi0_known_by_its_choice_keeps_its_share_when_items_arrive_or_go() -> None:
    novel = np.array([False, False, False, True, True])
    inner = Mixture([ChosenPolicy(5), OrElse(Uniform(novel), ChosenPolicy(5))], [0.75, 0.25])
    catalogue = Catalogue(np.arange(6), np.append(novel, True), np.eye(6))
    lists = [[0, 1, 3, 5], [0, 3, 4], [1, 2, 5], [0, 2, 4, 5]]
    requests = Requests(CONTEXTS[:4], Candidates.of_lists(lists))
    arrived = RestrictedPolicy(inner, np.ones(6, dtype=bool))
    gone = RestrictedPolicy(inner, np.arange(6) != 3)
    assert arrived.rests_on_choice
    # the new item 5 is never drawn; a request in which no other is new is pi0's
    np.testing.assert_allclose(arrived.pi0_share(requests), [0.75, 0.75, 1, 0.75])
    besides: list[list[float]] = [
        [0, 0, 0.25, 0],
        [0, 0.125, 0.125, 0],
        [0, 0, 0, 0],
        [0, 0, 0.25, 0],
    ]
    np.testing.assert_allclose(arrived.besides_pi0(requests), besides)
    np.testing.assert_allclose(gone.pi0_share(requests), [1, 0.75, 1, 0.75])
    np.testing.assert_allclose(gone.besides_pi0(requests)[1], [0, 0, 0.25, 0])
    dense = gone.besides_pi0(Requests(CONTEXTS))
    np.testing.assert_allclose(dense, np.tile([0, 0, 0, 0, 0.25, 0], (5, 1)))
    rows = LoggedData.from_arrays(
        contexts=CONTEXTS[:4],
        actions=np.array([0, 3, 1, 4]),
        rewards=np.zeros(4),
        propensities=np.array([0.3, 0.125, 0.5, 0.25]),
        catalogue=catalogue,
        r_max=1.0,
        candidates=requests.sets,
        by_pi0=np.array([0.4, 0, 0.5, 0]),
        rounds=np.ones(4),
    )
    np.testing.assert_allclose(arrived.drawn_probabilities(rows), rows.propensity)
    np.testing.assert_allclose(arrived.row_probabilities(rows), rows.propensity)
    np.testing.assert_allclose(gone.drawn_probabilities(rows), [0.4, 0, 0.5, 0.25])
