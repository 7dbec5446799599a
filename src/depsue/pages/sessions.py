"""Who is logged in, and what a form must carry so that no other site can send it."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from depsue.serving.access import Access
from depsue.serving.http import bearer

COOKIE = "depsue_session"
LASTS = 12 * 3600
"""Seconds until a session ends."""
MOST_FIELDS = 50
"""Fields of a form."""
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
        token = bearer(request.headers.raw)
        if self._access.allows(token, "admin"):
            return Visitor("", token, time.time() + 1)
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


def set_session(response: Response, id: str, *, secure: bool) -> None:
    """Let an answer set the session, or with "" end it."""
    response.set_cookie(
        COOKIE, id, max_age=LASTS if id else 0, secure=secure, httponly=True, samesite="strict"
    )


def from_here(request: Request) -> bool:
    """Whether a form was sent from one of these pages, as far as the browser says."""
    if request.headers.get("sec-fetch-site", "same-origin") != "same-origin":
        return False
    origin = request.headers.get("origin")
    return origin is None or urlsplit(origin).netloc == request.headers.get("host", "")


async def form_of(request: Request) -> dict[str, str]:
    """The fields of a form that was sent; no files."""
    form = await request.form(max_files=0, max_fields=MOST_FIELDS)
    return {name: value for name, value in form.items() if isinstance(value, str)}


def carries(form: Mapping[str, str], visitor: Visitor) -> bool:
    """Whether a form carries what this visitor's forms do."""
    if not visitor.csrf:
        return True
    carried = form.get("csrf", "").encode("utf-8", "replace")
    return hmac.compare_digest(carried, visitor.csrf.encode())


def wants_page(request: Request) -> bool:
    """Whether a browser asks, which can show a page."""
    return "text/html" in request.headers.get("accept", "")


def wants_json(request: Request) -> bool:
    """Whether a program asks, which reads a page's JSON twin at the page's own path."""
    return "application/json" in request.headers.get("accept", "") and not wants_page(request)


def within(path: str) -> str:
    """A path on this server to go on to after a login; / for anything else."""
    ok = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable()
    return path if ok and len(path) <= 500 else "/"


def _hash(id: str) -> str:
    return hashlib.sha256(id.encode("utf-8", "replace")).hexdigest()
