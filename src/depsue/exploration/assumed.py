"""What a round makes of a declared assumption, before any certifying row is read.

`rung_for` says which declared rung a round rests on, and why not on another. `exchangeable` learns
the rule by which new items are shown where they are drawn like old ones: from rows of the old items
of P alone, so that the others say what the rule is worth. `CountedAs` tells the forecast what new
items then count for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from depsue import rng
from depsue.assumptions import EXCHANGEABLE, GROUPS, PROXIES, Rung
from depsue.certificates import AssumedRung, Folds, ItemSplit
from depsue.certificates.assumed import item_draw, require_one_row_a_unit
from depsue.data.checks import FloatArray, IntArray
from depsue.data.logs import LoggedData, joined
from depsue.errors import require
from depsue.exploration.headroom import Sums
from depsue.exploration.parts import Part
from depsue.exploration.settings import ExploreSettings, worth
from depsue.policies.base import whole
from depsue.policies.cached import CachedRewardModel
from depsue.policies.rule import ByRule
from depsue.progress import Watch, silent
from depsue.protocols import Policy, RewardModel
from depsue.rewards import Blend, LinearRewardModel, fit_linear, fit_rewards

STRENGTHS = (0.0, 0.5, 1.0, 2.0, 4.0)
LEVELS = (0.2, 0.35, 0.6, 1.0)
"""Rules that are compared: how strongly q-hat decides, and u of an item of average worth."""
LEAST_GAIN = 0.02
"""What old items are taken to earn above pi0 once q-hat chooses among them, at least."""
MOST_REFERENCE, MOST_CONTEXTS = 256, 1000
"""Old items that a rule is relative to, and contexts that its reach is taken over."""
FEW = 200
"""Requests at which is asked whether what logged the rows shows new items."""
MOST_ROWS = 300_000
"""Rows that the rule's q-hat is fitted on, at most."""


@dataclass(frozen=True, eq=False)
class CountedAs:
    """What new items count for in the rows, by a declared rung.

    Args:
        rung: which.
        proxies: (A,) the place of each new item's proxy, or -1.
        groups: (A,) the number of each item's group.
        part: what shows new items, where that is one rule, with its sums.
    """

    rung: Rung
    proxies: IntArray | None = None
    groups: IntArray | None = None
    part: Part | None = None

    @property
    def meet(self) -> bool:
        """Whether old and new parts may count in one row."""
        return self.proxies is not None or self.groups is not None

    @property
    def factor(self) -> float:
        """What all weights are divided by."""
        return self.rung.factor

    @property
    def epsilon(self) -> float:
        """What is taken off for each decision that shows a new item."""
        return self.rung.epsilon

    def counts(self, pi: FloatArray, base: FloatArray) -> FloatArray:
        """(c, A) distributions, with new items moved to where rows count for them."""
        if self.proxies is not None:
            out = np.array(pi, dtype=np.float64)
            new = np.flatnonzero(self.proxies >= 0)
            np.add.at(out.T, self.proxies[new], pi[:, new].T)
            return out
        if self.groups is not None:
            each = np.zeros((self.groups.max() + 1, pi.shape[1]))
            each[self.groups, np.arange(pi.shape[1])] = 1.0
            mine, theirs = pi @ each.T, base @ each.T
            ratio = np.divide(mine, theirs, out=np.zeros_like(mine), where=theirs > 0)
            return np.asarray(base * ratio[:, self.groups])
        return pi


@dataclass(frozen=True, eq=False)
class RungAtWork:
    """The rung that a round rests on, what it makes of new items, and why not on another.

    Args:
        assumed: the rung with its items; None rests on nothing.
        counted: what new items then count for.
        words: why a declared rung is not rested on, in words.
    """

    assumed: AssumedRung | None = None
    counted: CountedAs | None = None
    words: tuple[str, ...] = ()


def rung_at_work(
    folds: Folds,
    pi0: Policy | None,
    last: Policy | None,
    settings: ExploreSettings,
    *,
    seed: int,
    watch: Watch = silent,
) -> RungAtWork:
    """The first declared rung that can help this round; nothing where none can.

    Args:
        folds: the newest rows.
        pi0: None where it cannot be asked.
        last: what logged these rows.
        settings: what is declared; what was refuted is no longer among it.
        seed, watch: of what is learned.
    """
    if not settings.assume:
        return RungAtWork()
    can_call = pi0 is not None and not getattr(pi0, "rests_on_choice", False)
    catalogue, shown = folds.learn.catalogue, False
    if can_call and last is not None and folds.learn.requests.sets is None:
        few = whole(last, folds.learn.requests[: min(len(folds.learn.requests), FEW)])
        shown = bool((few[:, catalogue.novel] > 0).any())
    rung, words = rung_for(settings, folds, can_call=can_call, shown=shown)
    if rung is None:
        return RungAtWork(words=words)
    if rung.name == EXCHANGEABLE and pi0 is not None:
        require_one_row_a_unit(folds.learn)
        delta = settings.delta_of_deployment
        assumed, counted = exchangeable(rung, folds, pi0, settings, delta, seed=seed, watch=watch)
        return RungAtWork(assumed, counted, words)
    plain = AssumedRung(rung, catalogue)
    return RungAtWork(plain, counted_as(plain), words)


def exposure_of_new(exposure: Callable[[Policy], FloatArray], new: Policy) -> FloatArray:
    """(A,) how often each action is shown, of decisions that show a new item."""
    shown = exposure(new)
    if not isinstance(new, ByRule):
        return shown
    shown = np.where(new.support, shown, 0.0)
    return np.asarray(shown / max(float(shown.sum()), 1e-12))


def rung_for(
    settings: ExploreSettings, folds: Folds, *, can_call: bool, shown: bool
) -> tuple[Rung | None, tuple[str, ...]]:
    """The rung that a round rests on; and why it does not rest on those before it, in words.

    Args:
        settings: what is declared; what was refuted is no longer among it.
        folds: the newest rows.
        can_call: whether pi0 can be asked for its probabilities.
        shown: whether what logged these rows showed new items.
    """
    words: list[str] = []
    for rung in settings.assume:
        why = _why_not(rung, folds, can_call=can_call, shown=shown)
        if not why:
            return rung, tuple(words)
        words.append(f"fact: {rung} is declared, and nothing here rests on it: {why}")
    return None, tuple(words)


def _why_not(rung: Rung, folds: Folds, *, can_call: bool, shown: bool) -> str:
    if folds.learn.estimating is not None:
        return "propensities were estimated"
    if not rung.about_items:
        return ""
    if folds.learn.requests.sets is not None:
        return "requests bring candidates of their own"
    if not can_call:
        return "pi0 cannot be called"
    if rung.name == EXCHANGEABLE and shown:
        return "new items have been shown, and count by what they earned themselves"
    return ""


def counted_as(assumed: AssumedRung) -> CountedAs:
    """What a rung other than "exchangeable" makes of new items."""
    rung = assumed.rung
    if rung.name == PROXIES:
        proxies = assumed.proxies
        require(
            bool((proxies >= 0).any()),
            "proxies name an old item for some new one",
            found=f"none in the column {rung.column!r}",
            cure="write the id of an old item into the row of a new one",
        )
        return CountedAs(rung, proxies=proxies)
    if rung.name == GROUPS:
        groups = np.unique(assumed.catalogue.label(rung.column), return_inverse=True)[1]
        return CountedAs(rung, groups=np.asarray(groups, dtype=np.int64))
    return CountedAs(rung)


def exchangeable(
    rung: Rung,
    folds: Folds,
    pi0: Policy,
    settings: ExploreSettings,
    delta: float,
    *,
    seed: int,
    watch: Watch = silent,
) -> tuple[AssumedRung, CountedAs]:
    """The rule for new items that are drawn like old ones, its constants, and its forecast.

    The rule, its strength, its level and the constants of its bound come from rows of P. Rows of Q
    that may be read forecast what the rule is worth: they decide how far the levels go, and no
    more.

    Args:
        rung: with its strata.
        folds: the newest rows.
        pi0: which the rule stands beside, for now.
        settings: how.
        delta: the error budget of the verdict to come.
        seed: of the reward model.
        watch: shows progress.
    """
    learn, catalogue = folds.learn, folds.learn.catalogue
    split = ItemSplit.of(rung, catalogue, folds.registration)
    readable = joined([learn, folds.select])
    draw = rng.generator(seed, "rule for new items")
    contexts = learn.contexts[learn.context[draw.integers(0, len(learn), MOST_CONTEXTS)]]
    model = _fitted(learn.take(np.flatnonzero(split.learned[learn.action])), settings, seed, watch)
    reference = np.flatnonzero(split.learned)
    if len(reference) > MOST_REFERENCE:
        reference = np.sort(draw.choice(reference, MOST_REFERENCE, replace=False))
    among = np.zeros(len(catalogue), dtype=bool)
    among[reference] = True
    q_hat = model.predict(contexts)[:, reference]
    scale = max(float((q_hat - q_hat.mean(axis=1, keepdims=True)).std()), 1e-9)
    assumed: AssumedRung | None = None
    best = -np.inf
    chosen = readable.take(np.flatnonzero(split.chosen[readable.action]))
    gain = _gain(model, chosen, scale)
    strengths = STRENGTHS if catalogue.features is not None else (0.0,)
    for strength in strengths:
        for level in LEVELS:
            by_rule = ByRule(
                pi0,
                model,
                catalogue.novel,
                among,
                strength=strength,
                scale=scale,
                level=level,
                even=settings.even_share,
            )
            option = AssumedRung(rung, catalogue, split, by_rule)
            score = _promising(option, contexts, chosen, len(readable), settings, gain)
            if assumed is None or score > best:
                assumed, best = option, score
    if assumed is None or (rule := assumed.rule) is None:
        raise RuntimeError("there is always a rule: the first")
    reach = float(rule.shown(contexts).mean())
    draws, sums = {}, []
    for promise in settings.promises:
        own = promise.rows(readable)[0]
        means = assumed.item_sums(own, split.chosen) / len(own)
        price = assumed.price(delta)
        draws[promise.name] = item_draw(means, split, catalogue.novel, price, own.r_max)
    assumed = replace(assumed, reach=reach, draws=draws)
    for promise in settings.promises:
        own = promise.rows(readable)[0]
        means = assumed.item_sums(own) / len(own)
        certain = assumed.bound(promise.name, means, assumed.price(delta)) / reach
        value = float(means[split.tested].mean()) / reach
        sums.append(Sums(value=value, seen=certain, observed=certain, square=0.0, cross=0.0))
    return assumed, CountedAs(rung, part=Part(rule, tuple(sums)))


def _fitted(
    rows: LoggedData, settings: ExploreSettings, seed: int, watch: Watch
) -> CachedRewardModel:
    """q-hat from rows of P alone."""
    if len(rows) > min(settings.most_rows, MOST_ROWS):
        draw = rng.generator(seed, "rows for the rule")
        most = min(settings.most_rows, MOST_ROWS)
        rows = rows.take(np.sort(draw.choice(len(rows), most, replace=False)))
    fitted: RewardModel
    if rows.catalogue.features is None:
        flat = np.zeros(rows.contexts.shape[1]), np.zeros(len(rows.catalogue))
        fitted = LinearRewardModel(float(rows.reward.mean()), *flat, rows.r_max)
    else:
        networks = fit_rewards(
            rows, settings.rewards, seed=rng.derive(seed, "rule for new items"), watch=watch
        )
        fitted = Blend([networks, fit_linear(rows)])
    return CachedRewardModel(fitted)


def _gain(model: RewardModel, rows: LoggedData, scale: float) -> float:
    """What q-hat gains among old items that it has not seen, as a share, by rows of P alone."""
    if not len(rows) or float(rows.reward.mean()) <= 0:
        return LEAST_GAIN
    q_hat = model.predict_pairs(rows.contexts, rows.action, rows.context)
    gains = [LEAST_GAIN]
    for strength in STRENGTHS[1:]:
        s = (q_hat - q_hat.max()) * (strength / scale)
        weights = np.exp(np.asarray(s, dtype=np.float64))
        weights /= weights.sum()
        mean = float(weights @ rows.reward)
        error = float(np.sqrt(weights**2 @ (rows.reward - mean) ** 2))
        gains.append((mean - error) / float(rows.reward.mean()) - 1)
    return max(gains)


def _promising(
    option: AssumedRung,
    contexts: FloatArray,
    chosen: LoggedData,
    rows: int,
    settings: ExploreSettings,
    gain: float,
) -> float:
    """What the objective says of the boldest mixture that a rule is likely to allow, by P alone.

    Where the old part earns 1 + gain times what is usual, a rule that earns f while it shows new
    items in a share of the decisions, its reach, costs reach (1 + gain) - f.
    """
    rule, split = option.rule, option.split
    if rule is None or split is None or not len(chosen):
        return -np.inf
    # of old items that the rule is chosen by: it must not depend on which items are new
    reach = float(rule.rule(contexts)[:, split.chosen].mean())
    promise = settings.promises[0]
    ratio = promise.floor.ratio if promise.floor.ratio is not None else 1.0
    means = option.item_sums(chosen, split.chosen) / rows
    mine = means[split.chosen]
    # what these items earn where they are shown at all: what is usual, without rows of Q
    usual = float(chosen.reward.mean())
    if usual <= 0:
        return -np.inf
    new, tested = int(rule.support.sum()), int(split.tested.sum())
    error = float(mine.std()) * np.sqrt(2 * np.log(40) * (1 / new + 1 / tested))
    f, certain = float(mine.mean()) / usual, max(float(mine.mean()) - error, 0.0) / usual
    room, cost = 1 + gain - ratio, reach * (1 + gain) - certain
    share = 1.0 if cost <= 0 else min(room / cost, 1.0)
    share = min(share, settings.max_novelty / max(reach, 1e-9))
    shares = np.linspace(0.0, share, 21)
    values = 1 + gain - shares * (reach * (1 + gain) - f)
    return float(worth(settings.objective, values, shares * reach).max())
