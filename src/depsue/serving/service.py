"""The service: what serves, who watches, what happens when things break."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from depsue.campaigns import Campaign
from depsue.data.logs import LoggedData
from depsue.errors import ConfigError, DataError, DepsueError, FileError, require, short
from depsue.files import hold_file, write_file
from depsue.serving.deciding import Endpoint
from depsue.serving.live import ServedPolicy, load_live, what_serves
from depsue.serving.messages import Rewarded
from depsue.serving.monitor import ContextDrift, Finding
from depsue.serving.settings import SPOOL, TRIPPED, ServingSettings, store_address
from depsue.serving.store import Event, Reward, Store, StoreGone
from depsue.serving.watching import MonitorRun
from depsue.serving.worker import Worker
from depsue.serving.writing import Spool

REFRESH = 1.0
"""Seconds between looks at the ledger and at decisions that have closed."""


class MonitorEpoch(NamedTuple):
    """From when on the monitor watches what serves.

    Args:
        live: what serves.
        number: the j-th of its round.
        after: the newest decision before it.
    """

    live: ServedPolicy
    number: int
    after: int


class Service:
    """One campaign, served.

    Args:
        campaign: whose; its ledger says what serves.
        settings: what is declared.
        store: the address of the decisions; None is a file in the campaign's folder.
        told: is told of what happens, in a word and details.
    """

    def __init__(
        self,
        campaign: Campaign,
        settings: ServingSettings,
        *,
        store: str | None = None,
        told: Callable[..., None] = lambda word, **details: None,
    ) -> None:
        self.campaign, self.settings, self.told = campaign, settings, told
        folder = campaign.files.folder
        address = store_address(campaign, store)
        self.store = Store(address, campaign.name, writing=True)
        self.reader = Store(address, campaign.name)
        self.spool = Spool(folder / SPOOL)
        self.live: ServedPolicy = load_live(campaign)
        self.problem = ""
        """Why a newer policy is not served; "" if there is none."""
        self._trip_file = folder / TRIPPED
        self._tripped = ""
        self._unrecorded: tuple[str, str] | None = None
        self.watching: MonitorRun | None = None
        self._stint: MonitorEpoch | None = None
        self._watched: MonitorEpoch | None = None
        self._events: list[Event] = []
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._held = ExitStack()
        self.worker = Worker(
            self.store,
            Store(address, campaign.name),
            self.spool,
            lambda: self.live,
            self._fallback,
            holdout=settings.holdout,
            on_gone=settings.on_gone,
            most_waiting=settings.most_waiting,
            told=told,
            own_pi0=None if settings.pi0_url is None else Endpoint(settings.pi0_url, told),
        )
        self._watcher = threading.Thread(target=self._watch, name="depsue-watcher", daemon=True)

    def start(self) -> None:
        """Begin to decide and to watch; a second service on the same file is refused."""
        if self.store.is_file:
            held = self._held.enter_context(hold_file(f"{self.store.name}.lock"))
            require(
                held,
                "one service writes to a file of decisions",
                found=f"another process serves {self.campaign.name!r} from {self.store.name}",
                cure="stop it first, or give both a PostgreSQL address: --store postgresql://...",
            )
        self._tripped = self._remembered_trip()
        self.worker.start()
        self._tripped = self._tripped or self._recorded_trip()
        with suppress(StoreGone):  # then pi0 decides until it is back
            self._stint = self._begun(self.live)
        self._watcher.start()

    def stop(self) -> None:
        """Finish what was accepted, then end."""
        self._ending.set()
        if self._watcher.is_alive():
            self._watcher.join()
        self.worker.stop()
        self._held.close()

    @property
    def tripped(self) -> str:
        """Why pi0 decides in place of the policy; "" if the monitor has not tripped."""
        return self._tripped

    @property
    def level(self) -> str:
        """fine, watch or tripped."""
        if self._tripped:
            return "tripped"
        return "fine" if self.watching is None else self.watching.level

    def findings(self) -> list[Finding]:
        """Every test of the monitor, as it stands."""
        return [] if self.watching is None else self.watching.findings()

    def events(self) -> list[Event]:
        """Trips and lifts, oldest first, as far as they were read."""
        return list(self._events)

    def rewards(self, given: Sequence[Rewarded]) -> list[Reward]:
        """Rewards as they are stored; what the campaign cannot use is refused."""
        now, mapping, live = time.time(), self.live.mapping, self.live
        found = []
        for place, one in enumerate(given):
            name = mapping.reward if one.name is None else one.name
            limit = mapping.r_max if name == mapping.reward else mapping.other_rewards.get(name)
            if limit is None:
                raise DataError(
                    "a reward is one of the mapping's columns",
                    column="name",
                    row=place,
                    value=one.name,
                    cure=f"leave it out for {mapping.reward}"
                    + "".join(f", or {other}" for other in mapping.other_rewards),
                )
            value = one.reward + mapping.shift if name == mapping.reward else one.reward
            capped = mapping.cap is not None and name == mapping.reward
            if value < 0 or (value > limit and not capped):
                raise DataError(
                    f"rewards must lie in [0, {limit:g}], as was declared",
                    column=name,
                    row=place,
                    value=one.reward,
                    cure="send them in the units of the logs",
                )
            shown = None if one.action is None else live.places.get(one.action, -1)
            event = "" if self.settings.combine == "first" else one.event or ""
            found.append(Reward(one.decision, name, event, float(one.reward), now, shown))
        return found

    def trip(self, reason: str, by: str) -> None:
        """From the next decision on pi0 decides, until a person lifts it; also after a restart."""
        with self._lock:
            if self._tripped:
                return
            self._tripped = reason
            facts = {"reason": reason, "by": by, "at": time.time()}
            self._unrecorded = (reason, by)
            try:
                write_file(self._trip_file, json.dumps(facts, indent=1).encode())
            except FileError as problem:
                self.told("trip not on disk", found=problem.found)
            self.told("tripped", reason=reason, by=by)
            self._record_trip()

    def lift(self, reason: str, by: str) -> None:
        """Let the policy decide again, and begin to watch anew."""
        with self._lock:
            require(bool(self._tripped), "there must be a trip to lift", found="none")
            self._record_trip()
            require(
                self._unrecorded is None,
                "a lift is recorded, and so must be what it lifts",
                found=f"the store is gone: {self.worker.gone}",
                cure="wait until it is back",
                error=StoreGone,
            )
            self.worker.event("lift", self.live.round, self.live.hash, reason, by)
            self._stint = self._begun(self.live)
            self._trip_file.unlink(missing_ok=True)
            self._tripped = ""
            self.told("lifted", reason=reason, by=by)

    def refresh(self) -> None:
        """Take up what the ledger says serves now; keep the last good one if it is damaged."""
        if what_serves(self.campaign) == (self.live.round, self.live.hash):
            self.problem = ""
            return
        try:
            live = load_live(self.campaign)
        except DepsueError as problem:
            if self.problem != str(problem):
                self.told("policy refused", found=str(problem))
            self.problem = str(problem)
            return
        stint = self._begun(live)  # before its first decision
        self.live, self._stint, self.problem = live, stint, ""
        self.told("policy", round=live.round, policy=live.hash, what=live.what)

    def look(self, now: float | None = None) -> None:
        """One look of the monitor at what has closed; trips if it must."""
        self._events = self.reader.events()
        if self._stint is None:
            self._stint = self._begun(self.live)
        if self.watching is None or self._watched is not self._stint:
            self._watched, self.watching = self._stint, self._watching(self._stint)
        watching = self.watching
        while watching.step(self.reader, now) and not self._ending.is_set():
            if not self._tripped and not watching.live.is_pi0 and watching.level == "tripped":
                break
        if watching.live.is_pi0 or self._tripped or watching.level != "tripped":
            return
        words = [one.words for one in watching.findings() if one.level == "tripped"]
        self.trip("; ".join(words), "the monitor")

    def _fallback(self) -> str:
        """Why pi0 decides in place of the policy; the policy never decides unwatched."""
        stint = self._stint
        watched = stint is not None and stint.live is self.live
        return self._tripped or ("" if watched else "the monitor does not watch yet")

    def _begun(self, live: ServedPolicy) -> MonitorEpoch:
        """The present stint of what serves: taken up again after a restart, else begun."""
        events = self.reader.events()
        mine = [one for one in events if one.kind != "trip" and one.round == live.round]
        last = mine[-1] if mine else None
        if last is None or last.kind == "lift" or last.policy != live.hash:
            number = 1 + sum(one.kind == "watch" for one in mine)
            self.worker.event("watch", live.round, live.hash, f"stint {number}", "depsue")
            events = self.reader.events()
        self._events = events
        stints = [one for one in events if one.kind == "watch" and one.round == live.round]
        return MonitorEpoch(live, len(stints), stints[-1].after)

    def _watching(self, stint: MonitorEpoch) -> MonitorRun:
        explore = self.campaign.settings.explore
        return MonitorRun(
            stint.live,
            self.settings,
            tuple(explore.promises),
            self.campaign.rounds,
            stint=stint.number,
            after=stint.after,
            drift=self._drift(),
        )

    def _drift(self) -> ContextDrift | None:
        """What contexts are held against: those of the logs that the policy was certified on."""
        try:
            logs: LoggedData = self.campaign.logs(max(self.live.round - 1, 0))
        except (DepsueError, OSError) as problem:
            self.told("no reference for contexts", found=short(str(problem)))
            return None
        weight = np.bincount(logs.context, minlength=len(logs.contexts)) / len(logs)
        x = np.asarray(logs.contexts, dtype=np.float64)
        mean = weight @ x
        deviation = np.sqrt(np.maximum(weight @ x**2 - mean**2, 0.0))
        return ContextDrift(mean, deviation, len(logs))

    def _watch(self) -> None:
        torch.set_num_threads(1)
        while not self._ending.wait(REFRESH):
            for step in (self.refresh, self._settle_trip, self.look):
                try:
                    step()
                except StoreGone:
                    continue
                except DepsueError as problem:
                    self.told("watch failed", found=str(problem))
                except Exception as problem:  # the watcher must not die
                    self.told("watch failed", error=f"{type(problem).__name__}: {problem}")

    def _settle_trip(self) -> None:
        """Record a trip that could not be recorded; learn of trips and lifts of other services."""
        with self._lock:
            self._record_trip()
        if self.store.is_file or self._unrecorded is not None:
            return
        last = self._recorded_trip()
        if last and not self._tripped:
            self._tripped = last
            self.told("tripped", reason=last, by="another service")
        elif self._tripped and not last:
            self._stint = self._begun(self.live)
            self._trip_file.unlink(missing_ok=True)
            self._tripped = ""
            self.told("lifted", by="another service")

    def _record_trip(self) -> None:
        if self._unrecorded is None:
            return
        try:
            self.worker.event("trip", self.live.round, self.live.hash, *self._unrecorded)
            self._unrecorded = None
        except (StoreGone, ConfigError):
            return

    def _remembered_trip(self) -> str:
        """A trip that this machine remembers."""
        if not self._trip_file.exists():
            return ""
        try:
            facts: dict[str, Any] = json.loads(self._trip_file.read_text())
            return str(facts["reason"]) or "tripped"
        except (OSError, ValueError, KeyError, TypeError):
            return f"{self._trip_file} is there, and cannot be read"

    def _recorded_trip(self) -> str:
        """A trip that the store remembers, and no lift after it."""
        try:
            self._events = self.reader.events()
        except StoreGone:
            return ""
        last = [one for one in self._events if one.kind in ("trip", "lift")][-1:]
        return last[0].reason if last and last[0].kind == "trip" else ""

    @property
    def folder(self) -> Path:
        """Of the campaign."""
        return self.campaign.files.folder
