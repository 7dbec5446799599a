"""One round of certified exploration: the boldest mixture of old and new that a certificate allows.

Three steps, in their order: `look_ahead` learns q-hat on the learn fold and forecasts, on the
select fold, what a certificate would say of every candidate (1 - nu) pi_old + nu pi_new; a plan
ends with that `Prospect`. `Prospect.frozen` fixes the candidate whose likely end is best by the
objective: its mixtures in the order in which they are tested, safest first, the clip, the bound
with its constants and the control variate. `certify_round` lets the certifying fold say how far
down the list to go, and chooses what to serve. While novel actions have not been shown their reward
counts as zero, so nu is what pi_old earned above the floor; once they have been, their own rewards
count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import cast

import numpy as np

from depsue.certificates import (
    Account,
    Ceiling,
    Certificate,
    Control,
    CountsReads,
    Credit,
    Folds,
    LoggedRound,
    MixtureLadder,
    Pool,
    Rules,
    certify,
    pooled,
)
from depsue.certificates.tuning import sharpened
from depsue.data.checks import FloatArray, IntArray
from depsue.data.logs import LoggedData, joined
from depsue.diagnostics import require_unit_rows
from depsue.diagnostics.drawn_by import require_drawn_by
from depsue.errors import ConfigError, PolicyError, require, require_settings, short
from depsue.exploration.assumed import exposure_of_new, rung_at_work
from depsue.exploration.choices import Choice, Expected, ExposureAhead, choices, ranked
from depsue.exploration.forecast import FEWEST_REWARDS, Forecast, LoggedForecast
from depsue.exploration.headroom import (
    clip_for,
    headroom,
    independent_values,
    likely,
    margins,
    run_around,
)
from depsue.exploration.learning import Fit, apart_from, learn, shown_only
from depsue.exploration.parts import Candidate
from depsue.exploration.settings import ExploreSettings, worth
from depsue.policies import BasePolicy, Mixture, OrElse
from depsue.policies.cached import CachedPolicy
from depsue.policies.rule import ByRule
from depsue.progress import Watch, silent
from depsue.protocols import Policy, RewardModel

STEPS = {False: 0.001, True: 0.01}
"""Between levels; wider where far more is possible: new items were shown, or a rung is assumed."""
MOST_WHEN_PAIRED, MOST_OF_RULE = 0.9, 0.75
"""Novelty, where the next round must pair its rows with pi0; and the share of a rule, there."""


@dataclass(frozen=True, eq=False)
class RoundInputs:
    """What is there when a round begins.

    Args:
        folds: the newest logs.
        logging_policy: pi0; None where it is known by what it chose, and a round is planned only.
        base: the policy that logged the newest rows; None is pi0.
        earlier: logs of earlier rounds, all of whose rows are now reused for training.
        ceilings: upper bounds on V(pi0), by promise; without one, terms are paired.
        credits: margin to spend, by promise, as far as the learn and select folds tell.
        largest: the largest pi0 / p that `base` allows; for paired terms.
        trust: share of q-hat's promises that came true in the rehearsal of an earlier round; None
            is to rehearse now.
        account: computes the margin at the verdict, from all rows served; None keeps `credits`.
        fixed_length: whether the round that logged the newest rows ended as it was declared to;
            if the monitor or somebody ended it, only bounds that hold at any time are used.
        poolable: earlier rounds, of whose rows some are reserved for the coming verdict.
        unpooled: why none are, or those of a round are not, in words, where that was to be.
    """

    folds: Folds
    logging_policy: Policy | None
    base: Policy | None = None
    earlier: Sequence[LoggedData] = ()
    ceilings: Mapping[str, Ceiling] = field(default_factory=dict)
    credits: Mapping[str, Credit] = field(default_factory=dict)
    largest: float = 1.0
    trust: float | None = None
    account: Account | None = None
    fixed_length: bool = True
    poolable: Sequence[LoggedRound] = ()
    unpooled: tuple[str, ...] = ()

    @cached_property
    def pool(self) -> Pool | None:
        """The newest rows with those that earlier rounds reserved; None reads the newest alone."""
        base = self.logging_policy if self.base is None else self.base
        if base is None or getattr(base, "rests_on_choice", False):
            return None
        return pooled(self.folds, base, self.poolable)

    @property
    def tested(self) -> Folds:
        """The folds that constants are chosen and the verdict is reached on."""
        return self.folds if self.pool is None else self.pool.folds

    @property
    def drawn_by(self) -> Policy | None:
        """The policy whose draws they count as: the mixture of several, where they are pooled."""
        if self.pool is not None:
            return self.pool.policy
        return self.logging_policy if self.base is None else self.base

    @property
    def words_on_unpooled(self) -> tuple[str, ...]:
        """What a certificate says of rows that were to be pooled and are not."""
        words = list(self.unpooled)
        if self.poolable and self.pool is None:
            words.append("too few are reserved to be worth the rows that are left out by lot")
        return tuple(f"fact: no rows of earlier rounds are pooled: {why}" for why in words)

    def require_pi0(self) -> Policy:
        """pi0, for what cannot do without it."""
        if self.logging_policy is None:
            raise ConfigError(
                "a round is certified with a pi0, which may have to serve",
                found="None",
                cure="give logging_policy: a policy, BroughtPolicy where requests bring its "
                "probabilities, or ChosenPolicy where they bring its choice",
            )
        return self.logging_policy


@dataclass(frozen=True, eq=False)
class FrozenCandidate:
    """What is to be certified, all of it fixed.

    Args:
        levels: mixtures of pi_old and pi_new, safest first; the last part is pi_new.
        new: pi_new.
        rules: the rules of the certificate.
        expected: of pi_old, pi_new and pi0.
        trust: share of what q-hat promises of unseen actions that came true in the rehearsal.
        model: q-hat.
        exposure: of the new items, as it is forecast; None where the candidate was loaded again.
        certain: new items beside pi0, as they may be shown without a certificate; None if nothing
            may.
    """

    levels: MixtureLadder
    new: Policy
    rules: Rules
    expected: Expected
    trust: float
    model: RewardModel
    exposure: ExposureAhead | None = None
    certain: BasePolicy | None = None


@dataclass(frozen=True, eq=False)
class LevelPath:
    """The candidate with the best likely end, and the levels on the way to it.

    Args:
        candidate: which.
        places: of its levels among the novelties, in the order in which they are tested.
    """

    candidate: Candidate
    places: IntArray


@dataclass(frozen=True, eq=False)
class Prospect:
    """What the learn and select folds say of a round to come.

    Args:
        folds: the newest logs, with what earlier rounds reserved for their verdict.
        logging_policy: pi0; None where it cannot be called.
        base: the policy that logged their select and certifying rows.
        settings: how.
        model: q-hat.
        contexts: of all rows that may be read.
        forecast: the sums of every part.
        rules: of the certificate to come, but for its clip, its bound and its control variate.
        n: independent values that the certifying fold is worth.
        novelties: (L,) that are compared.
        rewarded: rows with a reward, of those that may be read, in the promise with the fewest.
    """

    folds: Folds
    logging_policy: Policy | None
    base: Policy | None
    settings: ExploreSettings
    model: RewardModel
    contexts: FloatArray
    forecast: Forecast
    rules: Rules
    n: float
    novelties: FloatArray
    rewarded: int

    @cached_property
    def candidates(self) -> list[Candidate]:
        """Every candidate, with weights clipped as the certificate will."""
        return self.forecast.candidates(self.settings)

    def candidates_for(self, n: float) -> list[Candidate]:
        """Every candidate, with weights clipped as for n certifying values."""
        if n == self.n:
            return self.candidates
        return self.forecast.clipped(clip_for(n)).candidates(self.settings)

    @cached_property
    def path(self) -> LevelPath:
        """The candidate that the round tests, level by level."""
        return self.best_path(self.candidates, self.n)

    def best_path(self, candidates: Sequence[Candidate], n: float) -> LevelPath:
        """Among these candidates, with n certifying values."""
        # of all of delta: what ceilings and margin take of it is the same for every candidate
        asked = self.forecast.requirements(self.rules, self.rules.delta)
        nus, units = self.novelties, self.units
        best: tuple[float, LevelPath] | None = None
        for candidate in candidates:
            rooms = [
                unit * margins(sums, nus, requirement, n=n)
                for unit, sums, requirement in zip(units, candidate.sums, asked, strict=True)
            ]
            room = np.min(rooms, axis=0)
            safest = int(room.argmax())
            wanted = worth(self.settings.objective, self.values(candidate), nus)
            end, score = int(wanted.argmax()), float(wanted[run_around(room, safest)].max())
            if room[safest] < 0:  # nothing is likely to pass: the least unlikely is tried
                score = -1e3 + float(room[safest])
            step = 1 if end >= safest else -1
            if best is None or score > best[0]:
                best = (score, LevelPath(candidate, np.arange(safest, end + step, step)))
        if best is None:
            raise RuntimeError("there is always a candidate: pi0 itself")
        return best[1]

    @property
    def units(self) -> list[float]:
        """What puts margins of each promise on the scale of the first: V(pi0) there / here."""
        first, *others = self.forecast.pi0_values
        return [1.0, *(first / (value or 1.0) for value in others)]

    def values(self, candidate: Candidate) -> FloatArray:
        """(L,) value / V(pi0) of a candidate at each novelty, by the first promise's reward."""
        unit, nus = self.forecast.pi0_values[0], self.novelties
        return candidate.sums[0].value(nus) / unit if unit > 0 else 0 * nus

    def headroom(self, candidate: Candidate, n: float, nu: FloatArray | None = None) -> FloatArray:
        """(promises, L) how far above its floor each bound is likely to lie, over V(pi0)."""
        asked = self.forecast.requirements(self.rules, self.rules.left(self.rules.delta))
        return headroom(candidate.sums, self.novelties if nu is None else nu, asked, n)

    def likely(self, candidate: Candidate, n: float) -> IntArray:
        """Places of the novelties that are likely to pass; none where rewards are too few."""
        if self.rewarded < FEWEST_REWARDS:
            return np.zeros(0, dtype=np.int64)
        return likely(self.headroom(candidate, n))

    def end(self, path: LevelPath, n: float) -> int | None:
        """Place of the last level that is likely to pass on the way; None if not even the first."""
        passing = set(self.likely(path.candidate, n).tolist())
        end = None
        for place in path.places.tolist():
            if place not in passing:
                break
            end = place
        return end

    def likely_choice(self, path: LevelPath, n: float) -> Choice:
        """What would be served if n certifying values come out as forecast."""
        expected, certain = self.expected_of(path.candidate), self.settings.certain
        options = [Choice("pi0", 0.0, expected.value(0.0, naive=True), "")]
        if certain > 0:
            options.append(Choice("certain", certain, expected.value(certain, naive=True), ""))
        end = self.end(path, n)
        if end is not None:
            nu = float(self.novelties[end])
            options.append(Choice("certified", nu, expected.value(nu), ""))
        return ranked(options[::-1], self.settings)[0]

    @cached_property
    def even(self) -> Candidate:
        """An even choice among the new items beside pi0, which needs no certificate."""
        pi0 = self.candidates[0].old
        return Candidate.of(pi0, self.forecast.even_part(self.settings), self.forecast.pi0_sums)

    @property
    def certain(self) -> BasePolicy | None:
        """It as a policy, at the level that is certain; None where there is none, or no pi0."""
        pi0, share = self.logging_policy, self.settings.certain
        if pi0 is None or share <= 0:
            return None
        even = _own(self.even.new.policy)
        if self.folds.learn.requests.sets is not None:  # a request may bring no new item
            even = OrElse(even, _own(pi0))
        return Mixture([pi0, even], [1 - share, share])

    @property
    def expected(self) -> Expected:
        """What is anticipated of the candidate that the round tests."""
        return self.expected_of(self.path.candidate)

    def expected_of(self, candidate: Candidate) -> Expected:
        """What is anticipated of a candidate."""
        unit = self.forecast.pi0_values[0] if self.forecast.pi0_values[0] > 0 else np.inf
        sums = candidate.sums[0]
        return Expected(
            old=sums.old.value / unit,
            new=sums.exploring.value / unit,
            logging=sums.pi0.value / unit,
            even=self.even.sums[0].exploring.value / unit,
        )

    def frozen(self) -> FrozenCandidate:
        """The candidate of the best path with its levels, clip, bound and control variate."""
        folds, pi0, base, model = self.folds, self.logging_policy, self.base, self.model
        candidate, nu = self.path.candidate, self.novelties[self.path.places]
        new, old = candidate.new.policy, candidate.old.policy
        if isinstance(self.forecast, LoggedForecast):
            chosen, share = self.forecast.logging_policy, candidate.old.pi0_share
            old = chosen if share == 1 else Mixture([chosen, old], [share, 1 - share])
        elif old is not pi0:
            old = self._cached(old)
        if candidate.old.elsewhere is not None:
            new = OrElse(_own(self._cached(new)), _own(old))
        reach = 1.0 if self.rules.assumed is None else self.rules.assumed.reach
        new = self._cached(new.beside(old) if isinstance(new, ByRule) else new)
        ladder = MixtureLadder((old, new), np.stack([1 - nu / reach, nu / reach], axis=1), reach)
        control, called = None, not isinstance(self.forecast, LoggedForecast)
        if self.rules.takes_control and called and base is not None:
            largest_q = float(self.forecast.q_hat.max())
            control = Control(base, model, min(max(largest_q, 1e-9), folds.learn.r_max))
        pairing, end = None if base is pi0 else pi0, self.end(self.path, self.n)
        likely_level = 0 if end is None else int(np.flatnonzero(self.path.places == end)[0])
        return FrozenCandidate(
            ladder,
            new,
            sharpened(self.rules, ladder, folds, control, pairing, self.units, likely_level),
            self.expected,
            trust=self.forecast.trust,
            model=model,
            exposure=ExposureAhead(
                learned=exposure_of_new(self.forecast.exposure_of, candidate.new.policy),
                even=self.forecast.exposure_of(self.even.new.policy),
                likely=None if end is None else float(self.novelties[end]),
            ),
            certain=self.certain,
        )

    def _cached(self, part: Policy) -> Policy:
        known = isinstance(part, CachedPolicy | OrElse)
        return part if known else CachedPolicy(part, self.contexts)


def look_ahead(
    inputs: RoundInputs,
    settings: ExploreSettings,
    *,
    seed: int,
    fit: Fit | None = None,
    watch: Watch = silent,
) -> Prospect:
    """Learn q-hat and forecast the round; reads the learn and select folds only.

    Args:
        inputs: what is there.
        settings: how.
        seed: of the reward model.
        fit: fits a reward model of one's own, which is taken at its word; None fits q-hat.
        watch: shows progress.
    """
    folds, pi0 = inputs.folds, inputs.logging_policy
    require(
        bool(folds.learn.catalogue.novel.any()),
        "there must be a novel action to explore",
        cure="mark the novel actions",
    )
    last = pi0 if inputs.base is None else inputs.base
    if last is not None:
        for fold in (folds.learn, folds.select):  # a certificate rests on them
            require_drawn_by(last, fold)
    if folds.units == "all rows" and last is not None:  # what was declared can be refuted
        require_unit_rows(joined([folds.learn, folds.select]), last)
    readable = joined([shown_only(folds.learn), shown_only(folds.select)])
    rewarded = [int((p.rows(readable)[0].reward > 0).sum()) for p in settings.promises]
    learned = learn(
        joined([*apart_from(inputs.earlier, folds.certify), folds.learn]),
        folds.select,
        settings,
        trust=inputs.trust,
        seed=seed,
        fit=fit,
        watch=watch,
    )
    tested, base = inputs.tested, inputs.drawn_by
    clip = clip_for(len(tested.certify))
    rung = rung_at_work(folds, pi0, last, settings, seed=seed, watch=watch)
    forecast: Forecast
    if pi0 is not None and base is not None and not getattr(pi0, "rests_on_choice", False):
        forecast = Forecast(
            tested.select,
            learned.model,
            pi0,
            base,
            clip=clip,
            seed=seed,
            last=last,
            promises=settings.promises,
            novel_model=learned.novel_model,
            calibrating=learned.calibrating,
            trust=learned.trust,
            counted=rung.counted,
        )
    else:
        first = inputs.base is None  # else rows of earlier rounds are of another mixture
        forecast = LoggedForecast(
            learned.seen if first else folds.learn,
            learned.calibrating if first else tested.select,
            learned.model,
            all_calibrating=learned.calibrating,
            clip=clip,
            seed=seed,
            promises=settings.promises,
            novel_model=learned.novel_model,
            trust=learned.trust,
            counted=rung.counted,
        )
    assumed, paired = rung.assumed, settings.pi0_share > 0
    step = STEPS[forecast.shown or (assumed is not None and assumed.rung.about_items)]
    most = min(settings.max_novelty, MOST_WHEN_PAIRED if paired else 1.0)
    if assumed is not None:
        most = min(most, assumed.reach * (MOST_OF_RULE if paired else 1.0))
    rules = Rules(
        promises=settings.promises,
        delta=settings.delta_of_deployment,
        clip=clip,
        ceilings=inputs.ceilings,
        credits=inputs.credits,
        largest=inputs.largest,
        bound="normal" if inputs.fixed_length else "betting",
        assumptions=(*inputs.words_on_unpooled, *rung.words),
        fixed_length=inputs.fixed_length,
        assumed=assumed,
        marginal=None if assumed is None else assumed.marginal(base),
    )
    return Prospect(
        folds=tested,
        logging_policy=pi0,
        base=base,
        settings=settings,
        model=learned.model,
        contexts=learned.contexts,
        forecast=forecast,
        rules=rules,
        n=independent_values(readable, tested.certify),
        novelties=np.minimum(np.arange(0.0, most + step / 2, step), most),
        rewarded=min(rewarded),
    )


def _own(policy: Policy) -> BasePolicy:
    """A policy that can stand in for others."""
    require(
        isinstance(policy, BasePolicy),
        "a policy that is mixed where requests bring candidates derives from BasePolicy",
        found=short(policy),
        error=PolicyError,
    )
    return cast(BasePolicy, policy)


@dataclass(frozen=True, eq=False)
class Explored:
    """What one round found.

    Args:
        policy: what may be served: certified, or certain, or pi0.
        choice: which of them, and why.
        certificate: the verdict; of the first level if none passed.
        candidate: what was fixed before the verdict: pi_old and pi_new, the rules, q-hat.
    """

    policy: BasePolicy | Policy
    choice: Choice
    certificate: Certificate
    candidate: FrozenCandidate

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
    def model(self) -> RewardModel:
        """q-hat, which a control variate in the certificate rests on."""
        return self.candidate.model


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
    inputs = RoundInputs(folds, logging_policy)
    candidate = look_ahead(inputs, settings, seed=seed, watch=watch).frozen()
    return certify_round(candidate, inputs, settings, reads=reads, watch=watch)


def certify_round(
    candidate: FrozenCandidate,
    inputs: RoundInputs,
    settings: ExploreSettings,
    *,
    reads: CountsReads,
    watch: Watch = silent,
) -> Explored:
    """Let the certifying fold speak, and choose what to serve.

    Args:
        candidate: what was fixed.
        inputs: what it was made from.
        settings: how.
        reads: counts verdicts.
        watch: shows progress.
    """
    pi0 = inputs.require_pi0()
    pairing = None if inputs.drawn_by is pi0 else pi0
    watch("certificate", 0, 1, "")
    certificate = certify(
        candidate.levels,
        inputs.tested,
        candidate.rules,
        reads,
        logging_policy=pairing,
        account=inputs.account,
    )
    watch("certificate", 1, 1, "passed" if certificate.passed else "failed")
    choice = choices(
        certificate, candidate.expected, settings, aim=float(candidate.levels.novelties[-1])
    )[0]
    policy = _policy_of(choice, certificate, candidate, pi0)
    return Explored(policy, choice, certificate, candidate)


def certified_policy(certificate: Certificate, candidate: FrozenCandidate) -> BasePolicy:
    """The policy that a certificate is about."""
    same = np.isclose(candidate.levels.novelties, certificate.novelty)
    return candidate.levels.policy(int(np.flatnonzero(same)[0]))


def _policy_of(
    choice: Choice, certificate: Certificate, candidate: FrozenCandidate, pi0: Policy
) -> BasePolicy | Policy:
    """The policy that a choice means."""
    if choice.what == "certified":
        return certified_policy(certificate, candidate)
    if choice.what == "pi0" or candidate.certain is None:
        return pi0
    return candidate.certain
