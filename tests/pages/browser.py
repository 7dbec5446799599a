"""A browser without a screen: it keeps cookies, and sends forms with what the page put in them."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from depsue.serving.app import App


@dataclass(frozen=True)
class Reply:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        """The page."""
        return self.body.decode()

    @property
    def json(self) -> Any:
        """The values."""
        return json.loads(self.body)

    @property
    def to(self) -> str:
        """Where it leads."""
        return self.headers.get("location", "")


class Browser:
    """Visits an application in this process.

    Args:
        app: the application.
        more: headers that every request carries.
    """

    def __init__(self, app: App, **more: str) -> None:
        self.app, self.cookies, self.more = app, dict[str, str](), more
        self.csrf = ""

    def get(self, path: str, **headers: str) -> Reply:
        """Open a page, or read its JSON."""
        return self.call("GET", path, b"", headers)

    def post(
        self, path: str, fields: dict[str, str] | None = None, *, csrf: str | None = None, **h: str
    ) -> Reply:
        """Send a form, with what the last page put in its forms; it is opened first."""
        if csrf is None and not self.csrf and path != "/login":
            self.get(path)
        given = {"csrf": self.csrf if csrf is None else csrf, **(fields or {})}
        h.setdefault("content_type", "application/x-www-form-urlencoded")
        return self.call("POST", path, urlencode(given).encode(), h)

    def login(self, token: str) -> Reply:
        """Log in."""
        return self.post("/login", {"token": token, "next": "/"})

    def call(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> Reply:
        path, _, query = path.partition("#")[0].partition("?")
        given = {"host": "localhost", "accept": "text/html", **self.more, **headers}
        if self.cookies:
            given["cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": query.encode(),
            "headers": [
                (name.replace("_", "-").encode(), value.encode()) for name, value in given.items()
            ],
        }
        sent: list[MutableMapping[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: MutableMapping[str, Any]) -> None:
            sent.append(message)

        asyncio.run(self.app(scope, receive, send))
        found = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        reply = Reply(sent[0]["status"], found, sent[1]["body"])
        name, _, value = found.get("set-cookie", "").partition(";")[0].partition("=")
        if name:
            self.cookies.update({name: value} if value else {})
            if not value:
                self.cookies.pop(name, None)
        form = re.search(r'name="csrf" value="([^"]*)"', reply.body.decode("utf-8", "replace"))
        self.csrf = form[1] if form else self.csrf
        return reply
