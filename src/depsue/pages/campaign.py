"""One campaign's page: what the ledger tells of it, and what serves now."""

from __future__ import annotations

from dataclasses import dataclass

from depsue.pages.items import NewItems, new_items
from depsue.pages.live import Now, now_of
from depsue.pages.told import Novelty, Rounds, Tested, Told, path_of
from depsue.pages.words import percent
from depsue.serving.service import Service

STANDS = {
    "healthy": "nothing speaks against the promise",
    "watch": "look at what is marked",
    "stopped": "pi0 decides",
}


@dataclass(frozen=True)
class Tile:
    """A figure on top of the page."""

    label: str
    figure: str
    what: str
    mood: str = ""


@dataclass(frozen=True)
class CampaignPage:
    """One campaign.

    Args:
        name: its own.
        path: of its page.
        headline, said: where it stands, in sentences.
        concerns: what a reader must not miss.
        next: what to do now, a command.
        mood: good, bad or plain.
        tiles: the figures on top.
        promises: what was promised, in sentences.
        may_deploy: what may be deployed now.
        rounds: every promise, round by round.
        novelty: round by round.
        items: the new items.
        certificates: every test so far, newest first.
        journal: who did what when, newest first: when, who, round, what, of what.
        now: what serves this minute; None where the campaign is not served here.
    """

    name: str
    path: str
    headline: str
    said: tuple[str, ...]
    concerns: tuple[str, ...]
    next: str
    mood: str
    tiles: tuple[Tile, ...]
    promises: tuple[str, ...]
    may_deploy: tuple[str, ...]
    rounds: tuple[Rounds, ...]
    novelty: tuple[Novelty, ...]
    items: NewItems
    certificates: tuple[Tested, ...]
    journal: tuple[tuple[str, ...], ...]
    now: Now | None


def campaign_page(told: Told, service: Service | None) -> CampaignPage:
    """The page of a campaign.

    Args:
        told: what its ledger tells.
        service: what serves it here; None if nothing does.
    """
    now = None if service is None else now_of(service, told.floor)
    return CampaignPage(
        name=told.name,
        path=path_of(told.name),
        headline=told.headline,
        said=told.said,
        concerns=told.concerns,
        next=told.story.status.next,
        mood=_mood(told, now),
        tiles=tuple(_tiles(told, now)),
        promises=told.promises,
        may_deploy=told.story.status.may_deploy,
        rounds=told.rounds,
        novelty=told.novelty,
        items=new_items(told.exposure, None if service is None else service.watching),
        certificates=told.certificates,
        journal=told.journal,
        now=now,
    )


def _mood(told: Told, now: Now | None) -> str:
    story = told.story
    newest = [one.state for one in story.tried if one.round == story.status.round][-1:]
    if told.concerns or newest in (["failed"], ["abandoned"]):
        return "bad"
    if now is not None and (now.level == "stopped" or now.troubles):
        return "bad"
    return "good" if newest == ["passed"] else "plain"


def _tiles(told: Told, now: Now | None) -> list[Tile]:
    """The figures on top, live where there is something live."""
    moment = None if now is None else now.last
    found = [] if now is None else [Tile("monitor", now.level, STANDS[now.level], now.level)]
    found.append(Tile("round", told.at, "deployments"))
    first = told.first
    last = None if first is None or not first.observed else first.observed[-1]
    if moment is not None:
        mean, low, high = moment.policy
        found.append(Tile("value now", f"{mean:.4g}", f"{low:.3g} to {high:.3g}, at all times"))
    elif last is not None and last.mean is not None:
        of = f"round {last.round}" if last.round else "of pi0, before"
        found.append(Tile("mean reward", f"{last.mean:.4g}", of))
    if first is not None and told.floor is not None:
        ratio = first.promise.floor.ratio
        of = "declared" if ratio is None else f"{percent(ratio)} of pi0's first logs"
        found.append(Tile("floor", f"{told.floor:.4g}", of))
    found.append(_margin(told, now))
    if moment is not None:
        found.append(Tile("novelty", f"{moment.novelty:.1%}", "of decisions now"))
    else:
        found.append(Tile("novelty", f"{told.deployed_novelty:.1%}", "of decisions, as deployed"))
    return found


def _margin(told: Told, now: Now | None) -> Tile:
    """What was earned above the floor, rounds that were observed and the present epoch."""
    before, moment = told.margin, None if now is None else now.last
    live = None if moment is None else moment.margin
    if now is not None and now.round < told.story.status.round:  # its rows were observed already
        live = None
    if before is None and live is None:
        return Tile("margin", "–", "nothing observed yet")
    of = "observed" if live is None else "now" if before is None else "observed and now"
    return Tile("margin", f"{(before or 0.0) + (live or 0.0):+,.0f}", f"above the floor, {of}")
