"""What figures are drawn with: lines, bands, marks and axes, as Plotly's script reads them.

Colours are names of the page's own, as `var(--blue)`: our script puts in what they are in the
reader's theme.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Trace = dict[str, Any]
Limits = tuple[float, float, float]
INK, BLUE, RED, GREEN, GREY = (f"var(--{name})" for name in ("ink", "blue", "red", "green", "grey"))
BLUE_BAND, GREY_BAND = "var(--blueband)", "var(--greyband)"


@dataclass(frozen=True)
class Figure:
    """One figure.

    Args:
        name: its own on the page.
        heading: above it.
        said: its content in words.
        headings, cells: its content as a table.
        plot: what is drawn, as JSON.
    """

    name: str
    heading: str
    said: str
    headings: tuple[str, ...]
    cells: tuple[tuple[str, ...], ...]
    plot: str


def band(x: list[Any], limits: list[Limits], name: str, colour: str, band: str) -> list[Trace]:
    """A mean, and the limits around it."""
    edge = {"mode": "lines", "line": {"width": 0}, "hoverinfo": "skip", "showlegend": False}
    return [
        {"x": x, "y": [one[2] for one in limits], **edge},
        {"x": x, "y": [one[1] for one in limits], **edge, "fill": "tonexty", "fillcolor": band},
        line(x, [one[0] for one in limits], name, colour),
    ]


def line(
    x: list[Any],
    y: list[float],
    name: str,
    colour: str,
    *,
    dash: str = "solid",
    mode: str = "lines",
) -> Trace:
    """A line through points."""
    mode = "lines+markers" if len(x) == 1 else mode
    line = {"color": colour, "width": 2, "dash": dash}
    return {"x": x, "y": y, "mode": mode, "name": name, "line": line, "marker": {"color": colour}}


def flat(x: Sequence[Any], y: float, name: str, *, colour: str = RED) -> Trace:
    """A dashed line across."""
    ends = [x[0], x[-1]]
    line = {"color": colour, "width": 1.5, "dash": "dash"}
    return {"x": ends, "y": [y, y], "mode": "lines", "name": name, "line": line}


def mark(at: tuple[float, float], name: str, colour: str, symbol: str) -> Trace:
    """One point that matters."""
    marker = {"color": colour, "symbol": symbol, "size": 14}
    return {"x": [at[0]], "y": [at[1]], "mode": "markers", "name": name, "marker": marker}


def plotted(
    traces: list[Trace],
    *,
    y: str,
    x: str = "",
    range: tuple[float, float] | None = None,
    rounds: Sequence[int] = (),
    percent: str = "",
) -> str:
    """Traces with axes, as JSON."""
    across: dict[str, Any] = {"title": {"text": x}}
    if rounds:
        across |= {"range": [min(rounds) - 0.7, max(rounds) + 0.7]}
        across |= {"tickmode": "array", "tickvals": list(rounds)} if len(rounds) < 13 else {}
    up: dict[str, Any] = {"title": {"text": y}}
    if range is not None:
        up["range"] = list(range)
    if percent:
        (across if percent == "x" else up)["tickformat"] = ".0%"
        for one in traces:
            one["hovertemplate"] = f"%{{x}}<br>%{{y}}<extra>{one.get('name', '')}</extra>"
    text = json.dumps({"data": traces, "layout": {"xaxis": across, "yaxis": up}}, allow_nan=False)
    return text.replace("<", "\\u003c").replace("&", "\\u0026")  # it stands in a page


def spanned(
    values: Sequence[float], *, low: float | None = None, high: float | None = None
) -> tuple[float, float]:
    """What an axis shows: all values, with air, within limits."""
    least, most = min(values), max(values)
    air = 0.12 * max(most - least, 0.02 * max(abs(most), 1e-9))
    least, most = least - air, most + air
    return least if low is None else max(least, low), most if high is None else min(most, high)


def xy(points: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    """Points as their coordinates."""
    return [x for x, _ in points], [y for _, y in points]
