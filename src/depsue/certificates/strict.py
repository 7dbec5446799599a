"""Strict certificates: levels in a fixed order, fresh rows, conservative terms, one delta."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from depsue.certificates.certificate import Certificate, Verdict
from depsue.certificates.folds import Folds
from depsue.certificates.promise import Promise, checked_promises
from depsue.certificates.reads import Reads
from depsue.certificates.terms import Ceiling, bound_for, safety_terms
from depsue.data.checks import FloatArray
from depsue.data.content import Content
from depsue.data.logs import LoggedData
from depsue.errors import PolicyError, require, require_level, require_positive
from depsue.estimators.weights import importance_weights
from depsue.policies import BasePolicy, Mixture
from depsue.protocols import Policy


@dataclass(frozen=True, eq=False)
class Levels:
    """Policies in the order in which they are tested, safest first: mixtures of the same parts.

    Args:
        parts: the policies that are mixed; None stands for the policy that logged the rows.
        shares: (L, parts) shares of each level, which sum to 1.
    """

    parts: tuple[Policy | None, ...]
    shares: FloatArray

    def __post_init__(self) -> None:
        shares = np.atleast_2d(np.asarray(self.shares, dtype=np.float64))
        require(
            shares.ndim == 2
            and shares.shape[0] >= 1
            and shares.shape[1] == len(self.parts)
            and bool((shares >= 0).all())
            and bool((np.abs(shares.sum(axis=1) - 1) < 1e-9).all()),
            "levels need one share >= 0 for every part, and shares must sum to 1",
            found=f"shares of shape {shares.shape} for {len(self.parts)} parts",
        )
        object.__setattr__(self, "shares", shares)

    def policy(self, level: int) -> BasePolicy:
        """The policy of one level."""
        if None in self.parts:
            raise PolicyError(
                "a level with a part that only the logs know cannot be built",
                found="the policy that logged the rows is a part, and is not callable",
                cure="serve the other parts with their shares and your own policy with the rest",
            )
        parts = [part for part in self.parts if part is not None]
        kept = [(p, s) for p, s in zip(parts, self.shares[level], strict=True) if s > 0]
        if len(kept) == 1 and isinstance(kept[0][0], BasePolicy):
            return kept[0][0]
        return Mixture([p for p, _ in kept], [s for _, s in kept])

    def weights(self, logs: LoggedData) -> FloatArray:
        """(parts, n) weights of each part on the rows."""
        return np.stack(
            [
                np.ones(len(logs)) if part is None else importance_weights(part, logs)
                for part in self.parts
            ]
        )


@dataclass(frozen=True)
class Credit:
    """What earlier deployments earned above the floor, as a lower bound, per decision to come.

    Args:
        value: by which the need falls.
        delta: the level of that lower bound.
    """

    value: float
    delta: float


@dataclass(frozen=True)
class Rules:
    """What a verdict is reached by: fixed before the certifying rows are read.

    Args:
        promises: all of them must hold.
        delta: the level of the whole verdict.
        bound: "normal", "betting", "smoothing" or "hcope".
        clip: the largest weight that counts.
        ceilings: by promise: upper bounds on V(pi0), which a relative floor is then taken of; a
            promise without one is tested on paired terms.
        largest: the declared largest pi0 / p; 1 where pi0 logged the rows.
        credits: by promise: margin to spend.
        assumptions: further assumptions, in words, that the certificate shows.
    """

    promises: tuple[Promise, ...] = (Promise(),)
    delta: float = 0.05
    bound: str = "normal"
    clip: float = 20.0
    ceilings: Mapping[str, Ceiling] = field(default_factory=dict)
    largest: float = 1.0
    credits: Mapping[str, Credit] = field(default_factory=dict)
    assumptions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        checked_promises(self.promises)
        require_level(self.delta)
        require_positive(self.clip, "clip", "20 is a good start")
        bound_for(self.bound, clip=self.clip, r_max=1.0)
        names = {promise.name for promise in self.promises}
        unknown = sorted({*self.ceilings, *self.credits} - names)
        require(
            not unknown,
            "ceilings and credits are by the name of a promise",
            found=f"{unknown}, while the promises are {sorted(names)}",
            cure="use the promises' names",
        )
        paired = [p.name for p in self.promises if p.floor.ratio and p.name not in self.ceilings]
        require(
            self.bound != "hcope" or not paired,
            "hcope takes no paired terms",
            found=f"a relative floor without a ceiling on V(pi0) for {paired}",
            cure="use normal, betting or smoothing; or give a ceiling",
        )
        self.left(self.delta)

    def left(self, delta: float) -> float:
        """What is left of delta for the candidate, over all promises."""
        used = sum(c.delta for c in self.ceilings.values())
        left = delta - used - sum(c.delta for c in self.credits.values())
        require(
            left > 0,
            "the parts of delta must leave something for the candidate",
            found=f"{delta - left:g} of {delta:g} is spent on the margin and on ceilings",
            cure="give them smaller levels",
        )
        return left

    def spent(self, delta: float) -> dict[str, float]:
        """delta's parts, by name."""
        parts = {f"ceiling on V(pi0), {name}": c.delta for name, c in self.ceilings.items()}
        parts |= {f"margin, {name}": c.delta for name, c in self.credits.items()}
        each = self.left(delta) / len(self.promises)
        return parts | {promise.name: each for promise in self.promises}


def certify(
    levels: Levels,
    folds: Folds,
    rules: Rules,
    reads: Reads,
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
    rules.left(reads.level(rules.delta, reads.count(folds.data) + 1))  # refused before it counts
    attempt = reads.begin(folds.data)
    delta = reads.level(rules.delta, attempt)
    test = Test(folds.certify, rules, delta, logging_policy)
    weights = levels.weights(folds.certify)
    best: tuple[int, tuple[Verdict, ...]] = (0, ())
    tested = 0
    for level, shares in enumerate(levels.shares):
        verdicts = test(shares @ weights)
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
        tested=tested,
        listed=len(levels.shares),
        policy=None if None in levels.parts else policy_hash(levels.policy(level)),
        verdicts=verdicts,
        assumptions=_assumptions(folds, rules, levels),
    )


class Test:
    """The promises on given rows, for one policy's weights after another.

    Args:
        rows: the n certifying rows.
        rules: the rules.
        delta: the level of the whole verdict.
        logging_policy: pi0, where another policy logged the rows.
    """

    __test__ = False

    def __init__(
        self, rows: LoggedData, rules: Rules, delta: float, logging_policy: Policy | None = None
    ) -> None:
        self._rules, self._delta = rules, rules.left(delta) / len(rules.promises)
        self._of = [(promise, *promise.rows(rows)) for promise in rules.promises]
        needs_pi0 = any(
            promise.floor.ratio is not None and promise.name not in rules.ceilings
            for promise in rules.promises
        )
        self._paired: FloatArray | None = None
        if needs_pi0:
            self._paired = (
                np.ones(len(rows))
                if logging_policy is None
                else importance_weights(logging_policy, rows)
            )

    def __call__(self, weights: FloatArray) -> tuple[Verdict, ...]:
        """A verdict for each promise, for a policy with these (n,) weights."""
        return tuple(self._verdict(*one, weights) for one in self._of)

    def _verdict(self, promise: Promise, rows: LoggedData, mask: Any, weights: Any) -> Verdict:
        rules = self._rules
        top = rules.ceilings.get(promise.name)
        paired = None if top is not None or self._paired is None else self._paired[mask]
        terms = safety_terms(
            promise, rows, weights[mask], clip=rules.clip, paired=paired, largest=rules.largest
        )
        bound = bound_for(rules.bound, clip=rules.clip, r_max=rows.r_max)
        found = bound.lower(terms, self._delta)
        credit = rules.credits.get(promise.name, Credit(0.0, 0.0)).value
        is_paired = promise.floor.ratio is not None and top is None
        floor = 0.0 if is_paired else promise.floor.of(0.0 if top is None else top.value)
        return Verdict(
            promise=promise,
            delta=self._delta,
            n=found.n,
            mean=found.mean,
            bound=found.value,
            need=floor - credit,
            credit=credit,
            ceiling=None if top is None else top.value,
            constants=dict(found.constants),
            proof=terms.proof,
        )


def policy_hash(policy: Policy) -> str | None:
    """SHA-256 of a policy's settings and arrays; None if it wraps what cannot be saved."""
    if not isinstance(policy, BasePolicy):
        return None
    try:
        settings, arrays = policy.state()
    except PolicyError:
        return None
    text = json.dumps({"kind": policy.kind, "settings": settings}, sort_keys=True)
    content = Content(f"depsue policy 1 {hashlib.sha256(text.encode()).hexdigest()}")
    for name in sorted(arrays):
        array = np.asarray(arrays[name])
        content.add(name, array, array.dtype.newbyteorder("<").str)
    return content.hex()


def _assumptions(folds: Folds, rules: Rules, levels: Levels) -> tuple[str, ...]:
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
        found.append("pi0's value has not changed since the rows that the ceiling was taken from")
    return (*found, *rules.assumptions)
