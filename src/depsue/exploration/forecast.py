"""What a certificate is likely to say of a candidate, before its rows are read.

A candidate is (1 - nu) pi_old + nu pi_new: pi_old shows supported actions, pi_new novel ones. On
rows that `base` logged, a row of a supported action has the weight (1 - nu) pi_old / base and one
of a novel action nu pi_new / base, or no counterpart in the logs where base does not show it. The
two never meet in one row, so mean and variance of the terms at every nu follow from a few sums
for each part and promise, and `exploration.headroom` says how far they let a bound go. Plan,
campaign and dashboard all go by it.

The sums are expectations under the policy that logged the rows. `Forecast` takes them over
contexts x actions, with a calibrated reward model in place of rewards and their noise; tables are
large and this is a forecast, so they are in single precision. `LoggedForecast` takes them over the
logged rows, for a pi0 of which only the propensities are known.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace

import numpy as np

from depsue import rng
from depsue.certificates import Rules
from depsue.data.checks import FloatArray, IntArray, Mask
from depsue.data.logs import LoggedData, joined
from depsue.errors import require
from depsue.exploration.assumed import CountedAs
from depsue.exploration.headroom import Requirement, Sums
from depsue.exploration.learning import FIRST_NOVEL_STRENGTH, Calibration
from depsue.exploration.parts import Basis, Candidate, Part, Tilt
from depsue.exploration.settings import ExploreSettings
from depsue.policies import BasePolicy, ByItem, Mixture, Uniform
from depsue.policies.base import held, whole
from depsue.policies.cached import single
from depsue.policies.chosen import ChosenPolicy
from depsue.policies.tilted import ModelSoftmax, Tilted
from depsue.promises import Promise
from depsue.protocols import Policy, RewardModel, predicted

FEWEST_REWARDS = 20
"""Rows with a reward that a forecast takes, at least; with fewer nothing counts as likely."""
MOST_CONTEXTS, FEWEST_CONTEXTS, MOST_PAIRS = 2000, 1000, 2_000_000
"""Distinct contexts that candidates are compared on: fewer where actions are many."""
MOST_LOGGED_PAIRS = 10_000_000
"""Contexts x actions where means are over rows, which need more of them."""
CAPS = (50.0, 400.0, 5e3, 1e6)
STRENGTHS = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""Tilts that are compared: strengths in standard deviations of q-hat, and where they level off."""
FURTHER = (1.0, 2.0, 4.0)
"""Strengths of tilts of what the last round already tilted."""
LOGGED_SHARES, LOGGED_STRENGTHS = (0.0, 0.5, 0.8), (0.5, 1.0, 2.0)
"""Shares of pi0 and strengths of the tilt beside it, where pi0 cannot be called."""
NOVEL_STRENGTHS = (1.0, 2.0, 4.0, 8.0)
SEEN = 1e-30
"""Actions that base shows more seldom count as never shown: their inverse is out of range."""
DOUBT = 0.5
"""Standard errors that are taken off a mean of rewards which no model of them backs."""
SCALINGS = 60


@dataclass(frozen=True, eq=False)
class PromiseView:
    """Requests x candidates as one promise sees them.

    Args:
        promise: which.
        share: (c,) how often each request occurs among its rows.
        q: (c, L) mean rewards.
        variance: (c, L) of the rewards, q (kappa - q).
        kappa: E[r^2] / E[r].
        row: (m,) its rows: which they are among all.
        context, place, propensity: (m,) of these the request, among the c, the place of the item
            in it, and the propensity.
        left: (m,) r - q of each.
        counts_for: (m,) what each row counts for; they sum to 1.
        unfitted: (m,) which of them the reward model was not fitted on; None is all.
        own_model: whether the reward model is of this very reward, over all rows.
        rows_share: of all rows, those that the promise is about.
        r_max: the largest possible reward.
    """

    promise: Promise
    share: FloatArray
    q: FloatArray
    variance: FloatArray
    kappa: float
    row: IntArray
    context: IntArray
    place: IntArray
    propensity: FloatArray
    left: FloatArray
    counts_for: FloatArray
    unfitted: Mask | None
    own_model: bool
    rows_share: float
    r_max: float

    @property
    def observed_rows(self) -> int:
        """How many rows observe what q-hat is off by."""
        return len(self.left) if self.unfitted is None else int(self.unfitted.sum())

    def average(self, pi: FloatArray, values: FloatArray) -> float:
        """The mean over contexts of the products of (c, A) entries, summed over actions."""
        return float(self.share @ np.einsum("ca,ca->c", pi, values))

    def observed_off(self, weight: FloatArray) -> tuple[float, float]:
        """The mean of w (r - q) over the rows that q-hat was not fitted on; its squared error."""
        terms = weight * self.left
        terms = terms if self.unfitted is None else terms[self.unfitted]
        if len(terms) < 2:
            return 0.0, 0.0
        return float(terms.mean()), float(terms.var()) / len(terms)

    def believed_off(self, off: float, noise: float) -> float:
        """How much of it is believed: nothing within two standard errors, which are noise.

        Where q is borrowed from another reward it is not shrunk, and half an error is taken off.
        """
        if not self.own_model:
            return off - DOUBT * math.sqrt(noise)
        return off * max(1 - 4 * noise / off**2, 0.0) if off else 0.0


class Forecast:
    """The contexts, the calibrated model, and the sums of parts, for a pi0 that can be called.

    Args:
        select: the select fold.
        model: q-hat.
        logging_policy: pi0.
        base: the policy that logged the rows: the mixture of several, where they are pooled.
        clip: the largest weight that will count.
        seed: of the choice of contexts.
        last: the policy that logged the newest rows, whose old part is tilted further; None is
            `base`.
        promises: what must hold; the first is what value means.
        novel_model: what chooses among novel actions, if not q-hat.
        calibrating: rows that q-hat is calibrated on, of all rounds, so that what was learned of
            novel actions is not forgotten; it was not fitted on them. None is the select fold.
        trust: share of what q-hat promises beyond the logs' reach that is believed.
        counted: what is declared of new items, where it changes what they count for.
    """

    def __init__(
        self,
        select: LoggedData,
        model: RewardModel,
        logging_policy: Policy,
        base: Policy,
        *,
        clip: float,
        seed: int,
        last: Policy | None = None,
        promises: Sequence[Promise] = (Promise(),),
        novel_model: RewardModel | None = None,
        calibrating: LoggedData | None = None,
        trust: float = 1.0,
        counted: CountedAs | None = None,
    ) -> None:
        self.counted = counted
        most = max(MOST_PAIRS // select.requests.width(len(select.catalogue)), FEWEST_CONTEXTS)
        if select.candidates is None:  # else a request hardly comes twice, and few are few rows
            most = min(most, MOST_CONTEXTS)
        self._see(select, model, most, seed, novel_model, calibrating, trust)
        self.clip = clip
        self.logging_policy, self._last = logging_policy, base if last is None else last
        self.pi0 = single(whole(logging_policy, self._at))
        self.base = self.pi0 if base is logging_policy else single(whole(base, self._at))
        shows = self.base > SEEN
        self._inverse = np.divide(1, self.base, out=np.zeros_like(self.base), where=shows)
        self.shown = bool(((self.base > 0) & self._new).any())
        self.views = tuple(self._view(promise, select) for promise in promises)
        self.pi0_values = tuple(view.average(self.pi0, view.q) for view in self.views)
        self.pi0_sums = self.sums(self.pi0)
        centred = self.q_hat - np.einsum("ma,ma->m", self.pi0, self.q_hat)[:, None]
        self.spread = self._deviation(centred, self.pi0)

    def _see(
        self,
        rows: LoggedData,
        model: RewardModel,
        most: int,
        seed: int,
        novel_model: RewardModel | None,
        calibrating: LoggedData | None,
        trust: float,
    ) -> None:
        """Look at some of the contexts of `rows`, at most so many, with the model."""
        weights = np.bincount(rows.context, rows.row_weights, minlength=len(rows.contexts))
        looked_at = np.arange(len(weights))
        if len(looked_at) > most:
            looked_at = rng.generator(seed, "contexts").choice(len(looked_at), most, replace=False)
        looked_at = np.sort(looked_at)
        self._at = rows.requests.take(looked_at)
        self._share = weights[looked_at] / weights[looked_at].sum()
        self._place = np.full(len(weights), -1)
        self._place[looked_at] = np.arange(len(looked_at))
        self.model, self.trust, self.novel = model, trust, rows.catalogue.novel
        self.q_hat = single(predicted(model, self._at))
        self.calibration = Calibration.on(model, rows if calibrating is None else calibrating)
        self._places = self._at.places(len(self.novel))
        self._new = np.asarray(self._places.pick(self.novel, False))  # (c, L), or (1, A)
        self.q = single(self.calibration.corrected(self.q_hat, self._new))
        self.novel_model = model if novel_model is None else novel_model
        self.novel_q = self.q_hat if novel_model is None else predicted(novel_model, self._at)
        self.novel_spread = self._spread_of_novel()
        self._elsewhere = np.zeros(0, dtype=np.int64)
        if self._at.sets is not None:
            self._elsewhere = np.flatnonzero(~self._new.any(axis=1))
        self.shown = False

    def _spread_of_novel(self) -> float:
        """The deviation of q-hat among the novel candidates of a request."""
        if self._at.sets is None:
            fresh = self.novel_q[:, self.novel]
            even = np.full(fresh.shape, 1 / max(fresh.shape[1], 1))
            return self._deviation(fresh - fresh.mean(axis=1, keepdims=True), even)
        even = held(self._new.astype(np.float64))
        mean = (even * self.novel_q).sum(axis=1, keepdims=True)
        return self._deviation(self.novel_q - mean, even)

    def _view(
        self, promise: Promise, rows: LoggedData, unfitted: Mask | None = None
    ) -> PromiseView:
        """The contexts x actions of one promise, and its rows among `rows`.

        `unfitted` says which of the rows q-hat was not fitted on; None is all.
        """
        own, mask = promise.rows(rows)
        context, weights = rows.context[mask], own.row_weights
        counts = np.bincount(context, weights, minlength=len(self._place))[self._place >= 0]
        share = np.asarray(counts / (counts.sum() or 1.0), dtype=np.float64)
        mean = float(own.reward.mean())
        kappa = float((own.reward**2).mean()) / mean if mean > 0 else own.r_max
        mine = np.flatnonzero(self._place[context] >= 0)
        at = self._place[context[mine]]
        place = self._at.place(own.action[mine], at)
        q, own_model = self.q, promise.reward is None and promise.segment is None
        if not own_model:  # q-hat is of another reward: its shape is borrowed, the level is not
            level = float(self.q[at, place].mean()) if len(at) else 0.0
            q = single(np.minimum(self.q * (mean / level if level > 0 else 0.0), own.r_max))
        return PromiseView(
            promise=promise,
            share=share,
            q=q,
            variance=np.maximum(q * (kappa - q), 0.0),
            kappa=kappa,
            row=np.flatnonzero(mask)[mine],
            context=at,
            place=place,
            propensity=own.propensity[mine],
            left=own.reward[mine] - q[at, place],
            counts_for=weights[mine] / (weights[mine].sum() or 1.0),
            unfitted=None if unfitted is None else unfitted[mask][mine],
            own_model=own_model,
            rows_share=_share_of(own, rows),
            r_max=own.r_max,
        )

    def requirements(self, rules: Rules, delta: float) -> tuple[Requirement, ...]:
        """What each promise asks, tested at delta: all must pass, so none gets a part of it."""
        asked = []
        for view, pi0_value in zip(self.views, self.pi0_values, strict=True):
            promise = view.promise
            asked.append(
                Requirement(
                    name=promise.name,
                    need=rules.need(promise),
                    rho=promise.floor.ratio if rules.pairs(promise) else None,
                    delta=delta,
                    share=view.rows_share,
                    pi0_value=pi0_value,
                    r_max=view.r_max,
                    observed=max(view.observed_rows, 1),
                )
            )
        return tuple(asked)

    def clipped(self, clip: float) -> Forecast:
        """The same forecast where weights count up to another limit."""
        other = copy(self)
        other.clip = clip
        other.pi0_sums = other._sums_of_pi0()
        return other

    def candidates(self, settings: ExploreSettings) -> list[Candidate]:
        """Every pi_old with every pi_new."""
        counted = self.counted
        new_parts = self.new_parts(settings)
        if counted is not None and counted.part is not None:
            new_parts = [counted.part]
        return [
            Candidate.of(old, new, self.pi0_sums, meet=counted is not None and counted.meet)
            for old in self.old_parts(settings.pi0_share)
            for new in new_parts
        ]

    @property
    def reach(self) -> float:
        """The share of requests that bring a new item; 1 where all items are candidates."""
        return 1.0 - float(self._share[self._elsewhere].sum())

    def exposure(self, pi: FloatArray) -> FloatArray:
        """(A,) how often each action is shown under (c, L) distributions."""
        if self._at.sets is None:
            return np.asarray(self._share @ pi)
        shown = (self._share[:, None] * pi).ravel()
        items = self._places.items.ravel()
        return np.asarray(np.bincount(items, shown, minlength=len(self.novel)), dtype=np.float64)

    def offered(self) -> FloatArray:
        """(A,) in which share of requests each action is a candidate."""
        there = self._places.there
        if there is None:
            return np.ones(len(self.novel))
        return np.maximum(self.exposure(there.astype(np.float64)), 1e-12)

    def _part(self, policy: Policy, pi: FloatArray, tilt: Tilt) -> Part:
        """A pi_old by its (c, L) distributions."""
        elsewhere = None
        if len(self._elsewhere):
            alone = np.zeros_like(pi)
            alone[self._elsewhere] = pi[self._elsewhere]
            elsewhere = self.sums(alone)
        return Part(policy, self.sums(pi), tilt, elsewhere=elsewhere)

    def exposure_of(self, policy: Policy) -> FloatArray:
        """(A,) how often a decision of a policy shows each action, on the requests looked at."""
        return self.exposure(whole(policy, self._at))

    def even_part(self, settings: ExploreSettings) -> Part:
        """An even choice among the novel candidates of a request.

        Over a whole catalogue it keeps every limit of exposure that can be kept. Where an item is
        offered beside few others it may get more than its limit: then factors hold it within.
        """
        policy: BasePolicy = Uniform(self.novel)
        limited = settings.least > 0 or settings.most < 1
        if self._at.sets is not None and limited:
            policy = self._choice(settings, 0.0, self._within_limits(settings, 0.0))
        return Part(policy, self.sums(single(whole(policy, self._at))))

    def sums(self, pi: FloatArray) -> tuple[Sums, ...]:
        """For each promise the sums of a part's (c, A) distributions.

        What q-hat says of the actions that it prefers is too good on average. The select rows show
        by how much, as far as weights reach; beyond that q-hat is believed as far as `trust` goes.
        """
        counts, factor, less = pi, 1.0, 0.0
        if self.counted is not None and pi is not self.pi0:
            counts = self.counted.counts(pi, self.base)
            factor = self.counted.factor
            less = self.counted.epsilon * self.average_of(pi)
        weight = np.minimum(counts * self._inverse, self.clip) / factor
        shown = weight * self.base
        sums = []
        for view in self.views:
            noise = weight * view.variance
            seen = view.average(shown, view.q)
            off, error = view.observed_off(weight[view.context, view.place])
            right = max(1 + view.believed_off(off, error) / seen, 0.0) if seen > 0 else 1.0
            sums.append(
                Sums(
                    value=factor * seen * right
                    + self.trust * (view.average(pi, view.q) - factor * seen),
                    seen=seen * right - less,
                    observed=seen + off - less,
                    square=view.average(noise, shown),
                    cross=view.average(noise, self.pi0),
                )
            )
        return tuple(sums)

    def average_of(self, pi: FloatArray) -> float:
        """How often (c, L) distributions show a new item."""
        return float(self._share @ (pi * self._new).sum(axis=1))

    def _sums_of_pi0(self) -> tuple[Sums, ...]:
        return self.sums(self.pi0)

    def old_parts(self, keep: float) -> list[Part]:
        """pi0 and its tilts; the old part of the policy that logged the rows, and tilts of it."""
        parts = [self._part(self.logging_policy, self.pi0, Tilt())]
        if isinstance(self._last, Mixture):
            last = self._last.parts[0]
            before = single(whole(last, self._at))
            # a holdout on pi0 is mixed around the policy: its old part lies one deeper
            while isinstance(last, Mixture) and ((before > 0) & self._new).any():
                last = last.parts[0]
                before = single(whole(last, self._at))
            parts.append(self._part(last, before, Tilt("the last round's part")))
            for strength in FURTHER:
                further = Tilted(
                    last, self.model, strength=strength, cap=CAPS[-1], scale=self.spread
                )
                tilt = Tilt("the last round's part", strength, CAPS[-1], keep)
                pi = single(further.tilt(before, self.q_hat))
                if keep == 0:
                    parts.append(self._part(further, pi, tilt))
                    continue
                mixed = Mixture([self.logging_policy, further], [keep, 1 - keep])
                parts.append(self._part(mixed, keep * self.pi0 + (1 - keep) * pi, tilt))
        for cap in CAPS:
            for strength in STRENGTHS:
                part = Tilted(
                    self.logging_policy,
                    self.model,
                    strength=strength,
                    cap=cap,
                    scale=self.spread,
                    keep=keep,
                )
                pi = part.tilt(self.pi0, self.q_hat)
                parts.append(self._part(part, pi, Tilt("pi0", strength, cap, keep)))
        return parts

    def new_parts(self, settings: ExploreSettings) -> list[Part]:
        """Choices among the novel actions; one if nothing is known of them."""
        strengths = NOVEL_STRENGTHS if self.shown else (FIRST_NOVEL_STRENGTH,)
        parts = []
        for strength in strengths:
            part = self._choice(settings, strength, self._within_limits(settings, strength))
            parts.append(Part(part, self.sums(part.choice_among(self._at, self.novel_q))))
        return parts

    def _choice(
        self, settings: ExploreSettings, strength: float, factors: FloatArray | None
    ) -> ModelSoftmax:
        return ModelSoftmax(
            self.novel_model,
            self.novel,
            strength=strength,
            scale=self.novel_spread,
            even=settings.even_share,
            factors=factors,
        )

    def _within_limits(self, settings: ExploreSettings, strength: float) -> FloatArray | None:
        """(A,) factors that bring every novel action's share of the novel exposure within limits.

        Iterative scaling: an action whose share over the contexts is above (below) its limit has
        its odds lowered (raised) by the ratio, until none is. They are those of one strength.
        """
        count = int(self.novel.sum())
        if settings.least == 0 and settings.most == 1:
            return None
        require(
            settings.least * count <= 1 <= settings.most * count,
            "the limits of exposure must leave room for all novel actions",
            found=f"least {settings.least:g}, most {settings.most:g} for {count} novel actions",
            cure=f"least at most and most at least {1 / count:.4g}",
        )
        factors = np.ones(len(self.novel))
        for _ in range(SCALINGS):
            part = self._choice(settings, strength, factors)
            shares = self.exposure(part.choice_among(self._at, self.novel_q))
            shares = (shares / self.offered())[self.novel]  # among requests that offer the item
            wanted = np.clip(shares, settings.least, settings.most)
            if float(np.abs(wanted - shares).max()) < 1e-4 / count:
                break
            factors[self.novel] *= np.maximum(wanted, 1e-12) / np.maximum(shares, 1e-12)
        return factors

    def _deviation(self, centred: FloatArray, weights: FloatArray) -> float:
        variance = float(self._share @ (weights * centred**2).sum(axis=1))
        return max(math.sqrt(variance), 1e-9)


class LoggedForecast(Forecast):
    """The same for a pi0 that is known by what it chose: rows stand for their expectation.

    A pi_old is lambda pi0 + (1 - lambda) g with g a tilt of an even choice by q-hat. What a logged
    row counts for it needs no more than the row (`depsue.policies.chosen`). Without pi0's
    distributions there is no control variate, so the terms vary as w r does.

    Args:
        fitted_on: rows of the newest round that q-hat was fitted on.
        calibrating: rows of that round that it was not fitted on.
        model, clip, seed, promises, novel_model, trust: as for `Forecast`.
        all_calibrating: rows of all rounds that it was not fitted on; None is `calibrating`.
        counted: as for `Forecast`.
    """

    def __init__(
        self,
        fitted_on: LoggedData,
        calibrating: LoggedData,
        model: RewardModel,
        *,
        clip: float,
        seed: int,
        promises: Sequence[Promise] = (Promise(),),
        novel_model: RewardModel | None = None,
        trust: float = 1.0,
        all_calibrating: LoggedData | None = None,
        counted: CountedAs | None = None,
    ) -> None:
        self.counted = counted
        rows = joined([fitted_on, calibrating])
        most = max(MOST_LOGGED_PAIRS // rows.requests.width(len(rows.catalogue)), FEWEST_CONTEXTS)
        calibrated_on = calibrating if all_calibrating is None else all_calibrating
        self._see(rows, model, most, seed, novel_model, calibrated_on, trust)
        self.clip, size = clip, len(rows.catalogue)
        self.logging_policy = ChosenPolicy(size)
        self._weight_of_pi0 = self.logging_policy.row_probabilities(rows) / rows.propensity
        new = rows.catalogue.novel[rows.action]
        self._counted = np.ones(len(rows))
        if rows.by_pi0 is not None:
            self._counted = (new == (rows.by_pi0 == 0)).astype(np.float64)
        self.shown = bool(new.any())
        self._counts = np.bincount(rows.action[~new], minlength=size)
        shown = self._places.pick(self._counts > 0, False).astype(np.float64)
        even = np.broadcast_to(held(shown), self.q_hat.shape)
        centred = self.q_hat - (self.q_hat * even).sum(axis=1, keepdims=True)
        self.spread = self._deviation(centred, even)
        unfitted = np.arange(len(rows)) >= len(fitted_on)
        self.views = tuple(self._view(promise, rows, unfitted) for promise in promises)
        self.pi0_sums = self._sums_of_pi0()
        self.pi0_values = tuple(sums.seen for sums in self.pi0_sums)

    def sums(self, pi: FloatArray) -> tuple[Sums, ...]:
        """Of (c, L) distributions over novel actions, by the rows that show them, if any do."""
        out = []
        for view in self.views:
            mine = self._logged_sums(view, self._weights(view, pi))
            value = mine.value + self.trust * (view.average(pi, view.q) - mine.seen)
            out.append(replace(mine, value=value))
        return tuple(out)

    def _weights(self, view: PromiseView, pi: FloatArray) -> FloatArray:
        """(m,) the weights of a promise's rows for a policy that does not rest on pi0."""
        return self._counted[view.row] * pi[view.context, view.place] / view.propensity

    def _sums_of_pi0(self) -> tuple[Sums, ...]:
        return tuple(self._logged_sums(view, self._weight_of_pi0[view.row]) for view in self.views)

    def _logged_sums(self, view: PromiseView, weight: FloatArray) -> Sums:
        """The sums from the (m,) weights of a promise's rows."""
        weight = weight / max(float(view.counts_for @ weight), 1.0)  # E[w] <= 1: more is chance
        clipped, pi0 = np.minimum(weight, self.clip), self._weight_of_pi0[view.row]
        q = view.q[view.context, view.place].astype(np.float64)
        seen, of_pi0 = float(view.counts_for @ (clipped * q)), float(view.counts_for @ (pi0 * q))
        off, error = view.observed_off(clipped)
        believed = max(seen + off - DOUBT * math.sqrt(error), 0.0)  # w is noisy, too: no shrinking
        squares = q * view.kappa
        return Sums(
            value=believed + self.trust * (float(view.counts_for @ (weight * q)) - seen),
            seen=believed,
            observed=seen + off,
            square=float(view.counts_for @ (clipped**2 * squares)) - seen**2,
            cross=float(view.counts_for @ (clipped * pi0 * squares)) - seen * of_pi0,
        )

    def _old(self, policy: Policy, share: float, g: FloatArray | None, tilt: Tilt) -> Part:
        """share pi0 + (1 - share) g."""
        sums, elsewhere = [], []
        alone = np.zeros(len(self._share), dtype=bool)
        alone[self._elsewhere] = True
        for view in self.views:
            weight = share * self._weight_of_pi0[view.row]
            if g is not None:
                factor = 1.0 if self.counted is None else self.counted.factor
                weight = weight + (1 - share) * self._weights(view, g) / factor
            sums.append(self._logged_sums(view, weight))
            elsewhere.append(self._logged_sums(view, weight * alone[view.context]))
        known = tuple(elsewhere) if len(self._elsewhere) else None
        return Part(policy, tuple(sums), tilt, pi0_share=share, elsewhere=known)

    def old_parts(self, keep: float) -> list[Part]:
        """pi0, and shares of it beside tilts of even choices among what was shown."""
        parts = [self._old(self.logging_policy, 1.0, None, Tilt())]
        supported = self._counts > 0
        often = ByItem(self._counts / self._counts.sum())
        evens: tuple[tuple[Basis, Policy], ...] = (
            ("uniform", Uniform(supported)),
            ("frequencies", often),
        )
        for of, even in evens:
            table = single(whole(even, self._at))
            for strength in LOGGED_STRENGTHS:
                tilted = Tilted(even, self.model, strength=strength, cap=CAPS[0], scale=self.spread)
                g = tilted.tilt(table, self.q_hat)
                for share in sorted({max(share, keep) for share in LOGGED_SHARES}):
                    parts.append(self._old(tilted, share, g, Tilt(of, strength, CAPS[0], share)))
        return parts


def _share_of(own: LoggedData, rows: LoggedData) -> float:
    """Which share of all rows, or units, are a promise's own."""
    if own.unit is not None and rows.unit is not None:
        return len(np.unique(own.unit)) / len(np.unique(rows.unit))
    return len(own) / len(rows)
