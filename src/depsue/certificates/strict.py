"""Strict certificates: levels in a fixed order, fresh rows, conservative terms, one delta.

Per-row terms become sums, sums over partitions merge, and a bound concludes from them. Rows in
memory are one partition; those of a stream are read a partition at a time, as often as the bound
needs passes, and of each level and promise only sums are kept.

A second throw of the dice is refused or paid for: every verdict on the same rows is counted
(`Reads`) before it reads them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, cast

import numpy as np

from depsue.bounds import BoundRun, Partition
from depsue.certificates.certificate import Certificate, Verdict
from depsue.certificates.folds import Folds, StreamedFolds
from depsue.certificates.promise_test import Evidence, PromiseTest, verdict_of
from depsue.certificates.rules import MixtureLadder, Rules
from depsue.certificates.terms import LimitedTerms
from depsue.certificates.tuning import tuned
from depsue.data.checks import FloatArray, IntArray
from depsue.data.logs import LoggedData
from depsue.data.partitions import StreamedFold, UnitNumbers
from depsue.data.terms import ConservativeTerms, WeightedTerms
from depsue.errors import ConfigError, FileError, require, short
from depsue.files import write_synced
from depsue.promises import Promise
from depsue.protocols import Policy
from depsue.savable import hash_of

MOST_UNITS = 20_000_000
"""Of a stream: units that may have a sum each."""
LEVELS_A_PASS, UNIT_SUMS = 32, 1 << 25
"""Of a stream: how many levels one pass looks at, and how many sums of units are kept, at most."""
MOST_SELECT = 200_000
"""Of a stream: rows of the select fold that the constants of a bound are taken from, about."""


def certify(
    ladder: MixtureLadder,
    folds: Folds | StreamedFolds,
    rules: Rules,
    reads: CountsReads,
    *,
    logging_policy: Policy | None = None,
) -> Certificate:
    """Test the levels in their order, each at the same delta, and stop at the first that fails.

    Fixed-sequence testing: a wrong verdict needs the first unsafe level to pass, which happens at
    most a fraction delta of the time, however many levels are listed.

    Args:
        ladder: the policies, safest first.
        folds: `three_folds` of logs in memory, or of a `LogStream`. `folds.certify` is read once
            everything is fixed; `folds.select` sets the constants of the bound that `rules` leave
            open. What the mapping of a stream assumes is added to the assumptions.
        rules: fixed beforehand.
        reads: counts the verdicts on these rows, before they are read.
        logging_policy: pi0, for paired terms on rows that another policy logged; None says that
            pi0 logged them.

    Returns:
        The certificate of the last level that passed; of the first level if none did.
    """
    if isinstance(folds, StreamedFolds):
        mapping = folds.certify.stream.mapping
        more = [words for words in mapping.assumptions if words not in rules.assumptions]
        rules = replace(rules, assumptions=(*rules.assumptions, *more))
    # what cannot be tested, or leaves nothing of delta, is refused before it counts as an attempt
    _require_sums(folds.certify, rules)
    rules.left(reads.delta_of_attempt(rules.delta, reads.count(folds.data) + 1))
    attempt = reads.begin(folds.data)
    delta = reads.delta_of_attempt(rules.delta, attempt)
    rules = _tuned(rules, ladder, folds, delta, logging_policy)
    level, best, tested = 0, tuple[Verdict, ...](), 0
    for verdicts in verdicts_on(ladder, folds.certify, rules, delta, logging_policy):
        passed = all(verdict.passed for verdict in verdicts)
        if passed or tested == 0:
            level, best = tested, verdicts
        tested += 1
        if not passed:
            break
    return Certificate(
        kind="strict",
        campaign=folds.campaign,
        round=folds.round,
        data=folds.data,
        fractions=folds.fractions,
        attempt=attempt,
        retries=reads.retries,
        delta=delta,
        spent=rules.spent(delta),
        bound=rules.bound,
        clip=rules.clip,
        largest=rules.largest,
        shares=tuple(float(share) for share in ladder.shares[level]),
        path=tuple(tuple(float(share) for share in shares) for shares in ladder.shares[:tested]),
        tested=tested,
        listed=len(ladder.shares),
        policy=None if None in ladder.parts else hash_of(ladder.policy(level)),
        verdicts=best,
        assumptions=_assumptions(folds.certify, rules),
        control=None if rules.control is None else dict(rules.control.coefficients),
        control_most=None if rules.control is None else rules.control.most,
        model=None if rules.control is None else hash_of(rules.control.model),
        groups=None if rules.marginal is None else rules.marginal.groups_hash,
        fixed_length=rules.fixed_length,
    )


def _tuned(
    rules: Rules,
    ladder: MixtureLadder,
    folds: Folds | StreamedFolds,
    delta: float,
    logging_policy: Policy | None,
) -> Rules:
    """With constants from the select fold, or from a sample of it, where they are missing."""
    if not rules.untuned:
        return rules
    select, certifying = folds.select, folds.certify
    rows = select.sample(MOST_SELECT) if isinstance(select, StreamedFold) else select
    # how many rows certify is known without reading a reward
    count = certifying.rows if isinstance(certifying, StreamedFold) else len(certifying)
    return tuned(rules, ladder, rows, count, delta, logging_policy=logging_policy)


def verdicts_on(
    ladder: MixtureLadder,
    rows: LoggedData | StreamedFold,
    rules: Rules,
    delta: float,
    logging_policy: Policy | None = None,
) -> Iterator[tuple[Verdict, ...]]:
    """The verdicts on one level after another; rows are read when the first is asked for.

    Args:
        ladder: the policies.
        rows: the certifying rows: one partition in memory, or several.
        rules: the rules.
        delta: the error budget of the whole verdict.
        logging_policy: as for `certify`.
    """
    _require_sums(rows, rules)
    reading = _Reading(rows, ladder.parts, rules, delta, logging_policy)
    for start in range(0, len(ladder.shares), reading.levels_a_pass):
        shares = ladder.shares[start : start + reading.levels_a_pass]
        runs = [reading.runs() for _ in shares]
        while not all(run.done for level in runs for run in level):
            reading.one_pass(shares, runs)
        for level in runs:
            yield tuple(run.verdict() for run in level)


class CountsReads(Protocol):
    """What `certify` asks of whoever counts the verdicts: `Reads`, or a ledger."""

    retries: bool

    def begin(self, data: str) -> int:
        """Count one more read of the rows with this hash; which attempt it is, from 1."""
        ...

    def count(self, data: str) -> int:
        """How often the rows with this hash were read so far."""
        ...

    def delta_of_attempt(self, delta: float, attempt: int) -> float:
        """The delta at which that attempt is tested."""
        ...


class Reads:
    """How often the certifying rows of each data set were read, in memory or in a file.

    Without `retries` a second verdict on the same rows is refused. With them, declared before the
    first verdict, attempt j is tested at delta 2^-j (j = 1, 2, ...), which sums to delta.

    Args:
        path: a JSON file that outlives the process; None counts in memory only.
        retries: whether further attempts are allowed; a file remembers the choice.
    """

    def __init__(self, path: str | Path | None = None, *, retries: bool = False) -> None:
        self._path = None if path is None else Path(path)
        self.retries = retries
        self._counts: dict[str, int] = {}
        self._recall()

    def begin(self, data: str) -> int:
        """Count one more read of the rows with this hash; which attempt it is, from 1.

        The count is on disk before the rows are looked at, so a crash counts as a read.
        """
        attempt = self.count(data) + 1
        if attempt > 1 and not self.retries:
            raise ConfigError(
                "the certifying rows of a data set are read by one verdict",
                found=f"attempt {attempt} on data {data[:12]}",
                cure="certify on new rows; or declare Reads(retries=True) before the first "
                "verdict, which tests attempt j at delta 2^-j",
            )
        self._counts[data] = attempt
        if self._path is not None:
            _write(self._path, self._counts, self.retries)
        return attempt

    def count(self, data: str) -> int:
        """How often the rows with this hash were read so far."""
        self._recall()
        return self._counts.get(data, 0)

    def delta_of_attempt(self, delta: float, attempt: int) -> float:
        """The delta at which that attempt is tested."""
        return delta * 2.0**-attempt if self.retries else delta

    def _recall(self) -> None:
        """Take the counts from the file: others may have written to it since."""
        if self._path is None or not self._path.exists():
            return
        self._counts, remembered = _read(self._path)
        require(
            remembered == self.retries,
            "whether retries are allowed is decided before the first verdict",
            found=f"retries={remembered} in {self._path}, retries={self.retries} now",
            cure=f"go on with retries={remembered}",
        )


def _read(path: Path) -> tuple[dict[str, int], bool]:
    try:
        content = json.loads(path.read_text())
        counts = {str(data): int(count) for data, count in content["reads"].items()}
        return counts, bool(content["retries"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
        raise FileError(
            "the file must hold the reads of a campaign",
            found=f"{path}: {short(str(problem))}",
            cure="restore it from a copy; without it a verdict cannot be counted",
        ) from problem


def _write(path: Path, counts: dict[str, int], retries: bool) -> None:
    write_synced(path, json.dumps({"retries": retries, "reads": counts}, indent=1).encode())


class _Reading:
    """Goes through the partitions of the certifying rows, pass after pass.

    In memory there is one partition. What it says of the policies is kept, and levels are looked at
    one by one, so that none is tested in vain. A pass over a stream looks at many levels at once.

    Args:
        rows: the certifying rows.
        parts: the policies that are mixed.
        rules, delta, logging_policy: as for `verdicts_on`.
    """

    def __init__(
        self,
        rows: LoggedData | StreamedFold,
        parts: Sequence[Policy | None],
        rules: Rules,
        delta: float,
        logging_policy: Policy | None,
    ) -> None:
        self._rows, self._parts, self._rules = rows, parts, rules
        self._delta, self._logging_policy = delta, logging_policy
        self._in_memory: _TestedPartition | None = None
        self._counts: list[int] | None = None
        self._units, self.levels_a_pass = 0, 1
        if isinstance(rows, LoggedData):
            self._in_memory = self._tested(rows, range(len(rules.promises)))
            return
        self._units, self.levels_a_pass = rows.stream.facts.units, LEVELS_A_PASS
        if self._units:
            most = UNIT_SUMS // (self._units * len(rules.promises))
            self.levels_a_pass = max(1, min(LEVELS_A_PASS, most))
        else:
            self._counts = _counts(rows, rules.promises)

    def runs(self) -> list[_PromiseRun]:
        """For one level, a run for each promise."""
        each = self._rules.delta_each(self._delta)
        counts: list[int] | list[None] = self._counts or [None] * len(self._rules.promises)
        pairs = zip(self._rules.promises, counts, strict=True)
        return [_PromiseRun(promise, self._rules, each, n) for promise, n in pairs]

    def one_pass(self, shares: FloatArray, runs: Sequence[Sequence[_PromiseRun]]) -> None:
        """Show all partitions to the runs of these levels, (L, parts) shares."""
        by_unit = [_UnitMeans(len(shares), self._units) for _ in self._rules.promises]
        for tested in self._partitions():
            if self._units:
                for place, k in enumerate(tested.promises):
                    by_unit[k].begin(tested.test.rows(place))
            for level, of_level in enumerate(shares):
                if all(run.done for run in runs[level]):
                    continue
                mixed = tested.evidence.mixed(of_level)
                for place, k in enumerate(tested.promises):
                    limited = tested.test.terms(place, mixed)
                    if self._units:
                        by_unit[k].add(level, limited)
                    else:
                        runs[level][k].see(limited)
        for level, of_promises in enumerate(runs):
            for run, means in zip(of_promises, by_unit, strict=True):
                if self._units:
                    run.see(means.of(level))
                run.end_pass()

    def _partitions(self) -> Iterator[_TestedPartition]:
        if isinstance(self._rows, LoggedData):
            if self._in_memory is not None:
                yield self._in_memory
            return
        promises = self._rules.promises
        missing = set(range(len(promises)))
        for rows in self._rows.partitions():
            about = [k for k, promise in enumerate(promises) if promise.count(rows)]
            missing -= set(about)
            if about:
                yield self._tested(rows, about)
        for k in missing:
            promises[k].rows(rows)  # raises: a segment needs rows

    def _tested(self, rows: LoggedData, about: Sequence[int]) -> _TestedPartition:
        promises = [self._rules.promises[k] for k in about]
        test = PromiseTest(rows, self._rules, self._delta, self._logging_policy, promises)
        return _TestedPartition(test, test.evidence(self._parts), about)


@dataclass(frozen=True, eq=False)
class _TestedPartition:
    """A partition under test: its evidence of the parts, and which promises it is about."""

    test: PromiseTest
    evidence: Evidence
    promises: Sequence[int]


class _PromiseRun:
    """The bound on one promise at one level, under way over the partitions.

    Args:
        promise: the promise.
        rules: the rules.
        delta: what it is tested at.
        n: how many values there are in all; None if they come at once.
    """

    def __init__(self, promise: Promise, rules: Rules, delta: float, n: int | None) -> None:
        self._promise, self._rules, self._delta, self._n = promise, rules, delta, n
        self._run: BoundRun | None = None
        self._proof = ""

    @property
    def done(self) -> bool:
        """Whether the bound is known."""
        return self._run is not None and self._run.done

    def see(self, limited: LimitedTerms) -> None:
        """Sum up the terms of a partition."""
        part = Partition(limited.terms, 0 if self._run is None else self._run.seen)
        if self._run is None:
            bound = self._rules.bound_on(self._promise, limited)
            self._run = BoundRun(bound, limited.terms, self._n or len(part), self._delta)
            self._proof = limited.terms.proof
        self._run.see(part)

    def end_pass(self) -> None:
        """All partitions were seen."""
        if self._run is not None:
            self._run.end_pass()

    def verdict(self) -> Verdict:
        """The verdict, once the bound is known."""
        require(self._run is not None, "a verdict needs rows", found="no partition with any")
        value = cast(BoundRun, self._run).concluded()
        return verdict_of(self._promise, self._rules, value, self._proof)


class _UnitMeans:
    """The terms of one promise by unit, for units whose rows lie in several partitions.

    One sum for each unit and level is kept; the means then go to the bound as one partition.

    Args:
        levels: how many levels.
        units: how many units there are at most; 0 if rows stand for themselves.
    """

    def __init__(self, levels: int, units: int) -> None:
        self._numbers = UnitNumbers(units)
        self._sums = np.zeros((levels, units))
        self._at: IntArray = np.zeros(0, dtype=np.int32)
        self._like: list[LimitedTerms | None] = [None] * levels

    def begin(self, rows: LoggedData) -> None:
        """The rows of the next partition, which have units."""
        if rows.units is not None and rows.unit is not None:
            self._at = self._numbers.of(rows.units, rows.unit)

    def add(self, level: int, limited: LimitedTerms) -> None:
        """The terms of these rows at one level."""
        unit, values = np.asarray(limited.terms.unit), limited.terms.values
        sums = np.bincount(unit, weights=values, minlength=len(self._at))
        self._sums[level, self._at] += sums
        self._like[level] = limited

    def of(self, level: int) -> LimitedTerms:
        """(v,) the means of units at one level, as terms that declare what those of rows did."""
        limited, rows = cast(LimitedTerms, self._like[level]), self._numbers.rows
        means, like = self._sums[level, : len(rows)] / rows, limited.terms
        unit = np.arange(len(means))
        terms = ConservativeTerms(means, like.lower, unit=unit, proof=like.proof)
        if isinstance(like, WeightedTerms):
            rewards = np.full(len(means), like.r_max)
            terms = WeightedTerms.of(means / like.r_max, rewards, r_max=like.r_max, unit=unit)
        return LimitedTerms(terms, limited.upper, limited.r_max)


def _counts(fold: StreamedFold, promises: Sequence[Promise]) -> list[int]:
    """How many certifying rows each promise is about."""
    if not any(promise.segment for promise in promises):
        return [fold.rows] * len(promises)
    counts = [0] * len(promises)
    for rows in fold.partitions():
        for k, promise in enumerate(promises):
            counts[k] += promise.count(rows)
    return counts


def _require_sums(rows: LoggedData | StreamedFold, rules: Rules) -> None:
    """Refuse what cannot be had from sums over the partitions of a stream."""
    if isinstance(rows, LoggedData):
        return
    units = rows.stream.facts.units
    require(
        not units or rules.bound != "hcope",
        "hcope clips rows before it averages them by unit: it needs all rows",
        found=f"bound {rules.bound!r}, units in the column {rows.unit!r}",
        cure="use normal, betting or smoothing; or certify in memory",
    )
    require(
        units <= MOST_UNITS,
        f"one sum for each unit is kept, so there may be {MOST_UNITS:,} units",
        found=f"{units:,} in the column {rows.unit!r}",
        cure="where every row has a unit of its own, leave units out of the mapping; else take "
        "a sample of the units",
    )


def _assumptions(rows: LoggedData | StreamedFold, rules: Rules) -> tuple[str, ...]:
    """What the verdict rests on, in words."""
    words = [
        "every logged propensity is the probability with which its action was drawn",
        f"rewards lie between 0 and {rows.r_max:g}",
    ]
    words += [
        f"{promise.reward} lies between 0 and {promise.r_max:g}"
        for promise in rules.promises
        if promise.reward is not None
    ]
    if rows.unit is None:
        words.append(
            "rows are independent draws; the promise is about contexts like the logged ones"
        )
    else:
        words += [
            "rows of one unit are the sample; units are independent, and the promise is about the "
            "mean over units",
            "how many rows a unit has does not depend on what it was shown",
        ]
    words.append("what is served meets the same users and rewards as the logs")
    if columns := sorted({p.segment[0] for p in rules.promises if p.segment is not None}):
        words.append(
            f"segments ({', '.join(columns)}) are known before the decision, and make up the same "
            "shares of what is served as of the logs"
        )
    words.append(
        "the number of rows was fixed before their rewards were seen"
        if rules.fixed_length
        else f"fact: the round was ended by choice; {rules.bound} is used, which holds at any time"
    )
    words += [
        "no other verdict has read these rows than those that were counted here",
        "fact: nothing depends on the order of the rows",
        "fact: the error rate is that of this verdict; of campaigns with K verdicts like it, at "
        "most K times as many err in any of them",
    ]
    if rules.ceilings:
        sources = "; ".join(
            f"{name}: {ceiling.n:,} values of the logs {ceiling.data[:12]}"
            for name, ceiling in rules.ceilings.items()
        )
        words.append(
            "pi0's value has not changed since the rows that the ceiling was taken from "
            f"({sources})"
        )
    if rules.credits:
        most = max(credit.decisions for credit in rules.credits.values())
        words.append(
            "the promise is about the sum over this deployment and those before it; where they "
            "showed no margin, it rests on their certificates too"
        )
        if most:
            words.append(f"no more than {most:,} decisions are served before the next verdict")
    if rules.control is not None:
        words.append("every row was drawn from the distribution that its logging policy answers")
    if rules.marginal is not None:
        words.append(
            "within a group of actions the choice has no effect on the reward, given the context: "
            "a novel action is worth what its group is"
        )
    return (*words, *rules.assumptions)
