"""The share of traffic on the policy: turned live, recorded, a shadow, and ramps."""

from __future__ import annotations

from pathlib import Path

import pytest
from scipy import stats
from tests.serving.asgi import Caller, batch, caller, rewarded
from tests.serving.conftest import Clock, Serve

from depsue.campaigns import Campaign
from depsue.diagnostics.drawn_by import require_drawn_by
from depsue.errors import ConfigError
from depsue.serving.exporting import export_served
from depsue.serving.settings import ServingSettings, asked_share, declared


def by_holdout(call: Caller, count: int) -> int:
    made = batch(call, count)
    assert {each["decided_by"] for each in made} <= {"policy", "holdout"}
    return sum(each["decided_by"] == "holdout" for each in made)


def test_the_share_is_turned_live_and_every_change_is_recorded(
    serve: Serve, home: Path, clock: Clock
) -> None:
    service = serve(wait=60.0)
    call = caller(service, home)
    assert service.status.share == 0.95
    asked = {"share": 0.3, "reason": "one more look", "by": "ana"}
    answer = call.post("/v1/policy/share", asked).json
    assert (answer["share"], answer["holdout"]) == (0.3, 0.7)
    assert stats.binomtest(by_holdout(call, 1000), 1000, 0.7).pvalue > 1e-4
    clock.advance(60.0)
    service.change_share(1.0, "all well", "ben")
    assert by_holdout(call, 200) == 0
    service.close()
    again = serve(wait=60.0)  # a restart goes on with it
    assert again.status.share == 1.0
    recorded = [(c.share, c.reason, c.by, c.at) for c in again.status.shares]
    assert recorded == [
        (0.3, "one more look", "ana", clock.now - 60.0),
        (1.0, "all well", "ben", clock.now),
    ]
    refused = caller(again, home).post("/v1/policy/share", asked | {"share": 1.5})
    assert refused.status == 422


def test_a_share_lies_between_nothing_and_all(serve: Serve) -> None:
    service = serve(wait=60.0)
    with pytest.raises(ConfigError, match=r"lies in \[0, 1\]"):
        service.change_share(float("nan"), "a slip", "ana")
    assert service.status.shares == []
    for ramp in ((0.0, 0.5), (0.5, 0.2), (0.5, 1.2)):
        with pytest.raises(ConfigError, match="a ramp has shares"):
            ServingSettings(ramp=ramp)


def test_services_of_one_store_turn_together(
    serve: Serve, home: Path, postgres: object, campaign: Campaign
) -> None:
    address = postgres.new_schema()  # type: ignore[attr-defined]
    first, second = serve(wait=60.0, store=address), serve(wait=60.0, store=address)
    first.change_share(0.0, "look first", "ana")
    second.turn()
    assert second.status.share == 0.0
    assert by_holdout(caller(second, home), 100) == 100
    assert campaign.name == second.status.campaign


def test_a_shadow_shows_pi0_and_tells_what_the_policy_would_have_done(
    serve: Serve, home: Path
) -> None:
    service = serve(wait=60.0, holdout=1.0)
    made = batch(caller(service, home), 300)
    assert {each["decided_by"] for each in made} == {"holdout"}
    status = service.status
    assert status.decides.who == "pi0" and "shadow" in status.decides.why
    rows, _ = service.reader.read()
    novel = service.served.catalogue.novel
    assert not any(novel[row.action] for row in rows)
    assert any(novel[row.would] for row in rows)
    assert all(0 < row.p_would <= 1 and row.holdout == 1 for row in rows)


def test_rows_under_changing_shares_are_rows_of_one_mixture(
    serve: Serve, home: Path, campaign: Campaign, clock: Clock
) -> None:
    declared(campaign.files.folder, {"wait": 3.0}, begun=False)
    service = serve(wait=3.0, holdout=0.5)
    call = caller(service, home)
    made = batch(call, 1000)
    service.change_share(0.8, "on", "ana")
    made += batch(call, 1000)
    service.change_share(0.0, "a shadow for a while", "ana")
    made += batch(call, 300)
    clock.advance(3.1)
    service.close()
    found = export_served(campaign, None)
    policy = sum(each["decided_by"] == "policy" for each in made)
    kept = found.rows - policy
    assert found.share == 0.2 and found.decisions == 2300
    assert stats.binomtest(kept, found.rows, 0.2).pvalue > 1e-4
    assert export_served(campaign, None).rows == found.rows  # the lot is the same again
    assert "by lot" in str(found)
    seen = campaign.observe(
        str(found.path),
        mapping=found.mapping,
        decisions=found.decisions,
        by_pi0=found.holdout + found.fallback,
    )
    logs = campaign.logs(1)
    assert seen.rows == len(logs) == found.rows
    served = campaign.ledger.deployments(campaign.name)[-1].policy_hash
    require_drawn_by(campaign.drawing(1, served, 0.2, logs.catalogue), logs)


def test_a_ramp_rises_only_while_healthy_and_never_after_a_stop(
    serve: Serve, home: Path, clock: Clock
) -> None:
    service = serve(wait=1.0, ramp=(0.2, 0.6, 1.0), every=100.0, holdout=0.8)
    call = caller(service, home)
    assert service.status.share == 0.2
    clock.advance(101.0)
    service.turn()
    assert (service.status.state.value, service.status.share) == ("waiting", 0.2)
    made = batch(call, 600)
    rewarded(call, made, lambda one: 0.4)
    clock.advance(2.0)
    service.turn()
    assert (service.status.state.value, service.status.share) == ("healthy", 0.6)
    ramp = service.status.ramp
    assert ramp is not None and (ramp.step, ramp.next) == (1, clock.now + 100.0)
    clock.advance(99.0)
    service.turn()
    assert service.status.share == 0.6  # it is not time
    stop = service.stop_policy("a doubt", "ana")
    service.resume_policy([stop.id], "none left", "ana")
    clock.advance(1000.0)
    batch(call, 300)
    clock.advance(2.0)
    service.turn()
    assert service.status.share == 0.6
    ramp = service.status.ramp
    assert ramp is not None and "stopped" in ramp.ended
    service.change_share(0.9, "by hand", "ana")
    assert service.status.share == 0.9


def test_a_ramp_ends_with_a_stop_that_names_no_policy(
    serve: Serve, campaign: Campaign, clock: Clock
) -> None:
    """A line of the stops that cannot be read may have been a stop of this policy."""
    service = serve(wait=1.0, ramp=(0.2, 1.0), every=10.0)
    with (campaign.files.folder / "stops.jsonl").open("a") as file:
        file.write("half a line of a stop\n")
    service.turn()
    (stop,) = service.status.stops
    service.resume_policy([stop.id], "looked at", "ana")
    service.turn()
    ramp = service.status.ramp
    assert ramp is not None and "stopped" in ramp.ended and ramp.next is None


def test_a_restart_with_the_same_option_leaves_what_was_turned_live() -> None:
    """A supervisor starts the same command again; another option asks for another share."""
    first = ServingSettings(holdout=0.05)
    assert asked_share(first, None) == 0.95
    assert asked_share(first, first) is None
    assert asked_share(ServingSettings(holdout=0.5), first) == 0.5
    assert asked_share(ServingSettings(holdout=0.5, ramp=(0.5, 0.9)), first) is None


def test_a_person_who_turns_the_share_ends_the_ramp(serve: Serve, clock: Clock) -> None:
    service = serve(wait=1.0, ramp=(0.5, 1.0), every=1.0)
    service.change_share(0.4, "less", "ana")
    clock.advance(100.0)
    service.turn()
    ramp = service.status.ramp
    assert ramp is not None and ramp.ended == "ana turned the share by hand"
    assert service.status.share == 0.4


def test_a_ramp_may_begin_after_a_stop_that_was_lifted(serve: Serve, clock: Clock) -> None:
    service = serve(wait=1.0)
    stop = service.stop_policy("a doubt", "ana")
    service.resume_policy([stop.id], "none left", "ana")
    service.close()
    clock.advance(5.0)
    service = serve(wait=1.0, ramp=(0.5, 1.0), every=1.0)
    ramp = service.status.ramp
    assert ramp is not None and (ramp.ended, ramp.next) == ("", clock.now + 1.0)
    service.stop_policy("another", "ana")
    service.turn()
    ramp = service.status.ramp
    assert ramp is not None and "stopped" in ramp.ended
