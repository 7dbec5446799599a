"""A declared rung at work in a certificate: what it changes of terms, of the need, and of delta.

`Rung` says what is assumed; `AssumedRung` is the rung with the items that it speaks of. For new
items that are drawn like old ones it holds the rule by which they are shown, and bounds from below
what they are worth under that rule (`new_items_worth`):

The rule u(x, e) in [0, 1] and all constants come from old items of the part P alone; Q are the
others. With f_j = E[u(x, e_j) q(x, j)] and the certifying rows::

    X_j = mean over rows of 1(a_i = j) u(x_i, e_j) r_i / p_i,        Y_j = exp(-rate X_j)
    t_h(y) = c_h^-s_h (1 + s_h - s_h y / c_h),                       s_h = B_h / |Q_h|

    worth = (sum over strata h and j in Q_h of log t_h(Y_j) - log(1 / delta)) / (rate B)

is at most the mean of f over the B new items in all but a share delta of the draws of items and
rows together, whatever rate > 0 and c_h >= s_h / (1 + s_h) are (docs/theory.md has the proof).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from depsue.assumptions import (
    EXCHANGEABLE,
    GROUPS,
    PROXIES,
    Rung,
)
from depsue.certificates.folds import Registration
from depsue.data.catalogue import Catalogue
from depsue.data.checks import FloatArray, IntArray, Mask
from depsue.data.folds import keys_of_ids
from depsue.data.keys import keyed_hash
from depsue.data.logs import LoggedData
from depsue.data.partitions import StreamedFold
from depsue.errors import DataError, require
from depsue.estimators import MIPS
from depsue.estimators.weights import distributions
from depsue.policies import Mixture
from depsue.policies.cached import CachedPolicy
from depsue.policies.rule import ByRule
from depsue.promises import Promise
from depsue.protocols import Policy

LEARNED, CHOSEN = 0.4, 0.1
"""Shares of the old items that the rule is learned from, and that its constants are chosen by; the
others, Q, say what it is worth."""
FEWEST_TESTED = 2
"""Old items in Q, at least."""
SLACK = 1.02
"""Centres keep this distance from the least that they may be."""
RATES = tuple(2.0**k for k in range(-3, 4))
"""Of the best rate for normal draws: rates that are compared."""


@dataclass(frozen=True)
class ItemDraw:
    """The constants of the bound on what new items are worth, for one promise.

    Args:
        rate: > 0, per unit of reward.
        centres: by stratum, c_h in (0, 1].
    """

    rate: float
    centres: dict[str, float]


@dataclass(frozen=True)
class AssumedFacts:
    """What a certificate records of a rung.

    Args:
        rung: which.
        reach: how often the last part of the mixtures shows a new item; 1 where it always does.
        draws: by promise, the constants of the bound on what new items are worth.
        new, tested: how many items are new, and how many old ones say what these are worth.
    """

    rung: Rung
    reach: float = 1.0
    draws: dict[str, ItemDraw] = field(default_factory=dict)
    new: int = 0
    tested: int = 0


@dataclass(frozen=True, eq=False)
class ItemSplit:
    """Old items in three parts, within strata, by a keyed hash of their ids.

    Args:
        learned: (A,) the rule is learned from rows of these.
        chosen: (A,) its constants are chosen by rows of these.
        tested: (A,) Q: these say what the rule is worth.
        strata: (A,) the stratum of every item.
    """

    learned: Mask
    chosen: Mask
    tested: Mask
    strata: np.ndarray[Any, Any]

    @classmethod
    def of(cls, rung: Rung, catalogue: Catalogue, registration: Registration) -> ItemSplit:
        """The split that the secret of the folds gives."""
        strata = np.full(len(catalogue), "")
        if rung.column:
            strata = catalogue.label(rung.column)
        secret = hashlib.sha256(f"depsue items {registration.secret}".encode()).hexdigest()
        order = np.argsort(keyed_hash(keys_of_ids(catalogue.ids), secret), kind="stable")
        masks = [np.zeros(len(catalogue), dtype=bool) for _ in range(3)]
        for name in np.unique(strata):
            mine = order[(strata[order] == name) & ~catalogue.novel[order]]
            first, second = round(LEARNED * len(mine)), round((LEARNED + CHOSEN) * len(mine))
            for mask, part in zip(
                masks, (mine[:first], mine[first:second], mine[second:]), strict=True
            ):
                mask[part] = True
        split = cls(masks[0], masks[1], masks[2], strata)
        require(
            min(int(mask.sum()) for mask in masks) >= 1 and int(masks[2].sum()) >= FEWEST_TESTED,
            "old items say what new ones are worth: there must be enough of them to learn from, "
            "and others to test on",
            found=f"{int(split.learned.sum())}, {int(split.chosen.sum())} and "
            f"{int(split.tested.sum())} old items",
            cure="assume nothing, or declare fewer strata",
        )
        return split


@dataclass(frozen=True, eq=False)
class AssumedRung:
    """A rung with the items that it speaks of.

    Args:
        rung: which.
        catalogue: the actions.
        split: of the old items, where new ones are drawn like these.
        rule: by which new items are then shown.
        reach: how often that rule shows one.
        draws: by promise, the constants of the bound on what that is worth.
        worth: by promise, that bound: per decision by the rule; empty before rows are read.
    """

    rung: Rung
    catalogue: Catalogue
    split: ItemSplit | None = None
    rule: ByRule | None = None
    reach: float = 1.0
    draws: Mapping[str, ItemDraw] = field(default_factory=dict)
    worth: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def by(
        cls,
        facts: AssumedFacts,
        catalogue: Catalogue,
        registration: Registration,
        policy: Policy | None,
    ) -> AssumedRung:
        """The rung of a certificate, or of a candidate, with the policy that it is about."""
        if facts.rung.name != EXCHANGEABLE:
            return cls(facts.rung, catalogue)
        rule = rule_of(policy)
        require(
            rule is not None,
            "where new items are drawn like old ones, the policy shows them by a rule for each",
            found=f"a {type(policy).__name__}",
            cure="give the policy that was certified",
        )
        split = ItemSplit.of(facts.rung, catalogue, registration)
        return cls(facts.rung, catalogue, split, rule, facts.reach, facts.draws)

    @property
    def facts(self) -> AssumedFacts:
        """What a certificate records of it."""
        tested = 0 if self.split is None else int(self.split.tested.sum())
        new = int(self.catalogue.novel.sum())
        return AssumedFacts(self.rung, self.reach, dict(self.draws), new, tested)

    @property
    def kind(self) -> str:
        """Of the certificates that rest on it."""
        return self.rung.name

    def price(self, delta: float) -> float:
        """What it takes of the error budget of a verdict."""
        return self.rung.share_of_delta * delta

    def lowers(self, promise: Promise, share: float) -> float:
        """By how much the need falls where the last part of the mixture has this share.

        A mixture with the share kappa of the rule earns at least kappa times what the rule's new
        items are worth. One of proxies counts them as their proxies, less epsilon each time.
        """
        if self.rung.name == PROXIES:
            return -share * self.rung.epsilon
        return share * self.worth.get(promise.name, 0.0)

    def weights(self, policy: Policy, rows: LoggedData, weights: FloatArray) -> FloatArray:
        """(n,) the weights of rows where new items count as their proxies."""
        if self.rung.name != PROXIES:
            return weights
        return weights + mass_by_proxy(policy, rows, self.proxies) / rows.propensity

    @property
    def proxies(self) -> IntArray:
        """(A,) the place of each new item's proxy; -1 where it has none, and of old items."""
        labels = self.catalogue.label(self.rung.column)
        place = {str(id): k for k, id in enumerate(self.catalogue.ids.tolist())}
        out = np.full(len(labels), -1)
        for item in np.flatnonzero(self.catalogue.novel):
            name = str(labels[item])
            if not name:
                continue
            other = place.get(name, -1)
            if other < 0 or self.catalogue.novel[other]:
                raise DataError(
                    "a proxy is the id of an old item",
                    column=self.rung.column,
                    value=name,
                    found=f"for the new item {self.catalogue.ids[item]!r}",
                    cure="name an item that is not novel, or leave it empty",
                )
            out[item] = other
        return out

    @property
    def groups(self) -> np.ndarray[Any, Any] | None:
        """(A,) the groups of actions; None for other rungs."""
        return self.catalogue.label(self.rung.column) if self.rung.name == GROUPS else None

    def marginal(self, base: Policy | None) -> MIPS | None:
        """Weights over groups, for rows that `base` drew; None for other rungs."""
        return None if self.groups is None or base is None else MIPS(base, self.groups)

    def with_worth(
        self, promises: Sequence[Promise], rows: LoggedData | StreamedFold, delta: float
    ) -> AssumedRung:
        """With what the new items are worth under the rule, from the certifying rows.

        Args:
            promises: what is promised; each has a bound of its own.
            rows: the certifying rows, in memory or as a stream.
            delta: the error budget of the whole verdict.
        """
        if self.rung.name != EXCHANGEABLE or self.worth:
            return self
        parts: Iterable[LoggedData] = [rows] if isinstance(rows, LoggedData) else rows.partitions()
        require_one_row_a_unit(rows)
        sums = {promise.name: (np.zeros(len(self.catalogue)), 0) for promise in promises}
        for part in parts:
            for promise in promises:
                if promise.count(part):
                    total, n = sums[promise.name]
                    own = promise.rows(part)[0]
                    sums[promise.name] = total + self.item_sums(own), n + len(own)
        worth = {
            name: self.bound(name, total / max(n, 1), self.price(delta))
            for name, (total, n) in sums.items()
        }
        return replace(self, worth=worth)

    def item_sums(self, rows: LoggedData, which: Mask | None = None) -> FloatArray:
        """(A,) sums over rows of u r / p of the row's item; of Q, or of the items given."""
        if self.rule is None or self.split is None:
            raise RuntimeError("only new items that are drawn like old ones have a rule")
        which = self.split.tested if which is None else which
        mine = np.flatnonzero(which[rows.action] & (rows.reward > 0))
        if not len(mine):
            return np.zeros(len(self.catalogue))
        u = self.rule.rule_at(rows.contexts, rows.action[mine], rows.context[mine])
        values = u * rows.reward[mine] / rows.propensity[mine]
        sums = np.bincount(rows.action[mine], values, minlength=len(self.catalogue))
        return np.asarray(sums, dtype=np.float64)

    def bound(self, promise: str, means: FloatArray, delta: float) -> float:
        """The lower bound on what new items are worth, from (A,) means over rows; at least 0."""
        if self.split is None:
            raise RuntimeError("only new items that are drawn like old ones have a split")
        value = new_items_worth(means, self.split, self.catalogue.novel, self.draws[promise], delta)
        return max(value, 0.0)


def new_items_worth(
    means: FloatArray, split: ItemSplit, novel: Mask, draw: ItemDraw, delta: float
) -> float:
    """The lower bound on the mean of f over new items; may be negative.

    Args:
        means: (A,) X_j; those of Q count.
        split: of the old items.
        novel: (A,) the new items.
        draw: its constants.
        delta: its error budget.
    """
    total, new = 0.0, int(novel.sum())
    for name in np.unique(split.strata[novel]):
        mine = split.strata == name
        x, count = means[mine & split.tested], int((mine & novel).sum())
        if not len(x):
            continue  # no old item says what these are worth: they count as worthless
        ratio = count / len(x)
        centre = max(draw.centres.get(str(name), 1.0), least_centre(ratio))
        left = 1 - np.exp(-draw.rate * x) / centre
        total += float(np.log1p(ratio * left).sum()) - count * math.log(centre)
    return (total - math.log(1 / delta)) / (draw.rate * new)


def least_centre(ratio: float) -> float:
    """The least c_h at which no factor can be negative, with a little room."""
    return min(SLACK * ratio / (1 + ratio), 1.0)


def item_draw(
    means: FloatArray, split: ItemSplit, novel: Mask, delta: float, r_max: float
) -> ItemDraw:
    """The constants that are best for items like those that constants are chosen by.

    Args:
        means: (A,) X_j; those of the chosen items count.
        split: of the old items.
        novel: (A,) the new items.
        delta: the error budget of the bound.
        r_max: the largest reward.
    """
    strata, new = [str(name) for name in np.unique(split.strata[novel])], int(novel.sum())
    x = {name: means[split.chosen & (split.strata == name)] for name in strata}
    every = means[split.chosen]
    x = {name: own if len(own) > 1 else every for name, own in x.items()}
    ratios, weights = {}, {}
    for name in strata:
        mine = split.strata == name
        weights[name] = int((mine & novel).sum()) / new
        ratios[name] = weights[name] * new / max(int((mine & split.tested).sum()), 1)
    least = 1e-6 * r_max + 0.05 * float(every.mean())  # few items may not have seen what is rare
    spread = sum(
        weights[name] * (1 + ratios[name]) * (float(own.var()) + least**2)
        for name, own in x.items()
    )
    best = math.sqrt(2 * math.log(1 / delta) / (new * spread))
    options = []
    for times in RATES:
        rate, likely = times * best, 0.0
        centres = {}
        for name, own in x.items():
            y, ratio = np.exp(-rate * own), ratios[name]
            centre = max(float(y.mean()), least_centre(ratio))
            centres[name] = centre
            each = float(np.log1p(ratio * (1 - y / centre)).mean()) / ratio - math.log(centre)
            likely += weights[name] * each / rate
        options.append((likely - math.log(1 / delta) / (rate * new), ItemDraw(rate, centres)))
    return max(options, key=lambda option: option[0])[1]


def rule_of(policy: Policy | None) -> ByRule | None:
    """The rule by which a policy, or the last part of a mixture, shows new items; None if none."""
    while True:
        if isinstance(policy, CachedPolicy):
            policy = policy.policy
        elif isinstance(policy, Mixture):
            policy = policy.parts[-1]
        else:
            return policy if isinstance(policy, ByRule) else None


def mass_by_proxy(policy: Policy, rows: LoggedData, proxies: IntArray) -> FloatArray:
    """(n,) the policy's probability of the new items whose proxy is the row's item."""
    require(
        rows.candidates is None,
        "proxies stand for new items where all items are candidates",
        found="logs whose requests bring candidates of their own",
        cure="assume nothing (--assume nothing)",
    )
    items = np.flatnonzero(proxies >= 0)
    mass = np.zeros(len(rows))
    if not len(items):
        return mass
    items = items[np.argsort(proxies[items], kind="stable")]
    distinct, starts = np.unique(proxies[items], return_index=True)
    column = np.full(len(proxies), -1)
    column[distinct] = np.arange(len(distinct))
    mine = np.flatnonzero(column[rows.action] >= 0)
    mine = mine[np.argsort(rows.context[mine], kind="stable")]
    ordered = rows.context[mine]
    for piece, pi in distributions(policy, rows):
        sums = np.add.reduceat(pi[:, items], starts, axis=1, dtype=np.float64)
        first, last = np.searchsorted(ordered, [piece.start, piece.stop])
        these = mine[first:last]
        mass[these] = sums[rows.context[these] - piece.start, column[rows.action[these]]]
    return mass


def require_one_row_a_unit(rows: LoggedData | StreamedFold) -> None:
    """Refuse units with several rows: what two items earn of one user is not independent."""
    several = (
        rows.repeats_units
        if isinstance(rows, LoggedData)
        else 0 < rows.stream.facts.units < rows.stream.facts.rows
    )
    require(
        not several,
        "what old items say of new ones needs one row for each unit",
        found="units with several rows",
        cure="--units first-row (units='first row')",
    )
