import numpy as np
import pytest

from depsue.data import Catalogue
from depsue.errors import ConfigError, PolicyError
from depsue.policies import (
    EpsilonGreedy,
    Mixture,
    OwnPolicy,
    ScoreTable,
    SoftmaxOfScores,
    Uniform,
    naive_safe_exploration,
)

CONTEXTS = np.array([[0.0, 1.0], [1.0, 0.0]], dtype=np.float32)
SCORES = np.array([[0.0, 1.0, 5.0], [2.0, 0.0, 5.0]])
SUPPORT = np.array([True, True, False])
TABLE = ScoreTable(CONTEXTS, SCORES)


def test_softmax_has_the_papers_form() -> None:
    pi = SoftmaxOfScores(TABLE, 2.0, SUPPORT).probabilities(CONTEXTS)
    expected = np.exp([0.0, 2.0]) / np.exp([0.0, 2.0]).sum()
    np.testing.assert_allclose(pi[0], [*expected, 0.0])
    assert pi[1, 0] > pi[1, 1]


def test_a_negative_beta_prefers_the_worst() -> None:
    pi = SoftmaxOfScores(TABLE, -2.0, SUPPORT).probabilities(CONTEXTS)
    assert pi[0, 0] > pi[0, 1]


def test_epsilon_greedy_is_greedy_on_its_support_only() -> None:
    pi = EpsilonGreedy(TABLE, 0.2, SUPPORT).probabilities(CONTEXTS)
    np.testing.assert_allclose(pi, [[0.1, 0.9, 0.0], [0.9, 0.1, 0.0]])


def test_naive_safe_exploration_is_95_to_5() -> None:
    pi0 = Uniform(SUPPORT)
    policy = naive_safe_exploration(pi0, Catalogue(np.arange(3), ~SUPPORT))
    np.testing.assert_allclose(policy.probabilities(CONTEXTS)[0], [0.475, 0.475, 0.05])


def test_the_share_must_be_a_share() -> None:
    with pytest.raises(ConfigError, match=r"share must lie in \(0, 1\). Found: 5"):
        naive_safe_exploration(Uniform(SUPPORT), Catalogue(np.arange(3), ~SUPPORT), 5)


def test_nothing_novel_nothing_to_explore() -> None:
    with pytest.raises(ConfigError, match="novel action to explore"):
        naive_safe_exploration(Uniform(SUPPORT), Catalogue.of([1, 2, 3]))


def test_a_table_refuses_contexts_it_does_not_know() -> None:
    with pytest.raises(PolicyError, match="1 of 2 contexts are not in it, the first at row 1"):
        TABLE(np.array([[1.0, 0.0], [3.0, 0.0]]))


def test_a_table_takes_contexts_in_any_order_and_either_zero() -> None:
    np.testing.assert_array_equal(TABLE(np.array([[1.0, -0.0]])), SCORES[1:])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Uniform(np.zeros(3, dtype=bool)), "allows at least one"),
        (lambda: Uniform(np.ones(3)), "must be a mask"),
        (lambda: SoftmaxOfScores(TABLE, np.nan, SUPPORT), "beta must be finite"),
        (lambda: EpsilonGreedy(TABLE, 1.5, SUPPORT), "epsilon must lie in"),
        (lambda: Mixture([Uniform(SUPPORT)], [0.9]), "sum to 1"),
        (
            lambda: Mixture([Uniform(SUPPORT), Uniform(SUPPORT[:2])], [0.5, 0.5]),
            "over the same actions",
        ),
        (lambda: ScoreTable(CONTEXTS, np.full((2, 3), np.nan)), "scores must be finite numbers"),
        (lambda: ScoreTable(CONTEXTS, np.full((2, 3), "a")), "scores must be finite numbers"),
        (lambda: ScoreTable(CONTEXTS, SCORES[:1]), "one row of A scores per context"),
        (lambda: ScoreTable(CONTEXTS[[0, 0]], SCORES), "must be distinct"),
        (lambda: TABLE(np.ones((2, 3))), r"3 columns, the table has 2\. Cure: declare in the mapp"),
    ],
)
def test_bad_settings_are_refused(make: object, message: str) -> None:
    with pytest.raises((ConfigError, PolicyError), match=message):
        make()  # type: ignore[operator]


def test_own_probabilities_must_be_probabilities() -> None:
    policy = OwnPolicy(lambda x: np.tile([0.5, 0.6, -0.1], (len(x), 1)), 3)
    with pytest.raises(PolicyError, match="smallest -0.1, sum 1"):
        policy.probabilities(CONTEXTS)
    wrong_sum = OwnPolicy(lambda x: np.full((len(x), 3), 0.5), 3)
    with pytest.raises(PolicyError, match=r"sum 1\.5"):
        wrong_sum.probabilities(CONTEXTS)


def test_own_scores_must_be_finite_and_complete() -> None:
    with pytest.raises(PolicyError, match="NaN or infinite"):
        OwnPolicy(lambda x: np.full((len(x), 3), np.nan), 3).probabilities(CONTEXTS)
    with pytest.raises(PolicyError, match=r"shape \(2, 2\)"):
        OwnPolicy(lambda x: np.full((len(x), 2), 0.5), 3).probabilities(CONTEXTS)


def test_a_float32_softmax_over_many_actions_is_a_distribution() -> None:
    logits = np.random.default_rng(0).normal(size=(2, 10_000)).astype(np.float32)
    softmax = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True) * np.float32(1.000002)
    pi = OwnPolicy(lambda x: softmax, 10_000).probabilities(CONTEXTS)
    np.testing.assert_allclose(pi.sum(axis=1), 1, atol=1e-12)


def test_sampling_takes_a_generator() -> None:
    with pytest.raises(PolicyError, match="rng must be a numpy generator. Found: 0"):
        Uniform(SUPPORT).sample(CONTEXTS, 0)  # type: ignore[arg-type]


def test_samples_never_show_an_impossible_action() -> None:
    draw = np.random.default_rng(0)
    policy = SoftmaxOfScores(TABLE, 300.0, SUPPORT)
    actions, _ = policy.sample(CONTEXTS, draw, draw.integers(0, 2, 200_000))
    assert set(np.unique(actions)) == {0, 1}
