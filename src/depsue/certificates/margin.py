"""The margin: what earlier deployments earned above the floor, by a confidence sequence.

Margin is counted in decisions: the sum over everything that was served, and observed, so far of
V(pi_k) - C, the fallback included. Each row that a deployed policy logged is a fresh draw from it,
so its own reward (or, for a relative floor, r (1 - rho w0) with w0 = pi0 / p) has that mean.
`Smoothing` bounds the average of such terms from below although their means differ from round to
round and each policy was chosen by what earlier ones logged (see its proof). Every look is a bound
of its own and pays its own delta: what a row stands for changes when the rows of a later round are
added.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from depsue.bounds import Smoothing
from depsue.certificates.rules import Credit
from depsue.certificates.terms import SINGLE, Ceiling, is_paired, threshold
from depsue.data.logs import LoggedData
from depsue.data.terms import ConservativeTerms
from depsue.errors import require
from depsue.estimators.weights import importance_weights
from depsue.promises import Promise
from depsue.protocols import Policy

ROUNDING = 1e-9
"""A term may fall below its limit by this share of r_max, through rounding."""


@dataclass(frozen=True, eq=False)
class Served:
    """What a deployment served.

    Args:
        logs: rows that it logged and that may be read: all but those a coming verdict will read.
        decisions: how many decisions it served in all.
    """

    logs: LoggedData
    decisions: int


def earned(
    promise: Promise,
    served: Sequence[Served],
    *,
    decisions: int,
    delta: float,
    ceiling: Ceiling | None = None,
    logging_policy: Policy | None = None,
    largest: float = 1.0,
) -> Credit:
    """The margin as a credit per decision of the next deployment; negative where it is a debt.

    Args:
        promise: whose floor.
        served: every deployment so far.
        decisions: how many the next deployment will serve.
        delta: the error budget of the lower bound.
        ceiling: an upper bound on V(pi0); None pairs each row with pi0 instead.
        logging_policy: pi0, for paired rows.
        largest: the declared largest pi0 / p.
    """
    require(
        decisions >= 1
        and all(deployment.decisions >= len(deployment.logs) for deployment in served),
        "a deployment serves at least one decision, and all that it logged",
        found=f"{decisions} to come; so far (served, logged) "
        f"{[(deployment.decisions, len(deployment.logs)) for deployment in served]}",
        cure="count every decision, the fallback's included: Served(logs, decisions)",
    )
    if not served:
        return Credit(0.0, 0.0)
    total = sum(deployment.decisions for deployment in served)
    rho = promise.floor.ratio if is_paired(promise, ceiling) else None
    values, shares, lower = [], [], 0.0
    for deployment in served:
        rows, mask = promise.rows(deployment.logs)
        terms = np.asarray(rows.reward, dtype=np.float64)
        if rho is not None:
            require(
                logging_policy is not None,
                "a paired margin needs pi0",
                found="None",
                cure="give logging_policy, or a ceiling on V(pi0)",
            )
            paired = importance_weights(logging_policy, deployment.logs)[mask]  # type: ignore[arg-type]
            require(
                float(paired.max()) <= largest * (1 + SINGLE),
                "pi0 / p must stay below its declared largest value",
                found=f"{float(paired.max()):g}, declared {largest:g}",
                cure="keep a share of pi0 in every policy that is deployed, and declare 1 / share",
            )
            terms = terms * (1 - rho * paired)
            below = max(rho * largest * (1 + SINGLE) - 1, 0.0) + ROUNDING
            lower = min(lower, -below * rows.r_max)
        values.append(terms)
        shares.append(deployment.decisions / len(terms))
    # rounds may have been served longer than they were logged: each row stands for so many
    weight = np.concatenate([np.full(len(v), s) for v, s in zip(values, shares, strict=True)])
    weight *= len(weight) / total
    terms = np.concatenate(values) * weight
    limit = lower * float(weight.max())
    scale = served[0].logs.r_max if promise.r_max is None else promise.r_max
    bound = Smoothing(unit_scale=scale).lower(
        ConservativeTerms(terms, limit, proof="on-policy rewards"), delta
    )
    above = bound.value - threshold(promise, ceiling)
    return Credit(above * total / decisions, delta, decisions)
