"""Models that are saved by their name alone."""

from pathlib import Path

import numpy as np
import pytest

from depsue.data.checks import FloatArray
from depsue.errors import PolicyError
from depsue.policies import ExternalModel, Mixture, OwnPolicy, SoftmaxOfScores, Uniform, load, save
from depsue.policies.base import whole
from depsue.savable import hash_of

CONTEXTS = np.random.default_rng(5).normal(size=(4, 2)).astype(np.float32)
ALL = np.ones(3, dtype=bool)


def ranker(contexts: FloatArray) -> FloatArray:
    return np.asarray(contexts @ np.array([[1.0, 0.0, -1.0], [0.5, 1.0, 0.0]]))


def served(name: str = "ranker-7") -> Mixture:
    return Mixture(
        [SoftmaxOfScores(ExternalModel(name, ranker), 1.0, ALL), Uniform(ALL)], [0.7, 0.3]
    )


def test_the_callable_is_handed_in_again(tmp_path: Path) -> None:
    save(served(), tmp_path)
    again = load(tmp_path, outside={"ranker-7": ranker})
    np.testing.assert_array_equal(whole(again, CONTEXTS), whole(served(), CONTEXTS))
    assert hash_of(again) == hash_of(served()) != hash_of(served("ranker-8"))


def test_without_it_the_name_is_said(tmp_path: Path) -> None:
    save(served(), tmp_path)
    known = load(tmp_path)
    assert hash_of(known) == hash_of(served())
    with pytest.raises(PolicyError, match="'ranker-7' is not at hand"):
        whole(known, CONTEXTS)
    load(tmp_path, outside={"ranker-7": ranker})
    with pytest.raises(PolicyError, match="is not at hand"):  # it is not remembered
        whole(load(tmp_path), CONTEXTS)


def test_a_plain_callable_is_refused_with_the_cure(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="ExternalModel"):
        save(OwnPolicy(ranker, 3), tmp_path)
    with pytest.raises(PolicyError, match="a name of 1 to 200 characters"):
        ExternalModel(" ")
