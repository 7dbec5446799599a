"""The little of HTTP that the hot routes need, and what every answer carries.

Pages are Starlette's; its 15 to 20 microseconds a request are too many for a decision.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from depsue.errors import DepsueError
from depsue.serving.access import is_loopback
from depsue.serving.messages import Refusal

MOST_BODY = 4 << 20
MOST_HEADERS = 64 << 10
SAFE = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
API_POLICY = (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'")
NO_STORE = (b"cache-control", b"no-store")
encode = msgspec.json.Encoder().encode
MOST_SAID = 500
"""Characters of a rule, of what was found, of a cure."""
EVERY_ANSWER = (*SAFE, API_POLICY, NO_STORE)
"""Headers of every answer that does not set its own."""
Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


@dataclass(frozen=True)
class Request:
    """What a route is asked: the body, and the name of the caller's token, "" without one."""

    body: bytes
    caller: str


@dataclass(frozen=True)
class Answer:
    """An answer."""

    status: int
    body: bytes = b""
    kind: bytes = b"application/json"
    headers: tuple[tuple[bytes, bytes], ...] = field(default=())


class TooLarge(Exception):
    """A body beyond the limit."""


def bearer(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """The token that headers bring."""
    authorization = b""
    for name, value in headers:
        if name == b"authorization":
            authorization = value
    scheme, _, token = authorization.decode("latin-1").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def is_foreign(method: str, headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether a browser asks for a page of another site, or by a name that is not this machine's.

    Where no token is asked for, any page that its user opens could ask otherwise.
    """
    host = origin = b""
    for name, value in headers:
        if name == b"host":
            host = value
        elif name == b"origin":
            origin = value
    if not origin and (method != "GET" or not host):
        return False
    text = host.decode("latin-1")
    machine = text if text.endswith("]") else text.rpartition(":")[0] or text
    if not is_loopback(machine.strip("[]")):
        return True
    return bool(origin) and origin not in (b"http://" + host, b"https://" + host)


async def read_body(scope: Scope, receive: Receive) -> bytes:
    """The body; refused as soon as it is known to be too large."""
    for name, value in scope["headers"]:
        if name == b"content-length":
            digits = value.lstrip(b"0")
            if len(digits) > 18 or not value.isdigit() or int(value) > MOST_BODY:
                raise TooLarge
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ConnectionResetError
    body: bytes = message.get("body", b"")
    if not message.get("more_body", False):
        if len(body) > MOST_BODY:
            raise TooLarge
        return body
    parts, size = [body], len(body)
    while message.get("more_body", False):
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ConnectionResetError
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > MOST_BODY:
            raise TooLarge
    return b"".join(parts)


async def send_answer(send: Send, answer: Answer) -> None:
    """Send an answer; `GuardedSend` adds what all have."""
    headers = [
        (b"content-type", answer.kind),
        (b"content-length", str(len(answer.body)).encode()),
        *answer.headers,
    ]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})


class GuardedSend:
    """Sends with the headers that all answers have; of HEAD no body.

    Args:
        send: as ASGI gives it.
        head: whether only the headers are wanted.
    """

    def __init__(self, send: Send, *, head: bool) -> None:
        self._send, self._head = send, head
        self.status = 0
        """Of the answer; 0 before it began."""

    async def __call__(self, message: Message) -> None:
        """One message."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            own = {name for name, _ in message["headers"]}
            message["headers"] = [
                *message["headers"],
                *(header for header in EVERY_ANSWER if header[0] not in own),
            ]
        elif self._head:
            message = {**message, "body": b""}
        await self._send(message)


def refused(
    status: int,
    rule: str,
    *,
    found: str = "",
    cure: str = "",
    headers: tuple[tuple[bytes, bytes], ...] = (),
) -> Answer:
    """An answer that says why not; what was sent is not sent back whole."""
    refusal = Refusal(*(part[:MOST_SAID] for part in (rule, found, cure)))
    return Answer(status, encode(refusal), headers=headers)


def too_large() -> Answer:
    return refused(
        413, "a body must be smaller", cure=f"at most {MOST_BODY >> 20} MiB: fewer at once"
    )


def later(problem: DepsueError, seconds: int, *, status: int = 503) -> Answer:
    return refused(
        status,
        problem.rule,
        found=problem.found if status == 429 else "",  # of a store it may name an address
        cure=problem.cure,
        headers=((b"retry-after", str(seconds).encode()),),
    )
