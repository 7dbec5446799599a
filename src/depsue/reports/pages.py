"""What pages with figures need: a folder to write to, colours, and figures as inline SVG."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

from markupsafe import Markup

from depsue.errors import FileError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BLUE, RED, GREEN, GREY = "#1f5a96", "#b3312c", "#2e7d4f", "#6b7280"


def writable_folder(folder: str | Path) -> Path:
    """The folder, made if need be; asked for before the work, so that nothing is lost."""
    target = Path(folder)
    try:
        target.mkdir(parents=True, exist_ok=True)
        (target / ".writable").touch()
        (target / ".writable").unlink()
    except OSError as problem:
        raise FileError(
            "the folder for the report must be writable",
            found=f"{target}: {problem.strerror}",
            cure="choose another folder with --out",
        ) from problem
    return target


def as_svg(figure: Figure) -> Markup:
    """A figure as inline SVG."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    return Markup(text[text.index("<svg") :])
