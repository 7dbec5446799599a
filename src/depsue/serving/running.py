"""The process that serves: uvicorn, its log, and the limits that uvicorn lacks.

uvicorn gathers headers, and requests that are sent before answers are taken, without a limit, and
as many connections as come; those within a TLS handshake it does not even know. `Protocol` ends a
connection that sends headers, or trailers, without end; it reads on only as answers are taken.
There are no more connections than descriptors allow, those within a handshake counted, and idle
ones are closed. What is not HTTP is refused in JSON, with the headers that all answers have.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import ssl
import stat
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Sized
from functools import partial
from pathlib import Path
from typing import Any, TextIO, cast

import uvicorn
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from depsue.campaigns import Campaign
from depsue.campaigns.secret import FILE as SECRET
from depsue.errors import ConfigError, require
from depsue.serving.access import Access
from depsue.serving.app import App, Pages
from depsue.serving.http import API_POLICY, NO_STORE, SAFE
from depsue.serving.service import Service
from depsue.serving.settings import ServingSettings

MOST_HEAD = 256 << 10
"""Bytes without a whole head or a piece of a body; whole heads above 64 KiB get a 431, too."""
SLICE = 2048
"""Bytes that are parsed at once: so many small requests may wait for their turn, and no more."""
IDLE = 30.0
"""Seconds that a connection may wait for its client: to send a request, or to take an answer."""
HANDSHAKE = 10.0
"""Seconds that a TLS handshake may take."""
RESERVE = 128
"""File descriptors that are kept from connections: for the store, the ledger and files."""
FEWEST_CONNECTIONS, MOST_CONNECTIONS = 16, 4096
"""Connections below which no service starts, and above which none goes."""
GRACE = 20
"""Seconds in which requests under way are finished after a signal to stop."""
MakesPages = Callable[[Service, Access], Pages]
"""From what serves, and who may."""
log = logging.getLogger(__name__)


def warn_of_open_files(paths: Iterable[Path]) -> None:
    """Log which of these files somebody else than their owner may read or write.

    Args:
        paths: of files that hold a secret; those that are not there are left out.
    """
    for path in paths:
        try:
            mode = path.stat().st_mode
        except FileNotFoundError:
            continue
        if os.name == "posix" and mode & 0o077:
            words = f"{path}, mode {stat.S_IMODE(mode):o}"
            log.warning("secret open to others", extra={"found": words, "cure": "chmod 600"})


def run(
    campaign: Campaign,
    settings: ServingSettings,
    access: Access,
    *,
    store: str | None,
    host: str,
    port: int,
    share: float | None = None,
    by: str = "admin",
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
        share: of traffic that is asked for on the policy; None leaves it as it was.
        by: who asks.
        tls: certificate and key.
        pages: makes the dashboard.
    """
    sys.setswitchinterval(0.0001)  # the loop and the worker take turns often
    log_to(sys.stderr)
    most = connection_limit()
    service = Service(campaign, settings, store=store)
    service.asked_share = None if share is None else (share, by)
    app = App(service, access, pages=None if pages is None else pages(service, access))
    warn_of_open_files((campaign.files.folder / SECRET, access.path))
    listener = listen(host, port)
    scheme, free = "http" if tls is None else "https", listener.getsockname()[1]
    log.info(
        "listening",
        extra={
            "url": f"{scheme}://{host}:{free}/",
            "campaign": campaign.name,
            "most_connections": most,
        },
    )
    config = uvicorn.Config(
        app,
        http=Protocol,
        ws="none",
        log_config=None,
        access_log=False,
        lifespan="on",
        timeout_keep_alive=int(IDLE),
        timeout_graceful_shutdown=GRACE,
        server_header=False,
        date_header=False,
        ssl_certfile=None if tls is None else tls[0],
        ssl_keyfile=None if tls is None else tls[1],
    )
    server = Server(config)
    app.connections = lambda: (
        len(server.server_state.connections) + len(server.handshakes),
        most,
    )
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


def connection_limit() -> int:
    """Connections at once: what the descriptors of the process allow, less a reserve.

    The reserve is for the store, the ledger and files: a service that cannot open them would
    decide unwatched.
    """
    if sys.platform == "win32":  # which counts handles, and has no such limit
        return MOST_CONNECTIONS
    import resource

    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST_CONNECTIONS if allowed == resource.RLIM_INFINITY else allowed - RESERVE
    require(
        most >= FEWEST_CONNECTIONS,
        f"a service needs {RESERVE + FEWEST_CONNECTIONS} file descriptors at least",
        found=f"{allowed}",
        cure="raise the limit: ulimit -n 4096, or LimitNOFILE= of the unit",
    )
    return min(most, MOST_CONNECTIONS)


def close_idle(connections: Iterable[Protocol], now: float) -> None:
    """Close connections that have waited for their client for too long.

    Args:
        connections: those that are open.
        now: monotonic seconds.
    """
    for connection in list(connections):
        if connection.waits_for_client and now - connection.since > IDLE:
            connection.transport.abort()


def close_longest_idle(connections: Iterable[Protocol]) -> bool:
    """Close the connection that has waited for its client the longest; False if none waits."""
    idle = [connection for connection in connections if connection.waits_for_client]
    if idle:
        min(idle, key=lambda connection: connection.since).transport.abort()
    return bool(idle)


class Server(uvicorn.Server):
    """uvicorn's server, which closes idle connections too, and counts those that begin TLS.

    uvicorn learns of a connection when its TLS handshake is done. Here they are accepted by us, so
    that those who never finish it leave descriptors to the others.
    """

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.handshakes: dict[asyncio.Task[None], None] = {}
        """Connections within their handshake, oldest first."""
        self._accepting: list[asyncio.Task[None]] = []

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen."""
        context = self.config.ssl
        if context is None:
            await super().startup(sockets)
            return
        await super().startup([])
        for listener in sockets or []:
            self._accepting.append(asyncio.create_task(self._accept(listener, context)))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Finish what was accepted, then end."""
        for task in [*self._accepting, *self.handshakes]:
            task.cancel()
        await super().shutdown(sockets)

    async def _accept(self, listener: socket.socket, context: ssl.SSLContext) -> None:
        """Take connections; beyond the limit the oldest handshake must go."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(listener)
            except OSError:  # it hung up again, or there is no descriptor left
                await asyncio.sleep(0.01)
                continue
            connections = cast(set[Protocol], self.server_state.connections)
            if len(self.handshakes) + len(connections) >= connection_limit():
                if self.handshakes:
                    oldest = next(iter(self.handshakes))
                    del self.handshakes[oldest]
                    oldest.cancel()
                else:
                    close_longest_idle(connections)
            task = asyncio.create_task(self._secure(accepted, context))
            self.handshakes[task] = None
            task.add_done_callback(lambda task: self.handshakes.pop(task, None))

    async def _secure(self, accepted: socket.socket, context: ssl.SSLContext) -> None:
        """Do the handshake; a protocol then has the connection."""
        make = partial(
            cast(Callable[..., asyncio.Protocol], self.config.http_protocol_class),
            config=self.config,
            server_state=self.server_state,
            app_state=self.lifespan.state,
        )
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                make, accepted, ssl=context, ssl_handshake_timeout=HANDSHAKE
            )
        except OSError:  # it took too long, hung up, or speaks no TLS
            accepted.close()
        except asyncio.CancelledError:
            accepted.close()
            raise

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second."""
        if counter % 10 == 0:
            connections = cast(set[Protocol], self.server_state.connections)
            close_idle(connections, time.monotonic())
        return await super().on_tick(counter)


class Flow(FlowControl):
    """Reads on only while no request of the connection waits for its turn.

    Args:
        transport: of the connection.
        pipeline: requests that wait.
    """

    def __init__(self, transport: asyncio.Transport, pipeline: Sized) -> None:
        super().__init__(transport)
        self._pipeline = pipeline

    def resume_reading(self) -> None:
        """Go on reading; uvicorn asks for it with every request and every answer."""
        if not len(self._pipeline):
            super().resume_reading()


class Protocol(HttpToolsProtocol):
    """One connection; give it to uvicorn as `http`.

    A client may send its next requests before it has read the answers (pipelining). uvicorn would
    go on to read and parse them, as fast as they come. Here bytes are parsed a slice at a time,
    and nothing more is parsed or read while a request waits for its turn. So a connection holds
    one slice of parsed requests, one read of bytes, and one answer that is not taken.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._unread = 0
        self._unparsed = bytearray()
        self._answering: RequestResponseCycle | None = None
        """The request that has its turn; uvicorn knows the one that came last."""
        self.since = time.monotonic()
        """When the client last did what was waited for."""

    @property
    def waits_for_client(self) -> bool:
        """Whether the client is to send, or to take an answer."""
        under_way = self.cycle is not None and not self.cycle.response_complete
        return not under_way or self.cycle.more_body or self.flow.write_paused

    @property
    def buffered(self) -> tuple[int, int]:
        """Requests that wait for their turn, and bytes that are not parsed yet."""
        return len(self.pipeline), len(self._unparsed)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Somebody has connected; beyond the limit the longest idle connection must go."""
        super().connection_made(transport)
        self.flow = Flow(transport, self.pipeline)
        if len(self.connections) <= connection_limit():
            return
        if not close_longest_idle(cast(set[Protocol], self.connections - {self})):
            self._refuse(b"503 Service Unavailable", b"the service has too many connections")

    def data_received(self, data: bytes) -> None:
        """Bytes have come."""
        if not self._unparsed and len(data) <= SLICE:
            self._parse(data)
            return
        self._unparsed += data
        self._parse_on()

    def _parse_on(self) -> None:
        while self._unparsed and not self.pipeline and not self.transport.is_closing():
            slice = bytes(self._unparsed[:SLICE])
            del self._unparsed[:SLICE]
            self._parse(slice)
        if self.transport.is_closing():
            self._unparsed.clear()
        elif self._unparsed:
            self.flow.pause_reading()

    def _parse(self, data: bytes) -> None:
        self._unread += len(data)
        super().data_received(data)
        if self._unread > MOST_HEAD and not self.transport.is_closing():
            self._refuse(b"431 Request Header Fields Too Large", b"headers must be smaller")

    def on_response_complete(self) -> None:
        """An answer was handed over; the next request has its turn."""
        self._answering = self.pipeline[-1][0] if self.pipeline else None
        super().on_response_complete()
        self.since = time.monotonic()
        if not self.transport.is_closing():
            self._parse_on()
            self.flow.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client hung up: nothing more can be written, whichever request has its turn."""
        super().connection_lost(exc)
        if self._answering is not None:
            self._answering.disconnected = True
            self._answering.message_event.set()

    def resume_writing(self) -> None:
        """The client took what it was sent."""
        self.since = time.monotonic()
        super().resume_writing()

    def on_headers_complete(self) -> None:
        """The head is whole."""
        self._unread = 0
        self.since = time.monotonic()
        waiting = len(self.pipeline)
        super().on_headers_complete()
        if len(self.pipeline) == waiting:
            self._answering = self.cycle

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self._unread = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is whole."""
        self._unread = 0
        self.since = time.monotonic()
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
