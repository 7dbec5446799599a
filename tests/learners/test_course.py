"""What a campaign knows when a round begins."""

from __future__ import annotations

import pytest

from depsue import SyntheticSettings, synthetic_world
from depsue.certificates import Floor, Promise
from depsue.learners.course import Course
from depsue.learners.explore_settings import ExploreSettings

WORLD = synthetic_world(SyntheticSettings(users=60, supported=8, novel=3, d=2), seed=0)
LOGS = [WORLD.deploy(WORLD.logging_policy, 4000, round=k) for k in range(2)]


def credits_after(floor: Floor, *, certified: bool) -> dict[str, float]:
    """Margin that round 2 may spend after pi0's own rows, served as one thing or another."""
    settings = ExploreSettings(promises=(Promise(floor),), safety="cumulative", deployments=3)
    course = Course(settings, WORLD.logging_policy, LOGS[0], "spring", settings.level)
    assert course.before(4000).credits == {}
    course.observe(LOGS[1], WORLD.logging_policy, novelty=0.0, certified=certified, trust=1.0)
    return {name: one.value for name, one in course.before(4000).credits.items()}


def test_what_was_earned_may_be_spent() -> None:
    value = LOGS[1].mean_reward()
    found = credits_after(Floor(None, 0.5 * value), certified=False)
    assert 0.3 * value < found["reward"] < 0.55 * value


def test_a_debt_counts_where_something_served_without_a_certificate() -> None:
    value = LOGS[1].mean_reward()
    owed = credits_after(Floor(None, 1.2 * value), certified=False)
    assert owed["reward"] < -0.15 * value


@pytest.mark.parametrize("floor", [Floor(None, 0.999), Floor(0.999)])
def test_no_margin_is_no_credit_where_every_deployment_kept_the_floor(floor: Floor) -> None:
    assert credits_after(floor, certified=floor.ratio is None) == {}
