"""The little of HTTP that is needed: a request, an answer, and what every answer carries."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

from depsue.serving.access import is_loopback

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
Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


@dataclass(frozen=True)
class Request:
    """A request, its body read; `caller` is the name of its token, "" without one."""

    method: str
    path: str
    headers: dict[bytes, bytes]
    body: bytes
    query_string: bytes = b""
    caller: str = ""

    @property
    def query(self) -> dict[str, str]:
        """The part after the question mark."""
        return dict(parse_qsl(self.query_string.decode("latin-1"), max_num_fields=50))

    @property
    def form(self) -> dict[str, str]:
        """The fields of a form that was sent."""
        text = self.body.decode("utf-8", "replace")
        try:
            return dict(parse_qsl(text, max_num_fields=50))
        except ValueError:
            return {}

    @property
    def bearer(self) -> str | None:
        """The token."""
        return bearer(self.headers.items())

    @property
    def cookies(self) -> dict[str, str]:
        """Cookies by name."""
        text = self.headers.get(b"cookie", b"").decode("latin-1")
        pairs = (part.strip().partition("=") for part in text.split(";"))
        return {name: value for name, _, value in pairs if name}


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


async def send_answer(send: Send, answer: Answer, *, head: bool = False) -> None:
    """Send an answer with the headers that all have."""
    own = {name for name, _ in answer.headers}
    common = [header for header in (*SAFE, API_POLICY, NO_STORE) if header[0] not in own]
    headers = [
        (b"content-type", answer.kind),
        (b"content-length", str(len(answer.body)).encode()),
        *answer.headers,
        *common,
    ]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if head else answer.body})
