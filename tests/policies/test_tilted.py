"""Policies that a reward model bends, and the model that remembers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from depsue.data.checks import FloatArray
from depsue.errors import FileError, PolicyError
from depsue.policies import OwnPolicy, ScoreTable, SoftmaxOfScores, Uniform, load, save
from depsue.policies import cached as memory_module
from depsue.policies.cached import CachedPolicy, CachedRewardModel
from depsue.policies.tilted import ModelSoftmax, Tilted
from depsue.rewards import LinearRewardModel, OwnRewardModel
from depsue.savable import POLICY, described, hash_of, rebuilt
from depsue.testing.policies import PolicyConformance

DRAW = np.random.default_rng(8)
CONTEXTS = DRAW.normal(size=(5, 3)).astype(np.float32)
SUPPORT = np.array([True, True, False, True, True, False])
BASE = SoftmaxOfScores(ScoreTable(CONTEXTS, DRAW.normal(size=(5, 6))), 1.0, SUPPORT)
MODEL = LinearRewardModel(0.5, DRAW.normal(size=3) / 20, DRAW.normal(size=6) / 8, 1.0)
FOREIGN = OwnRewardModel(lambda x: np.full((len(x), 6), 0.5), 6)
TILT: dict[str, Any] = {"strength": 2.0, "cap": 4.0, "scale": 0.1}


class TestTilted(PolicyConformance):
    policy, contexts = Tilted(BASE, CachedRewardModel(MODEL), **TILT, keep=0.2), CONTEXTS


class TestTiltedThatRemembers(PolicyConformance):
    policy, contexts = Tilted(BASE, CachedRewardModel(MODEL, CONTEXTS[:3]), **TILT), CONTEXTS


class TestVeryStrongTilt(PolicyConformance):
    policy = Tilted(BASE, CachedRewardModel(MODEL), strength=1e6, cap=1e6, scale=0.1)
    contexts = CONTEXTS


class TestByModel(PolicyConformance):
    policy = ModelSoftmax(CachedRewardModel(MODEL), ~SUPPORT, strength=3.0, scale=0.1, even=0.3)
    contexts = CONTEXTS


class TestByModelWithFactors(PolicyConformance):
    policy = ModelSoftmax(
        CachedRewardModel(MODEL), SUPPORT, strength=900.0, scale=0.1, factors=np.arange(1.0, 7.0)
    )
    contexts = CONTEXTS


def whole(policy: Any, contexts: FloatArray = CONTEXTS) -> FloatArray:
    return np.asarray(policy.probabilities(contexts))


def test_a_tilt_is_its_formula() -> None:
    p0, q = whole(BASE), MODEL.predict(CONTEXTS)
    s = (q - (p0 * q).sum(axis=1, keepdims=True)) / 0.1
    g = 1 / (np.exp(-2.0 * s) + 1 / 4.0)
    expected = p0 * (0.2 + 0.8 * g / (p0 * g).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(whole(Tilted(BASE, MODEL, **TILT, keep=0.2)), expected, rtol=1e-10)


def test_a_tilt_stays_on_the_support_and_earns_more_by_the_model() -> None:
    p0, q = whole(BASE), MODEL.predict(CONTEXTS)
    values = []
    for strength in (0.0, 0.5, 1.0, 2.0, 8.0):
        pi = whole(Tilted(BASE, MODEL, strength=strength, cap=4.0, scale=0.1))
        assert (pi[:, ~SUPPORT] == 0).all()
        values.append(float((pi * q).sum()))
    np.testing.assert_allclose(whole(Tilted(BASE, MODEL, strength=0, cap=4.0, scale=1.0)), p0)
    assert values == sorted(values) and values[-1] > values[0]


def test_keep_and_cap_limit_the_weights() -> None:
    pi, p0 = whole(Tilted(BASE, MODEL, strength=50, cap=3.0, scale=0.1, keep=0.25)), whole(BASE)
    on = p0 > 0
    assert (p0[on] / pi[on]).max() <= 4.0 + 1e-9
    np.testing.assert_allclose(
        whole(Tilted(BASE, MODEL, strength=50, cap=3.0, scale=0.1, keep=1.0)), p0
    )


def test_by_model_is_its_formula() -> None:
    q, novel = MODEL.predict(CONTEXTS), ~SUPPORT
    factors = np.array([1.0, 1.0, 2.0, 1.0, 1.0, 0.5])
    policy = ModelSoftmax(MODEL, novel, strength=3.0, scale=0.1, even=0.4, factors=factors)
    g = factors[novel] * np.exp(3.0 * q[:, novel] / 0.1)
    expected = np.zeros((5, 6))
    expected[:, novel] = 0.4 / 2 + 0.6 * g / g.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(whole(policy), expected, rtol=1e-10)
    uniform = ModelSoftmax(MODEL, novel, strength=0.0, scale=1.0, even=0.0)
    np.testing.assert_allclose(whole(uniform), whole(Uniform(novel)))


class Counting:
    """A model that counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    def predict(self, contexts: FloatArray) -> FloatArray:
        self.asked += 1
        return MODEL.predict(contexts)

    def predict_pairs(self, contexts: Any, actions: Any, rows: Any = None) -> FloatArray:
        self.asked += 1
        return MODEL.predict_pairs(contexts, actions, rows)


def test_remembered_answers_are_the_models_and_are_not_asked_for_again() -> None:
    model = Counting()
    memory = CachedRewardModel(model, CONTEXTS)
    asked, order = model.asked, np.array([3, 0, 0, 4])
    exact = MODEL.predict(CONTEXTS).astype(np.float32)
    np.testing.assert_array_equal(memory.predict(CONTEXTS[order]), exact[order])
    actions, rows = np.array([5, 1, 0]), np.array([1, 1, 2])
    np.testing.assert_array_equal(
        memory.predict_pairs(CONTEXTS[order], actions, rows), exact[order][rows, actions]
    )
    np.testing.assert_array_equal(
        memory.predict_pairs(CONTEXTS, np.arange(5)), exact[np.arange(5), np.arange(5)]
    )
    assert model.asked == asked


def test_other_contexts_are_passed_on_and_answered_alike() -> None:
    model = Counting()
    memory, asked = CachedRewardModel(model, CONTEXTS[:3]), model.asked
    for answers in (CachedRewardModel(MODEL), memory):
        answer = answers.predict(CONTEXTS)
        assert answer.dtype == np.float32
        np.testing.assert_array_equal(answer, CachedRewardModel(MODEL, CONTEXTS).predict(CONTEXTS))
    pairs = memory.predict_pairs(CONTEXTS + 1, np.arange(5))
    np.testing.assert_allclose(pairs, MODEL.predict_pairs(CONTEXTS + 1, np.arange(5)), rtol=1e-6)
    assert pairs.dtype == np.float32 and model.asked == asked + 2


def test_the_parts_of_a_mixture_ask_a_model_once_about_new_contexts() -> None:
    model = Counting()
    memory, asked = CachedRewardModel(model), model.asked
    first = memory.predict(CONTEXTS).copy()
    np.testing.assert_array_equal(memory.predict(CONTEXTS.copy()), first)
    assert model.asked == asked + 1
    assert (memory.predict(CONTEXTS + 1) != first).any() and model.asked == asked + 2


def test_answers_that_are_too_many_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_module, "MOST_REMEMBERED", 29)
    model = Counting()
    memory, asked = CachedRewardModel(model, CONTEXTS), model.asked
    memory.predict(CONTEXTS)
    assert model.asked == asked + 1


def test_a_remembered_policy_answers_alike_and_is_saved_as_what_it_remembers(
    tmp_path: Path,
) -> None:
    model = Counting()
    tilt = Tilted(BASE, model, **TILT, keep=0.1)
    policy = CachedPolicy(tilt, CONTEXTS[:3])
    order = np.array([2, 0, 0, 1])
    np.testing.assert_allclose(whole(policy, CONTEXTS[order]), whole(tilt, CONTEXTS[order]), 1e-6)
    asked, actions = model.asked, np.array([0, 3, 5])
    rows = np.array([3, 1, 0])
    log_prob = policy.log_prob(CONTEXTS[order], actions, rows)
    assert model.asked == asked and log_prob[2] == -np.inf
    np.testing.assert_allclose(
        log_prob, tilt.log_prob(CONTEXTS[order], actions, np.array([3, 1, 0])), 1e-6
    )
    np.testing.assert_allclose(whole(policy, CONTEXTS), whole(tilt, CONTEXTS), 1e-6)
    own = CachedPolicy(OwnPolicy(lambda x: np.full((len(x), 6), 1 / 6), 6), CONTEXTS)
    assert whole(own, CONTEXTS).dtype == np.float32
    with pytest.raises(PolicyError, match="cannot be saved"):
        save(own, tmp_path / "own")
    plain = Tilted(BASE, MODEL, **TILT)
    save(CachedPolicy(plain, CONTEXTS), tmp_path / "p")
    assert isinstance(load(tmp_path / "p"), Tilted)
    assert hash_of(CachedPolicy(plain, CONTEXTS)) == hash_of(plain) is not None


def test_a_saved_tilt_does_not_depend_on_what_was_remembered(tmp_path: Path) -> None:
    policy = Tilted(BASE, CachedRewardModel(MODEL, CONTEXTS), **TILT, keep=0.1)
    save(policy, tmp_path / "p")
    np.testing.assert_array_equal(whole(load(tmp_path / "p")), whole(policy))


def test_what_wraps_a_callable_cannot_be_saved(tmp_path: Path) -> None:
    own = OwnPolicy(lambda x: np.full((len(x), 6), 1 / 6), 6)
    with pytest.raises(PolicyError, match="cannot be saved"):
        save(Tilted(own, MODEL, **TILT), tmp_path / "p")
    with pytest.raises(PolicyError, match=r"OwnRewardModel over a callable cannot.*ScoreTable"):
        save(Tilted(BASE, FOREIGN, **TILT), tmp_path / "p")
    with pytest.raises(PolicyError, match="OwnRewardModel over a callable cannot be saved"):
        save(ModelSoftmax(FOREIGN, SUPPORT, strength=1.0, scale=1.0), tmp_path / "p")


def test_a_file_without_a_base_is_refused() -> None:
    kind, settings, arrays = described(Tilted(BASE, MODEL, **TILT), POLICY)
    with pytest.raises(FileError, match="saved tilted policy must fit"):
        rebuilt(POLICY, kind, {k: v for k, v in settings.items() if k != "base"}, arrays)


def by_model(**changed: Any) -> ModelSoftmax:
    return ModelSoftmax(MODEL, SUPPORT, **{"strength": 1.0, "scale": 1.0, **changed})


REFUSED: list[tuple[Callable[[], object], str]] = [
    *[
        (lambda c=c: Tilted(BASE, MODEL, **{**TILT, **c}), f"{next(iter(c))} is out of range")
        for c in ({"strength": -1.0}, {"cap": 1.0}, {"scale": 0.0}, {"keep": 1.1})
    ],
    (lambda: by_model(strength=float("nan")), r"strength must be >= 0.*nan"),
    (lambda: by_model(scale=0.0), r"scale must be positive.*0.0"),
    (lambda: by_model(even=2.0), r"even must lie in \[0, 1\].*2.0"),
    (lambda: by_model(factors=np.ones(3)), r"one positive number for each.*\(3,\).*6 actions"),
    (lambda: by_model(factors=np.zeros(6)), r"one positive number for each.*least 0"),
]


@pytest.mark.parametrize(("call", "words"), REFUSED)
def test_what_breaks_a_rule_is_refused(call: Callable[[], object], words: str) -> None:
    with pytest.raises(PolicyError, match=words):
        call()
