"""Strict certificates for more rows than memory holds: the verdict of `certify`, by streaming.

Rows are read in batches, as often as the bound needs passes (`depsue.bounds.passes`), and of each
level and promise only sums are kept. Where rows belong to units, one sum for each unit is kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from depsue.certificates.certificate import Certificate, Verdict
from depsue.certificates.reads import CountsReads
from depsue.certificates.rules import MixtureLadder, Rules
from depsue.certificates.stream import StreamedFold, StreamedFolds
from depsue.certificates.stream_sums import RowSums, UnitNumbers, UnitSums
from depsue.certificates.strict import concluded
from depsue.certificates.trial import PromiseTest, verdict_of
from depsue.data.checks import IntArray
from depsue.data.logs import LoggedData
from depsue.errors import require
from depsue.promises import Promise
from depsue.protocols import Policy

MOST_UNITS = 20_000_000
LEVELS, SUMS = 32, 1 << 25
"""How many levels are looked at in one pass, and how many sums of units are kept, at most."""


def certify_stream(
    levels: MixtureLadder,
    folds: StreamedFolds,
    rules: Rules,
    reads: CountsReads,
    *,
    logging_policy: Policy | None = None,
) -> Certificate:
    """`certify` on rows that are read a batch at a time: the same certificate.

    Args:
        levels: the policies, safest first.
        folds: `LogStream.folds(campaign)`; only `folds.certify` is read.
        rules: fixed beforehand; what the mapping assumes is added to the assumptions.
        reads: counts the verdicts on these rows, before they are read.
        logging_policy: pi0, for paired terms on rows that another policy logged; None says that
            pi0 logged them.

    Returns:
        The certificate of the last level that passed; of the first level if none did.
    """
    fold = folds.certify
    more = [words for words in fold.stream.mapping.assumptions if words not in rules.assumptions]
    rules = replace(rules, assumptions=(*rules.assumptions, *more))
    _require_streaming(fold, rules)
    return concluded(
        levels,
        folds,
        rules,
        reads,
        lambda delta: streamed_verdicts(levels, fold, rules, delta, logging_policy),
    )


def streamed_verdicts(
    levels: MixtureLadder,
    fold: StreamedFold,
    rules: Rules,
    delta: float,
    logging_policy: Policy | None = None,
) -> Iterator[tuple[Verdict, ...]]:
    """The verdicts on one level after another; some levels are looked at in the same passes.

    Args:
        levels: the policies.
        fold: the certifying rows.
        rules: the rules.
        delta: the level of the whole verdict.
        logging_policy: as for `certify_stream`.
    """
    _require_streaming(fold, rules)
    each = rules.left(delta) / len(rules.promises)
    units = fold.stream.facts.units
    counts = [units] * len(rules.promises) if units else _counts(fold, rules)
    block = min(LEVELS, SUMS // (units * len(counts))) if units else LEVELS
    for start in range(0, len(levels.shares), max(block, 1)):
        some = replace(levels, shares=levels.shares[start : start + max(block, 1)])
        kind = UnitSums if units else RowSums
        sums = [[kind(rules.bound, n, each) for n in counts] for _ in some.shares]
        while any(one.found is None for level in sums for one in level):
            _read(fold, some, rules, delta, logging_policy, sums)
        for level in sums:
            kept = zip(rules.promises, level, strict=True)
            yield tuple(verdict_of(p, rules, s.found, s.proof) for p, s in kept if s.found)


def _read(
    fold: StreamedFold,
    levels: MixtureLadder,
    rules: Rules,
    delta: float,
    logging_policy: Policy | None,
    sums: Sequence[Sequence[RowSums | UnitSums]],
) -> None:
    """One pass over the rows, for all these levels and promises."""
    numbers = [UnitNumbers(fold.stream.facts.units) for _ in rules.promises]
    missing = set(range(len(rules.promises)))
    for rows in fold.pieces():
        about = [k for k, one in enumerate(rules.promises) if _has(rows, one)]
        missing -= set(about)
        trial = PromiseTest(rows, rules, delta, logging_policy, [rules.promises[k] for k in about])
        evidence = trial.evidence(levels.parts)
        known = [_numbers(numbers[k], trial.rows(place)) for place, k in enumerate(about)]
        for shares, level in zip(levels.shares, sums, strict=True):
            mixed = evidence.mixed(shares)
            for place, k in enumerate(about):
                level[k].add(*trial.terms(place, mixed), *known[place])
    for k in missing:
        rules.promises[k].rows(rows)  # raises: a segment needs rows
    for level in sums:
        for one, found in zip(level, numbers, strict=True):
            one.end(*([found.rows] if isinstance(one, UnitSums) else []))


def _numbers(numbers: UnitNumbers, rows: LoggedData) -> tuple[IntArray, ...]:
    """The numbers of the rows' units, where there are units."""
    if rows.units is None or rows.unit is None:
        return ()
    return (numbers.of(rows.units, rows.unit),)


def _counts(fold: StreamedFold, rules: Rules) -> list[int]:
    """How many certifying rows each promise is about."""
    if not any(promise.segment for promise in rules.promises):
        return [fold.rows] * len(rules.promises)
    counts = [0] * len(rules.promises)
    for rows in fold.pieces():
        for k, one in enumerate(rules.promises):
            counts[k] += int(rows.where(*one.segment).sum()) if one.segment else len(rows)
    return counts


def _has(rows: LoggedData, promise: Promise) -> bool:
    return promise.segment is None or bool(rows.where(*promise.segment).any())


def _require_streaming(fold: StreamedFold, rules: Rules) -> None:
    """Refuse what cannot be had from sums."""
    units = fold.stream.facts.units
    require(
        not units or rules.bound != "hcope",
        "hcope clips rows before it averages them by unit, at every tau: it needs all rows",
        found=f"bound {rules.bound!r}, units in the column {fold.unit!r}",
        cure="use normal, betting or smoothing; or certify in memory",
    )
    require(
        units <= MOST_UNITS,
        f"one sum for each unit is kept, so there may be {MOST_UNITS:,} units",
        found=f"{units:,} in the column {fold.unit!r}",
        cure="where every row has a unit of its own, leave units out of the mapping; else take "
        "a sample of the units",
    )
