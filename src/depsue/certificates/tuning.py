"""The constants of a bound, from rows that no verdict reads: bets, pilots and taus by promise.

A certificate must not depend on the order of a file, and no certifying row may set what the others
are judged by. So the size of a bet, the centre of moments and the clipping point come from the
select fold, and are recorded. They decide how tight a bound is, never whether it is valid.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from depsue.bounds import Pilot, best_bet, tau_from
from depsue.certificates.folds import Folds
from depsue.certificates.promise_test import Evidence, PromiseTest
from depsue.certificates.rules import ANY_LENGTH, Control, MixtureLadder, Rules
from depsue.certificates.terms import LimitedTerms
from depsue.data.checks import FloatArray
from depsue.data.logs import LoggedData
from depsue.data.terms import WeightedTerms
from depsue.protocols import Policy

BOUNDS = ("normal", "betting", "smoothing")
CLIPS = (1.1, 1.5, 2.0, 3.0, 5.0)
"""Largest weights that are compared, beside the one that n certifying values allow."""
MOST_PAIRS = 30_000_000
"""Contexts x actions that clips, bounds and control variates are compared on."""


def tuned(
    rules: Rules,
    ladder: MixtureLadder,
    select: LoggedData,
    certifying: int,
    delta: float,
    *,
    logging_policy: Policy | None = None,
    level: int = 0,
) -> Rules:
    """The rules with the constants that are missing: a pure function of the select fold.

    Args:
        rules: some constants of whose bound are yet to be fixed, or none.
        ladder: the policies.
        select: the rows to take them from, none of which certifies.
        certifying: how many rows will certify.
        delta: the error budget of the whole verdict.
        logging_policy: pi0, where another policy logged the rows.
        level: of the ladder, at which the bound is to be tight.
    """
    missing = rules.untuned
    if not missing:
        return rules
    about = [promise for promise in missing if promise.count(select)]
    out = rules
    for promise in missing:
        if promise not in about:  # a segment that the select fold has no row of
            r_max = select.r_max if promise.r_max is None else promise.r_max
            out = _with(out, promise.name, None, r_max, float(certifying), delta)
    if not about:
        return out
    test = PromiseTest(select, rules, delta, logging_policy, about)
    evidence = test.evidence(ladder.parts).mixed(ladder.shares[level])
    return tuned_on(test, evidence, out, certifying / len(select), delta, [p.name for p in about])


def tuned_on(
    test: PromiseTest,
    evidence: Evidence,
    rules: Rules,
    times: float,
    delta: float,
    names: list[str],
) -> Rules:
    """The same from evidence that is there already.

    Args:
        test: of the select fold.
        evidence: of one policy.
        rules: those of the test, but for the constants.
        times: how many times as many rows will certify.
        delta: the error budget of the whole verdict.
        names: of the promises of the test, in their order.
    """
    for place, name in enumerate(names):
        limited = test.terms(place, evidence)
        values = limited.terms.per_unit(limited.terms.values)
        rules = _with(rules, name, (limited, values), limited.r_max, times * len(values), delta)
    return rules


def _with(
    rules: Rules,
    name: str,
    seen: tuple[LimitedTerms, FloatArray] | None,
    r_max: float,
    n: float,
    delta: float,
) -> Rules:
    """With the constants of one promise, of which n values will be tested.

    Few values may not have seen what is rare: as if they had seen one more, r_max / 2 from their
    mean.
    """
    limited, values = seen or (None, np.zeros(0))
    mean, each = float(values.mean()) if len(values) else 0.0, rules.delta_each(delta)
    floored = np.append(values, mean + r_max / 2)
    variance = float(((floored - mean) ** 2).mean())
    if rules.bound in ANY_LENGTH and not rules.fixed_length:
        return rules  # a bet sized for the rows there are would know when the round ended
    if rules.bound == "betting":
        bet = best_bet(variance, max(n, 1.0), each)
        return replace(rules, bets={**rules.bets, name: bet})
    if rules.bound == "normal":
        return replace(rules, pilots={**rules.pilots, name: Pilot.of(floored)})
    tau = rules.clip
    if limited is not None and isinstance(limited.terms, WeightedTerms):
        tau = tau_from(limited.terms, max(round(n), 2), each)
    return replace(rules, taus={**rules.taus, name: tau})


def sharpened(
    rules: Rules,
    levels: MixtureLadder,
    folds: Folds,
    control: Control | None,
    logging_policy: Policy | None,
    units: Sequence[float],
    level: int,
) -> Rules:
    """With the clip, the bound and the control variate, or none, that are tightest together.

    All on the select fold, or on rows of some of its contexts where actions are many, by the
    bounds that as many rows as will certify are anticipated to give. What clipping takes off the
    mean counts as a cost: weights near pi0 hardly exceed 1 / (1 - nu), and a range that is wider
    than needed costs `normal`, and every bound with a control variate, a lot.

    Args:
        rules: but for these three and the constants of the bound.
        levels: the policies.
        folds: the newest logs.
        control: the control variate, its coefficients open.
        logging_policy: pi0, where another policy logged the rows.
        units: put what the bounds of several promises cost on one scale.
        level: the boldest that is likely to pass; the bound is to be tight from the first to it.
    """
    rows = some_contexts(folds.select)
    times, names = len(folds.certify) / len(rows), [promise.name for promise in rules.promises]
    trial = PromiseTest(rows, replace(rules, control=control), rules.delta, logging_policy)
    first = trial.evidence(levels.parts)
    each, reached = rules.delta_each(rules.delta), sorted({0, level})
    unclipped: list[list[float]] = []
    options, costs = list[Rules](), list[float]()
    for clip in sorted({*CLIPS, rules.clip}, reverse=True):
        at_clip = replace(rules, clip=clip)
        with_control = trial.under(replace(at_clip, control=control))
        parts = first if clip == rules.clip else with_control.evidence(levels.parts)
        mixed = [parts.mixed(levels.shares[place]) for place in reached]
        plain = trial.under(at_clip)
        means = [[plain.mean(k, of_level) for k in range(len(names))] for of_level in mixed]
        unclipped = unclipped or means
        lost = [np.subtract(most, mean) for most, mean in zip(unclipped, means, strict=True)]
        kinds = [at_clip]
        if control is not None:
            best = [with_control.best_coefficient(k, mixed[-1]) for k in range(len(names))]
            coefficients = dict(zip(names, best, strict=True))
            kinds.append(replace(at_clip, control=replace(control, coefficients=coefficients)))
        for kind in kinds:
            test = trial.under(kind)
            for bound in BOUNDS if rules.fixed_length else ANY_LENGTH:
                option = replace(kind, bound=bound)
                option = tuned_on(test, mixed[-1], option, times, rules.delta, names)
                widths = [test.widths(option, of_level, times, each) for of_level in mixed]
                options.append(option)
                costs.append(float(np.add(lost, widths).sum(axis=0) @ np.asarray(units)))
    return options[int(np.argmin(costs))]


def some_contexts(rows: LoggedData) -> LoggedData:
    """The rows, or those of some contexts where contexts times actions are too many to compare."""
    every = -(-len(rows.contexts) * len(rows.catalogue) // MOST_PAIRS)
    return rows.take(np.flatnonzero(rows.context % every == 0)) if every > 1 else rows
