"""All campaigns at a glance."""

from __future__ import annotations

from dataclasses import dataclass

from depsue.pages.told import Told, path_of


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


def glance(told: Told, level: str | None) -> Glance:
    """One campaign, in a few words."""
    return Glance(
        name=told.name,
        path=path_of(told.name),
        round=told.at,
        headline=told.headline,
        serving=told.serving,
        promises=told.story.status.promises,
        floor=told.floor,
        margin=told.margin,
        level=level,
    )
