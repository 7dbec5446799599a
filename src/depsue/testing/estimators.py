"""Laws that every estimator obeys, to be run under pytest.

The test of a new estimator is a class of a few lines::

    class TestMine(EstimatorLaws):
        terms_type = Terms

        def estimator(self, world: SmallWorld, model: RewardModel) -> Estimator:
            return Mine(model)

Laws that are statistical draw from fixed seeds and fail beyond `Z` standard errors.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from depsue.data.catalogue import Catalogue
from depsue.data.checks import FloatArray, IntArray
from depsue.data.logs import LoggedData
from depsue.data.requests import Requests
from depsue.data.terms import ConservativeTerms, Terms
from depsue.errors import NovelMassWarning
from depsue.policies import OwnPolicy, ScoreTable
from depsue.protocols import Estimate, Estimator, Policy, RewardModel

Z = 4.5
"""Standard errors beyond which a statistical law counts as broken (3 in a million, one-sided)."""


@dataclass(frozen=True, eq=False)
class TableModel:
    """A reward model that is a table.

    Args:
        table: (u, A) predictions for the known contexts.
    """

    table: Callable[[FloatArray], FloatArray]

    def predict(self, contexts: FloatArray) -> FloatArray:
        """(m, A) predictions for every action."""
        return self.table(contexts)

    def predict_pairs(
        self, contexts: FloatArray, actions: IntArray, rows: IntArray | None = None
    ) -> FloatArray:
        """(n,) predictions for pairs."""
        where = np.arange(len(actions)) if rows is None else rows
        return np.asarray(self.table(contexts)[where, actions])


@dataclass(frozen=True)
class Rechunked:
    """A policy whose distributions come in chunks of a given size.

    Args:
        inner: the policy.
        size: requests per chunk.
    """

    inner: Policy
    size: int

    @property
    def n_actions(self) -> int:
        """A."""
        return self.inner.n_actions

    def log_prob(
        self, requests: Requests, actions: IntArray, rows: IntArray | None = None
    ) -> FloatArray:
        """(n,) as the inner policy."""
        return self.inner.log_prob(requests, actions, rows)

    def sample(
        self, requests: Requests, rng: np.random.Generator, rows: IntArray | None = None
    ) -> tuple[IntArray, FloatArray]:
        """(n,) actions and propensities, as the inner policy."""
        return self.inner.sample(requests, rng, rows)

    def distributions(
        self, requests: Requests, chunk: int | None = None
    ) -> Iterator[tuple[slice, FloatArray]]:
        """Whole distributions, `size` requests at a time."""
        return self.inner.distributions(requests, self.size)


class SmallWorld:
    """u = 6 equally likely contexts, A = 8 actions of which the last two are novel.

    The mean reward depends on context and group alone, except that novel actions are worth
    `novel_worth` times their group: at 1 the reward model that knows the groups is right, at 0 it
    is far too optimistic.

    Args:
        novel_worth: in [0, 1].
        deterministic: True if pi0 always shows one action in a context.
    """

    groups = np.array([0, 0, 1, 1, 2, 2, 0, 1])

    def __init__(self, novel_worth: float = 1.0, deterministic: bool = False) -> None:
        rng = np.random.default_rng(7)
        self.contexts = rng.normal(size=(6, 2)).astype(np.float32)
        self.catalogue = Catalogue.of(np.arange(8), novel=[6, 7])
        novel = self.catalogue.novel
        self.by_group: FloatArray = rng.uniform(0.2, 0.8, size=(6, 3))[:, self.groups]
        self.q: FloatArray = np.where(novel, novel_worth, 1.0) * self.by_group
        old = rng.dirichlet(np.full(8, 3.0), size=(2, 6)) * ~novel
        pi0, supported = old / old.sum(axis=2, keepdims=True)
        if deterministic:
            pi0 = np.eye(8)[pi0.argmax(axis=1)]
        self.pi0 = self.policy(pi0)
        self.supported = self.policy(supported)
        self.exploring = self.policy(0.7 * supported + 0.3 * novel / novel.sum())

    def policy(self, table: FloatArray) -> OwnPolicy:
        """The policy with these (u, A) distributions."""
        return OwnPolicy(ScoreTable(self.contexts, table), len(self.catalogue))

    def model(self, table: FloatArray) -> TableModel:
        """The reward model with these (u, A) predictions."""
        return TableModel(ScoreTable(self.contexts, table))

    def draw(self, n: int, rng: np.random.Generator, *, units: int | None = None) -> LoggedData:
        """n rows drawn by pi0, with rewards of 0 or 1; of `units` units, if given."""
        rows = rng.integers(len(self.contexts), size=n)
        actions, propensities = self.pi0.sample(self.contexts, rng, rows)
        return LoggedData.from_arrays(
            contexts=self.contexts,
            context_rows=rows,
            actions=actions,
            rewards=rng.random(n) < self.q[rows, actions],
            propensities=propensities,
            catalogue=self.catalogue,
            r_max=1.0,
            units=None if units is None else rng.integers(units, size=n),
        )

    def value(self, policy: OwnPolicy) -> float:
        """V(pi), exactly."""
        return float((policy.probabilities(self.contexts) * self.q).sum(axis=1).mean())

    def weights(self, policy: OwnPolicy, logs: LoggedData) -> FloatArray:
        """(n,) pi(a_i | x_i) / p_i, straight from the table."""
        chosen = policy.probabilities(logs.contexts)[logs.context, logs.action]
        return np.asarray(chosen / logs.propensity)


class EstimatorLaws:
    """The laws. Subclass it as a pytest class, and say what the estimator promises.

    A law that does not hold for an estimator is set to None in its class, with the reason.
    """

    terms_type: ClassVar[type[Terms] | None]
    """The type of the estimator's terms; None if it is not a mean."""

    def estimator(self, world: SmallWorld, model: RewardModel) -> Estimator:
        """The estimator; one that takes no model ignores it."""
        raise NotImplementedError

    def share_of_constant(self, world: SmallWorld, policy: OwnPolicy, logs: LoggedData) -> float:
        """What it makes of rewards that are all 1, given the model that says so."""
        return 1.0

    def test_constant_rewards(self) -> None:
        world, logs = _world_and_logs()
        logs = replace(logs, reward=np.full(len(logs), 0.4))
        estimator = self.estimator(world, world.model(np.full(world.q.shape, 0.4)))
        for policy in (world.supported, world.exploring):
            expected = 0.4 * self.share_of_constant(world, policy, logs)
            np.testing.assert_allclose(quiet(estimator, policy, logs).value, expected, rtol=1e-12)

    def test_rewards_in_other_money(self) -> None:
        world, logs = _world_and_logs()
        before = quiet(self.estimator(world, world.model(world.by_group)), world.exploring, logs)
        richer = replace(logs, reward=3 * logs.reward, r_max=3.0)
        model = world.model(3 * world.by_group)
        after = quiet(self.estimator(world, model), world.exploring, richer)
        np.testing.assert_allclose(after.value, 3 * before.value, rtol=1e-12)

    def test_on_policy_it_is_the_mean_reward(self) -> None:
        """For pi = pi0 it is the mean reward, given a model that sees only the context."""
        for deterministic in (False, True):
            world, logs = _world_and_logs(deterministic=deterministic)
            flat = np.tile(world.by_group.mean(axis=1, keepdims=True), (1, len(world.catalogue)))
            value = self.estimator(world, world.model(flat)).estimate(world.pi0, logs).value
            np.testing.assert_allclose(value, logs.mean_reward(), rtol=1e-12)

    def test_unbiased_on_supported_policies(self) -> None:
        """Its mean is V(pi) on supported policies, given the true model where it takes one."""
        world = SmallWorld()
        estimator = self.estimator(world, world.model(world.q))
        assert abs(_z(estimator, world, world.supported)) < Z

    def test_novel_mass_can_raise_it_above_the_value_unless_it_is_conservative(self) -> None:
        for worth in (0.0, 1.0):
            world = SmallWorld(novel_worth=worth)
            z = _z(self.estimator(world, world.model(world.by_group)), world, world.exploring)
            if self.terms_type is not None and issubclass(self.terms_type, ConservativeTerms):
                assert z < Z
            elif worth == 0:
                assert z > Z

    def test_terms_are_of_the_promised_type_and_average_to_the_value(self) -> None:
        for units in (None, 20):
            world, logs = _world_and_logs(units=units)
            estimator = self.estimator(world, world.model(world.by_group))
            estimate = quiet(estimator, world.exploring, logs)
            if self.terms_type is None:
                assert estimate.terms is None and estimate.standard_error is None
                continue
            assert type(estimate.terms) is self.terms_type
            assert estimate.terms.mean() == estimate.value
            assert estimate.standard_error is not None
            np.testing.assert_array_equal(estimate.terms.unit, logs.unit)
            values = estimate.terms.per_unit(estimate.terms.values)
            error = values.std(ddof=1) / np.sqrt(len(values))
            np.testing.assert_allclose(estimate.standard_error, error, rtol=1e-12)

    def test_chunks_do_not_matter(self) -> None:
        world, logs = _world_and_logs()
        estimator = self.estimator(world, world.model(world.by_group))
        whole = quiet(estimator, world.exploring, logs)
        for size in (1, 4):
            chunked = quiet(estimator, Rechunked(world.exploring, size), logs)
            np.testing.assert_allclose(chunked.value, whole.value, rtol=1e-12)
            np.testing.assert_allclose(chunked.unseen_mass, whole.unseen_mass, rtol=1e-12)

    def test_every_unit_counts_once(self) -> None:
        world, logs = _world_and_logs(units=20)
        estimator = self.estimator(world, world.model(world.by_group))
        assert logs.unit is not None
        again = np.concatenate([np.arange(len(logs)), np.flatnonzero(logs.unit < 5)])
        once = quiet(estimator, world.exploring, logs).value
        twice = quiet(estimator, world.exploring, logs.take(again)).value
        np.testing.assert_allclose(twice, once, rtol=1e-12)
        without = replace(logs, unit=None, units=None)
        alone = replace(logs, unit=np.arange(len(logs)), units=np.arange(len(logs)))
        np.testing.assert_allclose(
            quiet(estimator, world.exploring, alone).value,
            quiet(estimator, world.exploring, without).value,
            rtol=1e-12,
        )

    def test_it_warns_once_of_unseen_mass_and_only_then(self) -> None:
        world, logs = _world_and_logs()
        estimator = self.estimator(world, world.model(world.by_group))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            estimate = estimator.estimate(world.exploring, logs)
        np.testing.assert_allclose(estimate.unseen_mass, 0.3, rtol=1e-12)
        assert [warning.category for warning in caught] == [NovelMassWarning]
        assert estimate.notes == (str(caught[0].message),)
        assert caught[0].filename == __file__, "the warning must point at the caller's line"
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            estimate = estimator.estimate(world.supported, logs)
        assert estimate.unseen_mass == 0 and estimate.notes == ()


def quiet(estimator: Estimator, policy: Policy, logs: LoggedData) -> Estimate:
    """The estimate, without its warning of novel mass."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NovelMassWarning)
        return estimator.estimate(policy, logs)


def _world_and_logs(
    *, deterministic: bool = False, units: int | None = None
) -> tuple[SmallWorld, LoggedData]:
    world = SmallWorld(novel_worth=0.0, deterministic=deterministic)
    return world, world.draw(120, np.random.default_rng(11), units=units)


def _z(estimator: Estimator, world: SmallWorld, policy: OwnPolicy) -> float:
    """By how many standard errors the mean of 200 estimates exceeds V(pi)."""
    rng = np.random.default_rng(23)
    values = [quiet(estimator, policy, world.draw(100, rng)).value for _ in range(200)]
    error = np.std(values, ddof=1) / np.sqrt(len(values))
    return float((np.mean(values) - world.value(policy)) / error)
