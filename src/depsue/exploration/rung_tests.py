"""Does the last round speak against what was declared? A test of each rung, which binds.

Once a round has shown new items, its rows say what these earn. The learn and select rows are held
against what was assumed; no row of the coming verdict is read. A rung that is true is refuted at
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

from dataclasses import dataclass, replace

import numpy as np

from depsue.assumptions import EXCHANGEABLE, PROXIES, Rung
from depsue.bounds import Betting
from depsue.certificates import AssumedRung, ItemSplit, Registration, rule_of
from depsue.certificates.assumed import item_draw, mass_by_proxy
from depsue.certificates.rules import BET_GRID
from depsue.data.checks import FloatArray
from depsue.data.logs import LoggedData
from depsue.data.terms import ConservativeTerms
from depsue.estimators.weights import distributions, mass_of
from depsue.policies import Uniform
from depsue.policies.rule import ByRule
from depsue.protocols import BoundValue, Policy
from depsue.rewards import LinearRewardModel

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
