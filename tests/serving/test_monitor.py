"""The monitor stops the policy when live decisions give it reason to."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.serving.asgi import batch, caller, context, rewarded
from tests.serving.conftest import Clock, Serve

from depsue.promises import Floor, Promise
from depsue.serving.monitor import MonitorEpoch, MonitorRun
from depsue.serving.served import ServedPolicy


def test_the_monitor_stops_the_policy_when_what_is_served_earns_too_little(
    serve: Serve, home: Path, clock: Clock
) -> None:
    service = serve(wait=2.0, holdout=0.2)
    call = caller(service, home)
    for _ in range(6):
        made = batch(call, 1000)
        rewarded(call, made, lambda one: 0.05 if one["decided_by"] == "policy" else 0.5)
        clock.advance(2.1)
        service.turn()
        if service.stopped:
            break
    assert "by holdout" in service.stopped
    assert call.post("/v1/decide", {"context": context()}).json["decided_by"] == "pi0"
    assert [event.kind for event in service.store.events()] == ["watch", "stop"]


def test_wrong_propensities_stop_the_policy_at_once(
    serve: Serve, home: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = serve(wait=0.2, holdout=0.0)
    call = caller(service, home)
    assert service.state == "waiting"
    batch(call, 50)
    clock.advance(1.0)
    service.turn()
    assert service.monitor.run is not None and service.monitor.run.after >= 50
    assert service.state == "waiting" and "50 decisions" in service.status.reason

    def by_pi0(served: ServedPolicy, contexts: Any) -> Any:
        base = served.pi0.probabilities(contexts)
        return base, base

    monkeypatch.setattr(ServedPolicy, "cached", by_pi0)  # decides otherwise than it says
    batch(call, 50)
    clock.advance(1.0)
    service.turn()
    assert "another probability" in service.stopped


def test_rewards_outside_their_range_are_counted_and_poison_nothing(
    serve: Serve, home: Path, clock: Clock
) -> None:
    """Rewards that add up to more than r_max: the monitor says so, and goes on with the rest."""
    service = serve(wait=2.0, holdout=0.2, combine="sum")
    call = caller(service, home)
    made = batch(call, 200)
    for event in ("first", "again"):
        given = [{"decision": one["decision"], "reward": 1.0, "event": event} for one in made[:50]]
        assert call.post("/v1/reward/batch", {"rewards": given}).status == 200
    clock.advance(2.1)
    service.turn()
    run = service.monitor.run
    assert run is not None and run.unusable == service.status.monitor.unusable == 50
    assert run.unjudged == 0 and run.evidence.n == 200
    by_name = {finding.name: finding for finding in service.monitor.findings}
    assert by_name["unusable rewards"].state == "watch"
    assert "50 rewards are outside their range" in str(by_name["unusable rewards"])
    assert all(math.isfinite(part.log_evidence) for part in run.evidence.parts)
    assert service.state == "stopped"  # a quarter of all rewards at their worst


def test_absolute_floors_and_units_are_judged_by_whole_cycles(
    serve: Serve, home: Path, clock: Clock
) -> None:
    """A run over the store's decisions: nothing before a cycle ends, one value a unit after it."""
    service = serve(wait=2.0, holdout=0.0, cycle=60.0)
    served, promise = service.served, Promise(Floor(None, absolute=0.9))
    by_users = replace(served, mapping=replace(served.mapping, unit="user"))
    runs = [
        MonitorRun(MonitorEpoch(what, 1, 0), service.settings, (promise,), rounds=1)
        for what in (served, by_users)
    ]
    call = caller(service, home)
    for cycle in range(2):
        for user in ("ana", "bo"):
            rewarded(call, batch(call, 200, unit=user), lambda one: 0.05)
        clock.advance(30.0)
        for run in runs:
            while run.step(service.store, clock.now):
                pass
            assert ([finding.state for finding in run.grave] != []) is (
                cycle == 1 and run is runs[0]
            )
        clock.advance(30.0)
    rows, units = (run.evidence.parts[0] for run in runs)
    assert rows.refuted and "400 decisions in whole cycles" in rows.words
    assert units.log_evidence > 0 and "2 values of units in whole cycles" in units.words
