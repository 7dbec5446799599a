"""Pooling: a verdict reads rows that earlier rounds reserved for it, beside the newest ones.

Round j reserves a share of its certifying rows for the verdicts after its own, a slice for each
(`depsue.certificates.folds`). Until its verdict a slice teaches nothing and enters nothing that a
policy, a ceiling or a test rests on. So given all other rows, the slices of verdict k and its
newest rows are independent of one another and of its candidate, and those of round j are draws
from x, a ~ pi_j(.|x), r.

**Weights.** The rows are weighted as draws from the mixture of the policies that logged them, with
shares s_j of the rows (the balance heuristic of Veach & Guibas, 1995)::

    p(a|x) = sum over j of s_j pi_j(a|x),      w = pi(a|x) / p(a|x)

Where one round's policy hardly shows an item that the candidate prefers, another's may, and no
weight exceeds 1 / s_j times the one that round j alone would give.

**Drawn alike.** Rows of fixed strata are independent, but not drawn alike: a bound by the central
limit theorem would need larger constants and a spread for each stratum. Instead the number of rows
that each round gives is drawn, too. n labels are drawn with the shares s_j, and each takes a row of
its stratum that no other label took. What comes out is n independent draws from one distribution,
the mixture's: every bound holds as for rows of one policy, segments and control variates included.

**By lot.** Labels come from a keyed hash, and so does the order in which rows of a stratum are
taken: neither knows a reward, nor the order of a file. Shares are chosen so that a stratum runs out
of rows with probability `SHORT` at most, all strata together: for N_j rows that could be read,

    n s_j = N_j - u_j,     u_j = l/3 + sqrt(l^2/9 + 2 v_j l),     l = log(K / SHORT),

with v_j at least the variance n s_j (1 - s_j) of the number of labels (Bernstein). If a stratum
does run out, the verdict reads the newest rows alone. A wrong certificate then needs that the
verdict on n such draws errs, or that labels ran out and the verdict on the newest rows errs: at
most delta (1 + SHORT), for neither the labels nor how many rows there are knows what rows say.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from depsue.certificates.folds import Folds, Registration, Stratum, reserved_rows
from depsue.data.checks import IntArray
from depsue.data.identity import identities, keyed_folds
from depsue.data.keys import keyed_hash, mix64
from depsue.data.logs import LoggedData, joined
from depsue.policies import BasePolicy, Mixture
from depsue.policies.cached import NOWHERE, CachedPolicy
from depsue.protocols import Policy
from depsue.savable import hash_of

SHORT = 1e-6
"""How often labels may ask for more rows than a stratum has."""


@dataclass(frozen=True, eq=False)
class LoggedRound:
    """The rows of a round, what their folds hang on, and the policy that drew them.

    Args:
        logs: all of its rows.
        registration: of these.
        policy: what drew them.
        fixed_length: whether their number was fixed before their rewards were seen; else some of
            them would be draws of a moment that somebody chose, and are not pooled.
    """

    logs: LoggedData
    registration: Registration
    policy: Policy
    fixed_length: bool = True


@dataclass(frozen=True, eq=False)
class Pool:
    """What a verdict reads, pooled.

    Args:
        folds: the newest ones, with pooled select and certifying rows whose propensities are those
            of `policy`; `strata` says what was pooled.
        policy: the mixture of the policies that logged the rows.
    """

    folds: Folds
    policy: BasePolicy


def pooled(newest: Folds, base: Policy, earlier: Sequence[LoggedRound]) -> Pool | None:
    """The newest folds with rows that earlier rounds reserved for their verdict.

    None where that would not be more rows than the newest alone. No reward is looked at.

    Args:
        newest: split with their `reserve`, as those before were.
        base: the policy that drew the newest rows.
        earlier: the rounds before, of whose rows some are reserved.
    """
    own, verdicts = LoggedRound(newest.certify, newest.registration, base), newest.group[1]
    strata: list[tuple[LoggedRound, LoggedData, LoggedData]] = []
    for past in earlier:
        if not past.fixed_length:
            continue
        slices = reserved_rows(past.logs, past.registration, newest.group, newest.reserve)
        if slices is not None and expected_rows(len(slices[1]), verdicts) >= 1:
            strata.append((past, *slices))
    if not strata:
        return None
    others = sum(len(certify) for _, _, certify in strata)
    strata.append((own, newest.select, newest.certify))
    wanted = [expected_rows(len(certify), verdicts) for _, _, certify in strata[:-1]]
    wanted.append(expected_rows(len(newest.certify), verdicts, others))
    n = sum(wanted)
    if wanted[-1] < 1 or n <= len(newest.certify):
        return None
    shares = tuple(rows / n for rows in wanted)
    secret = _derived("labels of pooled rows", newest.registration)
    labels = keyed_folds(mix64(np.arange(n, dtype=np.uint64)), shares, secret)
    counts = np.bincount(labels, minlength=len(strata)).tolist()
    if any(taken > len(certify) for taken, (_, _, certify) in zip(counts, strata, strict=True)):
        return None
    select = joined([select for _, select, _ in strata])
    certify = joined(
        [
            certify.take(_by_lot(certify, past.registration)[:taken])
            for taken, (past, _, certify) in zip(counts, strata, strict=True)
            if taken
        ]
    )
    contexts = joined([select, certify]).contexts if select.candidates is None else NOWHERE
    mixture = Mixture([past.policy for past, _, _ in strata], shares)
    policy = CachedPolicy(mixture, contexts)
    return Pool(
        replace(
            newest,
            select=_drawn_by(policy, select),
            certify=_drawn_by(policy, certify),
            strata=tuple(
                Stratum(
                    round=newest.round if past is own else int(np.asarray(past.logs.round)[0]),
                    rows=taken,
                    reserved=len(certify),
                    data=newest.data if past is own else past.logs.hash,
                    policy=hash_of(past.policy),
                    registration=past.registration,
                )
                for taken, (past, _, certify) in zip(counts, strata, strict=True)
            ),
        ),
        policy,
    )


def expected_rows(rows: int, verdicts: int, others: int | None = None) -> int:
    """n s_j: how many of these rows are asked for, on average, so that they hardly run out.

    Args:
        rows: that can be read.
        verdicts: K.
        others: of all other strata, where they are fewer: then fewer labels vary.
    """
    log = math.log(verdicts / SHORT)
    variance = rows if others is None else min(rows, others)
    return math.floor(rows - log / 3 - math.sqrt(log**2 / 9 + 2 * variance * log))


def _by_lot(rows: LoggedData, registration: Registration) -> IntArray:
    """(n,) the places of the rows, in an order that knows neither their rewards nor the file's.

    Rows that have the same name differ in nothing but their reward: the smaller one comes first.
    """
    lot = keyed_hash(identities(rows, registration.kind), _derived("order of rows", registration))
    return np.lexsort((rows.reward, lot))


def _derived(purpose: str, registration: Registration) -> str:
    """Another secret for each purpose."""
    return hashlib.sha256(f"depsue {purpose} {registration.secret}".encode()).hexdigest()


def _drawn_by(policy: BasePolicy, rows: LoggedData) -> LoggedData:
    """The rows as draws of the mixture: with its probabilities for propensities."""
    chosen = np.exp(policy.log_prob(rows.requests, rows.action, rows.context))
    return replace(rows, propensity=np.minimum(np.asarray(chosen, dtype=np.float64), 1.0))


def words_on_pooling(strata: Sequence[Stratum]) -> tuple[str, ...]:
    """What a certificate on pooled rows rests on."""
    if not strata:
        return ()
    *earlier, newest = strata
    rounds = ", ".join(f"round {stratum.round} ({stratum.rows:,} rows)" for stratum in earlier)
    return (
        f"rows that earlier rounds reserved are pooled with those of round {newest.round} "
        f"({newest.rows:,} rows): {rounds}; neither the users nor what any item earns them has "
        "changed between these rounds (no_drift, for all items)",
        "every row was drawn from the distribution that its logging policy answers",
        "fact: pooled rows taught nothing, and the verdict of no other round reads them",
    )
