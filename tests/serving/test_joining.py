"""What was served is the logs of the next round."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest
from tests.serving.asgi import batch, caller, rewarded
from tests.serving.conftest import Clock, Serve

from depsue.campaigns import Campaign, story_of
from depsue.campaigns.records import RoundSummary
from depsue.errors import FileError
from depsue.serving.joining import export_served
from depsue.serving.settings import JOURNAL, STORE, declared
from depsue.serving.store import Decision, Store


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
    rng = np.random.default_rng(0)
    due = {one["decision"] for one in made if rng.random() < 0.4}
    mean = sum(one["decision"] in due for one in policy) / len(policy)
    assert campaign.logs(1).mean_reward() == pytest.approx(mean)
    folds = campaign.state().inputs(1500).folds
    readable = np.concatenate([folds.learn.reward, folds.select.reward])  # no page shows the others
    assert RoundSummary.of(seen).promises["reward"].mean == pytest.approx(readable.mean())
    assert story_of(campaign).round == 2


def test_export_waits_for_the_journal(campaign: Campaign, serve: Serve, home: Path) -> None:
    service = serve(wait=0.0)
    batch(caller(service, home), 5)
    service.close()  # nobody replays it
    journal = campaign.files.folder / JOURNAL
    journal.mkdir()
    (journal / "00000001.jsonl").write_bytes(b"a line\n")
    with pytest.raises(FileError, match="journal is replayed"):
        export_served(campaign, None)


def test_a_twin_is_no_row_and_is_charged_as_a_decision_without_one(
    campaign: Campaign, serve: Serve, home: Path
) -> None:
    service = serve(wait=0.0, holdout=0.0)
    batch(caller(service, home), 20)
    first = service.reader.read()[0][0]
    service.close()
    fields = [field.name for field in msgspec.structs.fields(Decision)]
    twin = Decision(**{name: getattr(first, name) for name in fields} | {"key": "k"})
    store = Store(campaign.files.folder / STORE, "spring", writing=True)
    store.open()
    both = [msgspec.structs.replace(twin, id=f"{k:032x}") for k in range(2)]
    assert store.replay(both, (), []) == 1
    store.close()
    declared(campaign.files.folder, {"wait": 0.0}, begun=False)
    written = export_served(campaign, None)
    assert (written.rows, written.twins, written.decisions) == (21, 1, 22)
    assert "1 of keys that were decided on both sides of an outage" in written.left_out
