from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from depsue.data import ConservativeTerms, LoggedData, Terms
from depsue.errors import ConfigError, NovelMassWarning
from depsue.estimators import IPS, MIPS
from depsue.policies import OwnPolicy
from depsue.protocols import Estimator, RewardModel
from depsue.testing.estimators import EstimatorLaws, SmallWorld, quiet


def group_mass(world: SmallWorld, policy: OwnPolicy, logs: LoggedData) -> Any:
    """(n,) the policy's mass on each row's group, straight from the table."""
    same = world.groups[logs.action][:, None] == world.groups
    return (policy.probabilities(logs.contexts)[logs.context] * same).sum(axis=1)


class TestMIPS(EstimatorLaws):
    terms_type = Terms

    def estimator(self, world: SmallWorld, model: RewardModel) -> Estimator:
        return MIPS(world.pi0, world.groups)

    def share_of_constant(self, world: SmallWorld, policy: OwnPolicy, logs: LoggedData) -> float:
        weights = group_mass(world, policy, logs) / group_mass(world, world.pi0, logs)
        return float(weights.mean())


def test_by_hand(by_hand: Any) -> None:
    estimate = quiet(MIPS(by_hand.pi0, ["x", "y", "y"]), by_hand.pi, by_hand.logs)
    assert estimate.terms is not None and estimate.terms.lower == 0
    np.testing.assert_allclose(estimate.terms.values, [0.5, 0.75, 1, 2 / 3], rtol=1e-15)
    assert estimate.value == pytest.approx(35 / 48, rel=1e-15)
    assert not isinstance(estimate.terms, ConservativeTerms)


def test_groups_of_one_action_are_ips(by_hand: Any) -> None:
    alone = MIPS(by_hand.pi0, [2, 0, 1]).terms(by_hand.pi, by_hand.logs)
    np.testing.assert_allclose(
        alone.values, IPS().terms(by_hand.pi, by_hand.logs).values, rtol=1e-15
    )


def test_one_group_of_all_is_the_mean_reward(by_hand: Any) -> None:
    estimate = quiet(MIPS(by_hand.pi0, [0, 0, 0]), by_hand.pi, by_hand.logs)
    assert estimate.value == pytest.approx(by_hand.logs.mean_reward(), rel=1e-15)


def test_novel_actions_are_valued_right_where_the_assumption_holds() -> None:
    world, rng = SmallWorld(novel_worth=1.0), np.random.default_rng(5)
    mips = MIPS(world.pi0, world.groups)
    values = [quiet(mips, world.exploring, world.draw(100, rng)).value for _ in range(200)]
    z = (np.mean(values) - world.value(world.exploring)) / (np.std(values, ddof=1) / np.sqrt(200))
    assert abs(z) < 4.5


def test_a_deterministic_logging_policy(by_hand: Any) -> None:
    logs = by_hand.logs_with(actions=["a", "a", "b", "b"], propensities=[1, 1, 1, 1])
    pi0 = by_hand.policy([[1, 0, 0], [0, 1, 0]])
    terms = MIPS(pi0, ["x", "y", "y"]).terms(by_hand.pi, logs)
    np.testing.assert_allclose(terms.values, [0.25, 0.125, 0.25, 0.5], rtol=1e-15)


@pytest.mark.parametrize(
    ("groups", "lost", "assumed"),
    [(["x", "y", "y"], "0", "0.3125"), (["x", "y", "z"], "0.3125", "0")],
    ids=["in a group that is shown", "in a group of its own"],
)
def test_the_warning_says_what_counts_as_zero_and_what_as_its_group(
    by_hand: Any, groups: list[str], lost: str, assumed: str
) -> None:
    with pytest.warns(NovelMassWarning) as caught:
        MIPS(by_hand.pi0, groups).estimate(by_hand.pi, by_hand.logs)
    assert str(caught[0].message) == (
        "MIPS: the policy makes 0.3125 of its choices among 1 novel action that the logs never "
        f"show; {lost} is in groups that the logs never show and counts as reward 0, {assumed} is "
        "in groups that they show and is assumed to be worth its group"
    )


def test_another_policy_than_the_one_that_drew_the_rows_is_refused(by_hand: Any) -> None:
    message = (
        "pi0 must be the policy that drew the rows. Found: row 0 was drawn with propensity 0.5, "
        r"pi0 gives 0.25 \(4 such rows\). Cure: pass the policy of these logs"
    )
    with pytest.raises(ConfigError, match=message):
        MIPS(by_hand.pi, [0, 1, 1]).terms(by_hand.pi, by_hand.logs)


@pytest.mark.parametrize("groups", [[0.5, 1.0, 2.0], [[0, 1, 2]], [None, "x", "y"]])
def test_groups_that_are_not_a_column_of_names_are_refused(by_hand: Any, groups: Any) -> None:
    with pytest.raises(ConfigError, match="groups must be one integer or string per action"):
        MIPS(by_hand.pi0, groups)


def test_groups_of_another_catalogue_are_refused(by_hand: Any) -> None:
    with pytest.raises(ConfigError, match="Found: 2 groups for 3 actions"):
        MIPS(by_hand.pi0, [0, 1]).terms(by_hand.pi, by_hand.logs)
