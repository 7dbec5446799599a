"""Feeds the monitor with decisions whose waiting time has closed, in the order they were made.

What it knows is a function of the store alone: after a restart it is read again, from where the
present epoch began.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from depsue.data.checks import FloatArray, IntArray
from depsue.diagnostics.drawn_by import TOLERANCE
from depsue.promises import Promise
from depsue.serving.contexts import as_text
from depsue.serving.joining import earned_by, used_reward
from depsue.serving.monitor import (
    ConfidenceSequence,
    ContextDrift,
    FloorTest,
    MonitorFinding,
    PropensityTest,
    delta_of_test,
    finding,
    weights,
    worst_state,
)
from depsue.serving.served import ServedPolicy
from depsue.serving.settings import ServingSettings
from depsue.serving.store import Store

FEWEST, MOST = 100, 4000
"""Decisions that are read in one step: few while most are still open, more to catch up."""
AUDITED = 200
"""Decisions of one step whose distributions are computed again."""
COLUMNS = ("round", "policy", "decided_by", "action", "propensity", "p_policy", "p_pi0", "holdout",
           "context", "candidates")  # fmt: skip


@dataclass(frozen=True)
class MonitorPoint:
    """The live values at one time: mean and confidence sequence of the policy and of pi0.

    Args:
        at: of the newest decision.
        n: decisions of the policy so far.
        policy, pi0: (mean, lower, upper); pi0's from the holdout, None without one.
        novelty: share of the policy's decisions that showed a new item.
        margin: earned above the floor so far, an estimate; None where it cannot be told.
    """

    at: float
    n: int
    policy: tuple[float, float, float]
    pi0: tuple[float, float, float] | None
    novelty: float
    margin: float | None


@dataclass(eq=False)
class MonitorRun:
    """One epoch of one policy: from its deployment, or from a resumption, until the next.

    Args:
        served: what serves.
        settings: waiting time, rule, default, holdout and delta.
        promises: of the campaign.
        rounds: K.
        epoch: the j-th of this round.
        after: the newest decision when it began.
        drift: what contexts are held against; None where the logs could not be read.
    """

    served: ServedPolicy
    settings: ServingSettings
    promises: tuple[Promise, ...]
    rounds: int
    epoch: int
    after: int
    drift: ContextDrift | None = None
    points: list[MonitorPoint] = field(default_factory=list)
    mismatched: int = 0

    def __post_init__(self) -> None:
        ways = ("items", "holdout") if self.settings.holdout > 0 else ("items",)
        tests = len(ways) * len(self.promises) + 1
        delta = delta_of_test(self.settings.delta, self.rounds, tests, self.epoch)
        mapping = self.served.mapping
        self._against = [
            FloorTest(
                one,
                by=by,
                r_max=mapping.r_max if one.r_max is None else one.r_max,
                credit=self.served.credits.get(one.name, 0.0),
                holdout=self.settings.holdout,
                delta=delta,
            )
            for one in self.promises
            for by in ways
        ]
        self._frequencies = PropensityTest(delta)
        self._limit = FEWEST
        self._policy, self._pi0 = (
            ConfidenceSequence(mapping.r_max),
            ConfidenceSequence(mapping.r_max),
        )
        self._margin, self._novel = 0.0, 0
        size = len(self.served.catalogue)
        self.shown: IntArray = np.zeros(size, dtype=np.int64)
        self.earned: FloatArray = np.zeros(size)
        self._order = np.argsort(~self.served.catalogue.novel, kind="stable")  # new items first

    def step(self, store: Store, now: float | None = None) -> bool:
        """Take in what has closed since; whether there may be more at once."""
        until = (time.time() if now is None else now) - self.settings.wait
        rows, rewards = store.read(
            after=self.after,
            until=until,
            wait=self.settings.wait,
            columns=COLUMNS,
            limit=self._limit,
        )
        self._limit = min(2 * self._limit, MOST) if len(rows) == self._limit else FEWEST
        if not rows:
            return False
        self.after = int(rows[-1].seq)
        mine = [row for row in rows if self._counts(row)]
        if mine:
            self._take(mine, rewards)
        return True

    def findings(self) -> list[MonitorFinding]:
        """Every test, as it stands."""
        if self.served.is_pi0:
            return [
                MonitorFinding("pi0", "healthy", "pi0 serves: there is nothing to fall back to")
            ]
        found = [finding(f"{one.promise.name}, by {one.by}", one) for one in self._against]
        found.append(finding("propensities", self._frequencies))
        if self.mismatched:
            words = f"{self.mismatched:,} rewards name another item than was decided"
            found.append(MonitorFinding("shown items", "watch", words))
        if self.drift is not None:
            column, errors = self.drift.worst
            words = f"context column {column} has moved most: {errors:.1f} standard errors"
            state = "watch" if self.drift.doubtful else "healthy"
            found.append(MonitorFinding("drift of contexts", state, words))
        return found

    @property
    def state(self) -> str:
        """healthy, watch or stopped."""
        return worst_state(self.findings())

    def _counts(self, row: Any) -> bool:
        """Restricted rows, and those of the fallback, say nothing of the certified policy."""
        served = self.served
        same = (row.round, row.policy) == (served.round, served.hash)
        same = same and (served.is_pi0 or row.holdout == self.settings.holdout)
        return same and row.decided_by != "pi0" and row.candidates is None

    def _take(self, rows: Sequence[Any], rewards: Sequence[Any]) -> None:
        served, mapping = self.served, self.served.mapping
        contexts = [msgspec.json.decode(row.context) for row in rows]
        p = np.array([(row.p_policy, row.p_pi0, row.holdout) for row in rows])
        action = np.array([row.action for row in rows])
        held = np.array([row.decided_by == "holdout" for row in rows])
        weighed = {by: weights(p[:, 0], p[:, 1], held, p[:, 2], by) for by in ("items", "holdout")}
        w, w0 = weighed["items"]
        ids = [row.id for row in rows]
        reward = used_reward(earned_by(ids, rewards, mapping.reward, self.settings), mapping)
        for test in self._against:
            promise = test.promise
            mask = np.ones(len(rows), dtype=bool)
            if promise.segment is not None:
                column, value = promise.segment
                mask = np.array([as_text(row.get(column)) == as_text(value) for row in contexts])
            earned = reward
            if promise.reward is not None:
                earned = earned_by(ids, rewards, promise.reward, self.settings)
            test.add(earned[mask], *(one[mask] for one in weighed[test.by]))
        self._audit(rows, contexts, action, held)
        if self.drift is not None:
            self.drift.add(served.reader.contexts(contexts))
        chosen = {row.id: int(row.action) for row in rows}
        self.mismatched += sum(
            one.shown is not None and one.shown != chosen.get(one.decision, one.shown)
            for one in rewards
        )
        self._policy.add(reward[~held])
        if held.any():
            self._pi0.add(reward[held])
        novel = served.catalogue.novel[action]
        self._novel += int((novel & ~held).sum())
        self.shown += np.bincount(action[~held], minlength=len(self.shown))
        self.earned += np.bincount(action[~held], reward[~held], minlength=len(self.shown))
        floor = self.promises[0].floor
        need = (floor.ratio or 0.0) * w0 * reward + (floor.absolute or 0.0)
        self._margin += float((w * reward - need).sum())
        self._note(float(rows[-1].at))

    def _audit(
        self,
        rows: Sequence[Any],
        contexts: Sequence[Any],
        action: IntArray,
        held: Any,
    ) -> None:
        """Compute the distributions of some rows again, and place their actions in them."""
        every = max(1, len(rows) // AUDITED)
        some = list(range(0, len(rows), every))
        own, base = self.served.distributions(
            self.served.reader.contexts([contexts[k] for k in some])
        )
        pi = np.where(held[some][:, None], base, own)[:, self._order]
        place = np.argsort(self._order)[action[some]]
        at = np.arange(len(some))
        p = pi[at, place]
        logged = np.array([rows[k].propensity for k in some])
        wrong = int((np.abs(p / logged - 1) > TOLERANCE).sum())
        below = np.cumsum(pi, axis=1, dtype=np.float64)[at, place] - p
        chance = np.array([int(rows[k].id[-13:], 16) / 16**13 for k in some])
        self._frequencies.add(np.clip(below + chance * p, 0.0, 1.0), wrong)

    def _note(self, at: float) -> None:
        n = self._policy.n
        if not n or (self.points and n < 1.02 * self.points[-1].n):
            return
        self.points.append(
            MonitorPoint(
                at=at,
                n=n,
                policy=self._policy.limits,
                pi0=self._pi0.limits if self._pi0.n else None,
                novelty=self._novel / n,
                margin=self._margin if not math.isnan(self._margin) else None,
            )
        )
