"""Scripts and styles: our own, and Plotly's as its Python package brings it. No other host."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from depsue.pages.sessions import query_of
from depsue.serving.http import Answer, Request

OWN = {
    "style.css": b"text/css; charset=utf-8",
    "draw.js": b"text/javascript; charset=utf-8",
    "icon.svg": b"image/svg+xml",
}
PLOTLY = "plotly.min.js"
FOREVER, A_DAY = b"public, max-age=31536000, immutable", b"public, max-age=86400"


@dataclass(frozen=True)
class Asset:
    """One file, as it is and compressed; `version` is of its content."""

    body: bytes
    packed: bytes
    kind: bytes
    version: str


@cache
def asset(name: str) -> Asset | None:
    """A file by name; None if there is none."""
    if name == PLOTLY:
        path = files("plotly") / "package_data" / PLOTLY
        kind = b"text/javascript; charset=utf-8"
    elif name in OWN:
        path, kind = files("depsue.pages") / "static" / name, OWN[name]
    else:
        return None
    body = path.read_bytes()
    packed = gzip.compress(body, 6, mtime=0)
    return Asset(body, packed, kind, hashlib.sha256(body).hexdigest()[:16])


def address(name: str) -> str:
    """Where a page finds a file; another content has another address."""
    found = asset(name)
    return f"/static/{name}?v={found.version if found else ''}"


def static(request: Request) -> Answer | None:
    """The file that is asked for; None if there is none."""
    found = asset(request.path.removeprefix("/static/"))
    if found is None:
        return None
    tag = f'"{found.version}"'.encode()
    lasts = FOREVER if query_of(request).get("v") == found.version else A_DAY
    headers = ((b"cache-control", lasts), (b"etag", tag), (b"vary", b"accept-encoding"))
    if request.headers.get(b"if-none-match") == tag:
        return Answer(304, b"", found.kind, headers)
    if b"gzip" in request.headers.get(b"accept-encoding", b""):
        packed = (*headers, (b"content-encoding", b"gzip"))
        return Answer(200, found.packed, found.kind, packed)
    return Answer(200, found.body, found.kind, headers)
