"""What was served is the logs of the next round."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.serving.asgi import batch, caller, rewarded
from tests.serving.conftest import Clock, Serve

from depsue.campaigns import Campaign, story_of
from depsue.campaigns.records import RoundSummary
from depsue.errors import FileError
from depsue.serving.joining import export_served
from depsue.serving.settings import SPOOL, declared


def test_what_was_served_is_the_next_rounds_logs(
    serve: Serve, home: Path, campaign: Campaign, clock: Clock
) -> None:
    service = serve(wait=3.0)
    call = caller(service, home)
    made = batch(call, 1500)
    rewarded(call, made, lambda one: 0.4)
    rewarded(call, made, lambda one: 0.4)  # all of it twice
    declared(campaign.files.folder, {"wait": 3.0}, begun=False)
    clock.advance(3.1)
    late = call.post("/v1/reward", {"decision": made[0]["decision"], "reward": 1.0})
    assert late.status == 200  # and does not count
    found = export_served(campaign, None)
    policy = [one for one in made if one["decided_by"] == "policy"]
    assert (found.rows, found.holdout) == (len(policy), 1500 - len(policy))
    seen = campaign.observe(str(found.path), mapping=found.mapping)
    assert seen.rows == len(policy)
    assert campaign.ledger.registration(campaign.name, 1).kind == "decision"
    rng = np.random.default_rng(0)
    due = {one["decision"] for one in made if rng.random() < 0.4}
    mean = sum(one["decision"] in due for one in policy) / len(policy)
    assert campaign.logs(1).mean_reward() == pytest.approx(mean)
    folds = campaign.state().inputs(1500).folds
    readable = np.concatenate([folds.learn.reward, folds.select.reward])  # no page shows the others
    assert RoundSummary.of(seen).promises["reward"].mean == pytest.approx(readable.mean())
    assert story_of(campaign).round == 2


def test_export_waits_for_the_spool(campaign: Campaign, serve: Serve, home: Path) -> None:
    service = serve(wait=0.0)
    batch(caller(service, home), 5)
    service.close()  # nobody replays it
    spool = campaign.files.folder / SPOOL
    spool.mkdir()
    (spool / "spool.jsonl").write_bytes(b"")
    with pytest.raises(FileError, match="spool is replayed"):
        export_served(campaign, None)
