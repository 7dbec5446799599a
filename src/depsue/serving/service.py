"""One campaign, served: what decides, who watches, and what happens when things break.

A service joins four parts, each of which knows its own work only: the `Worker` decides and writes,
the `Monitor` watches, `Stops` remembers why pi0 decides in place of the policy, and the ledger says
which policy serves. Once a second one thread, the watcher, asks the ledger for a newer policy,
settles stops with other services, and lets the monitor look.

**Who decides** is asked in one place, `Service.who_decides`. Every batch is drawn by its answer;
`Service.status`, which pages, /readyz and metrics read, repeats it. The policy decides only if

1. every stop that is known here was named by a resume, and the stops of before could be read,
2. decisions can be stored, and
3. the monitor watches this policy, and its permit has not run out.

Else pi0 decides, and the status says why.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Literal

import torch

from depsue.campaigns import Campaign
from depsue.campaigns.secret import secret_of
from depsue.data.mapping import in_units
from depsue.errors import DepsueError, require
from depsue.serving.account import (
    PromiseAccount,
    RecentDecisions,
    RoundAccount,
    ServedCounts,
    recent_decisions,
)
from depsue.serving.joining import reported_rewards
from depsue.serving.journal import Journal
from depsue.serving.messages import RewardReport
from depsue.serving.monitor import Monitor, MonitorFinding, MonitorState
from depsue.serving.schema import MonitorEvent, Reward, ShareChange
from depsue.serving.served import UNDECLARED, WHOLE, ServedPolicy, load_served, what_serves
from depsue.serving.settings import ServingSettings, store_address
from depsue.serving.stops import EventLog, StopFile, Stops, StopStatus
from depsue.serving.store import Store, StoreGone
from depsue.serving.traffic import RampStatus, Traffic
from depsue.serving.worker import Worker
from depsue.serving.writing import fresh_chance

log = logging.getLogger(__name__)
REFRESH = 1.0
"""Seconds between looks at the ledger and at decisions that have closed."""


@dataclass(frozen=True)
class WhoDecides:
    """Who decides now, and why.

    Args:
        who: "policy", "pi0" or, where decisions are refused, "nobody".
        why: in words.
        fallback: whether pi0 decides in place of the policy that is deployed.
    """

    who: Literal["policy", "pi0", "nobody"]
    why: str
    fallback: bool = False


@dataclass(frozen=True)
class PermitStatus:
    """Whether the policy may explore.

    Args:
        until: when the permit runs out if no look follows, in seconds since 1970; None without one.
        refusal: why there is none; "" while there is.
    """

    until: float | None
    refusal: str


@dataclass(frozen=True)
class MonitorStatus:
    """How the monitor stands.

    Args:
        permit: whether the policy may explore.
        judged: decisions of the policy and its holdout that were judged, since it began to serve.
        behind: decisions that the last look took in without coming to an end; 0 if it came to one.
        set_aside: decisions that are stamped ahead of the clock, and are not judged.
        unusable: rewards outside their range; each counts at its worst for its promise.
        unjudged: decisions whose probabilities are outside their range, which no test can use.
        mismatched: rewards that name another item than was decided.
        tests: every one, as it stands.
    """

    permit: PermitStatus
    judged: int
    behind: int
    set_aside: int
    unusable: int
    unjudged: int
    mismatched: int
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
class ServedStatus:
    """What the round has served so far.

    Args:
        counts: closed decisions of the round, by who made them.
        promises: what each promise's reward was, in learn and select rows, and its floor.
        limits: (mean, lower, upper) of the policy's reward in these rows, a confidence sequence.
        read_at: when all that had closed was last read, in seconds since 1970; None before.
    """

    counts: ServedCounts
    promises: list[PromiseAccount]
    limits: tuple[float, float, float] | None
    read_at: float | None


@dataclass(frozen=True)
class ServiceStatus:
    """Where a service stands; `GET /v1/status` is this record.

    Args:
        campaign: its name.
        state, says: one of five states, as a word and as pages say it.
        reason: why it is in that state, in words.
        decides: who decides now, and why; the draw goes by the same answer.
        stops: those that no resume has named, oldest first; a resume sends their ids.
        since: when that began, in seconds since 1970; None where it is not known.
        ready: whether a decision can be made now; not_ready: why not, "" if it can.
        round: the round that is served in.
        policy, what, novelty: of what is deployed in it.
        made_in: the round that made that policy: an earlier one after a rollback; 0 for pi0.
        share, holdout: of traffic: on the policy, and on pi0.
        shares: every change of it, the newest 100, oldest first.
        ramp: where it stands; None without one.
        served: what the round has served so far.
        monitor, store: how they stand.
        problem: why a newer policy is not served; "" if there is none.
        waiting: decisions and rewards that wait.
    """

    campaign: str
    state: MonitorState
    says: str
    reason: str
    decides: WhoDecides
    stops: list[StopStatus]

    since: float | None
    ready: bool
    not_ready: str
    round: int
    policy: str
    what: str
    novelty: float
    made_in: int
    share: float
    holdout: float
    shares: list[ShareChange]
    ramp: RampStatus | None
    served: ServedStatus
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
        ticks: a monotonic clock, in seconds; the monitor's permit goes by it.
        refresh: seconds between two turns of the watcher.
        chance: makes what a request without a key is drawn by; never the same twice.
    """

    def __init__(
        self,
        campaign: Campaign,
        settings: ServingSettings,
        *,
        store: str | None = None,
        clock: Callable[[], float] = time.time,
        ticks: Callable[[], float] = time.monotonic,
        refresh: float = REFRESH,
        chance: Callable[[], str] = fresh_chance,
    ) -> None:
        self.campaign, self.settings = campaign, settings
        self._clock, self._refresh = clock, refresh
        folder, address = campaign.files.folder, store_address(campaign, store)
        secret = secret_of(campaign)
        self.store = Store(
            address,
            campaign.name,
            writing=True,
            hidden=secret.hidden,
            reports_within=settings.wait,
        )
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
            secret,
            holdout=lambda: self.traffic.holdout,
            clock=clock,
            chance=chance,
        )
        self.traffic = Traffic(
            settings, self.reader, self.worker.writer.record, lambda: self.served, clock=clock
        )
        self._events = EventLog(self.reader, self.worker.writer.record)
        self.monitor = Monitor(
            campaign, settings, self.reader, self._events, clock=clock, ticks=ticks
        )
        self._stops = Stops(StopFile(folder), self._events, lambda: self.served, clock=clock)
        self.account = RoundAccount.of(campaign, self.served, settings)
        """What the round has served so far."""
        self.asked_share: tuple[float, str] | None = None
        """The share of traffic that was asked for at the start, and by whom; until it is so."""
        self._deciding: tuple[tuple[str, bool, int, str], float | None] | None = None
        self._erasures = (0, 0)
        self._ending = threading.Event()
        # the watcher looks, and so does a person's request that resumes the policy
        self._turning = threading.Lock()
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
        if not self.served.brings:
            log.info("candidates", extra={"found": WHOLE})
        if self.served.mapping.unit is not None and not self.campaign.settings.explore.units:
            log.warning("units", extra={"found": UNDECLARED})
        self._stops.read_disk()  # whether the store is there or not
        self.worker.start()
        self.turn()  # a first look; where it cannot come to an end, pi0 decides until one does
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
        """Why the policy was stopped; "" if every stop was named by a resume."""
        return self._stops.reason

    def who_decides(self) -> WhoDecides:
        """Who decides now: every batch is drawn by this answer."""
        decider = self._decider()
        regime = (decider.who, decider.fallback, self.served.round, self.served.hash)
        if self._deciding is None or self._deciding[0] != regime:
            # a process that has just begun does not know when this did; `_since` asks the records
            self._deciding = regime, None if self._deciding is None else self._clock()
        return decider

    def _since(self, decider: WhoDecides) -> float | None:
        """When that answer began: as recorded, or as this process saw it change."""
        standing = self._stops.standing
        if standing:
            return min(stop.at for stop in standing)
        changed = None if self._deciding is None else self._deciding[1]
        if changed is not None or decider.fallback or decider.who == "nobody":
            return changed
        served = self.served
        began = [
            event.at
            for event in self.events
            if event.kind == "watch" and (event.round, event.policy) == (served.round, served.hash)
        ]
        return began[-1] if began else None

    def _decider(self) -> WhoDecides:
        served, gone = self.served, self.worker.gone
        if gone and self.settings.on_gone == "stop":
            return WhoDecides("nobody", f"decisions cannot be stored: {gone}")
        stopped = self.stopped or self._stops.unread
        if stopped:
            return WhoDecides("pi0", stopped, fallback=True)
        if gone:
            return WhoDecides("pi0", f"the store of decisions is gone: {gone}", fallback=True)
        if not self.worker.writer.live:
            return WhoDecides("pi0", "decisions in the journal wait for the store", fallback=True)
        if served.is_pi0:
            deployed = f"it is what is deployed in round {served.round}"
            why = deployed if served.round else "nothing is deployed yet"
            return WhoDecides("pi0", why)
        refusal = self.monitor.refusal(served) or self.traffic.unread
        if refusal:
            return WhoDecides("pi0", f"not watched: {refusal}", fallback=True)
        if self.traffic.share == 0:
            return WhoDecides("pi0", "the share of traffic on the policy is 0: it is a shadow")
        return WhoDecides("policy", f"{served.what}, of round {served.made_in}")

    @property
    def state(self) -> MonitorState:
        """How the service stands."""
        return self._stands(self.who_decides())[0]

    def _stands(self, decider: WhoDecides) -> tuple[MonitorState, str]:
        """(state, why) that follow from who decides."""
        if self.stopped:
            return MonitorState.STOPPED, self.stopped
        if decider.fallback or decider.who == "nobody":
            return MonitorState.NOT_WATCHED, decider.why
        state = self.monitor.state
        below = [str(promise) for promise in self.account.promises if promise.below]
        if decider.who == "policy" and state is not MonitorState.WATCH and below:
            return MonitorState.WATCH, f"a mean lies below its floor ({'; '.join(below)})"
        if state is MonitorState.WAITING:
            run = self.monitor.run
            judged = 0 if run is None else run.evidence.n
            cycle = None if run is None else run.evidence.first_cycle
            words = f"{judged:,} decisions were judged so far"
            if cycle is not None:
                words += f"; no whole cycle ({in_units(cycle)}) has passed, by which promises count"
            return state, words
        if state is MonitorState.HEALTHY:
            return state, "no evidence of a breach"
        marked = [str(test) for test in self.monitor.findings if test.state is state]
        return state, "; ".join([*marked, *(f"below its floor: {words}" for words in below)])

    @property
    def status(self) -> ServiceStatus:
        """Where the service stands."""
        served, decider = self.served, self.who_decides()
        state, reason = self._stands(decider)
        not_ready = decider.why if decider.who == "nobody" else served.missing
        return ServiceStatus(
            campaign=self.campaign.name,
            state=state,
            says=state.words if decider.who != "nobody" else "Not watched: decisions refused",
            reason=reason,
            decides=decider,
            stops=self._stops.standing,
            since=self._since(decider),
            ready=not not_ready,
            not_ready=not_ready,
            round=served.round,
            policy=served.hash,
            what=served.what,
            novelty=served.novelty,
            made_in=served.made_in,
            share=self.traffic.share,
            holdout=self.traffic.holdout,
            shares=self.traffic.changes[-100:],
            ramp=self.traffic.ramp(self.events),
            served=self._served_status(),
            monitor=self._monitor_status(),
            store=StoreStatus(
                self.worker.gone,
                self.journal.waiting,
                self.journal.damaged,
                self.worker.writer.twins,
            ),
            problem=self.problem,
            waiting=self.worker.waiting,
        )

    def _served_status(self) -> ServedStatus:
        account = self.account
        return ServedStatus(account.counts, account.promises, account.limits, account.read_at)

    def _monitor_status(self) -> MonitorStatus:
        run, permit = self.monitor.run, self.monitor.permit
        refusal, left = self.monitor.refusal(self.served), permit.left
        return MonitorStatus(
            permit=PermitStatus(None if refusal else self._clock() + left, refusal),
            judged=0 if run is None else run.evidence.n,
            behind=self.monitor.behind,
            set_aside=0 if run is None else run.set_aside,
            unusable=0 if run is None else run.unusable,
            unjudged=0 if run is None else run.unjudged,
            mismatched=0 if run is None else run.mismatched,
            tests=self.monitor.findings,
        )

    @property
    def events(self) -> list[MonitorEvent]:
        """Epochs, stops and resumptions, oldest first, as they were last read."""
        return list(self._events.newest)

    @property
    def events_unread(self) -> str:
        """Why stops and resumptions of before are not known yet; "" once they are."""
        return self._stops.unread

    def stop_policy(self, reason: str, by: str) -> StopStatus:
        """Let pi0 decide from now on, also after a restart, until a resume names this stop."""
        return self._stops.stop(reason, by)

    def resume_policy(self, stops: Sequence[str], reason: str, by: str) -> None:
        """Name stops; once none is left the policy decides again, watched anew.

        Args:
            stops: ids that the author saw, as `status` lists them.
            reason: in words.
            by: who.
        """
        self._stops.resume(stops, reason, by)
        self.turn()  # the monitor looks first

    def change_share(self, share: float, reason: str, by: str) -> None:
        """Put another share of traffic on the policy, from the next decision on.

        Args:
            share: in [0, 1]; the rest is the holdout, on pi0.
            reason: in words.
            by: who.
        """
        self.traffic.change(share, reason, by)

    def rewards(self, reports: Sequence[RewardReport]) -> list[Reward]:
        """Rewards as they are stored; a DataError for what the campaign cannot use."""
        return reported_rewards(reports, self.served, self.settings, self._clock())

    def fallback(self) -> str:
        """Why pi0 decides in place of the policy; "" if it does not."""
        decider = self.who_decides()
        return decider.why if decider.fallback else ""

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
        self.traffic.begin(served)  # before its first decision
        self.monitor.begin(served, stopped=bool(self.stopped))
        self.account = RoundAccount.of(self.campaign, served, self.settings)
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
        run = self.monitor.run
        if grave and run is not None and not self.stopped:
            # the id is of the evidence: who resumes names it once, whichever service stopped first
            reason = "; ".join(str(finding) for finding in grave)
            self._stops.stop(reason, "the monitor", id=f"monitor-{run.epoch.id}")

    def count(self, now: float | None = None) -> None:
        """Take in what has closed, for those who look at pages; nothing is decided by it."""
        self.account.take_in(self.reader, self._clock() if now is None else now)

    def recent(self) -> RecentDecisions:
        """The newest decisions; a StoreGone while the store cannot be read."""
        served = self.served
        return recent_decisions(self.reader, served.catalogue, served.hash, is_pi0=served.is_pi0)

    def forget_erased(self) -> None:
        """Forget decisions that another process erased from the store.

        Again one turn later: a batch that was under way may have brought them back.
        """
        before, self._erasures = self._erasures, (self._erasures[1], self.reader.erasures())
        if before != self._erasures:
            self.worker.writer.forget_recent()

    def turn(self) -> None:
        """One turn of the watcher: each step is tried, whatever became of the one before."""
        with self._turning:
            steps = (
                self.take_up,
                self.take_up_share,
                self.forget_erased,
                self._stops.settle,
                self.look,
                self.rise,
                self.count,
            )
            for step in steps:
                try:
                    step()
                except StoreGone:
                    continue
                except DepsueError as problem:
                    log.error("watch failed", extra={"found": str(problem)})
                except Exception:  # the watcher must not die; the permit runs out by itself
                    log.exception("watch failed")

    def take_up_share(self) -> None:
        """Read the share of traffic, and put it to what was asked for at the start."""
        self.traffic.begin(self.served)
        if self.asked_share is not None:
            share, by = self.asked_share
            if abs(self.traffic.share - share) > 1e-9:
                self.change_share(share, "asked for at the start", by)
            self.asked_share = None

    def rise(self) -> None:
        """One step of the ramp up, if it is time and the policy is healthy."""
        self.traffic.rise(healthy=self.state is MonitorState.HEALTHY, events=self.events)

    def _watch(self) -> None:
        torch.set_num_threads(1)
        while not self._ending.wait(0 if self.monitor.behind else self._refresh):
            self.turn()
