"""What the ledger tells of a campaign, remembered until it tells more."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from depsue.campaigns import Campaign
from depsue.pages import words
from depsue.pages.exposure import Exposure, exposure_of
from depsue.pages.report import ROUNDS, round_cells
from depsue.pages.story import Kept, Seen, Story, Tried, story_of


@dataclass(frozen=True)
class Rounds:
    """One promise, round by round, as numbers and as cells of a table."""

    promise: str
    floor: str
    seen: tuple[Seen, ...]
    headings: tuple[str, ...]
    cells: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Novelty:
    """Of one round: what was served, and what was certified."""

    round: int
    served: float | None
    certified: float | None


@dataclass(frozen=True)
class Tested:
    """A test of a candidate, in a line; `path` is of its page, "" before it was begun."""

    round: int
    attempt: int
    state: str
    novelty: float | None
    at: str
    by: str
    path: str


@dataclass(frozen=True)
class Told:
    """What the ledger tells.

    Args:
        story: all of it.
        headline, serving, said: in sentences.
        concerns: what a reader must not miss.
        promises: what was promised, in sentences.
        deployed_novelty: of what serves.
        rounds: every promise, round by round.
        novelty: round by round.
        exposure: of new items, in the rounds that were observed.
        certificates: every test so far, newest first.
        journal: who did what when, newest first: when, who, round, what, of what.
    """

    story: Story
    headline: str
    serving: str
    said: tuple[str, ...]
    concerns: tuple[str, ...]
    promises: tuple[str, ...]
    deployed_novelty: float
    rounds: tuple[Rounds, ...]
    novelty: tuple[Novelty, ...]
    exposure: Exposure
    certificates: tuple[Tested, ...]
    journal: tuple[tuple[str, ...], ...]

    @property
    def name(self) -> str:
        """Of the campaign."""
        return self.story.campaign.name

    @property
    def first(self) -> Kept | None:
        """The first promise; None before anything was observed."""
        return self.story.kept[0] if self.story.kept and self.story.kept[0].seen else None

    @property
    def floor(self) -> float | None:
        """The mean reward that the first promise asks for; None before it can be told."""
        return None if self.first is None else self.first.seen[0].need

    @property
    def margin(self) -> float | None:
        """Earned above it in the rounds that were observed."""
        return None if self.first is None else self.first.margin

    @property
    def at(self) -> str:
        """The round, of how many."""
        status = self.story.status
        return "over" if self.story.over else f"{status.round} of {status.rounds}"


class Memory:
    """What was told of each campaign; read again when its journal has grown."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, Told]] = {}
        self._lock = threading.Lock()

    def of(self, campaign: Campaign) -> Told:
        """What the ledger tells of a campaign."""
        with self._lock:
            lines = len(campaign.ledger.journal(campaign.name))
            known = self._known.get(campaign.name)
            if known is None or known[0] != lines:
                known = lines, told_of(campaign)
                self._known[campaign.name] = known
            return known[1]


def told_of(campaign: Campaign) -> Told:
    """What the ledger tells of a campaign now."""
    story = story_of(campaign)
    status, newest = story.status, story.serving
    serving = words.serving_words(story)
    said = [serving, *(words.outcome(one) for one in story.kept), words.item_changes(story)]
    entries = campaign.ledger.journal(campaign.name)
    serves = None if newest is None else campaign.choice_of(newest.round, newest.policy_hash)
    history = [one for one in status.history if one.round > 0]
    each = campaign.settings.explore.safety == "each"
    safety = (
        "every deployment keeps the floor by itself"
        if each
        else "all deployments so far, together, keep the floor"
    )
    return Told(
        story=story,
        headline=words.headline(story),
        serving=serving,
        said=tuple(one for one in said if one),
        concerns=tuple(words.concerns(story)),
        promises=(
            *(words.promise_words(one.promise) for one in story.kept),
            f"{status.delta}; {safety}",
        ),
        deployed_novelty=0.0 if serves is None else serves.novelty,
        rounds=tuple(_rounds(story, one) for one in story.kept if one.seen),
        novelty=tuple(Novelty(one.round, one.novelty, one.certified) for one in history),
        exposure=exposure_of(campaign, story.observations),
        certificates=tuple(_tested(campaign.name, one) for one in reversed(story.tried)),
        journal=tuple(tuple(words.journal_cells(story, one)) for one in reversed(entries)),
    )


def path_of(name: str) -> str:
    """Where a campaign's page is."""
    return f"/campaigns/{name}"


def certificate_path(name: str, k: int, attempt: int) -> str:
    """Where the page of a test is."""
    return f"{path_of(name)}/certificates/{k}-{attempt}"


def _rounds(story: Story, kept: Kept) -> Rounds:
    cells = tuple(tuple(row) for row in round_cells(story, kept))
    return Rounds(kept.promise.name, str(kept.promise.floor), kept.seen, ROUNDS, cells)


def _tested(name: str, tried: Tried) -> Tested:
    attempt = tried.attempt
    newest = tried.candidate if attempt is None else attempt
    return Tested(
        round=tried.round,
        attempt=0 if attempt is None else attempt.attempt,
        state=tried.state,
        novelty=None if tried.certified is None else tried.certified[0],
        at=f"{newest.at:%Y-%m-%d %H:%M}",
        by=newest.by,
        path="" if attempt is None else certificate_path(name, tried.round, attempt.attempt),
    )
