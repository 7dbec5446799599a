"""The process that serves: uvicorn, its log, and one limit that uvicorn lacks.

uvicorn hands a request on once its headers are whole, and gathers them without a limit. `Protocol`
ends a connection that sends headers, or trailers, without end. What is not HTTP is refused in JSON,
with the headers that all answers have.
"""

from __future__ import annotations

import json
import logging
import socket
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from depsue.campaigns import Campaign
from depsue.errors import ConfigError
from depsue.serving.access import Access
from depsue.serving.app import App, Pages
from depsue.serving.http import API_POLICY, NO_STORE, SAFE
from depsue.serving.service import Service
from depsue.serving.settings import ServingSettings

MOST_HEAD = 256 << 10
"""Bytes without a whole head or a piece of a body; whole heads above 64 KiB get a 431, too."""
GRACE = 20
"""Seconds in which requests under way are finished after a signal to stop."""
MakesPages = Callable[[Service, Access], Pages]
"""From what serves, and who may."""
log = logging.getLogger(__name__)


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
    log_to(sys.stderr)
    service = Service(campaign, settings, store=store)
    app = App(service, access, pages=None if pages is None else pages(service, access))
    listener = listen(host, port)
    scheme, free = "http" if tls is None else "https", listener.getsockname()[1]
    log.info("listening", extra={"url": f"{scheme}://{host}:{free}/", "campaign": campaign.name})
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
    server.run(sockets=[listener])


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens on an address; the error says if it is taken, or not ours."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as problem:
        listener.close()
        raise ConfigError(
            "the address must be free, and this machine's",
            found=f"{host}:{port}: {problem.strerror}",
            cure="another --port; 0 takes a free one",
        ) from problem
    listener.listen(512)
    listener.setblocking(False)
    return listener


class JsonLines(logging.Formatter):
    """A line of JSON for each record: when, how grave, which module, what happened, and details.

    Details are what a call of the log gave as `extra`. Of an exception the line has the error and
    the place where it was raised, never the values around it: a token may be among them.
    """

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line: dict[str, Any] = {
            "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        line |= {
            name: value
            for name, value in vars(record).items()
            # libraries (Ray) stamp every record with marks of their own, under names with a _
            if name not in _OF_ALL_RECORDS and not name.startswith("_")
        }
        if record.exc_info is not None and record.exc_info[1] is not None:
            problem = record.exc_info[1]
            line["error"] = f"{type(problem).__name__}: {problem}"
            frames = traceback.format_tb(problem.__traceback__)
            line["where"] = frames[-1].strip() if frames else ""
        return json.dumps(line, default=str)


_OF_ALL_RECORDS = {*vars(logging.makeLogRecord({})), "message", "asctime"}


def log_to(stream: TextIO) -> None:
    """Write our log, and what libraries warn of, as lines of JSON; where nothing is set up yet."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    logging.getLogger("depsue").setLevel(logging.INFO)


class Protocol(HttpToolsProtocol):
    """One connection; give it to uvicorn as `http`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
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
