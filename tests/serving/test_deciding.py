"""Decisions: actions follow their propensities; candidates, the holdout, a team's own pi0."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from tests.serving.asgi import Caller, batch, caller, context
from tests.serving.conftest import Clock, Log, Serve, seeded_chance
from tests.serving.model import SERVED, SmallService, request, stored

from depsue.campaigns import Campaign
from depsue.data.requests import Candidates, Requests
from depsue.errors import PolicyError
from depsue.policies.base import held
from depsue.policies.simple import ByItem
from depsue.serving.brought import unpacked
from depsue.serving.deciding import draw
from depsue.serving.exporting import export_served
from depsue.serving.service import Service
from depsue.serving.settings import ServingSettings, declared


def test_requests_without_a_key_are_drawn_by_the_chance_that_is_handed_in(
    campaign: Campaign, home: Path, clock: Clock, tmp_path: Path
) -> None:
    """Two services with the same chance, each with a store of its own, decide the same."""
    drawn = []
    for name in ("one.db", "two.db"):
        service = Service(
            campaign,
            ServingSettings(wait=60.0),
            store=str(tmp_path / name),
            clock=clock,
            refresh=3600.0,
            chance=seeded_chance(),
        )
        service.start()
        drawn.append(batch(caller(service, home), 50))
        service.close()
    assert drawn[0] == drawn[1] and len({each["decision"] for each in drawn[0]}) == 50


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
    contexts = service.served.reader.contexts([json.loads(row.context) for row in rows])
    among = Candidates.of_lists([[0, 1, 2]] * 300)
    pi = held(service.served.policy.over(Requests(contexts, among)))
    assert np.allclose(
        [row.propensity for row in rows], pi[np.arange(300), [r.action for r in rows]]
    )
    assert unpacked([row.candidates for row in rows]).items.tolist() == [0, 1, 2] * 300
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


@contextmanager
def own_pi0() -> Iterator[tuple[str, HTTPServer]]:
    """A team's own pi0: its address, and the server, which answers `item`."""
    server = HTTPServer(("127.0.0.1", 0), _OwnPi0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/decide", server
    finally:
        server.shutdown()
        server.server_close()


def test_a_teams_own_pi0_decides_on_fallback(serve: Serve, home: Path, log: Log) -> None:
    with own_pi0() as (url, server):
        service = serve(wait=60.0, pi0_url=url)
        server.item = service.served.ids[2]  # type: ignore[attr-defined]
        service.stop_policy("a test", "ana")
        call = caller(service, home)
        made = call.post("/v1/decide", {"context": context() | {"x0": 1.0}}).json
        assert (made["action"], made["propensity"]) == (service.served.ids[2], 0.7)
        saved = call.post("/v1/decide", {"context": context() | {"x0": -1.0}}).json
        assert saved["decided_by"] == "pi0" and saved["propensity"] != 0.7  # the saved one
        assert "pi0's address failed" in log.events


def test_nothing_is_drawn_that_is_never_shown() -> None:
    """Whatever the rounding: numbers next to 0 and to 1, and sums that are not quite 1."""
    rng, last = np.random.default_rng(3), np.nextafter(1.0, 0.0)
    shares = rng.random((4000, 9)) * (rng.random((4000, 9)) < 0.5)
    shares[shares.sum(axis=1) == 0, 4] = 1.0
    shares = np.concatenate([shares, shares / shares.sum(axis=1, keepdims=True)])
    few = np.flatnonzero(shares[:, 0] == 0)
    for uniforms in (np.zeros(len(shares)), np.full(len(shares), last), rng.random(len(shares))):
        drawn = draw(shares, uniforms)
        mine = shares[np.arange(len(shares)), drawn]
        assert (mine > 0).all()
        below = np.cumsum(shares, axis=1)[np.arange(len(shares)), drawn] - mine
        assert (below <= uniforms * shares.sum(axis=1) + 1e-9).all()
    assert (draw(shares[few], np.zeros(len(few))) > 0).all()


class _Overflows(ByItem):
    """A policy that gives no number where the context is large."""

    def probabilities(self, contexts: Any) -> Any:
        known = np.abs(np.asarray(contexts)[:, :1]) <= 1e9
        return np.where(known, super().probabilities(contexts), np.nan)


@pytest.mark.parametrize("up", [True, False])
def test_a_request_that_has_no_probabilities_is_refused_and_harms_no_other(
    tmp_path: Path, up: bool
) -> None:
    """Whether the policy decides into the store, or pi0 into the journal."""
    small = SmallService(tmp_path / "one", tmp_path / "decisions.db")
    item = _Overflows([0.1, 0.2, 0.3, 0.4])
    small.served = replace(SERVED, policy=item)
    small.link.up = up
    small.ask(request("before"))
    good, bad, other = small.ask(request("a"), request("b", x=1e10), request("c"))
    assert isinstance(bad, PolicyError) and "nan" in bad.found
    small.settle()
    assert small.writer.gone == "" and small.journal.damaged == 0
    rows = stored(tmp_path / "decisions.db")
    assert {row["key"]: id for id, row in rows.items()}["a"] == good.decision
    assert {row["key"] for row in rows.values()} == {"before", "a", "c"} and other.decision in rows


def test_a_context_that_no_policy_can_count_with_is_refused(call: Caller) -> None:
    for value in (3.4e38, -3.4e38, 1.01e15):
        reply = call.post("/v1/decide", {"context": dict.fromkeys(context(), value)})
        assert reply.status == 422 and "1e+15 in size at most" in reply.json["error"]
    largest = dict.fromkeys(context(), 1e15)
    assert call.post("/v1/decide", {"context": largest}).json["decided_by"] == "policy"
