"""What a verdict is reached by: fixed before the certifying rows are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from depsue.certificates.control import Control
from depsue.certificates.promise import Promise, checked_promises
from depsue.certificates.terms import Ceiling, bound_for
from depsue.errors import require, require_level, require_positive
from depsue.estimators import MIPS


@dataclass(frozen=True)
class Credit:
    """What earlier deployments earned above the floor, as a lower bound, per decision to come.

    Args:
        value: by which the need falls.
        delta: the level of that lower bound.
        decisions: to come, over which the margin is spread; 0 if it was not said.
    """

    value: float
    delta: float
    decisions: int = 0


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
        control: a control variate, where the policy that drew the rows can be asked.
        marginal: weights over groups of actions, under the declared assumption that within a
            group the action has no effect on the reward.
        assumptions: further assumptions, in words, that the certificate shows.
    """

    promises: tuple[Promise, ...] = (Promise(),)
    delta: float = 0.05
    bound: str = "normal"
    clip: float = 20.0
    ceilings: Mapping[str, Ceiling] = field(default_factory=dict)
    largest: float = 1.0
    credits: Mapping[str, Credit] = field(default_factory=dict)
    control: Control | None = None
    marginal: MIPS | None = None
    assumptions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        checked_promises(self.promises)
        require_level(self.delta)
        require_positive(self.clip, "clip", "20 is a good start")
        bound_for(self.bound, upper=1.0)
        names = {promise.name for promise in self.promises}
        controlled = {} if self.control is None else self.control.coefficients
        unknown = sorted({*self.ceilings, *self.credits, *controlled} - names)
        require(
            not unknown,
            "ceilings, credits and coefficients are by the name of a promise",
            found=f"{unknown}, while the promises are {sorted(names)}",
            cure="use the promises' names",
        )
        paired = [p.name for p in self.promises if p.floor.ratio and p.name not in self.ceilings]
        require(
            self.bound != "hcope" or not (paired or controlled),
            "hcope takes no paired terms and no control variate",
            found=f"a relative floor without a ceiling on V(pi0) for {paired}, and coefficients "
            f"for {sorted(controlled)}",
            cure="use normal, betting or smoothing; or give a ceiling and no control",
        )
        require(
            self.control is None or self.marginal is None,
            "a control variate goes with weights of single actions",
            found="control and marginal",
            cure="give one of them",
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
