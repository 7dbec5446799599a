"""Does pi0 still earn what it did? The test of what `no_drift` declares.

Round 0 was drawn by pi0 itself; the rows of a later round, whoever drew them, tell of pi0 through
the weights pi0 / p. So what pi0 earns is estimated on both, on the part of its decisions that both
could show, and the limits of its change (`change.py`) must include 0. The same is asked of the two
halves of one log, in the order of time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from depsue.certificates.change import FEWEST, Change, Side, change_between
from depsue.certificates.drawn_by import require_drawn_by
from depsue.certificates.promise import Promise, checked_promises
from depsue.data.logs import LoggedData
from depsue.errors import DataError, require, require_level, short
from depsue.estimators.weights import importance_weights
from depsue.protocols import Policy

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
        level: of this test; both limits hold at it together.
    """

    promise: str
    what: str
    change: Change
    level: float

    @property
    def drifted(self) -> bool:
        """Whether the limits rule out that nothing changed."""
        return self.change.low > 0 or self.change.high < 0

    def __str__(self) -> str:
        c = self.change
        part = "" if c.compared > 0.995 else f" on the {c.compared:.0%} of its decisions compared"
        share = f" ({c.smallest / c.before:.1%})" if c.before > 0 else ""
        return (
            f"{self.promise}, {self.what}: what pi0 earns{part} went from {c.before:.4g} to "
            f"{c.after:.4g}, a change between {c.low:+.2g} and {c.high:+.2g}, by {c.n:,} values at "
            f"level {self.level:.3g}; a change of {c.smallest:.2g}{share} is seen 9 times in 10"
        )


@dataclass(frozen=True)
class DriftReport:
    """Whether rounds may be pooled, and why.

    Args:
        ok: True if nothing refutes that pi0 earns what it did.
        findings: what refutes it, a sentence each.
        notes: what could not be tested, a sentence each.
        assumed: what the verdict rests on, a sentence each.
        level: the share of campaigns without drift that are refused, at most.
        tests: one for each promise and pair.
    """

    ok: bool
    findings: tuple[str, ...]
    notes: tuple[str, ...]
    assumed: tuple[str, ...]
    level: float
    tests: tuple[DriftTest, ...]

    @property
    def worst(self) -> DriftTest:
        """The test that refutes most, or comes closest to it."""
        return max(
            self.tests,
            key=lambda one: max(one.change.low, -one.change.high) / one.change.smallest,
        )

    def __str__(self) -> str:
        head = (
            "nothing refutes that pi0 earns what it did"
            if self.ok
            else "what pi0 earns has changed"
        )
        lines = [f"{head}: {len(self.tests)} test(s) at level {self.level:g} in all"]
        lines += [f"  {'drift' if one.drifted else 'no drift seen'}: {one}" for one in self.tests]
        for name, said in (("note", self.notes), ("assumed", self.assumed)):
            lines += [f"  {name}: {sentence}" for sentence in said]
        return "\n".join(lines)


def check_drift(
    earlier: LoggedData | Sequence[LoggedData],
    newest: LoggedData,
    *,
    logging_policy: Policy | None = None,
    deployed: Mapping[int, Policy] | None = None,
    promises: Sequence[Promise] = (Promise(),),
    level: float = 0.01,
    within: bool = True,
) -> DriftReport:
    """Hold what pi0 earns in earlier rows against the newest, and in each log's two halves.

    Args:
        earlier: logs of earlier rounds; none, (), tests the newest in itself alone.
        newest: the logs of one round; without the rows that a coming verdict will read.
        logging_policy: pi0; needed where a log is not of round 0.
        deployed: the policy that drew each later round, by round, where it can be called; without
            it little is seen.
        promises: whose rewards and segments.
        level: where nothing changed it is refused at most so often, over all tests.
        within: also compare the two halves of every log, by time, or by row where there is none.
    """
    level, promises = require_level(level), checked_promises(promises)
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
    for one in logs:
        pi0.check(one)
    pairs = [(p, pair) for p in promises for pair in _pairs(pi0, logs, p, within)]
    require(bool(pairs), "there must be logs to compare", found="none, and within=False")
    tests: list[DriftTest] = []
    notes: list[str] = []
    for promise, (what, first, second) in pairs:
        found = change_between(first, second, level / len(pairs) / 2)
        if found is None:
            notes.append(f"{promise.name}, {what}: fewer than {FEWEST} values on a side, no test")
        else:
            tests.append(DriftTest(promise.name, what, found, level / len(pairs)))
    require(
        bool(tests),
        f"a test needs at least {FEWEST} values (rows, or units) on each side",
        found=notes[0] if notes else "",
        cure="log more",
    )
    findings = tuple(str(one) for one in tests if one.drifted)
    assumed = tuple(_assumed(logs, within))
    return DriftReport(not findings, findings, tuple(notes), assumed, level, tuple(tests))


def require_no_drift(
    earlier: LoggedData | Sequence[LoggedData],
    newest: LoggedData,
    *,
    logging_policy: Policy | None = None,
    deployed: Mapping[int, Policy] | None = None,
    promises: Sequence[Promise] = (Promise(),),
    level: float = 0.01,
    within: bool = True,
) -> DriftReport:
    """The report of `check_drift`, or a DataError with the first thing that refutes."""
    report = check_drift(
        earlier,
        newest,
        logging_policy=logging_policy,
        deployed=deployed,
        promises=promises,
        level=level,
        within=within,
    )
    if report.ok:
        return report
    more = len(report.findings) - 1
    name = next(one.promise for one in report.tests if one.drifted)
    raise DataError(
        "rounds can be pooled, and pi0's first logs relied on, only while pi0 earns what it did",
        column=next(one.reward or "reward" for one in promises if one.name == name),
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

    def sides(self, promise: Promise, one: LoggedData, other: LoggedData) -> tuple[Side, Side]:
        """Both logs as sides of a comparison."""
        rounds = {_round(one), _round(other)}
        known = all(number == 0 or number in self.deployed for number in rounds)
        shared = known or len(rounds) == 1  # one policy drew both
        return self._side(promise, one, rounds, shared), self._side(promise, other, rounds, shared)

    def _side(self, promise: Promise, logs: LoggedData, rounds: set[int], shared: bool) -> Side:
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
        return Side(own.reward, weight[mask], shared or number == 0, clip, own.r_max, ids)


def _pairs(
    pi0: _Pi0, logs: Sequence[LoggedData], promise: Promise, within: bool
) -> Iterator[tuple[str, Side, Side]]:
    """What is compared, in words, and its two sides."""
    newest = logs[-1]
    for one in logs[:-1]:
        yield f"round {_round(one)} to round {_round(newest)}", *pi0.sides(promise, one, newest)
    for one in logs if within else ():
        n = len(one)
        order = np.arange(n) if one.time is None else np.argsort(one.time, kind="stable")
        halves = [one.take(np.sort(order[part])) for part in (slice(n // 2), slice(n // 2, n))]
        what = f"first to second half of round {_round(one)}"
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
                mine, theirs = ("none" if one is None else "given" for one in (mine, theirs))
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
    if within and any(one.time is None for one in logs):
        yield "rows without a time stand in the order in which they were logged"
