"""Does pi0 still earn what it did? The test of what `no_drift` declares.

Round 0 was drawn by pi0 itself; the rows of a later round, whoever drew them, tell of pi0 through
the weights pi0 / p. So what pi0 earns is estimated on both, on the part of its decisions that both
could show, and the limits of its change must include 0 (`check_drift`). The same is asked of the
two halves of one log, in the order of time.

**The change** (`change_between`). Two sides of rows were drawn by policies p and p'. They tell of
pi0 on the part of its decisions that both could show often enough, pi0 g with
g = min(1, clip p / pi0, clip p' / pi0)::

    w = pi0 g / p,     E[w (r - c)] = E_pi0[g (r - c)]     on either side, for any number c

if rewards and contexts stayed the same. That part is all of pi0 where both policies cover it.
Where a policy cannot be called, g is not known on the other side's rows. Then the part that it does
not cover may be worth anything from 0 to r_max, and with w = min(pi0 / p, clip)::

    E[w r] <= V(pi0),     E[r_max - w (r_max - r)] >= V(pi0)

The first bounds V(pi0) where the question is whether it is higher than on the other side, the
second where it is whether it is lower: valid, but blind where little is covered.

**Its limits.** It rose if the mean of t is above 0: w (r - c) n / n_after in later values,
-w (r - c) n / n_before in earlier ones; it fell if that of -t is. A fixed bet gives a lower bound
on the mean of n values t, as in `Smoothing`::

    (exp(mean of log(1 + bet t) - log(1/delta) / n) - 1) / bet

Why this bound and not a normal one: the product of 1 + bet t has mean at most (1 + bet E[t])^n also
where means differ from value to value. So it holds at every n and for any reward distribution. Both
sides enter one bound; two intervals, one for each side, would see less. Its price: at delta .01 a
change must be 1.2 times as large as for a z-test of two independent samples.

**Which earlier rows.** g knows the later policy, so the earlier rows must not have taught it. A
policy prefers what happened to earn well in its learn fold. On these rows pi0 g earns too much, and
a fall is found that never was: a shift of 1.9 standard errors on the MovieLens simulator, where 5
of 140 campaigns were refused at delta .01. Rows that certified the policy will do, which chose its
novelty at most. On rows that taught it a rise is hidden, not feigned: it may still be believed.

One value of 20, by position, is a pilot: it sets c and the bet and is not tested. A unit is one
value, also where it is on both sides.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from depsue.bounds import tuning_rows
from depsue.data.checks import FloatArray, IntArray, Mask
from depsue.data.logs import LoggedData
from depsue.diagnostics.drawn_by import require_drawn_by
from depsue.errors import DataError, require, require_delta, short
from depsue.estimators.weights import importance_weights
from depsue.promises import Promise, checked_promises
from depsue.protocols import Policy

FEWEST_TO_TEST_DRIFT = 40
"""The fewest values on either side that are tested."""
LARGEST_LOSS = 0.8
"""No value loses more than this share of the bet's capital."""
POWER = 1.2816
"""Standard errors: a normal variable exceeds its mean minus so many with probability .9."""
SHARED_CLIP = 3.0
"""The largest weight where both policies can be called: a choice of what is compared."""
WEIGHT_SHARE, SMALLEST_CLIP = 8.0, 5.0
"""Else no weight counts for more than sqrt(n) / 8, or 5: what is cut off is not seen."""


@dataclass(frozen=True)
class DriftTest:
    """What was found about one pair of logs, or the two halves of one, for one promise.

    Args:
        promise: the name of the promise, whose reward and rows these are.
        what: what was compared, in words.
        change: what pi0 earns before and after, and the limits of its change.
        delta: of this test; both limits hold at it together.
        rise_only: whether a fall does not count.
    """

    promise: str
    what: str
    change: Change
    delta: float
    rise_only: bool = False

    @property
    def drifted(self) -> bool:
        """Whether the limits rule out that nothing changed."""
        return self.change.low > 0 or (self.change.high < 0 and not self.rise_only)

    def __str__(self) -> str:
        c = self.change
        part = "" if c.compared > 0.995 else f" on the {c.compared:.0%} of its decisions compared"
        share = f" ({c.smallest / c.before:.1%})" if c.before > 0 else ""
        return (
            f"{self.promise}, {self.what}: what pi0 earns{part} went from {c.before:.4g} to "
            f"{c.after:.4g}, a change between {c.low:+.2g} and {c.high:+.2g}, by {c.n:,} values at "
            f"delta {self.delta:.3g}; a change of {c.smallest:.2g}{share} is seen 9 times in 10"
        )


@dataclass(frozen=True)
class DriftReport:
    """Whether rounds may be pooled, and why.

    Args:
        ok: True if nothing refutes that pi0 earns what it did.
        findings: what refutes it, a sentence each.
        notes: what could not be tested, a sentence each.
        assumed: what the verdict rests on, a sentence each.
        delta: the share of campaigns without drift that are refused, at most.
        tests: one for each promise and pair.
    """

    ok: bool
    findings: tuple[str, ...]
    notes: tuple[str, ...]
    assumed: tuple[str, ...]
    delta: float
    tests: tuple[DriftTest, ...]

    @property
    def worst(self) -> DriftTest:
        """The test that refutes most, or comes closest to it."""
        return max(
            self.tests,
            key=lambda test: max(test.change.low, -test.change.high) / test.change.smallest,
        )

    def with_other(self, other: DriftReport) -> DriftReport:
        """Both reports as one: nothing is refuted if neither refutes."""
        return DriftReport(
            ok=self.ok and other.ok,
            findings=self.findings + other.findings,
            notes=tuple(dict.fromkeys(self.notes + other.notes)),
            assumed=tuple(dict.fromkeys(self.assumed + other.assumed)),
            delta=self.delta + other.delta,
            tests=self.tests + other.tests,
        )

    def __str__(self) -> str:
        head = (
            "nothing refutes that pi0 earns what it did"
            if self.ok
            else "what pi0 earns has changed"
        )
        lines = [f"{head}: {len(self.tests)} test(s) at delta {self.delta:g} in all"]
        for test in self.tests:
            lines.append(f"  {'drift' if test.drifted else 'no drift seen'}: {test}")
        for name, sentences in (("note", self.notes), ("assumed", self.assumed)):
            lines += [f"  {name}: {sentence}" for sentence in sentences]
        return "\n".join(lines)


def check_drift(
    earlier: LoggedData | Sequence[LoggedData],
    newest: LoggedData,
    *,
    logging_policy: Policy | None = None,
    deployed: Mapping[int, Policy] | None = None,
    promises: Sequence[Promise] = (Promise(),),
    delta: float = 0.01,
    within: bool = True,
    rise_only: bool = False,
) -> DriftReport:
    """Hold what pi0 earns in earlier rows against the newest, and in each log's two halves.

    Args:
        earlier: logs of earlier rounds; none, (), tests the newest in itself alone. They must not
            have taught the policy that drew the newest, or a fall is found where there is none.
        newest: the logs of one round; without the rows that a coming verdict will read.
        logging_policy: pi0; needed where a log is not of round 0.
        deployed: the policy that drew each later round, by round, where it can be called; without
            it little is seen.
        promises: whose rewards and segments.
        delta: where nothing changed it is refused at most so often, over all tests.
        within: also compare the two halves of every log, by time, or by row where there is none.
        rise_only: whether a fall does not count: a ceiling on V(pi0) holds after one, and it is
            what seems to happen on rows that taught the policy.
    """
    delta, promises = require_delta(delta), checked_promises(promises)
    before = [earlier] if isinstance(earlier, LoggedData) else list(earlier)
    rounds = [part for logs in before for part in _by_round(logs)]
    last = list(_by_round(newest))
    require(
        len(last) == 1,
        "the newest logs must be of one round",
        found=f"{len(last)} rounds",
        cure="hand the others in as earlier",
    )
    _require_alike([*rounds, newest])
    pi0, logs = _Pi0(logging_policy, deployed or {}), [*rounds, newest]
    for part in logs:
        pi0.check(part)
    pairs = [(promise, pair) for promise in promises for pair in _pairs(pi0, logs, promise, within)]
    require(bool(pairs), "there must be logs to compare", found="none, and within=False")
    tests: list[DriftTest] = []
    notes: list[str] = []
    for promise, (what, first, second) in pairs:
        change = change_between(first, second, delta / len(pairs) / 2)
        if change is None:
            few = f"fewer than {FEWEST_TO_TEST_DRIFT} values on a side, no test"
            notes.append(f"{promise.name}, {what}: {few}")
        else:
            tests.append(DriftTest(promise.name, what, change, delta / len(pairs), rise_only))
    require(
        bool(tests),
        f"a test needs at least {FEWEST_TO_TEST_DRIFT} values (rows, or units) on each side",
        found=notes[0] if notes else "",
        cure="log more",
    )
    findings = tuple(str(test) for test in tests if test.drifted)
    assumed = tuple(_assumed(logs, within))
    return DriftReport(not findings, findings, tuple(notes), assumed, delta, tuple(tests))


def require_no_drift(
    earlier: LoggedData | Sequence[LoggedData],
    newest: LoggedData,
    *,
    logging_policy: Policy | None = None,
    deployed: Mapping[int, Policy] | None = None,
    promises: Sequence[Promise] = (Promise(),),
    delta: float = 0.01,
    within: bool = True,
) -> DriftReport:
    """The report of `check_drift`, or a DataError with the first thing that refutes."""
    report = check_drift(
        earlier,
        newest,
        logging_policy=logging_policy,
        deployed=deployed,
        promises=promises,
        delta=delta,
        within=within,
    )
    if report.ok:
        return report
    more = len(report.findings) - 1
    name = next(test.promise for test in report.tests if test.drifted)
    raise DataError(
        "rounds can be pooled, and pi0's first logs relied on, only while pi0 earns what it did",
        column=next(promise.reward or "reward" for promise in promises if promise.name == name),
        found=report.findings[0] + (f" (and {more} more)" if more else ""),
        cure="do not declare no_drift: every row is then paired with pi0 in its own round; or "
        "start anew from fresh logs of pi0",
    )


class _Pi0:
    """What is known of pi0 and of the policies that drew later rounds.

    Args:
        logging_policy: pi0, or None.
        deployed: the policies of later rounds that can be called.
    """

    def __init__(self, logging_policy: Policy | None, deployed: Mapping[int, Policy]) -> None:
        self.policy, self.deployed = logging_policy, deployed

    def check(self, logs: LoggedData) -> None:
        """Refuse logs that say nothing of pi0, or that another policy drew."""
        number = _round(logs)
        require(
            number == 0 or self.policy is not None,
            "logs of a later round tell of pi0 only where its probabilities are known",
            found=f"round {number}, logging_policy None",
            cure="logging_policy=pi0",
        )
        drew = self.policy if number == 0 else self.deployed.get(number)
        if drew is not None:
            require_drawn_by(drew, logs)

    def sides(
        self, promise: Promise, before: LoggedData, after: LoggedData
    ) -> tuple[DriftSide, DriftSide]:
        """Both logs as sides of a comparison."""
        rounds = {_round(before), _round(after)}
        known = all(number == 0 or number in self.deployed for number in rounds)
        shared = known or len(rounds) == 1  # one policy drew both
        first, second = (self._side(promise, logs, rounds, shared) for logs in (before, after))
        return first, second

    def _side(
        self, promise: Promise, logs: LoggedData, rounds: set[int], shared: bool
    ) -> DriftSide:
        own, mask = promise.rows(logs)
        clip = SHARED_CLIP if shared else max(len(logs) ** 0.5 / WEIGHT_SHARE, SMALLEST_CLIP)
        number = _round(logs)
        weight = np.ones(len(logs))
        if rounds != {0}:
            weight = np.minimum(importance_weights(self.policy, logs), clip)  # type: ignore[arg-type]
        for later in rounds - {0, number} if shared else ():
            theirs = importance_weights(self.deployed[later], logs)
            weight = np.minimum(weight, clip * theirs)
        if number == 0:
            weight, clip = np.minimum(weight, 1.0), 1.0
        ids = None if own.units is None or own.unit is None else own.units[own.unit]
        return DriftSide(own.reward, weight[mask], shared or number == 0, clip, own.r_max, ids)


def _pairs(
    pi0: _Pi0, logs: Sequence[LoggedData], promise: Promise, within: bool
) -> Iterator[tuple[str, DriftSide, DriftSide]]:
    """What is compared, in words, and its two sides."""
    newest = logs[-1]
    for part in logs[:-1]:
        yield f"round {_round(part)} to round {_round(newest)}", *pi0.sides(promise, part, newest)
    for part in logs if within else ():
        n = len(part)
        order = np.arange(n) if part.time is None else np.argsort(part.time, kind="stable")
        halves = [part.take(np.sort(order[half])) for half in (slice(n // 2), slice(n // 2, n))]
        what = f"first to second half of round {_round(part)}"
        yield what, *pi0.sides(promise, halves[0], halves[1])


def _round(logs: LoggedData) -> int:
    return int(np.asarray(logs.round)[0])


def _by_round(logs: LoggedData) -> Iterator[LoggedData]:
    """The logs of each round."""
    require(
        isinstance(logs, LoggedData),
        "drift is tested on logs",
        found=short(logs),
        cure="check_drift(earlier, newest, logging_policy=pi0)",
    )
    rounds = np.asarray(logs.round)
    numbers = np.unique(rounds)
    for number in numbers.tolist():
        yield logs if len(numbers) == 1 else logs.take(rounds == number)


def _require_alike(logs: Sequence[LoggedData]) -> None:
    """Refuse logs that cannot be compared."""
    first = logs[0]
    for other in logs[1:]:
        require(
            other.catalogue.hash == first.catalogue.hash,
            "logs that are compared must be over the same catalogue",
            found=f"{len(first.catalogue)} and {len(other.catalogue)} actions",
            cure="keep one catalogue, with all novel actions, for the whole campaign",
        )
        for what in ("r_max", "unit"):
            mine, theirs = getattr(first, what), getattr(other, what)
            if what == "unit":
                mine, theirs = ("none" if ids is None else "given" for ids in (mine, theirs))
            if mine != theirs:
                raise DataError(
                    "logs that are compared must have the same r_max, and all have units or none",
                    column=what,
                    found=f"{mine} and {theirs}",
                    cure="read all rounds with the same settings",
                )


def _assumed(logs: Sequence[LoggedData], within: bool) -> Iterator[str]:
    yield "every logged propensity is the probability with which its action was drawn"
    if logs[-1].unit is not None:
        yield "units are drawn alike in all rounds, each without regard to the others"
    else:
        yield "rows are drawn alike in all rounds, each without regard to the others"
    if within and any(part.time is None for part in logs):
        yield "rows without a time stand in the order in which they were logged"


class Change(NamedTuple):
    """The change between two sides.

    Args:
        before, after: what pi0 earns on the part that is compared, on the earlier and later rows.
        low, high: limits of after - before; each fails with probability at most delta.
        smallest: a true change of this size would have been seen with probability .9, about.
        compared: the share of pi0's decisions that is compared; the rest is not seen.
        n: values (rows, or units) that were tested.
    """

    before: float
    after: float
    low: float
    high: float
    smallest: float
    compared: float
    n: int


class DriftSide(NamedTuple):
    """The n rows of one side.

    Args:
        reward: (n,) rewards.
        weight: (n,) w, between 0 and `clip`.
        shared: whether w is pi0 g / p; else it is min(pi0 / p, clip).
        clip: the largest weight; 1 for rows of pi0.
        r_max: the declared largest reward.
        ids: (n,) units; None if every row is a value.
    """

    reward: FloatArray
    weight: FloatArray
    shared: bool
    clip: float
    r_max: float
    ids: np.ndarray[Any, Any] | None

    def gain(self, c: float) -> tuple[FloatArray, float]:
        """(n,) what is at most the value less c, in the mean; and the least that it can be."""
        if self.shared:
            return self.weight * (self.reward - c), -self.clip * c
        return self.weight * self.reward - c, -c

    def loss(self, c: float) -> tuple[FloatArray, float]:
        """(n,) what is at most c less the value, in the mean; and the least that it can be."""
        missing = self._replace(reward=self.r_max - self.reward)
        return missing.gain(self.r_max - c)


def change_between(before: DriftSide, after: DriftSide, delta: float) -> Change | None:
    """The change, each of its limits at `delta`; None with too few values on a side."""
    sides, (places, n) = (before, after), _values(before, after)
    pilot = np.zeros(n, dtype=bool)
    pilot[tuning_rows(n)] = True
    counts = [np.bincount(place, minlength=n) for place in places]
    if min(int((count[~pilot] > 0).sum()) for count in counts) < FEWEST_TO_TEST_DRIFT:
        return None
    c = _centre(before, pilot[places[0]])

    def part(i: int, rows: FloatArray, least: float = 0.0) -> _Part:
        place, count = places[i], counts[i]
        return _Part(np.bincount(place, rows, n) / np.maximum(count, 1), count > 0, least)

    rose = _lower(part(1, *after.gain(c)), part(0, *before.loss(c)), pilot, delta)
    fell = _lower(part(0, *before.gain(c)), part(1, *after.loss(c)), pilot, delta)
    mass = [part(i, side.weight).mean() for i, side in enumerate(sides)]
    compared = mass[0] if before.shared else min(mass[0], 1.0)
    apart = sum(
        max(side.r_max * (1 - covered), 0.0)
        for side, covered in zip(sides, mass, strict=True)
        if not side.shared
    )
    values = [
        c * compared + part(i, side.weight * (side.reward - c)).mean()
        for i, side in enumerate(sides)
    ]
    return Change(
        before=values[0],
        after=values[1],
        low=rose.value,
        high=-fell.value,
        smallest=max(rose.distance, fell.distance) + apart,
        compared=compared,
        n=int((~pilot).sum()),
    )


def _centre(side: DriftSide, pilot: Mask) -> float:
    """c: the mean reward, as far as pi0 would have earned it, of the pilot's rows."""
    weight, reward = side.weight[pilot], side.reward[pilot]
    total = float(weight.sum())
    return float(weight @ reward) / total if total > 0 else side.r_max / 2


class _Part(NamedTuple):
    """(n,) one side's part of every value, 0 where the value is not there; its least."""

    values: FloatArray
    there: Mask
    least: float

    def mean(self) -> float:
        """Over the values that are there."""
        return float(self.values[self.there].mean())


class _Lower(NamedTuple):
    """A lower bound, and how far above 0 the truth must be for the bound to be, 9 times in 10."""

    value: float
    distance: float


def _lower(gain: _Part, loss: _Part, pilot: Mask, delta: float) -> _Lower:
    """The lower bound on E[gain] + E[loss], by one bet on all values but the pilot's."""
    n, log = int((~pilot).sum()), math.log(1 / delta)
    scales = [n / int((part.there & ~pilot).sum()) for part in (gain, loss)]
    t = scales[0] * gain.values + scales[1] * loss.values
    leasts = scales[0] * gain.least, scales[1] * loss.least
    least = sum(leasts) if bool((gain.there & loss.there).any()) else min(leasts)
    variance = float(t[pilot].var())
    bet = math.sqrt(2 * log / (n * variance + 2 * log * (least / LARGEST_LOSS) ** 2))
    tested = t[~pilot]
    value = math.expm1(float(np.log1p(bet * tested).mean()) - log / n) / bet
    error = float(tested.std()) / math.sqrt(n)
    return _Lower(value, float(tested.mean()) - value + POWER * error)


def _values(before: DriftSide, after: DriftSide) -> tuple[tuple[IntArray, IntArray], int]:
    """Which value each row of either side belongs to, and how many there are."""
    m = len(before.reward)
    if before.ids is None or after.ids is None:
        n = m + len(after.reward)
        return (np.arange(m), np.arange(m, n)), n
    ids, place = np.unique(np.concatenate([before.ids, after.ids]), return_inverse=True)
    return (place[:m], place[m:]), len(ids)
