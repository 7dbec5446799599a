"""The report: a campaign's story as one HTML page that needs nothing else. No log is read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from depsue import defaults
from depsue.campaigns import Campaign, Story, story_of
from depsue.campaigns.exposure import FEWEST, ItemExposure
from depsue.campaigns.records import CandidateTest
from depsue.files import write_file
from depsue.pages.certificate import VERDICT_HEADINGS, facts_of, verdict_details
from depsue.pages.drawing import Figure, draw_svg
from depsue.pages.figures import (
    corpus_figure,
    levels_figure,
    margin_figures,
    novelty_figure,
    value_figures,
)
from depsue.pages.rendering import mean_or_dash, templates
from depsue.pages.words import (
    ROUND_HEADINGS,
    Guarantee,
    Sentences,
    Tile,
    guarantee,
    journal_lines,
    promise_table,
    sentences,
    tiles,
)

MOST_BARS = 15
MOST_FRONTIERS = 6
MOST_LINES = 30
"""Of the journal, before it is folded away."""
MOST_ROUNDS = 6
"""Rounds that have a column of their own in the table of new items."""


@dataclass(frozen=True)
class Report:
    """What the report shows; its JSON twin.

    Args:
        story: of the campaign.
        words: the same in sentences.
        tiles: the figures on top.
        guarantee: what it says, what it does not, what it rests on.
        values, margins, frontiers: the figures.
        corpus: the figure of the discoverable corpus; None before a round was observed.
        journal: who did what when, oldest first.
    """

    story: Story
    words: Sentences
    tiles: tuple[Tile, ...]
    guarantee: Guarantee
    values: tuple[Figure, ...]
    margins: tuple[Figure, ...]
    frontiers: tuple[Figure, ...]
    corpus: Figure | None
    journal: tuple[tuple[str, ...], ...]


def report_of(story: Story) -> Report:
    """The report on a campaign."""
    novelty = novelty_figure(story.history)
    frontiers = (
        levels_figure(story, test, f"Round {test.round}: {test.state}", f"frontier{place}")
        for place, test in enumerate(_drawn_tests(story)[-MOST_FRONTIERS:])
    )
    return Report(
        story=story,
        words=sentences(story),
        tiles=tiles(story),
        guarantee=guarantee(story),
        values=(*value_figures(story), *(() if novelty is None else (novelty,))),
        margins=tuple(margin_figures(story)),
        frontiers=tuple(figure for figure in frontiers if figure is not None),
        corpus=corpus_figure(story.corpus),
        journal=journal_lines(story),
    )


def write_report(
    campaign: Campaign,
    path: str | Path,
    *,
    impressions: int = defaults.IMPRESSIONS,
    rewards: int = defaults.REWARDS,
) -> Path:
    """Write a campaign's story as one self-contained HTML page; returns its path.

    Args:
        campaign: whose; only its ledger is read.
        path: the page.
        impressions, rewards: what an item needs to count in the discoverable corpus.
    """
    story = story_of(campaign, impressions=impressions, rewards=rewards)
    text = rendered(report_of(story))
    write_file(Path(path), text.encode("utf-8", "replace"))  # an id may hold half a character
    return Path(path)


def rendered(report: Report) -> str:
    """The page as text."""
    story = report.story
    top = [item for item in story.items.items if item.shown > 0][:MOST_BARS]
    return templates().get_template("report.html").render(
        report=report,
        story=story,
        words=report.words,
        svg=draw_svg,
        round_headings=ROUND_HEADINGS,
        rounds=[
            (history.promise.name, promise_table(story, history)[1])
            for history in story.promises
            if history.outcomes
        ],
        earlier=max(len(_drawn_tests(story)) - MOST_FRONTIERS, 0),
        fewest=FEWEST,
        most_listed=MOST_BARS,
        bars=[(item, 100 * item.shown / top[0].shown, _reward(item)) for item in top],
        item_cells=_item_cells,
        item_rounds=story.round - 1 if story.round - 1 <= MOST_ROUNDS else 0,
        most_lines=MOST_LINES,
        verdict_headings=VERDICT_HEADINGS,
        facts_of=facts_of,
        verdict_details=verdict_details,
    )  # fmt: skip


def _drawn_tests(story: Story) -> list[CandidateTest]:
    return [test for test in story.tests if test.levels]


def _reward(item: ItemExposure) -> str:
    return mean_or_dash(item.mean, item.error)


def _item_cells(item: ItemExposure) -> tuple[str, ...]:
    return f"{item.shown:,}", f"{item.share:.1%}", _reward(item)
