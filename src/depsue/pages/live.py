"""What serves this minute: the monitor, the live values, and the new items that were shown."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from depsue.campaigns.exposure import Exposure
from depsue.pages.words import utc
from depsue.plural import counted
from depsue.serving.monitor import MonitorFinding, MonitorRun
from depsue.serving.service import Service

MOST_ITEMS = 500
"""New items that a page lists: those shown most."""


@dataclass(frozen=True)
class LiveValue:
    """The live values at one time.

    Args:
        at: UTC.
        decisions: of the policy, since the monitor began to watch it.
        policy, pi0: (mean, lower, upper); pi0's from the holdout.
        novelty: share of the policy's decisions that showed a new item.
        margin: earned above the floor, an estimate.
    """

    at: str
    decisions: int
    policy: tuple[float, float, float]
    pi0: tuple[float, float, float] | None
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
        state, says: of the service: one of five, as a word and as pages say it.
        reason: why it is in that state.
        fallback: whether pi0 decides in place of the policy.
        stopped: why the policy was stopped; "" if it was not.
        round, what, novelty: of the policy.
        holdout: share of traffic that stays on pi0.
        wait: seconds after which a decision counts.
        r_max: the largest reward.
        floor: of the first promise, as far as it is known: from pi0's first logs where it is a
            share.
        tests: of the monitor.
        values: since the monitor began to watch this policy, oldest first.
        events: of the campaign, newest first.
        troubles: what else somebody should know, in sentences.
    """

    state: str
    says: str
    reason: str
    fallback: bool
    stopped: str
    round: int
    what: str
    novelty: float
    holdout: float
    wait: float
    r_max: float
    floor: float | None
    tests: tuple[MonitorFinding, ...]
    values: tuple[LiveValue, ...]
    events: tuple[LiveEvent, ...]
    troubles: tuple[str, ...]

    @property
    def last(self) -> LiveValue | None:
        """The newest values."""
        return self.values[-1] if self.values else None


def live_of(service: Service, floor: float | None) -> Live:
    """What serves this minute.

    Args:
        service: what serves.
        floor: of the first promise.
    """
    policy, run, status = service.served, service.monitor.run, service.status
    points = [] if run is None else list(run.points)
    return Live(
        state=status.state,
        says=status.says,
        reason=status.reason,
        fallback=status.decides.fallback,
        stopped=service.stopped,
        round=policy.round,
        what=policy.what,
        novelty=policy.novelty,
        holdout=service.settings.holdout,
        wait=service.settings.wait,
        r_max=policy.mapping.r_max,
        floor=floor,
        tests=tuple(service.monitor.findings),
        values=tuple(
            LiveValue(
                at=utc(point.at, thousandths=True),
                decisions=point.n,
                policy=point.policy,
                pi0=point.pi0,
                novelty=point.novelty,
                margin=point.margin,
            )
            for point in points
        ),
        events=tuple(
            LiveEvent(utc(event.at), event.kind, event.round, event.reason, event.by)
            for event in reversed(service.events)
        ),
        troubles=tuple(_troubles(service)),
    )


def _troubles(service: Service) -> list[str]:
    troubles = []
    if service.worker.gone:
        does = "pi0 decides, into the journal on this machine"
        if service.settings.on_gone == "stop":
            does = "decisions are refused"
        troubles.append(f"The store of decisions is gone ({service.worker.gone}); {does}.")
    store = service.status.store
    if store.journalled:
        waits = counted(store.journalled, "decision or reward", "decisions and rewards")
        troubles.append(f"{waits} in the journal wait to be written to the store.")
    if store.damaged:
        lines = counted(store.damaged, "line")
        troubles.append(f"{lines} of the journal could not be read; the log tells where.")
    if store.twins:
        twins = counted(store.twins, "key")
        troubles.append(
            f"{twins} decided twice, in the store and while it was gone: the later decisions are "
            "no evidence and are left out of the next logs."
        )
    if service.problem:
        troubles.append(f"A newer policy is not served: {service.problem}")
    return troubles


@dataclass(frozen=True)
class ShownItem:
    """One new item.

    Args:
        id: its own.
        shown, mean, error: in the rounds that were observed; the mean reward and its standard
            error where there are enough to say.
        shown_now, mean_now: by the policy that serves; 0 and None where it is not served here.
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
        shown_now, rows_now: the same of the policy that serves.
    """

    items: tuple[ShownItem, ...]
    more: int
    shown: int
    rows: int
    shown_now: int
    rows_now: int


def new_items(exposure: Exposure, run: MonitorRun | None) -> NewItems:
    """The new items.

    Args:
        exposure: what the ledger knows.
        run: of the monitor; None where the campaign is not served here.
    """
    items = {
        item.id: ShownItem(item.id, item.shown, item.mean, item.error) for item in exposure.items
    }
    shown_now = rows_now = 0
    if run is not None:
        shown, looked, earned = run.shown.copy(), run.looked.copy(), run.earned.copy()
        novel = np.flatnonzero(run.served.catalogue.novel)
        shown_now, rows_now = int(shown[novel].sum()), int(shown.sum())
        for place in novel.tolist():
            id, n = str(run.served.ids[place]), int(shown[place])
            before = items.get(id, ShownItem(id, 0, None, None))
            read = int(looked[place])
            mean = float(earned[place]) / read if read else None
            items[id] = ShownItem(id, before.shown, before.mean, before.error, n, mean)
    every = sorted(items.values(), key=lambda item: -item.together)
    unlisted = exposure.unlisted if run is None else 0
    return NewItems(
        items=tuple(every[:MOST_ITEMS]),
        more=max(len(every) - MOST_ITEMS, 0) + unlisted,
        shown=exposure.shown,
        rows=exposure.rows,
        shown_now=shown_now,
        rows_now=rows_now,
    )
