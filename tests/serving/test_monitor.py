"""The monitor stops the policy when live decisions give it reason to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.serving.asgi import batch, caller, context, rewarded
from tests.serving.conftest import Clock, Serve

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
    batch(call, 50)
    clock.advance(1.0)
    service.turn()
    assert service.monitor.run is not None and service.monitor.run.after >= 50
    assert service.state == "healthy"

    def by_pi0(served: ServedPolicy, contexts: Any) -> Any:
        base = served.pi0.probabilities(contexts)
        return base, base

    monkeypatch.setattr(ServedPolicy, "cached", by_pi0)  # decides otherwise than it says
    batch(call, 50)
    clock.advance(1.0)
    service.turn()
    assert "another probability" in service.stopped
