"""Callers that got no answer in time, and requests of a retrained pi0."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.serving.conftest import listening
from tests.serving.model import SERVED, SmallService, request, stored

from depsue.campaigns import Campaign
from depsue.client import Client, Refused, Unavailable
from depsue.errors import ConfigError, DataError
from depsue.policies import BroughtPolicy, ChosenPolicy, Mixture, Uniform
from depsue.serving.access import Access
from depsue.serving.app import App
from depsue.serving.http import Receive, Scope, Send
from depsue.serving.messages import DecisionReply
from depsue.serving.served import BY_ITSELF, OTHER_VERSION
from depsue.serving.service import Service
from depsue.serving.settings import ServingSettings

CONTEXT = {"x0": 0.1, "x1": -0.2, "x2": 0.3, "x3": 0.0}
NEW = np.array([False, False, True, True])
BROUGHT = replace(
    SERVED,
    policy=Mixture([BroughtPolicy(4), Uniform(NEW)], [0.2, 0.8]),
    pi0=BroughtPolicy(4),
    brings=True,
    versions=("may",),
    certain=Mixture([BroughtPolicy(4), Uniform(NEW)], [0.95, 0.05]),
)
ASKED: dict[str, Any] = {"candidates": ["i2", "i0", "i1"], "probabilities": [0.0, 0.75, 0.25]}
OWN: dict[str, Any] = {"chosen": "i1", "chosen_probability": 0.25}


def service(folder: Path, served: Any = BROUGHT, **settings: Any) -> SmallService:
    small = SmallService(folder, folder / "store.db", **settings)
    small.served = served
    return small


def rows(folder: Path) -> list[dict[str, Any]]:
    return [dict(row) for row in stored(folder / "store.db").values()]


@pytest.mark.parametrize("of_chosen", [False, True])
def test_what_a_caller_showed_is_pi0s_and_what_was_decided_for_it_counts_no_more(
    of_chosen: bool, tmp_path: Path
) -> None:
    beside = Mixture([ChosenPolicy(4), Uniform(NEW)], [0.2, 0.8])
    chosen = replace(BROUGHT, policy=beside, pi0=ChosenPolicy(4), versions=())
    small = service(tmp_path, chosen if of_chosen else replace(BROUGHT, versions=()))
    names = [f"k{j}" for j in range(40)]
    small.ask(*(request(name, **ASKED, **OWN) for name in names))
    told = small.ask(*(request(name, **ASKED, **OWN, shown=True) for name in names[:10]))
    assert all(isinstance(each, DecisionReply) for each in told)
    assert {(each.action, each.propensity, each.decided_by) for each in told} == {
        ("i1", 0.25, "pi0")
    }
    again = small.ask(request("k3", **ASKED, **OWN, shown=True))
    assert again == [told[3]]  # reported twice, it is one decision
    found = rows(tmp_path)
    mine = [row for row in found if row["why"] == BY_ITSELF]
    assert len(mine) == 10 and len(found) == 50
    assert {row["key"] for row in found if row["twin"]} == set(names[:10])
    # who asks again hears what was decided then
    assert isinstance(small.ask(request("k2", **ASKED, **OWN))[0], DecisionReply)


def test_what_was_judged_stays(tmp_path: Path) -> None:
    now = [100.0]
    small = service(tmp_path, clock=lambda: now[0], wait=60.0)
    small.ask(request("early", **ASKED, **OWN))
    now[0] = 170.0
    small.ask(request("early", **ASKED, **OWN, shown=True))
    assert {row["key"]: bool(row["twin"]) for row in rows(tmp_path)}["early"] is False


def test_a_report_needs_the_choice_and_the_key(tmp_path: Path) -> None:
    small = service(tmp_path)
    for wrong in (request("k", **ASKED, shown=True), request(None, **ASKED, **OWN, shown=True)):
        (refused,) = small.ask(wrong)
        assert isinstance(refused, DataError) and refused.column == "shown"


class Slow:
    """An app that keeps decisions waiting until it is told to answer."""

    def __init__(self, app: App) -> None:
        self._app, self.waits = app, threading.Event()
        self.answers = threading.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI asks."""
        if scope.get("path") == "/v1/decide" and self.waits.is_set():
            await self._app(scope, receive, _Held(send, self.answers))  # decided, answered late
            return
        await self._app(scope, receive, send)


class _Held:
    def __init__(self, send: Send, answers: threading.Event) -> None:
        self._send, self._answers = send, answers

    async def __call__(self, message: Any) -> None:
        """Answer when it is time."""
        while not self._answers.is_set():
            await asyncio.sleep(0.01)
        await self._send(message)


def test_a_client_fails_open_and_reports_later(
    campaign: Campaign, home: Path, tmp_path: Path
) -> None:
    served = Service(campaign, ServingSettings(wait=60.0))
    app = Slow(App(served, Access(home, open_to_all=True)))
    item = int(campaign.files.items(0).ids[3])
    own: dict[str, Any] = {"chosen": item, "chosen_probability": 0.2, "within": 0.3}
    with listening(app) as port, Client(f"http://127.0.0.1:{port}", tries=1) as client:
        answered = client.decide(CONTEXT, **own)
        assert answered.decided_by != "caller" and client.unreported == 0
        app.waits.set()
        shown = client.decide(CONTEXT, key="late", **own)
        app.answers.set()
        assert (shown.action, shown.propensity, shown.decided_by) == (item, 0.2, "caller")
        client.reward(shown, 1.0)
        assert client.unreported == 1
        assert client.report() == 1 and client.unreported == 0 and client.report() == 0
        with pytest.raises(ConfigError, match="shows pi0's own choice"):
            client.decide(CONTEXT, within=0.3)
        with pytest.raises(Refused):  # what would be refused again is no case for it
            client.decide({"x0": 0.1}, **own)
        counts = served.reader.counts()
        assert (counts["twins"], counts["rewards"], counts["pi0"]) == (1, 1, 1)
    gone = Client("http://127.0.0.1:9", tries=2)
    assert gone.decide(CONTEXT, **own).decided_by == "caller"
    with pytest.raises(Unavailable):
        gone.report()
    assert gone.unreported == 1


def test_a_retrained_pi0_gets_what_needs_no_certificate(tmp_path: Path) -> None:
    small = service(tmp_path, holdout=0.0)
    for version, share in (("may", 0.8), ("june", 0.05), (None, 0.05)):
        keys = [f"{version} {j}" for j in range(400)]
        made = small.ask(*(request(key, **ASKED, version=version) for key in keys))
        assert {each.decided_by for each in made} == {"policy"}
        new = np.mean([each.action == "i2" for each in made])
        assert abs(new - share) < 4 * (share * (1 - share) / 400) ** 0.5
    found = rows(tmp_path)
    assert {(row["version"], row["why"]) for row in found} == {
        ("may", ""),
        ("june", OTHER_VERSION),
        (None, OTHER_VERSION),
    }
    alone = service(tmp_path, replace(BROUGHT, certain=None), holdout=0.0)
    made = alone.ask(*(request(f"x{j}", **ASKED, version="june") for j in range(50)))
    assert {(each.decided_by, each.action == "i2") for each in made} == {("pi0", False)}
    # a pi0 that is called, and a policy that needs no certificate, know every version
    assert SERVED.knows("june") and replace(BROUGHT, what="certain").knows("june")
