"""Pages from templates, the scripts and styles that they load, and where each page is.

Scripts and styles are our own and Plotly's, as its Python package brings it. No other host is
asked, and the headers of every page say so.
"""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from depsue._version import __version__
from depsue.pages.sessions import Visitor, query_of
from depsue.pages.words import or_dash, percent, plus_minus
from depsue.plural import counted, plural
from depsue.serving.http import Answer, Request

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"referrer-policy", b"same-origin"),  # with none at all, forms would carry no origin
)
OWN = {
    "style.css": b"text/css; charset=utf-8",
    "draw.js": b"text/javascript; charset=utf-8",
    "icon.svg": b"image/svg+xml",
}
PLOTLY = "plotly.min.js"
FOREVER, A_DAY = b"public, max-age=31536000, immutable", b"public, max-age=86400"


def path_of(campaign: str) -> str:
    """Where a campaign's page is."""
    return f"/campaigns/{campaign}"


def certificate_path(campaign: str, k: int, attempt: int) -> str:
    """Where the page of a test is."""
    return f"{path_of(campaign)}/certificates/{k}-{attempt}"


@cache
def templates() -> Environment:
    """The templates of all pages."""
    environment = Environment(
        loader=PackageLoader("depsue.pages"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.globals.update(version=__version__, static=address, counted=counted, plural=plural)
    environment.filters.update(percent=percent, number=or_dash, mean=mean_or_dash)
    return environment


def page(template: str, visitor: Visitor | None, *, status: int = 200, **shown: Any) -> Answer:
    """A page of the dashboard.

    Args:
        template: its name.
        visitor: who sees it; None before a login.
        status: of the answer.
        shown: what it shows.
    """
    text = templates().get_template(template).render(visitor=visitor, **shown)
    body = text.encode("utf-8", "replace")  # an id may hold half a character
    return Answer(status, body, b"text/html; charset=utf-8", HEADERS)


def mean_or_dash(value: float | None, error: float | None = None) -> str:
    """A mean and its standard error, or a dash for none."""
    return "–" if value is None else plus_minus(value, error or 0.0)


@dataclass(frozen=True)
class Asset:
    """One script or style, as it is and compressed; `version` is of its content."""

    body: bytes
    packed: bytes
    kind: bytes
    version: str


def static(request: Request) -> Answer | None:
    """The script or style that is asked for; None if there is none."""
    file = asset(request.path.removeprefix("/static/"))
    if file is None:
        return None
    tag = f'"{file.version}"'.encode()
    lasts = FOREVER if query_of(request).get("v") == file.version else A_DAY
    headers = ((b"cache-control", lasts), (b"etag", tag), (b"vary", b"accept-encoding"))
    if request.headers.get(b"if-none-match") == tag:
        return Answer(304, b"", file.kind, headers)
    if b"gzip" in request.headers.get(b"accept-encoding", b""):
        packed = (*headers, (b"content-encoding", b"gzip"))
        return Answer(200, file.packed, file.kind, packed)
    return Answer(200, file.body, file.kind, headers)


def address(name: str) -> str:
    """Where a page finds a script or style; another content has another address."""
    file = asset(name)
    return f"/static/{name}?v={file.version if file else ''}"


@cache
def asset(name: str) -> Asset | None:
    """A script or style by name; None if there is none."""
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
