"""Policies that a reward model bends: tilts and clips of pi0, choices among the novel actions."""

from __future__ import annotations

from typing import Any

import numpy as np

from depsue.data.checks import FloatArray, Mask
from depsue.data.requests import Requests
from depsue.errors import PolicyError, is_real, require, short
from depsue.policies.base import BasePolicy, held, whole
from depsue.policies.cached import CachedRewardModel
from depsue.policies.simple import checked_support
from depsue.protocols import Policy, RewardModel, predicted
from depsue.savable import POLICY, REWARD_MODEL, State


class Tilted(BasePolicy):
    """pi(a|x) = p0 (keep + (1 - keep) g / E_p0[g]) with g = 1 / (exp(-strength s) + 1 / cap).

    p0 is the base policy, s = (q-hat(x, a) - E_p0[q-hat | x]) / scale. Where s is small this is
    the exponential tilt exp(strength s), which is the best use of a given divergence from the
    base; weights against the base flatten out at `cap`, so that no row counts for more than about
    that many. The support is the base's: a tilt never shows what the base does not.

    Args:
        base: the policy that is tilted; pi0.
        model: q-hat.
        strength: how far; 0 is the base itself.
        cap: where the tilt flattens out, > 1.
        scale: what counts as one unit of q-hat, > 0: its spread within contexts.
        keep: share of the base that stays as it is, in [0, 1]; bounds base / pi by 1 / keep.
    """

    kind = "tilted"
    part_families = {"model": REWARD_MODEL, "base": POLICY}

    def __init__(
        self,
        base: Policy,
        model: RewardModel,
        *,
        strength: float,
        cap: float,
        scale: float,
        keep: float = 0.0,
    ) -> None:
        for name, value, ok in (
            ("strength", strength, is_real(strength) and 0 <= strength < np.inf),
            ("cap", cap, is_real(cap) and 1 < cap < np.inf),
            ("scale", scale, is_real(scale) and 0 < scale < np.inf),
            ("keep", keep, is_real(keep) and 0 <= keep <= 1),
        ):
            require(ok, f"{name} is out of range", found=short(value), error=PolicyError)
        self.base, self.model = base, model
        self.strength, self.cap = float(strength), float(cap)
        self.scale, self.keep = float(scale), float(keep)

    @property
    def n_actions(self) -> int:
        return self.base.n_actions

    def probabilities(self, contexts: FloatArray) -> FloatArray:
        return self.over(Requests(contexts))

    def over(self, requests: Requests) -> FloatArray:
        return self.tilt(whole(self.base, requests), predicted(self.model, requests))

    def tilt(self, base: FloatArray, q_hat: FloatArray) -> FloatArray:
        """(m, L) the tilted distributions, from the base's and the predictions."""
        mean = np.einsum("ma,ma->m", base, q_hat)[:, None]
        with np.errstate(over="ignore"):  # exp overflows to infinity, and its inverse is 0
            g = 1 / (np.exp((mean - q_hat) * (self.strength / self.scale)) + 1 / self.cap)
        g *= base
        total = g.sum(axis=1, keepdims=True)
        g *= (1 - self.keep) / np.where(total > 0, total, 1.0)
        return np.asarray(g + self.keep * base)

    def state(self) -> State:
        numbers = {name: getattr(self, name) for name in ("strength", "cap", "scale", "keep")}
        return State(numbers, parts={"model": self.model, "base": self.base})

    @classmethod
    def from_state(cls, state: State) -> Tilted:
        # as it was certified: with predictions in single precision, asked once per context
        model = CachedRewardModel(state.parts["model"])
        return cls(state.parts["base"], model, **state.settings)


class ModelSoftmax(BasePolicy):
    """A choice among some actions: softmax of (q-hat - its mean) / scale, partly uniform.

    pi(a|x) = even / m + (1 - even) c_a exp(strength s(x, a)) / sum over these m actions, with
    s = (q-hat(x, a) - its mean over them) / scale. The factors c_a hold each action's exposure
    within limits (`exploration.forecast` finds them); without limits all are 1.

    Args:
        model: q-hat; one that is optimistic explores what it does not know.
        support: (A,) the m actions, for example the novel ones.
        strength: how strongly the model decides; 0 is uniform.
        scale: what counts as one unit of q-hat, > 0.
        even: share that is spread evenly, in [0, 1]: every action is shown at least even / m.
        factors: (A,) c_a > 0, or None for 1.
    """

    kind = "by-model"  # in files, since before the class had its name; hashes rest on it
    part_families = {"model": REWARD_MODEL}

    def __init__(
        self,
        model: RewardModel,
        support: Any,
        *,
        strength: float,
        scale: float,
        even: float = 0.1,
        factors: FloatArray | None = None,
    ) -> None:
        self._support: Mask = checked_support(support)
        for name, value, ok, rule in (
            ("strength", strength, is_real(strength) and 0 <= strength < np.inf, "be >= 0"),
            ("scale", scale, is_real(scale) and 0 < scale < np.inf, "be positive"),
            ("even", even, is_real(even) and 0 <= even <= 1, "lie in [0, 1]"),
        ):
            require(ok, f"{name} must {rule}", found=short(value), error=PolicyError)
        self.model, self.strength, self.scale = model, float(strength), float(scale)
        self.even = float(even)
        self.factors = np.ones(len(self._support)) if factors is None else np.asarray(factors)
        require(
            self.factors.shape == self._support.shape and bool((self.factors > 0).all()),
            "factors must be one positive number for each action",
            found=f"shape {self.factors.shape}, least {self.factors.min(initial=np.inf):g}",
            cure=f"there are {len(self._support)} actions",
            error=PolicyError,
        )

    @property
    def n_actions(self) -> int:
        return len(self._support)

    def probabilities(self, contexts: FloatArray) -> FloatArray:
        return self.choice(predicted(self.model, contexts))

    def over(self, requests: Requests) -> FloatArray:
        """(c, L) a choice among the candidates that it supports; even / m counts those."""
        if requests.sets is None:
            return self.probabilities(requests.contexts)
        return self.choice_among(requests, predicted(self.model, requests))

    def choice_among(self, requests: Requests, q_hat: FloatArray) -> FloatArray:
        """(c, L) the distributions over candidates, from the predictions of them."""
        if requests.sets is None:
            return self.choice(q_hat)
        places = requests.places(self.n_actions)
        support = places.pick(self._support, False)
        s = np.where(support, np.asarray(q_hat, dtype=np.float64), -np.inf)
        most = s.max(axis=1, keepdims=True)
        s = np.where(support, s - np.where(np.isfinite(most), most, 0.0), 0.0)
        g = np.where(support, np.exp(s * (self.strength / self.scale)), 0.0)
        g = held(g * places.pick(self.factors, 0.0))
        return (1 - self.even) * g + self.even * held(support.astype(np.float64))

    def choice(self, q_hat: FloatArray) -> FloatArray:
        """(m, A) the distributions, from the predictions."""
        places = np.flatnonzero(self._support)
        predictions = np.asarray(q_hat[:, places], dtype=np.float64)
        s = (predictions - predictions.max(axis=1, keepdims=True)) * (self.strength / self.scale)
        g = np.exp(s) * self.factors[places]
        g *= (1 - self.even) / g.sum(axis=1, keepdims=True)
        out = np.zeros(q_hat.shape)
        out[:, places] = g + self.even / len(places)
        return out

    def state(self) -> State:
        numbers = {name: getattr(self, name) for name in ("strength", "scale", "even")}
        arrays: dict[str, np.ndarray[Any, Any]] = {
            "support": self._support.astype(np.uint8),
            "factors": np.asarray(self.factors, dtype=np.float64),
        }
        return State(numbers, arrays, parts={"model": self.model})

    @classmethod
    def from_state(cls, state: State) -> ModelSoftmax:
        model = CachedRewardModel(state.parts["model"])
        support, factors = state.arrays["support"].astype(bool), state.arrays["factors"]
        return cls(model, support, **state.settings, factors=factors)


class RatioClipped(BasePolicy):
    """The best policy by a reward model among those with low <= pi / p0 <= high everywhere.

    p0 is the base policy. Every item first gets low p0; what is left of the probability goes to
    the items in the order of q-hat, up to high p0 each, equal predictions sharing in proportion to
    p0. As rewards are at least 0, V(pi) >= low V(p0): surely, whatever the rewards and the model
    are, without data and without delta. Novel items, which p0 never shows, are never shown.

    Args:
        base: p0; pi0.
        model: q-hat.
        low: the least pi / p0, in [0, 1].
        high: the largest pi / p0, >= 1.
    """

    kind = "ratio-clipped"
    part_families = {"model": REWARD_MODEL, "base": POLICY}

    def __init__(self, base: Policy, model: RewardModel, *, low: float, high: float) -> None:
        for name, value, ok, rule in (
            ("low", low, is_real(low) and 0 <= low <= 1, "lie in [0, 1]"),
            ("high", high, is_real(high) and 1 <= high < np.inf, "be at least 1, and finite"),
        ):
            require(ok, f"{name} must {rule}", found=short(value), error=PolicyError)
        self.base, self.model, self.low, self.high = base, model, float(low), float(high)

    @property
    def n_actions(self) -> int:
        return self.base.n_actions

    def probabilities(self, contexts: FloatArray) -> FloatArray:
        return self.over(Requests(contexts))

    def over(self, requests: Requests) -> FloatArray:
        base = np.asarray(whole(self.base, requests), dtype=np.float64)
        q_hat = np.asarray(predicted(self.model, requests), dtype=np.float64)
        order = np.argsort(-q_hat, axis=1, kind="stable")
        shares = np.take_along_axis(base, order, axis=1)
        ranked = np.take_along_axis(q_hat, order, axis=1)
        left = (1 - self.low) * shares.sum(axis=1, keepdims=True)
        before = (self.high - self.low) * (np.cumsum(shares, axis=1) - shares)
        # equal predictions are one step, filled evenly: its first and its last place
        step = np.cumsum(np.diff(ranked, axis=1, prepend=ranked[:, :1]) != 0, axis=1)
        out = np.zeros_like(base)
        flat = (step + np.arange(len(step))[:, None] * step.shape[1]).ravel()
        of_step = np.bincount(flat, shares.ravel(), minlength=step.size).reshape(step.shape)
        room = (self.high - self.low) * np.take_along_axis(of_step, step, axis=1)
        first = np.full(step.size, np.inf)
        np.minimum.at(first, flat, before.ravel())
        start = first[flat].reshape(step.shape)
        filled = np.clip(left - start, 0, room)
        more = np.where(room > 0, filled / np.where(room > 0, room, 1.0), 0.0)
        np.put_along_axis(out, order, shares * (self.low + (self.high - self.low) * more), axis=1)
        return held(out)

    def state(self) -> State:
        numbers = {"low": self.low, "high": self.high}
        return State(numbers, parts={"model": self.model, "base": self.base})

    @classmethod
    def from_state(cls, state: State) -> RatioClipped:
        model = CachedRewardModel(state.parts["model"])
        return cls(state.parts["base"], model, **state.settings)
