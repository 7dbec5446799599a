"""What serves this minute, in sentences, from the service's status and the rows that were served.

Every sentence here is made from one of two records: `ServiceStatus`, which repeats the answer that
decisions are drawn by, and the `RoundAccount` of what was served. Nothing is said of a policy
because it is deployed: a policy that is deployed may be stopped, or not watched.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from depsue.campaigns.exposure import Exposure
from depsue.pages.words import percent, utc
from depsue.plural import counted, plural
from depsue.promises import Promise
from depsue.serving.account import RecentDecisions, RoundAccount
from depsue.serving.monitor import MonitorState
from depsue.serving.service import Service, ServiceStatus
from depsue.serving.store import StoreGone
from depsue.serving.traffic import RampStatus

MOST_ITEMS = 500
"""New items that a page lists: those shown most."""


@dataclass(frozen=True)
class LiveValue:
    """The account of the round at one time.

    Args:
        at: UTC.
        decisions: of the round that have closed, whoever decided.
        policy, pi0: (mean, lower, upper) of learn and select rows; pi0's from the holdout; None
            before there is one, and where no reward may be shown.
        recent: the mean of the policy's newest learn and select rows.
        novelty: share of the newest decisions, whoever made them, that showed a new item.
        margin: earned above the floor in the round, an estimate.
    """

    at: str
    decisions: int
    policy: tuple[float, float, float] | None
    pi0: tuple[float, float, float] | None
    recent: float | None
    novelty: float
    margin: float | None


@dataclass(frozen=True)
class LiveEvent:
    """The monitor began to watch; the policy was stopped or resumed."""

    at: str
    kind: str
    round: int
    reason: str
    by: str


@dataclass(frozen=True)
class Live:
    """One campaign, as this server serves it now.

    Args:
        status: of the service; `GET /v1/status` is the same record.
        verdict: who decides now, since when, and why.
        decided: who made the newest decisions, and how many of them showed a new item.
        recent: the same as counts; None while the store cannot be read.
        asks: what the state asks of a reader.
        traffic: which share of it is on the policy, since when, and where a ramp stands.
        troubles: what else somebody should know, each with what to do, in sentences.
        rewards: whose rewards the figures show, and why not all, in sentences.
        floor: the least mean reward of the first promise, as far as it is known.
        floor_is: what that is, in words.
        wait: seconds after which a decision counts.
        r_max: the largest reward.
        values: of the round so far, oldest first.
        events: of the campaign, newest first.
        events_unread: why they are not all known yet; "" once they are.
    """

    status: ServiceStatus
    verdict: str
    decided: str
    recent: RecentDecisions | None
    asks: str
    traffic: str
    troubles: tuple[str, ...]
    rewards: str
    floor: float | None
    floor_is: str
    wait: float
    r_max: float
    values: tuple[LiveValue, ...]
    events: tuple[LiveEvent, ...]
    events_unread: str

    @property
    def last(self) -> LiveValue | None:
        """The newest values."""
        return self.values[-1] if self.values else None


def live_of(service: Service) -> Live:
    """What serves this minute."""
    status, account, settings = service.status, service.account, service.settings
    recent = recent_of(service)
    first = service.campaign.settings.explore.promises[0]
    floor = status.served.promises[0].floor if status.served.promises else None
    return Live(
        status=status,
        verdict=verdict(status),
        decided=decided(recent),
        recent=recent,
        asks=asks(status),
        traffic=traffic(status, service.traffic.unread),
        troubles=tuple(_troubles(status, account, recent, settings.on_gone)),
        rewards=_rewards(account),
        floor=floor,
        floor_is=_floor_is(first),
        wait=settings.wait,
        r_max=service.served.mapping.r_max,
        values=tuple(
            LiveValue(
                at=utc(point.at, thousandths=True),
                decisions=point.served,
                policy=point.policy,
                pi0=point.pi0,
                recent=point.recent,
                novelty=point.novelty,
                margin=point.margin,
            )
            for point in list(account.points)
        ),
        events=tuple(
            LiveEvent(utc(event.at), event.kind, event.round, event.reason, event.by)
            for event in reversed(service.events)
        ),
        events_unread=service.events_unread,
    )


def recent_of(service: Service) -> RecentDecisions | None:
    """The newest decisions; None while the store cannot be read."""
    try:
        return service.recent()
    except StoreGone:
        return None


def verdict(status: ServiceStatus) -> str:
    """Who decides now, since when, and why: the sentence on top of every page."""
    decides = status.decides
    since = "" if status.since is None else f" since {utc(status.since)} UTC"
    current = "Your current policy (pi0)"
    if decides.who == "nobody":
        return f"Nobody decides{since}: requests are refused, because {decides.why}."
    if decides.who == "policy":
        policy = f"The certified policy of round {status.made_in}"
        if status.what == "certain":
            policy = f"{current} with a few new items, of round {status.made_in},"
        return f"{policy} decides{since}."
    if status.stops:
        stop = status.stops[0]
        more = len(status.stops) - 1
        if status.what == "pi0":
            return (
                f"{current} decides: it is what is deployed. A stop by {stop.by} stands since "
                f"{utc(stop.at)} UTC: {stop.reason.rstrip('.')}."
            )
        others = f", and {counted(more, 'more stop stands', 'more stops stand')}" if more else ""
        return (
            f"{current} decides{since}: {stop.by} stopped the new policy{others}. Why: "
            f"{stop.reason.rstrip('.')}."
        )
    if decides.fallback:
        why = decides.why.removeprefix("not watched: ")
        return f"{current} decides{since} in place of the new one: {why.rstrip('.')}."
    return f"{current} decides{since}: {decides.why}."


def decided(recent: RecentDecisions | None) -> str:
    """Who made the newest decisions, and how many of them showed a new item."""
    if recent is None:
        return "The store cannot be read now, so nobody can say who made the last decisions."
    return str(recent)


def traffic(status: ServiceStatus, unread: str = "") -> str:
    """Which share of traffic is on the policy, and where a ramp stands.

    Args:
        status: of the service.
        unread: why the share is not known; "" once it is.
    """
    if status.what == "pi0":
        return "All of the traffic is on your current policy (pi0)."
    if unread:
        return f"None of the traffic is on the policy: {unread}."
    rest = "" if status.share == 1 else f", {percent(status.holdout)} on pi0 (the holdout)"
    words = f"{percent(status.share)} of the traffic is on the policy{rest}."
    if status.share == 0:
        words = "The policy is a shadow: pi0 decides, and what the policy would have shown is kept."
    if status.decides.fallback or status.decides.who == "nobody":
        now = "All of the traffic is on your current policy (pi0)."
        if status.decides.who == "nobody":
            now = "All requests are refused."
        later = f"it has {percent(status.share)} of the traffic again{rest}"
        if status.share == 0:
            later = "it is a shadow: what it would have shown is kept"
        words = f"{now} Once the new policy decides again, {later}."
    if status.shares:
        last = status.shares[-1]
        words += f" Since {utc(last.at)} UTC, by {last.by}: {last.reason.rstrip('.')}."
    if status.ramp is not None:
        words += f" {ramp_words(status.ramp)}"
    return words


def ramp_words(ramp: RampStatus) -> str:
    """Where a ramp stands, in a sentence."""
    then = ramp.ended
    if ramp.next is not None:
        then = f"it rises at {utc(ramp.next)} UTC if the policy is healthy then"
    return f"Ramp {', '.join(map(percent, ramp.shares))}: {then}."


def asks(status: ServiceStatus) -> str:
    """What the state asks of a reader."""
    state = status.state
    if status.decides.who == "nobody":
        return "Requests are answered again by themselves as soon as decisions can be stored."
    if status.what == "pi0" and state in (MonitorState.WAITING, MonitorState.HEALTHY):
        return "No new policy decides, so there is no promise to watch."
    if status.share == 0 and state is MonitorState.WAITING:
        return "A shadow shows nothing, so there is nothing to judge. Put a share of traffic on it."
    if state is MonitorState.WAITING:
        return (
            f"The monitor has judged {counted(status.monitor.judged, 'decision')} of the policy "
            "and its holdout so far. That is too few to say how the policy does. Wait."
        )
    if state is MonitorState.HEALTHY:
        return "There is no evidence of a breach, and no mean below its floor."
    if state is MonitorState.WATCH:
        goes_on = "The new policy goes on deciding."
        if status.decides.who != "policy":
            goes_on = "The new policy does not decide now."
        return f"Look at this: {status.reason}. {goes_on}"
    if state is MonitorState.STOPPED and status.what == "pi0":
        return (
            "Your current policy (pi0) is what is deployed, so there is no new policy to resume. A "
            "stop that stands would hold for the next one, too: resume before you deploy it."
        )
    if state is MonitorState.STOPPED:
        return (
            "The current policy decides until somebody resumes the new one. Find the cause first: "
            "the monitor begins anew after a resumption, with half the share of delta."
        )
    return (
        "Exploration needs a monitor that looks. The new policy decides again by itself as soon as "
        "the monitor has looked; the cause stands above."
    )


def _floor_is(promise: Promise) -> str:
    """What the floor of a promise is, in words."""
    ratio = promise.floor.ratio
    if ratio is None:
        return "as declared"
    return f"{percent(ratio)} of the mean reward in the first logs of the current policy (pi0)"


def _rewards(account: RoundAccount) -> str:
    """Whose rewards are shown, and why not all."""
    served, n = account.served.round, account.counts.all
    if served == 0:
        return "No round is deployed yet, so there is no reward of a round to show."
    why = (
        "The other rows are kept for the next certificate, so no page shows their rewards before "
        "its verdict. The monitor judges all rows, and shows its evidence instead of means."
    )
    if account.folds is None:
        return (
            f"No reward of round {served} is shown while it runs: an older version deployed it, so "
            "which rows certify the next policy is drawn only when it is observed. Counts, novelty "
            "and evidence are of all decisions."
        )
    return (
        f"Rewards are those of the learn and select rows of round {served} "
        f"({int(account.read.sum()):,} of {counted(n, 'closed decision')}). {why}"
    )


def _troubles(
    status: ServiceStatus, account: RoundAccount, recent: RecentDecisions | None, on_gone: str
) -> Iterator[str]:
    """What somebody should know beside the state, each with what to do."""
    monitor, store = status.monitor, status.store
    if status.not_ready and status.decides.who != "nobody":
        yield f"No decision can be made: {status.not_ready}"
    if store.gone:
        does = "The current policy (pi0) decides, and decisions go to the journal on this machine."
        does = "Decisions are refused." if on_gone == "stop" else does
        yield (
            f"The store of decisions is gone: {store.gone}. {does} Bring the store back; the "
            "service then goes on by itself."
        )
    elif recent is None:
        yield (
            "The store of decisions cannot be read, so the figures below are old. Bring it back; "
            "the service then goes on by itself."
        )
    if store.journalled:
        waits = counted(store.journalled, "decision or reward waits", "decisions and rewards wait")
        yield (
            f"{waits} in the journal on this machine to be written to the store. That happens by "
            "itself once the store answers. Do not delete the campaign's folder until then."
        )
    if store.damaged:
        verb = plural(store.damaged, "was", "were")
        yield (
            f"{counted(store.damaged, 'line')} of the journal could not be read and {verb} set "
            "aside; the service's log tells where. Check the disk of this machine."
        )
    if store.twins:
        verb = plural(store.twins, "was", "were")
        yield (
            f"{counted(store.twins, 'key')} {verb} decided twice, in the store and while it was "
            "gone. The later decisions (twins) are no evidence and no rows of the next logs, and "
            "the margin is charged as if they had earned nothing. There is nothing to do."
        )
    if monitor.set_aside:
        verb = plural(monitor.set_aside, "is", "are")
        yield (
            f"{counted(monitor.set_aside, 'decision')} {verb} stamped more than a minute ahead of "
            "this machine's clock and set aside: no test uses them. Set the clocks of the machines "
            "that serve."
        )
    if monitor.unusable:
        verb = plural(monitor.unusable, "lies", "lie")
        yield (
            f"{counted(monitor.unusable, 'reward')} {verb} outside the declared range; the monitor "
            "takes each at its worst. Send rewards in the units of the logs. With --combine sum, "
            "several rewards of a decision add up; the default reward must lie in the range, too."
        )
    if monitor.unjudged:
        verb = plural(monitor.unjudged, "has", "have")
        yield (
            f"{counted(monitor.unjudged, 'decision')} {verb} probabilities that no test can use. "
            "Check that the store was not edited, and that the model of pi0 answers numbers."
        )
    if monitor.mismatched:
        verb = plural(monitor.mismatched, "names", "name")
        yield (
            f"{counted(monitor.mismatched, 'reward')} {verb} another item than was decided. Show "
            "what was decided, or the promise is about something else."
        )
    if monitor.behind:
        yield (
            f"The monitor reads what it has missed: {counted(monitor.behind, 'decision')} in its "
            "last look. The policy explores again once it has caught up."
        )
    for stop in status.stops:
        if stop.durable == "nowhere":
            yield (
                f"The stop by {stop.by} is neither in the store nor on disk, so a restart would "
                "forget it. Bring the store back, or make room on the disk, before you restart."
            )
    if status.problem:
        yield (f"A newer policy is not served: {status.problem} Restore its files, or roll back.")
    if account.read_at is None and not store.gone and recent is not None and recent.counts.all:
        yield (
            f"The figures below are being read: {counted(account.counts.all, 'decision')} so far."
        )


@dataclass(frozen=True)
class ShownItem:
    """One new item.

    Args:
        id: its own.
        shown, mean, error: in the rounds that were observed; the mean reward and its standard
            error where there are enough to say.
        shown_now: in the round that is served, whoever decided; 0 where it is not served here.
        mean_now: the mean reward of its learn and select rows; None without one.
    """

    id: str
    shown: int
    mean: float | None
    error: float | None
    shown_now: int = 0
    mean_now: float | None = None

    @property
    def together(self) -> int:
        """How often in all."""
        return self.shown + self.shown_now


@dataclass(frozen=True)
class NewItems:
    """The new items of a campaign, those shown most first.

    Args:
        items: as many as are listed.
        more: how many are not.
        shown, rows: decisions with a new item, and all, in the rounds that were observed.
        shown_now, rows_now: the same of the round that is served here, whoever decided.
    """

    items: tuple[ShownItem, ...]
    more: int
    shown: int
    rows: int
    shown_now: int
    rows_now: int


def new_items(exposure: Exposure, account: RoundAccount | None) -> NewItems:
    """The new items.

    Args:
        exposure: what the ledger knows.
        account: of the round that is served; None where the campaign is not served here.
    """
    items = {
        item.id: ShownItem(item.id, item.shown, item.mean, item.error) for item in exposure.items
    }
    shown_now = rows_now = 0
    if account is not None:
        shown, read, earned = account.shown.copy(), account.read.copy(), account.earned.copy()
        novel = np.flatnonzero(account.served.catalogue.novel)
        shown_now, rows_now = int(shown[novel].sum()), int(shown.sum())
        for place in novel.tolist():
            id, n = str(account.served.ids[place]), int(shown[place])
            before = items.get(id, ShownItem(id, 0, None, None))
            mean = float(earned[place]) / int(read[place]) if read[place] else None
            items[id] = ShownItem(id, before.shown, before.mean, before.error, n, mean)
    every = sorted(items.values(), key=lambda item: -item.together)
    unlisted = exposure.unlisted if account is None else 0
    return NewItems(
        items=tuple(every[:MOST_ITEMS]),
        more=max(len(every) - MOST_ITEMS, 0) + unlisted,
        shown=exposure.shown,
        rows=exposure.rows,
        shown_now=shown_now,
        rows_now=rows_now,
    )
