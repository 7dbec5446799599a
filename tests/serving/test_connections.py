"""Connections: how many there may be, how much each may hold, and how long one may be idle."""

from __future__ import annotations

import asyncio
import http.client
import json
import resource
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, cast

import pytest
import uvicorn

from depsue.errors import ConfigError
from depsue.serving.running import (
    IDLE,
    RESERVE,
    SLICE,
    Protocol,
    Server,
    close_idle,
    connection_limit,
    listen,
)

REQUEST = b"GET /healthz HTTP/1.1\r\nhost: here\r\n\r\n"
ANSWER = [(b"content-length", b"2")]


def answer(client: socket.socket) -> bytes:
    """The next answer, which may come in pieces."""
    received = b""
    while not received.endswith(b"\r\n\r\nok"):
        piece = client.recv(1000)
        assert piece, received
        received += piece
    return received


class Running:
    """A server on loopback that answers `ok`, after `before` has looked at its connections."""

    def __init__(self, before: Callable[[set[Protocol]], Awaitable[None]]) -> None:
        self._before = before
        config = uvicorn.Config(
            self,
            http=Protocol,
            ws="none",
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_keep_alive=600,
        )
        self.server = Server(config)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await self._before(cast(set[Protocol], self.server.server_state.connections))
        await send({"type": "http.response.start", "status": 200, "headers": ANSWER})
        await send({"type": "http.response.body", "body": b"ok"})

    @contextmanager
    def listening(self) -> Iterator[int]:
        listener = listen("127.0.0.1", 0)
        thread = threading.Thread(target=self.server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield int(listener.getsockname()[1])
        finally:
            self.server.should_exit = True
            thread.join()
            listener.close()


def test_requests_without_reading_answers_are_held_back() -> None:
    """Answers are not taken, and 32 MB of requests are on their way: next to nothing is held."""
    seen: list[tuple[int, int]] = []
    enough = threading.Event()

    async def look(connections: set[Protocol]) -> None:
        seen.extend(connection.buffered for connection in connections)
        if len(seen) >= 2000:
            enough.set()

    with Running(look).listening() as port, socket.create_connection(("127.0.0.1", port)) as client:

        def flood() -> None:
            with suppress(OSError):  # until the test hangs up
                client.sendall(REQUEST * (32_000_000 // len(REQUEST)))

        sending = threading.Thread(target=flood)
        sending.start()
        assert enough.wait(60)
        client.shutdown(socket.SHUT_RDWR)
        sending.join()
    requests, unparsed = (max(column) for column in zip(*seen, strict=True))
    assert 1 <= requests <= SLICE // len(REQUEST) + 1
    assert unparsed <= 1 << 19  # one read


def test_pipelined_requests_are_all_answered_in_turn() -> None:
    async def look(connections: set[Protocol]) -> None:
        await asyncio.sleep(0)

    body = b"POST /x HTTP/1.1\r\nhost: here\r\ncontent-length: 5000\r\n\r\n" + b"x" * 5000
    with Running(look).listening() as port, socket.create_connection(("127.0.0.1", port)) as client:
        sending = threading.Thread(target=client.sendall, args=((REQUEST + body) * 500,))
        sending.start()
        received = b""
        while received.count(b"\r\n\r\nok") < 1000:
            piece = client.recv(1 << 16)
            assert piece
            received += piece
        sending.join()
    assert received.count(b"HTTP/1.1 200") == 1000


def test_idle_connections_are_closed_and_working_ones_are_not() -> None:
    async def sweep(connections: set[Protocol]) -> None:
        assert len(connections) == 3
        close_idle(connections, time.monotonic() + IDLE + 1)

    with Running(sweep).listening() as port, ExitStack() as stack:
        silent, slow, working = (
            stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(3)
        )
        slow.sendall(REQUEST[:10])
        working.sendall(REQUEST)
        assert answer(working)
        for closed in (silent, slow):
            with suppress(ConnectionResetError):
                assert closed.recv(1) == b""


def test_beyond_the_limit_the_longest_idle_connection_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("depsue.serving.running.connection_limit", lambda: 2)

    async def look(connections: set[Protocol]) -> None:
        return

    def ask(client: socket.socket) -> bytes:
        client.sendall(REQUEST)
        return answer(client)

    with Running(look).listening() as port, ExitStack() as stack:

        def connected() -> socket.socket:
            client = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            assert ask(client)
            return client

        first, second = connected(), connected()
        assert ask(first)  # now the second is idle for longer
        third = connected()
        with suppress(ConnectionResetError):
            assert second.recv(1) == b""
        assert ask(first) and ask(third)


@pytest.mark.parametrize("allowed", [256, 1024])
def test_the_limit_leaves_descriptors_for_the_store(
    monkeypatch: pytest.MonkeyPatch, allowed: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (allowed, allowed))
    assert connection_limit() == allowed - RESERVE


def test_too_few_descriptors_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (100, 100))
    with pytest.raises(ConfigError, match=r"file descriptors at least.*100.*ulimit -n"):
        connection_limit()


WITH_256 = (
    "import resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256)); "
    "sys.argv[0] = 'depsue'; from depsue.cli.main import main; main()"
)


def test_more_idle_connections_than_descriptors_do_not_blind_the_service(home: Path) -> None:
    words = [sys.executable, "-c", WITH_256, "serve", "spring"]
    words += ["--home", str(home), "--no-auth", "--port", "0"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as service, ExitStack() as idle:
        try:
            assert service.stderr is not None
            listening = next(
                line for line in map(json.loads, service.stderr) if line["event"] == "listening"
            )
            most = listening["most_connections"]
            assert most == 256 - RESERVE
            port = int(listening["url"].rstrip("/").rpartition(":")[2])
            for _ in range(300):
                idle.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30))
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

            def ask(method: str, path: str, value: Any = None) -> tuple[int, bytes]:
                body = None if value is None else json.dumps(value)
                connection.request(method, path, body, {"content-type": "application/json"})
                answer = connection.getresponse()
                return answer.status, answer.read()

            context = json.loads(ask("GET", "/v1/context")[1])["context"]
            status, made = ask("POST", "/v1/decide", {"context": context})
            assert status == 200
            assert json.loads(made)["decided_by"] in ("policy", "holdout", "pi0")
            metrics = dict(
                line.rsplit(" ", 1)
                for line in ask("GET", "/metrics")[1].decode().splitlines()
                if not line.startswith("#")
            )
            assert int(metrics["depsue_connections"]) <= most
            assert int(metrics["depsue_connections_limit"]) == most
            assert metrics["depsue_store_gone"] == "0"  # there were descriptors for it
            connection.close()
        finally:
            service.terminate()
            rest = service.stderr.read() if service.stderr else ""
    assert "Too many open files" not in rest and "watch failed" not in rest


def test_a_client_that_hangs_up_while_its_answers_wait_is_no_failure() -> None:
    """It sends requests and takes no answer, until an answer must wait for it; then it is gone."""
    problems: list[BaseException] = []
    stuck, ended = threading.Event(), threading.Event()
    large = [(b"content-length", b"100000")]

    async def look(connections: set[Protocol]) -> None:
        if any(connection.flow.write_paused for connection in connections):
            stuck.set()

    class Reporting(Running):
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            try:
                await self._before(cast(set[Protocol], self.server.server_state.connections))
                await send({"type": "http.response.start", "status": 200, "headers": large})
                await send({"type": "http.response.body", "body": b"x" * 100_000})
            except Exception as problem:
                problems.append(problem)
            finally:
                if stuck.is_set():
                    ended.set()

    with Reporting(look).listening() as port:
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(REQUEST * 400)
            assert stuck.wait(10)
        assert ended.wait(10)
    assert problems == []


def anonymous(side: int) -> ssl.SSLContext:
    """TLS without a certificate, which is enough to shake hands."""
    context = ssl.SSLContext(side)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("aNULL:@SECLEVEL=0")
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def test_those_who_never_finish_a_handshake_leave_room_for_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Three times as many as may connect, silent or with half a greeting; then somebody speaks."""
    monkeypatch.setattr("depsue.serving.running.connection_limit", lambda: 10)
    held: list[int] = []

    async def count(connections: set[Protocol]) -> None:
        held.append(len(running.server.handshakes) + len(connections))

    running = Running(count)
    running.server.config.load()
    running.server.config.ssl = anonymous(ssl.PROTOCOL_TLS_SERVER)
    with running.listening() as port, ExitStack() as stack:
        for number in range(30):
            silent = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            silent.sendall(bytes.fromhex("1603010050") if number % 2 else b"")
        plain = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10))
        context = anonymous(ssl.PROTOCOL_TLS_CLIENT)
        with context.wrap_socket(plain) as client:
            client.sendall(REQUEST)
            assert answer(client)
    assert len(held) == 1 and held[0] <= 10
