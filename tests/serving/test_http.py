"""What the service answers over HTTP to those who mean no good, or do not know better."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import socket
from collections.abc import Iterator, MutableMapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.serving.asgi import Caller, Reply
from tests.serving.conftest import Log, logged, seeded_chance

from depsue.campaigns import Campaign, open_home
from depsue.serving import messages
from depsue.serving.access import Access
from depsue.serving.app import App, openapi
from depsue.serving.http import MOST_BODY, MOST_HEADERS
from depsue.serving.messages import (
    MOST_BATCH,
    MOST_COLUMNS,
    Decide,
    Intervention,
    RewardReport,
)
from depsue.serving.running import MOST_HEAD
from depsue.serving.service import Service
from depsue.serving.settings import ServingSettings
from depsue.serving.store import StoreGone
from depsue.serving.worker import Busy

CONTEXT = {"x0": 0.1, "x1": -0.2, "x2": 0.3, "x3": 0.0}
ID = "0" * 32
POSTS: dict[str, dict[str, Any]] = {
    "/v1/decide": {"context": CONTEXT},
    "/v1/decide/batch": {"decisions": [{"context": CONTEXT}]},
    "/v1/reward": {"decision": ID, "reward": 0.5},
    "/v1/reward/batch": {"rewards": [{"decision": ID, "reward": 0.5}]},
    "/v1/policy/stop": {"reason": "a test", "by": "ana"},
    "/v1/policy/resume": {"reason": "a test", "by": "ana"},
    "/v1/policy/share": {"share": 0.9, "reason": "a test", "by": "ana"},
}
HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "cache-control": "no-store",
}


@pytest.fixture(scope="module")
def anvil(made_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Caller]:
    """Calls one service that is hit by many tests."""
    home = Path(shutil.copytree(made_home, tmp_path_factory.mktemp("anvil") / "campaigns"))
    campaign = Campaign(open_home(home), home, "spring", by="ana")
    service = Service(campaign, ServingSettings(wait=60.0), chance=seeded_chance())
    service.start()
    with logged() as log:
        yield Caller(App(service, Access(home, open_to_all=True)))
    service.close()
    assert not {"request failed", "worker failed"} & set(log.events), log.text


def sound(reply: Reply, *, request: object = None) -> Reply:
    """The reply, after what must hold for all of them: no 5xx, JSON, and why if it is a refusal."""
    assert 200 <= reply.status < 500, (request, reply)
    assert reply.headers["content-type"] == "application/json"
    assert int(reply.headers["content-length"]) == len(reply.body) < 4096
    assert {name: reply.headers[name] for name in HEADERS} == HEADERS
    assert not [name for name in reply.headers if name.startswith("access-control-")]
    if reply.status != 200:
        assert set(reply.json) == {"error", "found", "cure"} and reply.json["error"]
        assert "Traceback" not in reply.text and ".py" not in reply.text
    return reply


def answers(call: Caller, service: Service, patched: pytest.MonkeyPatch) -> dict[int, Reply]:
    """One answer of each status."""
    long = [(b"x-long", b"a" * MOST_HEADERS)]
    origin = [(b"origin", b"https://elsewhere.example"), (b"host", b"127.0.0.1")]
    closed = Caller(App(service, Access("nowhere")))
    found = [
        call.post("/v1/decide", {"context": CONTEXT}),
        call.get("/healthz"),
        call.post("/v1/decide", b"{"),
        closed.post("/v1/decide", {"context": CONTEXT}),
        call.call("POST", "/v1/policy/stop", headers=origin),
        call.get("/nowhere"),
        call.get("/v1/decide"),
        call.post("/v1/policy/resume", POSTS["/v1/policy/resume"]),
        call.post("/v1/decide", b" " * (MOST_BODY + 1)),
        call.post("/v1/decide", {}),
        call.post("/v1/decide", {}, headers=long),
    ]

    def broken(*_: Any) -> Any:
        raise RuntimeError("a secret at /home/ana/secret.py")

    def busy(*_: Any) -> Any:
        raise Busy("the service has more to do than it can", cure="try again in a moment")

    for failing in (broken, busy):
        patched.setattr(service.worker, "decide", failing)
        found.append(call.post("/v1/decide", {"context": CONTEXT}))
    return {one.status: one for one in found}


def test_every_answer_has_the_headers_and_none_opens_cors(
    call: Caller, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = answers(call, service, monkeypatch)
    assert sorted(found) == [200, 400, 401, 403, 404, 405, 409, 413, 422, 431, 500, 503]
    for status, reply in found.items():
        assert {name: reply.headers[name] for name in HEADERS} == HEADERS, status
        assert not [name for name in reply.headers if name.startswith("access-control-")], status
        if status >= 400:
            assert set(reply.json) == {"error", "found", "cure"}, status
            assert reply.json["error"], status
            assert "Traceback" not in reply.text and ".py" not in reply.text, status
    for status in (401, 403, 404, 405, 413, 431, 503):
        assert found[status].json["cure"], status
    assert found[503].headers["retry-after"] == "1"


def test_a_failure_of_ours_is_told_inside_and_not_outside(
    call: Caller, service: Service, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    reply = answers(call, service, monkeypatch)[500]
    assert reply.json == {
        "error": "something went wrong here; the service's log says what",
        "found": "",
        "cure": "",
    }
    (details,) = [line for line in log.lines if line["event"] == "request failed"]
    assert details["path"] == "/v1/decide"
    assert details["error"] == "RuntimeError: a secret at /home/ana/secret.py"
    assert "in broken" in details["where"]


def test_where_the_store_is_stays_inside(
    call: Caller, service: Service, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: Any) -> Any:
        raise StoreGone("the store must answer", found="/srv/db: gone", cure="try again")

    monkeypatch.setattr(service.worker, "decide", gone)
    reply = call.post("/v1/decide", {"context": CONTEXT})
    assert (reply.status, reply.headers["retry-after"]) == (503, "2")
    assert "/srv/db" not in reply.text
    assert "/srv/db" in log.text


def test_cors_is_closed(anvil: Caller) -> None:
    """A browser's question whether another site may ask is refused."""
    asking = [
        (b"origin", b"https://shop.example"),
        (b"access-control-request-method", b"POST"),
        (b"access-control-request-headers", b"authorization"),
    ]
    closed = Caller(App(anvil.app.service, Access("nowhere")))
    for path in POSTS:
        for caller, status in ((anvil, 403), (closed, 405)):
            assert sound(caller.call("OPTIONS", path, headers=asking)).status == status
    assert sound(closed.call("OPTIONS", "/", headers=asking)).status == 404


def test_methods_that_a_path_does_not_take(anvil: Caller) -> None:
    for (method, path), _ in anvil.app.routes.items():
        for other in ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"):
            if other != method:
                reply = sound(anvil.call(other, path))
                assert reply.status == 405 and reply.headers["allow"] == method
                assert method in reply.json["cure"] and reply.json["found"] == other
    head = anvil.call("HEAD", "/healthz")
    assert head.status == 200 and head.body == b"" and int(head.headers["content-length"]) > 0
    assert anvil.call("HEAD", "/v1/decide").status == 405


def test_limits_stand_where_they_are_said_to(anvil: Caller) -> None:
    path = "/v1/decide"
    for extra, status in ((0, 200), (1, 422)):
        candidates = [3] * (ServingSettings().most_candidates + extra)
        asked = {"context": CONTEXT, "candidates": candidates}
        assert sound(anvil.post(path, asked)).status == status
        batch = {"decisions": [{"context": CONTEXT}] * (MOST_BATCH + extra)}
        assert anvil.post("/v1/decide/batch", batch).status == status
        rewards = {"rewards": [POSTS["/v1/reward"]] * (MOST_BATCH + extra)}
        assert sound(anvil.post("/v1/reward/batch", rewards)).status == status
        assert sound(anvil.post(path, {"context": CONTEXT, "key": "k" * (200 + extra)}))
        body = json.dumps({"context": CONTEXT}).encode()
        padded = body + b" " * (MOST_BODY - len(body) + extra)
        assert sound(anvil.post(path, padded)).status == (413 if extra else 200)
        halves = [padded[: MOST_BODY // 2], padded[MOST_BODY // 2 :]]
        assert anvil.call("POST", path, parts=halves).status == (413 if extra else 200)
        headers = [(b"a", b"b" * (MOST_HEADERS - 5 + extra))]
        assert anvil.call("GET", "/healthz", headers=headers).status == (431 if extra else 200)
    assert sound(anvil.post(path, {"context": {str(k): 0 for k in range(MOST_COLUMNS + 1)}}))
    unknown = list(range(1000, 11_000))
    reply = sound(anvil.post(path, {"context": CONTEXT, "candidates": unknown}))
    assert reply.status == 422 and "10000 unknown, such as 1000" in reply.json["found"]


@pytest.mark.parametrize("length", [b"99999999999", b"9" * 5000, b"-1", b"+1", b"x", b"1,2", b""])
def test_a_length_that_cannot_be_is_refused_unread(anvil: Caller, length: bytes) -> None:
    reply = anvil.call("POST", "/v1/decide", headers=[(b"content-length", length)])
    assert sound(reply).status == 413 and reply.read == 0


def test_a_chunked_body_is_read_up_to_the_limit_only(anvil: Caller) -> None:
    parts = [b" " * 65536] * 200
    reply = anvil.call("POST", "/v1/decide", parts=parts)
    assert sound(reply).status == 413 and reply.read == MOST_BODY // 65536 + 1


def test_who_leaves_early_leaves_no_trace(anvil: Caller) -> None:
    before = anvil.get("/metrics").text
    for parts in ([], [b'{"context": '], [b"{", b'"context": {}}']):
        assert anvil.call("POST", "/v1/decide", parts=parts, leaves=True).status == 0
    lines = [line for line in before.splitlines() if "decisions_total" in line]
    after = anvil.get("/metrics").text.splitlines()
    assert [line for line in after if "decisions_total" in line] == lines


DEEP = 100_000
NOT_JSON: list[bytes] = [
    b"",
    b" ",
    b"{",
    b"}",
    b'{"context": }',
    b"{'context': {}}",
    b'{"context": {},}',
    b"{} {}",
    b"\x00",
    b"\xef\xbb\xbf{}",
    b"\xff\xfe{\x00}\x00",
    b'{"context": {"x0": NaN}}',
    b'{"context": {"x0": Infinity}}',
    b'{"context": {"x0": -Infinity}}',
    b'{"context": {"x0": 0x10}}',
    b'{"context": {"x0": 01}}',
    b'{"context": {"x0": .5}}',
    b'{"key": "\xff"}',
    b'{"key": "\xed\xa0\x80"}',
    b'{"key": "\\ud800"}',
    b'{"key": "\\ud800 and more text"}',
    b'{"key": "\\udc00 and more text"}',
    b'{"key": "\\ud800\\ud800"}',
    b'{"key": "\xc0\x80"}',
    b'{"\xff": 1}',
    b'{"key": "\n"}',
    b'{"key": "\\x"}',
    b"<xml/>",
    b"context=1&key=2",
    bytes(range(256)) * 100,
]
NOT_RIGHT: list[bytes] = [
    b"null",
    b"true",
    b"0",
    b'"text"',
    b"[]",
    b"[{}]",
    b"[" * DEEP,
    b"[" * DEEP + b"]" * DEEP,
    b'{"a":' * DEEP + b"1" + b"}" * DEEP,
    b'{"context":' * DEEP,
    b'{"decisions":' * DEEP,
    b'{"decisions":[' * DEEP,
    b'{"rewards":[' * DEEP,
    b'{"context":{"x0":' + b"[" * DEEP,
    b'{"context": {"x0": 1e999, "x1": 0, "x2": 0, "x3": 0}}',
    b'{"context": {"x0": -1e999, "x1": 0, "x2": 0, "x3": 0}}',
    b'{"context": {"x0": 1e300, "x1": 0, "x2": 0, "x3": 0}}',
    b'{"context": {"x0": ' + b"9" * 400 + b', "x1": 0, "x2": 0, "x3": 0}}',
    b'{"context": {"x0": ' + b"9" * 5000 + b', "x1": 0, "x2": 0, "x3": 0}}',
    b'{"context": {"x0": ' + b"9" * 1_000_000 + b', "x1": 0, "x2": 0, "x3": 0}}',
    b'{"reward": ' + b"9" * 5000 + b', "decision": "' + ID.encode() + b'"}',
    b'{"rewards": [{"reward": 1e999, "decision": "' + ID.encode() + b'"}]}',
    b'{"' + b"u" * 1_000_000 + b'": 1}',
    b'{"context": {"' + b"u" * 1_000_000 + b'": 1, "x0": 0, "x1": 0, "x2": 0, "x3": 0}}',
    b'{"context": {}, "context": {"x0": "twice"}}',
    b'{"reason": ""}',
    b'{"reason": "\\u0000"}',
]


@pytest.mark.parametrize("path", POSTS)
def test_what_is_not_json(anvil: Caller, path: str) -> None:
    for body in NOT_JSON:
        reply = sound(anvil.post(path, body), request=body)
        assert reply.status in (400, 422), body
        assert reply.json["error"].startswith("the body must be"), body


@pytest.mark.parametrize("path", POSTS)
def test_json_that_is_not_a_request(anvil: Caller, path: str) -> None:
    for body in NOT_RIGHT:
        assert sound(anvil.post(path, body), request=body[:100]).status in (400, 422), body[:100]


WRONG: list[Any] = [
    None,
    True,
    False,
    0,
    -1,
    2**63,
    -(2**63) - 1,
    2**200,
    0.5,
    1e308,
    -1e308,
    "",
    "\x00",
    "a\x00b",
    "\ufffe\U0010ffff",
    "'; DROP TABLE serving_decisions; --",
    "../../etc/passwd",
    "x" * 201,
    "x" * 20_000,
    [],
    [None],
    [[]],
    [True],
    [0.5],
    [2**63],
    ["x" * 201],
    [{}],
    {},
    {"x0": None},
    {"x0": [0.0]},
    {"x0": {}},
    {"x0": "0.0"},
    {"x0": True},
    {"": 0},
    {"\x00": 0},
    CONTEXT | {"more": 0},
    CONTEXT | {"x0": "x" * 20_000},
]
"""Values of which at most a few are right, for any field."""


@pytest.mark.parametrize("path", POSTS)
def test_wrong_types_in_every_field(anvil: Caller, path: str) -> None:
    good = POSTS[path]
    kind, wrap = _kind(path)
    one = good[wrap][0] if wrap else good
    for field in (*kind.__struct_fields__, "unknown"):
        refused = 0
        for value in WRONG:
            asked = {**one, field: value}
            body = {wrap: [asked]} if wrap else asked
            reply = sound(anvil.post(path, body), request=(field, value))
            refused += reply.status in (409, 422)
            if field == "unknown":
                assert reply.status == 422 and "unknown" in reply.json["found"]
        assert refused > len(WRONG) // 2, field
    if wrap:
        for value in WRONG:
            assert sound(anvil.post(path, {wrap: value}), request=value).status == 422


def _kind(path: str) -> tuple[type[msgspec.Struct], str]:
    """(what is asked, the name of its list in a batch)."""
    if "monitor" in path:
        return Intervention, ""
    kind: type[msgspec.Struct] = Decide if "decide" in path else RewardReport
    names = {"/v1/decide/batch": "decisions", "/v1/reward/batch": "rewards"}
    return kind, names.get(path, "")


@pytest.mark.parametrize("key", ["\x00", "a\x00b", "\x00" * 200])
def test_text_that_a_database_cannot_keep_is_refused(anvil: Caller, key: str) -> None:
    """PostgreSQL has no NUL in text; one such row would hold up all others of its commit."""
    refused = [
        anvil.post("/v1/decide", {"context": CONTEXT, "key": key}),
        anvil.post("/v1/reward", {"decision": ID, "reward": 0.5, "event": key}),
        anvil.post("/v1/policy/stop", {"reason": key}),
        anvil.post("/v1/policy/stop", {"reason": "a test", "by": key}),
        anvil.post("/v1/reward", {"decision": ID + "\n", "reward": 0.5}),
    ]
    refused.append(anvil.post("/v1/decide", {"context": CONTEXT, "unit": key}))
    assert [reply.status for reply in refused] == [422] * 6


def test_the_last_of_two_equal_keys_counts(anvil: Caller) -> None:
    twice = (
        json.dumps({"context": CONTEXT})[:-1].encode() + b', "candidates": [1], "candidates": [2]}'
    )
    assert sound(anvil.post("/v1/decide", twice)).json["action"] == 2


def test_unknown_candidates_and_units(anvil: Caller) -> None:
    for unknown in ([20], ["3"], [-1], [2**62]):
        reply = sound(anvil.post("/v1/decide", {"context": CONTEXT, "candidates": unknown}))
        assert reply.status == 422 and "1 unknown" in reply.json["found"]
    mixed = sound(anvil.post("/v1/decide", {"context": CONTEXT, "candidates": [3, -1]}))
    assert mixed.status == 200 and mixed.json["action"] == 3  # what is unknown cannot be shown
    batch = [{"context": CONTEXT}, {"context": CONTEXT, "candidates": [99]}]
    assert sound(anvil.post("/v1/decide/batch", {"decisions": batch})).status == 422


def test_rewards_that_cannot_be(anvil: Caller) -> None:
    for value in (-0.001, 1.001, 1e300, -1e300):
        reply = sound(anvil.post("/v1/reward", {"decision": ID, "reward": value}))
        assert reply.status == 422 and "rewards must lie in [0, 1]" in reply.json["error"]
    reply = sound(anvil.post("/v1/reward", {"decision": ID, "reward": 0.5, "name": "sales"}))
    assert reply.status == 422 and "one of the mapping's columns" in reply.json["error"]
    for decision in ("", "0" * 31, "0" * 33, "G" * 32, "A" * 32):
        assert anvil.post("/v1/reward", {"decision": decision, "reward": 0.5}).status == 422


plain = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
anything = st.recursive(
    plain,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)
contexts = st.fixed_dictionaries(
    {}, optional={name: st.floats(-9, 9) | anything for name in (*CONTEXT, "more")}
)
some_ids = st.lists(st.integers(-1, 21) | anything, max_size=5)
decides = st.fixed_dictionaries(
    {},
    optional={
        "context": st.just(CONTEXT) | contexts | anything,
        "candidates": some_ids | anything,
        "unit": st.integers() | st.text(max_size=5) | anything,
        "key": st.sampled_from(["a", "b"]) | anything,
        "more": anything,
    },
)
rewards = st.fixed_dictionaries(
    {},
    optional={
        "decision": st.sampled_from([ID, "f" * 32]) | anything,
        "reward": st.floats(0, 1) | anything,
        "name": st.just("reward") | anything,
        "event": st.text(max_size=5) | anything,
        "action": st.integers(-1, 21) | anything,
        "more": anything,
    },
)
interventions = st.fixed_dictionaries({}, optional={"reason": st.text() | anything, "by": anything})
LIKELY: dict[str, st.SearchStrategy[Any]] = {
    "/v1/decide": decides,
    "/v1/decide/batch": st.fixed_dictionaries({"decisions": st.lists(decides, max_size=4)}),
    "/v1/reward": rewards,
    "/v1/reward/batch": st.fixed_dictionaries({"rewards": st.lists(rewards, max_size=4)}),
    "/v1/policy/stop": interventions,
    "/v1/policy/resume": interventions,
    "/v1/policy/share": interventions,
}


@pytest.mark.parametrize("path", POSTS)
@given(data=st.data())
def test_any_json_at_all(anvil: Caller, path: str, data: st.DataObject) -> None:
    value = data.draw(LIKELY[path] | anything)
    body = json.dumps(value).encode()  # with NaN, Infinity and lone surrogates as Python has them
    reply = sound(anvil.post(path, body), request=value)
    assert reply.status in (200, 400, 409, 422)


@pytest.mark.parametrize("path", POSTS)
@given(body=st.binary(max_size=200))
def test_any_bytes_at_all(anvil: Caller, path: str, body: bytes) -> None:
    assert sound(anvil.post(path, body), request=body).status in (400, 422)


@given(cut=st.integers(0, 200), byte=st.integers(0, 255), path=st.sampled_from(sorted(POSTS)))
def test_a_request_with_one_byte_changed(anvil: Caller, cut: int, byte: int, path: str) -> None:
    body = bytearray(json.dumps(POSTS[path]).encode())
    body[cut % len(body)] = byte
    sound(anvil.post(path, bytes(body)), request=body)


@given(path=st.text(max_size=50))
def test_any_path_at_all(anvil: Caller, path: str) -> None:
    for method in ("GET", "POST"):
        sound(anvil.call(method, f"/{path}"), request=path)


def test_after_all_of_this_the_books_balance(call: Caller, service: Service) -> None:
    """What was answered is in the store, once, and nothing else is."""
    answered: dict[str, dict[str, Any]] = {}
    bodies: list[Any] = [*NOT_JSON, *NOT_RIGHT]
    bodies += [{"context": CONTEXT, field: value} for field in ("unit", "key") for value in WRONG]
    bodies += [{"context": CONTEXT, "candidates": [k, k + 1]} for k in range(15, 25)]
    for body in bodies * 2:
        reply = sound(call.post("/v1/decide", body))
        if reply.status == 200:
            answered[reply.json["decision"]] = reply.json
        reply = sound(call.post("/v1/decide/batch", {"decisions": [body, {"context": CONTEXT}]}
                                if isinstance(body, dict) else body))  # fmt: skip
        if reply.status == 200:
            answered |= {one["decision"]: one for one in reply.json["decisions"]}
    rows, _ = service.reader.read()
    assert {row.id: row.propensity for row in rows} == {
        id: one["propensity"] for id, one in answered.items()
    }
    assert len(rows) > 40


def raw(port: int, *parts: bytes, ends: bool = False, first: bool = False) -> bytes:
    """What comes back to bytes as they are, until the connection is closed.

    Args:
        port: of the server.
        parts: are sent one after the other.
        ends: whether nothing can follow them.
        first: whether the first answer is enough.
    """
    found = b""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        try:
            for part in parts:
                connection.sendall(part)
            if ends:
                connection.shutdown(socket.SHUT_WR)
            while not (first and _whole(found)) and (more := connection.recv(65536)):
                found += more
        except ConnectionError:  # it was closed while we were sending
            pass
    return found


def _whole(answer: bytes) -> bool:
    head, _, body = answer.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head)
    return length is not None and len(body) >= int(length[1])


HEAD = b"POST /v1/decide HTTP/1.1\r\nhost: x\r\n"
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("status", "parts"),
    [
        (413, [HEAD + b"content-length: 99999999999\r\n\r\n{}"]),
        (413, [CHUNKED, *[b"10000\r\n" + b" " * 65536 + b"\r\n"] * 80, b"0\r\n\r\n"]),
        (431, [HEAD + b"x-long: " + b"a" * 100_000 + b"\r\ncontent-length: 2\r\n\r\n{}"]),
        (431, [HEAD + b"x: y\r\n" * 15_000 + b"content-length: 2\r\n\r\n{}"]),
        (422, [HEAD + b"content-length: 2\r\n\r\n{}"]),
        (422, [HEAD + b"expect: nothing\r\ncontent-length: 2\r\n\r\n", b"{", b"}"]),
        (422, [CHUNKED, b"1\r\n{\r\n", b"1;x=y\r\n}\r\n", b"0\r\n\r\n"]),
        (400, [CHUNKED, b"1\r\n{\r\n", b"0\r\n\r\n"]),
        (404, [b"GET /%00%ff%2e%2e/etc/passwd HTTP/1.0\r\n\r\n"]),
        (405, [b"DELETE /v1/decide HTTP/1.0\r\n\r\n"]),
        (404, [b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\n"
               b"upgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: "
               b"dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"]),
    ],
)  # fmt: skip
def test_raw_requests_that_are_http(port: int, status: int, parts: Sequence[bytes]) -> None:
    head, _, body = raw(port, *parts, first=True).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status), head
    assert json.loads(body)["error"]
    assert b"x-content-type-options: nosniff" in head


@pytest.mark.parametrize(
    "parts",
    [
        [b"\x16\x03\x01\x00\xff\x01\x00\r\n\r\n"],
        [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"],
        [b"FETCH /v1/decide HTTP/1.1\r\n\r\n"],
        [HEAD + b"content-length: -1\r\n\r\n{}"],
        [HEAD + b"content-length: 1\r\n\r\n{}"],
        [HEAD + b"content-length: 2\r\ncontent-length: 3\r\n\r\n{} "],
        [HEAD + b"content-length: " + b"9" * 5000 + b"\r\n\r\n"],
        [HEAD + b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"],
        [CHUNKED + b"ZZ\r\n"],
        [b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n"],
    ],
)
def test_raw_requests_that_are_not_http(port: int, log: Log, parts: Sequence[bytes]) -> None:
    """The server refuses them before they are a request, and closes."""
    head, _, body = raw(port, *parts).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ") and json.loads(body)["error"]
    for name, value in HEADERS.items():
        assert f"\r\n{name}: {value}".encode() in head
    assert b"HTTP/1.1 200" in raw(port, b"GET /healthz HTTP/1.0\r\n\r\n")
    assert "request failed" not in log.events


def test_headers_without_end_are_cut_off(port: int) -> None:
    piece = b"x-long: " + b"a" * 65_000 + b"\r\n"
    for parts in (
        [HEAD, *[piece] * 2000],
        [HEAD + b"x-long: ", *[b"a" * 65536] * 2000],
        [b"GET /", *[b"a" * 65536] * 2000],
        [CHUNKED, b"1\r\n{\r\n0\r\n", *[piece] * 2000],
    ):
        found = raw(port, *parts)
        assert b"200 OK" not in found
        assert not found or found.startswith((b"HTTP/1.1 431 ", b"HTTP/1.1 400 ")), found
    assert b"HTTP/1.1 200" in raw(port, b"GET /healthz HTTP/1.0\r\n\r\n")


def test_a_large_body_is_not_taken_for_headers(port: int) -> None:
    body = json.dumps({"context": CONTEXT}).encode() + b" " * (4 * MOST_HEAD)
    plain = HEAD + b"content-length: %d\r\n\r\n" % len(body)
    assert raw(port, plain, body, first=True).startswith(b"HTTP/1.1 200 ")
    pieces = [b"%x\r\n%s\r\n" % (len(one), one) for one in (body[:65536], body[65536:])]
    answer = raw(port, CHUNKED, *pieces, b"0\r\n\r\n", first=True)
    assert answer.startswith(b"HTTP/1.1 200 ")
    many = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n" * 8_000  # on one connection
    last = b"GET /healthz HTTP/1.0\r\n\r\n"
    assert raw(port, many, last).count(b"HTTP/1.1 200 ") == 8_001


def test_half_a_body_is_no_request(port: int, log: Log) -> None:
    assert raw(port, HEAD + b"content-length: 100\r\n\r\n{}", ends=True) == b""
    assert b"HTTP/1.1 200" in raw(port, b"GET /healthz HTTP/1.0\r\n\r\n")
    assert "request failed" not in log.events


def test_websockets_are_closed(anvil: Caller) -> None:
    sent: list[MutableMapping[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "websocket.connect"}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    asyncio.run(anvil.app({"type": "websocket", "path": "/"}, receive, send))
    assert sent == [{"type": "websocket.close"}]


def test_openapi_has_the_routes_that_there_are(anvil: Caller) -> None:
    served = anvil.get("/openapi.json").json
    assert served == json.loads(json.dumps(openapi(anvil.app.routes.values())))
    told = {
        (method.upper(), path): one
        for path, of in served["paths"].items()
        for method, one in of.items()
    }
    routes = anvil.app.routes
    assert set(told) == set(routes)
    for key, one in told.items():
        role = routes[key].role
        assert ("security" in one) == ("401" in one["responses"]) == (role is not None)
        assert role is None or f"role {role}" in one["description"]
        assert ("requestBody" in one) == (key[0] == "POST")
        assert one["summary"]
    names = [one["operationId"] for one in told.values()]
    assert len(set(names)) == len(names)


def test_openapi_has_the_messages_that_there_are(anvil: Caller) -> None:
    served = anvil.get("/openapi.json").json
    assert served["openapi"].startswith("3.1")
    schemas = served["components"]["schemas"]
    refs = re.findall(r'"#/components/schemas/(\w+)"', json.dumps(served))
    assert set(refs) == set(schemas)
    for name, schema in schemas.items():
        fields = msgspec.structs.fields(getattr(messages, name))
        assert set(schema["properties"]) == {one.encode_name for one in fields}
        assert set(schema["required"]) == {one.encode_name for one in fields if one.required}
    for path, asked in POSTS.items():
        reply = anvil.post(path, asked)
        found = served["paths"][path]["post"]["responses"]
        assert str(reply.status) in found
        told = found[str(reply.status)].get("content")
        if told is not None:
            ref = told["application/json"]["schema"]["$ref"].rpartition("/")[2]
            assert set(reply.json) == set(schemas[ref]["properties"])


def test_the_example_of_a_context_is_read(anvil: Caller) -> None:
    example = anvil.get("/v1/context").json
    assert anvil.post("/v1/decide", example).status == 200
