"""Pages from templates, with the headers that keep them to this server."""

from __future__ import annotations

from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from depsue._version import __version__
from depsue.pages.sessions import Visitor
from depsue.pages.static import address
from depsue.pages.words import percent, plus_minus
from depsue.plural import counted, plural
from depsue.serving.http import Answer

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"referrer-policy", b"same-origin"),  # with none at all, forms would carry no origin
)


class Rendering:
    """The templates."""

    def __init__(self) -> None:
        self._templates = Environment(
            loader=PackageLoader("depsue.pages"),
            autoescape=True,
            trim_blocks=True,
            lstrip_blocks=True,
            undefined=StrictUndefined,
        )
        self._templates.globals.update(
            version=__version__, static=address, counted=counted, plural=plural
        )
        self._templates.filters.update(percent=percent, number=number, mean=mean)

    def page(
        self, template: str, visitor: Visitor | None, *, status: int = 200, **given: Any
    ) -> Answer:
        """A page.

        Args:
            template: its name.
            visitor: who sees it; None before a login.
            status: of the answer.
            given: what it shows.
        """
        text = self._templates.get_template(template).render(visitor=visitor, **given)
        body = text.encode("utf-8", "replace")  # an id may hold half a character
        return Answer(status, body, b"text/html; charset=utf-8", HEADERS)


def number(value: float | None, form: str = ",.4g") -> str:
    """A number, or a dash for none."""
    return "–" if value is None else format(value, form)


def mean(value: float | None, error: float | None = None) -> str:
    """A mean and its standard error, or a dash for none."""
    return "–" if value is None else plus_minus(value, error or 0.0)
