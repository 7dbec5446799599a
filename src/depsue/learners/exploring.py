"""Certified exploration: the boldest mixture of old and new that the certificate allows.

One round: fit q-hat on the learn fold; on the select fold find the supported policy pi_old with the
best anticipated bound and a policy pi_new over novel actions; list the mixtures
(1 - nu) pi_old + nu pi_new, safest first; let the certifying fold say how far down the list to go.
While novel actions have not been shown their reward counts as zero, so nu is what the tilt earned
above the floor; once they have been, their own rewards count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from depsue import rng
from depsue.certificates import (
    Ceiling,
    Certificate,
    Control,
    Credit,
    Folds,
    Levels,
    Reads,
    Rules,
    certify,
)
from depsue.certificates.drawn_by import require_drawn_by
from depsue.certificates.trial import Trial
from depsue.data.checks import FloatArray, IntArray
from depsue.data.joined import joined
from depsue.data.logs import LoggedData
from depsue.errors import require, require_settings
from depsue.learners.anticipate import Anticipation, Candidate, margins
from depsue.learners.explore_settings import ExploreSettings
from depsue.learners.exposure import within_limits
from depsue.policies import BasePolicy, Mixture
from depsue.policies.memory import Remembered, Remembering
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


@dataclass(frozen=True, eq=False)
class Explored:
    """What one round found.

    Args:
        policy: what may be served: certified, or certain, or pi0.
        novelty: nu of that policy.
        certificate: the verdict; of the first level if none passed.
        why: in a sentence, why this policy.
        anticipated: value / V(pi0) and novelty that the select fold promised.
        candidate: the parts.
        model: q-hat, which a control variate in the certificate rests on.
    """

    policy: BasePolicy | Policy
    novelty: float
    certificate: Certificate
    why: str
    anticipated: Mapping[str, float]
    candidate: Candidate
    model: RewardModel

    @property
    def certified(self) -> bool:
        """Whether the policy is one that passed, not a fallback."""
        return self.why.startswith("certified")


def explore(
    folds: Folds,
    logging_policy: Policy,
    settings: ExploreSettings | None = None,
    *,
    seed: int,
    reads: Reads,
    base: Policy | None = None,
    earlier: Sequence[LoggedData] = (),
    ceilings: Mapping[str, Ceiling] | None = None,
    credits: Mapping[str, Credit] | None = None,
    largest: float = 1.0,
    watch: Watch = silent,
) -> Explored:
    """One round of certified exploration.

    Args:
        folds: the newest logs.
        logging_policy: pi0.
        settings: how.
        seed: of the reward model.
        reads: counts verdicts.
        base: the policy that logged the newest rows; None is pi0.
        earlier: logs of earlier rounds, all of whose rows now serve learning.
        ceilings: upper bounds on V(pi0), by promise; without one, terms are paired.
        credits: margin to spend, by promise.
        largest: the largest pi0 / p that `base` allows; for paired terms.
        watch: shows progress.
    """
    settings = settings or ExploreSettings()
    require_settings(settings, ExploreSettings)
    novel = folds.learn.catalogue.novel
    require(
        bool(novel.any()), "there must be a novel action to explore", cure="mark the novel actions"
    )
    base = logging_policy if base is None else base
    for fold in (folds.learn, folds.select):  # a certificate rests on them
        require_drawn_by(base, fold)
    rows = joined([*earlier, folds.learn])
    if len(rows) > settings.most_rows:
        draw = rng.generator(seed, "rows for q-hat")
        rows = rows.take(np.sort(draw.choice(len(rows), settings.most_rows, replace=False)))
    fitted = fit_rewards(rows, settings.rewards, seed=seed, watch=watch)
    seen, heldout = heldout_split(rows, settings.rewards, seed=seed)
    linear = fit_linear(seen)
    calibrating = joined([heldout, folds.select])
    contexts = joined([rows, calibrating]).contexts
    model = Remembering(Blend([fitted, linear]), contexts)
    hopeful = None
    if settings.novel == "optimistic":
        hopeful = Remembering(Blend([fitted.combined("optimistic"), linear]), contexts)
    clip = max(len(folds.certify) ** 0.5 / WEIGHT_SHARE, SMALLEST_CLIP)
    known = Anticipation(
        folds.select,
        model,
        logging_policy,
        base,
        clip=clip,
        seed=seed,
        novel_model=hopeful,
        calibrating=calibrating,
    )
    pairing = None if base is logging_policy else logging_policy
    rules = Rules(
        promises=settings.promises,
        delta=settings.level,
        clip=clip,
        ceilings=ceilings or {},
        credits=credits or {},
        largest=largest,
    )
    choice = _choose(known, len(folds.certify), settings, rules)
    parts = tuple(
        part
        if isinstance(part, Remembered) or part is logging_policy
        else Remembered(part, contexts)
        for part in (choice.candidate.old, choice.candidate.new)
    )
    levels = Levels(parts, np.stack([1 - choice.path, choice.path], axis=1))
    largest_q = float(known.q_hat.max())
    control = Control(base, model, min(max(largest_q, 1e-9), folds.learn.r_max))
    rules = _sharpened(rules, levels, folds, control, pairing)
    watch("certificate", 0, 1, "")
    certificate = certify(levels, folds, rules, reads, logging_policy=pairing)
    watch("certificate", 1, 1, "passed" if certificate.passed else "failed")
    return _answer(certificate, choice, known, settings, levels, logging_policy)


@dataclass(frozen=True, eq=False)
class _Choice:
    """The candidate, and the novelties in the order in which they are tested."""

    candidate: Candidate
    path: FloatArray
    goal: float


def _choose(known: Anticipation, n: int, settings: ExploreSettings, rules: Rules) -> _Choice:
    """The candidate with the best anticipated end, and the path to it."""
    first = settings.promises[0]
    top = rules.ceilings.get(first.name)
    credit = rules.credits.get(first.name, Credit(0.0, 0.0)).value
    ratio = first.floor.ratio
    paired = (ratio, known) if ratio is not None and top is None else None
    need = (0.0 if paired else first.floor.of(0.0 if top is None else top.value)) - credit
    step = STEPS[known.shown]
    most = min(settings.max_novelty, 1.0 if settings.kept == 0 else MOST_WHEN_PAIRED)
    nus = np.minimum(np.arange(0.0, most + step / 2, step), most)
    factors = within_limits(known, settings)
    even = 1.0 if settings.novel == "uniform" else settings.even
    best: tuple[float, _Choice] | None = None
    for old, old_sums in known.old_parts(settings.kept):
        for new, new_sums in known.new_parts(even=even, factors=factors):
            candidate = Candidate(old, new, old_sums, new_sums)
            room = margins(candidate, nus, n=n, need=need, paired=paired, deviations=DEVIATIONS)
            safest = int(room.argmax())
            worth = _worth(candidate, nus, known, settings)
            reachable = _reachable(room, safest)
            if settings.objective == "most novelty":
                end, score = len(nus) - 1, float(nus[reachable].max())
            else:
                end, score = int(worth.argmax()), float(worth[reachable].max())
            if room[safest] < 0:  # nothing is likely to pass: the least unlikely is tried
                score = -1e3 + float(room[safest])
            places = np.arange(safest, end + 1) if end >= safest else np.arange(safest, end - 1, -1)
            if best is None or score > best[0]:
                best = (score, _Choice(candidate, nus[places], float(nus[end])))
    if best is None:
        raise RuntimeError("there is always a candidate: pi0 itself")
    return best[1]


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
    candidate: Candidate, nus: FloatArray, known: Anticipation, settings: ExploreSettings
) -> FloatArray:
    """What the objective says of each novelty."""
    value = candidate.value(nus) / known.logging_value if known.logging_value > 0 else 0 * nus
    weight = 0.0 if isinstance(settings.objective, str) else float(settings.objective)
    return np.asarray(value + weight * nus)


def _sharpened(
    rules: Rules,
    levels: Levels,
    folds: Folds,
    control: Control,
    logging_policy: Policy | None,
) -> Rules:
    """With the bound, and the control variate or none, that are tightest on the select fold.

    Its rows are repeated up to the certifying size.
    """
    rows = folds.select
    if rows.unit is None:
        times = max(1, round(len(folds.certify) / len(rows)))
        rows = rows.take(np.tile(np.arange(len(rows)), times))
    trial = Trial(rows, replace(rules, control=control), rules.delta, logging_policy)
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


def _answer(
    certificate: Certificate,
    choice: _Choice,
    known: Anticipation,
    settings: ExploreSettings,
    levels: Levels,
    logging_policy: Policy,
) -> Explored:
    """The best, by the objective, of what passed, what is certain, and pi0; the first if equal."""
    found, certain = choice.candidate, settings.certain
    naive = Candidate(logging_policy, found.new, known.sums(known.pi0), found.new_sums)
    options: list[tuple[Candidate, float, Policy, str]] = []
    if certificate.passed:
        nu = certificate.shares[1]
        level = int(np.flatnonzero(np.isclose(levels.shares[:, 1], nu))[0])
        aimed = certificate.tested == certificate.listed
        how = "aimed at" if aimed else f"the boldest of {certificate.tested} levels tested"
        why = f"certified: novelty {nu:.3f}, {how}"
        options.append((found, nu, levels.policy(level), why))
    if certain > 0:
        mixture = Mixture([logging_policy, found.new], [1 - certain, certain])
        reason = "more than was certified" if certificate.passed else "nothing else passed"
        why = f"Naive Safe Exploration: novelty {certain:.3f} beside pi0 is certain, and {reason}"
        options.append((naive, certain, mixture, why))
    why = "pi0: nothing passed that the objective puts above it"
    options.append((naive, 0.0, logging_policy, why))

    def score(option: tuple[Candidate, float, Policy, str]) -> float:
        candidate, nu, _, _ = option
        if settings.objective == "most novelty":
            return nu
        return float(_worth(candidate, np.array([nu]), known, settings)[0])

    used, nu, policy, why = max(options, key=score)
    value = float(used.value(np.array([nu]))[0])
    relative = value / known.logging_value if known.logging_value else 0.0
    anticipated = {"value": relative, "novelty": nu}
    return Explored(policy, nu, certificate, why, anticipated, used, known.model)
