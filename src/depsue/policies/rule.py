"""New items by a rule that looks at one item at a time, beside a policy of old ones.

It stands apart from the choices of `tilted.py` because what each new item gets does not depend on
the other new items: that is what lets old items, under the same rule, say what new ones are worth
(`depsue.certificates.exchangeable`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from depsue.data.checks import FloatArray, IntArray, Mask
from depsue.data.requests import Requests
from depsue.errors import PolicyError, is_real, require, short
from depsue.policies.base import BasePolicy, whole
from depsue.policies.cached import CachedRewardModel
from depsue.policies.simple import checked_support
from depsue.protocols import Policy, RewardModel, predicted
from depsue.savable import POLICY, REWARD_MODEL, State


class ByRule(BasePolicy):
    """pi(a|x) = u(x, a) / B for each of B new items, else what `old` shows.

    u(x, a) = min(1, level (even + (1 - even) g(x, a))), where g is exp(strength q-hat(x, a) /
    scale) divided by its mean over the reference items, which are old. So u lies in [0, 1], and
    what one item gets does not depend on which other items are new.

    Args:
        old: what is shown otherwise; it shows none of the new items.
        model: q-hat.
        support: (A,) the B new items.
        reference: (A,) the items that g is relative to.
        strength: how strongly the model decides; 0 treats all alike.
        scale: what counts as one unit of q-hat, > 0.
        level: u of an item that is as good as the reference is on average, in (0, 1].
        even: share of the level that does not depend on the model, in [0, 1].
    """

    kind = "by-rule"
    part_families = {"model": REWARD_MODEL, "old": POLICY}

    def __init__(
        self,
        old: Policy,
        model: RewardModel,
        support: Any,
        reference: Any,
        *,
        strength: float,
        scale: float,
        level: float,
        even: float = 0.1,
    ) -> None:
        self._support: Mask = checked_support(support)
        self._reference: Mask = checked_support(reference)
        for name, value, ok in (
            ("strength", strength, is_real(strength) and 0 <= strength < np.inf),
            ("scale", scale, is_real(scale) and 0 < scale < np.inf),
            ("level", level, is_real(level) and 0 < level <= 1),
            ("even", even, is_real(even) and 0 <= even <= 1),
        ):
            require(ok, f"{name} is out of range", found=short(value), error=PolicyError)
        require(
            len(self._support) == len(self._reference) == old.n_actions
            and not (self._support & self._reference).any(),
            "new items and reference items are two masks over all actions that share none",
            found=f"{len(self._support)} and {len(self._reference)} of {old.n_actions} actions",
            error=PolicyError,
        )
        self.old, self.model = old, model
        self.strength, self.scale = float(strength), float(scale)
        self.level, self.even = float(level), float(even)

    @property
    def n_actions(self) -> int:
        return len(self._support)

    @property
    def support(self) -> Mask:
        """(A,) the new items."""
        return self._support

    def beside(self, old: Policy) -> ByRule:
        """The same rule beside another policy of old items."""
        numbers = {n: getattr(self, n) for n in ("strength", "scale", "level", "even")}
        return ByRule(old, self.model, self._support, self._reference, **numbers)

    def probabilities(self, contexts: FloatArray) -> FloatArray:
        out = np.array(whole(self.old, contexts), dtype=np.float64)
        u = self.rule(contexts)[:, self._support] / int(self._support.sum())
        out *= np.maximum(1 - u.sum(axis=1, keepdims=True), 0.0)  # rounding
        out[:, self._support] += u
        return out

    def over(self, requests: Requests) -> FloatArray:
        require(
            requests.sets is None,
            "a rule for each new item needs the whole catalogue at every request",
            found="requests with candidates of their own",
            error=PolicyError,
        )
        return self.probabilities(requests.contexts)

    def rule(self, contexts: FloatArray) -> FloatArray:
        """(m, A) u(x, a) of all items, old ones too."""
        g = self._raised(predicted(self.model, Requests(contexts)))
        return self._capped(g / g[:, self._reference].mean(axis=1, keepdims=True))

    def rule_at(self, contexts: FloatArray, actions: IntArray, rows: IntArray) -> FloatArray:
        """(n,) u of pairs: `rows` points into the (u, d) contexts."""
        used, at = np.unique(rows, return_inverse=True)
        values = np.empty(len(rows))
        step = max(1, (1 << 22) // self.n_actions)
        order = np.argsort(at, kind="stable")
        starts = np.searchsorted(at[order], np.arange(0, len(used) + step, step))
        for piece, (first, last) in enumerate(zip(starts[:-1], starts[1:], strict=True)):
            mine = order[first:last]
            if len(mine):
                table = self.rule(contexts[used[piece * step : (piece + 1) * step]])
                values[mine] = table[at[mine] - piece * step, actions[mine]]
        return values

    def shown(self, contexts: FloatArray) -> FloatArray:
        """(m,) the probability that a new item is shown."""
        return np.asarray(self.rule(contexts)[:, self._support].mean(axis=1))

    def _raised(self, q_hat: FloatArray) -> FloatArray:
        s = np.asarray(q_hat, dtype=np.float64) * (self.strength / self.scale)
        with np.errstate(over="ignore"):  # infinity is capped
            return np.asarray(np.exp(s - s[:, self._reference].max(axis=1, keepdims=True)))

    def _capped(self, g: FloatArray) -> FloatArray:
        return np.asarray(np.minimum(self.level * (self.even + (1 - self.even) * g), 1.0))

    def state(self) -> State:
        numbers = {n: getattr(self, n) for n in ("strength", "scale", "level", "even")}
        arrays = {
            "support": self._support.astype(np.uint8),
            "reference": self._reference.astype(np.uint8),
        }
        return State(numbers, arrays, parts={"model": self.model, "old": self.old})

    @classmethod
    def from_state(cls, state: State) -> ByRule:
        model = CachedRewardModel(state.parts["model"])
        masks = (state.arrays[name].astype(bool) for name in ("support", "reference"))
        return cls(state.parts["old"], model, *masks, **state.settings)
