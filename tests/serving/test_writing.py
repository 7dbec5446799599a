"""What becomes of decisions while the store is gone."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from tests.serving.asgi import caller, context
from tests.serving.conftest import Log, Serve

from depsue.serving.service import StoreStatus
from depsue.serving.writing import Spool


def test_a_store_that_is_gone_means_pi0_and_a_spool(
    serve: Serve, home: Path, postgres: Any, log: Log
) -> None:
    service = serve(wait=60.0, holdout=0.0, store=postgres.new_database())
    call = caller(service, home)
    first = call.post("/v1/decide", {"context": context(), "key": "a"}).json
    postgres.stop()
    try:
        kept = call.post("/v1/decide", {"context": context(), "key": "a"})
        assert kept.json == first  # known keys are remembered
        spooled = [
            call.post("/v1/decide", {"context": context(), "key": f"b{k}"}).json for k in range(3)
        ]
        assert {one["decided_by"] for one in spooled} == {"pi0"} and service.spool.waiting
        reply = call.post("/v1/reward", {"decision": spooled[0]["decision"], "reward": 1.0})
        assert reply.status == 200
        assert call.get("/readyz").status == 200
    finally:
        postgres.start()
    log.wait_for("store back")
    assert service.status.store == StoreStatus(gone="", spooled=False)
    assert call.post("/v1/decide", {"context": context(), "key": "b1"}).json == spooled[1]
    assert call.post("/v1/decide", {"context": context()}).json["decided_by"] == "policy"
    rows, earned = service.reader.read(wait=60.0)
    assert Counter(row.decided_by for row in rows) == {"policy": 2, "pi0": 3}
    assert [one.decision for one in earned] == [spooled[0]["decision"]]
    assert {"store gone", "store back", "spool replayed"} <= set(log.events)


def test_or_it_means_stop(serve: Serve, home: Path, postgres: Any, log: Log) -> None:
    service = serve(wait=60.0, on_gone="stop", store=postgres.new_database())
    call = caller(service, home)
    postgres.stop()
    try:
        reply = call.post("/v1/decide", {"context": context()})
        assert reply.status == 503 and reply.headers["retry-after"]
        assert call.get("/readyz").status == 503
        assert not service.spool.waiting
    finally:
        postgres.start()
    log.wait_for("store back")
    assert call.post("/v1/decide", {"context": context()}).status == 200
    assert len(service.reader.read()[0]) == 1


def test_a_spool_of_the_first_version_is_read(tmp_path: Path) -> None:
    """It said `arm` for who decided."""
    decision = {"id": "0" * 32, "at": 1.0, "round": 1, "policy": "p", "arm": "pi0", "why": "gone",
                "action": 2, "propensity": 0.5, "p_policy": 0.1, "p_pi0": 0.5, "holdout": 0.0,
                "context": "{}"}  # fmt: skip
    line = json.dumps({"decisions": [decision], "rewards": [], "instead_of": []})
    (tmp_path / "spool.jsonl").write_text(line + "\n" + line[:40])  # the last one is torn
    (read,) = Spool(tmp_path).read().decisions
    assert (read.decided_by, read.action) == ("pi0", 2)
