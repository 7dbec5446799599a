"""The safety monitor: does the served policy earn what its round needs?

`Monitor` watches what serves, epoch by epoch. An epoch begins when a policy is deployed and when a
stopped policy is resumed. `MonitorRun` is the work of one epoch: it takes in decisions whose
waiting time has closed, in the order of the store, and adds them to the epoch's `evidence`.

All that a run knows comes from the store. After a restart the same epoch is read again from its
first decision, so a crash neither loses evidence nor spends delta a second time. Several services
that watch one store agree on the epoch: its id follows from what was recorded before it.

**Feeding.** Rows are judged once each, in the order of `seq`. A row waits until its rewards are
complete, and the rows after it wait with it: at most a minute longer than for rewards, because a
row that is stamped more than a minute ahead of the clock is not waited for. It is set aside, which
is recorded in the store before a later row is judged; so a restart, or another service, leaves out
the same rows, although their time has come by then. Twins and the rows of pi0 as the fallback are
no evidence about the policy. Where more than a tenth of the rows cannot be judged, the policy
counts as not watched.
"""

from __future__ import annotations

import hashlib
import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import msgspec
import numpy as np

from depsue import defaults
from depsue.campaigns import Campaign
from depsue.campaigns.records import RoundLength
from depsue.certificates import UnitRows
from depsue.data.checks import FloatArray, IntArray
from depsue.data.logs import LoggedData
from depsue.diagnostics.drawn_by import TOLERANCE
from depsue.errors import DepsueError, short
from depsue.promises import Promise
from depsue.serving.evidence import (
    EpochEvidence,
    FloorPart,
    JudgedRows,
    PartEvidence,
    Weighing,
    delta_of_epoch,
)
from depsue.serving.joining import ClosedDecisions, in_range, rewards_by_rule, used_reward
from depsue.serving.schema import MonitorEvent
from depsue.serving.served import ARRIVED, OTHER_VERSION, ContextDrift, ServedPolicy
from depsue.serving.settings import ServingSettings
from depsue.serving.stops import EventLog, Permit
from depsue.serving.store import Store

log = logging.getLogger(__name__)
FEWEST, MOST = 100, 4000
"""Decisions that are read in one step: few while most are still open, more to catch up."""
AUDITED = 200
"""Decisions of one step whose distributions are computed again."""
FEWEST_JUDGED = 100
"""Decisions before which the monitor says that it waits for data."""
AHEAD = 60.0
"""Seconds by which clocks may differ: a decision that is stamped further ahead is set aside."""
BLIND = 0.1
"""Share of decisions that cannot be judged beyond which the policy counts as not watched."""
COLUMNS = ("round", "policy", "decided_by", "action", "propensity", "p_policy", "p_pi0", "holdout",
           "context", "unit", "candidates", "pi0", "p_chosen", "erased", "why",
           "version")  # fmt: skip


class MonitorState(StrEnum):
    """How a service stands, or one test of its monitor; in the order of the metric's numbers."""

    HEALTHY = "healthy"
    WATCH = "watch"
    STOPPED = "stopped"
    NOT_WATCHED = "not_watched"
    WAITING = "waiting"

    @property
    def words(self) -> str:
        """As pages say it."""
        return _WORDS[self]


_WORDS = {
    MonitorState.WAITING: "Waiting for data",
    MonitorState.HEALTHY: "Healthy",
    MonitorState.WATCH: "Watch",
    MonitorState.STOPPED: "Stopped: current policy serving",
    MonitorState.NOT_WATCHED: "Not watched: current policy serving",
}


@dataclass(frozen=True)
class MonitorFinding:
    """One test of the monitor, as it stands.

    Args:
        name: of what is tested.
        state: what the test asks for.
        words: in a sentence.
        share: of the way to a stop, in the logarithm of the evidence; None where it cannot stop.
    """

    name: str
    state: MonitorState
    words: str
    share: float | None = None

    def __str__(self) -> str:
        return f"{self.name}: {self.words}"


@dataclass(frozen=True, eq=False)
class MonitorEpoch:
    """A stretch of decisions that the monitor judges together.

    Args:
        served: what serves.
        number: j, from 1, of its round; the share of delta halves with each.
        after: the newest decision before it.
        id: of the event that began it.
    """

    served: ServedPolicy
    number: int
    after: int
    id: str = ""


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
        self._held_back: tuple[int, float] | None = None
        """The newest decision at a look that could not read up to it, and when that look began."""
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

        A look that came to its end extends the permit. Where transactions under way hold decisions
        back, a later look that has read past them extends it from the time of the earlier one. One
        that takes in as many decisions as the declared backlog without coming to an end takes the
        permit back; the next look goes on.

        Args:
            served: what serves.
            now: seconds since 1970.
            stopped: whether it has stopped already; then there is no hurry to say so.
            ending: set when the service ends, however much is left to read.
        """
        began = self._ticks()
        try:
            newest, settled = self._store.settled()
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
        elif settled >= newest:
            self._held_back = None
            self.permit.extend(began)
        elif self._held_back is None:
            self._held_back = newest, began
        elif settled >= self._held_back[0]:  # all that there was at that time is judged
            self.permit.extend(self._held_back[1])
            self._held_back = newest, began
        else:
            self.permit.note("a transaction that does not end holds decisions back")
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


@dataclass(eq=False)
class MonitorRun:
    """What one epoch has shown so far.

    Args:
        epoch: which.
        settings: waiting time, rule, default, holdout and delta.
        promises: of the campaign.
        rounds: K.
        length: decisions that the round is for; starts of a fault are spread over them.
        unit_rows: what counts where logs have units: the first decision of a unit, or all.
        drift: compares contexts; None where the logs could not be read.
        leave_out: records decisions that are set aside; durable on return.
        mismatched: rewards that name another item than was decided.
        unusable: rewards outside their range; each counts at its worst for its promise.
        unjudged: decisions whose probabilities are outside their range, which no test can use.
        erased: decisions that were erased on request; each counts at its worst.
        set_aside: decisions of the policy that were stamped ahead of the clock.
        versions: decisions of other versions of pi0 than were certified, by version.
        arrived: decisions of requests in which pi0 would show items that the campaign has not.
    """

    epoch: MonitorEpoch
    settings: ServingSettings
    promises: tuple[Promise, ...]
    rounds: int
    length: int = defaults.WATCHED
    unit_rows: UnitRows = "all rows"
    drift: ContextDrift | None = None
    leave_out: Callable[[Sequence[int]], None] = lambda seqs: None
    mismatched: int = 0
    unusable: int = 0
    unjudged: int = 0
    set_aside: int = 0
    erased: int = 0
    versions: Counter[str] = field(default_factory=Counter)
    arrived: int = 0

    def __post_init__(self) -> None:
        ways: tuple[Weighing, ...] = ("items", "holdout")  # the share may be turned at any time
        mapping = self.served.mapping
        floors = [
            FloorPart(
                promise,
                by=by,
                r_max=self._r_max(promise),
                credit=self.served.credits.get(promise.name, 0.0),
                length=self.length,
                units=None if mapping.unit is None else self.unit_rows,
            )
            for promise in self.promises
            for by in ways
        ]
        self.evidence = EpochEvidence(
            floors,
            delta=delta_of_epoch(self.settings.delta, self.rounds, self.epoch.number),
            length=self.length,
            cycle=self.settings.cycle,
        )
        """Against all promises together, and by part."""
        self._limit = FEWEST
        self.after = self.epoch.after
        """The newest decision that was taken in."""
        # new items first: a fault that is about them then moves whole bins of the propensity test
        self._order = np.argsort(~self.served.catalogue.novel, kind="stable")

    @property
    def served(self) -> ServedPolicy:
        """What serves in this epoch."""
        return self.epoch.served

    def step(self, store: Store, now: float) -> int:
        """Take in what has closed since; how many decisions were read, 0 if there is no more."""
        ahead = now + AHEAD
        rows, rewards = store.read(
            after=self.after,
            until=now - self.settings.wait,
            ahead=ahead,
            wait=self.settings.wait,
            columns=COLUMNS,
            limit=self._limit,
            erased=True,
        )
        self._limit = min(2 * self._limit, MOST) if len(rows) == self._limit else FEWEST
        if not rows:
            return 0
        wrong = [row.seq for row in rows if not (0 <= row.at <= ahead or row.set_aside)]
        if wrong:
            self.leave_out(wrong)  # before a later row is judged
        aside = {*wrong, *(row.seq for row in rows if row.set_aside)}
        own = [row for row in rows if self._counts(row)]
        counted = [row for row in own if row.seq not in aside]
        closed = ClosedDecisions.of(counted, rewards) if counted else None
        if closed is not None:
            self._judge(closed)
        self.set_aside += len(own) - len(counted)
        # rows that were not judged are read again; those that were must not be judged twice
        self.after = int(rows[-1].seq)
        live = [row for row in counted if row.erased is None]
        self.erased += len(counted) - len(live)
        if live:
            self._note(ClosedDecisions.of(live, rewards))
        return len(rows)

    @property
    def findings(self) -> list[MonitorFinding]:
        """Every test, as it stands."""
        if self.served.is_pi0:
            words = "pi0 serves: there is nothing to fall back to"
            return [MonitorFinding("pi0", MonitorState.HEALTHY, words)]
        findings = [_finding(part, waits=self.waits) for part in self.evidence.parts]
        if self.unusable:
            words = f"{self.unusable:,} rewards are outside their range, and count at their worst"
            findings.append(MonitorFinding("unusable rewards", MonitorState.WATCH, words))
        if self.set_aside:
            words = f"{self.set_aside:,} decisions are stamped ahead of the clock, and set aside"
            findings.append(MonitorFinding("clocks", MonitorState.WATCH, words))
        if self.unjudged:
            words = f"{self.unjudged:,} decisions have probabilities outside their range"
            findings.append(MonitorFinding("unusable probabilities", MonitorState.WATCH, words))
        if self.erased:
            words = f"{self.erased:,} decisions were erased, and count at their worst"
            findings.append(MonitorFinding("erased decisions", MonitorState.HEALTHY, words))
        if self.mismatched:
            words = f"{self.mismatched:,} rewards name another item than was decided"
            findings.append(MonitorFinding("shown items", MonitorState.WATCH, words))
        if self.versions:
            named = ", ".join(f"{name} ({n:,})" for name, n in self.versions.most_common(3))
            words = f"decisions of another version of pi0 than was certified: {named}"
            findings.append(MonitorFinding("versions of pi0", MonitorState.WATCH, words))
        if self.arrived:
            words = f"{self.arrived:,} decisions are pi0's: {ARRIVED}"
            findings.append(MonitorFinding("items that arrived", MonitorState.WATCH, words))
        if self.drift is not None:
            column, errors = self.drift.worst
            words = f"context column {column} has moved most: {errors:.1f} standard errors"
            # contexts that move are no proof of harm, so they never stop the policy
            state = MonitorState.WAITING if self.waits else MonitorState.HEALTHY
            state = MonitorState.WATCH if self.drift.doubtful else state
            findings.append(MonitorFinding("drift of contexts", state, words))
        return findings

    @property
    def grave(self) -> list[MonitorFinding]:
        """Those for which the policy must stop."""
        return [finding for finding in self.findings if finding.state is MonitorState.STOPPED]

    @property
    def waits(self) -> bool:
        """Whether too little was judged to say anything: of any promise, or in all."""
        return self.evidence.n < FEWEST_JUDGED or not self.evidence.judges_all

    @property
    def blind(self) -> str:
        """Why what was read does not amount to watching; "" if it does."""
        if any(math.isnan(part.log_evidence) for part in self.evidence.parts):
            return "the evidence is not a number"
        read, lost = self.evidence.n + self.set_aside, self.unjudged + self.set_aside
        if lost < FEWEST_JUDGED or lost <= BLIND * read:
            return ""
        return (
            f"{lost:,} of {read:,} decisions cannot be judged: {self.set_aside:,} are stamped "
            f"ahead of the clock, {self.unjudged:,} have probabilities outside their range; mend "
            "that, then stop the policy and resume it"
        )

    @property
    def state(self) -> MonitorState:
        """The worst of any test; where all are well, whether enough was judged to say so."""
        states = {finding.state for finding in self.findings}
        worse = (MonitorState.STOPPED, MonitorState.WATCH)
        well = MonitorState.WAITING if self.waits else MonitorState.HEALTHY
        return next((state for state in worse if state in states), well)

    def _counts(self, row: Any) -> bool:
        """Rows of requests of another kind, and of the fallback, say nothing of the policy."""
        served = self.served
        same = (row.round, row.policy) == (served.round, served.hash)
        same = same and row.holdout < 1  # a shadow decides nothing
        if same and row.why == ARRIVED:
            self.arrived += 1
        if same and row.why == OTHER_VERSION:
            self.versions[row.version or "without a name"] += 1
            return False
        return same and row.decided_by != "pi0" and served.covers(row.candidates is not None)

    def _reward(self, closed: ClosedDecisions, promise: Promise | None = None) -> FloatArray:
        """(n,) the reward that a promise is about; without one, that the campaign goes by."""
        mapping = self.served.mapping
        if promise is not None and promise.reward is not None:
            return rewards_by_rule(closed.ids, closed.rewards, promise.reward, self.settings)
        raw = rewards_by_rule(closed.ids, closed.rewards, mapping.reward, self.settings)
        return used_reward(raw, mapping)

    def _judge(self, closed: ClosedDecisions) -> None:
        """Add rows to the evidence, all or none."""
        judgeable, unusable = closed.judgeable, 0
        rewards, within = {}, {}
        for promise in self.promises:
            reward, mask = self._reward(closed, promise), closed.within(promise) & judgeable
            rewards[promise.name], within[promise.name] = reward, mask
            unusable += int((mask & ~in_range(reward, self._r_max(promise))).sum())
        audited, places, wrong = self._audited(closed)
        self.evidence.add(
            JudgedRows(
                at=closed.at,
                held=closed.held,
                p_policy=closed.p_policy,
                p_pi0=closed.p_pi0,
                holdout=closed.holdout,
                rewards=rewards,
                within=within,
                unit=closed.unit,
                erased=closed.erased,
                audited=audited,
                places=places,
                wrong=wrong,
            )
        )
        self.unusable += unusable
        self.unjudged += int((~judgeable).sum())

    def _r_max(self, promise: Promise) -> float:
        """The largest reward that a promise is about."""
        return self.served.mapping.r_max if promise.r_max is None else promise.r_max

    def _audited(self, closed: ClosedDecisions) -> tuple[IntArray, FloatArray, int]:
        """(rows, places, wrong) of some rows whose distributions are computed again."""
        live = np.flatnonzero(np.isnan(closed.erased))
        sample = live[:: max(1, len(live) // AUDITED)]
        if not len(sample):
            return sample, np.zeros(0), 0
        p, below, mass = closed.recomputed(sample, self.served, self._order)
        logged = closed.propensity[sample]
        right = (np.abs(p - logged) <= TOLERANCE * logged) & (logged <= 1)
        wrong = int((~right).sum())  # and so is what is not a number
        # chance from the id, which the draw did not use: the same after a restart
        chance = np.array([int(closed.ids[k][-13:], 16) / 16**13 for k in sample])
        return sample, np.clip(below + chance * mass, 0.0, 1.0), wrong

    def _note(self, closed: ClosedDecisions) -> None:
        """Count what no promise rests on: contexts that move, rewards of other items."""
        if self.drift is not None:
            self.drift.add(self.served.reader.contexts(closed.contexts))
        decided = dict(zip(closed.ids, closed.action.tolist(), strict=True))
        self.mismatched += sum(
            row.shown is not None and row.shown != decided.get(row.decision, row.shown)
            for row in closed.rewards
        )


def _finding(part: PartEvidence, *, waits: bool) -> MonitorFinding:
    state = MonitorState.WAITING if waits else MonitorState.HEALTHY
    if part.refuted:
        state = MonitorState.STOPPED
    elif part.doubtful:
        state = MonitorState.WATCH
    return MonitorFinding(part.name, state, part.words, part.share)
