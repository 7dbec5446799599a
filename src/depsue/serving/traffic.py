"""The share of traffic on the policy: one knob, turned while it serves; the rest is the holdout.

The holdout shows what pi0 shows. With a share of 0 the policy is a shadow: pi0's choice is shown,
and each decision says what the policy would have shown. Every change is recorded in the store, with
time, author and reason, before it counts; the newest one counts, for all services of the store.
Each decision has the share that drew it.

A **ramp** goes through declared shares for each policy that is deployed. It begins with the first,
and rises to the next after a declared time, only while the monitor finds the policy healthy. It
ends for good with the first stop, and with the first change by a person.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from depsue.errors import is_real, require, short
from depsue.serving.schema import MonitorEvent, ShareChange
from depsue.serving.served import ServedPolicy
from depsue.serving.settings import ServingSettings
from depsue.serving.store import Store

log = logging.getLogger(__name__)
RAMP = "the ramp"
"""Who changed the share, where nobody did."""


@dataclass(frozen=True)
class RampStatus:
    """Where a ramp stands.

    Args:
        shares: all of its shares.
        step: which of them counts now, from 0.
        next: when it rises, in seconds since 1970, if the policy is healthy then; None at its end.
        ended: why it rises no more; "" if it may.
    """

    shares: tuple[float, ...]
    step: int
    next: float | None
    ended: str


class Traffic:
    """The share of traffic on the policy, as it is now.

    Args:
        settings: the share at first, and the ramp.
        store: where changes are read.
        record: has something written to the store.
        served: says what serves now.
        clock: seconds since 1970.
    """

    def __init__(
        self,
        settings: ServingSettings,
        store: Store,
        record: Callable[[Callable[[Store], None]], None],
        served: Callable[[], ServedPolicy],
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._settings, self._store, self._record = settings, store, record
        self._served, self._clock = served, clock
        self.changes: list[ShareChange] = []
        """All of the campaign, oldest first, as they were last read."""
        self.unread = "the share of traffic was not read yet"
        """Why the share is not known; "" once it is."""

    @property
    def holdout(self) -> float:
        """The share that stays on pi0."""
        if not self.changes:
            return self._settings.holdout
        return round(1 - self.changes[-1].share, 12)

    @property
    def share(self) -> float:
        """The share on the policy."""
        return self.changes[-1].share if self.changes else round(1 - self._settings.holdout, 12)

    def settle(self) -> None:
        """Read what was changed, here or by another service; a StoreGone if that cannot be."""
        self.changes = self._store.shares()
        self.unread = ""

    def change(self, share: float, reason: str, by: str) -> None:
        """Turn the knob, from the next decision on; recorded before it counts.

        Args:
            share: on the policy, in [0, 1].
            reason: in words.
            by: who.
        """
        require(
            is_real(share) and 0 <= share <= 1,
            "the share of traffic on the policy lies in [0, 1]",
            found=short(share),
            cure="0 makes a shadow of the policy, 1 leaves no holdout",
        )
        id = f"share-{secrets.token_hex(8)}"
        self._add(id, float(share), reason, by, self._served())

    def begin(self, served: ServedPolicy) -> None:
        """Read what was changed; where a ramp is declared, begin it for a policy.

        Args:
            served: what serves, or is about to.
        """
        ramp = self._settings.ramp
        self.settle()
        if not ramp or served.is_pi0:
            return
        if not any(change.id == _step(served, 0) for change in self.changes):
            self._add(_step(served, 0), ramp[0], "the ramp begins", RAMP, served)

    def rise(self, *, healthy: bool, events: Sequence[MonitorEvent]) -> None:
        """One step of the ramp up, if it is time.

        Args:
            healthy: whether the monitor finds the policy so now.
            events: epochs, stops and resumptions of the campaign.
        """
        ramp = self.ramp(events)
        if ramp is None or not healthy or ramp.next is None or self._clock() < ramp.next:
            return
        step = ramp.step + 1
        reason = f"step {step + 1} of {len(ramp.shares)}: the policy is healthy"
        served = self._served()
        self._add(_step(served, step), ramp.shares[step], reason, RAMP, served)

    def ramp(self, events: Sequence[MonitorEvent]) -> RampStatus | None:
        """Where the ramp stands; None where none is declared, or none has begun.

        Args:
            events: as for `rise`.
        """
        served, shares = self._served(), self._settings.ramp
        steps = {_step(served, k): k for k in range(len(shares))}
        own = [change for change in self.changes if change.id in steps]
        if not own or served.is_pi0:
            return None
        step, newest, ended = steps[own[-1].id], own[-1], ""
        began = own[0].at
        mine = (served.round, served.hash), (0, "")  # a line that cannot be read names no policy
        # clocks of services differ, so a stop of this policy counts unless it was lifted before
        lifted = {
            id for event in events if event.kind == "resume" and event.at < began
            for id in event.stops
        }  # fmt: skip
        stopped = any(
            event.kind == "stop"
            and (
                event.at >= began
                or ((event.round, event.policy) in mine and event.id not in lifted)
            )
            for event in events
        )
        if stopped:
            ended = "the policy was stopped: a person turns the share from here on"
        elif self.changes[-1].id not in steps:
            ended = f"{self.changes[-1].by} turned the share by hand"
        elif step + 1 == len(shares):
            ended = "it is at its end"
        due = None if ended else newest.at + self._settings.every
        return RampStatus(shares, step, due, ended)

    def _add(self, id: str, share: float, reason: str, by: str, served: ServedPolicy) -> None:
        change = ShareChange(
            id=id,
            at=self._clock(),
            round=served.round,
            policy=served.hash,
            share=share,
            reason=reason[:2000],
            by=by,
        )
        self._record(lambda store: store.add_share(change))
        self.settle()
        log.info("share", extra={"share": share, "reason": reason, "by": by})


def _step(served: ServedPolicy, step: int) -> str:
    """The id of a step: two services that rise at once write the same one."""
    return f"ramp-{served.round}-{served.hash[:16]}-{step}"
