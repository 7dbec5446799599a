"""What a round has served so far: who decided, what was shown, what that earned.

Pages, /v1/status and metrics show these figures; no test uses them. They count the decisions of the
round whose waiting time has closed, whoever decided: the policy, its holdout, pi0 as the fallback.

**Rewards** are those of the round's learn and select rows alone, which no coming verdict reads, so
they may be looked at again and again. A row's fold is known as soon as it has its id, for the
ledger drew the secret of its round when the round was deployed. The monitor judges all rows; it
shows its evidence and not their means.

**Margin** is the sum of (reward - floor) over all decisions served, estimated as (mean of the rows
that may be read - floor) x decisions. A twin is charged as if it had earned nothing. The floor of
a share of pi0's value is that share of pi0's mean reward in its first logs.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import sqlalchemy as sa

from depsue.bounds import SMOOTHING_SCALES, log_sums, smoothing_from_sums
from depsue.campaigns import Campaign
from depsue.certificates import Registration
from depsue.certificates.folds import NAMES
from depsue.data.catalogue import Catalogue
from depsue.data.checks import FloatArray, IntArray, Mask
from depsue.data.folds import keys_of_ids
from depsue.data.identity import IdentityKind, id_identities, keyed_folds
from depsue.plural import counted
from depsue.promises import Promise
from depsue.serving.joining import rewards_by_rule, used_reward
from depsue.serving.kinds import as_text
from depsue.serving.monitor import AHEAD, FEWEST, MOST
from depsue.serving.schema import decisions
from depsue.serving.served import ServedPolicy, what_serves
from depsue.serving.settings import ServingSettings, store_address
from depsue.serving.stops import StopFile, StopSet
from depsue.serving.store import Store

AT_ONCE = 40_000
"""Decisions that one turn of the watcher reads at most."""
RECENT = 1000
"""Newest decisions of which pages say who made them and how many showed a new item."""
NEWEST = 1000
"""Newest rows of which the mean is shown beside that of all: a fault may begin late."""
FEWEST_READ = 50
"""Rows before which a mean is held against no floor."""
COLUMNS = ("policy", "decided_by", "why", "action", "context", "unit", "candidates")


@dataclass(frozen=True)
class ServedCounts:
    """Decisions, by who made them.

    Args:
        policy, holdout, fallback: made by what is deployed, by pi0 on the holdout, and by pi0 in
            place of the policy.
        new: of all of them, how many showed a new item.
        earlier: made by a policy that was deployed before, and was replaced or rolled back.
    """

    policy: int = 0
    holdout: int = 0
    fallback: int = 0
    new: int = 0
    earlier: int = 0

    @property
    def all(self) -> int:
        """Whoever made them."""
        return self.policy + self.holdout + self.fallback + self.earlier

    @property
    def novelty(self) -> float:
        """The share that showed a new item; 0 without decisions."""
        return self.new / self.all if self.all else 0.0

    @classmethod
    def of(cls, rows: Sequence[Any], new: Mask, deployed: str) -> ServedCounts:
        """Of (n,) decisions.

        Args:
            rows: who decided each (`decided_by`), and by which `policy`.
            new: whether each showed a new item.
            deployed: the policy that is deployed now.
        """
        who = np.array([row.decided_by for row in rows], dtype=object)
        own = np.array([row.policy == deployed for row in rows], dtype=bool)
        by_policy, holdout = who == "policy", int((who == "holdout").sum())
        return cls(
            policy=int((by_policy & own).sum()),
            holdout=holdout,
            fallback=int((who == "pi0").sum()),
            new=int(new.sum()),
            earlier=int((by_policy & ~own).sum()),
        )

    def __add__(self, other: ServedCounts) -> ServedCounts:
        return ServedCounts(
            self.policy + other.policy,
            self.holdout + other.holdout,
            self.fallback + other.fallback,
            self.new + other.new,
            self.earlier + other.earlier,
        )


@dataclass(frozen=True)
class RecentDecisions:
    """The newest decisions of a campaign, open or closed; no reward is looked at.

    Args:
        counts: of them.
        first, last: when the oldest and the newest of them were made, in seconds since 1970; None
            without one.
        is_pi0: whether pi0 itself is deployed.
    """

    counts: ServedCounts
    first: float | None = None
    last: float | None = None
    is_pi0: bool = False

    def __str__(self) -> str:
        n, counts = self.counts.all, self.counts
        if n == 0:
            return "No decision was made yet."
        made = [
            f"{who} made {count:,}"
            for who, count in (
                (
                    "the current policy (pi0)" if self.is_pi0 else "the deployed policy",
                    counts.policy,
                ),
                ("a policy that was deployed before", counts.earlier),
                ("its holdout", counts.holdout),
                ("the current policy (pi0) in its place", counts.fallback),
            )  # fmt: skip
            if count
        ]
        new = "None" if counts.new == 0 else f"{counts.new:,} ({counts.novelty:.1%})"
        return f"Of the last {counted(n, 'decision')}, {_joined(made)}. {new} showed a new item."


def _joined(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def recent_decisions(
    store: Store, catalogue: Catalogue, deployed: str, *, is_pi0: bool, most: int = RECENT
) -> RecentDecisions:
    """Who made the newest decisions, and what they showed; a StoreGone if they cannot be read.

    Args:
        store: where they are.
        catalogue: of the items.
        deployed: the policy that is deployed now.
        is_pi0: whether that is pi0.
        most: how many.
    """
    rows = store.newest(most, ("decided_by", "action", "policy"))
    if not rows:
        return RecentDecisions(ServedCounts())
    action = np.array([row.action for row in rows])
    # of a tombstone (action -1) nobody knows what it showed
    new = (action >= 0) & catalogue.novel[np.clip(action, 0, len(catalogue) - 1)]
    at = [row.at for row in rows]
    counts = ServedCounts.of(rows, new, deployed)
    return RecentDecisions(counts, min(at), max(at), is_pi0)


@dataclass(frozen=True)
class ServedLately:
    """What the store tells somebody who is not the service: `depsue campaign status`.

    Args:
        stops: (when, who, why) of those that stand, oldest first.
        recent: the newest decisions.
    """

    stops: tuple[tuple[str, str, str], ...]
    recent: RecentDecisions

    def lines(self) -> list[str]:
        """As text, a line each."""
        lines = [
            f"stopped   since {at} UTC by {by}: pi0 decides until somebody resumes it. Why: {why}"
            for at, by, why in self.stops
        ]
        last = self.recent.last
        newest = "" if last is None else f" The newest is of {_utc(last)} UTC."
        return [*lines, f"decided   {self.recent}{newest}"]


def served_lately(campaign: Campaign, store: str | None) -> ServedLately | None:
    """What the store tells of a campaign; None where there is none.

    Args:
        campaign: whose.
        store: its address; None is the file in the campaign's folder.
    """
    address = store_address(campaign, store)
    if "://" not in address and not Path(address).exists():
        return None
    opened = Store(address, campaign.name)
    known = StopSet([*opened.events(), *StopFile(campaign.files.folder).read()])
    items = campaign.files.items(max(campaign.round - 1, 0))
    deployed = what_serves(campaign)[1]
    is_pi0 = deployed == campaign.terms.pi0
    return ServedLately(
        tuple((_utc(stop.at), stop.by, stop.reason) for stop in known.standing),
        recent_decisions(opened, items, deployed, is_pi0=is_pi0),
    )


def _utc(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S}"


@dataclass(frozen=True)
class PromiseAccount:
    """What a promise's reward was in a round: estimates that no test uses.

    Args:
        name: of the promise.
        served: decisions of the round that it is about, whoever decided.
        read: of the policy's decisions, how many learn and select rows have their rewards in the
            means.
        value: the mean reward of those; None before there is one.
        recent: the same of the newest 1,000 or so.
        floor: the least mean reward that the promise allows; None while it is not known.
        margin: the sum of (reward - floor) over all decisions served, an estimate; None while it
            is not known.
    """

    name: str
    served: int
    read: int
    value: float | None
    recent: float | None
    floor: float | None
    margin: float | None

    @property
    def below(self) -> bool:
        """Whether a mean that is shown lies below the floor, of enough rows to say so."""
        means = (self.value, self.recent)
        if self.floor is None or self.read < FEWEST_READ:
            return False
        return any(mean is not None and mean < self.floor for mean in means)

    def __str__(self) -> str:
        if self.value is None or self.recent is None:
            return "no reward can be shown yet"
        floor = "not known yet" if self.floor is None else f"{self.floor:.4g}"
        return (
            f"mean reward {self.value:.4g}, lately {self.recent:.4g}; floor {floor}; from "
            f"{self.read:,} learn and select rows of the policy"
        )


@dataclass(frozen=True)
class AccountPoint:
    """The account at one time.

    Args:
        at: of the newest decision.
        served: decisions of the round that have closed, whoever decided.
        policy, pi0: (mean, lower, upper) of the rows that may be read; pi0's from the holdout.
        recent: mean of the policy's newest rows.
        novelty: share of the newest decisions, whoever made them, that showed a new item.
        margin: of the first promise so far.
    """

    at: float
    served: int
    policy: tuple[float, float, float] | None
    pi0: tuple[float, float, float] | None
    recent: float | None
    novelty: float
    margin: float | None


SHOWN = 0.05
"""Error rate of the confidence sequences that pages show."""


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
    def limits(self) -> tuple[float, float, float] | None:
        """(mean, lower, upper); None without a value."""
        if self.n == 0:
            return None
        low = smoothing_from_sums(self._low, self.n, self._scales, SHOWN / 2)
        high = self._r_max - smoothing_from_sums(self._high, self.n, self._scales, SHOWN / 2)
        return self._sum / self.n, low, high


class NewestMean:
    """The mean of the newest values, about so many.

    Args:
        most: how many.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._parts: deque[tuple[int, float]] = deque()
        self._n = 0

    def add(self, values: FloatArray) -> None:
        """Take in (n,) values, oldest first."""
        for start in range(0, len(values), 100):
            part = values[start : start + 100]
            self._parts.append((len(part), float(part.sum())))
            self._n += len(part)
        while self._parts and self._n - self._parts[0][0] >= self._most:
            self._n -= self._parts.popleft()[0]

    @property
    def mean(self) -> float | None:
        """None without a value."""
        return sum(total for _, total in self._parts) / self._n if self._n else None


@dataclass
class _PromiseSums:
    """Sums of one promise: counts of all decisions, rewards of those that may be read."""

    served: int = 0
    read: int = 0
    total: float = 0.0
    read_policy: int = 0
    total_policy: float = 0.0
    newest: NewestMean = field(default_factory=lambda: NewestMean(NEWEST))


class RoundAccount:
    """The account of one round, read from the store bit by bit.

    Args:
        served: what serves in it.
        settings: waiting time, rule and default.
        promises: of the campaign.
        floors: the least mean reward of each promise by name, as far as it is known.
        folds: what the folds of the round's rows will hang on; None shows no reward.
    """

    def __init__(
        self,
        served: ServedPolicy,
        settings: ServingSettings,
        promises: Sequence[Promise],
        floors: Mapping[str, float],
        folds: Registration | None,
    ) -> None:
        self.served, self._settings, self._promises = served, settings, tuple(promises)
        self._floors, self.folds = floors, folds
        self.counts = ServedCounts()
        """Closed decisions of the round."""
        self.twins = self.left_out = 0
        """Decisions that are marked as twins, and that are stamped ahead of the clock."""
        self.points: list[AccountPoint] = []
        self.read_at: float | None = None
        """When all that had closed was last read; None before."""
        size, r_max = len(served.catalogue), served.mapping.r_max
        self.shown: IntArray = np.zeros(size, dtype=np.int64)
        self.read: IntArray = np.zeros(size, dtype=np.int64)
        self.earned: FloatArray = np.zeros(size)
        """(A,) how often each item was shown, in how many rows that may be read, with what sum."""
        self._policy, self._pi0 = ConfidenceSequence(r_max), ConfidenceSequence(r_max)
        self._novelty = NewestMean(RECENT)
        self._sums = {promise.name: _PromiseSums() for promise in self._promises}
        self._after, self._limit = 0, FEWEST

    @classmethod
    def of(
        cls, campaign: Campaign, served: ServedPolicy, settings: ServingSettings
    ) -> RoundAccount:
        """The account of the round that is served, before its first row."""
        explore, summaries = campaign.settings.explore, campaign.summaries()
        first = summaries[0].promises if summaries else {}
        floors = {
            promise.name: promise.floor.of(first[promise.name].mean)
            for promise in explore.promises
            if promise.name in first
        }
        kind: IdentityKind = "decision" if served.mapping.unit is None else "unit"
        folds = campaign.ledger.registration_ahead(
            campaign.name, served.round, kind, explore.fractions
        )
        return cls(served, settings, explore.promises, floors, folds)

    def take_in(self, store: Store, now: float) -> None:
        """Read what has closed since, up to a limit; the next call goes on."""
        began = self._after
        read = AT_ONCE
        while read > 0:
            count = self._step(store, now)
            read -= count
            if count == 0:
                self.read_at = now
                break
        if self._after > began or self.read_at == now:
            self.twins = store.twins(self.served.round)

    def _step(self, store: Store, now: float) -> int:
        """Read a few more; how many, 0 if there is no more."""
        ahead = now + AHEAD
        rows, rewards = store.read(
            after=self._after,
            until=now - self._settings.wait,
            ahead=ahead,
            wait=self._settings.wait,
            where=[decisions.c.round == self.served.round],
            columns=COLUMNS,
            limit=self._limit,
        )
        self._limit = min(2 * self._limit, MOST) if len(rows) == self._limit else FEWEST
        if not rows:
            return 0
        closed = [row for row in rows if not row.set_aside and row.at <= ahead]
        if closed:
            self._add(closed, rewards)
        self.left_out += len(rows) - len(closed)
        self._after = int(rows[-1].seq)
        return len(rows)

    def _add(self, rows: Sequence[sa.Row[Any]], rewards: Sequence[Any]) -> None:
        ids, who = [row.id for row in rows], np.array([row.decided_by for row in rows])
        action = np.array([row.action for row in rows], dtype=np.int64)
        new = self.served.catalogue.novel[action]
        self.counts += ServedCounts.of(rows, new, self.served.hash)
        self._novelty.add(new.astype(np.float64))
        readable, own = self._readable(rows), self._is_own(rows)
        mapping = self.served.mapping
        reward = self._reward(ids, rewards, mapping.reward)
        self.shown += np.bincount(action, minlength=len(self.shown))
        self.read += np.bincount(action[readable], minlength=len(self.read))
        self.earned += np.bincount(action[readable], reward[readable], minlength=len(self.shown))
        self._policy.add(reward[readable & own])
        self._pi0.add(reward[readable & (who == "holdout")])
        contexts = None
        for promise in self._promises:
            within = np.ones(len(rows), dtype=bool)
            if promise.segment is not None:
                contexts = contexts or [msgspec.json.decode(row.context) for row in rows]
                column, value = promise.segment
                within = np.array([as_text(row.get(column)) == as_text(value) for row in contexts])
            earned = reward
            if promise.reward is not None:
                earned = self._reward(ids, rewards, promise.reward, promise)
            sums, read, mine = self._sums[promise.name], within & readable, within & readable & own
            sums.served += int(within.sum())
            sums.read += int(read.sum())
            sums.total += float(earned[read].sum())
            sums.read_policy += int(mine.sum())
            sums.total_policy += float(earned[mine].sum())
            sums.newest.add(earned[mine])
        n = self.counts.all
        if self.points and n < 1.02 * self.points[-1].served:
            return
        first = self.promises[0]
        self.points.append(
            AccountPoint(
                at=float(rows[-1].at),
                served=n,
                policy=self._policy.limits,
                pi0=self._pi0.limits,
                recent=first.recent,
                novelty=self._novelty.mean or 0.0,
                margin=first.margin,
            )
        )

    def _is_own(self, rows: Sequence[sa.Row[Any]]) -> Mask:
        """(n,) decisions of the policy that is deployed now, which its certificate speaks of."""
        return np.array(
            [
                row.decided_by == "policy"
                and not row.why
                and row.policy == self.served.hash
                and self.served.covers(row.candidates is not None)
                for row in rows
            ],
            dtype=bool,
        )

    def _readable(self, rows: Sequence[sa.Row[Any]]) -> Mask:
        """(n,) learn and select rows: no coming verdict reads them."""
        if self.folds is None:
            return np.zeros(len(rows), dtype=bool)
        if self.folds.kind == "decision":
            return self._of_read_folds([row.id for row in rows])
        readable = np.zeros(len(rows), dtype=bool)
        units: list[Any] = [
            None if row.unit is None else msgspec.json.decode(row.unit) for row in rows
        ]
        for kind in (int, str):  # as columns of one type have them
            mine = [place for place, unit in enumerate(units) if type(unit) is kind]
            if mine:
                readable[mine] = self._of_read_folds([units[place] for place in mine])
        return readable

    def _of_read_folds(self, ids: Sequence[int | str]) -> Mask:
        assert self.folds is not None
        names = id_identities(keys_of_ids(np.array(ids)))
        which = keyed_folds(names, self.folds.fractions, self.folds.secret)
        return np.asarray(which != NAMES.index("certify"))

    def _reward(
        self, ids: Sequence[str], rewards: Sequence[Any], name: str, promise: Promise | None = None
    ) -> FloatArray:
        """(n,) rewards; those outside their range count as nothing, which is the worst."""
        mapping = self.served.mapping
        raw = rewards_by_rule(ids, rewards, name, self._settings)
        r_max = mapping.r_max
        if promise is None:
            raw = used_reward(raw, mapping)
        elif promise.r_max is not None:
            r_max = promise.r_max
        return np.where((raw >= 0) & (raw <= r_max), raw, 0.0)

    @property
    def limits(self) -> tuple[float, float, float] | None:
        """(mean, lower, upper) of the policy's reward, in rows that may be read."""
        return self._policy.limits

    @property
    def promises(self) -> list[PromiseAccount]:
        """Every promise, as it stands."""
        return [self._promise(promise.name) for promise in self._promises]

    def _promise(self, name: str) -> PromiseAccount:
        sums, floor = self._sums[name], self._floors.get(name)
        margin = None
        if floor is not None and sums.read and math.isfinite(floor):
            margin = sums.served * (sums.total / sums.read - floor) - self.twins * floor
        return PromiseAccount(
            name=name,
            served=sums.served,
            read=sums.read_policy,
            value=sums.total_policy / sums.read_policy if sums.read_policy else None,
            recent=sums.newest.mean,
            floor=floor,
            margin=margin,
        )
