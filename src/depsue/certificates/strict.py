"""Strict certificates: levels in a fixed order, fresh rows, conservative terms, one delta.

Per-row terms become sums, sums over partitions merge, and a bound concludes from them. Rows in
memory are one partition; those of a stream are read a partition at a time, as often as the bound
needs passes, and of each level and promise only sums are kept.

A second throw of the dice is refused or paid for: every verdict on the same rows is counted
(`depsue.certificates.registration`) before it reads them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, cast

from depsue.bounds import BoundRun, Partition
from depsue.certificates.certificate import Certificate, Kind, Verdict
from depsue.certificates.folds import Folds, StreamedFolds, words_on_units
from depsue.certificates.pooling import words_on_pooling
from depsue.certificates.promise_test import Evidence, PromiseTest, verdict_of
from depsue.certificates.registration import CountsReads
from depsue.certificates.rules import Credit, MixtureLadder, Rules
from depsue.certificates.terms import LimitedTerms, UnitMeans
from depsue.certificates.tuning import tuned
from depsue.data.checks import FloatArray
from depsue.data.logs import LoggedData
from depsue.data.partitions import StreamedFold
from depsue.errors import require, short
from depsue.plural import counted
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
    account: Account | None = None,
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
        account: computes the credits anew, from all rows served, once the read is counted; they
            have the deltas that the rules fixed.

    Returns:
        The certificate of the last level that passed; of the first level if none did.
    """
    if isinstance(folds, StreamedFolds):
        mapping = folds.certify.stream.mapping
        more = [words for words in mapping.assumptions if words not in rules.assumptions]
        rules = replace(rules, assumptions=(*rules.assumptions, *more))
    rules = rules.without(folds.erased)
    # what cannot be tested, or leaves nothing of delta, is refused before it counts as an attempt
    _require_sums(folds.certify, rules)
    rules.left(reads.delta_of_attempt(rules.delta, reads.count(folds.data) + 1))
    attempt = reads.begin(folds.data)
    delta = reads.delta_of_attempt(rules.delta, attempt)
    rules = _tuned(rules, ladder, folds, delta, logging_policy)
    if account is not None:
        rules = _with_credits(rules, account(rules.credits))
    level, best, tested = 0, tuple[Verdict, ...](), 0
    for verdicts in verdicts_on(ladder, folds.certify, rules, delta, logging_policy):
        passed = all(verdict.passed for verdict in verdicts)
        if passed or tested == 0:
            level, best = tested, verdicts
        tested += 1
        if not passed:
            break
    if reads.retries and not all(verdict.passed for verdict in best):
        best = tuple(verdict.withheld() for verdict in best)
    return Certificate(
        kind=_kind(folds.certify, rules),
        campaign=folds.campaign,
        round=folds.round,
        data=folds.data,
        fractions=folds.registration.fractions,
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
        policy=hash_of(ladder.policy(level)),
        verdicts=best,
        assumptions=_assumptions(folds, rules, ladder),
        units=folds.units,
        group=folds.group,
        control=None if rules.control is None else dict(rules.control.coefficients),
        control_most=None if rules.control is None else rules.control.most,
        model=None if rules.control is None else hash_of(rules.control.model),
        groups=None if rules.marginal is None else rules.marginal.groups_hash,
        registration=folds.registration,
        fixed_length=rules.fixed_length,
        reserve=folds.reserve,
        strata=folds.strata,
        erased=rules.erased,
        assumed=None if rules.assumed is None else rules.assumed.facts,
    )


def _kind(rows: LoggedData | StreamedFold, rules: Rules) -> Kind:
    """What a certificate is called: by the weakest thing that it rests on."""
    if _estimated(rows):
        return "estimated"
    if rules.assumed is not None:
        return rules.assumed.rung.name
    return "groups" if rules.marginal is not None else "strict"


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
    whole = replace(rules, erased=0)  # nothing is missing in the select fold
    fixed = tuned(whole, ladder, rows, count, delta, logging_policy=logging_policy)
    return replace(fixed, erased=rules.erased)


def _with_credits(rules: Rules, credits: Mapping[str, Credit]) -> Rules:
    """The rules with what all rows served say of the margin."""
    fixed = {name: (c.delta, c.decisions, c.fewest) for name, c in rules.credits.items()}
    counted = {name: (c.delta, c.decisions, c.fewest) for name, c in credits.items()}
    require(
        fixed == counted,
        "what a margin costs and is spread over is fixed before the certifying rows are read",
        found=f"{short(counted)}, fixed was {short(fixed)}",
        cure="compute it with the same promises, delta and decisions",
    )
    return replace(rules, credits=credits)


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
    if rules.assumed is not None:
        worth = rules.assumed.with_worth(rules.promises, rows, delta)
        rules = replace(rules, assumed=worth)
    reading = _Reading(rows, ladder.parts, rules, delta, logging_policy)
    for start in range(0, len(ladder.shares), reading.levels_a_pass):
        shares = ladder.shares[start : start + reading.levels_a_pass]
        runs = [reading.runs() for _ in shares]
        while not all(run.done for level in runs for run in level):
            reading.one_pass(shares, runs)
        for of_level, level in zip(shares, runs, strict=True):
            yield tuple(run.verdict(float(of_level[-1])) for run in level)


class Account(Protocol):
    """What `certify` asks of whoever keeps the account of earlier deployments."""

    def __call__(self, fixed: Mapping[str, Credit]) -> Mapping[str, Credit]:
        """The credits by promise from all rows served; `fixed` were those before the verdict."""
        ...


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
        parts: Sequence[Policy],
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
        by_unit = [UnitMeans(len(shares), self._units) for _ in self._rules.promises]
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

    def verdict(self, share: float) -> Verdict:
        """The verdict, once the bound is known, where the last part has this share."""
        require(self._run is not None, "a verdict needs rows", found="no partition with any")
        value = cast(BoundRun, self._run).concluded()
        return verdict_of(self._promise, self._rules, value, self._proof, share)


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
    require(
        not rules.erased,
        "values that were erased before the verdict are counted in memory",
        found="a stream of partitions",
        cure="read the logs into memory, as campaigns do",
    )
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


def _of_account(rules: Rules) -> list[str]:
    """What a verdict in `cumulative` promises, and what its account rests on, in words."""
    if not rules.credits:
        return []
    absolute = [p.name for p in rules.promises if p.floor.ratio is None]
    relative = [p.name for p in rules.promises if p.floor.ratio is not None]
    words = []
    if absolute:
        words.append(
            f"{', '.join(absolute)}: the promise is about what was realised so far plus what is "
            "expected of this deployment, together, per decision"
        )
    if relative:
        words.append(
            f"{', '.join(relative)}: the promise is about what is expected of this deployment and "
            "of all before it, together, per decision"
        )
    words.append(
        "every decision that earlier deployments served is in the account, fallbacks and rollbacks "
        "included; those without a row count at their worst"
    )
    most = max(credit.decisions for credit in rules.credits.values())
    if most:
        words.append(f"no more than {most:,} decisions are served before the next verdict")
    debts = [name for name, credit in rules.credits.items() if credit.value < 0]
    if debts:
        words.append(
            f"there is a debt ({', '.join(debts)}): the promise needs all of the "
            f"{most:,} declared decisions, and a round that ends early breaks it"
        )
    if any(p.segment for p in rules.promises):
        words.append("each segment keeps its share of all decisions")
    return words


def _estimated(rows: LoggedData | StreamedFold) -> bool:
    """Whether the propensities of these rows were estimated."""
    if isinstance(rows, LoggedData):
        return rows.estimating is not None
    return rows.stream.mapping.estimates


def _assumptions(
    folds: Folds | StreamedFolds, rules: Rules, ladder: MixtureLadder
) -> tuple[str, ...]:
    """What the verdict rests on, in words."""
    rows = folds.certify
    words = [
        *_on_registration(folds),
        "every estimated propensity is near enough to the probability with which its action was "
        "drawn: this is no strict certificate"
        if _estimated(rows)
        else "every logged propensity is the probability with which its action was drawn"
        if rules.factor == 1
        else "the probability with which an action was drawn is logged, but not to the digit",
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
        words.append(
            "rows of one unit are the sample; units are independent, and the promise is about the "
            "mean over units"
        )
    words += _on_requests(rows, ladder)
    words += words_on_units(folds.units)
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
        if not rules.erased
        else f"fact: {rules.bound} is used, which holds at any time, and for missing values at "
        "their lowest"
    )
    if rules.erased:
        words.append(
            f"fact: {counted(rules.erased, 'value')} of the certifying rows were erased before the "
            "verdict, on request of users; each counts at its lowest"
        )
    if not rules.fixed_length:
        words.append(
            "who ended the round had seen rewards of its learn and select rows only, or the "
            "candidate does not depend on when it ended"
        )
    words += [
        "fact: nothing depends on the order of the rows",
        "fact: delta is the error rate of this verdict; a campaign with K such verdicts errs in "
        "some of them up to K times as often",
    ]
    known = {name: top for name, top in rules.ceilings.items() if not top.is_r_max}
    if len(known) < len(rules.ceilings):
        words.append(
            "fact: what logged these rows kept no share of pi0, and no ceiling on V(pi0) is left: "
            "relative floors are taken of the largest reward"
        )
    if known:
        sources = "; ".join(
            f"{name}: {ceiling.n:,} values of the logs {ceiling.data[:12]}"
            for name, ceiling in known.items()
        )
        words.append(
            "pi0's value has not changed since the rows that the ceiling was taken from "
            f"({sources})"
        )
    words += _of_account(rules)
    words += words_on_pooling(folds.strata)
    if rules.control is not None and not folds.strata:
        words.append("every row was drawn from the distribution that its logging policy answers")
    if rules.assumed is not None:
        words += rules.assumed.rung.words
    elif rules.marginal is not None:
        words.append(
            "within a group of actions the choice has no effect on the reward, given the context: "
            "a novel action is worth what its group is"
        )
    return (*words, *rules.assumptions)


def _on_requests(rows: LoggedData | StreamedFold, ladder: MixtureLadder) -> list[str]:
    """What a verdict rests on where requests bring candidates, or pi0's choice, in words."""
    words = []
    sets = rows.candidates if isinstance(rows, LoggedData) else None
    if sets is not None:
        words.append(
            "requests bring candidates as they did while the rows were logged: another retrieval "
            "or another stock makes other requests"
        )
        words.append(
            "requests are independent draws if the bound is normal or hcope; with any other bound "
            "candidates may depend on what was shown before"
        )
        if sets.pi0 is not None:
            words.append(
                "pi0's probabilities of the candidates, as requests bring them, are those that it "
                "shows them with"
            )
    if any(getattr(part, "rests_on_choice", False) for part in ladder.parts):
        words += [
            "pi0 shows what it says that it chose, with the probability that it says",
            "fact: in rows that pi0 drew only old items count beside pi0, in others only new ones, "
            "so each item counts once",
        ]
    return words


def _on_registration(folds: Folds | StreamedFolds) -> list[str]:
    """What no ledger can see, in words."""
    registration = folds.registration
    words = [
        f"no verdict on these rows was asked of another ledger than {registration.ledger}, and the "
        "rows are as they were logged, not chosen by their rewards",
        "nobody looked at the rewards of the certifying rows before all was fixed, although these "
        "rows are older than the candidate",
    ]
    if registration.kind == "unit":
        words.append(
            "the ids of units, which folds hang on, were given without knowing rewards, and a unit "
            "has the same id in every round"
        )
    if registration.kind == "decision":
        words.append(
            "the ids of decisions, which folds hang on, were given without knowing rewards, and a "
            "decision has the same id in every file"
        )
    if not registration.drawn:
        words.append("the secret of the folds was given, not drawn: it was chosen without the rows")
    if registration.declared_fresh:
        words.append(
            "the rows are new: this was declared, for without times nothing tells them from rows "
            "that were registered before"
        )
    return words
