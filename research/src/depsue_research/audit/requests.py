"""Certificates where every request brings candidates of its own, with pi0 known in each way.

In a small shop whose new items are worthless. Every candidate misses its floor by 0.1%, so every
certificate is an error. Where pi0 is known by what it chose, so it is once more on the rows of a
round that a mixture has served; the tempting rule there counts an old item in the rows of either
policy, and so twice.
"""

from __future__ import annotations

from functools import cache, partial

import numpy as np

from depsue.certificates import Rules
from depsue.certificates.terms import safety_terms
from depsue.data.checks import FloatArray
from depsue.data.logs import LoggedData
from depsue.estimators.weights import importance_weights
from depsue.policies import (
    BasePolicy,
    ChosenPolicy,
    Mixture,
    OrElse,
    ScoreTable,
    SoftmaxOfScores,
    Uniform,
)
from depsue.promises import Floor, Promise
from depsue.shop import Known, Shop, ShopSettings
from depsue_research.audit.answers import DELTA, Answer, Key, Outcome, Trial, judged
from depsue_research.audit.verdicts import FEWER, alone, answered, folds_of
from depsue_research.audit.worlds import MISS, RHO

SMALL = ShopSettings(
    requests=60, users=30, items=20, new=4, arrivals=1, retrieved=8, d=3, rate=0.3, beta=0.5,
    spread=1.2, novel_quality=0.0, out_of_stock=0.1,
)  # fmt: skip
BOUNDS = ("normal", "betting", "smoothing")
KEPT, MIXED, CLIP = 0.7, 0.5, 8.0
"""lambda of the mixture that has served, of candidates, and the largest weight that counts."""
SEED = 3


def shop(known: Known, draw: np.random.Generator | None = None) -> Shop:
    """The same shop always, with other traffic."""
    traffic = None if draw is None else int(draw.integers(2**31))
    return Shop(SMALL, known=known, seed=SEED, traffic=traffic)


@cache
def better() -> BasePolicy:
    """A policy over old items that is worth more than pi0, by what is really clicked."""
    here = shop("called")
    requests = here.round(0).requests
    first = np.unique(requests.contexts, axis=0)
    everything = here.true_logits(first)
    return SoftmaxOfScores(ScoreTable(first, everything), 1.2, ~here.catalogue.novel)


def near_miss(known: Known, number: int) -> BasePolicy:
    """The candidate that is worth 0.1% less than its floor, by the requests of that round."""
    here = shop(known)
    pi0, old = here.logging_policy, better()
    assert isinstance(pi0, BasePolicy)
    new = OrElse(Uniform(here.catalogue.novel), old)
    target = (1 - MISS) * RHO * here.value(pi0, round=number)
    if known == "chosen":
        kept = MIXED * here.value(pi0, round=number)
        values = [kept + (1 - MIXED) * here.value(part, round=number) for part in (old, new)]
        share = (values[0] - target) / (values[0] - values[1])
        parts = [(1 - MIXED) * (1 - share), (1 - MIXED) * share]
        return Mixture([pi0, old, new], [MIXED, *parts])
    values = [here.value(part, round=number) for part in (old, new)]
    share = (values[0] - target) / (values[0] - values[1])
    return Mixture([old, new], [1 - share, share])


def first_round(known: Known, draw: np.random.Generator) -> Outcome:
    """On pi0's own rows."""
    here = shop(known, draw)
    folds = folds_of(here.deploy(here.logging_policy, FEWER, round=0))
    levels = alone(near_miss(known, 0))
    out: dict[Key, Answer] = {}
    for bound in BOUNDS:
        rules = Rules((Promise(Floor(RHO)),), DELTA, bound, clip=CLIP)
        out["strict", f"candidate sets, pi0 {known}", bound] = answered(levels, folds, rules)
    return out


def later_round(draw: np.random.Generator) -> Outcome:
    """On rows of a mixture, of which pi0 took a share; it is known by what it chose."""
    here = shop("chosen", draw)
    pi0 = ChosenPolicy(len(here.catalogue))
    even = Uniform(np.ones(len(here.catalogue), dtype=bool))
    served = here.deploy(Mixture([pi0, even], [KEPT, 1 - KEPT]), FEWER, round=1)
    candidate = near_miss("chosen", 1)
    folds, levels = folds_of(served), alone(candidate)
    out: dict[Key, Answer] = {}
    for bound in BOUNDS:
        rules = Rules((Promise(Floor(RHO)),), DELTA, bound, clip=CLIP, largest=1 / KEPT)
        out["strict", "candidate sets, pi0 chosen, a later round", bound] = answered(
            levels, folds, rules, logging_policy=pi0
        )
    out["tempting", "old items in the rows of either policy", "normal"] = judged(
        _twice(candidate, folds.certify)
    )
    return out


def _twice(candidate: BasePolicy, rows: LoggedData) -> bool:
    """Whether the mean passes by two standard errors less, with old items counted in all rows."""
    assert rows.by_pi0 is not None
    pi0 = ChosenPolicy(len(rows.catalogue))
    paired = importance_weights(pi0, rows)
    share = candidate.pi0_share(rows.requests)[rows.context]
    beside = np.concatenate(
        [
            candidate.besides_pi0(rows.requests[piece])
            for piece in rows.requests.chunks(len(rows.catalogue), 1 << 22)
        ]
    )
    place = rows.requests.place(rows.action, rows.context)
    weights: FloatArray = (share * rows.by_pi0 + beside[rows.context, place]) / rows.propensity
    terms = safety_terms(
        Promise(Floor(RHO)), rows, weights, clip=CLIP, paired=paired, largest=1 / KEPT
    ).values
    return bool(terms.mean() > 1.645 * terms.std() / len(terms) ** 0.5)


TRIALS: dict[str, Trial] = {
    "candidate sets, called": partial(first_round, "called"),
    "candidate sets, logged": partial(first_round, "logged"),
    "candidate sets, chosen": partial(first_round, "chosen"),
    "candidate sets, chosen later": later_round,
}
"""Each draws its own logs and says what came of every certificate."""
