"""What a campaign knows when a round begins."""

from __future__ import annotations

import pytest

from depsue import SyntheticSettings, rng, synthetic_world
from depsue.certificates import Credit, Reads
from depsue.errors import ConfigError
from depsue.exploration.rounds import CampaignState
from depsue.exploration.settings import ExploreSettings
from depsue.promises import Floor, Promise

WORLD = synthetic_world(SyntheticSettings(users=60, supported=8, novel=3, d=2), seed=0)
LOGS = [WORLD.deploy(WORLD.logging_policy, 4000, round=k) for k in range(2)]


def credits_after(floor: Floor, *, certified: bool) -> dict[str, Credit]:
    """Margin that round 2 may spend after pi0's own rows, served as one thing or another."""
    settings = ExploreSettings(promises=(Promise(floor),), safety="cumulative", deployments=3)
    reads = Reads(secret=rng.secret(0, "rounds"))
    first = reads.register(LOGS[0])
    state = CampaignState(
        settings, WORLD.logging_policy, LOGS[0], first, settings.delta_of_deployment
    )
    assert state.inputs(4000).credits == {}
    again = reads.register(LOGS[1], first=first)
    state.observe(LOGS[1], WORLD.logging_policy, again, novelty=0.0, certified=certified, trust=1.0)
    return dict(state.inputs(4000).credits)


def test_what_was_earned_may_be_spent() -> None:
    value = LOGS[1].mean_reward()
    credits = credits_after(Floor(None, 0.5 * value), certified=False)
    assert 0.3 * value < credits["reward"].value < 0.55 * value
    assert credits["reward"].decisions == 4000


def test_a_debt_counts_where_something_served_without_a_certificate() -> None:
    value = LOGS[1].mean_reward()
    owed = credits_after(Floor(None, 1.2 * value), certified=False)
    assert owed["reward"].value < -0.15 * value
    above = credits_after(Floor(1.2), certified=False)  # more than pi0, which served
    assert above["reward"].value < -0.15 * value


@pytest.mark.parametrize("floor", [Floor(None, 0.999), Floor(0.999)])
def test_no_margin_is_no_debt_where_every_deployment_kept_the_floor(floor: Floor) -> None:
    credit = credits_after(floor, certified=floor.ratio is None)["reward"]
    assert credit.value == 0.0
    assert credit.delta == pytest.approx(0.025)  # the look is paid for, whatever it shows


def test_margin_is_not_counted_where_rows_belong_to_units() -> None:
    world = synthetic_world(SyntheticSettings(users=60, with_units=True), seed=0)
    logs = world.deploy(world.logging_policy, 1000, round=0)
    settings = ExploreSettings(safety="cumulative", deployments=3)
    with pytest.raises(ConfigError, match="counts decisions, and promises with units are means"):
        CampaignState(
            settings,
            world.logging_policy,
            logs,
            Reads().register(logs),
            settings.delta_of_deployment,
        )
