"""The constants of a bound, from rows that no verdict reads: bets, pilots and taus by promise.

A certificate must not depend on the order of a file, and no certifying row may set what the others
are judged by. So the size of a bet, the centre of moments and the clipping point come from the
select fold, and are recorded. They decide how tight a bound is, never whether it is valid.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from depsue.bounds import Pilot, best_bet, tau_from
from depsue.certificates.promise_test import Evidence, PromiseTest
from depsue.certificates.rules import ANY_LENGTH, MixtureLadder, Rules
from depsue.certificates.terms import LimitedTerms
from depsue.data.checks import FloatArray
from depsue.data.logs import LoggedData
from depsue.data.terms import WeightedTerms
from depsue.protocols import Policy


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
