"""One campaign's page: what the ledger tells of it, and what serves now."""

from __future__ import annotations

from dataclasses import dataclass

from depsue.campaigns import Campaign
from depsue.dashboard.items import NewItems, new_items
from depsue.dashboard.now import Now, now_of
from depsue.reports.campaign import words
from depsue.reports.campaign.items import exposure_of
from depsue.reports.campaign.page import ROUNDS, round_cells
from depsue.reports.campaign.story import Kept, Seen, Story, Tried, story_of
from depsue.serving.service import Service


@dataclass(frozen=True)
class Tile:
    """A figure on top of the page."""

    label: str
    figure: str
    what: str
    mood: str = ""


@dataclass(frozen=True)
class Rounds:
    """One promise, round by round, as numbers and as cells of a table."""

    promise: str
    floor: str
    seen: tuple[Seen, ...]
    headings: tuple[str, ...]
    cells: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Tested:
    """A test of a candidate, in a line."""

    round: int
    attempt: int
    state: str
    novelty: float | None
    at: str
    by: str
    path: str


@dataclass(frozen=True)
class Novelty:
    """Of one round: what was served, and what was certified."""

    round: int
    served: float | None
    certified: float | None


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


def campaign_page(campaign: Campaign, service: Service | None) -> CampaignPage:
    """The page of a campaign, from its ledger and what serves it.

    Args:
        campaign: whose.
        service: what serves it here; None if nothing does.
    """
    story = story_of(campaign)
    now = None if service is None else now_of(service, floor_of(story))
    watching = None if service is None else service.watching
    concerns = tuple(words.concerns(story))
    said = [words.serving_words(story), *(words.outcome(one) for one in story.kept)]
    said.append(words.item_changes(story))
    status = story.status
    history = [one for one in status.history if one.round > 0]
    entries = campaign.ledger.journal(campaign.name)
    return CampaignPage(
        name=campaign.name,
        path=path_of(campaign.name),
        headline=words.headline(story),
        said=tuple(one for one in said if one),
        concerns=concerns,
        next=status.next,
        mood=_mood(story, now, bool(concerns)),
        tiles=tuple(_tiles(story, now)),
        promises=(
            *(words.promise_words(one.promise) for one in story.kept),
            f"{status.delta}; {_safety(story)}",
        ),
        may_deploy=status.may_deploy,
        rounds=tuple(_rounds(story, one) for one in story.kept if one.seen),
        novelty=tuple(Novelty(one.round, one.novelty, one.certified) for one in history),
        items=new_items(exposure_of(campaign, story.observations), watching),
        certificates=tuple(_tested(campaign.name, one) for one in reversed(story.tried)),
        journal=tuple(tuple(words.journal_cells(story, one)) for one in reversed(entries)),
        now=now,
    )


def path_of(name: str) -> str:
    """Where a campaign's page is."""
    return f"/campaigns/{name}"


def floor_of(story: Story) -> float | None:
    """The mean reward that the first promise asks for; None before it can be told."""
    return story.kept[0].seen[0].need if story.kept and story.kept[0].seen else None


def margin_of(story: Story) -> float | None:
    """Earned above the first promise's floor in the rounds that were observed."""
    return story.kept[0].margin if story.kept else None


def _safety(story: Story) -> str:
    if story.campaign.settings.explore.safety == "each":
        return "every deployment keeps the floor by itself"
    return "all deployments so far, together, keep the floor"


def _mood(story: Story, now: Now | None, concerned: bool) -> str:
    failed = [one.state for one in story.tried if one.round == story.status.round][-1:]
    if concerned or failed in (["failed"], ["abandoned"]):
        return "bad"
    if now is not None and (now.level == "tripped" or now.troubles):
        return "bad"
    return "good" if failed == ["passed"] else "plain"


def _tiles(story: Story, now: Now | None) -> list[Tile]:
    status = story.status
    at = "over" if story.over else f"{status.round} of {status.rounds}"
    found = [Tile("round", at, "deployments")]
    moment = None if now is None else now.last
    if now is not None:
        what = {"fine": "nothing speaks against the promise", "watch": "something is to be watched",
                "tripped": "pi0 decides"}  # fmt: skip
        found.insert(0, Tile("monitor", now.level, what[now.level], now.level))
    kept = story.kept[0] if story.kept else None
    last = kept.observed[-1] if kept is not None and kept.observed else None
    if moment is not None:
        mean, low, high = moment.policy
        found.append(Tile("value now", f"{mean:.4g}", f"{low:.3g} to {high:.3g}, at all times"))
    elif last is not None and last.mean is not None:
        of = f"round {last.round}" if last.round else "of pi0, before"
        found.append(Tile("mean reward", f"{last.mean:.4g}", of))
    floor = floor_of(story)
    if floor is not None and kept is not None:
        ratio = kept.promise.floor.ratio
        of = "declared" if ratio is None else f"{words.percent(ratio)} of pi0's first logs"
        found.append(Tile("floor", f"{floor:.4g}", of))
    found.append(_margin(story, now))
    novelty = moment.novelty if moment is not None else _deployed_novelty(story)
    of = "of decisions now" if moment is not None else "of decisions, as deployed"
    found.append(Tile("novelty", f"{novelty:.1%}", of))
    return found


def _margin(story: Story, now: Now | None) -> Tile:
    before, moment = margin_of(story), None if now is None else now.last
    live = None if moment is None else moment.margin
    if now is not None and now.round < story.status.round:  # its rows were observed already
        live = None
    if before is None and live is None:
        return Tile("margin", "–", "nothing observed yet")
    of = "observed" if live is None else "now" if before is None else "observed and now"
    return Tile("margin", f"{(before or 0.0) + (live or 0.0):+,.0f}", f"above the floor, {of}")


def _deployed_novelty(story: Story) -> float:
    newest = story.serving
    if newest is None:
        return 0.0
    return story.campaign.what_is(newest.round, newest.policy_hash).novelty


def _rounds(story: Story, kept: Kept) -> Rounds:
    return Rounds(
        kept.promise.name,
        str(kept.promise.floor),
        kept.seen,
        ROUNDS,
        tuple(tuple(row) for row in round_cells(story, kept)),
    )


def _tested(name: str, tried: Tried) -> Tested:
    attempt = tried.attempt
    return Tested(
        round=tried.round,
        attempt=0 if attempt is None else attempt.attempt,
        state=tried.state,
        novelty=None if tried.certified is None else tried.certified[0],
        at=f"{(tried.candidate if attempt is None else attempt).at:%Y-%m-%d %H:%M}",
        by=(tried.candidate if attempt is None else attempt).by,
        path="" if attempt is None else certificate_path(name, tried.round, attempt.attempt),
    )


def certificate_path(name: str, k: int, attempt: int) -> str:
    """Where the page of a test is."""
    return f"{path_of(name)}/certificates/{k}-{attempt}"
