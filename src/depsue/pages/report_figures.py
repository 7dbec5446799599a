"""The figures: small panels that stand side by side or below each other, in either theme."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from markupsafe import Markup, escape
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter, StrMethodFormatter

from depsue.campaigns.status import RoundStatus
from depsue.pages.story import Kept, Seen, Story, Tried
from depsue.pages.svg import BLUE, GREEN, GREY, RED, as_svg
from depsue.plural import counted

INK = "#1b1f24"
THEMED = {BLUE: "blue", GREEN: "green", GREY: "grey", RED: "red", INK: "ink"}
"""Colours, and the names of the page's variables that replace them."""
SIZE = (4.5, 3.3)
BAND = "floor ± 2 standard errors"
R = TypeVar("R")
STYLE: dict[Any, Any] = {
    "svg.hashsalt": "depsue",  # the same ledger gives the same page
    "svg.fonttype": "none",
    "font.size": 9.5,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
}


def value_panel(kept: Kept, name: str) -> Markup:
    """The mean reward of each round, with two standard errors, against the floor."""
    with rc_context(STYLE):
        figure, axis = _panel()
        told = _told(kept.seen, lambda one: one.mean is not None or one.certified is not None)
        floor = kept.seen[0]
        axis.axhline(floor.need, color=RED, lw=1.2, ls="--", label="floor")
        if floor.need_error > 0:
            low, high = floor.need - 2 * floor.need_error, floor.need + 2 * floor.need_error
            axis.axhspan(low, high, color=RED, alpha=0.1, lw=0, label=BAND)
        for seen, colour, label in (
            (kept.observed[:1], GREY, "pi0, before"),
            (kept.observed[1:], BLUE, "served"),
        ):
            if seen:
                axis.errorbar(
                    [one.round for one in seen],
                    [_number(one.mean) for one in seen],
                    yerr=[2 * _number(one.error) for one in seen],
                    fmt="o", ms=6, color=colour, capsize=3, label=label,
                )  # fmt: skip
        for followed, fill, label in (
            (True, BLUE, "certified at least"),
            (False, "none", "certified, not served"),
        ):
            marks = [(one.round, c) for one in kept.seen
                     if (c := one.certified) is not None and one.followed == followed]  # fmt: skip
            if marks:
                axis.scatter(*_xy(marks), marker="^", s=42, facecolors=fill,
                             edgecolors=BLUE, label=label, zorder=3)  # fmt: skip
        axis.set(ylabel="mean reward")
        axis.margins(y=0.15)
        _by_round(axis, told[0].round, told[-1].round)
        said = "; ".join(_value_words(one) for one in told)
        return _drawn(
            figure, name, f"Mean reward by round against a floor of {floor.need:.4g}: {said}"
        )


def _value_words(one: Seen) -> str:
    words = f"round {one.round} " + ("not observed" if one.mean is None else f"{one.mean:.4g}")
    return words + ("" if one.certified is None else f", certified at least {one.certified:.4g}")


def novelty_panel(history: Sequence[RoundStatus], name: str) -> Markup:
    """The share of decisions that show a new item: served, and certified."""
    rounds = _told(history[1:], lambda one: one.novelty is not None or one.certified is not None)
    with rc_context(STYLE):
        figure, axis = _panel()
        served = [(one.round, one.novelty) for one in rounds if one.novelty is not None]
        if served:
            axis.bar(*_xy(served), width=0.5, color=BLUE, alpha=0.6, label="served")
        passed = [(one.round, one.certified) for one in rounds if one.certified is not None]
        if passed:
            xs, ys = _xy(passed)
            axis.hlines(ys, [x - 0.3 for x in xs], [x + 0.3 for x in xs], lw=2.5, color=INK,
                        label="certified", zorder=3)  # fmt: skip
        most = max([*(y for _, y in served), *(y for _, y in passed), 0.01])
        axis.set(ylabel="novelty", ylim=(0, 1.15 * most))
        _by_round(axis, rounds[0].round, rounds[-1].round)
        axis.yaxis.set_major_formatter(PercentFormatter(1.0))
        said = "; ".join(
            f"round {one.round} served {_share(one.novelty)}, certified {_share(one.certified)}"
            for one in rounds
        )
        return _drawn(figure, name, f"Share of decisions that show a new item: {said}")


def margin_panel(kept: Kept, name: str) -> Markup:
    """What each round earned above the floor, and what certificates counted on."""
    rounds = _told(kept.seen[1:], lambda one: one.margin is not None or one.drawn > 0)
    aside = 0.1 if any(one.drawn > 0 for one in rounds) else 0.0
    with rc_context(STYLE):
        figure, axis = _panel()
        axis.axhline(0, color=INK, lw=0.8)
        for colour, label, up in ((GREEN, "earned", True), (RED, "lost", False)):
            bars = [(one.round - aside, m) for one in rounds
                    if (m := one.margin) is not None and (m >= 0) == up]  # fmt: skip
            if bars:
                axis.bar(*_xy(bars), width=0.4, color=colour, label=label)
        for followed, fill, label in (
            (True, GREY, "counted on"),
            (False, "none", "counted on, not served"),
        ):
            bars = [(one.round + 0.2, -one.drawn) for one in rounds
                    if one.drawn > 0 and one.followed == followed]  # fmt: skip
            if bars:
                axis.bar(*_xy(bars), width=0.2, facecolor=fill, edgecolor=GREY,
                         label=label)  # fmt: skip
        total, sums = 0.0, []
        for one in rounds:
            if one.margin is not None:
                total += one.margin
                sums.append((one.round, total))
        if len(sums) > 1:
            axis.plot(*_xy(sums), "-o", ms=4, color=BLUE, lw=1, label="sum so far")
        axis.set(ylabel="reward above the floor")
        axis.margins(y=0.15)
        _by_round(axis, rounds[0].round, rounds[-1].round)
        axis.yaxis.set_major_formatter(StrMethodFormatter("{x:,.6g}"))
        said = "; ".join(_margin_words(one) for one in rounds)
        return _drawn(figure, name, f"Reward earned above the floor by round: {said}")


def _margin_words(one: Seen) -> str:
    words = "not observed" if one.margin is None else f"{one.margin:+,.1f}"
    return f"round {one.round} {words}" + (f", {one.drawn:,.1f} counted on" if one.drawn else "")


def frontier_panel(tried: Tried, story: Story, name: str) -> Markup:
    """Anticipated value against novelty over the levels of a candidate; what passed; what came."""
    plain = story.plain
    with rc_context(STYLE):
        figure, axis = _panel()
        tested = 0 if tried.certificate is None else tried.certificate.tested
        done, rest = tried.levels[:tested], tried.levels[max(tested - 1, 0) :]
        if len(rest) > 1 or not done:
            axis.plot(*_xy(rest), ":", color=BLUE, lw=1.6, label="not tested")
        if done:
            axis.plot(*_xy(done), "-", color=BLUE, lw=1.6, label="tested")
        xs, ys = _xy(tried.levels)
        unit = plain.seen[0].mean if plain is not None else None
        if plain is not None and unit:
            floor = plain.seen[0].need / unit
            axis.axhline(floor, color=RED, lw=1.2, ls="--", label="floor")
            ys.append(floor)
            seen = next((one for one in plain.observed[1:] if one.round == tried.round), None)
            if seen is not None and seen.followed:
                x = _number(story.status.history[tried.round].novelty)
                y, error = _number(seen.mean) / unit, 2 * _number(seen.error) / unit
                axis.errorbar([x], [y], yerr=[error], fmt="o", ms=6, color=INK, capsize=3,
                              label="what came")  # fmt: skip
                xs, ys = [*xs, x], [*ys, y - error, y + error]
        words = f"{counted(len(tried.levels), 'level')}, novelty up to {max(xs):.1%}, {tried.state}"
        failed = done[-1] if done else None
        if failed is not None and (tried.certified is None or failed[0] != tried.certified[0]):
            axis.plot(*_xy([failed]), "x", ms=7, mew=2, color=RED, label="failed")
        if tried.certified is not None:
            x, y = tried.certified
            axis.scatter([x], [y], s=120, marker="*", color=GREEN, label="certified", zorder=4)
            words += f"; certified at novelty {x:.1%}, anticipated value {y:.3f} of pi0's"
        gap, wide = max(max(ys) - min(ys), 0.05), max(max(xs), 0.01)
        axis.set(
            xlabel="novelty", ylabel="anticipated value / V(pi0)",
            xlim=(-0.04 * wide, 1.08 * wide), ylim=(min(ys) - 0.12 * gap, max(ys) + 0.12 * gap),
        )  # fmt: skip
        axis.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
        axis.xaxis.set_major_formatter(PercentFormatter(1.0))
        return _drawn(figure, name, f"Round {tried.round}: anticipated value by novelty: {words}")


def _told(rounds: Sequence[R], tells: Callable[[R], bool]) -> Sequence[R]:
    """The rounds up to the last that has something to draw."""
    return rounds[: max(place for place, one in enumerate(rounds) if tells(one)) + 1]


def _by_round(axis: Axes, first: int, last: int) -> None:
    """Rounds along the axis, whole numbers; a lone one stands in the middle, with air around."""
    half = max((last - first) / 2 + 0.6, 1.0)
    axis.set(xlabel="round", xlim=((first + last) / 2 - half, (first + last) / 2 + half))
    if last - first < 12:
        axis.set_xticks(range(first, last + 1))


def _panel() -> tuple[Figure, Axes]:
    figure = Figure(figsize=SIZE, layout="constrained")
    axis = figure.subplots()
    axis.spines[["top", "right"]].set_visible(False)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure, axis


def _drawn(figure: Figure, name: str, said: str) -> Markup:
    """Inline SVG with the page's colours, ids of its own, and its content in words."""
    labels = [label for axis in figure.axes for label in axis.get_legend_handles_labels()[1]]
    columns = 2 if BAND in labels else 3  # it is too long for three
    figure.legend(loc="outside lower center", ncols=columns, frameon=False, fontsize=9)
    text = re.sub(r"<metadata>.*?</metadata>", "", str(as_svg(figure)), flags=re.DOTALL)
    text = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", text)
    for colour, variable in THEMED.items():
        text = text.replace(colour, f"var(--{variable})")
    return Markup(text.replace("<svg ", f'<svg role="img" aria-label="{escape(said)}" ', 1))


def _xy(points: Iterable[tuple[float, float]]) -> tuple[list[float], list[float]]:
    pairs = list(points)
    return [x for x, _ in pairs], [y for _, y in pairs]


def _number(value: float | None) -> float:
    return float("nan") if value is None else value


def _share(value: float | None) -> str:
    return "nothing" if value is None else f"{value:.1%}"
