"""Runs the service: uvicorn, one process, until it is told to stop.

HTTP/1.1 as uvicorn speaks it, with a limit on what comes before a body.

uvicorn hands a request on once its headers are whole, and gathers them without a limit: this ends
a connection that sends headers, or trailers, without end. What is not HTTP is refused in JSON, with
the headers that all answers have.
"""

from __future__ import annotations

import logging
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from depsue.campaigns import Campaign
from depsue.errors import ConfigError
from depsue.serving.access import Access
from depsue.serving.app import App, Pages
from depsue.serving.http import API_POLICY, NO_STORE, SAFE
from depsue.serving.metrics import Journal
from depsue.serving.service import Service
from depsue.serving.settings import ServingSettings

MOST_HEAD = 256 << 10
"""Bytes without a whole head or a piece of a body; whole heads above 64 KiB get a 431, too."""


class Protocol(HttpToolsProtocol):
    """One connection; give it to uvicorn as `http`."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self._unread = 0

    def data_received(self, data: bytes) -> None:
        """Bytes have come."""
        self._unread += len(data)
        super().data_received(data)
        if self._unread > MOST_HEAD and not self.transport.is_closing():
            self._refuse(b"431 Request Header Fields Too Large", b"headers must be smaller")

    def on_headers_complete(self) -> None:
        """The head is whole."""
        self._unread = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self._unread = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is whole."""
        self._unread = 0
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """What came is not HTTP."""
        self._refuse(b"400 Bad Request", b"a request must be HTTP/1.1")

    def _refuse(self, status: bytes, rule: bytes) -> None:
        body = b'{"error":"%s","found":"","cure":"see GET /openapi.json"}' % rule
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"connection", b"close"),
            *SAFE,
            API_POLICY,
            NO_STORE,
        ]
        lines = [b"HTTP/1.1 " + status, *(name + b": " + value for name, value in headers)]
        self.transport.write(b"\r\n".join([*lines, b"", body]))
        self.transport.close()


GRACE = 20
"""Seconds in which requests under way are finished after a signal to stop."""
MakesPages = Callable[[Service, Access, Callable[..., None]], Pages]
"""From what serves, who may, and who is told of what goes wrong."""


def run(
    campaign: Campaign,
    settings: ServingSettings,
    access: Access,
    *,
    store: str | None,
    host: str,
    port: int,
    tls: tuple[Path, Path | None] | None = None,
    pages: MakesPages | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT; what was accepted is finished first.

    Args:
        campaign: whose decisions.
        settings: what is declared.
        access: who may.
        store: the address of decisions.
        host, port: where to listen.
        tls: certificate and key.
        pages: makes the dashboard.
    """
    import uvicorn

    sys.setswitchinterval(0.0001)  # the loop and the worker take turns often
    told = Journal()
    service = Service(campaign, settings, store=store, told=told)
    made = None if pages is None else pages(service, access, told)
    app = App(service, access, pages=made, told=told)
    server_log = logging.getLogger("uvicorn")
    server_log.addHandler(_Lines(told))
    server_log.propagate = False
    listening = _socket(host, port)
    found = listening.getsockname()[1]
    scheme = "http" if tls is None else "https"
    told("listening", url=f"{scheme}://{host}:{found}/", campaign=campaign.name)
    config = uvicorn.Config(
        app,
        http=Protocol,
        ws="none",
        log_config=None,
        access_log=False,
        lifespan="on",
        timeout_graceful_shutdown=GRACE,
        server_header=False,
        date_header=False,
        ssl_certfile=None if tls is None else tls[0],
        ssl_keyfile=None if tls is None else tls[1],
    )
    server = uvicorn.Server(config)
    server.run(sockets=[listening])


class _Lines(logging.Handler):
    """What the server warns of, as lines of the journal."""

    def __init__(self, told: Journal) -> None:
        super().__init__(logging.WARNING)
        self._told = told

    def emit(self, record: logging.LogRecord) -> None:
        self._told("server", level=record.levelname.lower(), message=record.getMessage())


def _socket(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host, port))
    except OSError as problem:
        found.close()
        raise ConfigError(
            "the address must be free, and this machine's",
            found=f"{host}:{port}: {problem.strerror}",
            cure="another --port; 0 takes a free one",
        ) from problem
    found.listen(512)
    found.setblocking(False)
    return found
