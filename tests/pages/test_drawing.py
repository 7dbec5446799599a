"""One description of a figure, drawn as SVG and as Plotly's JSON."""

from __future__ import annotations

import json

from depsue.pages.drawing import (
    Axis,
    Band,
    Bars,
    Figure,
    Line,
    Points,
    Rule,
    Span,
    Ticks,
    draw_svg,
    plotly_json,
    rounds_axis,
    spanned,
)

MARKS = (
    Span("a span", 0.1, 0.3),
    Rule("a rule", 0.2),
    Rule("an upright rule", 1.5, "grey", "dot", upright=True),
    Rule("", 0.0, "ink", "solid"),
    Band((1.0, 2.0), (0.1, 0.2), (0.3, 0.4), "blue"),
    Line("a line", (1.0, 2.0), (0.2, 0.3), "blue", dots=True),
    Points("points", (1.0, 2.0), (0.3, 0.1), "green", "triangle", hollow=True),
    Points("with errors", (1.0,), (0.2,), "ink", errors=(0.05,)),
    Points("a cross", (2.0,), (0.2,), "red", "cross"),
    Bars("bars", (1.0, 2.0), (0.2, -0.1), "green"),
    Bars("hollow bars", (1.0,), (0.1,), "grey", 0.2, hollow=True),
    Ticks("ticks", (1.0, 2.0), (0.2, 0.2), "ink"),
)
FIGURE = Figure(
    "all-marks", "All marks", "Words & <more>.", ("x",), (("1",),), MARKS,
    rounds_axis(1, 2), Axis("share", (-0.2, 0.5), "percent"),
)  # fmt: skip
NAMED = [mark.name for mark in MARKS if not isinstance(mark, Band) and mark.name]


def test_both_drawings_have_every_mark_that_is_named() -> None:
    svg, plot = str(draw_svg(FIGURE)), json.loads(plotly_json(FIGURE))
    names = [trace["name"] for trace in plot["data"] if trace.get("showlegend", True)]
    assert names == NAMED
    assert all(name in svg for name in NAMED)


def test_a_drawing_for_a_page_has_its_colours_its_words_and_ids_of_its_own() -> None:
    svg = str(draw_svg(FIGURE))
    assert svg.startswith('<svg role="img" aria-label="Words &amp; &lt;more&gt;."')
    assert "var(--blue)" in svg and "#1f5a96" not in svg and "<metadata>" not in svg
    assert 'id="all-marks-' in svg and svg == str(draw_svg(FIGURE))
    text = plotly_json(FIGURE)
    assert "var(--blue)" in text and "<" not in text and "&" not in text


def test_rules_and_spans_go_across_the_whole_figure() -> None:
    traces = json.loads(plotly_json(FIGURE))["data"]
    by_name = {trace["name"]: trace for trace in traces if trace.get("name")}
    left, right = FIGURE.x.limits or (0.0, 0.0)
    assert by_name["a rule"]["x"] == by_name["a span"]["x"] == [left, right]
    assert by_name["an upright rule"]["y"] == [-0.2, 0.5]


def test_axes() -> None:
    layout = json.loads(plotly_json(FIGURE))["layout"]
    assert layout["xaxis"]["tickvals"] == [1, 2] and layout["yaxis"]["tickformat"] == ".0%"
    assert rounds_axis(3, 3).limits == (2.0, 4.0), "a lone round stands in the middle"
    assert len(rounds_axis(0, 20).rounds) == 21
    low, high = spanned([0.2, 0.3], low=0.19, high=1.0)
    assert low == 0.19 and 0.3 < high < 0.32
