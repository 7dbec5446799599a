"""A simulated shop: every request brings candidates of its own, and the truth is known exactly.

What production has and `depsue.world` has not: ids are text, retrieval picks some of the catalogue
for each request, some of that is out of stock, new items arrive every day, and the shop's ranker is
a softmax over the candidates. Its logs come in the three ways in which pi0 may be known: called,
logged or chosen. With several slots a request is a page of which one slot is decided here; the
slots above it are filled already, and the one below by the ranker.

A round lasts some days. The requests of a day come up equally often, so V and N of any policy are
sums over them. The requests of all days are the same but for the new items, so pi0 earns the same
on every day.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from depsue import rng
from depsue.data.catalogue import Catalogue
from depsue.data.checks import FloatArray, IntArray
from depsue.data.keys import distinct_rows
from depsue.data.logs import LoggedData
from depsue.data.requests import Candidates, Requests
from depsue.errors import require
from depsue.policies import (
    BasePolicy,
    BroughtPolicy,
    ChosenPolicy,
    ScoreTable,
    SoftmaxOfScores,
)
from depsue.policies.base import whole
from depsue.protocols import Policy

if TYPE_CHECKING:
    import polars as pl

Known = Literal["called", "logged", "chosen"]
KNOWN: tuple[Known, ...] = ("called", "logged", "chosen")
"""How pi0 is known: it can be asked, its probabilities are logged, or what it chose is."""

FADING = 0.75
"""A slot is looked at this much as often as the one above it."""


@dataclass(frozen=True)
class ShopSettings:
    """A small shop; larger on demand."""

    requests: int = 400
    """Distinct requests of a day."""
    users: int = 200
    items: int = 150
    """Items that pi0 knows."""
    new: int = 12
    """New items on the first day."""
    arrivals: int = 2
    """New items that arrive on every later day."""
    days: int = 1
    """Days of a round."""
    rounds: int = 4
    """Rounds for which the catalogue has items: that of pi0, and later ones."""
    retrieved: int = 50
    """Items that pi0 knows which are retrieved for a request, before stock-outs."""
    out_of_stock: float = 0.05
    """How often an item is out of stock at a request."""
    d: int = 6
    """Features of a user, and of an item."""
    beta: float = 1.5
    """Inverse temperature of the ranker."""
    rate: float = 0.2
    """Mean click rate of an even choice among all items, about."""
    spread: float = 0.8
    """Standard deviation of logit q over the items of a user, about."""
    novel_quality: float = 1.0
    """New items earn this share of what their features promise; 0 makes them worthless."""
    slots: int = 1
    """Items on a page; with 1 there are no pages."""
    decided: int = 1
    """The slot that policies decide, from 1: the last or the one before the last."""
    spill: float = 0.0
    """The share of the rest of the page that is lost where the decided slot shows a new item."""

    def __post_init__(self) -> None:
        for name in ("requests", "users", "items", "new", "days", "rounds", "retrieved", "d"):
            value = getattr(self, name)
            require(value >= 1, f"{name} must be at least 1", found=value)
        for name in ("out_of_stock", "novel_quality", "spill"):
            value = getattr(self, name)
            require(0 <= value <= 1, f"{name} must lie in [0, 1]", found=value)
        require(0 < self.rate < 1, "rate must lie in (0, 1)", found=self.rate)
        require(
            1 <= self.decided <= self.slots <= self.decided + 1,
            "the decided slot must be the last of the page, or the one before it",
            found=f"slot {self.decided} of {self.slots}",
            cure="slots=3, decided=2",
        )
        require(
            self.slots < min(self.retrieved, self.items),
            "there must be more items retrieved than slots",
            found=f"{self.slots} slots, {self.retrieved} retrieved of {self.items}",
        )


class Draws(NamedTuple):
    """What happened at n requests.

    Args:
        request: (n,) which of the round's requests each one is.
        action: (n,) the item of the decided slot.
        propensity: (n,) its probability under the policy that drew it.
        by_pi0: (n,) pi0's probability of it where pi0 chose it itself, else 0.
        below: (n,) the item of the slot below, or -1.
        below_propensity: (n,) its probability, given all that stands above.
        clicks: (n, slots) True where a slot was clicked.
        time: (n,) in days.
    """

    request: IntArray
    action: IntArray
    propensity: FloatArray
    by_pi0: FloatArray
    below: IntArray
    below_propensity: FloatArray
    clicks: np.ndarray[Any, np.dtype[np.bool_]]
    time: FloatArray


class ShopRound(NamedTuple):
    """The requests of a round, and what is true of each of their candidates.

    Args:
        requests: the u requests, equally likely; where pi0 is logged with its probabilities.
        sets: their candidates.
        base: (u,) which request of a day each one is.
        day: (u,) on which day.
        slot: (m,) mean clicks on the decided slot, for each candidate.
        rest: (m,) mean clicks on the rest of the page.
    """

    requests: Requests
    sets: Candidates
    base: IntArray
    day: IntArray
    slot: FloatArray
    rest: FloatArray


class Shop:
    """An `Environment` with requests of its own and known truth; clicks are the reward.

    Args:
        settings: how large it is, and how nasty.
        known: how pi0 is known to whoever reads the logs.
        seed: of the shop, and of what happens in it.
        traffic: another seed of what happens, in the same shop; None is `seed`.
    """

    def __init__(
        self,
        settings: ShopSettings | None = None,
        *,
        known: Known = "called",
        seed: int,
        traffic: int | None = None,
    ) -> None:
        require(known in KNOWN, f"pi0 is {', '.join(KNOWN[:-1])} or chosen", found=known)
        self.settings = s = settings or ShopSettings()
        self.known, self._seed = known, seed
        self._traffic = seed if traffic is None else traffic
        draw = rng.generator(seed, "shop")
        days = s.days * s.rounds
        arrives = np.repeat(np.arange(days), [s.new, *[s.arrivals] * (days - 1)])
        self.arrives = np.concatenate([np.zeros(s.items, dtype=np.int64), arrives])
        """(A,) the day from which each item is a candidate."""
        n = len(self.arrives)
        self._features = draw.normal(size=(n, s.d)).astype(np.float32)
        self._catalogue = Catalogue(
            np.array([f"item-{k:05d}" for k in range(n)]), np.arange(n) >= s.items, self._features
        )
        self._users = draw.normal(size=(s.users, s.d)).astype(np.float32)
        taste, popularity = draw.normal(size=(s.d, s.d)) / s.d, draw.normal(size=s.d) / s.d**0.5
        logit = 0.8 * self._users @ taste @ self._features.T + 0.6 * self._features @ popularity
        logit *= s.spread
        logit += np.log(s.rate / (1 - s.rate)) - logit.mean()
        self._logit = logit
        self._q = 1 / (1 + np.exp(-logit))
        self._q[:, self._catalogue.novel] *= s.novel_quality
        # the ranker knows taste well, not exactly
        self._scores = logit + 0.3 * s.spread * draw.normal(size=logit.shape)
        self._user = draw.integers(0, s.users, s.requests)
        self._in_stock = draw.random((s.requests, n)) >= s.out_of_stock
        self._rounds: dict[int, ShopRound] = {}
        self._retrieve(draw)
        self._place(draw)

    @property
    def catalogue(self) -> Catalogue:
        """All items, those that arrive later included."""
        return self._catalogue

    @cached_property
    def logging_policy(self) -> BasePolicy:
        """pi0 as whoever reads the logs knows it."""
        if self.known == "called":
            return self.ranker
        return (BroughtPolicy if self.known == "logged" else ChosenPolicy)(len(self._catalogue))

    @cached_property
    def ranker(self) -> BasePolicy:
        """pi0 as it is: a softmax over the candidates that it knows."""
        first, which = distinct_rows(self._contexts)
        user = np.empty(len(first), dtype=np.int64)
        user[which] = self._user
        scores = ScoreTable(first, self._scores[user])
        return SoftmaxOfScores(scores, self.settings.beta, ~self._catalogue.novel)

    def true_logits(self, contexts: FloatArray) -> FloatArray:
        """(m, A) logit of how likely a click is in the first slot, at contexts of the shop."""
        users, known = distinct_rows(self._users)
        _, which = distinct_rows(np.concatenate([users, contexts[:, : self.settings.d]]))
        user = np.empty(len(users), dtype=np.int64)
        user[known] = np.arange(len(self._users))
        return np.asarray(self._logit[user[which[len(users) :]]])

    @property
    def r_max(self) -> float:
        """The largest reward: a click on every slot."""
        return float(self.settings.slots)

    def round(self, number: int) -> ShopRound:
        """The requests of a round, and the truth about them."""
        if number not in self._rounds:
            self._rounds[number] = self._make_round(number)
        return self._rounds[number]

    def deploy(self, policy: Policy, n: int, *, round: int) -> LoggedData:
        """n decisions, as the logs of that round; of pages, one row for each page."""
        draws, these = self.draws(policy, n, round=round), self.round(round)
        used, context = np.unique(draws.request, return_inverse=True)
        requests = these.requests.take(used)
        slot = self.settings.decided - 1
        pages = {"slot_reward": draws.clicks[:, slot]} if self.settings.slots > 1 else {}
        mixed = self.known == "chosen" and not bool((draws.by_pi0 > 0).all())
        return LoggedData.from_arrays(
            contexts=requests.contexts,
            context_rows=context,
            candidates=requests.sets,
            actions=self._catalogue.ids[draws.action],
            rewards=draws.clicks.sum(axis=1),
            propensities=draws.propensity,
            by_pi0=draws.by_pi0 if mixed else None,
            catalogue=self._catalogue,
            r_max=self.r_max,
            times=draws.time,
            rounds=np.full(n, round),
            columns={name: column.astype(np.float64) for name, column in pages.items()},
        )

    def value(self, policy: Policy, *, round: int = 0) -> float:
        """V(pi) in that round, exactly; of pages, clicks a page."""
        these = self.round(round)
        return mean_of_choices(policy, self.ranker, these.requests, these.slot + these.rest)

    def novelty(self, policy: Policy, *, round: int = 0) -> float:
        """N(pi) in that round, exactly."""
        these = self.round(round)
        novel = self._catalogue.novel[these.sets.items].astype(np.float64)
        return mean_of_choices(policy, self.ranker, these.requests, novel)

    def value_of_slot(self, policy: Policy, *, round: int = 0) -> float:
        """What the decided slot earns by itself, exactly."""
        these = self.round(round)
        return mean_of_choices(policy, self.ranker, these.requests, these.slot)

    def draws(self, policy: Policy, n: int, *, round: int) -> Draws:
        """What happens at n requests that the policy decides."""
        these, draw = self.round(round), rng.generator(self._traffic, "deploy", round)
        request = draw.integers(0, len(these.requests), n)
        action, propensity, by_pi0 = decided(policy, self.ranker, these.requests, request, draw)
        below, below_propensity = self._fill_below(these, request, action, draw)
        mean = self._mean_clicks(these, request, action, below)
        clicks = draw.random(mean.shape) < mean
        time = these.day[request] + draw.random(n)
        return Draws(request, action, propensity, by_pi0, below, below_propensity, clicks, time)

    def page_rows(self, policy: Policy, n: int, *, round: int) -> pl.DataFrame:
        """The same n pages as a shop would log them: one row for each slot."""
        import polars as pl

        s, draws, these = self.settings, self.draws(policy, n, round=round), self.round(round)
        base, ids = these.base[draws.request], self._catalogue.ids
        sets, starts = these.sets, these.sets.starts
        tables = []
        for slot in range(s.slots):
            if slot < s.decided - 1:
                item, p = self._placed[base, slot], self._placed_shares[base, slot]
            elif slot == s.decided - 1:
                item, p = draws.action, draws.propensity
            else:
                item, p = draws.below, draws.below_propensity
            columns: dict[str, Any] = {
                "page": np.arange(n),
                "position": np.full(n, slot + 1),
                "item": ids[item],
                "clicked": draws.clicks[:, slot].astype(np.int64),
                "page_clicks": draws.clicks.sum(axis=1),
                "propensity": p,
                "time": draws.time,
            }
            columns |= {f"x{k}": self._users[self._user[base], k] for k in range(s.d)}
            columns |= {f"e{k}": self._features[item, k] for k in range(s.d)}
            candidates = [
                ids[sets.items[starts[i] : starts[i + 1]]].tolist() for i in draws.request
            ]
            if slot < s.decided - 1:  # what is placed here and below was a candidate then
                more = ids[self._placed[base, slot:]]
                candidates = [a + b.tolist() for a, b in zip(candidates, more, strict=True)]
            elif slot >= s.decided:
                gone = ids[draws.action]
                pairs = zip(candidates, gone, strict=True)
                candidates = [[item for item in some if item != taken] for some, taken in pairs]
            tables.append(pl.DataFrame({**columns, "candidates": candidates}))
        return pl.concat(tables).sort("page", "position")

    def _retrieve(self, draw: np.random.Generator) -> None:
        """For each request of a day the old items that are retrieved and in stock."""
        s = self.settings
        wanted = self._logit[self._user, : s.items] + draw.gumbel(size=(s.requests, s.items))
        order = np.argsort(-wanted, axis=1)[:, : s.retrieved]
        there = np.take_along_axis(self._in_stock, order, axis=1)
        there[:, : s.slots + 1] = True  # a page can always be filled
        chosen = np.zeros((s.requests, len(self._catalogue)), dtype=bool)
        rows, places = np.nonzero(there)
        chosen[rows, order[rows, places]] = True
        self._old = chosen

    def _place(self, draw: np.random.Generator) -> None:
        """Fill the slots above the decided one; they and their items become part of the context."""
        s = self.settings
        weights = np.exp(s.beta * self._scores[self._user])
        rows = np.arange(s.requests)
        self._placed = np.zeros((s.requests, s.decided - 1), dtype=np.int64)
        self._placed_shares = np.zeros(self._placed.shape)
        for slot in range(s.decided - 1):
            shares = np.where(self._old, weights, 0.0)
            shares /= shares.sum(axis=1, keepdims=True)
            item = _drawn(shares, draw)
            self._placed[:, slot], self._placed_shares[:, slot] = item, shares[rows, item]
            self._old[rows, item] = False
        above = self._features[self._placed].reshape(s.requests, -1)
        self._contexts = np.concatenate([self._users[self._user], above], axis=1)

    def _make_round(self, number: int) -> ShopRound:
        s = self.settings
        require(
            0 <= number < s.rounds,
            "the shop's catalogue has items for its rounds only",
            found=f"round {number} of {s.rounds}",
            cure=f"ShopSettings(rounds={number + 1})",
        )
        days = np.arange(number * s.days, (number + 1) * s.days)
        novel = self._catalogue.novel
        there = [self._old | (self._in_stock & novel & (self.arrives <= day)) for day in days]
        rows, items = np.nonzero(np.concatenate(there))
        base, day = np.tile(np.arange(s.requests), s.days), np.repeat(days, s.requests)
        sizes = np.bincount(rows, minlength=len(base))
        sets = Candidates.of_flat(sizes, items)
        requests = Requests(self._contexts[base], sets)
        if self.known == "logged":
            pi0 = whole(self.ranker, requests)[np.arange(int(sizes.max())) < sizes[:, None]]
            sets = Candidates.of_flat(sizes, items, pi0)
            requests = Requests(requests.contexts, sets)
        slot, rest = self._worth(base[rows], items)
        return ShopRound(requests, sets, base, day, slot, rest)

    def _worth(self, base: IntArray, items: IntArray) -> tuple[FloatArray, FloatArray]:
        """(m,) mean clicks on the decided slot and on the rest of the page, for pairs."""
        s, user = self.settings, self._user[base]
        slot = self._q[user, items] * FADING ** (s.decided - 1)
        above = np.zeros(len(base))
        for k in range(s.decided - 1):
            above += self._q[user, self._placed[base, k]] * FADING**k
        if s.slots == s.decided:
            return slot, above * self._kept(items)
        weights = np.where(self._old, np.exp(s.beta * self._scores[self._user]), 0.0)
        earned = weights * self._q[self._user]
        mine = weights[base, items]
        left = earned.sum(axis=1)[base] - mine * self._q[user, items]
        below = left / (weights.sum(axis=1)[base] - mine) * FADING**s.decided
        return slot, (above + below) * self._kept(items)

    def _kept(self, items: IntArray) -> FloatArray:
        """(m,) what is left of the rest of the page beside each item of the decided slot."""
        return np.where(self._catalogue.novel[items], 1 - self.settings.spill, 1.0)

    def _mean_clicks(
        self, these: ShopRound, request: IntArray, action: IntArray, below: IntArray
    ) -> FloatArray:
        """(n, slots) how likely each slot is clicked."""
        s, base = self.settings, these.base[request]
        user, kept = self._user[base], self._kept(action)
        mean = np.empty((len(request), s.slots))
        for slot in range(s.slots):
            if slot == s.decided - 1:
                mean[:, slot] = self._q[user, action] * FADING**slot
            else:
                item = self._placed[base, slot] if slot < s.decided else below
                mean[:, slot] = self._q[user, item] * FADING**slot * kept
        return mean

    def _fill_below(
        self, these: ShopRound, request: IntArray, action: IntArray, draw: np.random.Generator
    ) -> tuple[IntArray, FloatArray]:
        """(n,) the item of the slot below, drawn by the ranker, and its probability; -1 if none."""
        s, n = self.settings, len(request)
        if s.slots == s.decided:
            return np.full(n, -1), np.ones(n)
        base = these.base[request]
        shares = np.where(self._old[base], np.exp(s.beta * self._scores[self._user[base]]), 0.0)
        shares[np.arange(n), action] = 0
        shares /= shares.sum(axis=1, keepdims=True)
        item = _drawn(shares, draw)
        return item, shares[np.arange(n), item]


def decided(
    policy: Policy,
    ranker: BasePolicy,
    requests: Requests,
    rows: IntArray,
    draw: np.random.Generator,
) -> tuple[IntArray, FloatArray, FloatArray]:
    """(n,) items, their probabilities, and pi0's probability where pi0's own choice was shown.

    Args:
        policy: what decides; pi0's share of it, if it rests on what pi0 chooses, is the ranker's.
        ranker: pi0.
        requests: u requests with candidates of their own.
        rows: (n,) which of them comes up.
        draw: the generator.
    """
    mixed, sets = _resting_on_choice(policy), requests.sets
    if mixed is None or sets is None:
        action, propensity = policy.sample(requests, draw, rows)
        return action, propensity, np.zeros(len(rows))
    action, p0 = ranker.sample(requests, draw, rows)
    share = mixed.pi0_share(requests)[rows]
    mine = draw.random(len(rows)) < share
    others = np.flatnonzero(~mine)
    table = mixed.besides_pi0(requests)[rows[others]]
    place = _drawn(table, draw)
    action[others] = sets.items[sets.starts[rows[others]] + place]
    propensity = share * p0
    propensity[others] = table[np.arange(len(others)), place]
    return action, propensity, np.where(mine, p0, 0.0)


def mean_of_choices(
    policy: Policy, ranker: BasePolicy, requests: Requests, worth: FloatArray
) -> float:
    """The mean over u requests of what a policy's choices are worth.

    Args:
        policy: as in `decided`.
        ranker: pi0.
        requests: u requests with candidates of their own, equally likely.
        worth: (m,) of each candidate.
    """
    table = requests.table(worth, policy.n_actions)
    mixed, total = _resting_on_choice(policy), 0.0
    if mixed is not None:
        share = mixed.pi0_share(requests)
        for piece, pi in ranker.distributions(requests):
            mine = (pi * table[piece, : pi.shape[1]]).sum(axis=1)
            total += float((share[piece] * mine).sum())
        return (total + float((mixed.besides_pi0(requests) * table).sum())) / len(requests)
    for piece, pi in policy.distributions(requests):
        total += float((pi * table[piece, : pi.shape[1]]).sum())
    return total / len(requests)


def _resting_on_choice(policy: Policy) -> BasePolicy | None:
    """The policy, if it shows what pi0 chose in some share of the decisions; else None."""
    return policy if isinstance(policy, BasePolicy) and policy.rests_on_choice else None


def _drawn(shares: FloatArray, draw: np.random.Generator) -> IntArray:
    """(n,) one place for each row of (n, L) shares, in proportion to them."""
    target = draw.random(len(shares)) * (1 - 1e-12)
    below = np.cumsum(shares, axis=1) <= target[:, None] * shares.sum(axis=1, keepdims=True)
    return np.asarray(below.sum(axis=1))
