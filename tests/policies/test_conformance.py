"""Every policy passes the conformance suite."""

import numpy as np
import pytest

from depsue.data import Catalogue
from depsue.policies import (
    EpsilonGreedy,
    FeatureSoftmax,
    LinearThompson,
    Mixture,
    OwnPolicy,
    RatioClipped,
    ScoreTable,
    SoftmaxOfScores,
    Uniform,
    base,
    naive_safe_exploration,
)
from depsue.policies.by_features import FeatureScores
from depsue.policies.network import NetworkPolicy
from depsue.rewards import LinearRewardModel
from depsue.testing.policies import PolicyConformance

DRAW = np.random.default_rng(7)
CONTEXTS = DRAW.normal(size=(5, 3)).astype(np.float32)
SCORES = DRAW.normal(size=(5, 6))
SUPPORT = np.array([True, True, False, True, True, False])
TABLE = ScoreTable(CONTEXTS, SCORES)
CATALOGUE = Catalogue(np.arange(6), ~SUPPORT)


class TestUniform(PolicyConformance):
    policy, contexts = Uniform(SUPPORT), CONTEXTS


class TestSoftmax(PolicyConformance):
    policy, contexts = SoftmaxOfScores(TABLE, 2.0, SUPPORT), CONTEXTS


class TestSteepSoftmax(PolicyConformance):
    policy, contexts = SoftmaxOfScores(TABLE, -900.0, SUPPORT), CONTEXTS


class TestCallableSoftmax(PolicyConformance):
    policy, contexts = SoftmaxOfScores(lambda x: x @ np.ones((3, 6)), 1.0, SUPPORT), CONTEXTS
    savable = False


class TestEpsilonGreedy(PolicyConformance):
    policy, contexts = EpsilonGreedy(TABLE, 0.3, SUPPORT), CONTEXTS


class TestDeterministic(PolicyConformance):
    policy, contexts = EpsilonGreedy(TABLE, 0.0, SUPPORT), CONTEXTS


class TestMixture(PolicyConformance):
    policy = Mixture([Uniform(SUPPORT), EpsilonGreedy(TABLE, 0.1, SUPPORT)], [0.25, 0.75])
    contexts = CONTEXTS


class TestNaiveSafeExploration(PolicyConformance):
    policy = naive_safe_exploration(SoftmaxOfScores(TABLE, 1.0, SUPPORT), CATALOGUE)
    contexts = CONTEXTS


BY_FEATURES = FeatureScores(DRAW.normal(size=(6, 2)), SUPPORT, np.zeros(3), np.ones(3))


class TestFeatureSoftmax(PolicyConformance):
    policy = FeatureSoftmax(BY_FEATURES, DRAW.normal(size=(4, 2)), DRAW.normal(size=6))
    contexts = CONTEXTS


class TestLinearThompson(PolicyConformance):
    policy, contexts = LinearThompson(BY_FEATURES, DRAW.normal(size=(20, 4, 2))), CONTEXTS


class TestRatioClipped(PolicyConformance):
    model = LinearRewardModel(0.5, DRAW.normal(size=3), DRAW.normal(size=6), 1.0)
    policy = RatioClipped(SoftmaxOfScores(TABLE, 1.0, SUPPORT), model, low=0.4, high=2.5)
    contexts = CONTEXTS


class TestNetwork(PolicyConformance):
    policy = NetworkPolicy.initial(3, 6, seed=1, hidden=(8, 7), standardise=CONTEXTS)
    contexts = CONTEXTS


class TestOwnTable(PolicyConformance):
    policy = OwnPolicy(ScoreTable(CONTEXTS, DRAW.dirichlet(np.ones(6), size=5)), 6)
    contexts = CONTEXTS


class TestOwnCallable(PolicyConformance):
    policy, contexts = OwnPolicy(lambda x: np.full((len(x), 6), 1 / 6), 6), CONTEXTS
    savable = False


class TestNetworkInManyChunks(TestNetwork):
    @pytest.fixture(autouse=True)
    def small_chunks(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("CHUNK_ENTRIES", "CHUNK_CANDIDATES"):
            monkeypatch.setattr(base, name, 12)
