"""Evidence against the promises of a served policy, which may be looked at after every decision.

**Terms.** While a policy serves, a decision was drawn from the policy with probability 1 - h and
from pi0 with probability h, the holdout. Its reward is weighed for both in two ways:

- by items: w = p_policy / p and w0 = p_pi0 / p, where p is the mixture of the two. This uses every
  decision, and sees soonest that the shown items are worth less.
- by holdout: w = 1 / (1 - h) if the policy decided, else 0, and w0 = 1 / h if the holdout did. This
  sees anything that goes wrong with the policy's decisions, and needs more of them.

Against a relative floor rho a term is y = r (w - rho w0), against an absolute floor y = r w. The
need is the floor, less the margin that the round may spend (0 less that margin if relative).

**The share of traffic may change** while the policy serves; each decision has its own h. What is
bet on is (need - y) / limit, with limit = r_max / (1 - h) - need the most by which a term with that
h can exceed the need. h was known before the decision, so products stay what they are. A decision
with h = 1 says nothing of a policy that decides nothing; nor does one with h = 0 by holdout against
a relative floor. Within a cycle all decisions must weigh alike, by the h of its first. Where h is
larger later on, a decision counts need - r_max: no term has a larger mean than r_max, so this is
the least that it can count on average.

**Evidence** that the mean of terms lies below the need is what bets against it would have earned,
from every start at once (`depsue.bounds.StartMixture`, where it is proved): if the promise is kept,
it ever reaches 1 / delta with probability at most delta. That is why every look is free.

**Whole cycles.** An absolute floor with busy and slow hours, and a mean over units (users), whose
heavy users come first and often, hold on average and not at every decision. They are judged by
whole cycles of a declared length (a day): products begin and are looked at between cycles only.
Where the promise is over units, a unit has one value in a cycle: the mean of the terms of its
decisions in it; or it has one value ever, the term of its first decision. The null is then about
the units that come in a cycle, whoever they are: the same users on every day are the same users,
and a promise over the users of a month needs a cycle in which nearly all of them come.

**One budget.** Each promise, in each way of weighing, and the propensities are a part with a
weight; the weights sum to 1. Parts on the same clock (decisions, or cycles) see the same past, so
the weighted sum of their evidence is a test supermartingale as well and stops at 1 / delta. Sums on
two clocks are not added (within a cycle the one is no martingale in the past of the other): each
stops at 1 / delta, and as they begin at the weights of their parts, which sum to 1, false alarms
are at most delta in all. A part alone stops at 1 / (weight x delta), as if delta were split;
together they stop sooner.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from depsue import defaults
from depsue.bounds import (
    StartMixture,
    weight_begun,
)
from depsue.certificates import UnitRows
from depsue.data.checks import FloatArray, IntArray, Mask, first_bad
from depsue.errors import DataError, is_real, require, require_delta, short
from depsue.promises import Promise

Weighing = Literal["items", "holdout"]
Clock = Literal["decisions", "cycles"]
BINS = 16
"""Of the places of actions in their distributions."""
AUDITED: FloatArray = np.concatenate([np.arange(32) / 32, 1.0625 ** np.arange(70)])
"""Starts of the test of propensities, in declared lengths."""


@dataclass(frozen=True, eq=False)
class JudgedRows:
    """Decisions whose rewards are complete, in the order in which they were made.

    Args:
        at: (n,) when, in seconds.
        held: (n,) whether the holdout decided.
        p_policy, p_pi0: (n,) of the action.
        holdout: (n,) its share at the time.
        rewards: (n,) for each promise by name.
        within: (n,) which rows a promise is about, by name; a promise that is not here is about
            all.
        unit: (n,) of the decision, where the promise is over units.
        erased: (n,) of a decision that was erased, the largest pi0 / p that it may have had; NaN of
            all others. Nothing else is known of it, so it counts at its worst. None if none was.
        audited: (m,) rows whose distribution was computed again, ascending.
        places: (m,) in [0, 1], of their actions in their distributions.
        wrong: how many of them were logged with another probability.
    """

    at: FloatArray
    held: Mask
    p_policy: FloatArray
    p_pi0: FloatArray
    holdout: FloatArray
    rewards: Mapping[str, FloatArray]
    within: Mapping[str, Mask]
    unit: Sequence[Hashable] | None = None
    erased: FloatArray | None = None
    audited: IntArray | None = None
    places: FloatArray | None = None
    wrong: int = 0

    def __len__(self) -> int:
        return len(self.at)


class EvidencePart(ABC):
    """One claim, and the evidence against it.

    Args:
        name: of the claim.
        clock: when it may be looked at.
    """

    def __init__(self, name: str, clock: Clock) -> None:
        self.name, self.clock = name, clock

    @property
    @abstractmethod
    def log_evidence(self) -> float:
        """The logarithm of the evidence."""

    @property
    @abstractmethod
    def words(self) -> str:
        """What it is about and how much it has seen, in words."""


class FloorPart(EvidencePart):
    """Evidence that one promise, weighed in one way, is not kept.

    Args:
        promise: the promise.
        by: how rewards are weighed.
        r_max: the largest reward.
        credit: margin per decision that the round spends.
        length: decisions that the round is for; None has one start only.
        units: what counts where the promise is over units: the first decision of a unit, or the
            mean over all of a cycle; None where each decision stands for itself.
    """

    def __init__(
        self,
        promise: Promise,
        *,
        by: Weighing,
        r_max: float,
        credit: float,
        length: int | None,
        units: UnitRows | None = None,
    ) -> None:
        whole = units is not None or promise.floor.ratio is None
        super().__init__(f"{promise.name}, by {by}", "cycles" if whole else "decisions")
        self.promise, self.by, self.units, self.r_max = promise, by, units, r_max
        self.need = (promise.floor.absolute or 0.0) - credit
        self.mixture = StartMixture(1.0, length)  # of values over their limit
        self._sums: FloatArray = np.zeros(0)
        self._counts: FloatArray = np.zeros(0)

    def values(self, rows: JudgedRows) -> tuple[IntArray, FloatArray]:
        """(rows, values): (m,) rows that the promise is about, and need - y of each; checked.

        A reward outside its range counts as the reward within it that is worst for the promise. An
        erased decision counts at its worst: so evidence never shrinks by an erasure.
        """
        every = np.arange(len(rows))
        mask = rows.within.get(self.promise.name)
        at = every if mask is None else every[mask]
        reward = np.asarray(rows.rewards[self.promise.name])[at]
        w, w0 = weights(rows.p_policy[at], rows.p_pi0[at], rows.held[at], rows.holdout[at], self.by)
        ratio = self.promise.floor.ratio
        weight = w if ratio is None else w - ratio * w0
        worst = np.where(weight > 0, 0.0, self.r_max)
        reward = np.where((reward >= 0) & (reward <= self.r_max), reward, worst)
        values = self.need - reward * weight
        if rows.erased is not None:
            gone = ~np.isnan(rows.erased[at])
            values[gone] = self.need + self._loss_at_most(rows, at[gone])
        self.mixture.check(values / self.limit(rows.holdout[at]))
        return at, values

    def limit(self, holdout: FloatArray) -> FloatArray:
        """(m,) by how much terms of decisions may exceed the need; infinite where they say nothing.

        Args:
            holdout: (m,) the share of traffic on pi0.
        """
        silent = holdout >= 1
        if self.by == "holdout" and self.promise.floor.ratio is not None:
            silent = silent | (holdout <= 0)
        with np.errstate(divide="ignore"):
            largest = np.where(silent, np.inf, self.r_max / np.maximum(1 - holdout, 0))
        return np.asarray(np.maximum(largest - self.need, 1e-12))

    def _loss_at_most(self, rows: JudgedRows, at: IntArray) -> FloatArray:
        """(m,) how far below 0 the terms of erased decisions may have been.

        A reward of 0 is the worst where pi0's part does not count, the largest one where it does.
        """
        ratio = self.promise.floor.ratio
        if ratio is None:
            return np.zeros(len(at))
        if self.by == "holdout":  # who decided is still known
            w0 = np.where(rows.held[at], 1 / np.maximum(rows.holdout[at], 1e-9), 0.0)
        else:
            w0 = np.asarray(rows.erased)[at]
        return np.asarray(ratio * self.r_max * w0)

    def hold(self, values: FloatArray, unit: IntArray | None) -> None:
        """Take in (n,) values of a cycle that is not over.

        Args:
            values: need - y, over the limit of the cycle.
            unit: (n,) numbers of units in the cycle, from 0.
        """
        if unit is None:
            self.mixture.hold(values)
            return
        if len(unit) == 0:
            return
        sums, counts = self._sums, self._counts
        size = max(len(sums), int(unit.max()) + 1)
        self._sums = np.asarray(np.bincount(unit, values, minlength=size), dtype=np.float64)
        self._counts = np.asarray(np.bincount(unit, minlength=size), dtype=np.float64)
        self._sums[: len(sums)] += sums
        self._counts[: len(counts)] += counts

    def close(self) -> None:
        """End a cycle."""
        if self.units is not None:
            came = self._counts > 0
            self.mixture.hold(self._sums[came] / self._counts[came])
            self._sums, self._counts = np.zeros(0), np.zeros(0)
        self.mixture.close()

    @property
    def log_evidence(self) -> float:
        """The logarithm of the evidence that the mean of the terms lies below the need."""
        return self.mixture.log_evidence

    @property
    def words(self) -> str:
        """What it is about and how much it has seen, in words."""
        ratio = self.promise.floor.ratio
        if ratio is None:
            least = f"the mean reward must reach {self.need:.4g}"
        else:
            less = f" less {-self.need:.4g} (margin to spend)" if self.need < 0 else ""
            least = f"the policy must earn {ratio:.4g} of what pi0 earns now{less}"
        what = "decisions" if self.units is None else "values of units"
        cycles = " in whole cycles" if self.clock == "cycles" else ""
        return f"{least}; {self.mixture.n:,} {what}{cycles} judged"


class PropensityPart(EvidencePart):
    """Evidence that shown actions do not follow the distributions they are said to be drawn from.

    The place of an action in its distribution, with chance where it has mass, is uniform on
    [0, 1] if it was drawn from it. The likelihood of the bins that the places fall into under the
    mixture of all distributions over bins (Dirichlet with parameters 1/2), against the uniform one,
    is a martingale, whatever came before. As with `StartMixture` there is one from the first
    decision on, with half of the weight; others begin evenly over the declared length, and ever
    more rarely after it.

    Args:
        length: decisions that the round is for; None has one start only.
    """

    def __init__(self, length: int | None = None) -> None:
        super().__init__("propensities", "decisions")
        self._starts: FloatArray = np.zeros(1)
        self._log_weights: FloatArray = np.zeros(1)
        if length is not None:
            self._starts = AUDITED * length
            begun = weight_begun(np.append(AUDITED, np.inf))
            begun[0] = 0.0  # the first has all that begins before the second
            self._log_weights = np.log(np.diff(begun))
        self._counts = np.zeros((1, BINS))  # of each likelihood that has begun
        self._logs = np.zeros(1)
        self.wrong = 0

    @staticmethod
    def check(places: FloatArray) -> None:
        """A DataError for a place outside [0, 1]."""
        first_bad(
            ~((places >= 0) & (places <= 1)),
            places,
            "the place of an action in its distribution lies in [0, 1]",
            "places",
            "look at the policy's probabilities",
        )

    def add(self, places: FloatArray, number: IntArray, wrong: int = 0) -> FloatArray:
        """(m,) the logarithm of the evidence after each of (m,) places in [0, 1].

        Args:
            places: of actions in their distributions.
            number: (m,) of the decisions, from 0, ascending.
            wrong: how many logged propensities were not the policy's.
        """
        self.wrong += wrong
        bins = np.minimum((places * BINS).astype(np.int64), BINS - 1)
        begun = np.searchsorted(self._starts, number, side="right")
        cuts = [0, *(np.flatnonzero(np.diff(begun)) + 1).tolist(), len(bins)]
        pieces = [
            self._add(bins[first:last], int(begun[first]))
            for first, last in zip(cuts, cuts[1:], strict=False)
            if last > first
        ]
        return np.concatenate(pieces) if pieces else np.zeros(0)

    def _add(self, bins: IntArray, begun: int) -> FloatArray:
        """The same of places that lie between two starts."""
        more = begun - len(self._logs)
        counts = np.vstack([self._counts, np.zeros((more, BINS))])
        logs = np.concatenate([self._logs, np.zeros(more)])
        came = np.cumsum(np.eye(BINS)[bins], axis=0)
        before = counts[:, bins] + came[np.arange(len(bins)), bins] - 1
        n = counts.sum(axis=1)[:, None] + np.arange(len(bins))
        paths = logs[:, None] + np.cumsum(np.log((before + 0.5) / (n + BINS / 2) * BINS), axis=1)
        self._counts, self._logs = counts + came[-1], paths[:, -1]
        return np.asarray(self._mixed(paths))

    def _mixed(self, logs: FloatArray) -> FloatArray:
        """(m,) the mixture of (begun, m) likelihoods; those to come are worth 1."""
        weighted = logs + self._log_weights[: len(logs), None]
        left = float(np.exp(self._log_weights[len(logs) :]).sum())
        most = np.maximum(weighted.max(axis=0), 0.0)
        return np.asarray(most + np.log(np.exp(weighted - most).sum(axis=0) + left * np.exp(-most)))

    @property
    def log_evidence(self) -> float:
        """The logarithm of the evidence against uniform places."""
        return float(self._mixed(self._logs[:, None])[0])

    @property
    def words(self) -> str:
        """What it is about and how much it has seen, in words."""
        wrong = f"; {self.wrong:,} were logged with another probability" if self.wrong else ""
        n = int(self._counts[0].sum())
        return f"shown actions against their propensities: {n:,} decisions{wrong}"


@dataclass(frozen=True)
class PartEvidence:
    """One part, as it stands.

    Args:
        name: of the claim.
        clock: when it may be looked at: after each decision, or after whole cycles.
        weight: of the part; all weights sum to 1.
        log_evidence: the logarithm of its evidence.
        share: of the way to where it alone would stop, in the logarithm.
        refuted: whether the policy must stop, and this part says so loudest.
        words: how it stands, in a sentence.
    """

    name: str
    clock: Clock
    weight: float
    log_evidence: float
    share: float
    refuted: bool
    words: str

    @property
    def doubtful(self) -> bool:
        """Whether it has come half the way, in the logarithm."""
        return not self.share < 0.5


class EpochEvidence:
    """The evidence of one epoch against all promises together: a pure function of its rows.

    Args:
        floors: a part for each promise and way of weighing.
        delta: the probability that the epoch stops without cause, over all time.
        length: decisions that the round is for; None has one start only.
        cycle: seconds of a whole cycle.
    """

    def __init__(
        self,
        floors: Sequence[FloorPart],
        *,
        delta: float,
        length: int | None,
        cycle: float = defaults.CYCLE,
    ) -> None:
        require(is_real(cycle) and 0 < cycle < np.inf, "a cycle takes some seconds",
                found=short(cycle), cure="a day is 86400")  # fmt: skip
        self.delta, self._threshold = require_delta(delta), math.log(1 / delta)
        self._cycle_seconds = cycle
        self._floors, self._propensities = tuple(floors), PropensityPart(length)
        self._parts: tuple[EvidencePart, ...] = (*floors, self._propensities)
        self._weight = 1 / len(self._parts)
        self.n = 0
        """Decisions so far."""
        self.stopped_after: int | None = None
        """Decisions after which the evidence first was enough; None if it never was."""
        self._stopped_by: dict[str, tuple[int, float]] = {}
        self._origin: float | None = None
        self._cycle = 0
        self._holdout: float | None = None  # of the first decision of the cycle
        self._numbers: dict[Hashable, int] = {}  # of the units of the cycle
        self._known: set[Hashable] = set()  # units whose first decision has come

    def add(self, rows: JudgedRows) -> None:
        """Take in rows; a DataError where one cannot be judged, and then none is taken in."""
        if len(rows) == 0:
            return
        first_bad(~np.isfinite(rows.at), rows.at, "times are numbers", "at", "look at the clock")
        values = [part.values(rows) for part in self._floors]
        if rows.places is not None:
            self._propensities.check(rows.places)
        if any(part.units is not None for part in self._floors) and rows.unit is None:
            raise DataError(
                "a promise over units needs the unit of each decision",
                column="unit",
                found="rows without units",
                cure="send the unit with each decision",
            )
        self._add_decisions(rows, values)
        self._add_cycles(rows, values)
        self.n += len(rows)

    def _add_decisions(
        self, rows: JudgedRows, values: Sequence[tuple[IntArray, FloatArray]]
    ) -> None:
        paths: dict[str, FloatArray] = {}
        for part, (at, x) in zip(self._floors, values, strict=True):
            if part.clock == "decisions":
                before = part.log_evidence
                bets = x / part.limit(rows.holdout[at])
                paths[part.name] = _by_row(len(rows), at, before, part.mixture.add(bets))
        before = self._propensities.log_evidence
        audited = np.zeros(0, dtype=np.int64) if rows.audited is None else rows.audited
        places = np.zeros(0) if rows.places is None else rows.places
        path = self._propensities.add(places, self.n + audited, rows.wrong)
        paths[self._propensities.name] = _by_row(len(rows), audited, before, path)
        if rows.wrong:  # one wrong propensity is no matter of chance
            self._stop(len(rows), self._propensities.name, math.inf)
        total = np.logaddexp.reduce(list(paths.values()), axis=0) + math.log(self._weight)
        enough = np.flatnonzero(~(total < self._threshold))
        if len(enough):
            row = int(enough[0])
            loudest = max(paths, key=lambda name: float(paths[name][row]))
            self._stop(row + 1, loudest, float(paths[loudest][row]))

    def _add_cycles(self, rows: JudgedRows, values: Sequence[tuple[IntArray, FloatArray]]) -> None:
        whole = [(part, *pair) for part, pair in zip(self._floors, values, strict=True)
                 if part.clock == "cycles"]  # fmt: skip
        if not whole:
            return
        if self._origin is None:
            self._origin = float(rows.at[0])
        numbers = np.floor((rows.at - self._origin) / self._cycle_seconds).astype(np.int64)
        # a row that comes late counts in the cycle that is open
        numbers = np.maximum.accumulate(np.maximum(numbers, self._cycle))
        cuts = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(rows)]
        for first, last in zip(cuts, cuts[1:], strict=False):
            if numbers[first] != self._cycle:
                self._close([part for part, _, _ in whole], first)
                self._cycle = int(numbers[first])
            unit, counts = self._units(rows, first, last)
            if self._holdout is None:
                self._holdout = float(rows.holdout[first])
            for part, at, x in whole:
                own = slice(*np.searchsorted(at, [first, last]))
                more = rows.holdout[at[own]] > self._holdout
                limit = part.limit(np.full(1, self._holdout))
                place = at[own] - first
                value = np.where(more, part.need - part.r_max, x[own]) / limit
                if part.units is None or unit is None:
                    part.hold(value, None)
                else:
                    mask = counts[place] if part.units == "first row" else np.ones(len(place), bool)
                    part.hold(value[mask], unit[place][mask])

    def _units(self, rows: JudgedRows, first: int, last: int) -> tuple[IntArray | None, Mask]:
        """Numbers of the rows' units in the cycle, and whether a row is the first of its unit."""
        fresh = np.ones(last - first, dtype=bool)
        if rows.unit is None or all(part.units is None for part in self._floors):
            return None, fresh
        numbers, known = self._numbers, self._known
        unit = np.empty(last - first, dtype=np.int64)
        remembers = any(part.units == "first row" for part in self._floors)
        for k, name in enumerate(rows.unit[first:last]):
            unit[k] = numbers.setdefault(name, len(numbers))
            if remembers:
                fresh[k] = name not in known
                known.add(name)
        return unit, fresh

    def _close(self, parts: Sequence[FloorPart], row: int) -> None:
        """End a cycle before a row, and look."""
        for part in parts:
            part.close()
        self._numbers.clear()
        self._holdout = None
        logs = [part.log_evidence for part in parts]
        total = float(np.logaddexp.reduce(logs)) + math.log(self._weight)
        if not total < self._threshold:
            self._stop(row, parts[int(np.argmax(logs))].name, max(logs))

    def _stop(self, row: int, name: str, log_evidence: float) -> None:
        after = self.n + row
        self._stopped_by.setdefault(name, (after, log_evidence))
        self.stopped_after = after if self.stopped_after is None else min(after, self.stopped_after)

    @property
    def refuted(self) -> bool:
        """Whether the evidence has ever been enough; it stays so."""
        return self.stopped_after is not None

    @property
    def judges_all(self) -> bool:
        """Whether every promise has a value that was judged: a decision, or a whole cycle."""
        judged = {part.promise.name for part in self._floors if part.mixture.n}
        return all(part.promise.name in judged for part in self._floors)

    @property
    def first_cycle(self) -> float | None:
        """Seconds of the whole cycle that values of some promise still wait for; None if none."""
        waits = any(not part.mixture.n and part.clock == "cycles" for part in self._floors)
        return self._cycle_seconds if waits else None

    @property
    def parts(self) -> tuple[PartEvidence, ...]:
        """Every part, as it stands."""
        return tuple(self._part(part) for part in self._parts)

    def _part(self, part: EvidencePart) -> PartEvidence:
        log_evidence, refuted = part.log_evidence, part.name in self._stopped_by
        alone = math.log(1 / (self._weight * self.delta))
        share = 1.0 if refuted else min(max(log_evidence / alone, 0.0), 1.0)
        return PartEvidence(
            name=part.name,
            clock=part.clock,
            weight=self._weight,
            log_evidence=log_evidence,
            share=share,
            refuted=refuted,
            words=f"{part.words}; {self._words(part.name, log_evidence, alone)}",
        )

    def _words(self, name: str, log_evidence: float, alone: float) -> str:
        """How much evidence a part has; once it stopped the policy, how much it had then."""
        limit = f"{math.exp(alone):,.0f}"
        if name not in self._stopped_by:
            return f"evidence {_in_digits(log_evidence)} of {limit}"
        after, then = self._stopped_by[name]
        if math.isinf(then):
            return "one wrong propensity is enough"
        others = "" if then >= alone else ", enough with that of the other tests"
        return f"evidence reached {_in_digits(then)} of {limit} after {after:,} decisions{others}"


def _in_digits(log_evidence: float) -> str:
    """A number of three digits, or a whole one, or 'over 10^9'."""
    if not log_evidence < math.log(1e9):
        return "over 1,000,000,000"
    evidence = math.exp(log_evidence)
    return f"{evidence:,.0f}" if evidence >= 1000 else f"{evidence:.3g}"


def _by_row(n: int, at: IntArray, before: float, path: FloatArray) -> FloatArray:
    """(n,) evidence after each row, from that after the rows `at` which have a value."""
    newest = np.searchsorted(at, np.arange(n), side="right")
    return np.concatenate([[before], path])[newest]


def weights(
    p_policy: FloatArray, p_pi0: FloatArray, held: Mask, holdout: FloatArray, by: Weighing
) -> tuple[FloatArray, FloatArray]:
    """(w, w0) of (n,) decisions, for the policy and for pi0.

    Args:
        p_policy, p_pi0: of the action.
        held: whether the holdout decided.
        holdout: its share at the time.
        by: how rewards are weighed.
    """
    if by == "holdout":
        with np.errstate(divide="ignore", invalid="ignore"):
            return ~held / (1 - holdout), np.where(held, 1 / holdout, 0.0)
    mixed = (1 - holdout) * p_policy + holdout * p_pi0
    return p_policy / mixed, p_pi0 / mixed


def delta_of_epoch(delta: float, rounds: int, epoch: int) -> float:
    """Of the j-th epoch of a round: delta is split over all epochs that a campaign may need.

    Args:
        delta: for the campaign's life.
        rounds: K.
        epoch: j, from 1: another policy, or a resumption, begins a new one.
    """
    return delta / rounds * 2.0**-epoch
