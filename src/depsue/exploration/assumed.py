"""What a round makes of a declared assumption, and whether the last round refutes it.

`rung_for` says which declared rung a round rests on, and why not on another. `exchangeable` learns
the rule by which new items are shown where they are drawn like old ones: from rows of the old items
of P alone, so that the others say what the rule is worth. `CountedAs` tells the forecast what new
items then count for.

`check_rung` asks whether the last round speaks against what was declared, which binds. Once a round
has shown new items, its rows say what these earn. The learn and select rows are held against what
was assumed; no row of the coming verdict is read. A rung that is true is refuted at
most a fraction `delta` of the time. One that is refuted stays refuted: the campaign falls back a
rung. "Nothing refutes it" is no proof; `smallest` says which fall would have been found.

- **exchangeable.** Q, the old items that no rule learned from, bound from below what new items are
  worth under the served rule (`certificates.assumed`), at delta / 2. New items' own rows bound it
  from above, at delta / 2. Both are rows of one round, so that drift of all items is no finding.
- **proxies.** D = what rows of proxies say new items are worth, less what these earned, less
  epsilon. Its mean is at most 0 where the rung holds.
- **groups.** The same with what rows of the group say: its mean is 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from depsue import rng
from depsue.assumptions import EXCHANGEABLE, GROUPS, NOTHING, PROXIES, Rung
from depsue.bounds import Betting
from depsue.certificates import AssumedRung, Folds, ItemSplit, Registration, rule_of
from depsue.certificates.assumed import item_draw, mass_by_proxy, require_one_row_a_unit
from depsue.certificates.rules import BET_GRID
from depsue.data.checks import FloatArray, IntArray, Mask
from depsue.data.logs import LoggedData, joined
from depsue.data.terms import ConservativeTerms
from depsue.errors import require
from depsue.estimators.weights import distributions, mass_of
from depsue.exploration.headroom import Sums
from depsue.exploration.parts import Part
from depsue.exploration.settings import ExploreSettings, worth
from depsue.policies import Uniform
from depsue.policies.base import held, whole
from depsue.policies.cached import CachedRewardModel
from depsue.policies.rule import ByRule
from depsue.progress import Watch, silent
from depsue.protocols import BoundValue, Policy, RewardModel
from depsue.rewards import Blend, LinearRewardModel, fit_linear, fit_rewards

STRENGTHS = (0.0, 0.5, 1.0, 2.0, 4.0)
LEVELS = (0.1, 0.2, 0.35, 0.6, 1.0)
"""Rules that are compared: how strongly q-hat decides, and u of an item of average worth."""
LEAST_GAIN, MOST_TILT = 0.02, 20.0
"""What old items are taken to earn above pi0 once q-hat chooses among them, at
least; and how much more often it may show one."""
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
    gain = _gain(model, chosen, pi0, split.chosen, scale)
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


def _gain(model: RewardModel, rows: LoggedData, pi0: Policy, which: Mask, scale: float) -> float:
    """What a tilt of pi0 gains among old items that q-hat has not seen, by rows of P alone.

    Args:
        model: q-hat.
        rows: that show these items.
        pi0: which logged them.
        which: (A,) these items.
        scale: what counts as one unit of q-hat.
    """
    if not len(rows) or float(rows.reward.mean()) <= 0:
        return LEAST_GAIN
    rows = rows.take(np.flatnonzero(rows.context < MOST_CONTEXTS))
    if len(rows) < 2 or float(rows.reward.mean()) <= 0:
        return LEAST_GAIN
    q_hat = np.asarray(model.predict(rows.contexts)[:, which], dtype=np.float64)
    base = held(np.array(whole(pi0, rows.contexts)[:, which], dtype=np.float64))
    place = (np.cumsum(which) - 1)[rows.action]
    gains = [LEAST_GAIN]
    for strength in STRENGTHS[1:]:
        g = np.exp((q_hat - q_hat.max(axis=1, keepdims=True)) * (strength / scale))
        g /= np.maximum((base * g).sum(axis=1, keepdims=True), 1e-12)
        terms = np.minimum(g[rows.context, place], MOST_TILT) * rows.reward
        mean = float(terms.mean()) - float(terms.std()) / np.sqrt(len(terms))
        gains.append(mean / float(rows.reward.mean()) - 1)
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


@dataclass(frozen=True)
class RungForecast:
    """What a plan finds on one rung of the ladder.

    Args:
        rung: as it is declared; "nothing" for the strictest.
        words: what it says, for anybody.
        novelty, value: of the pick; value relative to V(pi0).
    """

    rung: str
    words: str
    novelty: float
    value: float

    def __str__(self) -> str:
        """In a sentence."""
        return (
            f"{self.rung}: {self.novelty:.1%} new items at {self.value:.3f} of V(pi0), {self.words}"
        )


def by_rung(
    declared: Sequence[Rung], pick: Callable[[tuple[Rung, ...]], tuple[float, float]]
) -> tuple[RungForecast, ...]:
    """The ladder, the strictest rung first; () where nothing is declared.

    Args:
        declared: the rungs.
        pick: novelty and value that are likely where these are assumed.
    """
    if not declared:
        return ()
    nothing = RungForecast(NOTHING, "whatever new items are worth", *pick(()))
    return (nothing, *(RungForecast(str(r), r.in_words, *pick((r,))) for r in declared))


RUNG_DELTA = 0.01
"""How often a rung that is true is refuted, at most, in each round."""


@dataclass(frozen=True)
class RungReport:
    """What a round says about a rung.

    Args:
        rung: which.
        ok: whether nothing refutes it.
        expected: what it says that decisions which show new items earn, at least.
        seen: what they earned.
        limit: no more than this is left of the claim: below 0, or below `expected`, it is refuted.
        rows: that show new items.
        smallest: a fall of what new items earn, as a share, that would have been found, about.
    """

    rung: Rung
    ok: bool
    expected: float
    seen: float
    limit: float
    rows: int
    smallest: float

    def __str__(self) -> str:
        """In a sentence."""
        figures = (
            f"new items earned {self.seen:.4g} in {self.rows:,} rows, and by {self.rung} they are "
            f"worth at least {self.expected:.4g}"
        )
        if not self.ok:
            return f"{self.rung} is refuted: {figures}"
        return f"nothing refutes {self.rung}: {figures} (a fall of {self.smallest:.0%} would show)"


def check_rung(
    rung: Rung,
    rows: LoggedData,
    served: Policy,
    registration: Registration,
    *,
    delta: float = RUNG_DELTA,
) -> RungReport | None:
    """Hold a rung against rows of a round that showed new items; None where they cannot tell.

    Args:
        rung: which.
        rows: learn and select rows of the newest round.
        served: the policy that drew them.
        registration: of the first logs, on which the parts of old items hang.
        delta: a rung that is true is refuted at most so often.
    """
    new = rows.catalogue.novel[rows.action]
    if not rung.about_items or rows.candidates is not None or int(new.sum()) < 2:
        return None
    if rows.repeats_units:
        rows = rows.first_rows
        new = rows.catalogue.novel[rows.action]
    if rung.name == EXCHANGEABLE:
        return _exchangeable(rung, rows, served, registration, delta)
    assumed = AssumedRung(rung, rows.catalogue)
    if rung.name == PROXIES:
        proxies = assumed.proxies
        own = np.where(new & (proxies[rows.action] >= 0), 1.0, 0.0)
        claimed = mass_by_proxy(served, rows, proxies) / rows.propensity
        claims = claimed * rows.reward - own * rung.epsilon
    else:
        own = new.astype(np.float64)
        claims = _mass_by_group(assumed, rows, served) * rows.reward
    shown = float(own.mean())
    if shown == 0:
        return None
    low = _lower(claims - own * rows.reward, -rows.r_max - rung.epsilon, rows.r_max, delta)
    seen, expected = float((own * rows.reward).mean()), float(claims.mean())
    return RungReport(
        rung,
        ok=low.value <= 0,
        expected=expected / shown,
        seen=seen / shown,
        limit=low.value / shown,
        rows=int(own.sum()),
        smallest=(low.mean - low.value) / max(expected, 1e-12),
    )


def _exchangeable(
    rung: Rung, rows: LoggedData, served: Policy, registration: Registration, delta: float
) -> RungReport:
    catalogue = rows.catalogue
    split = ItemSplit.of(rung, catalogue, registration)
    rule = rule_of(served)
    if rule is None:  # shown evenly: every item alike
        flat = LinearRewardModel(0.0, np.zeros(rows.contexts.shape[1]), np.zeros(len(catalogue)), 1)
        old = Uniform(~catalogue.novel)
        how = {"strength": 0.0, "scale": 1.0, "level": 1.0}
        rule = ByRule(old, flat, catalogue.novel, split.learned, **how)
    assumed = AssumedRung(rung, catalogue, split, rule)
    means = assumed.item_sums(rows, split.chosen) / len(rows)
    draw = item_draw(means, split, catalogue.novel, delta / 2, rows.r_max)
    assumed = replace(assumed, draws={"": draw})
    expected = assumed.bound("", assumed.item_sums(rows) / len(rows), delta / 2)
    count, mine = int(catalogue.novel.sum()), np.flatnonzero(catalogue.novel[rows.action])
    u = rule.rule_at(rows.contexts, rows.action[mine], rows.context[mine])
    values = np.zeros(len(rows))
    values[mine] = u * rows.reward[mine] / (count * rows.propensity[mine])
    most, reach = 0.0, 0.0
    weights = np.bincount(rows.context, minlength=len(rows.contexts)) / len(rows)
    for piece, pi in distributions(served, rows):
        of_rule = rule.rule(rows.contexts[piece])[:, catalogue.novel] / count
        drawn = pi[:, catalogue.novel]
        ratio = np.divide(of_rule, drawn, out=np.zeros_like(of_rule), where=drawn > 0)
        most = max(most, float(ratio.max()))
        reach += float(weights[piece] @ of_rule.sum(axis=1))
    largest = 1.001 * most * rows.r_max  # policies answer in single precision
    low = _lower(-values, -largest, largest, delta / 2)
    high, seen = -low.value, float(values.mean())
    return RungReport(
        rung,
        ok=high >= expected,
        expected=expected / max(reach, 1e-12),
        seen=seen / max(reach, 1e-12),
        limit=high / max(reach, 1e-12),
        rows=len(mine),
        smallest=min(max(1 - (expected - (high - seen)) / max(seen, 1e-12), 0.0), 1.0),
    )


def _mass_by_group(assumed: AssumedRung, rows: LoggedData, served: Policy) -> FloatArray:
    """(n,) how often new items of the row's group are shown, over how often the group is."""
    groups = np.unique(assumed.catalogue.label(assumed.rung.column), return_inverse=True)[1]
    novel = assumed.catalogue.novel
    out = np.zeros(len(rows))
    for piece, pi in distributions(served, rows):
        mine = np.flatnonzero((rows.context >= piece.start) & (rows.context < piece.stop))
        context, group = rows.context[mine] - piece.start, groups[rows.action[mine]]
        requests = rows.requests[piece]
        for name in np.unique(group):
            these = np.flatnonzero(group == name)
            every = mass_of(pi, requests, groups == name)
            new = mass_of(pi, requests, (groups == name) & novel)
            share = np.divide(new, every, out=np.zeros_like(new), where=every > 0)
            out[mine[these]] = share[context[these]]
    return out


def _lower(values: FloatArray, lower: float, scale: float, delta: float) -> BoundValue:
    """A lower bound by bets on a fixed grid, which depends on no order and on no choice."""
    terms = ConservativeTerms(values, lower, proof="what a rung says, less what was seen")
    bets = tuple(bet * 4.0**-k / scale for bet in BET_GRID for k in (0, 4))
    return Betting(bets=tuple(dict.fromkeys(bets))).lower(terms, delta)
