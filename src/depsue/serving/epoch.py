"""One epoch of the monitor: what its decisions have shown so far.

`MonitorRun` takes in decisions whose waiting time has closed, in the order of the store, and adds
them to the epoch's `evidence`. All that it knows comes from the store: the same epoch, read again
from its first decision, gives the same run.

**Feeding.** Rows are judged once each, in the order of `seq`. A row waits until its rewards are
complete, and the rows after it wait with it: at most a minute longer than for rewards, because a
row that is stamped more than a minute ahead of the clock is not waited for. It is set aside, which
is recorded in the store before a later row is judged; so a restart, or another service, leaves out
the same rows, although their time has come by then. Twins and the rows of pi0 as the fallback are
no evidence about the policy. Where more than a tenth of the rows cannot be judged, the policy
counts as not watched.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec
import numpy as np

from depsue import defaults
from depsue.certificates import UnitRows
from depsue.data.checks import FloatArray, IntArray, Mask
from depsue.diagnostics.drawn_by import TOLERANCE
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
LEAST = 1e-150
"""Probability below which a decision cannot be weighed: its weight would be no number."""
BLIND = 0.1
"""Share of decisions that cannot be judged beyond which the policy counts as not watched."""
COLUMNS = ("round", "policy", "decided_by", "action", "propensity", "p_policy", "p_pi0", "holdout",
           "context", "unit", "candidates", "erased")  # fmt: skip


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
        erased: (n,) of tombstones the largest pi0 / p that they may have had; NaN of all others.
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
    erased: FloatArray

    @classmethod
    def of(cls, rows: Sequence[Any], rewards: Sequence[Any]) -> ClosedDecisions:
        """From rows of the store."""
        gone = np.array([row.erased is not None for row in rows])
        p_policy, p_pi0 = (
            np.array([getattr(row, p) for row in rows]) for p in ("p_policy", "p_pi0")
        )
        return cls(
            ids=[row.id for row in rows],
            at=np.array([row.at for row in rows], dtype=np.float64),
            contexts=[msgspec.json.decode(row.context) if row.context else {} for row in rows],
            action=np.array([row.action for row in rows]),
            held=np.array([row.decided_by == "holdout" for row in rows]),
            propensity=np.array([row.propensity for row in rows]),
            p_policy=np.where(gone, 1.0, p_policy),
            p_pi0=np.where(gone, 1.0, p_pi0),
            holdout=np.array([row.holdout for row in rows]),
            unit=[row.unit if row.erased is None else f"erased {row.erased}" for row in rows],
            rewards=rewards,
            erased=np.where(gone, p_pi0, np.nan),
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
        within = [as_text(row.get(column)) == as_text(value) for row in self.contexts]
        return np.array(within) | ~np.isnan(self.erased)  # perhaps it was in the segment


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
        mismatched: rewards that name another item than was decided.
        unusable: rewards outside their range; each counts at its worst for its promise.
        unjudged: decisions whose probabilities are outside their range, which no test can use.
        erased: decisions that were erased on request; each counts at its worst.
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
    mismatched: int = 0
    unusable: int = 0
    unjudged: int = 0
    set_aside: int = 0
    erased: int = 0

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

    def _note(self, closed: ClosedDecisions) -> None:
        """Count what no promise rests on: contexts that move, rewards of other items."""
        if self.drift is not None:
            self.drift.add(self.served.reader.contexts(closed.contexts))
        decided = dict(zip(closed.ids, closed.action.tolist(), strict=True))
        self.mismatched += sum(
            row.shown is not None and row.shown != decided.get(row.decision, row.shown)
            for row in closed.rewards
        )


def in_range(reward: FloatArray, r_max: float) -> Mask:
    """(n,) which rewards lie in [0, r_max]."""
    return np.asarray((reward >= 0) & (reward <= r_max))


def _finding(part: PartEvidence, *, waits: bool) -> MonitorFinding:
    state = MonitorState.WAITING if waits else MonitorState.HEALTHY
    if part.refuted:
        state = MonitorState.STOPPED
    elif part.doubtful:
        state = MonitorState.WATCH
    return MonitorFinding(part.name, state, part.words, part.share)
