"""The client: what it asks, and that one request is one decision, however often it is sent."""

from __future__ import annotations

import http.client
import json
import pickle
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.serving.conftest import listening, seeded_chance

from depsue import client as client_module
from depsue.campaigns import Campaign
from depsue.client import Client, Decided, Refused, ServiceError, Unavailable
from depsue.errors import ConfigError, DepsueError
from depsue.serving.access import Access
from depsue.serving.app import App
from depsue.serving.brought import unpacked
from depsue.serving.http import Receive, Scope, Send
from depsue.serving.service import Service
from depsue.serving.settings import ServingSettings
from depsue.serving.store import Store

CONTEXT = {"x0": 0.1, "x1": -0.2, "x2": 0.3, "x3": 0.0}


@pytest.fixture
def connects(monkeypatch: pytest.MonkeyPatch) -> list[http.client.HTTPConnection]:
    """The connections of this test, in the order they were opened."""
    opened: list[http.client.HTTPConnection] = []
    connect = http.client.HTTPConnection.connect

    def noted(self: http.client.HTTPConnection) -> None:
        opened.append(self)
        connect(self)

    monkeypatch.setattr(http.client.HTTPConnection, "connect", noted)
    return opened


@pytest.fixture
def tokens(home: Path) -> dict[str, str]:
    access = Access(home)
    return {f"{role}_token": access.add(role, role) for role in ("decide", "reward", "admin")}


@pytest.fixture
def url(campaign: Campaign, home: Path, tokens: dict[str, str]) -> Iterator[str]:
    service = Service(campaign, ServingSettings(wait=60.0), chance=seeded_chance())
    with listening(App(service, Access(home))) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
def client(url: str, tokens: dict[str, str]) -> Iterator[Client]:
    with Client(url, **tokens) as made:  # type: ignore[arg-type]
        yield made


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that a client waits between tries, which then pass at once."""
    found: list[float] = []
    monkeypatch.setattr("depsue.client.time", SimpleNamespace(sleep=found.append))
    return found


def rows(campaign: Campaign) -> list[Any]:
    """The decisions that are in the store."""
    found, _ = Store(campaign.files.folder / "decisions.db", "spring").read()
    return found


def rewards(campaign: Campaign) -> list[Any]:
    """Their rewards."""
    _, found = Store(campaign.files.folder / "decisions.db", "spring").read(wait=60.0)
    return found


def test_decide_and_reward(client: Client, campaign: Campaign) -> None:
    one = client.decide(CONTEXT)
    assert isinstance(one, Decided) and one.round == 1 and 0 < one.propensity <= 1
    only = client.decide(CONTEXT, candidates=[3], unit="ana")
    assert (only.action, only.propensity) == (3, 1.0)
    client.reward(one, 0.5)
    client.reward(only.decision, 1.0, event="click", action=3)
    stored = {row.id: row for row in rows(campaign)}
    assert set(stored) == {one.decision, only.decision}
    assert stored[one.decision].propensity == one.propensity
    assert stored[only.decision].unit == '"ana"'
    assert json.loads(stored[one.decision].context) == CONTEXT
    earned = {row.decision: (row.value, row.shown) for row in rewards(campaign)}
    assert earned == {one.decision: (0.5, None), only.decision: (1.0, 3)}


def test_batches(client: Client, campaign: Campaign) -> None:
    asked = [{"context": CONTEXT, "candidates": [k]} for k in (7, 2, 5)]
    made = client.decide_batch(asked)
    assert [one.action for one in made] == [7, 2, 5]
    told: list[dict[str, Any]] = [{"decision": one, "value": 0.25} for one in made]
    assert client.reward_batch([*told, *told]) == 6
    assert len(rows(campaign)) == 3 and len(rewards(campaign)) == 3


def test_status(client: Client) -> None:
    assert client.status()["campaign"] == "spring"


def test_a_key_of_the_callers_own_gives_the_same_decision(client: Client) -> None:
    first = client.decide(CONTEXT, key="order 17")
    assert client.decide(CONTEXT, key="order 17") == first
    assert client.decide(CONTEXT) != client.decide(CONTEXT)  # keys of their own
    with pytest.raises(Refused, match="a key belongs to one request") as problem:
        client.decide(CONTEXT | {"x0": 9.0}, key="order 17")
    assert problem.value.status == 409


def test_numbers_of_numpy_are_numbers(client: Client, campaign: Campaign) -> None:
    client.decide(
        {name: np.float64(value) for name, value in CONTEXT.items()},
        candidates=list(np.arange(3)),
        unit=np.int64(7),  # type: ignore[arg-type]
    )
    (row,) = rows(campaign)
    assert (
        json.loads(row.context) == CONTEXT
        and row.unit == "7"
        and unpacked([row.candidates]).items.tolist() == [0, 1, 2]
    )


def test_what_cannot_be_sent_is_refused_before_it_is(client: Client) -> None:
    for value in (float("nan"), float("inf"), object(), np.zeros(3)):
        with pytest.raises(ConfigError, match="finite numbers"):
            client.decide({"x0": value})
    with pytest.raises(ConfigError, match="a request has .* and nothing else") as problem:
        client.decide_batch([{"context": CONTEXT, "contxt": 1}])
    assert problem.value.found == "['contxt']"


def test_a_refusal_has_the_rule_what_was_found_and_the_cure(
    client: Client, slept: list[float]
) -> None:
    with pytest.raises(Refused) as problem:
        client.decide({"x0": 1.0})
    refused = problem.value
    assert refused.rule == "the context column x1 must be a finite number"
    assert refused.found == "column 'x1': it is missing"
    assert refused.cure == "GET /v1/context shows a context that would be read"
    assert refused.status == 422
    copy = pickle.loads(pickle.dumps(refused))  # errors cross process borders whole
    assert (str(copy), copy.status) == (str(refused), 422)
    assert isinstance(refused, ServiceError) and isinstance(refused, DepsueError)
    assert slept == []  # the same again would be refused again


def test_tokens_are_in_no_message(url: str, tokens: dict[str, str], slept: list[float]) -> None:
    wrong = "depsue_" + "w" * 43
    known = Client(url, **tokens)  # type: ignore[arg-type]
    mixed = Client(url, decide_token=tokens["reward_token"], reward_token=wrong)
    nobody = Client("http://127.0.0.1:9", **tokens, tries=2)  # type: ignore[arg-type]
    said = [repr(known), str(known), f"{[mixed]}"]
    for call in (
        lambda: mixed.decide(CONTEXT),
        lambda: mixed.reward("0" * 32, 1.0),
        lambda: mixed.status(),
        lambda: nobody.decide(CONTEXT),
        lambda: known.decide({}),
        lambda: Client(url, decide_token=wrong + " \n"),
        lambda: Client(f"http://{wrong}@127.0.0.1"),
    ):
        with pytest.raises(DepsueError) as problem:
            call()
        cause = problem.value.__cause__
        said += [str(problem.value), repr(problem.value), repr(vars(problem.value)), repr(cause)]
    for token in (*tokens.values(), wrong):
        assert token not in "\n".join(said)
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(known)
    for one in (known, mixed, nobody):
        one.close()


@pytest.mark.parametrize(
    "url",
    ["", "127.0.0.1:8470", "ftp://host", "http://", "http://[", "http://host:x",
     "http://user:word@host", "http://host/?token=1", "http://host/#x"],
)  # fmt: skip
def test_a_url_is_one_of_a_service(url: str) -> None:
    with pytest.raises(ConfigError, match="the url is http://host:port"):
        Client(url)


def test_settings_are_checked() -> None:
    for timeout in (0, -1.0, float("nan"), True):
        with pytest.raises(ConfigError, match="timeout"):
            Client("http://host", timeout=timeout)
    with pytest.raises(ConfigError, match="tries"):
        Client("http://host", tries=0)


@contextmanager
def between(
    port: int, *, swallowed: int, before: bool = False
) -> Iterator[tuple[int, list[bytes]]]:
    """(port, requests) of a proxy that ends the first connections without an answer.

    Args:
        port: of the service behind it.
        swallowed: how many answers are lost.
        before: whether those requests are lost as well, before the service sees them.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    seen: list[bytes] = []

    def passed() -> None:
        while True:
            try:
                caller, _ = listener.accept()
            except OSError:
                return
            with caller:
                while request := _message(caller):
                    seen.append(request)
                    lost = len(seen) <= swallowed
                    if lost and before:
                        break
                    with socket.create_connection(("127.0.0.1", port)) as service:
                        service.sendall(request)
                        answer = _message(service)
                    if lost:
                        break
                    caller.sendall(answer)

    thread = threading.Thread(target=passed)
    thread.start()
    try:
        yield listener.getsockname()[1], seen
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def _message(of: socket.socket) -> bytes:
    """A whole request or answer; b"" at the end of the connection."""
    found = b""
    while b"\r\n\r\n" not in found:
        more = of.recv(65536)
        if not more:
            return b""
        found += more
    head, _, body = found.partition(b"\r\n\r\n")
    lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    size = int(lengths[0].split(b":")[1]) if lengths else 0
    while len(body) < size:
        body += of.recv(65536)
    return head + b"\r\n\r\n" + body


@pytest.mark.parametrize("before", [False, True], ids=["answer lost", "request lost"])
def test_two_retries_of_one_request_give_one_decision(
    url: str, tokens: dict[str, str], campaign: Campaign, slept: list[float], before: bool
) -> None:
    port = int(url.rpartition(":")[2])
    with between(port, swallowed=2, before=before) as (other, seen):
        with Client(f"http://127.0.0.1:{other}", **tokens) as client:  # type: ignore[arg-type]
            made = client.decide(CONTEXT)
    assert len(seen) == 3 and len({json.loads(_body(one))["key"] for one in seen}) == 1
    (row,) = rows(campaign)
    assert (row.id, row.propensity) == (made.decision, made.propensity)
    assert len(slept) == 2


def test_two_retries_of_rewards_and_batches_count_once(
    url: str, tokens: dict[str, str], campaign: Campaign, slept: list[float]
) -> None:
    port = int(url.rpartition(":")[2])
    with between(port, swallowed=2) as (other, _):
        with Client(f"http://127.0.0.1:{other}", **tokens) as client:  # type: ignore[arg-type]
            made = client.decide_batch([{"context": CONTEXT}] * 5)
    assert {one.decision for one in made} == {row.id for row in rows(campaign)}
    assert len(rows(campaign)) == 5
    with between(port, swallowed=2) as (other, _):
        with Client(f"http://127.0.0.1:{other}", **tokens) as client:  # type: ignore[arg-type]
            client.reward(made[0], 1.0)
    assert [(row.decision, row.value) for row in rewards(campaign)] == [(made[0].decision, 1.0)]


def _body(request: bytes) -> bytes:
    return request.partition(b"\r\n\r\n")[2]


class Busy:
    """An application that says 503 for a while, then what the other says."""

    def __init__(self, app: App, times: int, retry_after: bytes) -> None:
        self.app, self.left, self.retry_after, self.asked = app, times, retry_after, 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI asks."""
        self.asked += scope["type"] == "http"
        if scope["type"] == "lifespan" or self.left <= 0:
            await self.app(scope, receive, send)
            return
        self.left -= 1
        body = b'{"error":"too busy","found":"","cure":"try again in a moment"}'
        headers = [(b"retry-after", self.retry_after), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 503, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def test_a_busy_service_is_asked_again_when_it_says(
    campaign: Campaign, home: Path, slept: list[float]
) -> None:
    service = Service(campaign, ServingSettings(wait=60.0), chance=seeded_chance())
    app = App(service, Access(home, open_to_all=True))
    busy = Busy(app, 2, b"7")
    with listening(busy) as port, Client(f"http://127.0.0.1:{port}") as client:
        client.decide(CONTEXT)
        assert slept == [7.0, 7.0] and len(rows(campaign)) == 1
        busy.left, busy.asked, busy.retry_after = 100, 0, b"3600"
        slept.clear()
        with pytest.raises(Unavailable) as problem:
            client.decide(CONTEXT)
        assert busy.asked == 4  # no more than that
        assert slept == [client_module.LONGEST] * 3
        assert (problem.value.status, problem.value.rule) == (503, "too busy")
        busy.left, busy.retry_after = 1, b"Wed, 21 Oct 2026 07:28:00 GMT"
        slept.clear()
        client.decide(CONTEXT)
        assert len(slept) == 1 and 0 < slept[0] < 1


def test_a_service_that_is_not_there(slept: list[float]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(Unavailable) as problem:
        Client(f"http://127.0.0.1:{port}", tries=3).decide(CONTEXT)
    assert "ConnectionRefusedError" in problem.value.found and problem.value.status == 0
    assert "depsue serve" in problem.value.cure
    assert len(slept) == 2 and slept[0] == 0 < slept[1]


def test_an_answer_that_takes_too_long_ends_the_connection(
    slept: list[float], connects: list[http.client.HTTPConnection]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts, never answers
        client = Client(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout=0.05, tries=2)
        with pytest.raises(Unavailable, match="TimeoutError"):
            client.decide(CONTEXT)
    assert len(slept) == 1
    assert len(connects) == 2  # a late answer cannot be taken for the next one


@pytest.mark.parametrize(
    ("status", "body", "kind", "asked"),
    [
        (200, b"<html>", Unavailable, 1),
        (200, b"{}", Unavailable, 1),
        (200, b"[]", Unavailable, 1),
        (302, b"", Unavailable, 1),  # redirects are not followed: tokens stay here
        (404, b"<html>", Refused, 1),
        (404, b"[1]", Refused, 1),
        (500, b'{"error": "oh"}', Unavailable, 1),
        (502, b"bad gateway", Unavailable, 4),
    ],
)
def test_answers_of_something_else(
    status: int, body: bytes, kind: type[ServiceError], asked: int, slept: list[float]
) -> None:
    calls = 0

    async def other(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal calls
        if scope["type"] == "lifespan":
            for word in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{word}.complete"})
            return
        calls += 1
        headers = [(b"content-length", b"%d" % len(body)), (b"location", b"http://evil.example/")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    with listening(other) as port, Client(f"http://127.0.0.1:{port}", "secret") as client:
        with pytest.raises(kind) as problem:
            client.decide(CONTEXT)
    assert problem.value.status == status and calls == asked


def test_a_connection_is_kept_and_threads_have_their_own(
    url: str, tokens: dict[str, str], connects: list[http.client.HTTPConnection]
) -> None:
    with Client(url, **tokens) as client:  # type: ignore[arg-type]
        client.decide(CONTEXT)
        client.decide(CONTEXT)
        assert len(connects) == 1
        decided: list[Decided] = []
        thread = threading.Thread(target=lambda: decided.append(client.decide(CONTEXT)))
        thread.start()
        thread.join()
        assert isinstance(decided[0], Decided) and len(connects) == 2
        assert connects[0].sock is not None
    assert connects[0].sock is None  # closed
    assert client.decide(CONTEXT)  # and opened again when it is needed
    assert len(connects) == 3
    client.close()


def test_a_forked_process_does_not_share_the_connection(
    client: Client,
    connects: list[http.client.HTTPConnection],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client.decide(CONTEXT)
    monkeypatch.setattr("depsue.client.os", SimpleNamespace(getpid=lambda: -1))
    client.decide(CONTEXT)
    mine, forked = connects
    assert forked is not mine


def test_it_needs_nothing_but_the_standard_library() -> None:
    code = (
        "import sys, depsue.client; print(sorted({m.split('.')[0] for m in sys.modules} & "
        "{'numpy', 'torch', 'msgspec', 'requests', 'uvicorn', 'polars', 'urllib3'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
