"""Stops and resumptions: why pi0 decides in place of the policy, remembered whatever happens.

A stop is written to two places: to a file beside the campaign, so that it holds although the store
is gone, and to the store's events, so that other services on the same store hold it too. Either is
enough to stop the policy again after a restart. Only a person resumes the policy, and only while
the store can record it.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Protocol

from depsue.errors import ConfigError, FileError, require
from depsue.files import write_file
from depsue.serving.served import ServedPolicy
from depsue.serving.settings import STOPPED, STOPPED_BEFORE
from depsue.serving.store import EventKind, MonitorEvent, Store, StoreGone

log = logging.getLogger(__name__)


class RecordsEvents(Protocol):
    """Records an event; a StoreGone if it cannot be done now."""

    def __call__(self, kind: EventKind, round: int, policy: str, reason: str, by: str) -> None:
        """Record it; durable on return."""


class EventLog:
    """The epochs, stops and resumptions of a campaign.

    Args:
        store: where they are read.
        record: writes one; the writer's, because it alone writes to the store.
    """

    def __init__(self, store: Store, record: RecordsEvents) -> None:
        self._store, self._record = store, record
        self.newest: list[MonitorEvent] = []
        """All events, oldest first, as they were last read."""

    def read(self) -> list[MonitorEvent]:
        """All events, oldest first; a StoreGone if they cannot be read now."""
        self.newest = self._store.events()
        return self.newest

    def add(self, kind: EventKind, served: ServedPolicy, reason: str, by: str) -> None:
        """Record an event about what serves."""
        self._record(kind, served.round, served.hash, reason, by)


class Stop(NamedTuple):
    """A stop that waits to be recorded."""

    reason: str
    by: str


class Stops:
    """Whether the policy is stopped, and why.

    Args:
        folder: of the campaign.
        events: of the campaign.
        served: says what serves now.
        before_resuming: begins a new epoch of the monitor; called once a resumption is recorded
            and before the policy decides, so that it never decides unwatched.
        alone: whether no other service uses the store.
    """

    def __init__(
        self,
        folder: Path,
        events: EventLog,
        served: Callable[[], ServedPolicy],
        before_resuming: Callable[[ServedPolicy], None],
        *,
        alone: bool,
    ) -> None:
        self._file, self._file_before = folder / STOPPED, folder / STOPPED_BEFORE
        self._events, self._served = events, served
        self._before_resuming, self._alone = before_resuming, alone
        self._reason = ""
        self._unrecorded: Stop | None = None
        # a person stops or resumes in a thread of the web server, the monitor in its own
        self._lock = threading.Lock()

    @property
    def reason(self) -> str:
        """Why pi0 decides in place of the policy; "" while the policy decides."""
        return self._reason

    def remember(self) -> None:
        """Take up a stop of before, from this machine's disk; without the store."""
        with suppress(FileNotFoundError):
            self._file_before.rename(self._file)
        if self._file.exists():
            self._reason = _reason_in(self._file)

    def remember_recorded(self) -> None:
        """Take up a stop of before, from the store."""
        try:
            self._reason = self._reason or self._recorded()
        except StoreGone:
            return  # pi0 decides until it is back, and then `settle` reads it

    def stop(self, reason: str, by: str) -> None:
        """Let pi0 decide from now on, also after a restart, until a person resumes the policy."""
        with self._lock:
            if self._reason:
                return
            self._reason = reason  # first: decisions must not wait for a disk
            self._unrecorded = Stop(reason, by)
            facts = {"reason": reason, "by": by, "at": time.time()}
            try:
                write_file(self._file, json.dumps(facts, indent=1).encode())
            except FileError as problem:
                log.error("stop not on disk", extra={"found": problem.found})
            log.warning("policy stopped", extra={"reason": reason, "by": by})
            self._record()

    def resume(self, reason: str, by: str) -> None:
        """Let the policy decide again, watched anew."""
        with self._lock:
            require(bool(self._reason), "only a policy that was stopped resumes", found="it serves")
            self._record()
            require(
                self._unrecorded is None,
                "a resumption is recorded, and so must be the stop before it",
                found="the store is gone",
                cure="wait until it is back",
                error=StoreGone,
            )
            self._events.add("resume", self._served(), reason, by)
            self._resumed()
            log.info("policy resumed", extra={"reason": reason, "by": by})

    def settle(self) -> None:
        """Record a stop that could not be recorded; learn what other services recorded."""
        with self._lock:
            self._record()
        if self._alone or self._unrecorded is not None:
            return
        recorded = self._recorded()
        if recorded and not self._reason:
            self._reason = recorded
            log.warning("policy stopped", extra={"reason": recorded, "by": "another service"})
        elif self._reason and not recorded:
            self._resumed()
            log.info("policy resumed", extra={"by": "another service"})

    def _resumed(self) -> None:
        self._before_resuming(self._served())
        self._file.unlink(missing_ok=True)
        self._reason = ""

    def _record(self) -> None:
        if self._unrecorded is None:
            return
        try:
            self._events.add("stop", self._served(), *self._unrecorded)
            self._unrecorded = None
        except (StoreGone, ConfigError):
            return  # `settle` tries again

    def _recorded(self) -> str:
        """Why the policy is stopped, as the store has it; "" if it was resumed since."""
        changes = [event for event in self._events.read() if event.kind != "watch"]
        return changes[-1].reason if changes and changes[-1].kind == "stop" else ""


def _reason_in(file: Path) -> str:
    """The reason in a file of a stop; one that cannot be read stops the policy all the same."""
    try:
        return str(json.loads(file.read_text())["reason"]) or "stopped"
    except (OSError, ValueError, KeyError, TypeError):
        return f"{file} is there, and cannot be read"
