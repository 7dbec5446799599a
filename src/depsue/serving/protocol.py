"""HTTP/1.1 as uvicorn speaks it, with a limit on what comes before a body.

uvicorn hands a request on once its headers are whole, and gathers them without a limit: this ends
a connection that sends headers, or trailers, without end. What is not HTTP is refused in JSON, with
the headers that all answers have.
"""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from depsue.serving.http import API_POLICY, NO_STORE, SAFE

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
