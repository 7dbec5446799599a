"""Certified exploration: the boldest mixture of old and new that the certificate allows.

One round: fix a list of mixtures (1 - nu) pi_old + nu pi_new, safest first (`prepare`); let the
certifying fold say how far down the list to go (`certify_round`). While novel actions have not been
shown their reward counts as zero, so nu is what the tilt earned above the floor; once they have
been, their own rewards count.

What one round of exploration fixes before the certifying rows are read.

On the learn fold q-hat is fitted. On the select fold the supported policy pi_old with the best
anticipated bound is found and a policy pi_new over novel actions; the mixtures
(1 - nu) pi_old + nu pi_new are listed, safest first; bound and control variate are chosen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

import numpy as np

from depsue import rng
from depsue.certificates import (
    Ceiling,
    Certificate,
    Control,
    CountsReads,
    Credit,
    Folds,
    MixtureLadder,
    Rules,
    certify,
)
from depsue.certificates.promise_test import PromiseTest
from depsue.data.checks import FloatArray, IntArray
from depsue.data.logs import LoggedData, joined
from depsue.diagnostics.drawn_by import require_drawn_by
from depsue.errors import require, require_settings
from depsue.exploration.forecast import (
    FIRST_NOVEL_STRENGTH,
    Candidate,
    Forecast,
    margins,
    within_limits,
)
from depsue.exploration.settings import BALANCED, MOST_NOVELTY, ExploreSettings, worth
from depsue.exploration.trust import trust_on_hidden_items
from depsue.policies import BasePolicy, Mixture
from depsue.policies.cached import CachedPolicy, CachedRewardModel
from depsue.progress import Watch, silent
from depsue.protocols import Policy, RewardModel
from depsue.rewards import Blend, fit_linear, fit_rewards
from depsue.rewards.fit import heldout_split

DEVIATIONS = 2.3
"""Standard errors that the bound costs, about; candidates are compared with it."""
WEIGHT_SHARE, SMALLEST_CLIP = 8.0, 5.0
"""No weight counts for more than sqrt(n) / 8: beyond it, one row would decide."""
STEPS = {False: 0.001, True: 0.01}
"""Between levels; wider once novel actions have been shown, where far more is possible."""
MOST_WHEN_PAIRED = 0.9
"""Novelty, where the next round must pair its rows with pi0."""
BOUNDS = ("normal", "betting", "smoothing")
MOST_PAIRS = 30_000_000
"""Contexts x actions that these are compared on."""


@dataclass(frozen=True, eq=False)
class RoundInputs:
    """What is there when a round begins.

    Args:
        folds: the newest logs.
        logging_policy: pi0.
        base: the policy that logged the newest rows; None is pi0.
        earlier: logs of earlier rounds, all of whose rows now serve learning.
        ceilings: upper bounds on V(pi0), by promise; without one, terms are paired.
        credits: margin to spend, by promise.
        largest: the largest pi0 / p that `base` allows; for paired terms.
        trust: share of q-hat's promises that came true in the rehearsal of an earlier round; None
            is to rehearse now.
    """

    folds: Folds
    logging_policy: Policy
    base: Policy | None = None
    earlier: Sequence[LoggedData] = ()
    ceilings: Mapping[str, Ceiling] = field(default_factory=dict)
    credits: Mapping[str, Credit] = field(default_factory=dict)
    largest: float = 1.0
    trust: float | None = None


@dataclass(frozen=True)
class Expected:
    """value / V(pi0) that is anticipated of pi_old, of pi_new and of pi0 itself."""

    old: float
    new: float
    logging: float

    def value(self, novelty: float, *, naive: bool = False) -> float:
        """Of a mixture; `naive` has pi0 for pi_old."""
        return (1 - novelty) * (self.logging if naive else self.old) + novelty * self.new


@dataclass(frozen=True, eq=False)
class FrozenCandidate:
    """What is to be certified, all of it fixed.

    Args:
        levels: mixtures of pi_old and pi_new, safest first.
        new: pi_new.
        rules: the rules of the certificate.
        expected: of pi_old, pi_new and pi0.
        trust: share of what q-hat promises of unseen actions that came true in the rehearsal.
        model: q-hat.
    """

    levels: MixtureLadder
    new: Policy
    rules: Rules
    expected: Expected
    trust: float
    model: RewardModel


def prepare(
    before: RoundInputs, settings: ExploreSettings, *, seed: int, watch: Watch = silent
) -> FrozenCandidate:
    """Fix what one round will certify; reads the learn and select folds only.

    Args:
        before: what is there.
        settings: how.
        seed: of the reward model.
        watch: shows progress.
    """
    folds, pi0 = before.folds, before.logging_policy
    require(
        bool(folds.learn.catalogue.novel.any()),
        "there must be a novel action to explore",
        cure="mark the novel actions",
    )
    base = pi0 if before.base is None else before.base
    for fold in (folds.learn, folds.select):  # a certificate rests on them
        require_drawn_by(base, fold)
    rows = joined([*_apart(before.earlier, folds.certify), folds.learn])
    if len(rows) > settings.most_rows:
        draw = rng.generator(seed, "rows for q-hat")
        rows = rows.take(np.sort(draw.choice(len(rows), settings.most_rows, replace=False)))
    fitted = fit_rewards(rows, settings.rewards, seed=seed, watch=watch)
    seen, heldout = heldout_split(rows, settings.rewards, seed=seed)
    linear = fit_linear(seen)
    calibrating = joined([heldout, folds.select])
    contexts = joined([rows, calibrating]).contexts
    model = CachedRewardModel(Blend([fitted, linear]), contexts)
    hopeful = None
    if settings.novel == "optimistic":
        hopeful = CachedRewardModel(Blend([fitted.combined("optimistic"), linear]), contexts)
    clip = max(len(folds.certify) ** 0.5 / WEIGHT_SHARE, SMALLEST_CLIP)
    trust = _rehearsed(rows, settings, seed) if before.trust is None else before.trust
    known = Forecast(
        folds.select,
        model,
        pi0,
        base,
        clip=clip,
        seed=seed,
        novel_model=hopeful,
        calibrating=calibrating,
        trust=trust,
    )
    rules = Rules(
        promises=settings.promises,
        delta=settings.delta_of_deployment,
        clip=clip,
        ceilings=before.ceilings,
        credits=before.credits,
        largest=before.largest,
    )
    choice = _choose(known, len(folds.certify), settings, rules)
    candidate = choice.candidate
    parts = tuple(
        part if isinstance(part, CachedPolicy) or part is pi0 else CachedPolicy(part, contexts)
        for part in (candidate.old, candidate.new)
    )
    levels = MixtureLadder(parts, np.stack([1 - choice.path, choice.path], axis=1))
    largest_q = float(known.q_hat.max())
    control = Control(base, model, min(max(largest_q, 1e-9), folds.learn.r_max))
    rules = _sharpened(rules, levels, folds, control, None if base is pi0 else pi0)
    unit = known.logging_value if known.logging_value > 0 else np.inf
    return FrozenCandidate(
        levels,
        parts[1],
        rules,
        Expected(
            candidate.old_sums.value / unit,
            candidate.new_sums.value / unit,
            known.pi0_sums.value / unit,
        ),
        trust=trust,
        model=model,
    )


def _apart(earlier: Sequence[LoggedData], certify: LoggedData) -> list[LoggedData]:
    """Earlier rounds without the units that will certify: what was learned must not know them."""
    found = []
    for rows in earlier:
        if rows.unit is None or rows.units is None or certify.units is None:
            found.append(rows)
            continue
        others = np.flatnonzero(~np.isin(rows.units[rows.unit], certify.units))
        if len(others):
            found.append(rows.take(others))
    return found


def _rehearsed(rows: LoggedData, settings: ExploreSettings, seed: int) -> float:
    """How far q-hat is believed; a plain wish for novelty does not ask."""
    if settings.objective == MOST_NOVELTY:
        return 1.0
    strength, even = FIRST_NOVEL_STRENGTH, _even(settings)
    return trust_on_hidden_items(rows, settings.rewards, strength=strength, even=even, seed=seed)


@dataclass(frozen=True, eq=False)
class _Choice:
    """The candidate, and the novelties in the order in which they are tested."""

    candidate: Candidate
    path: FloatArray


def _choose(known: Forecast, n: int, settings: ExploreSettings, rules: Rules) -> _Choice:
    """The candidate with the best anticipated end, and the path to it."""
    first = settings.promises[0]
    top = rules.ceilings.get(first.name)
    credit = rules.credits.get(first.name, Credit(0.0, 0.0)).value
    ratio = first.floor.ratio
    paired = (ratio, known) if ratio is not None and top is None else None
    need = (0.0 if paired else first.floor.of(0.0 if top is None else top.value)) - credit
    step = STEPS[known.shown]
    most = min(settings.max_novelty, 1.0 if settings.pi0_share == 0 else MOST_WHEN_PAIRED)
    nus = np.minimum(np.arange(0.0, most + step / 2, step), most)
    even = _even(settings)
    best: tuple[float, _Choice] | None = None
    limits = partial(within_limits, known, settings)
    new_parts = known.new_parts(even=even, limits=limits)
    for old, old_sums in known.old_parts(settings.pi0_share):
        for new, new_sums in new_parts:
            candidate = Candidate(old, new, old_sums, new_sums)
            room = margins(candidate, nus, n=n, need=need, paired=paired, deviations=DEVIATIONS)
            safest = int(room.argmax())
            wanted = _worth(candidate, nus, known, settings)
            end, score = int(wanted.argmax()), float(wanted[_reachable(room, safest)].max())
            if room[safest] < 0:  # nothing is likely to pass: the least unlikely is tried
                score = -1e3 + float(room[safest])
            places = np.arange(safest, end + 1) if end >= safest else np.arange(safest, end - 1, -1)
            if best is None or score > best[0]:
                best = (score, _Choice(candidate, nus[places]))
    if best is None:
        raise RuntimeError("there is always a candidate: pi0 itself")
    return best[1]


def _even(settings: ExploreSettings) -> float:
    """Share of the novel exposure that is spread evenly."""
    return 1.0 if settings.novel == "uniform" else settings.even


def _reachable(room: FloatArray, start: int) -> IntArray:
    """Places around `start` that are joined to it by places with room."""
    ok = room >= 0
    ok[start] = True
    low = high = start
    while low > 0 and ok[low - 1]:
        low -= 1
    while high < len(ok) - 1 and ok[high + 1]:
        high += 1
    return np.arange(low, high + 1)


def _worth(
    candidate: Candidate, nus: FloatArray, known: Forecast, settings: ExploreSettings
) -> FloatArray:
    """What the objective says of each novelty."""
    value = candidate.value(nus) / known.logging_value if known.logging_value > 0 else 0 * nus
    return worth(settings.objective, value, nus)


def _sharpened(
    rules: Rules,
    levels: MixtureLadder,
    folds: Folds,
    control: Control,
    logging_policy: Policy | None,
) -> Rules:
    """With the bound, and the control variate or none, that are tightest on the select fold.

    Its rows, or those of some contexts where actions are many, are repeated up to the certifying
    size.
    """
    rows = folds.select
    every = -(-len(rows.contexts) * len(rows.catalogue) // MOST_PAIRS)
    if every > 1:
        rows = rows.take(np.flatnonzero(rows.context % every == 0))
    if rows.unit is None:
        times = max(1, round(len(folds.certify) / len(rows)))
        rows = rows.take(np.tile(np.arange(len(rows)), times))
    trial = PromiseTest(rows, replace(rules, control=control), rules.delta, logging_policy)
    found = trial.evidence(levels.parts).mixed(levels.shares[0])
    coefficients = {
        promise.name: trial.best_coefficient(place, found)
        for place, promise in enumerate(rules.promises)
    }
    known = (rules, replace(rules, control=replace(control, coefficients=coefficients)))
    options = [replace(some, bound=name) for some in known for name in BOUNDS]
    tried = [trial.under(option)(found)[0] for option in options]
    apart = [verdict.mean - verdict.bound for verdict in tried]  # all terms have one expectation
    return options[int(np.argmin(apart))]


@dataclass(frozen=True, eq=False)
class Explored:
    """What one round found.

    Args:
        policy: what may be served: certified, or certain, or pi0.
        choice: which of them, and why.
        certificate: the verdict; of the first level if none passed.
        prepared: what was fixed before the verdict: pi_old and pi_new, the rules, q-hat.
    """

    policy: BasePolicy | Policy
    choice: Choice
    certificate: Certificate
    prepared: FrozenCandidate

    @property
    def certified(self) -> bool:
        """Whether the policy is one that passed, not a fallback."""
        return self.choice.what == "certified"

    @property
    def novelty(self) -> float:
        """nu of the policy."""
        return self.choice.novelty

    @property
    def why(self) -> str:
        """In a sentence, why this policy."""
        return self.choice.why

    @property
    def anticipated(self) -> Mapping[str, float]:
        """value / V(pi0) and novelty that the select fold promised."""
        return {"value": self.choice.value, "novelty": self.choice.novelty}

    @property
    def model(self) -> RewardModel:
        """q-hat, which a control variate in the certificate rests on."""
        return self.prepared.model


def explore(
    folds: Folds,
    logging_policy: Policy,
    settings: ExploreSettings | None = None,
    *,
    seed: int,
    reads: CountsReads,
    watch: Watch = silent,
) -> Explored:
    """The first round of certified exploration; `run_exploration` has all of them.

    Args:
        folds: logs of pi0.
        logging_policy: pi0.
        settings: how.
        seed: of the reward model.
        reads: counts verdicts.
        watch: shows progress.
    """
    settings = settings or ExploreSettings()
    require_settings(settings, ExploreSettings)
    before = RoundInputs(folds, logging_policy)
    prepared = prepare(before, settings, seed=seed, watch=watch)
    return certify_round(prepared, before, settings, reads=reads, watch=watch)


def certify_round(
    prepared: FrozenCandidate,
    before: RoundInputs,
    settings: ExploreSettings,
    *,
    reads: CountsReads,
    watch: Watch = silent,
) -> Explored:
    """Let the certifying fold speak, and choose what to serve.

    Args:
        prepared: what was fixed.
        before: what it was made from.
        settings: how.
        reads: counts verdicts.
        watch: shows progress.
    """
    pi0 = before.logging_policy
    pairing = None if before.base is None or before.base is pi0 else pi0
    watch("certificate", 0, 1, "")
    certificate = certify(
        prepared.levels, before.folds, prepared.rules, reads, logging_policy=pairing
    )
    watch("certificate", 1, 1, "passed" if certificate.passed else "failed")
    choice = choices(
        certificate, prepared.expected, settings, aim=float(prepared.levels.novelties[-1])
    )[0]
    policy = _policy_of(choice, certificate, prepared, pi0)
    return Explored(policy, choice, certificate, prepared)


@dataclass(frozen=True)
class Choice:
    """What may be served, as far as the verdict and the anticipated values say.

    Args:
        what: the certified mixture, the certain level beside pi0, or pi0 itself.
        novelty: its nu.
        value: value / V(pi0) that is anticipated.
        why: in a sentence.
    """

    what: Literal["certified", "certain", "pi0"]
    novelty: float
    value: float
    why: str


def choices(
    certificate: Certificate, expected: Expected, settings: ExploreSettings, *, aim: float
) -> tuple[Choice, ...]:
    """What passed, what is certain, and pi0: the best by the objective first.

    A floor says how much may be given up for new items. The objective "balanced" takes it at its
    word: what is certain goes before what shows less and is not expected to earn more than pi0.

    Args:
        certificate: the verdict.
        expected: values that are anticipated.
        settings: how.
        aim: the novelty at the end of the list.
    """
    certain = settings.certain
    options: list[Choice] = []
    if certificate.passed:
        nu = certificate.novelty
        tested = f"the boldest of {certificate.tested} levels tested"
        how = "as much as was aimed at" if np.isclose(nu, aim) else tested
        why = f"certified: novelty {nu:.3f}, {how}"
        options.append(Choice("certified", nu, expected.value(nu), why))
    if certain > 0:
        why = f"Naive Safe Exploration: novelty {certain:.3f} beside pi0 is certain"
        if not certificate.passed:
            why += ", and nothing else passed"
        elif certain > certificate.novelty:
            why += ", and more than was certified"
        options.append(Choice("certain", certain, expected.value(certain, naive=True), why))
    why = "pi0, which needs no certificate"
    options.append(Choice("pi0", 0.0, expected.value(0.0, naive=True), why))

    plain = expected.value(0.0, naive=True)

    def score(one: Choice) -> float:
        if settings.objective == BALANCED and one.novelty < certain and one.value <= plain:
            return -np.inf
        return float(worth(settings.objective, np.array(one.value), np.array(one.novelty)))

    best = sorted(options, key=score, reverse=True)
    if best[0].what == "pi0":
        why = "pi0: nothing passed that the objective puts above it"
        best[0] = replace(best[0], why=why)
    return tuple(best)


def certified_policy(certificate: Certificate, prepared: FrozenCandidate) -> BasePolicy:
    """The policy that a certificate is about."""
    same = np.isclose(prepared.levels.novelties, certificate.novelty)
    return prepared.levels.policy(int(np.flatnonzero(same)[0]))


def _policy_of(
    choice: Choice, certificate: Certificate, prepared: FrozenCandidate, pi0: Policy
) -> BasePolicy | Policy:
    """The policy that a choice means."""
    if choice.what == "certified":
        return certified_policy(certificate, prepared)
    nu = choice.novelty
    return pi0 if choice.what == "pi0" else Mixture([pi0, prepared.new], [1 - nu, nu])
