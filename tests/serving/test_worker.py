"""Batches: keys, too much at once, a context that a policy cannot answer about, and chance."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.serving.asgi import Caller, Reply, caller, context
from tests.serving.conftest import Serve

from depsue.serving.access import Access
from depsue.serving.app import App
from depsue.serving.messages import Decide
from depsue.serving.service import Service
from depsue.serving.writing import fresh_chance


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


def test_large_calls_that_come_at_once_are_not_one_batch(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    real = type(service.served).cached

    def counted(self: Any, contexts: Any) -> Any:
        sizes.append(len(contexts))
        return real(self, contexts)

    monkeypatch.setattr(type(service.served), "cached", counted)

    async def together() -> list[int]:
        calls = [[Decide({**context(k)}) for k in range(300)] for _ in range(5)]
        calls += [[Decide({**context(k)})] for k in range(20)]
        made = await asyncio.gather(*(service.worker.decide(call) for call in calls))
        return [len(each) for each in made]

    assert asyncio.run(together()) == [300] * 5 + [1] * 20
    assert sum(sizes) == 1520 and max(sizes) <= 600


def test_no_two_processes_are_given_the_same_chance() -> None:
    given = [fresh_chance() for _ in range(1000)]
    assert len({*given}) == 1000 and {len(each) for each in given} == {32}
    code = (
        "import os\n"
        "from depsue.serving.writing import fresh_chance\n"
        "fresh_chance()\n"
        "child = os.fork()\n"
        "os.write(1, f'{fresh_chance()}\\n'.encode())\n"
        "if child: os.waitpid(child, 0)\n"
        "os._exit(0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert len({*done.stdout.split()}) == 2
