"""All campaigns at a glance."""

from __future__ import annotations

from dataclasses import dataclass

from depsue.campaigns import Campaign
from depsue.dashboard.campaign import floor_of, margin_of, path_of
from depsue.reports.campaign import words
from depsue.reports.campaign.story import story_of


@dataclass(frozen=True)
class Glance:
    """One campaign, in a few words.

    Args:
        name, path: of it.
        round: k of K, or over.
        headline, serving: a sentence each.
        promises: the floors, in words.
        floor: the mean reward that the first promise asks for.
        margin: earned above it in the rounds that were observed.
        level: of the monitor; None where the campaign is not served here.
        problem: why no more can be said; "" if there is none.
    """

    name: str
    path: str
    round: str = ""
    headline: str = ""
    serving: str = ""
    promises: tuple[str, ...] = ()
    floor: float | None = None
    margin: float | None = None
    level: str | None = None
    problem: str = ""


@dataclass(frozen=True)
class Overview:
    """All campaigns of the ledger, the newest first; `served` is the one that is served here."""

    served: str
    campaigns: tuple[Glance, ...]


def glance(campaign: Campaign, level: str | None) -> Glance:
    """One campaign, in a few words."""
    story = story_of(campaign)
    status = story.status
    return Glance(
        name=campaign.name,
        path=path_of(campaign.name),
        round="over" if story.over else f"{status.round} of {status.rounds}",
        headline=words.headline(story),
        serving=words.serving_words(story),
        promises=status.promises,
        floor=floor_of(story),
        margin=margin_of(story),
        level=level,
    )
