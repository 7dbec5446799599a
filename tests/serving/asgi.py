"""Calls an ASGI application in this process, as a server would; decisions and rewards by it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from depsue.serving.access import Access
from depsue.serving.app import App
from depsue.serving.service import Service

Headers = Sequence[tuple[bytes, bytes]]


@dataclass(frozen=True)
class Reply:
    """What came back, and how many parts of the body were read for it."""

    status: int
    headers: dict[str, str]
    body: bytes
    read: int = 0

    @property
    def json(self) -> Any:
        """The body's values."""
        return json.loads(self.body)

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode()


class Caller:
    """Calls an application, each time in an event loop of its own.

    Args:
        app: the application.
        token: is sent with every call; None sends none.
    """

    def __init__(self, app: App, token: str | None = None) -> None:
        self.app, self.token = app, token

    def get(self, path: str, **more: Any) -> Reply:
        """GET."""
        return self.call("GET", path, **more)

    def post(self, path: str, value: Any = None, **more: Any) -> Reply:
        """POST of bytes as they are, or of anything else as JSON."""
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        return self.call("POST", path, parts=[body], **more)

    def call(
        self,
        method: str,
        path: str,
        *,
        parts: Sequence[bytes] = (b"",),
        headers: Headers = (),
        token: str | None = None,
        leaves: bool = False,
    ) -> Reply:
        """One request.

        Args:
            method, path: what is asked.
            parts: the body, as it arrives.
            headers: beside the token's.
            token: in place of the caller's own.
            leaves: whether the caller is gone before the body is whole.
        """
        token = self.token if token is None else token
        if token is not None:
            headers = [*headers, (b"authorization", f"Bearer {token}".encode())]
        return asyncio.run(self.ask(method, path, parts, headers, leaves))

    async def ask(
        self,
        method: str,
        path: str,
        parts: Sequence[bytes] = (b"",),
        headers: Headers = (),
        leaves: bool = False,
    ) -> Reply:
        """The same, in an event loop that runs already."""
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": b"",
            "headers": list(headers),
        }
        left = list(reversed(parts))
        sent: list[MutableMapping[str, Any]] = []

        async def receive() -> dict[str, Any]:
            if not left:
                return {"type": "http.disconnect"}
            part = left.pop()
            return {"type": "http.request", "body": part, "more_body": bool(left) or leaves}

        async def send(message: MutableMapping[str, Any]) -> None:
            sent.append(message)

        await self.app(scope, receive, send)
        read = len(parts) - len(left)
        if not sent:
            return Reply(0, {}, b"", read)
        start, *rest = sent
        found = {name.decode(): value.decode() for name, value in start["headers"]}
        assert len(found) == len(start["headers"]), "a header was sent twice"
        return Reply(start["status"], found, b"".join(one.get("body", b"") for one in rest), read)


def context(k: int = 0) -> dict[str, float]:
    """A context of the campaign."""
    return {f"x{j}": float(np.sin(k + j)) for j in range(4)}


def batch(call: Caller, n: int, **more: Any) -> list[dict[str, Any]]:
    """Many decisions, asked for in batches."""
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
    """Send rewards of 1 for a share of the decisions."""
    rng = np.random.default_rng(0)
    given = [
        {"decision": one["decision"], "reward": 1.0} for one in made if rng.random() < mean(one)
    ]
    for start in range(0, len(given), 500):
        reply = call.post("/v1/reward/batch", {"rewards": given[start : start + 500]})
        assert reply.status == 200, reply.text


def caller(service: Service, home: Path) -> Caller:
    """Calls a service; no token is asked for."""
    return Caller(App(service, Access(home, open_to_all=True)))
