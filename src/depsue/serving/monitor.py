"""The safety monitor: does the served policy earn what its round needs?

`Monitor` watches what serves, epoch by epoch. An epoch begins when a policy is deployed and when a
stopped policy is resumed. `MonitorRun` (`depsue.serving.epoch`) is the work of one epoch.

All that a run knows comes from the store. After a restart the same epoch is read again from its
first decision, so a crash neither loses evidence nor spends delta a second time. Several services
that watch one store agree on the epoch: its id follows from what was recorded before it.
"""

from __future__ import annotations

import hashlib
import logging
import math
import threading
import time
from collections.abc import Callable

import msgspec
import numpy as np

from depsue import defaults
from depsue.campaigns import Campaign
from depsue.campaigns.records import RoundLength
from depsue.data.logs import LoggedData
from depsue.errors import DepsueError, short
from depsue.serving.epoch import (
    ContextDrift,
    MonitorEpoch,
    MonitorFinding,
    MonitorRun,
    MonitorState,
)
from depsue.serving.schema import MonitorEvent
from depsue.serving.served import ServedPolicy
from depsue.serving.settings import ServingSettings
from depsue.serving.stops import EventLog
from depsue.serving.store import Store

log = logging.getLogger(__name__)


class Permit:
    """Leave to explore, which runs out.

    A completed look of the monitor extends it. The draw asks for it before every batch, on a clock
    that only goes forward. So whatever keeps the monitor from looking (a store that cannot be read,
    an error, too much to read, a thread that hangs) ends the exploration by itself.

    Args:
        length: seconds from the beginning of a completed look.
        ticks: a monotonic clock, in seconds.
    """

    def __init__(self, length: float, ticks: Callable[[], float]) -> None:
        self._length, self._ticks = length, ticks
        self._until = -math.inf
        self._why = "the monitor has not looked yet"

    def extend(self, since: float) -> None:
        """A look that began at `since`, by the same clock, was completed."""
        self._until, self._why = since + self._length, ""

    def end(self, why: str) -> None:
        """Take it back at once."""
        self._until, self._why = -math.inf, why

    def note(self, why: str) -> None:
        """A look was not completed; the permit runs on, and if it runs out, this is why."""
        self._why = why

    @property
    def left(self) -> float:
        """Seconds until it runs out; 0 without one."""
        return max(self._until - self._ticks(), 0.0)

    @property
    def refusal(self) -> str:
        """Why the policy must not explore; "" while it may."""
        if self.left > 0:
            return ""
        return self._why or f"no look of the monitor was completed within {self._length:g} s"


class Monitor:
    """Watches what serves.

    Args:
        campaign: its promises, its rounds, and the logs that contexts are compared with.
        settings: waiting time, rule, default, holdout, delta, permit and backlog.
        store: where decisions are read.
        events: where epochs are recorded.
        clock: seconds since 1970, to say when an epoch began.
        ticks: a monotonic clock, in seconds; the permit goes by it.
    """

    def __init__(
        self,
        campaign: Campaign,
        settings: ServingSettings,
        store: Store,
        events: EventLog,
        *,
        clock: Callable[[], float] = time.time,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        self._campaign, self._settings, self._store = campaign, settings, store
        self._events, self._clock, self._ticks = events, clock, ticks
        self._epoch: MonitorEpoch | None = None
        self.permit = Permit(settings.permit, ticks)
        self.behind = 0
        """Decisions that the last look took in without coming to an end; 0 if it came to one."""
        self.run: MonitorRun | None = None
        """Of the present epoch; None before the first look."""

    def refusal(self, served: ServedPolicy) -> str:
        """Why a policy must not explore now; "" while it may."""
        epoch = self._epoch
        if epoch is None or epoch.served is not served:
            return "the monitor does not watch this policy yet"
        return self.permit.refusal

    def begin(self, served: ServedPolicy, *, stopped: bool) -> None:
        """Take up the present epoch of what serves, or begin one; before its first decision.

        Args:
            served: what serves.
            stopped: whether a stop stands; then an epoch is taken up, and none begins.
        """
        events = self._of_round(served)
        earlier = [event for event in events if event.kind != "stop"]
        newest = earlier[-1] if earlier else None
        is_new = newest is None or newest.kind == "resume" or newest.policy != served.hash
        if is_new and not stopped:
            number = 1 + sum(event.kind == "watch" for event in earlier)
            self._events.add([self._first_event(served, newest, f"epoch {number}")])
            events = self._of_round(served)
        epochs = [event for event in events if event.kind == "watch"]
        own = [event for event in epochs if event.policy == served.hash]
        if not own:
            return
        last = own[-1]
        epoch = self._epoch
        if epoch is None or epoch.served is not served or epoch.id != last.id:
            self.permit.end("the monitor has not looked since this policy began to serve")
            self._epoch = MonitorEpoch(served, epochs.index(last) + 1, last.after, last.id)

    def _of_round(self, served: ServedPolicy) -> list[MonitorEvent]:
        return [event for event in self._events.read() if event.round == served.round]

    def _first_event(
        self, served: ServedPolicy, before: MonitorEvent | None, words: str
    ) -> MonitorEvent:
        """Of a new epoch; two services that begin it at once write the same one."""
        chain = [served.round, served.hash, None if before is None else before.id]
        digest = hashlib.sha256(msgspec.json.encode(chain)).hexdigest()[:16]
        return MonitorEvent(
            id=f"watch-{digest}",
            at=self._clock(),
            kind="watch",
            round=served.round,
            policy=served.hash,
            reason=words,
            by="depsue",
        )

    def look(
        self, served: ServedPolicy, now: float, *, stopped: bool, ending: threading.Event
    ) -> list[MonitorFinding]:
        """Take in what has closed; the findings for which the policy must stop.

        A look that came to its end extends the permit. One that takes in as many decisions as the
        declared backlog without coming to an end takes the permit back; the next look goes on.

        Args:
            served: what serves.
            now: seconds since 1970.
            stopped: whether it has stopped already; then there is no hurry to say so.
            ending: set when the service ends, however much is left to read.
        """
        began = self._ticks()
        try:
            run = self._run_of(served, stopped=stopped)
            if run is None:
                return []
            complete = self._taken_in(run, now, stopped=stopped, ending=ending)
        except Exception as problem:
            self.permit.note(f"the monitor cannot look: {short(str(problem), 300)}")
            raise
        if stopped or run.grave:
            self.permit.end("the policy was stopped")
        elif not complete:
            self.permit.end(f"more than {self._settings.backlog:,} decisions wait to be judged")
        elif run.blind:
            self.permit.end(run.blind)
        else:
            self.permit.extend(began)
        return run.grave

    def _run_of(self, served: ServedPolicy, *, stopped: bool) -> MonitorRun | None:
        self.begin(served, stopped=stopped)  # another service may have begun another epoch
        epoch = self._epoch
        if epoch is None or epoch.served is not served:
            return None
        if self.run is None or self.run.epoch is not epoch:
            self.run = self._begun(epoch)
        return self.run

    def _taken_in(
        self, run: MonitorRun, now: float, *, stopped: bool, ending: threading.Event
    ) -> bool:
        """Take in what has closed; whether that is all."""
        taken = 0
        while count := run.step(self._store, now):
            taken += count
            if run.grave and not stopped:
                break  # the rest can wait until pi0 decides
            if taken >= self._settings.backlog or ending.is_set():
                self.behind = taken
                return False
        self.behind = 0
        return True

    @property
    def state(self) -> MonitorState:
        """The worst state of any test."""
        return MonitorState.WAITING if self.run is None else self.run.state

    @property
    def findings(self) -> list[MonitorFinding]:
        """Every test, as it stands."""
        return [] if self.run is None else self.run.findings

    def _begun(self, epoch: MonitorEpoch) -> MonitorRun:
        logs = self._logs(epoch.served)
        return MonitorRun(
            epoch,
            self._settings,
            tuple(self._campaign.settings.explore.promises),
            self._campaign.rounds,
            length=self._length(epoch.served, logs),
            unit_rows=self._campaign.settings.explore.units or "all rows",
            drift=None if logs is None else self._drift(logs),
            leave_out=self._events.set_aside,
        )

    def _length(self, served: ServedPolicy, logs: LoggedData | None) -> int:
        """Decisions of the round, as declared; else about as many as the logs before it have."""
        declared = RoundLength.of(self._campaign.deployed(served.round))
        if declared is not None and declared.decisions is not None:
            return declared.decisions
        return defaults.WATCHED if logs is None else len(logs)

    def _logs(self, served: ServedPolicy) -> LoggedData | None:
        """That the policy was certified on; None where they cannot be read."""
        try:
            return self._campaign.logs(max(served.round - 1, 0))
        except (DepsueError, OSError) as problem:
            log.warning("no reference for contexts", extra={"found": short(str(problem))})
            return None

    @staticmethod
    def _drift(logs: LoggedData) -> ContextDrift:
        weight = np.bincount(logs.context, minlength=len(logs.contexts)) / len(logs)
        x = np.asarray(logs.contexts, dtype=np.float64)
        mean = weight @ x
        deviation = np.sqrt(np.maximum(weight @ x**2 - mean**2, 0.0))
        return ContextDrift(mean, deviation, len(logs))
