"""Stops and resumes: two sets that only grow, and from which it follows whether pi0 must decide.

Every stop has an id. A resume names the ids of the stops that its author saw. Exploration is
stopped while there is a stop that no resume names. So neither order nor clock matters, nor how
often something is recorded: what is known here, in the store and on this machine's disk is joined
(a union), and a union never turns a stop into a resume.

**Where they are.** In the store, as events, so that every service learns of them; and in a file
beside the campaign, one line each, synced, so that a stop holds although the store is gone. A stop
is acknowledged once it is in one of the two. If neither can be written, it holds in this process,
and the answer says that it is not durable. `Stops.settle` copies what one of the places lacks.

**At the start** both are read before the first decision. Until both could be read, pi0 decides. A
line of the file that cannot be read counts as a stop.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Protocol

from depsue import codec
from depsue.errors import DepsueError, FileError, require, short
from depsue.files import append_synced, sync_folder
from depsue.serving.schema import MonitorEvent
from depsue.serving.served import ServedPolicy
from depsue.serving.settings import STOPPED, STOPPED_BEFORE, STOPS
from depsue.serving.store import Store, StoreGone

log = logging.getLogger(__name__)
Place = Literal["store", "disk", "nowhere"]
"""Where a stop is durable."""


class HoldsEvents(Protocol):
    """Where all services of a campaign find its stops and resumes."""

    def read(self) -> list[MonitorEvent]:
        """All events, oldest first; a StoreGone if they cannot be read now."""

    def add(self, events: Sequence[MonitorEvent]) -> None:
        """Record events; those whose ids are known stay as they are. Durable on return."""


class EventLog:
    """The epochs, stops and resumes of a campaign, in its store.

    Args:
        store: where they are read.
        record: has something written to the store; the writer's, because it alone writes.
    """

    def __init__(self, store: Store, record: Callable[[Callable[[Store], None]], None]) -> None:
        self._store, self._record = store, record
        self.newest: list[MonitorEvent] = []
        """All events, oldest first, as they were last read."""

    def read(self) -> list[MonitorEvent]:
        """All events, oldest first; a StoreGone if they cannot be read now."""
        self.newest = self._store.events()
        return self.newest

    def add(self, events: Sequence[MonitorEvent]) -> None:
        """Record events; those whose ids are known stay as they are. Durable on return."""
        self._record(lambda store: store.add_events(events))

    def set_aside(self, seqs: Sequence[int]) -> None:
        """Record decisions that the monitor leaves out; durable on return."""
        self._record(lambda store: store.set_aside(seqs))


@dataclass(frozen=True)
class StopStatus:
    """A stop that no resume has named.

    Args:
        id: a resume names it.
        at: when, in seconds since 1970.
        reason: in words.
        by: who stopped the policy.
        durable: where it will be found after a restart: "store", "disk", or "nowhere".
    """

    id: str
    at: float
    reason: str
    by: str
    durable: Place


class StopSet:
    """Stops and resumes: it grows, and knows which stops stand.

    What one place has as a stop and another as a resume is a stop: one of the two was changed.

    Args:
        events: stops and resumes, in any order, however often; others are left out.
    """

    def __init__(self, events: Iterable[MonitorEvent] = ()) -> None:
        self.events: dict[str, MonitorEvent] = {}
        for event in events:
            known = self.events.get(event.id)
            if event.kind == "stop" or (event.kind == "resume" and known is None):
                self.events[event.id] = event
        named = {id for event in self.events.values() for id in event.stops}
        self.stops = {event.id for event in self.events.values() if event.kind == "stop"}
        self.standing = tuple(
            sorted(
                (self.events[id] for id in self.stops - named),
                key=lambda event: (event.at, event.id),
            )
        )

    def joined(self, events: Iterable[MonitorEvent]) -> StopSet:
        """The union; what is known stays as it is."""
        return StopSet([*events, *self.events.values()])

    def missing_from(self, ids: Iterable[str]) -> list[MonitorEvent]:
        """What is here and not among the ids; stops first."""
        missing = [event for id, event in self.events.items() if id not in set(ids)]
        return sorted(missing, key=lambda event: event.kind != "stop")


class StopFile:
    """Stops and resumes on this machine's disk, a line each.

    Several services may append to one file: each line stands between two line breaks, so that half
    a line of a machine that lost its power spoils no other. Half a line on a full disk is taken
    back: it would count as a stop that nobody made.

    Args:
        folder: of the campaign.
    """

    def __init__(self, folder: Path) -> None:
        self._path, self._before = folder / STOPS, (folder / STOPPED, folder / STOPPED_BEFORE)
        self._size: int | None = None

    def read(self) -> list[MonitorEvent]:
        """All of them; a FileError if the file is there and cannot be read."""
        text = _bytes(self._path) or b""
        lines = text.split(b"\n")
        if self._size is not None:
            lines = lines[:-1]  # another service may be about to write the last one
        self._size = len(text)
        return [_event(line) for line in lines if line.strip()]

    def read_before(self) -> list[MonitorEvent]:
        """Stops in the files of earlier versions: a stop of before stays a stop."""
        texts = [(path, _bytes(path)) for path in self._before]
        return [_stop_before(path, text) for path, text in texts if text is not None]

    def remove_before(self) -> None:
        """Forget the files of earlier versions, once their stops are in this one."""
        for path in self._before:
            path.unlink(missing_ok=True)

    @property
    def has_changed(self) -> bool:
        """Whether it is of another length than when it was read."""
        try:
            return self._path.stat().st_size != self._size
        except OSError:
            return self._size != 0

    def add(self, events: Sequence[MonitorEvent]) -> None:
        """Append events, synced; a FileError if that cannot be done."""
        lines = [codec.encode(replace(event, seq=0, after=0)).encode() for event in events]
        try:
            content = b"".join(b"\n" + line + b"\n" for line in lines)
            append_synced(self._path, content, private=True)
            sync_folder(self._path.parent)
        except OSError as problem:
            raise FileError(
                "a stop is written to disk",
                found=f"{self._path}: {problem.strerror or problem}",
                cure="make room on the disk, or make the folder writable",
            ) from problem


class Stops:
    """Whether the policy is stopped, and why.

    Args:
        file: on this machine's disk.
        events: of the campaign, in the store.
        served: says what serves now.
        clock: seconds since 1970; only to say when.
    """

    def __init__(
        self,
        file: StopFile,
        events: HoldsEvents,
        served: Callable[[], ServedPolicy],
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._file, self._events, self._served, self._clock = file, events, served, clock
        self._known = StopSet()
        self._on_disk: set[str] = set()
        self._in_store: set[str] = set()
        self._unread = {"disk": "not read yet", "store": "not read yet"}
        # a person stops or resumes in a thread of the web server, the monitor in its own
        self._lock = threading.RLock()

    @property
    def standing(self) -> list[StopStatus]:
        """Stops that no resume has named, oldest first."""
        return [
            StopStatus(event.id, event.at, event.reason, event.by, self._place(event.id))
            for event in self._known.standing
        ]

    @property
    def reason(self) -> str:
        """Why pi0 decides in place of the policy; "" if nothing stops it."""
        return "; ".join(event.reason or "stopped" for event in self._known.standing)

    @property
    def unread(self) -> str:
        """Why the stops of before are not known yet; "" once they are."""
        if not self._unread:
            return ""
        why = "; ".join(f"{place}: {problem}" for place, problem in self._unread.items())
        return f"the stops of before cannot be read ({why})"

    def stop(self, reason: str, by: str, *, id: str | None = None) -> StopStatus:
        """Let pi0 decide from now on, also after a restart, until a resume names this stop.

        Args:
            reason: in words.
            by: who.
            id: of a stop that several services may raise for one cause; None makes one.
        """
        served = self._served()
        event = MonitorEvent(
            id=f"stop-{secrets.token_hex(8)}" if id is None else id,
            at=self._clock(),
            kind="stop",
            round=served.round,
            policy=served.hash,
            reason=reason[:2000],
            by=by,
        )
        with self._lock:
            new = event.id not in self._known.stops
            self._known = self._known.joined([event])  # first: decisions wait for no disk
        if new:
            log.warning("policy stopped", extra={"stop": event.id, "reason": reason, "by": by})
        place = self._save(self._known.events[event.id])
        return StopStatus(event.id, event.at, event.reason, event.by, place)

    def resume(self, stops: Sequence[str], reason: str, by: str) -> None:
        """Name stops; the policy decides again once none is left, watched anew.

        Args:
            stops: ids that the author saw.
            reason: in words.
            by: who.
        """
        require(
            bool(stops),
            "a resume names the stops that its author saw",
            found="no stop is named",
            cure='send "stops": [their ids]; GET /v1/status lists the stops that stand',
        )
        with suppress(DepsueError):
            self.settle()  # another service may have stopped the policy just now
        unknown = sorted(set(stops) - self._known.stops)
        require(
            not unknown,
            "a resume names stops that are known here",
            found=short(unknown),
            cure="GET /v1/status lists the stops that stand",
        )
        if not {event.id for event in self._known.standing} & set(stops):
            return  # a repeated request: its first one did it
        served = self._served()
        event = MonitorEvent(
            id=f"resume-{secrets.token_hex(8)}",
            at=self._clock(),
            kind="resume",
            round=served.round,
            policy=served.hash,
            reason=reason[:2000],
            by=by,
            stops=tuple(sorted(set(stops))),
        )
        require(
            self._save(event) != "nowhere",
            "a resume is recorded before it counts",
            found="neither the store nor the disk of this machine takes it",
            cure="try again when one of them does; GET /v1/status says whether it counts",
            error=StoreGone,
        )
        with self._lock:
            self._known = self._known.joined([event])
        log.info("resume", extra={"stops": list(event.stops), "reason": reason, "by": by})

    def settle(self) -> None:
        """Read the store and the disk, and copy to each what it lacks; never forgets anything."""
        self.read_disk()
        before = self._known.standing
        try:
            stored = self._events.read()
        except DepsueError as problem:
            if "store" in self._unread:
                self._unread["store"] = str(problem)
            raise
        with self._lock:
            self._known = self._known.joined(stored)
        self._in_store |= {event.id for event in stored}
        self._unread.pop("store", None)
        if len(self._known.standing) > len(before):
            log.warning("policy stopped", extra={"reason": self.reason, "by": "another service"})
        missing = self._known.missing_from(self._in_store)
        if missing:
            self._events.add(missing)
            self._in_store |= {event.id for event in missing}
        self._copy_to_disk()

    def read_disk(self) -> None:
        """Take up the stops on this machine's disk; without the store."""
        if "disk" not in self._unread and not self._file.has_changed:
            return
        try:
            on_disk, before = self._file.read(), self._file.read_before()
        except FileError as problem:
            if "disk" in self._unread:
                self._unread["disk"] = str(problem)
            return
        with self._lock:
            self._known = self._known.joined([*on_disk, *before])
        self._on_disk = {event.id for event in on_disk}
        self._unread.pop("disk", None)
        self._copy_to_disk()

    def _copy_to_disk(self) -> None:
        missing = self._known.missing_from(self._on_disk)
        try:
            if missing:
                self._file.add(missing)
                self._on_disk |= {event.id for event in missing}
            self._file.remove_before()
        except (FileError, OSError) as problem:  # the next turn tries again
            log.error("stop not on disk", extra={"found": str(problem)})

    def _save(self, event: MonitorEvent) -> Place:
        """Write an event to disk and to the store; where it is durable then."""
        if event.id not in self._on_disk:
            try:
                self._file.add([event])
                self._on_disk.add(event.id)
            except FileError as problem:
                log.error("stop not on disk", extra={"found": problem.found})
        if event.id not in self._in_store:
            try:
                self._events.add([event])
                self._in_store.add(event.id)
            except DepsueError as problem:  # `settle` tries again
                log.warning("stop not in the store yet", extra={"found": problem.found})
        return self._place(event.id)

    def _place(self, id: str) -> Place:
        return "store" if id in self._in_store else "disk" if id in self._on_disk else "nowhere"


def _event(line: bytes) -> MonitorEvent:
    """The event of a line; one that cannot be read is a stop, because it may have been one."""
    try:
        event = codec.decode(line, MonitorEvent, what="a stop")
        if event.kind in ("stop", "resume"):
            return event
    except DepsueError:
        pass
    digest = hashlib.sha256(line).hexdigest()[:16]
    reason = f"a line of {STOPS} cannot be read, and may have been a stop"
    return MonitorEvent(f"unreadable-{digest}", 0.0, "stop", 0, "", reason, "depsue")


def _stop_before(path: Path, text: bytes) -> MonitorEvent:
    """The stop that an earlier version wrote; one that cannot be read is a stop all the same."""
    digest = hashlib.sha256(text).hexdigest()[:16]
    try:
        facts = json.loads(text)
        reason, by, at = str(facts["reason"]), str(facts.get("by", "")), facts.get("at", 0.0)
        at = float(at)
    except (ValueError, KeyError, TypeError, AttributeError):
        reason, by, at = f"{path.name} was there, and could not be read", "", 0.0
    reason = reason or "stopped"
    return MonitorEvent(f"before-{digest}", at, "stop", 0, "", reason, by or "an earlier version")


def _bytes(path: Path) -> bytes | None:
    """What a file holds; None if there is none. A FileError if it cannot be read."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as problem:
        raise FileError(
            "the stops on disk must be readable",
            found=f"{path}: {problem.strerror or problem}",
            cure="let the service read the file, or restore it from a copy",
        ) from problem


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
