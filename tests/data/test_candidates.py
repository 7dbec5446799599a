"""Candidate sets: any sizes, any order, checked at the door; logs keep each request once."""

from __future__ import annotations

import numpy as np
import pytest

from depsue import Catalogue, DepsueError, LoggedData
from depsue.data import Candidates, Requests
from depsue.data.checks import FloatArray
from depsue.data.logs import joined
from depsue.policies import (
    BroughtPolicy,
    ByItem,
    EpsilonGreedy,
    Mixture,
    OrElse,
    RestrictedPolicy,
    SoftmaxOfScores,
    Uniform,
)

CATALOGUE = Catalogue.of(range(6), novel=[4, 5], features=np.eye(6))


def logs(**changes: object) -> LoggedData:
    """Four rows over three requests: the last two rows bring the same candidates in another order.

    The first two share a context, but not their candidates.
    """
    values: dict[str, object] = {
        "contexts": [[1.0], [1.0], [2.0], [2.0]],
        "actions": [0, 1, 2, 3],
        "rewards": [1.0, 0.0, 1.0, 0.0],
        "propensities": [0.5, 1.0, 0.25, 0.75],
        "candidates": Candidates.of_lists(
            [[0, 1, 4], [1, 5], [2, 3], [3, 2]],
            [[0.5, 0.5, 0.0], [1.0, 0.0], [0.25, 0.75], [0.75, 0.25]],
        ),
    }
    return LoggedData.from_arrays(
        **{**values, **changes},  # type: ignore[arg-type]
        catalogue=CATALOGUE,
        r_max=1.0,
    )


def test_a_request_is_a_context_with_its_candidates_and_is_kept_once() -> None:
    rows = logs()
    assert len(rows.contexts) == 3
    assert rows.context.tolist() == [0, 1, 2, 2]
    assert rows.candidates is not None
    assert [rows.candidates[k : k + 1].items.tolist() for k in range(3)] == [
        [0, 1, 4],
        [1, 5],
        [2, 3],
    ]


def test_the_hash_knows_candidates_and_not_their_order() -> None:
    other = [[1, 0, 4], [1, 5], [2, 3], [2, 3]]
    shares = [[0.5, 0.5, 0.0], [1.0, 0.0], [0.25, 0.75], [0.25, 0.75]]
    assert logs(candidates=Candidates.of_lists(other, shares)).hash == logs().hash
    shares[0] = [0.4, 0.6, 0.0]
    assert logs(candidates=Candidates.of_lists(other, shares)).hash != logs().hash
    assert logs(candidates=Candidates.of_lists(other)).hash != logs().hash
    assert logs(candidates=None).hash != logs().hash


def test_taking_and_joining_rows_keeps_their_requests() -> None:
    rows = logs()
    parts = [rows.take(np.array([3, 0])), rows.take(np.array([1, 2]))]
    assert joined(parts).take(np.array([1, 2, 3, 0])).hash == rows.hash
    with pytest.raises(DepsueError, match="same columns"):
        joined([rows, logs(candidates=None)])


@pytest.mark.parametrize(
    ("lists", "shares", "rule"),
    [
        ([[0, 1], []], None, "needs a candidate"),
        ([[0, 1], [2, 2]], None, "must be distinct"),
        ([[0, 1], [2, 3]], [[0.5, 0.5], [0.5, 0.4]], "sum to 1"),
        ([[0, 1], [2, 3]], [[0.5, 0.5], [1.5, -0.5]], r"lie in \[0, 1\]"),
        ([[0, 1], [2, 3]], [[0.5, 0.5], [np.nan, 1.0]], r"lie in \[0, 1\]"),
        ([[0, 1], [2, 3]], [[0.5, 0.5], [1.0]], "as many as the candidates"),
    ],
)
def test_candidates_that_break_a_rule_are_refused(lists, shares, rule) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(DepsueError, match=rule):
        Candidates.of_lists(lists, shares)


def test_the_shown_item_must_be_a_candidate() -> None:
    with pytest.raises(DepsueError, match="must be a candidate") as error:
        logs(actions=[0, 2, 2, 3])
    assert "--kept" in str(error.value)
    with pytest.raises(DepsueError, match="positions in a catalogue of 6"):
        logs(candidates=Candidates.of_lists([[0, 1, 9], [1, 5], [2, 3], [3, 2]]))


SETS = Candidates.of_lists(
    [[4, 1, 0], [5, 4], [2, 3, 1, 0], [0]],
    [[0.0, 0.75, 0.25], [0.5, 0.5], [0.1, 0.2, 0.3, 0.4], [1.0]],
)
REQUESTS = Requests(np.array([[0.3], [1.0], [-1.0], [2.0]], dtype=np.float32), SETS)
SCORES = np.array([0.1, 0.7, -0.2, 0.4, 0.9, 0.3])
OLD = ~CATALOGUE.novel


def scores(contexts: FloatArray) -> FloatArray:
    """(m, A)"""
    return np.asarray(contexts[:, :1] * SCORES[None])


POLICIES = {
    "uniform": Uniform(np.ones(6, dtype=bool)),
    "old items": Uniform(OLD),
    "by item": ByItem([0.1, 0.2, 0.3, 0.1, 0.2, 0.1]),
    "softmax": SoftmaxOfScores(scores, 2.0, OLD),
    "greedy": EpsilonGreedy(scores, 0.2, OLD),
    "mixture": Mixture([Uniform(OLD), Uniform(CATALOGUE.novel)], [0.8, 0.2]),
    "withdrawn": RestrictedPolicy(Uniform(np.ones(5, dtype=bool)), np.arange(6) != 1),
}


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_is_held_to_the_candidates(name: str) -> None:
    policy = POLICIES[name]
    table = policy.over(REQUESTS)
    assert table.shape == (4, 4)
    for k in range(4):
        items = SETS[k : k + 1].items
        assert (table[k, len(items) :] == 0).all()
        dense = policy.probabilities(REQUESTS.contexts[k : k + 1])[0]
        chosen = policy.log_prob(REQUESTS, np.arange(6), np.full(6, k))
        for item in range(6):
            place = np.flatnonzero(items == item)
            mine = table[k, place[0]] if len(place) else 0.0
            assert np.exp(chosen[item]) == pytest.approx(mine)
        if name in ("uniform", "old items", "by item", "softmax") and dense[items].sum() > 0:
            assert table[k, : len(items)] == pytest.approx(dense[items] / dense[items].sum())


def test_the_best_candidate_is_greedy_not_the_best_item() -> None:
    table = POLICIES["greedy"].over(REQUESTS)
    assert table[0, :3] == pytest.approx([0.1, 0.9, 0.0])  # item 1 before item 0; 4 is new
    assert table[1].sum() == 0  # it shows no new item


def test_draws_are_candidates_with_the_probability_they_report() -> None:
    policy = Mixture([BroughtPolicy(6), Uniform(np.ones(6, dtype=bool))], [0.5, 0.5])
    rows = np.repeat(np.arange(4), 4000)
    actions, chosen = policy.sample(REQUESTS, np.random.default_rng(0), rows)
    assert SETS.entry(rows, actions).min() >= 0
    assert chosen == pytest.approx(np.exp(policy.log_prob(REQUESTS, actions, rows)))
    shown = np.bincount(actions[rows == 2], minlength=6) / 4000
    assert shown == pytest.approx([0.325, 0.275, 0.175, 0.225, 0, 0], abs=0.03)


def test_a_draw_among_items_that_a_policy_never_shows_is_refused() -> None:
    with pytest.raises(DepsueError, match="shows a candidate"):
        Uniform(OLD).sample(REQUESTS, np.random.default_rng(0))


def test_pi0_as_brought_is_looked_up_and_asked_for() -> None:
    table = BroughtPolicy(6).over(REQUESTS)
    assert table[0, :3] == pytest.approx([0.25, 0.75, 0.0])
    with pytest.raises(DepsueError, match="must bring pi0's probabilities"):
        BroughtPolicy(6).over(Requests(REQUESTS.contexts))


def test_without_new_candidates_the_old_part_decides() -> None:
    new = OrElse(Uniform(CATALOGUE.novel), BroughtPolicy(6))
    mixed = Mixture([BroughtPolicy(6), new], [0.9, 0.1]).over(REQUESTS)
    assert mixed[2, :4] == pytest.approx([0.4, 0.3, 0.1, 0.2])
    assert mixed[0, :3] == pytest.approx([0.225, 0.675, 0.1])
    assert mixed.sum(axis=1) == pytest.approx(1.0)


def test_pieces_of_requests_answer_as_the_whole_does() -> None:
    policy = POLICIES["mixture"]
    whole = policy.over(REQUESTS)
    for piece, table in policy.distributions(REQUESTS, chunk=2):
        assert table == pytest.approx(whole[piece, : table.shape[1]])
    assert [s for s, _ in policy.distributions(REQUESTS, chunk=3)] == [slice(0, 3), slice(3, 4)]


def test_candidates_are_worked_on_in_pieces_with_the_same_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    draw = np.random.default_rng(0)
    lists = [draw.choice(6, size=draw.integers(1, 6), replace=False) for _ in range(30)]
    shares = [draw.dirichlet(np.ones(len(items))) for items in lists]
    whole = Candidates.of_lists(lists, shares)
    some = whole.take(np.array([7, 2, 2, 29]))
    monkeypatch.setattr("depsue.data.requests.AT_ONCE", 4)
    pieces = Candidates.of_lists(lists, shares)
    np.testing.assert_array_equal(pieces.items, whole.items)
    np.testing.assert_array_equal(pieces.pi0, whole.pi0)
    np.testing.assert_array_equal(pieces.keys, whole.keys)
    again = pieces.take(np.array([7, 2, 2, 29]))
    np.testing.assert_array_equal(again.items, some.items)
    np.testing.assert_array_equal(again.pi0, some.pi0)
    assert [again[k : k + 1].items.tolist() for k in range(4)] == [
        sorted(lists[k].tolist()) for k in (7, 2, 2, 29)
    ]
    assert pieces.take(np.arange(30)) is pieces  # nothing to copy
    with pytest.raises(DepsueError, match="distinct.*row 29"):
        Candidates.of_lists([*lists[:-1], [3, 1, 3]])
