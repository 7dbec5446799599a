"""The dashboard's pages of campaigns: all, one in full, stop, resume or ramp it, plan a round.

Each page is one frozen record around the campaign's `Story`; its JSON twin is that record.

A plan is worked out by `depsue.campaigns.plan_next_round`: here are its form, its progress, and how
far the newest logs go. Nothing on these pages reads a certifying row.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from depsue.campaigns import Campaign, Story, plan_next_round, story_of
from depsue.campaigns.recorded import before_planning
from depsue.campaigns.story import Mood
from depsue.errors import ConfigError, require, short
from depsue.exploration.plan import require_plannable
from depsue.exploration.settings import NAMED, ExploreSettings
from depsue.pages.jobs import Job, Task
from depsue.pages.live import (
    Live,
    NewItems,
    asks,
    decided,
    live_of,
    new_items,
    recent_of,
    traffic,
    verdict,
)
from depsue.pages.plan_report import PlanResult, plan_result
from depsue.pages.rendering import certificate_path, path_of
from depsue.pages.words import Sentences, Tile, at_round, journal_lines, sentences, tiles, utc
from depsue.plural import counted
from depsue.progress import Watch
from depsue.promises import Floor
from depsue.serving.messages import MOST_TEXT
from depsue.serving.monitor import MonitorState
from depsue.serving.service import Service

Action = Literal["stop", "resume", "share"]
MEANS: dict[Action, str] = {
    "stop": "From the next decision on, the current policy (pi0) decides in place of the new one, "
    "also after a restart, until somebody resumes it. What was decided so far stays as it is.",
    "resume": "From the next decision on, the new policy decides again. The monitor begins anew, "
    "with half the share of delta that it had: earlier evidence does not count again.",
    "share": "From the next decision on, this share of traffic is on the policy, and the rest on "
    "the current policy (pi0), the holdout. With 0 the policy is a shadow: pi0 decides, and each "
    "decision says what the policy would have shown. A ramp that is under way ends.",
}


FIELDS = ("floor", "delta", "objective", "max_novelty")
LABELS = {"floor": "the floor", "delta": "delta", "max_novelty": "the limit of novelty"}
"""Of the form that plans: its fields, and what they are called in messages."""


@dataclass(frozen=True)
class Overview:
    """All campaigns of the ledger, the newest first; `served` is the one that is served here."""

    served: str
    campaigns: tuple[Glance, ...]


@dataclass(frozen=True)
class Glance:
    """One campaign, in a few words.

    Args:
        name, path: of it.
        round: k of K, or over.
        verdict, decided, asks: who decides now, who made the newest decisions, and what the state
            asks of a reader; "" where the campaign is not served here.
        headline, deployed: where the ledger says that it stands, a sentence each.
        promises: the floors, in words.
        floor: the mean reward that the first promise asks for.
        margin: earned above it in the rounds that were observed.
        state: of the service; None where the campaign is not served here.
        problem: why no more can be said; "" if there is none.
    """

    name: str
    path: str
    round: str = ""
    verdict: str = ""
    decided: str = ""
    asks: str = ""
    headline: str = ""
    deployed: str = ""
    promises: tuple[str, ...] = ()
    floor: float | None = None
    margin: float | None = None
    state: MonitorState | None = None
    problem: str = ""


def glance(story: Story, service: Service | None) -> Glance:
    """One campaign, in a few words; `service` is what serves it here, None if nothing does."""
    words = sentences(story)
    first = story.first
    status = None if service is None else service.status
    return Glance(
        name=story.name,
        path=path_of(story.name),
        round=at_round(story),
        verdict="" if status is None else verdict(status),
        decided="" if service is None else decided(recent_of(service)),
        asks="" if status is None else asks(status),
        headline=words.headline,
        deployed=words.deployed,
        promises=tuple(f"{promise.name} {promise.floor}" for promise in story.settings.promises),
        floor=None if first is None else first.outcomes[0].need,
        margin=None if first is None else first.margin,
        state=None if status is None else status.state,
    )


@dataclass(frozen=True)
class CampaignPage:
    """One campaign.

    Args:
        path: of its page.
        story: what the ledger tells.
        words: the same in sentences.
        mood: good, bad or plain: the worse of the story's and of what serves now.
        tiles: the figures on top.
        items: the new items.
        certificates: every test so far, newest first.
        journal: who did what when, newest first: when, who, round, what, of what.
        live: what serves this minute; None where the campaign is not served here.
    """

    path: str
    story: Story
    words: Sentences
    mood: Mood
    tiles: tuple[Tile, ...]
    items: NewItems
    certificates: tuple[TestLine, ...]
    journal: tuple[tuple[str, ...], ...]
    live: Live | None


@dataclass(frozen=True)
class TestLine:
    """A test of a candidate, in a line; `path` is of its page, "" before it was begun."""

    __test__ = False  # pytest must not take it for one of its own

    round: int
    attempt: int
    state: str
    novelty: float | None
    at: str
    by: str
    path: str


def campaign_page(story: Story, service: Service | None) -> CampaignPage:
    """The page of a campaign.

    Args:
        story: what its ledger tells.
        service: what serves it here; None if nothing does.
    """
    live = None if service is None else live_of(service)
    return CampaignPage(
        path=path_of(story.name),
        story=story,
        words=sentences(story),
        mood=_mood(story, live),
        tiles=tuple(_tiles(story, live)),
        items=new_items(story.items, None if service is None else service.account),
        certificates=tuple(_test_lines(story)),
        journal=journal_lines(story)[::-1],
        live=live,
    )


def _mood(story: Story, live: Live | None) -> Mood:
    """The worse of what the ledger tells and of what serves now."""
    if live is None or story.mood == "bad":
        return story.mood
    state = live.status.state
    if live.troubles or state not in (MonitorState.WAITING, MonitorState.HEALTHY):
        return "bad"
    return "plain" if state is MonitorState.WAITING else story.mood


def _tiles(story: Story, live: Live | None) -> list[Tile]:
    """The figures on top, of what was served where the campaign is served here."""
    if live is None:
        return list(tiles(story))
    status = live.status
    monitor = Tile("monitor", status.says, f"round {status.round}", status.state)
    instead = dict[str, Tile]()
    if live.recent is not None and live.recent.counts.all:
        counts = live.recent.counts
        shown = f"{counts.new:,} of the last {counted(counts.all, 'decision')}"
        instead["novelty"] = Tile("new items shown", f"{counts.novelty:.1%}", shown)
    account = status.served.promises[0] if status.served.promises else None
    if account is not None and account.value is not None:
        lately = "" if account.recent is None else f", lately {account.recent:.4g}"
        what = f"of the policy, in {counted(account.read, 'learn or select row')}{lately}"
        instead["mean reward"] = Tile("value in this round", f"{account.value:.4g}", what)
    observed = None if story.first is None else story.first.margin
    if account is not None and account.margin is not None and status.round == story.round:
        # else the rows of the round were observed already
        margin = (observed or 0.0) + account.margin
        of = "this round" if observed is None else "observed and this round"
        instead["margin"] = Tile("margin", f"{margin:+,.0f}", f"against the floor, {of}")
    return [monitor, *(instead.get(tile.label, tile) for tile in tiles(story))]


def _test_lines(story: Story) -> list[TestLine]:
    return [
        TestLine(
            round=test.round,
            attempt=test.attempt or 0,
            state=test.state,
            novelty=None if test.certified is None else test.certified.novelty,
            at=f"{test.begun_at or test.trained_at:%Y-%m-%d %H:%M}",
            by=test.begun_by or test.trained_by,
            path=""
            if test.attempt is None
            else certificate_path(story.name, test.round, test.attempt),
        )
        for test in reversed(story.tests)
    ]


class Stories:
    """The stories of campaigns; one is read again when its journal has grown."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, Story]] = {}
        self._lock = threading.Lock()

    def of(self, campaign: Campaign) -> Story:
        """The story of a campaign."""
        with self._lock:
            lines = len(campaign.ledger.journal(campaign.name))
            known = self._known.get(campaign.name)
            if known is None or known[0] != lines:
                known = lines, story_of(campaign)
                self._known[campaign.name] = known
            return known[1]


@dataclass(frozen=True)
class ActionPage:
    """A stop, a resumption or another share of traffic that somebody asks for.

    Args:
        action: which.
        campaign, path: of what.
        means: what it does, in sentences.
        possible: whether it can be done now.
        state: how the monitor stands, in a sentence.
        reason, by: as given so far.
        stops: ids of the stops that the page shows, or showed first; a resume names these.
        share: in percent, as given so far, or as it is.
        sure: whether only the confirmation is missing.
        problem: what is wrong with what was given; "" if nothing is.
    """

    action: Action
    campaign: str
    path: str
    means: str
    possible: bool
    state: str
    reason: str = ""
    by: str = ""
    stops: tuple[str, ...] = ()
    share: str = ""
    sure: bool = False
    problem: str = ""


def action_page(
    action: Action,
    campaign: Campaign,
    service: Service | None,
    form: Mapping[str, str],
    *,
    sure: bool = False,
    problem: str = "",
) -> ActionPage:
    """The page of an action.

    Args:
        action: stop, resume or share.
        campaign: of which campaign.
        service: what serves it here; None if nothing does.
        form: reason, by, stops and share, as far as they are given.
        sure: whether only the confirmation is missing.
        problem: what is wrong with them.
    """
    possible, state, stops = False, "This campaign is not served here.", tuple[str, ...]()
    share = form.get("share", "")
    if service is not None and action == "share":
        now = f"{100 * service.traffic.share:.6g}"
        state = traffic(service.status)
        possible, share = True, form.get("share", now)
    elif service is not None:
        standing = service.status.stops
        state = f"Stopped: {service.stopped}" if standing else "The policy has not been stopped."
        possible = bool(standing) == (action == "resume")
        # what the page showed first is what its reader saw
        shown = form["stops"].split() if "stops" in form else [stop.id for stop in standing]
        stops = tuple(shown) if action == "resume" else ()
    return ActionPage(
        action,
        campaign.name,
        f"{path_of(campaign.name)}/{action}",
        MEANS[action],
        possible,
        state,
        form.get("reason", ""),
        form.get("by", ""),
        stops,
        share,
        sure=sure and possible and not problem,
        problem=problem,
    )


def require_said(form: Mapping[str, str]) -> tuple[str, str]:
    """The reason and who gives it; refused if they say nothing."""
    reason, by = form.get("reason", "").strip(), form.get("by", "").strip()
    for text, rule in ((reason, "a reason is recorded"), (by, "it is recorded who does it")):
        ok = 0 < len(text) <= MOST_TEXT and text.isprintable()
        require(ok, f"{rule}: 1 to {MOST_TEXT} characters, in one line", found=short(text))
    return reason, by


def share_said(form: Mapping[str, str]) -> float:
    """The share of traffic that a form asks for, in percent there."""
    try:
        percent = float(form.get("share", "").strip().removesuffix("%"))
    except ValueError:
        percent = math.nan
    require(
        0 <= percent <= 100,
        "the share of traffic on the policy is 0 to 100%",
        found=short(form.get("share", "")),
        cure="0 makes a shadow of the policy",
    )
    return percent / 100


@dataclass(frozen=True)
class PlanPage:
    """The page that plans.

    Args:
        campaign, path: which.
        logs: which logs a plan would go by, in sentences.
        possible: whether there is something to plan.
        fixed_floor: the campaign's floors in words, where they are not one share; "" else.
        form: what the form says, by field.
        problem: what is wrong with it; "" if nothing is.
        under_way: whether a plan of this campaign is.
        busy: another piece of work that is under way, in words.
        since: when the newest plan began; "" before the first.
        tasks: its progress.
        failed: why it came to nothing; "" if it did not.
        result: what it found; None before.
    """

    campaign: str
    path: str
    logs: tuple[str, ...]
    possible: bool
    fixed_floor: str
    form: dict[str, str]
    problem: str
    under_way: bool
    busy: str
    since: str
    tasks: tuple[Task, ...]
    failed: str
    result: PlanResult | None


def plan_page(
    campaign: Campaign,
    job: Job | None,
    *,
    running: Job | None,
    form: Mapping[str, str] | None = None,
    problem: str = "",
) -> PlanPage:
    """The page.

    Args:
        campaign: whose.
        job: its newest plan.
        running: the plan that is under way, of any campaign.
        form: what a form that was sent says; None is the newest plan's, or the campaign's own.
        problem: what is wrong with that.
    """
    explore = campaign.settings.explore
    sentences, possible = _about_logs(campaign)
    if form is None:
        form = form_of(explore) if job is None else job.form
    other = running if running is not job else None
    return PlanPage(
        campaign=campaign.name,
        path=f"{path_of(campaign.name)}/plan",
        logs=sentences,
        possible=possible,
        fixed_floor="" if _one_ratio(explore) is not None else _floors(explore),
        form={name: form.get(name, "") for name in FIELDS},
        problem=problem,
        under_way=job is not None and job.running,
        busy="" if other is None else other.what,
        since="" if job is None else utc(job.began),
        tasks=() if job is None else job.tasks,
        failed="" if job is None else job.problem,
        result=None if job is None else job.result,
    )


def planned(campaign: Campaign, explore: ExploreSettings, watch: Watch) -> PlanResult:
    """Plan the next round, for the page.

    Args:
        campaign: whose.
        explore: what for.
        watch: shows progress.
    """
    return plan_result(plan_next_round(campaign, explore, watch))


def form_of(explore: ExploreSettings) -> dict[str, str]:
    """The form as the campaign's own settings fill it."""
    ratio = _one_ratio(explore)
    objective = explore.objective
    return {
        "floor": "" if ratio is None else f"{ratio:g}",
        "delta": f"{explore.delta_of_deployment:g}",
        "objective": objective if isinstance(objective, str) else f"{objective:g}",
        "max_novelty": f"{explore.max_novelty:g}",
    }


def filled(explore: ExploreSettings, form: Mapping[str, str]) -> dict[str, str]:
    """What a form says, and the campaign's own where it says nothing."""
    own = form_of(explore)
    return {name: form.get(name, "").strip() or own[name] for name in FIELDS}


def settings_of(explore: ExploreSettings, form: Mapping[str, str]) -> ExploreSettings:
    """What is planned for: the campaign's settings, changed by what a form says.

    Args:
        explore: the campaign's.
        form: the form's fields.
    """
    text = filled(explore, form)
    promises = explore.promises
    if _one_ratio(explore) is not None:
        floor = Floor(_number(text["floor"], LABELS["floor"]))
        promises = (replace(promises[0], floor=floor),)
    objective: str | float = text["objective"]
    if objective not in NAMED:
        objective = _number(text["objective"], "the objective, where it is a weight,")
    changed = replace(
        explore,
        promises=promises,
        delta=_number(text["delta"], LABELS["delta"]),
        per="deployment",
        objective=objective,
        max_novelty=_number(text["max_novelty"], LABELS["max_novelty"]),
    )
    require_plannable(changed, math.inf)  # refused before the work
    return changed


def _about_logs(campaign: Campaign) -> tuple[tuple[str, ...], bool]:
    """Which logs a plan would go by, in sentences; and whether there is something to plan."""
    first = before_planning(campaign)
    if first:
        return (first,), False
    k = campaign.round
    rows = campaign.ledger.observations(campaign.name)[k - 1].rows
    return (f"Planned for round {k} on the {rows:,} rows of round {k - 1}.",), True


def _one_ratio(explore: ExploreSettings) -> float | None:
    """The floor where it is one share of pi0's value; None else."""
    return explore.promises[0].floor.ratio if len(explore.promises) == 1 else None


def _floors(explore: ExploreSettings) -> str:
    return "; ".join(f"{promise.name} {promise.floor}" for promise in explore.promises)


def _number(text: str, what: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"{what} must be a number", found=repr(text[:40])) from None
