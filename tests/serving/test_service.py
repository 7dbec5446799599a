"""The service as a whole: one per file, a version of the store, the policy the ledger names."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.serving.asgi import caller, context
from tests.serving.conftest import Log, Serve

from depsue.campaigns import Campaign
from depsue.errors import ConfigError, FileError
from depsue.serving.schema import SCHEMA
from depsue.serving.service import Service
from depsue.serving.settings import ServingSettings
from depsue.serving.store import Store


def test_one_service_serves_a_file(serve: Serve, campaign: Campaign) -> None:
    serve(wait=60.0)
    with pytest.raises(ConfigError, match="one service writes"):
        Service(campaign, ServingSettings()).start()


def test_a_store_of_a_newer_version_is_not_served(campaign: Campaign, serve: Serve) -> None:
    store = Store(campaign.files.folder / "decisions.db", "spring", writing=True)
    store.open()
    store.close()
    with store.database.writing() as connection:
        connection.execute(SCHEMA.versions.insert().values(version=9, at="later", depsue="9.0"))
    with pytest.raises(FileError, match="install a newer depsue; the store of decisions was not"):
        serve()


def test_a_new_deployment_is_taken_up_and_a_damaged_one_is_not(
    serve: Serve, home: Path, campaign: Campaign, log: Log
) -> None:
    service = serve(wait=60.0)
    call = caller(service, home)
    before = call.post("/v1/decide", {"context": context()}).json["policy"]
    assert (service.status.round, service.status.made_in) == (1, 1)
    rolled = campaign.rollback()
    service.turn()
    assert service.served.hash == rolled.policy_hash
    status = service.status
    assert (status.round, status.made_in, status.what) == (1, 0, "pi0")
    assert (status.decides.who, status.decides.fallback) == ("pi0", False)
    after = call.post("/v1/decide", {"context": context()}).json
    assert after["policy"] == rolled.policy_hash != before
    folder = campaign.folder_of(1, before)
    arrays = next(folder.glob("*.safetensors"))
    arrays.write_bytes(arrays.read_bytes()[:-1] + b"\x00")
    campaign.ledger.deploy("spring", 1, before, "rollback", by="ana")
    service.turn()
    assert service.problem
    kept = call.post("/v1/decide", {"context": context()})
    assert kept.status == 200 and kept.json["policy"] == rolled.policy_hash
    assert "policy refused" in log.events
