"""What serves this minute: the monitor, the live values, and what the present epoch has shown."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime

from depsue.pages.drawing import Limits
from depsue.serving.service import Service


@dataclass(frozen=True)
class Test:
    """One test of the monitor; `share` is how far it has come on the way to a stop."""

    name: str
    level: str
    words: str
    share: float | None


@dataclass(frozen=True)
class Moment:
    """The live values at one time.

    Args:
        at: UTC.
        decisions: of the policy, so far, in the present epoch.
        policy, pi0: (mean, lower, upper); pi0's from the holdout.
        novelty: share of the policy's decisions that showed a new item.
        margin: earned above the floor, an estimate.
    """

    at: str
    decisions: int
    policy: Limits
    pi0: Limits | None
    novelty: float
    margin: float | None


@dataclass(frozen=True)
class Event:
    """The monitor began to watch; the policy was stopped or resumed."""

    at: str
    kind: str
    round: int
    reason: str
    by: str


@dataclass(frozen=True)
class Now:
    """One campaign, as this server serves it now.

    Args:
        level: healthy, watch or stopped.
        stopped: why pi0 decides in place of the policy; "" if it does not.
        round, what, novelty: of the policy.
        holdout: share of traffic that stays on pi0.
        wait: seconds after which a decision counts.
        r_max: the largest reward.
        floor: of the first promise, as far as it is known: from pi0's first logs where it is a
            share.
        tests: of the monitor.
        moments: of the present epoch, oldest first.
        events: of the campaign, newest first.
        troubles: what else somebody should know, in sentences.
    """

    level: str
    stopped: str
    round: int
    what: str
    novelty: float
    holdout: float
    wait: float
    r_max: float
    floor: float | None
    tests: tuple[Test, ...]
    moments: tuple[Moment, ...]
    events: tuple[Event, ...]
    troubles: tuple[str, ...]

    @property
    def last(self) -> Moment | None:
        """The newest moment."""
        return self.moments[-1] if self.moments else None


def now_of(service: Service, floor: float | None) -> Now:
    """What serves this minute.

    Args:
        service: what serves.
        floor: of the first promise.
    """
    live, watching = service.served, service.watching
    points = [] if watching is None else list(watching.points)
    return Now(
        level=service.state,
        stopped=service.stopped,
        round=live.round,
        what=live.what,
        novelty=live.novelty,
        holdout=service.settings.holdout,
        wait=service.settings.wait,
        r_max=live.mapping.r_max,
        floor=floor,
        tests=tuple(
            Test(one.name, one.state, one.words.removeprefix(f"{one.name}: "), one.share)
            for one in service.findings()
        ),
        moments=tuple(
            Moment(utc(one.at, 1000), one.n, one.policy, one.pi0, one.novelty, _told(one.margin))
            for one in points
        ),
        events=tuple(
            Event(utc(one.at), one.kind, one.round, one.reason, one.by)
            for one in reversed(service.events())
        ),
        troubles=tuple(_troubles(service)),
    )


def utc(at: float, per_second: int = 1) -> str:
    """A time as text, to the second, or to a thousandth of it."""
    text = f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S.%f}"
    return text[:-7] if per_second == 1 else text[:-3]


def _troubles(service: Service) -> list[str]:
    found = []
    if service.worker.gone:
        does = "pi0 decides, into a spool on this machine"
        if service.settings.on_gone == "stop":
            does = "decisions are refused"
        found.append(f"The store of decisions is gone ({service.worker.gone}); {does}.")
    if service.spool.waiting:
        found.append("Decisions in the spool wait to be written to the store.")
    if service.problem:
        found.append(f"A newer policy is not served: {service.problem}")
    return found


def _told(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else value
