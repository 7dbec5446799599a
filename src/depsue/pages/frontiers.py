"""Value against novelty: how far a test went, and how far a plan would go."""

from __future__ import annotations

from depsue.pages.certificate import CertificatePage
from depsue.pages.drawing import (
    BLUE,
    GREEN,
    GREY,
    RED,
    Figure,
    flat,
    line,
    mark,
    plotted,
    spanned,
    xy,
)
from depsue.pages.planning import Planned


def levels_figure(page: CertificatePage) -> Figure | None:
    """The levels of a candidate: anticipated value against novelty, and how far the test went."""
    if not page.levels:
        return None
    done, rest = page.levels[: page.tested], page.levels[max(page.tested - 1, 0) :]
    traces = []
    if len(rest) > 1 or not done:
        traces.append(line(*xy(rest), "not tested", BLUE, dash="dot"))
    if done:
        traces.append(line(*xy(done), "tested", BLUE))
    if done and page.certified is None:
        traces.append(mark(done[-1], "failed", RED, "x"))
    words = ""
    if page.certified is not None:
        traces.append(mark(page.certified, "certified", GREEN, "star"))
        words = f"; certified at novelty {page.certified[0]:.1%}, value {page.certified[1]:.3f}"
    xs, ys = xy(page.levels)
    if page.floor is not None:
        traces.append(flat([min(xs), max(xs)], page.floor, "floor"))
        ys.append(page.floor)
    return Figure(
        "levels",
        "How far the test went",
        f"Anticipated value relative to pi0's by novelty: {len(page.levels)} levels, "
        f"{page.tested} tested{words}.",
        ("novelty", "anticipated value / pi0's", ""),
        tuple(
            (f"{nu:.1%}", f"{value:.3f}", _fate(page, place))
            for place, (nu, value) in _thinned(page)
        ),
        plotted(traces, y="anticipated value / pi0's", x="novelty", range=spanned(ys), percent="x"),
    )


def frontier_figure(found: Planned) -> Figure:
    """Anticipated value against novelty, and the pick."""
    points = found.frontier
    xs = [one.novelty for one in points]
    traces = [line(xs, [one.value for one in points], "frontier", BLUE, mode="lines+markers")]
    seen = [one.value for one in points]
    worst = [(one.novelty, one.worst) for one in points if one.worst is not None]
    if worst:
        traces.append(line(*xy(worst), "if new items earn nothing", GREY))
        seen += [value for _, value in worst]
    if found.reaches:
        traces.append(
            {
                "x": [one.novelty for one in found.reaches],
                "y": [one.value for one in found.reaches],
                "mode": "markers",
                "marker": {"color": BLUE, "symbol": "circle-open", "size": 8},
                "name": "as far as each candidate goes",
            }
        )
        seen += [one.value for one in found.reaches]
    picked = [one for one in points if one.picked]
    words = ""
    for one in picked:
        traces.append(mark((one.novelty, one.value), "pick", GREEN, "star"))
        words = f"; the pick has novelty {one.novelty:.1%} and value {one.value:.3f}"
    if found.floor is not None:
        traces.append(flat([0.0, max(*xs, found.certain, 0.01)], found.floor, "floor"))
        seen.append(found.floor)
    floor = "" if found.floor is None else f"; floor {found.floor:.3f}"
    return Figure(
        "frontier",
        "The frontier",
        "Anticipated value relative to pi0's against novelty: up to novelty "
        f"{max(xs):.1%}{words}{floor}.",
        found.headings,
        found.cells,
        plotted(
            traces, y="anticipated value / pi0's", x="novelty", range=spanned(seen), percent="x"
        ),
    )


def _fate(page: CertificatePage, place: int) -> str:
    if page.certified is not None and page.levels[place] == page.certified:
        return "certified"
    if place >= page.tested:
        return "not tested"
    last = place == page.tested - 1
    return "failed" if last and page.certified != page.levels[place] else "passed"


def _thinned(page: CertificatePage) -> list[tuple[int, tuple[float, float]]]:
    """Some levels, the ones that matter among them."""
    every = list(enumerate(page.levels))
    step = max(len(every) // 20, 1)
    mind = {len(every) - 1, page.tested - 1, page.tested}
    return [(k, x) for k, x in every if k % step == 0 or k in mind or x == page.certified]
