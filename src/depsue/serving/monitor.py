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
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import msgspec
import numpy as np

from depsue import defaults
from depsue.bounds import SMOOTHING_SCALES, log_sums, smoothing_from_sums
from depsue.campaigns import Campaign
from depsue.campaigns.records import RoundLength
from depsue.certificates import Registration, UnitRows
from depsue.data.checks import FloatArray, IntArray, Mask
from depsue.data.identity import keyed_folds, unit_identities
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
    weights,
)
from depsue.serving.joining import rewards_by_rule, used_reward
from depsue.serving.served import ServedPolicy, as_text
from depsue.serving.settings import ServingSettings
from depsue.serving.stops import EventLog
from depsue.serving.store import MonitorEvent, Store

log = logging.getLogger(__name__)
FEWEST, MOST = 100, 4000
"""Decisions that are read in one step: few while most are still open, more to catch up."""
SHOWN = 0.05
"""Error rate of the confidence sequences that pages show."""
AUDITED = 200
"""Decisions of one step whose distributions are computed again."""
FEWEST_JUDGED = 100
"""Decisions before which the monitor says that it waits for data."""
RECENT = 2000
"""Newest decisions whose mean is looked at beside that of all: a fault may begin late."""
FEWEST_HELD = 30
"""Decisions of the holdout before which they are no estimate of pi0's value."""
AHEAD = 60.0
"""Seconds by which clocks may differ: a decision that is stamped further ahead is set aside."""
LEAST = 1e-150
"""Probability below which a decision cannot be weighed: its weight would be no number."""
BLIND = 0.1
"""Share of decisions that cannot be judged beyond which the policy counts as not watched."""
COLUMNS = ("round", "policy", "decided_by", "action", "propensity", "p_policy", "p_pi0", "holdout",
           "context", "unit", "candidates")  # fmt: skip


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


@dataclass(frozen=True)
class MonitorPoint:
    """The live values at one time: mean and confidence sequence of the policy and of pi0.

    Args:
        at: of the newest decision.
        n: decisions of the policy so far.
        policy, pi0: (mean, lower, upper); pi0's from the holdout, None without one.
        novelty: share of the policy's decisions that showed a new item.
        margin: earned above the floor so far, an estimate; None where it is not known.
    """

    at: float
    n: int
    policy: tuple[float, float, float]
    pi0: tuple[float, float, float] | None
    novelty: float
    margin: float | None


@dataclass(frozen=True)
class PointEstimate:
    """What the served policy earns and what it is held against: estimates, no test uses them.

    Args:
        name: of the promise.
        served: decisions of the policy.
        decisions: those of them that the means are of: whose rewards may be looked at.
        value: the mean reward of them; None before there is one.
        recent: the same of the newest 2,000 or so.
        floor: the least value that the promise allows: its share of pi0's mean on the holdout, or
            without a holdout of pi0's value by importance weights; None while that is not known.
    """

    name: str
    served: int
    decisions: int
    value: float | None
    recent: float | None
    floor: float | None

    @property
    def below(self) -> bool:
        """Whether a mean lies below the floor."""
        means = (self.value, self.recent)
        floor = self.floor
        return floor is not None and any(mean is not None and mean < floor for mean in means)

    @property
    def margin(self) -> float | None:
        """Earned above the floor so far, summed over decisions; None while it is not known."""
        if self.value is None or self.floor is None:
            return None
        return self.served * (self.value - self.floor)

    def __str__(self) -> str:
        value = "not known" if self.value is None else f"{self.value:.4g}"
        recent = "" if self.recent is None else f", {self.recent:.4g} lately"
        floor = "not known yet" if self.floor is None else f"{self.floor:.4g}"
        return f"value {value}{recent}; floor {floor}; {self.decisions:,} decisions"


class PromiseValue:
    """Sums up what a promise's reward was, for `PointEstimate`.

    Args:
        promise: whose.
        held_out: whether a holdout measures pi0.
    """

    def __init__(self, promise: Promise, *, held_out: bool) -> None:
        self._promise, self._held_out = promise, held_out
        self._served, self._n, self._sum = 0, 0, 0.0
        self._n_pi0, self._sum_pi0 = 0, 0.0
        self._newest: deque[tuple[int, float]] = deque()
        self._n_newest = 0

    def add(self, reward: FloatArray, held: Mask, w0: FloatArray, *, served: int) -> None:
        """Take in (n,) rewards within their range, which may be looked at.

        Args:
            served: decisions of the policy, looked at or not.
            reward: of decisions of the policy and of its holdout.
            held: (n,) whether the holdout decided.
            w0: (n,) weights for pi0, by items.
        """
        own = reward[~held]
        self._served += served
        self._n += len(own)
        self._sum += float(own.sum())
        if len(own):
            self._newest.append((len(own), float(own.sum())))
            self._n_newest += len(own)
        while self._n_newest - self._newest_first >= RECENT:
            self._n_newest -= self._newest.popleft()[0]
        of_pi0 = reward[held] if self._held_out else reward * w0
        self._n_pi0 += len(of_pi0)
        self._sum_pi0 += float(of_pi0.sum())

    @property
    def _newest_first(self) -> float:
        return self._newest[0][0] if self._newest else math.inf

    @property
    def estimate(self) -> PointEstimate:
        """As it stands."""
        floor, ratio = self._promise.floor.absolute, self._promise.floor.ratio
        if ratio is not None:
            known = self._n_pi0 >= FEWEST_HELD
            floor = ratio * self._sum_pi0 / self._n_pi0 if known else None
        recent = sum(total for _, total in self._newest) / max(self._n_newest, 1)
        return PointEstimate(
            name=self._promise.name,
            served=self._served,
            decisions=self._n,
            value=self._sum / self._n if self._n else None,
            recent=recent if self._n else None,
            floor=floor,
        )


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
            folds=self._folds(epoch.served),
        )

    def _folds(self, served: ServedPolicy) -> Registration | None:
        """What the folds of later rows hang on; None where it is drawn when they are observed."""
        try:
            first = self._campaign.ledger.registration(self._campaign.name, 0)
        except DepsueError:  # a campaign of before there were registrations
            return None
        return first if first.kind == "unit" and served.mapping.unit is not None else None

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


@dataclass(frozen=True)
class ClosedDecisions:
    """Decisions of the policy and its holdout whose rewards are complete.

    Args:
        ids: (n,) of the decisions.
        at: (n,) when they were made.
        contexts: (n,) by column.
        action: (n,) places of the items.
        held: (n,) whether the holdout decided.
        propensity, p_policy, p_pi0: (n,) of the action.
        holdout: (n,) its share at the time.
        unit: (n,) as requested.
        rewards: as `Store.read` gives them.
    """

    ids: list[str]
    at: FloatArray
    contexts: list[dict[str, Any]]
    action: IntArray
    held: Mask
    propensity: FloatArray
    p_policy: FloatArray
    p_pi0: FloatArray
    holdout: FloatArray
    unit: list[str | None]
    rewards: Sequence[Any]

    @classmethod
    def of(cls, rows: Sequence[Any], rewards: Sequence[Any]) -> ClosedDecisions:
        """From rows of the store."""
        return cls(
            ids=[row.id for row in rows],
            at=np.array([row.at for row in rows], dtype=np.float64),
            contexts=[msgspec.json.decode(row.context) for row in rows],
            action=np.array([row.action for row in rows]),
            held=np.array([row.decided_by == "holdout" for row in rows]),
            propensity=np.array([row.propensity for row in rows]),
            p_policy=np.array([row.p_policy for row in rows]),
            p_pi0=np.array([row.p_pi0 for row in rows]),
            holdout=np.array([row.holdout for row in rows]),
            unit=[row.unit for row in rows],
            rewards=rewards,
        )

    def __len__(self) -> int:
        return len(self.ids)

    def weighed(self, by: Weighing) -> tuple[FloatArray, FloatArray]:
        """(w, w0), each (n,): the weights for the policy and for pi0."""
        return weights(self.p_policy, self.p_pi0, self.held, self.holdout, by)

    @property
    def judgeable(self) -> Mask:
        """(n,) whether probabilities lie in their ranges, so that rewards can be weighed."""
        with np.errstate(all="ignore"):
            mixed = (1 - self.holdout) * self.p_policy + self.holdout * self.p_pi0
        known = (self.p_policy >= 0) & (self.p_pi0 >= 0)
        return np.asarray(known & (mixed >= LEAST) & (mixed <= 1 + TOLERANCE))

    def within(self, promise: Promise) -> Mask:
        """(n,) which decisions a promise is about."""
        if promise.segment is None:
            return np.ones(len(self), dtype=bool)
        column, value = promise.segment
        return np.array([as_text(row.get(column)) == as_text(value) for row in self.contexts])


class ConfidenceSequence:
    """A mean with a confidence sequence: right at all times together in 95% of runs.

    Args:
        r_max: values lie in [0, r_max].
    """

    def __init__(self, r_max: float) -> None:
        self._scales = SMOOTHING_SCALES * r_max
        self._low, self._high = np.zeros(len(self._scales)), np.zeros(len(self._scales))
        self.n, self._sum, self._r_max = 0, 0.0, r_max

    def add(self, values: FloatArray) -> None:
        """Take in (n,) values."""
        self._low += log_sums(values, self._scales)
        self._high += log_sums(self._r_max - values, self._scales)
        self.n += len(values)
        self._sum += float(values.sum())

    @property
    def limits(self) -> tuple[float, float, float]:
        """(mean, lower, upper)."""
        if self.n == 0:
            return math.nan, 0.0, self._r_max
        low = smoothing_from_sums(self._low, self.n, self._scales, SHOWN / 2)
        high = self._r_max - smoothing_from_sums(self._high, self.n, self._scales, SHOWN / 2)
        return self._sum / self.n, low, high


class ContextDrift:
    """Whether contexts are still like those of the logs that certified the policy.

    Args:
        mean, deviation: (d,) of the logs' contexts.
        n: how many they are.
    """

    def __init__(self, mean: FloatArray, deviation: FloatArray, n: int) -> None:
        self._mean, self._deviation, self._reference = mean, deviation, n
        self._sum, self.n = np.zeros(len(mean)), 0

    def add(self, contexts: FloatArray) -> None:
        """Take in (n, d) contexts."""
        self._sum += np.asarray(contexts, dtype=np.float64).sum(axis=0)
        self.n += len(contexts)

    @property
    def worst(self) -> tuple[int, float]:
        """(column, standard errors) of the mean that has moved most."""
        if self.n < 100:
            return 0, 0.0
        spread = np.where(self._deviation > 0, self._deviation, np.inf)
        error = spread * math.sqrt(1 / self.n + 1 / self._reference)
        apart = np.abs(self._sum / self.n - self._mean) / error
        return int(apart.argmax()), float(apart.max())

    @property
    def doubtful(self) -> bool:
        """Whether a mean has moved by more than chance explains, looked at again and again."""
        d = len(self._mean)
        looks = math.log(max(self.n, 2)) * d / 0.001
        return self.worst[1] > math.sqrt(2 * math.log(looks))


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
        folds: what the folds of the served rows will hang on, where that is known already: with
            units. Means are then of rows that no verdict will read.
        points: the live values over time.
        mismatched: rewards that name another item than was decided.
        unusable: rewards outside their range; each counts at its worst for its promise.
        unjudged: decisions whose probabilities are outside their range, which no test can use.
        set_aside: decisions of the policy that were stamped ahead of the clock.
    """

    epoch: MonitorEpoch
    settings: ServingSettings
    promises: tuple[Promise, ...]
    rounds: int
    length: int = defaults.WATCHED
    unit_rows: UnitRows = "all rows"
    drift: ContextDrift | None = None
    leave_out: Callable[[Sequence[int]], None] = lambda seqs: None
    folds: Registration | None = None
    points: list[MonitorPoint] = field(default_factory=list)
    mismatched: int = 0
    unusable: int = 0
    unjudged: int = 0
    set_aside: int = 0

    def __post_init__(self) -> None:
        ways: tuple[Weighing, ...] = ("items", "holdout")
        ways = ways if self.settings.holdout > 0 else ways[:1]
        mapping = self.served.mapping
        floors = [
            FloorPart(
                promise,
                by=by,
                r_max=self._r_max(promise),
                credit=self.served.credits.get(promise.name, 0.0),
                holdout=self.settings.holdout,
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
        self._policy = ConfidenceSequence(mapping.r_max)
        self._pi0 = ConfidenceSequence(mapping.r_max)
        self._novel = 0
        held_out = self.settings.holdout > 0
        self._values = {
            promise.name: PromiseValue(promise, held_out=held_out) for promise in self.promises
        }
        self._limit = FEWEST
        self.after = self.epoch.after
        """The newest decision that was taken in."""
        size = len(self.served.catalogue)
        self.shown: IntArray = np.zeros(size, dtype=np.int64)
        self.looked: IntArray = np.zeros(size, dtype=np.int64)
        self.earned: FloatArray = np.zeros(size)
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
        if closed is not None:
            self._note(closed)
        return len(rows)

    @property
    def findings(self) -> list[MonitorFinding]:
        """Every test, as it stands."""
        if self.served.is_pi0:
            words = "pi0 serves: there is nothing to fall back to"
            return [MonitorFinding("pi0", MonitorState.HEALTHY, words)]
        findings = [_finding(part) for part in self.evidence.parts]
        for estimate in self.estimates:
            if estimate.decisions >= FEWEST_JUDGED:
                state = MonitorState.WATCH if estimate.below else MonitorState.HEALTHY
                findings.append(MonitorFinding(f"{estimate.name}, mean", state, str(estimate)))
        if self.unusable:
            words = f"{self.unusable:,} rewards are outside their range, and count at their worst"
            findings.append(MonitorFinding("unusable rewards", MonitorState.WATCH, words))
        if self.set_aside:
            words = f"{self.set_aside:,} decisions are stamped ahead of the clock, and set aside"
            findings.append(MonitorFinding("clocks", MonitorState.WATCH, words))
        if self.unjudged:
            words = f"{self.unjudged:,} decisions have probabilities outside their range"
            findings.append(MonitorFinding("unusable probabilities", MonitorState.WATCH, words))
        if self.mismatched:
            words = f"{self.mismatched:,} rewards name another item than was decided"
            findings.append(MonitorFinding("shown items", MonitorState.WATCH, words))
        if self.drift is not None:
            column, errors = self.drift.worst
            words = f"context column {column} has moved most: {errors:.1f} standard errors"
            # contexts that move are no proof of harm, so they never stop the policy
            state = MonitorState.WATCH if self.drift.doubtful else MonitorState.HEALTHY
            findings.append(MonitorFinding("drift of contexts", state, words))
        return findings

    @property
    def grave(self) -> list[MonitorFinding]:
        """Those for which the policy must stop."""
        return [finding for finding in self.findings if finding.state is MonitorState.STOPPED]

    @property
    def estimates(self) -> list[PointEstimate]:
        """What each promise's reward was, and its floor."""
        return [value.estimate for value in self._values.values()]

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
        worst = max((finding.state for finding in self.findings), key=list(MonitorState).index)
        waits = self.waits and worst is MonitorState.HEALTHY
        return MonitorState.WAITING if waits else worst

    def _counts(self, row: Any) -> bool:
        """Restricted rows, and those of the fallback, say nothing of the certified policy."""
        served = self.served
        same = (row.round, row.policy) == (served.round, served.hash)
        same = same and (served.is_pi0 or row.holdout == self.settings.holdout)
        return same and row.decided_by != "pi0" and row.candidates is None

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
        sample = np.arange(0, len(closed), max(1, len(closed) // AUDITED))
        contexts = self.served.reader.contexts([closed.contexts[k] for k in sample])
        own, base = self.served.distributions(contexts)
        pi = np.where(closed.held[sample][:, None], base, own)[:, self._order]
        place = np.argsort(self._order)[closed.action[sample]]
        rows = np.arange(len(sample))
        p = pi[rows, place]
        logged = closed.propensity[sample]
        right = (np.abs(p - logged) <= TOLERANCE * logged) & (logged <= 1)
        wrong = int((~right).sum())  # and so is what is not a number
        below = np.cumsum(pi, axis=1, dtype=np.float64)[rows, place] - p
        # chance from the id, which the draw did not use: the same after a restart
        chance = np.array([int(closed.ids[k][-13:], 16) / 16**13 for k in sample])
        return sample, np.clip(below + chance * p, 0.0, 1.0), wrong

    def _looked(self, closed: ClosedDecisions) -> Mask:
        """(n,) whose rewards may be looked at: the holdout's, and those of units to learn from.

        Where the folds are not known yet these are all: a secret is drawn when rows are observed.
        """
        if self.folds is None:
            return np.ones(len(closed), dtype=bool)
        names = unit_identities(_unit_ids(closed.unit))
        fold = keyed_folds(names, self.folds.fractions, self.folds.secret)
        return np.asarray(closed.held | (fold < 2))

    def _note(self, closed: ClosedDecisions) -> None:
        """Add to the live values, which pages show and no test uses."""
        if self.drift is not None:
            self.drift.add(self.served.reader.contexts(closed.contexts))
        decided = dict(zip(closed.ids, closed.action.tolist(), strict=True))
        self.mismatched += sum(
            row.shown is not None and row.shown != decided.get(row.decision, row.shown)
            for row in closed.rewards
        )
        reward = self._reward(closed)
        judgeable = closed.judgeable
        usable, looked = (
            judgeable & in_range(reward, self.served.mapping.r_max),
            self._looked(closed),
        )
        held, own, action = closed.held & usable, ~closed.held & usable, closed.action
        read = own & looked
        self._policy.add(reward[read])
        if held.any():
            self._pi0.add(reward[held])
        self._novel += int((self.served.catalogue.novel[action] & read).sum())
        self.shown += np.bincount(action[own], minlength=len(self.shown))
        self.looked += np.bincount(action[read], minlength=len(self.shown))
        self.earned += np.bincount(action[read], reward[read], minlength=len(self.shown))
        with np.errstate(all="ignore"):  # of rows that cannot be judged
            _, w0 = closed.weighed("items")
        for promise in self.promises:
            earned = self._reward(closed, promise)
            about = closed.within(promise)
            mask = about & judgeable & looked & in_range(earned, self._r_max(promise))
            served = int((about & ~closed.held).sum())
            self._values[promise.name].add(earned[mask], closed.held[mask], w0[mask], served=served)
        n = self._policy.n
        if not n or (self.points and n < 1.02 * self.points[-1].n):
            return
        self.points.append(
            MonitorPoint(
                at=float(closed.at[-1]),
                n=n,
                policy=self._policy.limits,
                pi0=self._pi0.limits if self._pi0.n else None,
                novelty=self._novel / n,
                margin=self.estimates[0].margin,
            )
        )


def _unit_ids(units: Sequence[str | None]) -> np.ndarray[Any, Any]:
    """(n,) ids of units as the logs' reader has them: whole numbers, or else text."""
    ids = [None if unit is None else msgspec.json.decode(unit) for unit in units]
    if all(type(id) is int for id in ids):
        return np.array(ids, dtype=np.int64)
    return np.array([as_text(id) for id in ids])


def in_range(reward: FloatArray, r_max: float) -> Mask:
    """(n,) which rewards lie in [0, r_max]."""
    return np.asarray((reward >= 0) & (reward <= r_max))


def _finding(part: PartEvidence) -> MonitorFinding:
    state = MonitorState.HEALTHY
    if part.refuted:
        state = MonitorState.STOPPED
    elif part.doubtful:
        state = MonitorState.WATCH
    return MonitorFinding(part.name, state, part.words, part.share)
