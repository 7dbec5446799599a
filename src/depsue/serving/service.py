"""One campaign, served: what decides, who watches, and what happens when things break.

A service joins four parts, each of which knows its own work only: the `Worker` decides and writes,
the `Monitor` watches, `Stops` remembers why pi0 decides in place of the policy, and the ledger says
which policy serves. Once a second one thread, the watcher, asks the ledger for a newer policy,
settles stops with other services, and lets the monitor look.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass

import torch

from depsue.campaigns import Campaign
from depsue.campaigns.secret import secret_of
from depsue.errors import DepsueError, require
from depsue.serving.joining import reported_rewards
from depsue.serving.messages import RewardReport
from depsue.serving.monitor import Monitor, MonitorFinding, MonitorState
from depsue.serving.served import ServedPolicy, load_served, what_serves
from depsue.serving.settings import ServingSettings, store_address
from depsue.serving.stops import EventLog, Stops
from depsue.serving.store import MonitorEvent, Reward, Store, StoreGone
from depsue.serving.worker import Worker
from depsue.serving.writing import Journal

log = logging.getLogger(__name__)
REFRESH = 1.0
"""Seconds between looks at the ledger and at decisions that have closed."""


@dataclass(frozen=True)
class MonitorStatus:
    """How the monitor stands.

    Args:
        state: of the policy.
        stopped: why pi0 decides in place of the policy; "" while the policy decides.
        tests: every one, as it stands.
    """

    state: MonitorState
    stopped: str
    tests: list[MonitorFinding]


@dataclass(frozen=True)
class StoreStatus:
    """How the store stands.

    Args:
        gone: why it does not answer; "" while it does.
        journalled: decisions and rewards in the journal, which wait for it.
        damaged: lines of the journal that could not be read, and were set aside.
        twins: keys with a second decision, made while the store was gone.
    """

    gone: str
    journalled: int
    damaged: int
    twins: int


@dataclass(frozen=True)
class ServiceStatus:
    """Where a service stands; `GET /v1/status` is this record.

    Args:
        campaign: its name.
        round, policy, what, novelty: of what serves.
        holdout: share of traffic that stays on pi0.
        monitor, store: how they stand.
        problem: why a newer policy is not served; "" if there is none.
        waiting: decisions and rewards that wait.
    """

    campaign: str
    round: int
    policy: str
    what: str
    novelty: float
    holdout: float
    monitor: MonitorStatus
    store: StoreStatus
    problem: str
    waiting: int


class Service:
    """One campaign, served.

    Args:
        campaign: whose; its ledger says what serves.
        settings: what is declared.
        store: the address of the decisions; None is a file in the campaign's folder.
        clock: seconds since 1970; decisions, rewards and waiting times go by it.
        refresh: seconds between two turns of the watcher.
    """

    def __init__(
        self,
        campaign: Campaign,
        settings: ServingSettings,
        *,
        store: str | None = None,
        clock: Callable[[], float] = time.time,
        refresh: float = REFRESH,
    ) -> None:
        self.campaign, self.settings = campaign, settings
        self._clock, self._refresh = clock, refresh
        folder, address = campaign.files.folder, store_address(campaign, store)
        self.store = Store(address, campaign.name, writing=True)
        self.reader = Store(address, campaign.name)
        self.journal = Journal(folder)
        self.served: ServedPolicy = load_served(campaign)
        self.problem = ""
        """Why a newer policy is not served; "" if there is none."""
        self.worker = Worker(
            self.store,
            self.journal,
            lambda: self.served,
            self.fallback,
            settings,
            secret_of(campaign),
            clock=clock,
        )
        self._events = EventLog(self.reader, self.worker.writer.record_event)
        self.monitor = Monitor(campaign, settings, self.reader, self._events)
        self._stops = Stops(
            folder,
            self._events,
            lambda: self.served,
            self.monitor.begin,
            alone=self.store.is_file,
        )
        self._ending = threading.Event()
        self._held = ExitStack()
        self._watcher = threading.Thread(target=self._watch, name="depsue-watcher", daemon=True)

    def start(self) -> None:
        """Begin to decide and to watch; a second service on the same file is refused."""
        require(
            self._held.enter_context(self.store.hold()),
            "one service writes to a file of decisions",
            found=f"another process serves {self.campaign.name!r} from {self.store.name}",
            cure="stop it first, or give both a PostgreSQL address: --store postgresql://...",
        )
        self._stops.remember()  # before the first decision, whether the store is there or not
        self.worker.start()
        self._stops.remember_recorded()
        with suppress(StoreGone):  # then pi0 decides until it is back
            self.monitor.begin(self.served)
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
        """Why pi0 decides in place of the policy; "" while the policy decides."""
        return self._stops.reason

    @property
    def state(self) -> MonitorState:
        """How the policy stands."""
        return MonitorState.STOPPED if self.stopped else self.monitor.state

    @property
    def status(self) -> ServiceStatus:
        """Where the service stands."""
        served = self.served
        return ServiceStatus(
            campaign=self.campaign.name,
            round=served.round,
            policy=served.hash,
            what=served.what,
            novelty=served.novelty,
            holdout=self.settings.holdout,
            monitor=MonitorStatus(self.state, self.stopped, self.monitor.findings),
            store=StoreStatus(
                self.worker.gone,
                self.journal.waiting,
                self.journal.damaged,
                self.worker.writer.twins,
            ),
            problem=self.problem,
            waiting=self.worker.waiting,
        )

    @property
    def events(self) -> list[MonitorEvent]:
        """Epochs, stops and resumptions, oldest first, as they were last read."""
        return list(self._events.newest)

    def stop_policy(self, reason: str, by: str) -> None:
        """Let pi0 decide from now on, also after a restart, until a person resumes the policy."""
        self._stops.stop(reason, by)

    def resume_policy(self, reason: str, by: str) -> None:
        """Let the policy decide again, watched anew."""
        self._stops.resume(reason, by)

    def rewards(self, reports: Sequence[RewardReport]) -> list[Reward]:
        """Rewards as they are stored; a DataError for what the campaign cannot use."""
        return reported_rewards(reports, self.served, self.settings, self._clock())

    def fallback(self) -> str:
        """Why pi0 decides in place of the policy; "" if it does not."""
        if self.stopped:
            return self.stopped
        # a policy never decides unwatched: a newer one waits until its epoch is recorded
        return "" if self.monitor.watches(self.served) else "the monitor does not watch yet"

    def take_up(self) -> None:
        """Serve what the ledger says; the last good policy goes on where that one is damaged."""
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
        self.monitor.begin(served)  # before its first decision
        self.served, self.problem = served, ""
        log.info(
            "policy", extra={"round": served.round, "policy": served.hash, "what": served.what}
        )

    def look(self, now: float | None = None) -> None:
        """One look of the monitor at what has closed; stops the policy if it must."""
        grave = self.monitor.look(
            self.served,
            self._clock() if now is None else now,
            stopped=bool(self.stopped),
            ending=self._ending,
        )
        if grave and not self.stopped:
            self.stop_policy("; ".join(str(finding) for finding in grave), "the monitor")

    def turn(self) -> None:
        """One turn of the watcher: each step is tried, whatever became of the one before."""
        for step in (self.take_up, self._stops.settle, self.look):
            try:
                step()
            except StoreGone:
                continue
            except DepsueError as problem:
                log.error("watch failed", extra={"found": str(problem)})
            except Exception:  # the watcher must not die
                log.exception("watch failed")

    def _watch(self) -> None:
        torch.set_num_threads(1)
        while not self._ending.wait(self._refresh):
            self.turn()
