"""Decisions meet their rewards: what callers report, and what each decision earned.

A decision has one reward in the end. Of the rewards that came within the waiting time the declared
rule takes the first, the largest or the sum; a decision without one has the default. The monitor
judges by these rewards, and `campaign observe --served` learns from the same ones (`exporting`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from depsue.data.checks import FloatArray, IntArray, Mask
from depsue.data.mapping import LogMapping
from depsue.data.requests import Requests
from depsue.diagnostics.drawn_by import TOLERANCE
from depsue.errors import DataError
from depsue.promises import Promise
from depsue.serving.brought import unpacked
from depsue.serving.evidence import Weighing, weights
from depsue.serving.kinds import as_text
from depsue.serving.messages import RewardReport
from depsue.serving.schema import Reward
from depsue.serving.served import ServedPolicy
from depsue.serving.settings import ServingSettings

_decode = msgspec.json.decode


def reported_rewards(
    reports: Sequence[RewardReport], served: ServedPolicy, settings: ServingSettings, now: float
) -> list[Reward]:
    """Rewards as they are stored; a DataError for what the campaign cannot use.

    Args:
        reports: what callers sent.
        served: what serves; its mapping declares the range of each reward.
        settings: the rule for several rewards of one decision.
        now: when they came.
    """
    mapping = served.mapping
    rewards = []
    for place, report in enumerate(reports):
        name = mapping.reward if report.name is None else report.name
        limit = mapping.r_max if name == mapping.reward else mapping.other_rewards.get(name)
        if limit is None:
            raise DataError(
                "a reward is one of the mapping's columns",
                column="name",
                row=place,
                value=report.name,
                cure=f"leave it out for {mapping.reward}"
                + "".join(f", or {other}" for other in mapping.other_rewards),
            )
        value = report.reward + mapping.shift if name == mapping.reward else report.reward
        capped = mapping.cap is not None and name == mapping.reward
        if value < 0 or (value > limit and not capped):
            raise DataError(
                f"rewards must lie in [0, {limit:g}], as was declared",
                column=name,
                row=place,
                value=report.reward,
                cure="send them in the units of the logs",
            )
        shown = None if report.action is None else served.places.get(report.action, -1)
        # where the first reward counts, the store keeps one per decision: no event tells them apart
        event = "" if settings.combine == "first" else report.event or ""
        rewards.append(Reward(report.decision, name, event, float(report.reward), now, shown))
    return rewards


def rewards_by_rule(
    ids: Sequence[str], rewards: Iterable[Any], name: str, settings: ServingSettings
) -> FloatArray:
    """(n,) the reward of each decision, by the declared rule.

    Args:
        ids: of the decisions, in order.
        rewards: those that came in time, as `Store.read` gives them.
        name: of the reward's column.
        settings: rule and default.
    """
    received_and_value: dict[str, tuple[float, float]] = {}
    for decision, column, value, received, _ in rewards:
        if column != name:
            continue
        known = received_and_value.get(decision)
        if known is None:
            received_and_value[decision] = (received, value)
        elif settings.combine == "sum":
            received_and_value[decision] = (received, known[1] + value)
        elif settings.combine == "largest":
            received_and_value[decision] = (received, max(known[1], value))
        elif received < known[0]:
            received_and_value[decision] = (received, value)
    default = (0.0, settings.default_reward)
    return np.array([received_and_value.get(id, default)[1] for id in ids], dtype=np.float64)


def used_reward(raw: FloatArray, mapping: LogMapping) -> FloatArray:
    """The reward that the campaign goes by: shifted and capped as its mapping declares."""
    shifted = raw + mapping.shift
    return np.asarray(shifted if mapping.cap is None else np.minimum(shifted, mapping.cap))


LEAST = 1e-150
"""Probability below which a decision cannot be weighed: its weight would be no number."""


@dataclass(frozen=True)
class ClosedDecisions:
    """Decisions of the policy and its holdout whose rewards are complete.

    Args:
        ids: (n,) of the decisions.
        at: (n,) when they were made.
        contexts: (n,) by column.
        action: (n,) places of the items.
        held: (n,) whether the holdout decided.
        propensity, p_policy, p_pi0: (n,) of the action.
        holdout: (n,) its share at the time.
        unit: (n,) as requested.
        rewards: as `Store.read` gives them.
        candidates, pi0, p_chosen: (n,) as requested, and packed.
        erased: (n,) of tombstones the largest pi0 / p that they may have had; NaN of all others.
    """

    ids: list[str]
    at: FloatArray
    contexts: list[dict[str, Any]]
    action: IntArray
    held: Mask
    propensity: FloatArray
    p_policy: FloatArray
    p_pi0: FloatArray
    holdout: FloatArray
    unit: list[str | None]
    rewards: Sequence[Any]
    candidates: list[str | None]
    pi0: list[str | None]
    p_chosen: list[float | None]
    erased: FloatArray

    @classmethod
    def of(cls, rows: Sequence[Any], rewards: Sequence[Any]) -> ClosedDecisions:
        """From rows of the store."""
        gone = np.array([row.erased is not None for row in rows])
        p_policy, p_pi0 = (
            np.array([getattr(row, p) for row in rows]) for p in ("p_policy", "p_pi0")
        )
        return cls(
            ids=[row.id for row in rows],
            at=np.array([row.at for row in rows], dtype=np.float64),
            contexts=[msgspec.json.decode(row.context) if row.context else {} for row in rows],
            action=np.array([row.action for row in rows]),
            held=np.array([row.decided_by == "holdout" for row in rows]),
            propensity=np.array([row.propensity for row in rows]),
            p_policy=np.where(gone, 1.0, p_policy),
            p_pi0=np.where(gone, 1.0, p_pi0),
            holdout=np.array([row.holdout for row in rows]),
            unit=[row.unit if row.erased is None else f"erased {row.erased}" for row in rows],
            rewards=rewards,
            candidates=[row.candidates for row in rows],
            pi0=[row.pi0 for row in rows],
            p_chosen=[row.p_chosen for row in rows],
            erased=np.where(gone, p_pi0, np.nan),
        )

    def __len__(self) -> int:
        return len(self.ids)

    def weighed(self, by: Weighing) -> tuple[FloatArray, FloatArray]:
        """(w, w0), each (n,): the weights for the policy and for pi0."""
        return weights(self.p_policy, self.p_pi0, self.held, self.holdout, by)

    @property
    def judgeable(self) -> Mask:
        """(n,) whether probabilities lie in their ranges, so that rewards can be weighed.

        A row of a holdout that had no share of the traffic contradicts itself.
        """
        with np.errstate(all="ignore"):
            mixed = (1 - self.holdout) * self.p_policy + self.holdout * self.p_pi0
        known = (self.p_policy >= 0) & (self.p_pi0 >= 0) & ~(self.held & (self.holdout <= 0))
        return np.asarray(known & (mixed >= LEAST) & (mixed <= 1 + TOLERANCE))

    def recomputed(
        self, sample: IntArray, served: ServedPolicy, all_items: IntArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """(p, below, mass), each (m,): of actions now, and where they lie in their distributions.

        In these new items come first: a fault that is about them then moves whole bins. An action
        lies between `below` and `below + mass`; mass is p, but where pi0 drew its own choice.
        """
        held, action = self.held[sample], self.action[sample]
        contexts = served.reader.contexts([self.contexts[k] for k in sample])
        order: Any
        if served.brings:
            texts = [self.candidates[k] or "[]" for k in sample]
            sets = unpacked(texts, [self.pi0[k] for k in sample])
            asked, rows = Requests(contexts, sets), np.arange(len(sample))
            new = asked.places(len(served.catalogue)).pick(served.catalogue.novel, False)
            order = np.argsort(~new, axis=1, kind="stable")
            found = order == asked.place(action, rows)[:, None]
            there, at = found.any(axis=1), found.argmax(axis=1)
        else:
            asked, rows, order = Requests(contexts), np.arange(len(sample)), all_items[None]
            there, at = np.ones(len(rows), dtype=bool), np.argsort(all_items)[action]
        choice = np.zeros(len(rows), dtype=bool)
        lambdas: FloatArray = np.zeros(len(rows))
        if served.pi0_is == "chosen":
            lambdas, pi = served.beside(asked)
            choice = self.p_pi0[sample] > 0
        else:
            own, base = served.over(asked)[:2] if served.brings else served.distributions(contexts)
            pi = np.where(held[:, None], base, own)
        pi = np.take_along_axis(pi, np.broadcast_to(order, pi.shape), axis=1)
        below = np.cumsum(pi, axis=1, dtype=np.float64)
        p = np.where(there, pi[rows, at], 0.0)
        mass, below = p, below[rows, at] - p
        if choice.any():
            share = np.where(held, 1.0, lambdas)
            p0 = np.array([self.p_chosen[k] or 0.0 for k in sample])
            p = np.where(choice, share * p0, p)
            mass, below = np.where(choice, share, mass), np.where(choice, 1 - share, below)
        return p, below, mass

    def within(self, promise: Promise) -> Mask:
        """(n,) which decisions a promise is about."""
        if promise.segment is None:
            return np.ones(len(self), dtype=bool)
        column, value = promise.segment
        within = [as_text(row.get(column)) == as_text(value) for row in self.contexts]
        return np.array(within) | ~np.isnan(self.erased)  # perhaps it was in the segment


def in_range(reward: FloatArray, r_max: float) -> Mask:
    """(n,) which rewards lie in [0, r_max]."""
    return np.asarray((reward >= 0) & (reward <= r_max))
