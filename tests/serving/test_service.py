"""The service as a whole: keys, candidates, the holdout, fallbacks, stops, new policies, logs."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from tests.serving.asgi import Caller, Reply
from tests.serving.conftest import Clock, Log, Serve

from depsue.campaigns import Campaign, story_of
from depsue.campaigns.records import RoundSummary
from depsue.errors import ConfigError, FileError
from depsue.serving.access import Access
from depsue.serving.app import App
from depsue.serving.joining import export_served
from depsue.serving.messages import Decide
from depsue.serving.served import ServedPolicy
from depsue.serving.service import Service, StoreStatus
from depsue.serving.settings import SPOOL, ServingSettings, declared
from depsue.serving.store import SCHEMA, Store


def context(k: int = 0) -> dict[str, float]:
    return {f"x{j}": float(np.sin(k + j)) for j in range(4)}


def batch(call: Caller, n: int, **more: Any) -> list[dict[str, Any]]:
    found = []
    for start in range(0, n, 500):
        asked = [{"context": context(k % 7), **more} for k in range(start, min(start + 500, n))]
        reply = call.post("/v1/decide/batch", {"decisions": asked})
        assert reply.status == 200, reply.text
        found += reply.json["decisions"]
    return found


def rewarded(
    call: Caller, made: list[dict[str, Any]], mean: Callable[[dict[str, Any]], float]
) -> None:
    rng = np.random.default_rng(0)
    given = [
        {"decision": one["decision"], "reward": 1.0} for one in made if rng.random() < mean(one)
    ]
    for start in range(0, len(given), 500):
        reply = call.post("/v1/reward/batch", {"rewards": given[start : start + 500]})
        assert reply.status == 200, reply.text


def caller(service: Service, home: Path) -> Caller:
    return Caller(App(service, Access(home, open_to_all=True)))


def test_a_key_gets_the_same_decision(call: Caller, service: Service) -> None:
    asked = {"context": context(), "key": "session 7"}
    first = call.post("/v1/decide", asked).json
    assert call.post("/v1/decide", asked).json == first
    both = call.post("/v1/decide/batch", {"decisions": [asked, asked]}).json["decisions"]
    assert both == [first, first]
    service.worker.writer.recent.clear()  # as after a restart
    assert call.post("/v1/decide", asked).json == first
    other = call.post("/v1/decide", {"context": context(1), "key": "session 7"})
    assert other.status == 409 and "another context" in other.json["found"]
    assert len(service.reader.read()[0]) == 1


def test_actions_follow_their_propensities(call: Caller, service: Service) -> None:
    made = [call_ for call_ in batch(call, 4000) if call_["decided_by"] == "policy"]
    rows, _ = service.reader.read(limit=10_000)
    logged = {row.id: row for row in rows}
    by_context: dict[str, Counter[int]] = {}
    for one in made:
        row = logged[one["decision"]]
        assert row.propensity == one["propensity"]
        by_context.setdefault(row.context, Counter())[row.action] += 1
    for text, counts in by_context.items():
        contexts = service.served.reader.contexts([json.loads(text)])
        pi = service.served.policy.probabilities(contexts)[0]
        n = sum(counts.values())
        seen = np.array([counts[a] for a in range(len(pi))])
        many = pi * n >= 5
        expected = np.append(pi[many] * n, max(n - (pi[many] * n).sum(), 1e-9))
        observed = np.append(seen[many], n - seen[many].sum())
        assert stats.chisquare(observed, expected * n / expected.sum()).pvalue > 1e-4


def test_candidates_restrict_the_policy_and_stay_out_of_the_logs(
    serve: Serve, home: Path, campaign: Campaign
) -> None:
    service = serve(wait=0.0, holdout=0.0)
    call = caller(service, home)
    ids = service.served.ids[:3]
    made = batch(call, 300, candidates=ids)
    assert {one["action"] for one in made} <= set(ids)
    rows, _ = service.reader.read()
    pi = service.served.policy.probabilities(
        service.served.reader.contexts([json.loads(row.context) for row in rows])
    )[:, :3]
    pi = pi / pi.sum(axis=1, keepdims=True)
    assert np.allclose(
        [row.propensity for row in rows], pi[np.arange(300), [r.action for r in rows]]
    )
    assert {row.candidates for row in rows} == {"[0,1,2]"}
    batch(call, 50)
    declared(campaign.files.folder, {"wait": 0.0}, begun=False)
    found = export_served(campaign, None)
    assert (found.rows, found.restricted) == (50, 300)
    refused = call.post("/v1/decide", {"context": context(), "candidates": ["no such item"]})
    assert refused.status == 422 and "no such item" in refused.json["found"]


def test_the_holdout_stays_on_pi0(serve: Serve, home: Path) -> None:
    service = serve(wait=60.0, holdout=0.3)
    made = batch(caller(service, home), 2000)
    held = [one for one in made if one["decided_by"] == "holdout"]
    assert stats.binomtest(len(held), 2000, 0.3).pvalue > 1e-4
    novel = {service.served.ids[k] for k in np.flatnonzero(service.served.catalogue.novel)}
    assert not any(one["action"] in novel for one in held)  # pi0 never shows them
    assert any(one["action"] in novel for one in made)
    rows, _ = service.reader.read()
    assert all(row.propensity == row.p_pi0 for row in rows if row.decided_by == "holdout")


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
    assert RoundSummary.of(seen).promises["reward"].mean == pytest.approx(mean)
    assert story_of(campaign).round == 2


def test_a_new_deployment_is_taken_up_and_a_damaged_one_is_not(
    serve: Serve, home: Path, campaign: Campaign, log: Log
) -> None:
    service = serve(wait=60.0)
    call = caller(service, home)
    before = call.post("/v1/decide", {"context": context()}).json["policy"]
    rolled = campaign.rollback()
    service.turn()
    assert service.served.hash == rolled.policy_hash
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


def test_a_stop_holds_over_a_restart_until_a_person_resumes(campaign: Campaign, home: Path) -> None:
    settings = ServingSettings(wait=60.0, holdout=0.0)
    service = Service(campaign, settings)
    service.start()
    call = caller(service, home)
    assert call.post("/v1/decide", {"context": context()}).json["decided_by"] == "policy"
    reply = call.post("/v1/policy/stop", {"reason": "a test", "by": "ana"})
    assert reply.json["monitor"]["state"] == "stopped"
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


def test_a_store_of_a_newer_version_is_not_served(campaign: Campaign, serve: Serve) -> None:
    store = Store(campaign.files.folder / "decisions.db", "spring", writing=True)
    store.open()
    store.close()
    with store.database.writing() as connection:
        connection.execute(SCHEMA.versions.insert().values(version=9, at="later", depsue="9.0"))
    with pytest.raises(FileError, match="install a newer depsue; the store of decisions was not"):
        serve()


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


def test_one_service_serves_a_file(serve: Serve, campaign: Campaign) -> None:
    serve(wait=60.0)
    with pytest.raises(ConfigError, match="one service writes"):
        Service(campaign, ServingSettings()).start()


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


def test_too_much_at_once_is_refused_not_queued(serve: Serve, home: Path) -> None:
    service = serve(wait=60.0, most_waiting=10)
    call = caller(service, home)
    body = json.dumps({"context": context()}).encode()

    async def one_too_many() -> tuple[Reply, int]:
        first = service.worker.decide([Decide({**context()}) for _ in range(10)])
        reply = await call.ask("POST", "/v1/decide", [body])  # before the loop hears of the first
        return reply, len(await first)

    reply, decided = asyncio.run(one_too_many())
    assert reply.status == 503 and reply.headers["retry-after"] == "1"
    assert decided == 10 and call.post("/v1/decide", {"context": context()}).status == 200


def test_what_a_policy_cannot_answer_harms_no_other_request(
    serve: Serve, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from depsue.errors import PolicyError

    service = serve(wait=60.0)
    real = type(service.served).distributions

    def picky(self: Any, contexts: Any) -> Any:
        if (contexts[:, 0] > 50).any():
            raise PolicyError("a score table answers only for the contexts it was made for")
        return real(self, contexts)

    monkeypatch.setattr(type(service.served), "distributions", picky)
    app = App(service, Access(home, open_to_all=True))
    good, bad = {"context": context()}, {"context": context() | {"x0": 99.0}}
    replies: list[int] = []

    def ask(body: dict[str, Any]) -> None:
        replies.append(Caller(app).post("/v1/decide", body).status)

    threads = [threading.Thread(target=ask, args=(one,)) for one in (good, bad, good, good)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(replies) == [200, 200, 200, 422]


class _OwnPi0(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        size = int(self.headers["content-length"])
        asked = json.loads(self.rfile.read(size))
        status = 200 if asked["context"]["x0"] >= 0 else 500
        body = json.dumps({"action": self.server.item, "propensity": 0.7}).encode()  # type: ignore[attr-defined]
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        return


def test_a_teams_own_pi0_decides_on_fallback(serve: Serve, home: Path, log: Log) -> None:
    server = HTTPServer(("127.0.0.1", 0), _OwnPi0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        service = serve(wait=60.0, pi0_url=f"http://127.0.0.1:{server.server_port}/decide")
        server.item = service.served.ids[2]  # type: ignore[attr-defined]
        service.stop_policy("a test", "ana")
        call = caller(service, home)
        made = call.post("/v1/decide", {"context": context() | {"x0": 1.0}}).json
        assert (made["action"], made["propensity"]) == (service.served.ids[2], 0.7)
        saved = call.post("/v1/decide", {"context": context() | {"x0": -1.0}}).json
        assert saved["decided_by"] == "pi0" and saved["propensity"] != 0.7  # the saved one
        assert "pi0's address failed" in log.events
    finally:
        server.shutdown()
        server.server_close()


def test_what_is_declared_stays_declared(tmp_path: Path) -> None:
    assert declared(tmp_path, {"wait": 5.0}, begun=False).wait == 5.0
    assert declared(tmp_path, {"holdout": 0.2}, begun=True) == ServingSettings(
        wait=5.0, holdout=0.2
    )
    with pytest.raises(ConfigError, match="wait is declared once"):
        declared(tmp_path, {"wait": 6.0}, begun=True)
    (tmp_path / "serving.json").write_text("{")
    with pytest.raises(FileError, match="what was declared for serving"):
        declared(tmp_path, {}, begun=True)


def test_export_waits_for_the_spool(campaign: Campaign, serve: Serve, home: Path) -> None:
    service = serve(wait=0.0)
    batch(caller(service, home), 5)
    service.close()  # nobody replays it
    spool = campaign.files.folder / SPOOL
    spool.mkdir()
    (spool / "spool.jsonl").write_bytes(b"")
    with pytest.raises(FileError, match="spool is replayed"):
        export_served(campaign, None)
