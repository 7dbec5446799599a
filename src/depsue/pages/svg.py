"""What pages with figures need: colours, and figures as inline SVG."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from markupsafe import Markup

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BLUE, RED, GREEN, GREY = "#1f5a96", "#b3312c", "#2e7d4f", "#6b7280"


def as_svg(figure: Figure) -> Markup:
    """A figure as inline SVG."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    return Markup(text[text.index("<svg") :])
