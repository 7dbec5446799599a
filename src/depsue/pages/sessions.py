"""Who is logged in, and what a form must carry so that no other site can send it."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from dataclasses import dataclass
from urllib.parse import urlsplit

from depsue.serving.access import Access
from depsue.serving.http import Request

COOKIE = "depsue_session"
LASTS = 12 * 3600
"""Seconds until a session ends."""
MOST = 1000
"""Sessions; beyond it the oldest ends."""


@dataclass(eq=False)
class Visitor:
    """Somebody who may see the pages.

    Args:
        csrf: what their forms carry; "" if they came with a bearer token, which no browser adds.
        token: that they logged in with; None where none is asked for.
        ends: when.
        name: they gave for the record, last time.
    """

    csrf: str
    token: str | None
    ends: float
    name: str = ""

    @property
    def has_session(self) -> bool:
        """Whether there is something to log out of."""
        return bool(self.csrf) and self.token is not None


class Sessions:
    """Sessions of admins, in memory: a restart ends them all.

    Args:
        access: whose tokens count; a token that is removed ends its sessions.
        name: that acts where no token is asked for.
    """

    def __init__(self, access: Access, name: str) -> None:
        self._access = access
        self._known: dict[str, Visitor] = {}
        self._anyone = Visitor(secrets.token_urlsafe(32), None, float("inf"), name)

    def visitor(self, request: Request) -> Visitor | None:
        """Who asks; None if they may not see the pages."""
        if self._access.open_to_all:
            return self._anyone
        if self._access.allows(request.bearer, "admin"):
            return Visitor("", request.bearer, time.time() + 1)
        key = _hash(request.cookies.get(COOKIE, ""))
        visitor = self._known.get(key)
        if visitor is None:
            return None
        if visitor.ends < time.time() or not self._access.allows(visitor.token, "admin"):
            del self._known[key]
            return None
        return visitor

    def begin(self, token: str) -> str | None:
        """Log in; the new session's id, or None if the token is not an admin's."""
        if not self._access.allows(token, "admin"):
            return None
        now = time.time()
        for key in [key for key, visitor in self._known.items() if visitor.ends < now]:
            del self._known[key]
        while len(self._known) >= MOST:
            del self._known[next(iter(self._known))]
        id = secrets.token_urlsafe(32)
        self._known[_hash(id)] = Visitor(secrets.token_urlsafe(32), token, now + LASTS)
        return id

    def end(self, request: Request) -> None:
        """Log out."""
        self._known.pop(_hash(request.cookies.get(COOKIE, "")), None)


def cookie(id: str, *, secure: bool) -> bytes:
    """The header that sets the session, or with "" ends it."""
    lasts = LASTS if id else 0
    text = f"{COOKIE}={id}; Path=/; Max-Age={lasts}; HttpOnly; SameSite=Strict"
    return (text + ("; Secure" if secure else "")).encode()


def from_here(request: Request) -> bool:
    """Whether a form was sent from one of these pages, as far as the browser says."""
    site = request.headers.get(b"sec-fetch-site")
    if site is not None and site != b"same-origin":
        return False
    origin = request.headers.get(b"origin")
    return origin is None or urlsplit(origin.decode("latin-1")).netloc == host_of(request)


def carries(request: Request, visitor: Visitor) -> bool:
    """Whether a form carries what this visitor's forms do."""
    if not visitor.csrf:
        return True
    carried = request.form.get("csrf", "").encode("utf-8", "replace")
    return hmac.compare_digest(carried, visitor.csrf.encode())


def host_of(request: Request) -> str:
    """The name and port that the browser asked."""
    return request.headers.get(b"host", b"").decode("latin-1")


def query_of(request: Request) -> dict[str, str]:
    """What stands after the question mark; nothing if that is not to be read."""
    try:
        return request.query
    except ValueError:
        return {}


def wants_page(request: Request) -> bool:
    """Whether a browser asks, which can show a page."""
    return b"text/html" in request.headers.get(b"accept", b"")


def wants_json(request: Request) -> bool:
    """Whether a program asks, which reads a page's JSON twin at the page's own path."""
    accept = request.headers.get(b"accept", b"")
    return b"application/json" in accept and not wants_page(request)


def within(path: str) -> str:
    """A path on this server to go on to after a login; / for anything else."""
    ok = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable()
    return path if ok and len(path) <= 500 else "/"


def _hash(id: str) -> str:
    return hashlib.sha256(id.encode("utf-8", "replace")).hexdigest()
