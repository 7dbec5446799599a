"""The page: tables and figures put in their places, written whole or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from depsue._version import __version__
from depsue.campaigns import Campaign
from depsue.files import write_file
from depsue.pages import guarantee, words
from depsue.pages import report_figures as figures
from depsue.pages.details import VERDICTS, details_of
from depsue.pages.exposure import FEWEST, Exposure, Item, exposure_of
from depsue.pages.story import Kept, Story, story_of
from depsue.plural import counted, plural

Panel: TypeAlias = tuple[str, str, Markup]
"""A figure's heading, the promise that it is about where there are several, and the figure."""
MOST_BARS = 15
MOST_FRONTIERS = 6
MOST_LINES = 30
"""Of the journal, before it is folded away."""
ROUNDS = ("round", "test", "novelty certified", "value certified", "served", "decisions",
          "novelty served", "mean reward", "floor", "margin")  # fmt: skip


def write_report(campaign: Campaign, path: str | Path) -> Path:
    """Write a campaign's story as one self-contained HTML page; returns its path.

    Args:
        campaign: whose; only its ledger is read.
        path: the page.
    """
    text = rendered(campaign)
    write_file(Path(path), text.encode("utf-8", "replace"))  # an id may hold half a character
    return Path(path)


def rendered(campaign: Campaign) -> str:
    """The page as text."""
    story = story_of(campaign)
    exposure = exposure_of(campaign, story.observations)
    journal = campaign.ledger.journal(campaign.name)
    page = Environment(
        loader=PackageLoader("depsue.pages"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    ).get_template("report.html")
    shown = [one for one in story.tried if one.levels]
    return page.render(
        story=story,
        status=story.status,
        settings=campaign.settings,
        words=words,
        mood=_mood(story),
        facts=_facts(story),
        promises=[words.promise_words(one.promise) for one in story.kept],
        outcomes=[said for one in story.kept if (said := words.outcome(one))],
        changes=words.item_changes(story),
        concerns=words.concerns(story),
        counted=counted,
        plural=plural,
        values=_values(story),
        margins=_margins(story),
        frontiers=[
            (
                f"Round {one.round}: {one.state}",
                "",
                figures.frontier_panel(one, story, f"frontier{place}"),
            )
            for place, one in enumerate(shown[-MOST_FRONTIERS:])
        ],
        round_headings=ROUNDS,
        rounds=[(one.promise.name, round_cells(story, one)) for one in story.kept if one.seen],
        earlier=max(len(shown) - MOST_FRONTIERS, 0),
        exposure=exposure,
        fewest=FEWEST,
        bars=_bars(exposure),
        items=[_item_cells(one) for one in exposure.items],
        item_rounds=len(story.observations) - 1 if len(story.observations) <= 7 else 0,
        says=guarantee.says(story),
        says_not=guarantee.says_not(story),
        rests_on=guarantee.rests_on(story),
        journal=[words.journal_cells(story, one) for one in journal],
        most_lines=MOST_LINES,
        last=journal[-1].at if journal else None,
        verdict_headings=VERDICTS,
        tests=[details_of(one) for one in story.tried],
        version=__version__,
    )


def _mood(story: Story) -> str:
    """good, bad or plain: the colour of the headline."""
    now = [one.state for one in story.tried if one.round == story.status.round][-1:]
    if words.concerns(story) or now in (["failed"], ["abandoned"]):
        return "bad"
    good = any(one.apart == "above the floor" for kept in story.kept for one in kept.observed[1:])
    return "good" if good or now == ["passed"] else "plain"


def _facts(story: Story) -> list[tuple[str, str, str]]:
    """(label, figure, what it is) of the tiles on top."""
    status, newest = story.status, story.serving
    what = story.campaign.choice_of(newest.round, newest.policy_hash) if newest else None
    at = "over" if story.over else f"{status.round} of {status.rounds}"
    found = [
        ("round", at, plural(status.rounds, "deployment")),
        ("novelty now", words.percent(what.novelty if what else 0.0), "decisions with a new item"),
    ]
    if not story.kept or not story.kept[0].observed:
        return found
    kept = story.kept[0]
    first, last = kept.observed[0], kept.observed[-1]
    of = f", {kept.promise.name}" if len(story.kept) > 1 else ""
    if last.mean is not None:
        found.append((
            "mean reward", f"{last.mean:.4g}",
            (f"round {last.round}" if last.round else "of pi0, before") + of,
        ))  # fmt: skip
    ratio = kept.promise.floor.ratio
    of = "declared" if ratio is None else f"{words.percent(ratio)} of pi0's value"
    found.append(("floor", f"{first.need:.4g}", of))
    if kept.margin is not None:
        found.append(("margin so far", f"{kept.margin:+,.0f}", "reward above the floor, estimated"))
    return found


def _values(story: Story) -> list[Panel]:
    """The value by each promise, and novelty."""
    found = [
        ("Value", _named(story, one), figures.value_panel(one, f"value{place}"))
        for place, one in enumerate(story.kept)
        if one.seen
    ]
    told = [one for one in story.status.history if one.round > 0]
    if any(one.novelty is not None or one.certified is not None for one in told):
        found.append(("Novelty", "", figures.novelty_panel(story.status.history, "novelty")))
    return found


def _margins(story: Story) -> list[Panel]:
    """The margin by each promise, where there is any."""
    return [
        ("Earned above the floor", _named(story, one), figures.margin_panel(one, f"margin{place}"))
        for place, one in enumerate(story.kept)
        if any(seen.margin is not None or seen.drawn > 0 for seen in one.seen)
    ]


def _named(story: Story, kept: Kept) -> str:
    """A promise's name where there are several."""
    return kept.promise.name if len(story.kept) > 1 else ""


def round_cells(story: Story, kept: Kept) -> list[list[str]]:
    """The rows of the table of rounds, as text, in the order of `ROUNDS`."""
    rows = []
    for one, seen in zip(story.status.history, kept.seen, strict=True):
        test = one.verdict or "–"
        if one.attempt is not None and one.attempt > 1:
            test += f" (attempt {one.attempt})"
        mean = "–" if seen.mean is None else words.plus_minus(seen.mean, 2 * (seen.error or 0.0))
        rows.append([
            str(one.round),
            test,
            _or_none(one.certified, ".1%"),
            _or_none(seen.certified, ".4f", "≥ "),
            one.served or "–",
            _or_none(seen.rows or None, ",d"),
            _or_none(one.novelty, ".1%"),
            mean,
            f"{seen.need:.4f}",
            _or_none(seen.margin, "+,.1f"),
        ])  # fmt: skip
    return rows


def _bars(exposure: Exposure) -> list[tuple[Item, float, str]]:
    """The items shown most: (item, width in per cent, mean reward in words)."""
    top = [one for one in exposure.items if one.shown > 0][:MOST_BARS]
    return [(one, 100 * one.shown / top[0].shown, _reward(one)) for one in top]


def _reward(item: Item) -> str:
    if item.mean is None:
        return "–"
    return words.plus_minus(item.mean, item.error or 0.0)


def _item_cells(item: Item) -> tuple[Item, list[str]]:
    return item, [f"{item.shown:,}", f"{item.share:.1%}", _reward(item)]


def _or_none(value: float | None, form: str, before: str = "") -> str:
    return "–" if value is None else before + format(value, form)
