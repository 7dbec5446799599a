"""The demo's comparison: a row a method, values relative to pi0, and a row a deployment."""

import pytest

from depsue.demo.demo import DemoResult, DemoSettings, run_demo
from depsue.learners import OpgSettings, SafeOpgSettings
from depsue.rewards import RewardSettings
from depsue.world import SyntheticSettings


@pytest.fixture(scope="module")
def result() -> DemoResult:
    small = DemoSettings(
        world=SyntheticSettings(users=50, supported=10, novel=3, d=3),
        rows=3000,
        rewards=RewardSettings(members=2, max_epochs=1),
        naive=OpgSettings(steps=5),
        safe=SafeOpgSettings(steps=5),
    )
    return run_demo(small, seed=0)


def test_deployments_are_numbered_and_other_methods_have_none(result: DemoResult) -> None:
    assert [row.deployment for row in result.rows] == [None, None, None, None, 1, 2, 3]
    assert [row.need is None for row in result.rows] == [True, True, True, False, *[False] * 3]


def test_values_are_relative_to_pi0(result: DemoResult) -> None:
    pi0, cautious = result.rows[:2]
    assert (pi0.value, pi0.novelty, pi0.safe) == (1.0, 0.0, True)
    assert cautious.novelty == pytest.approx(0.05) and cautious.value >= 0.95


def test_averages_are_over_the_deployments_so_far(result: DemoResult) -> None:
    stages = result.rows[4:]
    for k, row in enumerate(stages, 1):
        assert row.average == pytest.approx(sum(stage.value for stage in stages[:k]) / k)
        assert row.safe == (row.average >= 0.95 - 1e-12)
