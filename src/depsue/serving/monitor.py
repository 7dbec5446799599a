"""The safety monitor: does the served policy earn what its round needs?

`Monitor` watches what serves, epoch by epoch. An epoch begins when a policy is deployed and when a
stopped policy is resumed. `MonitorRun` is the work of one epoch: it takes in decisions whose
waiting time has closed, in the order they were made, and adds them to the tests of `evidence`.

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

from depsue.campaigns import Campaign
from depsue.data.checks import FloatArray, IntArray, Mask
from depsue.diagnostics.drawn_by import TOLERANCE
from depsue.errors import DepsueError, short
from depsue.promises import Promise
from depsue.serving.evidence import (
    ConfidenceSequence,
    ContextDrift,
    FloorTest,
    PropensityTest,
    SequentialTest,
    Weighing,
    delta_of_test,
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
AUDITED = 200
"""Decisions of one step whose distributions are computed again."""
COLUMNS = ("round", "policy", "decided_by", "action", "propensity", "p_policy", "p_pi0", "holdout",
           "context", "candidates")  # fmt: skip


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
        return MonitorRun(
            epoch,
            self._settings,
            tuple(self._campaign.settings.explore.promises),
            self._campaign.rounds,
            drift=self._drift(epoch.served),
        )

    def _drift(self, served: ServedPolicy) -> ContextDrift | None:
        """Compares contexts with those of the logs that the policy was certified on."""
        try:
            logs = self._campaign.logs(max(served.round - 1, 0))
        except (DepsueError, OSError) as problem:
            log.warning("no reference for contexts", extra={"found": short(str(problem))})
            return None
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
        at: when the newest was made.
        contexts: (n,) by column.
        action: (n,) places of the items.
        held: (n,) whether the holdout decided.
        propensity, p_policy, p_pi0: (n,) of the action.
        holdout: (n,) its share at the time.
        rewards: as `Store.read` gives them.
    """

    ids: list[str]
    at: float
    contexts: list[dict[str, Any]]
    action: IntArray
    held: Mask
    propensity: FloatArray
    p_policy: FloatArray
    p_pi0: FloatArray
    holdout: FloatArray
    rewards: Sequence[Any]

    @classmethod
    def of(cls, rows: Sequence[Any], rewards: Sequence[Any]) -> ClosedDecisions:
        """From rows of the store."""
        return cls(
            ids=[row.id for row in rows],
            at=float(rows[-1].at),
            contexts=[msgspec.json.decode(row.context) for row in rows],
            action=np.array([row.action for row in rows]),
            held=np.array([row.decided_by == "holdout" for row in rows]),
            propensity=np.array([row.propensity for row in rows]),
            p_policy=np.array([row.p_policy for row in rows]),
            p_pi0=np.array([row.p_pi0 for row in rows]),
            holdout=np.array([row.holdout for row in rows]),
            rewards=rewards,
        )

    def __len__(self) -> int:
        return len(self.ids)

    def weighed(self, by: Weighing) -> tuple[FloatArray, FloatArray]:
        """(w, w0), each (n,): the weights for the policy and for pi0."""
        return weights(self.p_policy, self.p_pi0, self.held, self.holdout, by)

    def within(self, promise: Promise) -> Mask:
        """(n,) which decisions a promise is about."""
        if promise.segment is None:
            return np.ones(len(self), dtype=bool)
        column, value = promise.segment
        return np.array([as_text(row.get(column)) == as_text(value) for row in self.contexts])


@dataclass(eq=False)
class MonitorRun:
    """What one epoch has shown so far.

    Args:
        epoch: which.
        settings: waiting time, rule, default, holdout and delta.
        promises: of the campaign.
        rounds: K.
        drift: compares contexts; None where the logs could not be read.
        points: the live values over time.
        mismatched: rewards that name another item than was decided.
    """

    epoch: MonitorEpoch
    settings: ServingSettings
    promises: tuple[Promise, ...]
    rounds: int
    drift: ContextDrift | None = None
    points: list[MonitorPoint] = field(default_factory=list)
    mismatched: int = 0

    def __post_init__(self) -> None:
        ways: tuple[Weighing, ...] = ("items", "holdout")
        ways = ways if self.settings.holdout > 0 else ways[:1]
        tests = len(ways) * len(self.promises) + 1
        delta = delta_of_test(self.settings.delta, self.rounds, tests, self.epoch.number)
        mapping = self.served.mapping
        self._floor_tests = [
            FloorTest(
                promise,
                by=by,
                r_max=mapping.r_max if promise.r_max is None else promise.r_max,
                credit=self.served.credits.get(promise.name, 0.0),
                holdout=self.settings.holdout,
                delta=delta,
            )
            for promise in self.promises
            for by in ways
        ]
        self._propensity_test = PropensityTest(delta)
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
        self.after = int(rows[-1].seq)
        counted = [row for row in rows if self._counts(row)]
        if counted:
            self._take(ClosedDecisions.of(counted, rewards))
        return True

    @property
    def findings(self) -> list[MonitorFinding]:
        """Every test, as it stands."""
        if self.served.is_pi0:
            words = "pi0 serves: there is nothing to fall back to"
            return [MonitorFinding("pi0", MonitorState.HEALTHY, words)]
        findings = [_finding(test) for test in (*self._floor_tests, self._propensity_test)]
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

    def _take(self, closed: ClosedDecisions) -> None:
        mapping = self.served.mapping
        raw = rewards_by_rule(closed.ids, closed.rewards, mapping.reward, self.settings)
        reward = used_reward(raw, mapping)
        for test in self._floor_tests:
            promise, earned = test.promise, reward
            if promise.reward is not None:
                earned = rewards_by_rule(closed.ids, closed.rewards, promise.reward, self.settings)
            mask = closed.within(promise)
            w, w0 = closed.weighed(test.by)
            test.add(earned[mask], w[mask], w0[mask])
        self._audit(closed)
        if self.drift is not None:
            self.drift.add(self.served.reader.contexts(closed.contexts))
        decided = dict(zip(closed.ids, closed.action.tolist(), strict=True))
        self.mismatched += sum(
            row.shown is not None and row.shown != decided.get(row.decision, row.shown)
            for row in closed.rewards
        )
        self._note(closed, reward)

    def _audit(self, closed: ClosedDecisions) -> None:
        """Compute the distributions of some rows again, and place their actions in them."""
        sample = np.arange(0, len(closed), max(1, len(closed) // AUDITED))
        contexts = self.served.reader.contexts([closed.contexts[k] for k in sample])
        own, base = self.served.distributions(contexts)
        pi = np.where(closed.held[sample][:, None], base, own)[:, self._order]
        place = np.argsort(self._order)[closed.action[sample]]
        rows = np.arange(len(sample))
        p = pi[rows, place]
        wrong = int((np.abs(p / closed.propensity[sample] - 1) > TOLERANCE).sum())
        below = np.cumsum(pi, axis=1, dtype=np.float64)[rows, place] - p
        # chance from the id, which the draw did not use: the same after a restart
        chance = np.array([int(closed.ids[k][-13:], 16) / 16**13 for k in sample])
        self._propensity_test.add(np.clip(below + chance * p, 0.0, 1.0), wrong)

    def _note(self, closed: ClosedDecisions, reward: FloatArray) -> None:
        """Add to the live values, which pages show and no test uses."""
        held, action = closed.held, closed.action
        self._policy.add(reward[~held])
        if held.any():
            self._pi0.add(reward[held])
        self._novel += int((self.served.catalogue.novel[action] & ~held).sum())
        self.shown += np.bincount(action[~held], minlength=len(self.shown))
        self.earned += np.bincount(action[~held], reward[~held], minlength=len(self.shown))
        w, w0 = closed.weighed("items")
        floor = self.promises[0].floor
        need = (floor.ratio or 0.0) * w0 * reward + (floor.absolute or 0.0)
        self._margin += float((w * reward - need).sum())
        n = self._policy.n
        if not n or (self.points and n < 1.02 * self.points[-1].n):
            return
        self.points.append(
            MonitorPoint(
                at=closed.at,
                n=n,
                policy=self._policy.limits,
                pi0=self._pi0.limits if self._pi0.n else None,
                novelty=self._novel / n,
                margin=self._margin if not math.isnan(self._margin) else None,
            )
        )


def _finding(test: SequentialTest) -> MonitorFinding:
    state = MonitorState.HEALTHY
    if test.refuted:
        state = MonitorState.STOPPED
    elif test.doubtful:
        state = MonitorState.WATCH
    return MonitorFinding(test.name, state, test.words, test.share)
