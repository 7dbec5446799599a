"""What each figure shows: a campaign round by round, its tests, and what serves now.

Functions take a part of the story and return `Figure`s; report and dashboard draw the same ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from depsue.campaigns.exposure import Corpus
from depsue.campaigns.records import CandidateTest, LadderLevel
from depsue.campaigns.story import PromiseOutcome, RoundStory, Story
from depsue.pages.drawing import (
    Axis,
    Band,
    Bars,
    Figure,
    Line,
    Mark,
    Points,
    Rule,
    Span,
    Ticks,
    rounds_axis,
    spanned,
)
from depsue.pages.words import or_dash, plus_minus, promise_table
from depsue.plural import counted

if TYPE_CHECKING:
    from depsue.pages.live import Live, LiveValue

T = TypeVar("T")


def round_figures(story: Story) -> list[Figure]:
    """Value and margin of every promise, and novelty, round by round."""
    figures = value_figures(story)
    novelty = novelty_figure(story.history)
    if novelty is not None:
        figures.insert(1 if figures else 0, novelty)
    corpus = corpus_figure(story.corpus)
    return [*figures, *margin_figures(story), *(() if corpus is None else (corpus,))]


def value_figures(story: Story) -> list[Figure]:
    """The mean reward of each round, with two standard errors, against each promise's floor."""
    return [
        _value(story, place, f"Value{_of_promise(story, place)}")
        for place, history in enumerate(story.promises)
        if history.outcomes
    ]


def _value(story: Story, place: int, heading: str) -> Figure:
    history = story.promises[place]
    outcomes = _up_to_last(
        history.outcomes, lambda outcome: outcome.mean is not None or outcome.certified is not None
    )
    need, error = outcomes[0].need, 2 * outcomes[0].need_error
    marks: list[Mark] = [Rule("floor", need)]
    if error > 0:
        marks.append(Span("floor ± 2 standard errors", need - error, need + error))
    shown = [need - error, need + error]
    observed = [(outcome.round, outcome.mean, 2 * (outcome.error or 0.0))
                for outcome in outcomes if outcome.mean is not None]  # fmt: skip
    for name, rows in (("pi0, before", observed[:1]), ("served", observed[1:])):
        if rows:
            x, y, errors = zip(*rows, strict=True)
            colour = "grey" if name == "pi0, before" else "blue"
            marks.append(Points(name, x, y, colour, errors=errors))  # type: ignore[arg-type]
            shown += [mean + sign * half for _, mean, half in rows for sign in (-1, 1)]
    names = ((True, "certified at least"), (False, "certified, not served to the end"))
    for followed, name in names:
        certified = [(outcome.round, outcome.certified) for outcome in outcomes
                     if outcome.certified is not None and outcome.followed == followed]  # fmt: skip
        if certified:
            x, y = _columns(certified)
            marks.append(Points(name, x, y, "blue", "triangle", hollow=not followed))
            shown += y
    headings, cells = promise_table(story, history)
    description = "; ".join(_value_words(outcome) for outcome in outcomes)
    return Figure(
        name=f"rounds-value-{place}",
        heading=heading,
        description=f"Mean reward by round against a floor of {need:.4g}: {description}.",
        headings=headings,
        cells=cells,
        marks=tuple(marks),
        x=rounds_axis(outcomes[0].round, outcomes[-1].round),
        y=Axis("mean reward", spanned(shown)),
    )


def _value_words(outcome: PromiseOutcome) -> str:
    mean = "not observed"
    if outcome.mean is not None:
        mean = plus_minus(outcome.mean, 2 * (outcome.error or 0.0))
    words = f"round {outcome.round} {mean}"
    if outcome.certified is not None:
        words += f", certified at least {outcome.certified:.4g}"
    return words


def novelty_figure(history: Sequence[RoundStory]) -> Figure | None:
    """The share of decisions that show a new item, served and certified; None before either."""
    rounds = _up_to_last(
        history[1:], lambda past: past.novelty is not None or past.certified is not None
    )
    if not rounds:
        return None
    marks: list[Mark] = []
    served = [(past.round, past.novelty) for past in rounds if past.novelty is not None]
    certified = [(past.round, past.certified) for past in rounds if past.certified is not None]
    if served:
        marks.append(Bars("served", *_columns(served), "blue"))
    if certified:
        marks.append(Ticks("certified", *_columns(certified), "ink"))
    description = "; ".join(
        f"round {past.round} served {_share(past.novelty)}, certified {_share(past.certified)}"
        for past in rounds
    )
    most = max(0.01, *(share for _, share in [*served, *certified]))
    return Figure(
        name="rounds-novelty",
        heading="Novelty",
        description=f"Share of decisions that show a new item, by round: {description}.",
        headings=("round", "served", "certified"),
        cells=tuple(
            (str(past.round), or_dash(past.novelty, ".1%"), or_dash(past.certified, ".1%"))
            for past in rounds
        ),
        marks=tuple(marks),
        x=rounds_axis(rounds[0].round, rounds[-1].round),
        y=Axis("novelty", (0.0, 1.15 * most), "percent"),
    )


def corpus_figure(corpus: Corpus) -> Figure | None:
    """How many new items were shown and rewarded often enough; None before a round observed."""
    rounds = corpus.rounds[1:]
    if not rounds:
        return None
    counts = [(past.round, past.new) for past in rounds]
    so_far = [(past.round, past.new_so_far) for past in rounds if past.new_so_far is not None]
    marks: list[Mark] = [
        Bars(
            f"in the round, shown {corpus.impressions:,} times",
            *_columns([(k, count.shown) for k, count in counts]),
            "grey",
        )
    ]
    if so_far:
        shown = _columns([(k, count.shown) for k, count in so_far])
        rewarded = _columns([(k, count.rewarded or 0) for k, count in so_far])
        marks += [
            Line("so far", *shown, "blue", dots=True),
            Line(f"and {counted(corpus.rewards, 'reward')}", *rewarded, "green", dots=True),
        ]
    items = max(count.items for _, count in counts)
    marks.append(Rule("new items", float(items), "ink", "dot"))
    description = "; ".join(
        f"round {past.round}: {past.new}"
        + (f", so far {past.new_so_far}" if past.new_so_far is not None else "")
        for past in rounds
    )
    return Figure(
        name="rounds-corpus",
        heading="Discoverable corpus",
        description=f"New items by round, {corpus.rule}: {description}.",
        headings=corpus.headings,
        cells=corpus.cells,
        marks=tuple(marks),
        x=rounds_axis(rounds[0].round, rounds[-1].round),
        y=Axis("new items", (0.0, 1.15 * max(items, 1)), "thousands"),
    )


def margin_figures(story: Story) -> list[Figure]:
    """What each round earned above the floor, where any was observed or counted on."""
    return [
        _margin(history.outcomes, place, f"Margin{_of_promise(story, place)}")
        for place, history in enumerate(story.promises)
        if any(outcome.margin is not None or outcome.counted_on > 0 for outcome in history.outcomes)
    ]


def _margin(outcomes: Sequence[PromiseOutcome], place: int, heading: str) -> Figure:
    rounds = _up_to_last(
        outcomes[1:], lambda outcome: outcome.margin is not None or outcome.counted_on > 0
    )
    # bars stand side by side where a certificate counted on margin
    aside = 0.1 if any(outcome.counted_on > 0 for outcome in rounds) else 0.0
    observed = [(outcome.round, outcome.margin) for outcome in rounds if outcome.margin is not None]
    marks: list[Mark] = [Rule("", 0.0, "ink", "solid")]
    for name, colour, sign in (("earned", "green", 1), ("lost", "red", -1)):
        bars = [(k - aside, margin) for k, margin in observed if (margin >= 0) == (sign > 0)]
        if bars:
            marks.append(Bars(name, *_columns(bars), colour))  # type: ignore[arg-type]
    for followed, name in ((True, "counted on"), (False, "counted on, not served to the end")):
        bars = [(outcome.round + 0.2, -outcome.counted_on) for outcome in rounds
                if outcome.counted_on > 0 and outcome.followed == followed]  # fmt: skip
        if bars:
            marks.append(Bars(name, *_columns(bars), "grey", 0.2, hollow=not followed))
    if len(observed) > 1:
        sums = [sum(margin for _, margin in observed[: k + 1]) for k in range(len(observed))]
        x, _ = _columns(observed)
        marks.append(Line("sum so far", x, tuple(sums), "blue", dots=True))
    description = "; ".join(_margin_words(outcome) for outcome in rounds)
    return Figure(
        name=f"rounds-margin-{place}",
        heading=heading,
        description=f"Reward earned above the floor by round, an estimate: {description}.",
        headings=("round", "margin", "counted on by a certificate"),
        cells=tuple(
            (
                str(outcome.round),
                or_dash(outcome.margin, "+,.1f"),
                or_dash(outcome.counted_on or None, ",.1f"),
            )
            for outcome in rounds
        ),
        marks=tuple(marks),
        x=rounds_axis(rounds[0].round, rounds[-1].round),
        y=Axis("reward above the floor", form="thousands"),
    )


def _margin_words(outcome: PromiseOutcome) -> str:
    words = "not observed" if outcome.margin is None else f"{outcome.margin:+,.1f}"
    more = f", {outcome.counted_on:,.1f} counted on" if outcome.counted_on else ""
    return f"round {outcome.round} {words}{more}"


def levels_figure(story: Story, test: CandidateTest, heading: str, name: str) -> Figure | None:
    """Anticipated value against novelty over the levels of a candidate, what passed, what came."""
    if not test.levels:
        return None
    done, rest = test.levels[: test.tested], test.levels[max(test.tested - 1, 0) :]
    marks: list[Mark] = []
    if len(rest) > 1 or not done:
        marks.append(Line("not tested", *_coordinates(rest), "blue", "dot"))
    if done:
        marks.append(Line("tested", *_coordinates(done), "blue"))
    xs, ys = (list(values) for values in _coordinates(test.levels))
    plain = story.plain
    unit = None if plain is None else plain.outcomes[0].mean
    if plain is not None and unit:  # values are drawn relative to pi0's
        floor = plain.outcomes[0].need / unit
        marks.append(Rule("floor", floor))
        ys.append(floor)
        came = next(
            (outcome for outcome in plain.observed[1:] if outcome.round == test.round), None
        )
        if came is not None and came.followed and came.mean is not None:
            x = story.history[test.round].novelty or 0.0
            y, error = came.mean / unit, 2 * (came.error or 0.0) / unit
            marks.append(Points("what came", (x,), (y,), "ink", errors=(error,)))
            xs, ys = [*xs, x], [*ys, y - error, y + error]
    description = f"{counted(len(test.levels), 'level')}, {test.tested} tested, {test.state}"
    description += f"; novelty up to {max(xs):.1%}"
    if test.failed is not None:
        marks.append(Points("failed", *_coordinates([test.failed]), "red", "cross"))
    if test.certified is not None:
        marks.append(Points("certified", *_coordinates([test.certified]), "green", "star"))
        description += f"; certified at novelty {test.certified.novelty:.1%}, anticipated value "
        description += f"{test.certified.value:.3f} of pi0's"
    gap, wide = max(max(ys) - min(ys), 0.05), max(max(xs), 0.01)
    return Figure(
        name=name,
        heading=heading,
        description=f"Round {test.round}: anticipated value by novelty: {description}.",
        headings=("novelty", "anticipated value / V(pi0)", "test"),
        cells=tuple(
            (f"{level.novelty:.1%}", f"{level.value:.3f}", _fate(test, place))
            for place, level in _thinned(test)
        ),
        marks=tuple(marks),
        x=Axis("novelty", (-0.04 * wide, 1.08 * wide), "percent"),
        y=Axis("anticipated value / V(pi0)", (min(ys) - 0.12 * gap, max(ys) + 0.12 * gap)),
    )


def _fate(test: CandidateTest, place: int) -> str:
    level = test.levels[place]
    if test.certified is not None and level.novelty == test.certified.novelty:
        return "certified"
    if place >= test.tested:
        return "not tested"
    return "failed" if level == test.failed else "passed"


def _thinned(test: CandidateTest) -> list[tuple[int, LadderLevel]]:
    """About twenty levels, with those at which the test ended."""
    step = max(len(test.levels) // 20, 1)
    ends = {len(test.levels) - 1, test.tested - 1, test.tested}
    return [
        (place, level)
        for place, level in enumerate(test.levels)
        if place % step == 0 or place in ends or _fate(test, place) == "certified"
    ]


def live_figures(live: Live) -> list[Figure]:
    """The value, the novelty and the margin of the round that is served, over time."""
    if not live.values:
        return []
    figures = [_live_value(live)] if any(value.policy for value in live.values) else []
    figures.append(_live_novelty(live))
    if any(value.margin is not None for value in live.values):
        figures.append(_live_margin(live))
    return figures


def _live_value(live: Live) -> Figure:
    values = [value for value in live.values if value.policy is not None]
    last = values[-1]
    marks: list[Mark] = []
    shown: list[float] = []
    late = _second_half(values)
    held = [(value.at, value.pi0) for value in values if value.pi0 is not None]
    if held:
        at, limits = tuple(at for at, _ in held), [limits for _, limits in held]
        marks += _with_band("pi0, holdout", at, limits, "grey")
    own = [(value.at, value.policy) for value in values if value.policy is not None]
    marks += _with_band("policy", tuple(at for at, _ in own), [y for _, y in own], "blue")
    shown += [x for value in late for x in (*(value.policy or ()), *(value.pi0 or ())[:1])]
    newest = [(value.at, value.recent) for value in values if value.recent is not None]
    if newest:
        x, y = tuple(at for at, _ in newest), tuple(mean for _, mean in newest)
        marks.append(Line("policy, lately", x, y, "blue", "dot"))
        shown += [value.recent for value in late if value.recent is not None]
    description = f"policy {_interval(last.policy)}"
    if last.recent is not None:
        description += f", lately {last.recent:.4g}"
    description += f" after {counted(last.decisions, 'decision')}"
    if last.pi0 is not None:
        description += f"; pi0 in the holdout {_interval(last.pi0)}"
    if live.floor is not None:
        marks.append(Rule("floor", live.floor))
        shown.append(live.floor)
        description += f"; floor {live.floor:.4g}, {live.floor_is}"
    return Figure(
        name="live-value",
        heading="Value",
        description="Mean reward of learn and select rows over time, with its confidence sequence. "
        f"Now: {description}.",
        headings=("UTC", "decisions", "policy", "lately", "pi0, holdout"),
        cells=tuple(
            (value.at[:19], f"{value.decisions:,}", _interval(value.policy),
             or_dash(value.recent, ".4g"), _interval(value.pi0))
            for value in _newest(values)
        ),
        marks=tuple(marks),
        x=Axis(),
        y=Axis("mean reward", spanned(shown, low=0.0, high=live.r_max)),
    )  # fmt: skip


def _live_novelty(live: Live) -> Figure:
    values, last = live.values, live.values[-1]
    meant = live.status.novelty
    shown = [0.0, meant, *(value.novelty for value in _second_half(values))]
    times = tuple(value.at for value in values)
    return Figure(
        name="live-novelty",
        heading="Novelty",
        description="Share of the newest 1,000 closed decisions, whoever made them, that showed a "
        f"new item, over time. Now {last.novelty:.1%}; the deployed policy by itself {meant:.1%}.",
        headings=("UTC", "decisions", "novelty"),
        cells=tuple(
            (value.at[:19], f"{value.decisions:,}", f"{value.novelty:.1%}")
            for value in _newest(values)
        ),
        marks=(
            Line("shown", times, tuple(value.novelty for value in values), "blue"),
            Rule("policy by itself", meant, "ink"),
        ),
        x=Axis(),
        y=Axis("novelty", spanned(shown, low=0.0, high=1.0), "percent"),
    )


def _live_margin(live: Live) -> Figure:
    values = [(value, value.margin) for value in live.values if value.margin is not None]
    last, margin = values[-1]
    times, margins = tuple(value.at for value, _ in values), tuple(margin for _, margin in values)
    return Figure(
        name="live-margin",
        heading="Margin",
        description="Sum of (reward - floor) over all decisions of the round, whoever made them, "
        f"an estimate. Now {margin:+,.1f} after {counted(last.decisions, 'decision')}.",
        headings=("UTC", "decisions", "margin"),
        cells=tuple(
            (value.at[:19], f"{value.decisions:,}", f"{margin:+,.1f}")
            for value, margin in _newest(values)
        ),
        marks=(
            Line("margin of the round", times, margins, "green" if margin >= 0 else "red"),
            Rule("floor", 0.0),
        ),
        x=Axis(),
        y=Axis("reward above the floor"),
    )


def _with_band(
    name: str, x: tuple[str, ...], limits: Sequence[tuple[float, float, float]], colour: str
) -> list[Mark]:
    """A mean and the limits around it."""
    means, lows, highs = (tuple(column) for column in zip(*limits, strict=True))
    return [Band(x, lows, highs, colour), Line(name, x, means, colour)]  # type: ignore[arg-type]


def _of_promise(story: Story, place: int) -> str:
    """A promise's name, where there are several."""
    return f": {story.promises[place].promise.name}" if len(story.promises) > 1 else ""


def _up_to_last(rounds: Sequence[T], tells: Callable[[T], bool]) -> Sequence[T]:
    """The rounds up to the last that has something to draw."""
    places = [place for place, past in enumerate(rounds) if tells(past)]
    return rounds[: places[-1] + 1] if places else ()


def _second_half(values: Sequence[LiveValue]) -> list[LiveValue]:
    """Those since half of the decisions: before, limits are wide and means unsteady."""
    return [value for value in values if 2 * value.decisions >= values[-1].decisions]


def _newest(values: Sequence[T]) -> Sequence[T]:
    """About twenty of them, newest first."""
    return values[::-1][:: max(len(values) // 20, 1)]


def _coordinates(levels: Sequence[LadderLevel]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    return _columns([(level.novelty, level.value) for level in levels])


def _columns(
    points: Sequence[tuple[float, float]],
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    return tuple(x for x, _ in points), tuple(y for _, y in points)


def _interval(limits: tuple[float, float, float] | None) -> str:
    if limits is None:
        return "–"
    mean, low, high = limits
    return f"{mean:.4g} ({low:.3g} to {high:.3g})"


def _share(share: float | None) -> str:
    return "nothing" if share is None else f"{share:.1%}"
