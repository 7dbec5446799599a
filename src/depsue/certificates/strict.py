"""Strict certificates: levels in a fixed order, fresh rows, conservative terms, one delta."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from depsue.certificates.certificate import Certificate, Verdict
from depsue.certificates.folds import Folds
from depsue.certificates.reads import CountsReads
from depsue.certificates.rules import MixtureLadder, Rules
from depsue.certificates.stream import StreamedFolds
from depsue.certificates.trial import PromiseTest
from depsue.protocols import Policy
from depsue.savable import hash_of


def certify(
    levels: MixtureLadder,
    folds: Folds,
    rules: Rules,
    reads: CountsReads,
    *,
    logging_policy: Policy | None = None,
) -> Certificate:
    """Test the levels in their order, each at the same level, and stop at the first that fails.

    Fixed-sequence testing: a wrong verdict needs the first unsafe level to pass, which happens at
    most a fraction delta of the time, however many levels are listed.

    Args:
        levels: the policies, safest first.
        folds: the logs; only `folds.certify` is read.
        rules: fixed beforehand.
        reads: counts the verdicts on these rows.
        logging_policy: pi0, for paired terms on rows that another policy logged; None says that
            pi0 logged them.

    Returns:
        The certificate of the last level that passed; of the first level if none did.
    """

    def verdicts(delta: float) -> Iterator[tuple[Verdict, ...]]:
        trial = PromiseTest(folds.certify, rules, delta, logging_policy)
        evidence = trial.evidence(levels.parts)
        for shares in levels.shares:
            yield trial(evidence.mixed(shares))

    return concluded(levels, folds, rules, reads, verdicts)


def concluded(
    levels: MixtureLadder,
    folds: Folds | StreamedFolds,
    rules: Rules,
    reads: CountsReads,
    verdicts_at: Callable[[float], Iterator[tuple[Verdict, ...]]],
) -> Certificate:
    """Count the attempt, then test level by level up to the first that fails.

    Args:
        levels, folds, rules, reads: as for `certify`.
        verdicts_at: the verdicts on one level after another at a given delta; rows are read only
            when the first is asked for.
    """
    rules.left(
        reads.delta_of_attempt(rules.delta, reads.count(folds.data) + 1)
    )  # refused before it counts
    attempt = reads.begin(folds.data)
    delta = reads.delta_of_attempt(rules.delta, attempt)
    best: tuple[int, tuple[Verdict, ...]] = (0, ())
    tested = 0
    for level, verdicts in enumerate(verdicts_at(delta)):
        tested += 1
        passed = all(verdict.passed for verdict in verdicts)
        if passed or level == 0:
            best = (level, verdicts)
        if not passed:
            break
    level, verdicts = best
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
        shares=tuple(float(share) for share in levels.shares[level]),
        path=tuple(tuple(float(share) for share in one) for one in levels.shares[:tested]),
        tested=tested,
        listed=len(levels.shares),
        policy=None if None in levels.parts else hash_of(levels.policy(level)),
        verdicts=verdicts,
        assumptions=_assumptions(folds, rules),
        control=None if rules.control is None else dict(rules.control.coefficients),
        control_most=None if rules.control is None else rules.control.most,
        model=None if rules.control is None else hash_of(rules.control.model),
        groups=None if rules.marginal is None else rules.marginal.groups_hash,
    )


def _assumptions(folds: Folds | StreamedFolds, rules: Rules) -> tuple[str, ...]:
    rows = folds.certify
    found = [
        "every logged propensity is the probability with which its action was drawn",
        f"rewards lie between 0 and {rows.r_max:g}",
        "rows of one unit are the sample; units are independent, and the promise is about the "
        "mean over units"
        if rows.unit is not None
        else "rows are independent draws; the promise is about contexts like the logged ones",
        "what is served meets the same users and rewards as the logs",
    ]
    if rules.ceilings:
        taken = "; ".join(
            f"{name}: {one.n:,} values of the logs {one.data[:12]}"
            for name, one in rules.ceilings.items()
        )
        found.append(
            f"pi0's value has not changed since the rows that the ceiling was taken from ({taken})"
        )
    if rules.credits:
        most = max(one.decisions for one in rules.credits.values())
        found.append(
            "the promise is about the sum over this deployment and those before it; where they "
            "showed no margin, it rests on their certificates too"
        )
        if most:
            found.append(f"no more than {most:,} decisions are served before the next verdict")
    if rules.control is not None:
        found.append("every row was drawn from the distribution that its logging policy answers")
    if rules.marginal is not None:
        found.append(
            "within a group of actions the choice has no effect on the reward, given the context: "
            "a novel action is worth what its group is"
        )
    return (*found, *rules.assumptions)
