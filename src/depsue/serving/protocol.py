"""HTTP/1.1 as uvicorn speaks it, with a limit on what comes before a body.

uvicorn hands a request on once its headers are whole, and gathers them without a limit: this ends a
connection that sends headers, or trailers, without end.
"""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MOST_HEAD = 256 << 10
"""Bytes without a whole head or a piece of a body; requests above 64 KiB of headers get a 431."""
_BODY = b'{"error":"headers must be smaller","found":"","cure":"at most 64 KiB"}'
_TOO_LONG = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\n"
    b"x-content-type-options: nosniff\r\ncache-control: no-store\r\nconnection: close\r\n"
    b"content-length: %d\r\n\r\n%s" % (len(_BODY), _BODY)
)


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
            self.transport.write(_TOO_LONG)
            self.transport.close()

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
