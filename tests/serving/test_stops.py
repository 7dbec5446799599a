"""A stop holds, whatever happens, until a person resumes the policy."""

from __future__ import annotations

from pathlib import Path

from tests.serving.asgi import batch, caller, context
from tests.serving.conftest import Serve

from depsue.campaigns import Campaign
from depsue.serving.service import Service
from depsue.serving.settings import ServingSettings


def test_a_stop_holds_over_a_restart_until_a_person_resumes(campaign: Campaign, home: Path) -> None:
    settings = ServingSettings(wait=60.0, holdout=0.0)
    service = Service(campaign, settings)
    service.start()
    call = caller(service, home)
    assert call.post("/v1/decide", {"context": context()}).json["decided_by"] == "policy"
    reply = call.post("/v1/policy/stop", {"reason": "a test", "by": "ana"})
    assert reply.json["state"] == "stopped"
    assert {one["decided_by"] for one in batch(call, 20)} == {"pi0"}
    service.close()
    for gone in ("file", "store"):  # either remembers it
        if gone == "file":
            (campaign.files.folder / "stopped.json").unlink()
        else:
            (campaign.files.folder / "decisions.db").unlink()
            (campaign.files.folder / "stopped.json").write_text('{"reason": "a test"}')
        service = Service(campaign, settings)
        service.start()
        call = caller(service, home)
        assert {one["decided_by"] for one in batch(call, 20)} == {"pi0"}
        if gone == "store":
            assert call.post("/v1/policy/resume", {"reason": "healthy", "by": "bo"}).status == 200
            assert {one["decided_by"] for one in batch(call, 20)} == {"policy"}
            assert call.post("/v1/policy/resume", {"reason": "again"}).status == 409
        service.close()
    assert not (campaign.files.folder / "stopped.json").exists()


def test_a_stop_of_the_first_version_holds(campaign: Campaign, serve: Serve) -> None:
    (campaign.files.folder / "tripped.json").write_text('{"reason": "a test"}')
    assert serve().stopped == "a test"
    assert (campaign.files.folder / "stopped.json").exists()
