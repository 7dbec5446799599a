"""What a verdict is reached by, all of it fixed before the certifying rows are read.

`MixtureLadder` lists the policies in the order in which they are tested, `Rules` holds promises,
delta, bound and constants, `Credit` what earlier deployments earned, and `Control` is a control
variate that makes the terms vary less.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from depsue import defaults
from depsue.bounds import BaseBound, Betting, Hcope, Normal, Pilot, Smoothing
from depsue.certificates.assumed import AssumedRung
from depsue.certificates.certificate import DeltaParts
from depsue.certificates.terms import (
    Ceiling,
    LimitedTerms,
    is_paired,
    require_bound,
    threshold,
)
from depsue.data.checks import FloatArray
from depsue.data.logs import LoggedData
from depsue.diagnostics.drawn_by import require_drawn_by
from depsue.errors import is_real, require, require_delta, require_positive, short
from depsue.estimators import MIPS
from depsue.estimators.weights import distributions
from depsue.policies import BasePolicy, Mixture
from depsue.policies.base import whole
from depsue.promises import Promise, checked_promises
from depsue.protocols import Policy, RewardModel, predicted

ANY_LENGTH = ("betting", "smoothing")
"""Bounds that hold whenever a round ends, and for whatever reason."""
BET_GRID = tuple(2.0 * 4.0**-k for k in range(7))
"""Bets, in units of 1 / r_max, that share the capital where the length of a round was not fixed."""


@dataclass(frozen=True, eq=False)
class Control:
    """A control variate: what a reward model says of a row, less its mean, taken off its term.

    With q any function of context and action that was fixed before the rows were read, and `base`
    the policy that drew them, so that its distribution at each context is known::

        h(x, a) = min(pi(a|x) / base(a|x), clip) q(x, a) where base shows a, else 0
        g_i     = h(x_i, a_i) - sum over a of base(a|x_i) h(x_i, a)

    has mean zero whatever q is. A term less coefficient times g keeps its mean, so it stays
    conservative, and has the variance of w (r - q) instead of that of w r. A wrong q costs
    variance, never validity. It is the doubly robust estimate over base's support at x, and no
    further.

    Args:
        base: the policy that drew the rows.
        model: q.
        most: predictions are clipped to [0, most], which limits the terms.
        coefficients: by promise, in [0, 1]; a promise without one has no control variate.
    """

    base: Policy
    model: RewardModel
    most: float
    coefficients: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        require_positive(self.most, "most", "r_max, or the largest prediction on the select fold")
        wrong = {
            name: value
            for name, value in self.coefficients.items()
            if not (is_real(value) and 0 <= value <= 1)
        }
        require(
            not wrong,
            "the coefficients of a control variate must lie in [0, 1]",
            found=short(wrong),
            cure="take them from the select fold",
        )
        require(
            isinstance(self.model, RewardModel),
            "a control variate needs a reward model",
            found=short(self.model),
            cure="fit_rewards(learn_fold, seed=...)",
        )

    def of(self, parts: Sequence[Policy], logs: LoggedData, clips: Sequence[float]) -> FloatArray:
        """(parts, n) g for each policy's weights up to its clip: all in [-most, clip most]."""
        require_drawn_by(self.base, logs)
        mean = np.empty((len(parts), len(logs.contexts)))
        for piece, drawn in distributions(self.base, logs):
            requests = logs.requests[piece]
            q = np.clip(predicted(self.model, requests), 0.0, self.most)
            for place, (part, clip) in enumerate(zip(parts, clips, strict=True)):
                pi = drawn if part is self.base else whole(part, requests)
                shown = np.minimum(pi, clip * drawn)
                mean[place, piece] = np.einsum("ca,ca->c", shown, q, dtype=np.float64)
        pairs = (logs.action, logs.context)
        q_row = np.clip(self.model.predict_pairs(logs.contexts, *pairs), 0.0, self.most).astype(
            np.float64
        )
        drawn_row = np.exp(self.base.log_prob(logs.requests, *pairs))
        out = -mean[:, logs.context]
        for place, (part, clip) in enumerate(zip(parts, clips, strict=True)):
            weight = np.asarray(
                np.exp(part.log_prob(logs.requests, *pairs)) / drawn_row, dtype=np.float64
            )
            out[place] += np.minimum(weight, clip) * q_row
        return out


@dataclass(frozen=True, eq=False)
class MixtureLadder:
    """Policies in the order in which they are tested, safest first: mixtures of the same parts.

    Args:
        parts: the policies that are mixed; `ChosenPolicy` stands for the one that logged the rows,
            where no more of it is known than that.
        shares: (L, parts) shares of each level, which sum to 1.
        reach: how often the last part shows a new item.
    """

    parts: tuple[Policy, ...]
    shares: FloatArray
    reach: float = 1.0

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

    @property
    def novelties(self) -> FloatArray:
        """(L,) nu of each level: the share of the last part, times how often it shows new items."""
        return np.asarray(self.shares[:, -1] * self.reach)

    def policy(self, level: int) -> BasePolicy:
        """The policy of one level."""
        shown = [(p, s) for p, s in zip(self.parts, self.shares[level], strict=True) if s > 0]
        if len(shown) == 1 and isinstance(shown[0][0], BasePolicy):
            return shown[0][0]
        return Mixture([p for p, _ in shown], [s for _, s in shown])


@dataclass(frozen=True)
class Credit:
    """What earlier deployments earned above the floor, as a lower bound, per decision to come.

    Args:
        value: by which the need falls; negative where they left a debt.
        delta: what that lower bound is at; 0 where the margin is a sum of realised rewards.
        decisions: to come, over which the margin is spread; 0 if it was not said.
        fewest: what the certifying rows, together, must have earned above the floor for the value
            to count, fixed before they are read; None where it does not rest on that.
        surplus: what they did earn above the floor; None before they are read.
    """

    value: float
    delta: float
    decisions: int = 0
    fewest: float | None = None
    surplus: float | None = None


@dataclass(frozen=True)
class Rules:
    """What a verdict is reached by: fixed before the certifying rows are read.

    Args:
        promises: all of them must hold.
        delta: the error budget of the whole verdict.
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
        bets: by promise: the constant bet of "betting". Like pilots and taus it comes from the
            select fold, or was fixed even before; `certify` chooses what is missing there.
        pilots: by promise: centre and size of the bets of "normal".
        taus: by promise: where "hcope" clips.
        fixed_length: whether the number of rows was fixed before their rewards were seen. If not,
            because the monitor or somebody ended the round, only bounds that hold at any time are
            allowed: "betting", "smoothing".
        erased: values of the certifying fold that were erased before a verdict read them; each
            counts at its lowest, with a bound that is never higher when a value is lower.
        assumed: what is declared beyond the logs; None is nothing.
    """

    promises: tuple[Promise, ...] = (Promise(),)
    delta: float = defaults.DELTA
    bound: str = "normal"
    clip: float = 20.0
    ceilings: Mapping[str, Ceiling] = field(default_factory=dict)
    largest: float = 1.0
    credits: Mapping[str, Credit] = field(default_factory=dict)
    control: Control | None = None
    marginal: MIPS | None = None
    assumptions: tuple[str, ...] = ()
    bets: Mapping[str, float] = field(default_factory=dict)
    pilots: Mapping[str, Pilot] = field(default_factory=dict)
    taus: Mapping[str, float] = field(default_factory=dict)
    fixed_length: bool = True
    erased: int = 0
    assumed: AssumedRung | None = None

    def __post_init__(self) -> None:
        checked_promises(self.promises)
        require_delta(self.delta)
        require_positive(self.clip, "clip", "20 is a good start")
        require_bound(self.bound)
        require(
            self.fixed_length or self.bound in ANY_LENGTH,
            "a round whose length was not fixed before its rewards were seen needs a bound that "
            "holds at any time",
            found=f"bound {self.bound!r}",
            cure=f"use {' or '.join(ANY_LENGTH)}",
        )
        require(
            not self.erased or self.bound in ANY_LENGTH,
            "where values were erased, the bound must never be higher when a value is lower",
            found=f"bound {self.bound!r}",
            cure=f"use {' or '.join(ANY_LENGTH)}",
        )
        for name, value in (*self.bets.items(), *self.taus.items()):
            require_positive(value, f"the bet or tau of {name}", "take it from the select fold")
        names = {promise.name for promise in self.promises}
        controlled = {} if self.control is None else self.control.coefficients
        fixed = {*self.bets, *self.pilots, *self.taus}
        unknown = sorted({*self.ceilings, *self.credits, *controlled, *fixed} - names)
        require(
            not unknown,
            "ceilings, credits, coefficients, bets, pilots and taus are by the name of a promise",
            found=f"{unknown}, while the promises are {sorted(names)}",
            cure="use the promises' names",
        )
        paired = [promise.name for promise in self.promises if self.pairs(promise)]
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
        require(
            self.control is None or self.factor == 1,
            "a control variate needs propensities that are right, not right within a factor",
            found=f"control, and the factor {self.factor:g}",
            cure="leave the control variate out",
        )
        self.left(self.delta)

    @property
    def factor(self) -> float:
        """Gamma: within which factor each logged propensity is right; 1 for exactly."""
        return 1.0 if self.assumed is None else self.assumed.rung.factor

    @property
    def takes_control(self) -> bool:
        """Whether a control variate may be used: items are weighed one by one, p is exact."""
        return self.marginal is None and self.factor == 1

    def without(self, erased: int) -> Rules:
        """The rules for a fold from which values were erased before it was read.

        A user may ask to be forgotten because of what he was shown, so what is left is no fair
        sample. With the missing values at their lowest, a constant bet gains no more than it would
        have with all of them; the normal bound might, for they may lower its variance.
        """
        if not erased or self.bound in ANY_LENGTH:
            return replace(self, erased=erased)
        untuned: dict[str, Any] = {"bets": {}, "pilots": {}, "taus": {}, "fixed_length": False}
        return replace(self, bound="betting", erased=erased, **untuned)

    def left(self, delta: float) -> float:
        """What is left of delta for the tests of the candidate.

        Ceilings and margins rest on rows that the candidate was learned from, so that which
        promise it breaks may go with which of them is wrong: their parts add up.
        """
        used = sum(c.delta for c in self.ceilings.values()) + self._price(delta)
        left = delta - used - sum(c.delta for c in self.credits.values())
        require(
            left > 0,
            "the parts of delta must leave something for the candidate",
            found=f"{delta - left:g} of {delta:g} is spent on the margin and on ceilings",
            cure="give them smaller deltas",
        )
        return left

    def spent(self, delta: float) -> DeltaParts:
        """delta's parts."""
        each = self.delta_each(delta)
        return DeltaParts(
            tests={promise.name: each for promise in self.promises},
            ceilings={
                name: ceiling.delta
                for name, ceiling in self.ceilings.items()
                if not ceiling.is_r_max
            },
            margins={name: credit.delta for name, credit in self.credits.items()},
            items={p.name: self._price(delta) for p in self.promises if self._price(delta)},
        )

    def _price(self, delta: float) -> float:
        """What a declared assumption takes of delta, of each promise's own test.

        The policy is fixed without the certifying rows: if it breaks a promise, a wrong certificate
        needs that promise's test to err, or its bound on what new items are worth.
        """
        return 0.0 if self.assumed is None else self.assumed.price(delta)

    def delta_each(self, delta: float) -> float:
        """What each promise is tested at: all that is left of delta.

        All promises must pass. The candidate was fixed without the certifying rows; if it breaks a
        promise, a wrong certificate needs the test of that one to err, whatever the others say.
        """
        return self.left(delta)

    @property
    def untuned(self) -> tuple[Promise, ...]:
        """Promises whose bound has constants that are yet to be fixed."""
        if self.bound == "smoothing" or not self.fixed_length:
            return ()
        fixed: Mapping[str, object] = {
            "betting": self.bets,
            "normal": self.pilots,
            "hcope": self.taus,
        }[self.bound]
        return tuple(promise for promise in self.promises if promise.name not in fixed)

    def bound_on(self, promise: Promise, limited: LimitedTerms) -> BaseBound:
        """The bound on such terms of a promise, all of its constants fixed."""
        name = promise.name
        if self.bound == "smoothing":
            return Smoothing(unit_scale=limited.r_max)
        if self.bound == "betting" and not self.fixed_length and name not in self.bets:
            return Betting(bets=tuple(bet / limited.r_max for bet in BET_GRID))
        require(
            promise not in self.untuned,
            f"the constants of {self.bound} are fixed before the certifying rows are read",
            found=f"none for {name}",
            cure="depsue.certificates.tuned(rules, ...) takes them from the select fold",
        )
        if self.bound == "betting":
            return Betting(bets=(self.bets[name],))
        if self.bound == "hcope":
            return Hcope(tau=self.taus[name])
        return Normal(upper=limited.upper, pilot=self.pilots[name])

    def pairs(self, promise: Promise) -> bool:
        """Whether the promise is tested on terms that are paired with pi0's."""
        return is_paired(promise, self.ceilings.get(promise.name))

    def credit(self, promise: Promise) -> float:
        """The margin to spend on the promise, per decision to come."""
        return self.credits.get(promise.name, Credit(0.0, 0.0)).value

    def need(self, promise: Promise) -> float:
        """What the bound must reach, forecast or tested: the threshold less the margin to spend."""
        return threshold(promise, self.ceilings.get(promise.name)) - self.credit(promise)

    def need_at(self, promise: Promise, share: float) -> float:
        """The same at a level whose last part has this share: a rung may say what that adds."""
        lowered = 0.0 if self.assumed is None else self.assumed.lowers(promise, share)
        return self.need(promise) - lowered
