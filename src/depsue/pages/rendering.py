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
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from depsue._version import __version__
from depsue.pages.sessions import Visitor
from depsue.pages.words import or_dash, percent, plus_minus
from depsue.plural import counted, plural

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "referrer-policy": "same-origin",  # with none at all, forms would carry no origin
}
OWN = {
    "style.css": "text/css",
    "draw.js": "text/javascript",
    "icon.svg": "image/svg+xml",
}
PLOTLY = "plotly.min.js"
FOREVER, A_DAY = "public, max-age=31536000, immutable", "public, max-age=86400"


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


def page(template: str, visitor: Visitor | None, *, status: int = 200, **shown: Any) -> Response:
    """A page of the dashboard.

    Args:
        template: its name.
        visitor: who sees it; None before a login.
        status: of the answer.
        shown: what it shows.
    """
    text = templates().get_template(template).render(visitor=visitor, **shown)
    body = text.encode("utf-8", "replace")  # an id may hold half a character
    return HTMLResponse(body, status, HEADERS)


def mean_or_dash(value: float | None, error: float | None = None) -> str:
    """A mean and its standard error, or a dash for none."""
    return "–" if value is None else plus_minus(value, error or 0.0)


@dataclass(frozen=True)
class Asset:
    """One script or style, as it is and compressed; `version` is of its content."""

    body: bytes
    packed: bytes
    kind: str
    version: str


def static(request: Request, name: str) -> Response | None:
    """The script or style that is asked for; None if there is none."""
    file = asset(name)
    if file is None:
        return None
    tag = f'"{file.version}"'
    lasts = FOREVER if request.query_params.get("v") == file.version else A_DAY
    headers = {"cache-control": lasts, "etag": tag, "vary": "accept-encoding"}
    if request.headers.get("if-none-match") == tag:
        return Response(b"", 304, headers, file.kind)
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(file.packed, 200, headers | {"content-encoding": "gzip"}, file.kind)
    return Response(file.body, 200, headers, file.kind)


def address(name: str) -> str:
    """Where a page finds a script or style; another content has another address."""
    file = asset(name)
    return f"/static/{name}?v={file.version if file else ''}"


@cache
def asset(name: str) -> Asset | None:
    """A script or style by name; None if there is none."""
    if name == PLOTLY:
        path = files("plotly") / "package_data" / PLOTLY
        kind = "text/javascript"
    elif name in OWN:
        path, kind = files("depsue.pages") / "static" / name, OWN[name]
    else:
        return None
    body = path.read_bytes()
    packed = gzip.compress(body, 6, mtime=0)
    return Asset(body, packed, kind, hashlib.sha256(body).hexdigest()[:16])
