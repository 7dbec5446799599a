"""Are the logged propensities those that drew the actions? A test, before anything rests on them.

For a function m(x, a) >= 0 that was fixed before a row was seen, with sum over a of m(x, a) at
most 1 for every x, correct propensities p = pi0(a|x) give::

    z = m(x, a) / p,     E[z | x] = sum over a with pi0(a|x) > 0 of m(x, a) <= 1

whatever pi0 is. So a lower bound on the mean of z that exceeds 1 refutes the propensities. m is
learned from other rows: the closer it comes to pi0, the less z varies and the smaller the errors
that are found. Wrong by a factor of 2 up or down in 20% of rows, the mean of z is 1.05.

The claim holds row by row, each with its own propensity and its context held fixed, so neither
repeated users nor a policy that changed can cause a false refusal. What it cannot see:
propensities that are too large everywhere (z has a mean below 1, as it also has where m puts mass
on what pi0 cannot show), unless a smallest probability is declared (`least`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from depsue.bounds import Smoothing
from depsue.certificates.drawn_by import TOLERANCE, unlike
from depsue.certificates.propensity_models import CHOOSE, FIT, Rows, principal, tested
from depsue.data.checks import FloatArray, IntArray, Mask
from depsue.data.keys import mix64, row_keys
from depsue.data.logs import LoggedData
from depsue.data.terms import ConservativeTerms
from depsue.errors import DataError, is_real, require, require_level, short
from depsue.protocols import BoundValue, Policy


@dataclass(frozen=True)
class RoundTest:
    """What was found about one round.

    Args:
        round: the round.
        learned_from: rows that m was learned from.
        model: which m it was, in words.
        bound: mean and lower bound of z = m/p; more than 1 refutes.
        overstated: mean and lower bound of 1 - z, for z with uniform m; more than 0 refutes. None
            unless `least` was declared.
    """

    round: int
    learned_from: int
    model: str
    bound: BoundValue
    overstated: BoundValue | None = None


@dataclass(frozen=True)
class PropensityReport:
    """Whether the propensities may be relied on, and why.

    Args:
        ok: True if nothing refutes them.
        findings: what refutes them, a sentence each.
        notes: what looks wrong, but may have a good reason, a sentence each.
        assumed: what the verdict rests on, a sentence each.
        level: the share of correct logs that are refused, at most.
        rounds: the test of each round.
    """

    ok: bool
    findings: tuple[str, ...]
    notes: tuple[str, ...]
    assumed: tuple[str, ...]
    level: float
    rounds: tuple[RoundTest, ...]

    @property
    def n(self) -> int:
        """Rows that were tested."""
        return sum(one.bound.n for one in self.rounds)

    @property
    def worst(self) -> RoundTest:
        """The round with the highest bound."""
        return max(self.rounds, key=lambda one: one.bound.value)

    @property
    def mean(self) -> float:
        """The mean of z in the worst round; 1 if all is well, or less."""
        return self.worst.bound.mean

    @property
    def bound(self) -> float:
        """The lower bound on E[z] in the worst round; more than 1 refutes."""
        return self.worst.bound.value

    def __str__(self) -> str:
        head = "nothing refutes the propensities" if self.ok else "the propensities are wrong"
        one = self.worst
        lines = [
            f"{head}: {self.n:,} rows tested at level {self.level:g}; in round {one.round} m/p "
            f"has mean {self.mean:.4f} and lower bound {self.bound:.4f} (m: {one.model})"
        ]
        for name, said in (("wrong", self.findings), ("note", self.notes)):
            lines += [f"  {name}: {sentence}" for sentence in said]
        return "\n".join([*lines, *(f"  assumed: {sentence}" for sentence in self.assumed)])


def lower(z: FloatArray, level: float, least: float, proof: str) -> BoundValue:
    """The lower bound on E[z], for z >= least."""
    return Smoothing(unit_scale=1.0).lower(ConservativeTerms(z, least, proof=proof), level)


def check_propensities(
    learn: LoggedData,
    select: LoggedData,
    *,
    logging_policy: Policy | Mapping[int, Policy] | None = None,
    level: float = 0.01,
    fixed_policy: bool = False,
    least: float | None = None,
) -> PropensityReport:
    """Hold the propensities of the learn and select folds against the actions that were shown.

    Half of the learn rows (by a hash of their position) learn m; the other half and all select
    rows are tested. Rounds are tested one by one, at level / rounds each.

    Args:
        learn, select: two folds; never the certifying one.
        logging_policy: the policy that drew the rows, or one for each round: then propensities
            must be its own, to 0.1%.
        level: correct propensities are refused at most so often.
        fixed_policy: declares that in every round one policy drew all rows, and that the contexts
            hold all that it saw. Then two rows of one context and action with two propensities,
            and propensities of a context that sum to more than 1, refute; else they are notes.
        least: declares that round 0 shows each action that is not novel at least so often in
            every context. Then propensities that are too large are found too.
    """
    level, least = require_level(level), _checked_least(least, learn)
    require(
        learn.catalogue.hash == select.catalogue.hash,
        "the folds must have one catalogue",
        found=f"{len(learn.catalogue)} and {len(select.catalogue)} actions",
        cure="split one LoggedData",
    )
    pool = _Pool.of(learn, select)
    rounds = np.unique(pool.round).tolist()
    policies = _policy_of_round(logging_policy, rounds)
    findings: list[str] = []
    notes: list[str] = []
    tests: list[RoundTest] = []
    each = level / len(rounds) / (1 if least is None else 2)
    for number in rounds:
        where = f"round {number}: "
        mine = np.flatnonzero(pool.round == number)
        wrong = [] if number not in policies else pool.unlike(policies[number], mine)
        findings += [where + one for one in wrong]
        (findings if fixed_policy else notes).extend(where + one for one in pool.disagree(mine))
        rows = pool.rows(mine, learn.catalogue.novel & (number == 0))
        if not (rows.part == 2).any():
            notes.append(f"{where}too few rows for a test ({len(mine)})")
            continue
        name, z = tested(rows)
        found = lower(z, each, 0.0, "m sums to at most 1 over the actions")
        if found.value > 1:
            findings.append(
                f"{where}the mean of m/p must be at most 1; it is {found.mean:.4f}, above "
                f"{found.value:.4f} at level {each:.3g}, over {found.n:,} rows (m: {name})"
            )
        over = None
        if least is not None and number == 0:
            over, said = _overstated(rows, least, each)
            findings += [where + one for one in said]
        learned = int((rows.part < 2).sum())
        tests.append(RoundTest(int(number), learned, name, found, over))
    require(bool(tests), "a test needs more rows", found=f"{len(pool.round)}", cure="log more")
    return PropensityReport(
        ok=not findings,
        findings=tuple(findings),
        notes=tuple(notes),
        assumed=tuple(_assumed(bool(policies), fixed_policy, least)),
        level=level,
        rounds=tuple(tests),
    )


def require_propensities(
    learn: LoggedData,
    select: LoggedData,
    *,
    logging_policy: Policy | Mapping[int, Policy] | None = None,
    level: float = 0.01,
    fixed_policy: bool = False,
    least: float | None = None,
) -> PropensityReport:
    """The report of `check_propensities`, or a DataError with the first thing that refutes."""
    report = check_propensities(
        learn,
        select,
        logging_policy=logging_policy,
        level=level,
        fixed_policy=fixed_policy,
        least=least,
    )
    if report.ok:
        return report
    more = len(report.findings) - 1
    raise DataError(
        "propensities must be the probabilities that the logged actions were drawn with",
        column="propensity",
        found=report.findings[0] + (f" (and {more} more)" if more else ""),
        cure="log the probability that the policy drew the action with, at the moment it was "
        "drawn, and drop no rows by what was shown; where the rows of some items were dropped on "
        "purpose, and those items had the same probability in every context, say what share of "
        "decisions was kept: --kept 0.9375 (kept in the mapping) for 75 of 80 equally likely items",
    )


class _Pool(NamedTuple):
    """The rows of both folds over one table of contexts; `first` of them are learn's."""

    contexts: FloatArray
    context: IntArray
    action: IntArray
    propensity: FloatArray
    round: IntArray
    part: IntArray
    size: int
    first: int

    @classmethod
    def of(cls, learn: LoggedData, select: LoggedData) -> _Pool:
        both = (learn, select)
        table = np.concatenate([logs.contexts for logs in both])
        _, index, which = np.unique(row_keys(table), return_index=True, return_inverse=True)
        shift = (0, len(learn.contexts))
        turn = mix64(np.arange(len(learn))) % np.uint64(20)
        part = np.where(turn < FIT, 0, np.where(turn < FIT + CHOOSE, 1, 2))
        return cls(
            table[index],
            which[np.concatenate([s + logs.context for s, logs in zip(shift, both, strict=True)])],
            np.concatenate([logs.action for logs in both]),
            np.concatenate([logs.propensity for logs in both]),
            np.concatenate([np.asarray(logs.round) for logs in both]),
            np.concatenate([part, np.full(len(select), 2)]),
            len(learn.catalogue),
            len(learn),
        )

    def rows(self, mine: IntArray, hidden: Mask) -> Rows:
        """The given rows, for the test."""
        features = principal(self.contexts)
        every = Rows(features, self.context, self.action, self.propensity, self.part, ~hidden)
        return every.at(mine)

    def name(self, row: int) -> str:
        """A row by its fold and its position there."""
        return f"learn row {row}" if row < self.first else f"select row {row - self.first}"

    def unlike(self, policy: Policy, mine: IntArray) -> list[str]:
        """Rows whose propensity is not the policy's."""
        p = self.propensity[mine]
        wrong, own = unlike(policy, self.contexts, self.action[mine], self.context[mine], p)
        if not len(wrong):
            return []
        return [
            f"propensities must be those of the logging policy, to 0.1%; {len(wrong):,} of "
            f"{len(mine):,} rows are not, the first is {self.name(int(mine[wrong[0]]))}: "
            f"{p[wrong[0]]:.6g}, while the policy says {own[wrong[0]]:.6g}"
        ]

    def disagree(self, mine: IntArray) -> Iterator[str]:
        """What cannot be if one policy, that saw nothing but the contexts, drew these rows."""
        pair = self.context[mine].astype(np.int64) * self.size + self.action[mine]
        order = mine[np.lexsort((self.propensity[mine], pair))]
        key, start = np.unique(np.sort(pair), return_index=True)
        low, high = order[start], order[np.append(start[1:], len(order)) - 1]
        apart = np.flatnonzero(self.propensity[high] > self.propensity[low] * (1 + TOLERANCE))
        if len(apart):
            one, two = int(low[apart[0]]), int(high[apart[0]])
            yield (
                f"one context and action must have one propensity, to 0.1%; {len(apart):,} of "
                f"{len(key):,} have more, the first in {self.name(one)} and {self.name(two)}: "
                f"{self.propensity[one]:.6g} and {self.propensity[two]:.6g}"
            )
        sums = np.bincount(key // self.size, self.propensity[low])
        over = np.flatnonzero(sums > 1 + TOLERANCE)
        if len(over):
            row = int(mine[np.flatnonzero(self.context[mine] == over[0])[0]])
            yield (
                f"propensities of the actions seen in one context must sum to at most 1; "
                f"{len(over):,} contexts exceed it, the first is that of {self.name(row)}: "
                f"{sums[over[0]]:.6g}"
            )


def _overstated(rows: Rows, least: float, level: float) -> tuple[BoundValue | None, list[str]]:
    """The bound on E[1 - 1/(A p)], which is 0 if every action is shown; and what refutes."""
    test = rows.take(2)
    below = int((rows.propensity < least * (1 - TOLERANCE)).sum())
    if below:
        return None, [f"no propensity may be below the declared least, {least:g}; {below:,} are"]
    largest = 1 / (int(rows.allowed.sum()) * least)
    z = np.minimum(1 / (rows.allowed.sum() * test.propensity), largest)
    found = lower(1 - z, level, min(1 - largest, 0.0), "1/(A p) has mean 1 with full support")
    if found.value <= 0:
        return found, []
    said = (
        f"the mean of 1/(A p) must be 1 where every action is shown; it is "
        f"{1 - found.mean:.4f}, below {1 - found.value:.4f} at level {level:.3g}, over "
        f"{found.n:,} rows: propensities are too large"
    )
    return found, [said]


def _checked_least(least: float | None, logs: LoggedData) -> float | None:
    supported = int((~logs.catalogue.novel).sum())
    require(
        least is None or (is_real(least) and 0 < least <= 1 / supported * (1 + 1e-9)),
        f"least must lie in (0, 1/{supported}], for there are {supported} actions to show",
        found=short(least),
        cure="an epsilon-greedy policy has least = epsilon / A; None declares nothing",
    )
    return None if least is None else float(least)


def _policy_of_round(
    given: Policy | Mapping[int, Policy] | None, rounds: list[int]
) -> Mapping[int, Policy]:
    if given is None or isinstance(given, Mapping):
        return given or {}
    require(
        len(rounds) == 1,
        "rows of several rounds were drawn by several policies",
        found=f"one policy for rounds {rounds}",
        cure="logging_policy={0: pi0, 1: pi1, ...}",
    )
    return {rounds[0]: given}


def _assumed(policies: bool, fixed_policy: bool, least: float | None) -> Iterator[str]:
    yield "given its context, a row's action was drawn without regard to other rows"
    if policies:
        yield "the logging policy that was handed in is the one that was served"
    if fixed_policy:
        yield "declared: one policy a round, and the contexts hold all that it saw"
    if least is not None:
        yield f"declared: round 0 shows every supported action at least {least:g} of the time"
