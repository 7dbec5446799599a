"""Paper certificates: Eq. 4 and Eq. 9 as published, with the gaps of that guarantee spelled out.

A deployment passes by the paper's rule if::

    V_-(pi_k; D_{k-1}^(S2)) > need
    need = k C - sum over k' < k of V_on(pi_k'; D_k') = C - margin

with V_- of Eq. 4 and C = rho V_on(pi0). Learners hold all of it already (the bound that training
ended with, the need, S2), so nothing is recomputed here; the record is of the same type as a
strict one, is marked, and lists why its delta is not guaranteed.
"""

from __future__ import annotations

import math

from depsue.certificates.certificate import Certificate, DeltaParts, Verdict
from depsue.data.logs import LoggedData
from depsue.data.terms import LARGEST
from depsue.errors import is_real, is_whole, require, short
from depsue.promises import Floor, Promise
from depsue.protocols import BoundValue, Policy
from depsue.savable import hash_of

PUBLISHED = "hcope"
"""The bound of Eq. 4."""

ADAPTIVE = (
    "gap: training looked at the bound on these rows to steer the policy, so policy and rows are "
    "not independent and Eq. 4 need not hold at its delta"
)
ESTIMATED_FLOOR = "gap: C is a share of pi0's mean logged reward, whose error is not counted"
AS_IF_EXACT = "gap: mean rewards of earlier deployments enter Eq. 9 as if they were exact"
NO_CORRECTION = "gap: delta is that of this deployment alone; nothing corrects over K of them"
NOT_COUNTED = (
    "gap: the split comes from a seed and attempts are not counted; training again until it "
    "passes is a second throw of the dice"
)


def paper_certificate(
    bound: BoundValue,
    need: float,
    policy: Policy,
    rows: LoggedData,
    *,
    floor: Floor,
    logging_value: float,
    k: int = 1,
    campaign: str = "paper",
    fractions: tuple[float, ...] = (0.5, 0.5),
) -> Certificate:
    """The record of one deployment's verdict by the paper's rule.

    Of a `SafelyTrained` it takes `bound`, `need` and `policy`; of a `Deployment` `k`, and
    `trained` for the rest; of a `DepsueResult` `logging_value`.

    Args:
        bound: V_-, the bound of this very policy on S2.
        need: what it has to exceed, C - margin.
        policy: pi_k.
        rows: S2, the rows that the bound was computed on.
        floor: what C was computed by.
        logging_value: V_on(pi0), which a relative floor was taken of.
        k: which deployment, from 1.
        campaign: its name.
        fractions: shares of S1 and S2.

    Returns:
        The certificate; its data hash is that of S2, its clip is tau.
    """
    require(
        isinstance(bound, BoundValue),
        "a paper certificate records a bound",
        found=short(bound),
        cure="pass trained.bound",
    )
    require(
        is_whole(k) and k >= 1,
        "k must be a whole number, at least 1",
        found=short(k),
        cure="the first deployment is 1",
    )
    for name, value in (("need", need), ("logging_value", logging_value)):
        require(
            is_real(value) and math.isfinite(value),
            f"{name} must be a number",
            found=short(value),
            cure="pass trained.need, and the mean reward of pi0's logs",
        )
    threshold = floor.of(logging_value)
    require(
        k > 1 or math.isclose(need, threshold, rel_tol=1e-9),
        "the first deployment must reach the floor: there is no margin yet",
        found=f"need {need:g}, floor {threshold:g}",
        cure="pass the V_on(pi0) that the need was computed from, or the right k",
    )
    rounds = (
        sorted({int(number) for number in rows.round.tolist()}) if rows.round is not None else [0]
    )
    require(
        len(rounds) == 1,
        "a verdict is about the logs of one round",
        found=f"rounds {rounds}",
        cure="pass the S2 of the newest round",
    )
    promise, name = Promise(floor), str(bound.constants.get("bound", "unnamed"))
    verdict = Verdict(
        promise=promise,
        delta=bound.delta,
        n=bound.n,
        mean=bound.mean,
        bound=bound.value,
        need=math.nextafter(need, math.inf),  # Eq. 9 asks for more than the need
        credit=threshold - need,
        ceiling=None,
        constants={**bound.constants, "floor": threshold, "logging_value": logging_value, "k": k},
        proof="Eq. 4 of importance-weighted rewards; rewards outside the support count as zero",
    )
    return Certificate(
        kind="paper",
        campaign=campaign,
        round=rounds[0],
        data=rows.hash,
        fractions=fractions,
        attempt=1,
        retries=False,
        delta=bound.delta,
        spent=DeltaParts({promise.name: bound.delta}),
        bound=name,
        clip=float(bound.constants.get("tau", LARGEST)),
        largest=1.0,
        shares=(1.0,),
        tested=1,
        listed=1,
        policy=hash_of(policy),
        verdicts=(verdict,),
        assumptions=_assumptions(rows, floor, k, name),
    )


def _assumptions(rows: LoggedData, floor: Floor, k: int, bound: str) -> tuple[str, ...]:
    words = [
        "every logged propensity is the probability with which its action was drawn",
        f"rewards lie between 0 and {rows.r_max:g}",
        "rows (units, where there are any) are independent draws, like those to be served",
        ADAPTIVE,
        *([ESTIMATED_FLOOR] if floor.ratio is not None else []),
        *([AS_IF_EXACT] if k > 1 else []),
        NO_CORRECTION,
        NOT_COUNTED,
    ]
    if bound != PUBLISHED:
        words.append(f"not as published: the bound is {bound}, that of Eq. 4 is {PUBLISHED}")
    return tuple(words)
