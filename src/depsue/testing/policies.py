"""The conformance suite of policies: subclass it, set `policy` and `contexts`, done.

::

    class TestFavourite(PolicyConformance):
        policy = Favourite(2, n_actions=6)
        contexts = np.eye(3, dtype=np.float32)
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest

from depsue.data.checks import FloatArray
from depsue.data.requests import Requests
from depsue.errors import PolicyError
from depsue.policies import BasePolicy, load, save
from depsue.savable import hash_of


class PolicyConformance:
    """What every policy must do."""

    policy: ClassVar[Any]
    """The policy that is tested."""
    contexts: ClassVar[FloatArray]
    """(u, d) distinct contexts that it answers for, u >= 3."""
    savable: ClassVar[bool] = True
    """False for a policy over a callable, which `save` must refuse."""

    def whole(self) -> FloatArray:
        """(u, A) all distributions."""
        return np.concatenate([pi for _, pi in self.policy.distributions(self.contexts)])

    def test_distributions_are_distributions(self) -> None:
        pi = self.whole()
        assert pi.shape == (len(self.contexts), self.policy.n_actions)
        assert (pi >= 0).all()
        np.testing.assert_allclose(pi.sum(axis=1), 1, atol=1e-5)

    def test_chunks_cover_every_context_once_and_do_not_matter(self) -> None:
        parts = list(self.policy.distributions(self.contexts, chunk=2))
        assert [piece.start for piece, _ in parts] == list(range(0, len(self.contexts), 2))
        joined = np.concatenate([pi for _, pi in parts])
        np.testing.assert_allclose(joined, self.whole(), rtol=1e-5, atol=1e-7)

    def test_log_prob_is_the_log_of_the_distribution(self) -> None:
        rows = np.repeat(np.arange(len(self.contexts)), self.policy.n_actions)[::-1]
        actions = np.tile(np.arange(self.policy.n_actions), len(self.contexts))[::-1]
        log_prob = self.policy.log_prob(self.contexts, actions, rows)
        np.testing.assert_allclose(
            np.exp(log_prob), self.whole()[rows, actions], rtol=1e-5, atol=1e-9
        )

    def test_log_prob_without_rows_takes_one_context_per_action(self) -> None:
        actions = np.zeros(len(self.contexts), dtype=int)
        with np.errstate(divide="ignore"):
            expected = np.log(self.whole()[:, 0])
        np.testing.assert_allclose(
            self.policy.log_prob(self.contexts, actions), expected, rtol=1e-5
        )
        with pytest.raises(PolicyError, match="one context per action"):
            self.policy.log_prob(self.contexts, actions[:-1])

    def test_requests_and_plain_contexts_are_answered_alike(self) -> None:
        requests = Requests(self.contexts)
        actions = np.zeros(len(self.contexts), dtype=int)
        np.testing.assert_array_equal(
            self.policy.log_prob(requests, actions), self.policy.log_prob(self.contexts, actions)
        )
        joined = np.concatenate([pi for _, pi in self.policy.distributions(requests)])
        np.testing.assert_array_equal(joined, self.whole())
        drawn, _ = self.policy.sample(requests, np.random.default_rng(1))
        again, _ = self.policy.sample(self.contexts, np.random.default_rng(1))
        np.testing.assert_array_equal(drawn, again)

    def test_samples_carry_their_propensity_and_follow_it(self) -> None:
        draw = np.random.default_rng(5)
        rows = draw.integers(0, len(self.contexts), 40_000)
        actions, propensities = self.policy.sample(self.contexts, draw, rows)
        pi = self.whole()
        np.testing.assert_allclose(propensities, pi[rows, actions], rtol=1e-5)
        assert (propensities > 0).all()
        for context in range(len(self.contexts)):
            mine = actions[rows == context]
            seen = np.bincount(mine, minlength=pi.shape[1]) / len(mine)
            error = np.sqrt(pi[context] * (1 - pi[context]) / len(mine))
            assert (np.abs(seen - pi[context]) <= 5 * error + 1e-9).all()

    def test_samples_depend_on_the_generator_only(self) -> None:
        draws = [self.policy.sample(self.contexts, np.random.default_rng(s)) for s in (1, 1)]
        np.testing.assert_array_equal(draws[0][0], draws[1][0])

    def test_saved_and_loaded_it_is_the_same(self, tmp_path: Any) -> None:
        if not self.savable:
            with pytest.raises(PolicyError, match="cannot be saved"):
                save(self.policy, tmp_path / "p")
            return
        save(self.policy, tmp_path / "p")
        again = load(tmp_path / "p")
        assert isinstance(again, BasePolicy)
        assert hash_of(again) == hash_of(self.policy) is not None
        np.testing.assert_array_equal(again.probabilities(self.contexts), self.whole())
