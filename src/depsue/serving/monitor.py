"""The safety monitor: does the served policy earn what its round needs?

`Monitor` watches what serves, epoch by epoch. An epoch begins when a policy is deployed and when a
stopped policy is resumed. `MonitorRun` is the work of one epoch: it takes in decisions whose
waiting time has closed, in the order they were made, and adds them to the epoch's `evidence`.

All that a run knows comes from the store. After a restart the same epoch is read again from its
first decision, so a crash neither loses evidence nor spends delta a second time.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import msgspec
import numpy as np

from depsue import defaults
from depsue.bounds import SMOOTHING_SCALES, log_sums, smoothing_from_sums
from depsue.campaigns import Campaign
from depsue.campaigns.records import RoundLength
from depsue.certificates import UnitRows
from depsue.data.checks import FloatArray, IntArray, Mask
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
from depsue.serving.store import Store

log = logging.getLogger(__name__)
FEWEST, MOST = 100, 4000
"""Decisions that are read in one step: few while most are still open, more to catch up."""
SHOWN = 0.05
"""Error rate of the confidence sequences that pages show."""
AUDITED = 200
"""Decisions of one step whose distributions are computed again."""
COLUMNS = ("round", "policy", "decided_by", "action", "propensity", "p_policy", "p_pi0", "holdout",
           "context", "unit", "candidates")  # fmt: skip


class MonitorState(StrEnum):
    """How the policy stands, from good to bad."""

    HEALTHY = "healthy"
    WATCH = "watch"
    STOPPED = "stopped"


@dataclass(frozen=True)
class MonitorFinding:
    """One test, as it stands.

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


@dataclass(frozen=True, eq=False)
class MonitorEpoch:
    """A stretch of decisions that the monitor judges together.

    Args:
        served: what serves.
        number: j, from 1, of its round; the share of delta halves with each.
        after: the newest decision before it.
    """

    served: ServedPolicy
    number: int
    after: int


class Monitor:
    """Watches what serves.

    Args:
        campaign: its promises, its rounds, and the logs that contexts are compared with.
        settings: waiting time, rule, default, holdout and delta.
        store: where decisions are read.
        events: where epochs are recorded.
    """

    def __init__(
        self, campaign: Campaign, settings: ServingSettings, store: Store, events: EventLog
    ) -> None:
        self._campaign, self._settings, self._store = campaign, settings, store
        self._events = events
        self._epoch: MonitorEpoch | None = None
        self.run: MonitorRun | None = None
        """Of the present epoch; None before the first look."""

    def watches(self, served: ServedPolicy) -> bool:
        """Whether an epoch of what serves has begun."""
        epoch = self._epoch
        return epoch is not None and epoch.served is served

    def begin(self, served: ServedPolicy) -> None:
        """Take up the present epoch of what serves, or begin one; before its first decision."""
        events = [event for event in self._events.read() if event.round == served.round]
        earlier = [event for event in events if event.kind != "stop"]
        newest = earlier[-1] if earlier else None
        if newest is None or newest.kind == "resume" or newest.policy != served.hash:
            number = 1 + sum(event.kind == "watch" for event in earlier)
            self._events.add("watch", served, f"epoch {number}", "depsue")
            events = [event for event in self._events.read() if event.round == served.round]
        epochs = [event for event in events if event.kind == "watch"]
        self._epoch = MonitorEpoch(served, len(epochs), epochs[-1].after)

    def look(
        self, served: ServedPolicy, now: float, *, stopped: bool, ending: threading.Event
    ) -> list[MonitorFinding]:
        """Take in all that has closed; the findings for which the policy must stop.

        Args:
            served: what serves.
            now: seconds since 1970.
            stopped: whether it has stopped already; then there is no hurry to say so.
            ending: set when the service ends, however much is left to read.
        """
        self._events.read()
        if self._epoch is None:
            self.begin(served)
        epoch = self._epoch
        assert epoch is not None
        if self.run is None or self.run.epoch is not epoch:
            self.run = self._begun(epoch)
        run = self.run
        while run.step(self._store, now) and not ending.is_set():
            if run.grave and not stopped:
                break  # the rest can wait until pi0 decides
        return run.grave

    @property
    def state(self) -> MonitorState:
        """The worst state of any test."""
        return MonitorState.HEALTHY if self.run is None else self.run.state

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

    def usable(self, reward: FloatArray, r_max: float) -> Mask:
        """(n,) whether reward and probabilities lie in their ranges."""
        mixed = (1 - self.holdout) * self.p_policy + self.holdout * self.p_pi0
        known = (self.p_policy >= 0) & (self.p_pi0 >= 0) & (mixed > 0) & (mixed <= 1 + TOLERANCE)
        return np.asarray(known & (reward >= 0) & (reward <= r_max))

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
        points: the live values over time.
        mismatched: rewards that name another item than was decided.
        unjudged: rewards and probabilities outside their range, which no test can use.
    """

    epoch: MonitorEpoch
    settings: ServingSettings
    promises: tuple[Promise, ...]
    rounds: int
    length: int = defaults.WATCHED
    unit_rows: UnitRows = "all rows"
    drift: ContextDrift | None = None
    points: list[MonitorPoint] = field(default_factory=list)
    mismatched: int = 0
    unjudged: int = 0

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
        self._margin, self._novel = 0.0, 0
        self._limit = FEWEST
        self.after = self.epoch.after
        """The newest decision that was taken in."""
        size = len(self.served.catalogue)
        self.shown: IntArray = np.zeros(size, dtype=np.int64)
        self.earned: FloatArray = np.zeros(size)
        # new items first: a fault that is about them then moves whole bins of the propensity test
        self._order = np.argsort(~self.served.catalogue.novel, kind="stable")

    @property
    def served(self) -> ServedPolicy:
        """What serves in this epoch."""
        return self.epoch.served

    def step(self, store: Store, now: float) -> bool:
        """Take in what has closed since; whether there may be more at once."""
        rows, rewards = store.read(
            after=self.after,
            until=now - self.settings.wait,
            wait=self.settings.wait,
            columns=COLUMNS,
            limit=self._limit,
        )
        self._limit = min(2 * self._limit, MOST) if len(rows) == self._limit else FEWEST
        if not rows:
            return False
        counted = [row for row in rows if self._counts(row)]
        closed = ClosedDecisions.of(counted, rewards) if counted else None
        if closed is not None:
            self._judge(closed)
        # rows that were not judged are read again; those that were must not be judged twice
        self.after = int(rows[-1].seq)
        if closed is not None:
            self._note(closed)
        return True

    @property
    def findings(self) -> list[MonitorFinding]:
        """Every test, as it stands."""
        if self.served.is_pi0:
            words = "pi0 serves: there is nothing to fall back to"
            return [MonitorFinding("pi0", MonitorState.HEALTHY, words)]
        findings = [_finding(part) for part in self.evidence.parts]
        if self.unjudged:
            words = f"{self.unjudged:,} rewards or probabilities are outside their range"
            findings.append(MonitorFinding("unusable rewards", MonitorState.WATCH, words))
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
    def state(self) -> MonitorState:
        """The worst state of any test."""
        states = {finding.state for finding in self.findings}
        return next(state for state in reversed(MonitorState) if state in states)

    def _counts(self, row: Any) -> bool:
        """Restricted rows, and those of the fallback, say nothing of the certified policy."""
        served = self.served
        same = (row.round, row.policy) == (served.round, served.hash)
        same = same and (served.is_pi0 or row.holdout == self.settings.holdout)
        return same and row.decided_by != "pi0" and row.candidates is None

    def _reward(self, closed: ClosedDecisions) -> FloatArray:
        """(n,) the reward that the campaign goes by."""
        mapping = self.served.mapping
        raw = rewards_by_rule(closed.ids, closed.rewards, mapping.reward, self.settings)
        return used_reward(raw, mapping)

    def _judge(self, closed: ClosedDecisions) -> None:
        """Add rows to the evidence, all or none."""
        reward, unjudged = self._reward(closed), 0
        rewards, within = {}, {}
        for promise in self.promises:
            earned = reward
            if promise.reward is not None:
                earned = rewards_by_rule(closed.ids, closed.rewards, promise.reward, self.settings)
            mask, usable = closed.within(promise), closed.usable(earned, self._r_max(promise))
            unjudged += int((mask & ~usable).sum())
            rewards[promise.name], within[promise.name] = earned, mask & usable
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
        self.unjudged += unjudged

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
        wrong = int((~(np.abs(p / closed.propensity[sample] - 1) <= TOLERANCE)).sum())
        below = np.cumsum(pi, axis=1, dtype=np.float64)[rows, place] - p
        # chance from the id, which the draw did not use: the same after a restart
        chance = np.array([int(closed.ids[k][-13:], 16) / 16**13 for k in sample])
        return sample, np.clip(below + chance * p, 0.0, 1.0), wrong

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
        usable = closed.usable(reward, self.served.mapping.r_max)
        held, own, action = closed.held & usable, ~closed.held & usable, closed.action
        self._policy.add(reward[own])
        if held.any():
            self._pi0.add(reward[held])
        self._novel += int((self.served.catalogue.novel[action] & own).sum())
        self.shown += np.bincount(action[own], minlength=len(self.shown))
        self.earned += np.bincount(action[own], reward[own], minlength=len(self.shown))
        w, w0 = closed.weighed("items")
        floor = self.promises[0].floor
        need = (floor.ratio or 0.0) * w0 * reward + (floor.absolute or 0.0)
        self._margin += float((w * reward - need)[usable].sum())
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
                margin=self._margin if not math.isnan(self._margin) else None,
            )
        )


def _finding(part: PartEvidence) -> MonitorFinding:
    state = MonitorState.HEALTHY
    if part.refuted:
        state = MonitorState.STOPPED
    elif part.doubtful:
        state = MonitorState.WATCH
    return MonitorFinding(part.name, state, part.words, part.share)
