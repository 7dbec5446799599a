"""Figures: what one shows, as a frozen description, and two drawers of it.

A `Figure` has marks (lines, bands, points, bars, ticks, rules, spans), two axes, its content in
words and its content as a table. `draw_svg` draws it with matplotlib for pages that stand alone,
`plotly_json` writes it as the JSON that Plotly's script reads. Both pages show the same figure.

Colours are names of the page's own variables, `var(--blue)`: each page says what they are in the
reader's theme.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from markupsafe import Markup, escape

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

Colour = Literal["ink", "blue", "red", "green", "grey"]
Dash = Literal["solid", "dash", "dot"]
Shape = Literal["circle", "triangle", "star", "cross"]
Place: TypeAlias = float | str
"""Along the x axis: a number, or a time as text."""

COLOURS: dict[Colour, str] = {
    "ink": "#1b1f24",
    "blue": "#1f5a96",
    "red": "#b3312c",
    "green": "#2e7d4f",
    "grey": "#6b7280",
}
BLUE, RED, GREEN, GREY = (COLOURS[name] for name in ("blue", "red", "green", "grey"))
SMALL, WIDE = (4.5, 3.3), (8.6, 4.6)
"""Inches of a figure: beside another one, or alone."""


@dataclass(frozen=True)
class Line:
    """A line through points, with a dot at each of them or without."""

    name: str
    x: tuple[Place, ...]
    y: tuple[float, ...]
    colour: Colour
    dash: Dash = "solid"
    dots: bool = False


@dataclass(frozen=True)
class Band:
    """What lies between two limits; it stands behind the line of the same name."""

    x: tuple[Place, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    colour: Literal["blue", "grey"]


@dataclass(frozen=True)
class Points:
    """Points, each with an error bar of `errors` either way where they are given."""

    name: str
    x: tuple[Place, ...]
    y: tuple[float, ...]
    colour: Colour
    shape: Shape = "circle"
    hollow: bool = False
    errors: tuple[float, ...] = ()


@dataclass(frozen=True)
class Bars:
    """Bars from 0."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    colour: Colour
    width: float = 0.4
    hollow: bool = False


@dataclass(frozen=True)
class Ticks:
    """Short level strokes, one at each point."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    colour: Colour


@dataclass(frozen=True)
class Rule:
    """A line across the whole figure at a value of y, or an upright one at a value of x."""

    name: str
    at: float
    colour: Colour = "red"
    dash: Dash = "dash"
    upright: bool = False


@dataclass(frozen=True)
class Span:
    """A shade across the whole figure, between two values of y."""

    name: str
    low: float
    high: float
    colour: Colour = "red"


Mark: TypeAlias = Line | Band | Points | Bars | Ticks | Rule | Span


@dataclass(frozen=True)
class Axis:
    """An axis.

    Args:
        title: along it.
        limits: what it shows; None takes what fits.
        form: of its numbers.
        rounds: the rounds that it counts; () where it counts something else.
    """

    title: str = ""
    limits: tuple[float, float] | None = None
    form: Literal["plain", "percent", "thousands"] = "plain"
    rounds: tuple[int, ...] = ()


@dataclass(frozen=True)
class Figure:
    """One figure.

    Args:
        name: its own on the page.
        heading: above it.
        description: its content in words.
        headings, cells: its content as a table.
        marks: what is drawn, from back to front.
        x, y: its axes.
    """

    name: str
    heading: str
    description: str
    headings: tuple[str, ...]
    cells: tuple[tuple[str, ...], ...]
    marks: tuple[Mark, ...]
    x: Axis
    y: Axis

    @property
    def plotly(self) -> str:
        """As the JSON that Plotly's script reads."""
        return plotly_json(self)


def rounds_axis(first: int, last: int) -> Axis:
    """Rounds along the axis; a lone one stands in the middle, with air around."""
    middle, half = (first + last) / 2, max((last - first) / 2 + 0.6, 1.0)
    return Axis("round", (middle - half, middle + half), rounds=tuple(range(first, last + 1)))


def spanned(
    values: Sequence[float], *, low: float | None = None, high: float | None = None
) -> tuple[float, float]:
    """What an axis shows: all values, with air, within limits."""
    least, most = min(values), max(values)
    air = 0.12 * max(most - least, 0.02 * max(abs(most), 1e-9))
    least, most = least - air, most + air
    return least if low is None else max(least, low), most if high is None else min(most, high)


# As Plotly's JSON -------------------------------------------------------------------------------

_SYMBOLS = {"circle": "circle", "triangle": "triangle-up", "star": "star", "cross": "x"}
_SIZES = {"circle": 9, "triangle": 10, "star": 14, "cross": 14}


def plotly_json(figure: Figure) -> str:
    """A figure as the JSON that Plotly's script reads; it may stand in a page."""
    across, up = _ends(figure), figure.y.limits or (0.0, 1.0)
    traces = [trace for mark in figure.marks for trace in _traces(mark, across, up)]
    if "percent" in (figure.x.form, figure.y.form):
        for trace in traces:
            trace["hovertemplate"] = f"%{{x}}<br>%{{y}}<extra>{trace.get('name', '')}</extra>"
    axes = {"xaxis": _plotly_axis(figure.x), "yaxis": _plotly_axis(figure.y)}
    text = json.dumps({"data": traces, "layout": {**axes, "barmode": "overlay"}}, allow_nan=False)
    return text.replace("<", "\\u003c").replace("&", "\\u0026")


def _ends(figure: Figure) -> tuple[Place, Place]:
    """From where to where a rule goes: the axis, or all that is drawn where that is free."""
    if figure.x.limits is not None:
        return figure.x.limits
    places = [x for mark in figure.marks if not isinstance(mark, Rule | Span) for x in mark.x]
    return places[0], places[-1]


def _plotly_axis(axis: Axis) -> dict[str, Any]:
    made: dict[str, Any] = {"title": {"text": axis.title}}
    if axis.limits is not None:
        made["range"] = list(axis.limits)
    if 0 < len(axis.rounds) < 13:
        made |= {"tickmode": "array", "tickvals": list(axis.rounds)}
    if axis.form == "percent":
        made["tickformat"] = ".0%"
    return made


def _traces(
    mark: Mark, across: tuple[Place, Place], up: tuple[float, float]
) -> Iterable[dict[str, Any]]:
    """A mark as Plotly's traces; rules and spans go all `across`, upright rules all `up`."""
    if isinstance(mark, Band | Span):
        x = across if isinstance(mark, Span) else mark.x
        low = [mark.low] * 2 if isinstance(mark, Span) else mark.low
        high = [mark.high] * 2 if isinstance(mark, Span) else mark.high
        edge = {"mode": "lines", "line": {"width": 0}, "hoverinfo": "skip", "showlegend": False}
        yield {"x": x, "y": high, **edge}
        name = mark.name if isinstance(mark, Span) else ""
        named = {"name": name, "showlegend": True} if name else {}
        shade = {"fill": "tonexty", "fillcolor": f"var(--{mark.colour}band)"}
        yield {"x": x, "y": low, **edge, **shade, **named}
        return
    colour = f"var(--{mark.colour})"
    if isinstance(mark, Rule):
        at = (mark.at, mark.at)
        place = {"x": at, "y": up} if mark.upright else {"x": across, "y": at}
        line = {"color": colour, "width": 1.5, "dash": mark.dash}
        trace: dict[str, Any] = {**place, "mode": "lines", "name": mark.name, "line": line}
        yield trace if mark.name else {**trace, "showlegend": False}
        return
    trace = {"x": mark.x, "y": mark.y, "name": mark.name}
    if isinstance(mark, Bars):
        marker: dict[str, Any] = {"color": "rgba(0,0,0,0)" if mark.hollow else colour}
        marker["line"] = {"color": colour, "width": 1.5 if mark.hollow else 0}
        yield {"type": "bar", **trace, "marker": marker, "width": mark.width}
    elif isinstance(mark, Line):
        line = {"color": colour, "width": 2, "dash": mark.dash}
        mode = "lines+markers" if mark.dots or len(mark.x) == 1 else "lines"
        yield {**trace, "mode": mode, "line": line, "marker": {"color": colour}}
    elif isinstance(mark, Ticks):
        marker = {"color": colour, "size": 26, "symbol": "line-ew-open", "line": {"width": 3}}
        yield {**trace, "mode": "markers", "marker": marker}
    else:
        symbol = _SYMBOLS[mark.shape] + ("-open" if mark.hollow else "")
        trace |= {"mode": "markers"}
        trace["marker"] = {"color": colour, "size": _SIZES[mark.shape], "symbol": symbol}
        if mark.errors:
            trace["error_y"] = {"array": mark.errors, "color": colour}
        yield trace


# As SVG, by matplotlib --------------------------------------------------------------------------

_STYLES = {"solid": "-", "dash": "--", "dot": ":"}
_MARKERS = {"circle": "o", "triangle": "^", "star": "*", "cross": "x"}
_THEME: dict[Any, Any] = {
    "svg.hashsalt": "depsue",  # the same figure gives the same file
    "svg.fonttype": "none",
    "font.size": 9.5,
    "text.color": COLOURS["ink"],
    "axes.edgecolor": COLOURS["ink"],
    "axes.labelcolor": COLOURS["ink"],
    "xtick.color": COLOURS["ink"],
    "ytick.color": COLOURS["ink"],
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
}


def draw_svg(figure: Figure) -> Markup:
    """A figure as inline SVG with the page's colours, ids of its own, and its content in words."""
    from matplotlib import rc_context

    with rc_context(_THEME):
        text = str(as_svg(drawn(figure)))
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{figure.name}-", text)
    for name, colour in COLOURS.items():
        text = text.replace(colour, f"var(--{name})")
    return Markup(
        text.replace("<svg ", f'<svg role="img" aria-label="{escape(figure.description)}" ', 1)
    )


def as_svg(drawing: Drawing) -> Markup:
    """A drawing of matplotlib as inline SVG."""
    buffer = io.StringIO()
    drawing.savefig(buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    return Markup(text[text.index("<svg") :])


def drawn(figure: Figure, size: tuple[float, float] = SMALL) -> Drawing:
    """A figure, drawn by matplotlib."""
    from matplotlib.figure import Figure as Drawing

    drawing = Drawing(figsize=size, layout="constrained")
    axis = drawing.subplots()
    axis.spines[["top", "right"]].set_visible(False)
    for mark in figure.marks:
        _draw(axis, mark)
    _set_axes(axis, figure)
    names = axis.get_legend_handles_labels()[1]
    columns = 2 if size == SMALL and max(map(len, names), default=0) > 22 else 3
    drawing.legend(loc="outside lower center", ncols=columns, frameon=False, fontsize=9)
    return drawing


def _set_axes(axis: Axes, figure: Figure) -> None:
    from matplotlib.ticker import MaxNLocator, PercentFormatter, StrMethodFormatter

    axis.set(xlabel=figure.x.title, ylabel=figure.y.title)
    axis.margins(y=0.15)
    if figure.x.rounds:
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    if 0 < len(figure.x.rounds) < 13:
        axis.set_xticks(figure.x.rounds)
    if figure.x.form == "percent":
        axis.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    for side, described in ((axis.xaxis, figure.x), (axis.yaxis, figure.y)):
        if described.form == "percent":
            side.set_major_formatter(PercentFormatter(1.0))
        if described.form == "thousands":
            side.set_major_formatter(StrMethodFormatter("{x:,.6g}"))
    if figure.x.limits is not None:
        axis.set_xlim(*figure.x.limits)
    if figure.y.limits is not None:
        axis.set_ylim(*figure.y.limits)


def _draw(axis: Axes, mark: Mark) -> None:
    """A mark, on matplotlib's axes."""
    colour = COLOURS[mark.colour]
    if isinstance(mark, Span):
        shade = {"color": colour, "alpha": 0.1, "lw": 0}
        axis.axhspan(mark.low, mark.high, label=mark.name or None, **shade)  # type: ignore[arg-type]
    elif isinstance(mark, Band):
        axis.fill_between(mark.x, mark.low, mark.high, color=colour, alpha=0.15)
    elif isinstance(mark, Rule):
        across = axis.axvline if mark.upright else axis.axhline
        style = {
            "color": colour,
            "ls": _STYLES[mark.dash],
            "lw": 0.8 if mark.dash == "solid" else 1.2,
        }
        across(mark.at, label=mark.name or None, **style)  # type: ignore[arg-type]
    elif isinstance(mark, Line):
        style = {"color": colour, "ls": _STYLES[mark.dash], "lw": 1.6, "ms": 4.0}
        axis.plot(mark.x, mark.y, marker="o" if mark.dots else "", label=mark.name, **style)  # type: ignore[arg-type]
    elif isinstance(mark, Bars):
        fill = "none" if mark.hollow else colour
        axis.bar(mark.x, mark.y, mark.width, facecolor=fill, edgecolor=colour, label=mark.name)
    elif isinstance(mark, Ticks):
        left, right = [x - 0.3 for x in mark.x], [x + 0.3 for x in mark.x]
        axis.hlines(mark.y, left, right, lw=2.5, color=colour, label=mark.name, zorder=3)
    elif mark.errors:
        bars = {"fmt": _MARKERS[mark.shape], "ms": 6, "color": colour, "capsize": 3}
        axis.errorbar(mark.x, mark.y, yerr=mark.errors, label=mark.name, **bars)  # type: ignore[arg-type]
    elif mark.shape == "cross":
        axis.plot(mark.x, mark.y, "x", ms=7, mew=2, color=colour, label=mark.name)
    else:
        size = {"circle": 26, "triangle": 42, "star": 120}[mark.shape]
        style = {"facecolors": "none" if mark.hollow else colour, "edgecolors": colour}
        marker = _MARKERS[mark.shape]
        axis.scatter(mark.x, mark.y, size, marker=marker, label=mark.name, zorder=4, **style)  # type: ignore[arg-type]
