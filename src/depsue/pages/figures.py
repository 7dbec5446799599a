"""The figures of a campaign's page: the present epoch over time, and round by round."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from depsue.pages.drawing import (
    BLUE,
    BLUE_BAND,
    GREEN,
    GREY,
    GREY_BAND,
    INK,
    RED,
    Figure,
    Limits,
    Trace,
    band,
    flat,
    line,
    plotted,
    spanned,
)
from depsue.pages.live import Moment, Now
from depsue.pages.told import Novelty, Rounds
from depsue.pages.words import plus_minus


def live_figures(now: Now) -> list[Figure]:
    """The value, the novelty and the margin of the present epoch, over time."""
    moments = now.moments
    if not moments:
        return []
    found = [_live_value(now), _live_novelty(now)]
    if any(one.margin is not None for one in moments):
        found.append(_live_margin(now))
    return found


def _live_value(now: Now) -> Figure:
    moments, last = now.moments, now.moments[-1]
    times = [one.at for one in moments]
    traces = []
    held = [one for one in moments if one.pi0 is not None]
    limits = [one.pi0 for one in held if one.pi0 is not None]
    if limits:
        traces += band([one.at for one in held], limits, "pi0, holdout", GREY, GREY_BAND)
    traces += band(times, [one.policy for one in moments], "policy", BLUE, BLUE_BAND)
    if now.floor is not None:
        traces.append(flat(times, now.floor, "floor"))
    half = [one for one in moments if 2 * one.decisions >= last.decisions]
    seen = [x for one in half for x in (*one.policy, *(one.pi0 or ())[:1])]
    seen += [] if now.floor is None else [now.floor]
    said = f"policy {_interval(last.policy)} after {last.decisions:,} decisions"
    said += "" if last.pi0 is None else f"; pi0 in the holdout {_interval(last.pi0)}"
    said += "" if now.floor is None else f"; floor {now.floor:.4g}"
    return Figure(
        "live-value",
        "Value",
        f"Mean reward over time with its confidence sequence. Now: {said}.",
        ("UTC", "decisions", "policy", "pi0, holdout"),
        tuple(
            (one.at[:19], f"{one.decisions:,}", _interval(one.policy),
             "–" if one.pi0 is None else _interval(one.pi0))
            for one in _some(moments)
        ),
        plotted(traces, y="mean reward", range=spanned(seen, low=0.0, high=now.r_max)),
    )  # fmt: skip


def _live_novelty(now: Now) -> Figure:
    moments, last = now.moments, now.moments[-1]
    times = [one.at for one in moments]
    traces = [line(times, [one.novelty for one in moments], "shown", BLUE)]
    traces.append(flat(times, now.novelty, "as deployed", colour=INK))
    seen = [0.0, now.novelty, *(one.novelty for one in _half(moments))]
    return Figure(
        "live-novelty",
        "Novelty",
        f"Share of the policy's decisions that showed a new item, over time. Now {last.novelty:.1%}"
        f"; as deployed {now.novelty:.1%}.",
        ("UTC", "decisions", "novelty"),
        tuple((one.at[:19], f"{one.decisions:,}", f"{one.novelty:.1%}") for one in _some(moments)),
        plotted(traces, y="novelty", range=spanned(seen, low=0.0, high=1.0), percent="y"),
    )


def _live_margin(now: Now) -> Figure:
    told = [(one, one.margin) for one in now.moments if one.margin is not None]
    times = [one.at for one, _ in told]
    last, margin = told[-1]
    traces = [line(times, [value for _, value in told], "earned above the floor", GREEN)]
    traces.append(flat(times, 0.0, "floor"))
    return Figure(
        "live-margin",
        "Margin",
        f"Reward earned above the floor over time, an estimate. Now {margin:+,.1f} after "
        f"{last.decisions:,} decisions of the policy.",
        ("UTC", "decisions", "margin"),
        tuple((one.at[:19], f"{one.decisions:,}", f"{value:+,.1f}") for one, value in _some(told)),
        plotted(traces, y="reward above the floor"),
    )


def round_figures(rounds: Sequence[Rounds], novelty: Sequence[Novelty]) -> list[Figure]:
    """Value and margin of every promise, and novelty, round by round."""
    found = []
    for place, one in enumerate(rounds):
        of = f": {one.promise}" if len(rounds) > 1 else ""
        found.append(_value_by_round(one, f"rounds-value-{place}", f"Value{of}"))
        if any(seen.margin is not None for seen in one.seen):
            found.append(_margin_by_round(one, f"rounds-margin-{place}", f"Margin{of}"))
    if any(one.served is not None or one.certified is not None for one in novelty):
        found.insert(1 if found else 0, _novelty_by_round(novelty))
    return found


def _value_by_round(one: Rounds, name: str, heading: str) -> Figure:
    seen = [(k.round, k.mean, k.error or 0.0) for k in one.seen if k.mean is not None]
    certified = [(k.round, k.certified) for k in one.seen if k.certified is not None]
    need, need_error = one.seen[0].need, one.seen[0].need_error
    places = [k.round for k in one.seen]
    traces: list[Trace] = [
        {
            "x": [k for k, _, _ in seen],
            "y": [mean for _, mean, _ in seen],
            "error_y": {"array": [2 * error for _, _, error in seen], "color": BLUE},
            "mode": "markers",
            "marker": {"color": BLUE, "size": 9},
            "name": "mean reward ± 2 standard errors",
        }
    ]
    if certified:
        traces.append(
            {
                "x": [k for k, _ in certified],
                "y": [value for _, value in certified],
                "mode": "markers",
                "marker": {"color": GREEN, "size": 10, "symbol": "triangle-up"},
                "name": "certified at least",
            }
        )
    traces.append(flat([places[0] - 0.4, places[-1] + 0.4], need, "floor"))
    said = "; ".join(
        f"round {k.round} "
        + ("not observed" if k.mean is None else plus_minus(k.mean, 2 * (k.error or 0.0)))
        + ("" if k.certified is None else f", certified at least {k.certified:.4g}")
        for k in one.seen
    )
    every = [mean + sign * 2 * error for _, mean, error in seen for sign in (-1, 1)]
    every += [value for _, value in certified] + [need - need_error, need + need_error]
    return Figure(
        name,
        heading,
        f"Mean reward by round against a floor of {need:.4g}: {said}.",
        one.headings,
        one.cells,
        plotted(traces, y="mean reward", x="round", range=spanned(every), rounds=places),
    )


def _margin_by_round(one: Rounds, name: str, heading: str) -> Figure:
    told = [(k.round, k.margin) for k in one.seen if k.margin is not None]
    colours = [GREEN if margin >= 0 else RED for _, margin in told]
    traces: list[Trace] = [
        {
            "type": "bar",
            "x": [k for k, _ in told],
            "y": [margin for _, margin in told],
            "marker": {"color": colours},
            "width": 0.4,
            "name": "earned above the floor",
        }
    ]
    cells = tuple((str(k), f"{margin:+,.1f}") for k, margin in told)
    said = "; ".join(f"round {k} {margin}" for k, margin in cells)
    places = [k for k, _ in told]
    return Figure(
        name,
        heading,
        f"Reward earned above the floor by round, an estimate: {said}.",
        ("round", "margin"),
        cells,
        plotted(traces, y="reward above the floor", x="round", rounds=places),
    )


def _novelty_by_round(novelty: Sequence[Novelty]) -> Figure:
    served = [(one.round, one.served) for one in novelty if one.served is not None]
    certified = [(one.round, one.certified) for one in novelty if one.certified is not None]
    traces: list[Trace] = []
    if served:
        traces.append(
            {
                "type": "bar",
                "x": [k for k, _ in served],
                "y": [share for _, share in served],
                "marker": {"color": BLUE},
                "width": 0.4,
                "name": "served",
            }
        )
    if certified:
        traces.append(
            {
                "x": [k for k, _ in certified],
                "y": [share for _, share in certified],
                "mode": "markers",
                "marker": {
                    "color": INK,
                    "size": 26,
                    "symbol": "line-ew-open",
                    "line": {"width": 3},
                },
                "name": "certified",
            }
        )
    cells = tuple(
        (str(one.round), _percent(one.served), _percent(one.certified)) for one in novelty
    )
    said = "; ".join(f"round {k} served {a}, certified {b}" for k, a, b in cells)
    most = max([0.01, *(share for _, share in [*served, *certified])])
    return Figure(
        "rounds-novelty",
        "Novelty",
        f"Share of decisions that show a new item, by round: {said}.",
        ("round", "served", "certified"),
        cells,
        plotted(
            traces,
            y="novelty",
            x="round",
            range=(0.0, 1.15 * most),
            rounds=[one.round for one in novelty],
            percent="y",
        ),
    )


def _half(moments: Sequence[Moment]) -> list[Moment]:
    """Those since half of the decisions: before, limits are wide and means unsteady."""
    return [one for one in moments if 2 * one.decisions >= moments[-1].decisions]


def _some(values: Sequence[Any]) -> list[Any]:
    """About twenty of them, newest first."""
    step = max(len(values) // 20, 1)
    return list(values[::-1][::step])


def _interval(limits: Limits) -> str:
    mean, low, high = limits
    return f"{mean:.4g} ({low:.3g} to {high:.3g})"


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.1%}"
