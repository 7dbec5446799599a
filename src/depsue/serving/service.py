"""The service: what serves, who watches, what happens when things break."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from depsue.campaigns import Campaign
from depsue.data.logs import LoggedData
from depsue.errors import ConfigError, DataError, DepsueError, FileError, require, short
from depsue.files import write_file
from depsue.serving.deciding import Endpoint
from depsue.serving.messages import RewardReport
from depsue.serving.monitor import ContextDrift, MonitorFinding
from depsue.serving.served import ServedPolicy, load_served, what_serves
from depsue.serving.settings import SPOOL, STOPPED, STOPPED_BEFORE, ServingSettings, store_address
from depsue.serving.store import MonitorEvent, Reward, Store, StoreGone
from depsue.serving.watching import MonitorRun
from depsue.serving.worker import Worker
from depsue.serving.writing import Spool

log = logging.getLogger(__name__)
REFRESH = 1.0
"""Seconds between looks at the ledger and at decisions that have closed."""


class MonitorEpoch(NamedTuple):
    """From when on the monitor watches what serves.

    Args:
        served: what serves.
        number: the j-th of its round.
        after: the newest decision before it.
    """

    served: ServedPolicy
    number: int
    after: int


class Service:
    """One campaign, served.

    Args:
        campaign: whose; its ledger says what serves.
        settings: what is declared.
        store: the address of the decisions; None is a file in the campaign's folder.
    """

    def __init__(
        self,
        campaign: Campaign,
        settings: ServingSettings,
        *,
        store: str | None = None,
    ) -> None:
        self.campaign, self.settings = campaign, settings
        folder = campaign.files.folder
        address = store_address(campaign, store)
        self.store = Store(address, campaign.name, writing=True)
        self.reader = Store(address, campaign.name)
        self.spool = Spool(folder / SPOOL)
        self.served: ServedPolicy = load_served(campaign)
        self.problem = ""
        """Why a newer policy is not served; "" if there is none."""
        self._stop_file = folder / STOPPED
        self._stopped = ""
        self._unrecorded: tuple[str, str] | None = None
        self.watching: MonitorRun | None = None
        self._epoch: MonitorEpoch | None = None
        self._watched: MonitorEpoch | None = None
        self._events: list[MonitorEvent] = []
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._held = ExitStack()
        self.worker = Worker(
            self.store,
            Store(address, campaign.name),
            self.spool,
            lambda: self.served,
            self._fallback,
            holdout=settings.holdout,
            on_gone=settings.on_gone,
            most_waiting=settings.most_waiting,
            own_pi0=None if settings.pi0_url is None else Endpoint(settings.pi0_url),
        )
        self._watcher = threading.Thread(target=self._watch, name="depsue-watcher", daemon=True)

    def start(self) -> None:
        """Begin to decide and to watch; a second service on the same file is refused."""
        if self.store.is_file:
            held = self._held.enter_context(self.store.hold())
            require(
                held,
                "one service writes to a file of decisions",
                found=f"another process serves {self.campaign.name!r} from {self.store.name}",
                cure="stop it first, or give both a PostgreSQL address: --store postgresql://...",
            )
        with suppress(FileNotFoundError):
            (self.folder / STOPPED_BEFORE).rename(self._stop_file)
        self._stopped = self._remembered_stop()
        self.worker.start()
        self._stopped = self._stopped or self._recorded_stop()
        with suppress(StoreGone):  # then pi0 decides until it is back
            self._epoch = self._begun(self.served)
        self._watcher.start()

    def close(self) -> None:
        """Finish what was accepted, then end."""
        self._ending.set()
        if self._watcher.is_alive():
            self._watcher.join()
        self.worker.close()
        self._held.close()

    @property
    def stopped(self) -> str:
        """Why pi0 decides in place of the policy; "" if the monitor has not stopped."""
        return self._stopped

    @property
    def state(self) -> str:
        """healthy, watch or stopped."""
        if self._stopped:
            return "stopped"
        return "healthy" if self.watching is None else self.watching.state

    def findings(self) -> list[MonitorFinding]:
        """Every test of the monitor, as it stands."""
        return [] if self.watching is None else self.watching.findings()

    def events(self) -> list[MonitorEvent]:
        """Stops and resumptions, oldest first, as far as they were read."""
        return list(self._events)

    def rewards(self, given: Sequence[RewardReport]) -> list[Reward]:
        """Rewards as they are stored; what the campaign cannot use is refused."""
        now, mapping, served = time.time(), self.served.mapping, self.served
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
            shown = None if one.action is None else served.places.get(one.action, -1)
            event = "" if self.settings.combine == "first" else one.event or ""
            found.append(Reward(one.decision, name, event, float(one.reward), now, shown))
        return found

    def stop_policy(self, reason: str, by: str) -> None:
        """Let pi0 decide from now on, also after a restart, until a person resumes the policy."""
        with self._lock:
            if self._stopped:
                return
            self._stopped = reason
            facts = {"reason": reason, "by": by, "at": time.time()}
            self._unrecorded = (reason, by)
            try:
                write_file(self._stop_file, json.dumps(facts, indent=1).encode())
            except FileError as problem:
                log.error("stop not on disk", extra={"found": problem.found})
            log.warning("policy stopped", extra={"reason": reason, "by": by})
            self._record_stop()

    def resume_policy(self, reason: str, by: str) -> None:
        """Let the policy decide again, and begin to watch anew."""
        with self._lock:
            require(bool(self._stopped), "only a policy that was stopped resumes", found="none")
            self._record_stop()
            require(
                self._unrecorded is None,
                "a resumption is recorded, and so must be the stop before it",
                found=f"the store is gone: {self.worker.gone}",
                cure="wait until it is back",
                error=StoreGone,
            )
            self.worker.event("resume", self.served.round, self.served.hash, reason, by)
            self._epoch = self._begun(self.served)
            self._stop_file.unlink(missing_ok=True)
            self._stopped = ""
            log.info("policy resumed", extra={"reason": reason, "by": by})

    def refresh(self) -> None:
        """Take up what the ledger says serves now; keep the last good one if it is damaged."""
        if what_serves(self.campaign) == (self.served.round, self.served.hash):
            self.problem = ""
            return
        try:
            served = load_served(self.campaign)
        except DepsueError as problem:
            if self.problem != str(problem):
                log.error("policy refused", extra={"found": str(problem)})
            self.problem = str(problem)
            return
        epoch = self._begun(served)  # before its first decision
        self.served, self._epoch, self.problem = served, epoch, ""
        log.info(
            "policy", extra={"round": served.round, "policy": served.hash, "what": served.what}
        )

    def look(self, now: float | None = None) -> None:
        """One look of the monitor at what has closed; stops if it must."""
        self._events = self.reader.events()
        if self._epoch is None:
            self._epoch = self._begun(self.served)
        if self.watching is None or self._watched is not self._epoch:
            self._watched, self.watching = self._epoch, self._watching(self._epoch)
        watching = self.watching
        while watching.step(self.reader, now) and not self._ending.is_set():
            if not self._stopped and not watching.served.is_pi0 and watching.state == "stopped":
                break
        if watching.served.is_pi0 or self._stopped or watching.state != "stopped":
            return
        words = [one.words for one in watching.findings() if one.state == "stopped"]
        self.stop_policy("; ".join(words), "the monitor")

    def _fallback(self) -> str:
        """Why pi0 decides in place of the policy; the policy never decides unwatched."""
        epoch = self._epoch
        watched = epoch is not None and epoch.served is self.served
        return self._stopped or ("" if watched else "the monitor does not watch yet")

    def _begun(self, served: ServedPolicy) -> MonitorEpoch:
        """The present epoch of what serves: taken up again after a restart, else begun."""
        events = self.reader.events()
        mine = [one for one in events if one.kind != "stop" and one.round == served.round]
        last = mine[-1] if mine else None
        if last is None or last.kind == "resume" or last.policy != served.hash:
            number = 1 + sum(one.kind == "watch" for one in mine)
            self.worker.event("watch", served.round, served.hash, f"epoch {number}", "depsue")
            events = self.reader.events()
        self._events = events
        epochs = [one for one in events if one.kind == "watch" and one.round == served.round]
        return MonitorEpoch(served, len(epochs), epochs[-1].after)

    def _watching(self, epoch: MonitorEpoch) -> MonitorRun:
        explore = self.campaign.settings.explore
        return MonitorRun(
            epoch.served,
            self.settings,
            tuple(explore.promises),
            self.campaign.rounds,
            epoch=epoch.number,
            after=epoch.after,
            drift=self._drift(),
        )

    def _drift(self) -> ContextDrift | None:
        """What contexts are held against: those of the logs that the policy was certified on."""
        try:
            logs: LoggedData = self.campaign.logs(max(self.served.round - 1, 0))
        except (DepsueError, OSError) as problem:
            log.warning("no reference for contexts", extra={"found": short(str(problem))})
            return None
        weight = np.bincount(logs.context, minlength=len(logs.contexts)) / len(logs)
        x = np.asarray(logs.contexts, dtype=np.float64)
        mean = weight @ x
        deviation = np.sqrt(np.maximum(weight @ x**2 - mean**2, 0.0))
        return ContextDrift(mean, deviation, len(logs))

    def _watch(self) -> None:
        torch.set_num_threads(1)
        while not self._ending.wait(REFRESH):
            for step in (self.refresh, self._settle_stop, self.look):
                try:
                    step()
                except StoreGone:
                    continue
                except DepsueError as problem:
                    log.error("watch failed", extra={"found": str(problem)})
                except Exception:  # the watcher must not die
                    log.exception("watch failed")

    def _settle_stop(self) -> None:
        """Record a stop that could not be recorded; learn what other services recorded."""
        with self._lock:
            self._record_stop()
        if self.store.is_file or self._unrecorded is not None:
            return
        last = self._recorded_stop()
        if last and not self._stopped:
            self._stopped = last
            log.warning("policy stopped", extra={"reason": last, "by": "another service"})
        elif self._stopped and not last:
            self._epoch = self._begun(self.served)
            self._stop_file.unlink(missing_ok=True)
            self._stopped = ""
            log.info("policy resumed", extra={"by": "another service"})

    def _record_stop(self) -> None:
        if self._unrecorded is None:
            return
        try:
            self.worker.event("stop", self.served.round, self.served.hash, *self._unrecorded)
            self._unrecorded = None
        except (StoreGone, ConfigError):
            return

    def _remembered_stop(self) -> str:
        """A stop that this machine remembers."""
        if not self._stop_file.exists():
            return ""
        try:
            facts: dict[str, Any] = json.loads(self._stop_file.read_text())
            return str(facts["reason"]) or "stopped"
        except (OSError, ValueError, KeyError, TypeError):
            return f"{self._stop_file} is there, and cannot be read"

    def _recorded_stop(self) -> str:
        """A stop that the store remembers, and no resumption after it."""
        try:
            self._events = self.reader.events()
        except StoreGone:
            return ""
        last = [one for one in self._events if one.kind in ("stop", "resume")][-1:]
        return last[0].reason if last and last[0].kind == "stop" else ""

    @property
    def folder(self) -> Path:
        """Of the campaign."""
        return self.campaign.files.folder
