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
from dataclasses import dataclass
from typing import Literal

import numpy as np

from depsue import rng
from depsue.certificates import Rules
from depsue.data.checks import FloatArray, IntArray, Mask
from depsue.data.logs import LoggedData, joined
from depsue.errors import require
from depsue.exploration.headroom import MixtureSums, Requirement, Sums
from depsue.exploration.learning import FIRST_NOVEL_STRENGTH, Calibration
from depsue.exploration.settings import ExploreSettings
from depsue.policies import Mixture, SoftmaxOfScores, Uniform
from depsue.policies.base import whole
from depsue.policies.cached import single
from depsue.policies.tilted import ModelSoftmax, Tilted, predicted
from depsue.promises import Promise
from depsue.protocols import Policy, RewardModel

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


Basis = Literal["pi0", "the last round's part", "uniform", "frequencies"]


@dataclass(frozen=True)
class Tilt:
    """How a pi_old is made: a tilt of a policy by q-hat, beside a share of pi0.

    Args:
        of: pi0, the old part of the last round, or an even choice among what was shown: uniform,
            or as often as it was shown.
        strength: in standard deviations of q-hat; 0 for no tilt.
        cap: where it levels off.
        pi0_share: the share of pi0 beside it.
    """

    of: Basis = "pi0"
    strength: float = 0.0
    cap: float = 1.0
    pi0_share: float = 0.0

    def __str__(self) -> str:
        share = self.pi0_share
        mixed = f"{share:g} pi0 + {1 - share:g} " if share and self.of != "pi0" else ""
        if self.strength == 0:
            return f"{mixed}{self.of}"
        return f"{mixed}{self.of} tilted by {self.strength:g} q-hat, cap {self.cap:g}"


@dataclass(frozen=True, eq=False)
class Part:
    """A pi_old or a pi_new.

    Args:
        policy: None for a pi0 that cannot be called.
        sums: for each promise.
        tilt: how a pi_old is made.
        pi0_share: the share of a pi0 that cannot be called beside the policy.
    """

    policy: Policy | None
    sums: tuple[Sums, ...]
    tilt: Tilt = Tilt()
    pi0_share: float = 0.0


@dataclass(frozen=True, eq=False)
class Candidate:
    """Two parts, and for each promise the sums of their mixtures."""

    old: Part
    new: Part
    sums: tuple[MixtureSums, ...]


@dataclass(frozen=True, eq=False)
class PromiseView:
    """Contexts x actions as one promise sees them.

    Args:
        promise: which.
        share: (c,) how often each context occurs among its rows.
        q: (c, A) mean rewards.
        variance: (c, A) of the rewards, q (kappa - q).
        kappa: E[r^2] / E[r].
        context, action, propensity: (m,) its rows; the context is a place among the c.
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
    context: IntArray
    action: IntArray
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
    ) -> None:
        most = MOST_PAIRS // len(select.catalogue)
        most = min(max(most, FEWEST_CONTEXTS), MOST_CONTEXTS)
        self._see(select, model, most, seed, novel_model, calibrating, trust)
        self.clip = clip
        self.logging_policy, self._last = logging_policy, base if last is None else last
        self.pi0 = single(whole(logging_policy, self._at))
        self.base = self.pi0 if base is logging_policy else single(whole(base, self._at))
        shows = self.base > SEEN
        self._inverse = np.divide(1, self.base, out=np.zeros_like(self.base), where=shows)
        self.shown = bool((self.base[:, self.novel] > 0).any())
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
        self._at = rows.contexts[looked_at]
        self._share = weights[looked_at] / weights[looked_at].sum()
        self._place = np.full(len(weights), -1)
        self._place[looked_at] = np.arange(len(looked_at))
        self.model, self.trust, self.novel = model, trust, rows.catalogue.novel
        self.q_hat = single(predicted(model, self._at))
        self.calibration = Calibration.on(model, rows if calibrating is None else calibrating)
        self.q = single(self.calibration.corrected(self.q_hat, self.novel))
        self.novel_model = model if novel_model is None else novel_model
        self.novel_q = self.q_hat if novel_model is None else predicted(novel_model, self._at)
        fresh = self.novel_q[:, self.novel]
        even = np.full(fresh.shape, 1 / max(fresh.shape[1], 1))
        self.novel_spread = self._deviation(fresh - fresh.mean(axis=1, keepdims=True), even)
        self.shown = False

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
        at, action = self._place[context[mine]], own.action[mine]
        q, own_model = self.q, promise.reward is None and promise.segment is None
        if not own_model:  # q-hat is of another reward: its shape is borrowed, the level is not
            level = float(self.q[at, action].mean()) if len(at) else 0.0
            q = single(np.minimum(self.q * (mean / level if level > 0 else 0.0), own.r_max))
        return PromiseView(
            promise=promise,
            share=share,
            q=q,
            variance=np.maximum(q * (kappa - q), 0.0),
            kappa=kappa,
            context=at,
            action=action,
            propensity=own.propensity[mine],
            left=own.reward[mine] - q[at, action],
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
        new_parts = self.new_parts(settings)
        return [
            Candidate(old, new, tuple(map(MixtureSums, old.sums, new.sums, self.pi0_sums)))
            for old in self.old_parts(settings.pi0_share)
            for new in new_parts
        ]

    def exposure(self, pi: FloatArray) -> FloatArray:
        """(A,) how often each action is shown under (c, A) distributions."""
        return np.asarray(self._share @ pi)

    def sums(self, pi: FloatArray) -> tuple[Sums, ...]:
        """For each promise the sums of a part's (c, A) distributions.

        What q-hat says of the actions that it prefers is too good on average. The select rows show
        by how much, as far as weights reach; beyond that q-hat is believed as far as `trust` goes.
        """
        weight = np.minimum(pi * self._inverse, self.clip)
        shown = weight * self.base
        sums = []
        for view in self.views:
            noise = weight * view.variance
            seen = view.average(shown, view.q)
            off, error = view.observed_off(weight[view.context, view.action])
            right = max(1 + view.believed_off(off, error) / seen, 0.0) if seen > 0 else 1.0
            sums.append(
                Sums(
                    value=seen * right + self.trust * (view.average(pi, view.q) - seen),
                    seen=seen * right,
                    observed=seen + off,
                    square=view.average(noise, shown),
                    cross=view.average(noise, self.pi0),
                )
            )
        return tuple(sums)

    def _sums_of_pi0(self) -> tuple[Sums, ...]:
        return self.sums(self.pi0)

    def old_parts(self, keep: float) -> list[Part]:
        """pi0 and its tilts; the old part of the policy that logged the rows, and tilts of it."""
        parts = [Part(self.logging_policy, self.pi0_sums)]
        if isinstance(self._last, Mixture):
            last = self._last.parts[0]
            before = single(whole(last, self._at))
            parts.append(Part(last, self.sums(before), Tilt("the last round's part")))
            for strength in FURTHER:
                further = Tilted(
                    last, self.model, strength=strength, cap=CAPS[-1], scale=self.spread
                )
                tilt = Tilt("the last round's part", strength, CAPS[-1], keep)
                pi = single(further.tilt(before, self.q_hat))
                if keep == 0:
                    parts.append(Part(further, self.sums(pi), tilt))
                    continue
                mixed = Mixture([self.logging_policy, further], [keep, 1 - keep])
                parts.append(Part(mixed, self.sums(keep * self.pi0 + (1 - keep) * pi), tilt))
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
                sums = self.sums(part.tilt(self.pi0, self.q_hat))
                parts.append(Part(part, sums, Tilt("pi0", strength, cap, keep)))
        return parts

    def new_parts(self, settings: ExploreSettings) -> list[Part]:
        """Choices among the novel actions; one if nothing is known of them."""
        strengths = NOVEL_STRENGTHS if self.shown else (FIRST_NOVEL_STRENGTH,)
        parts = []
        for strength in strengths:
            part = self._choice(settings, strength, self._within_limits(settings, strength))
            parts.append(Part(part, self.sums(part.choice(self.novel_q))))
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
            shares = self.exposure(part.choice(self.novel_q))[self.novel]
            wanted = np.clip(shares, settings.least, settings.most)
            if float(np.abs(wanted - shares).max()) < 1e-4 / count:
                break
            factors[self.novel] *= np.maximum(wanted, 1e-12) / np.maximum(shares, 1e-12)
        return factors

    def _deviation(self, centred: FloatArray, weights: FloatArray) -> float:
        variance = float(self._share @ (weights * centred**2).sum(axis=1))
        return max(math.sqrt(variance), 1e-9)


class LoggedForecast(Forecast):
    """The same where pi0 cannot be called: the mean over its rows stands for its expectation.

    A pi_old is lambda pi0 + (1 - lambda) g with g a tilt of an even choice by q-hat: the weight of
    a logged row, lambda + (1 - lambda) g / p, needs no more than p. Without pi0 there is no control
    variate, so the terms vary as w r does.

    Args:
        fitted_on: rows of pi0 that q-hat was fitted on.
        calibrating: rows of pi0 that it was not fitted on.
        model, clip, seed, promises, novel_model, trust: as for `Forecast`.
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
    ) -> None:
        rows = joined([fitted_on, calibrating])
        most = max(MOST_LOGGED_PAIRS // len(rows.catalogue), FEWEST_CONTEXTS)
        self._see(rows, model, most, seed, novel_model, calibrating, trust)
        self.clip = clip
        self._counts = np.bincount(rows.action, minlength=len(rows.catalogue))
        even = (self._counts > 0) / max(int((self._counts > 0).sum()), 1)
        centred = self.q_hat - (self.q_hat @ even)[:, None]
        self.spread = self._deviation(centred, np.broadcast_to(even, centred.shape))
        unfitted = np.arange(len(rows)) >= len(fitted_on)
        self.views = tuple(self._view(promise, rows, unfitted) for promise in promises)
        self.pi0_sums = self._sums_of_pi0()
        self.pi0_values = tuple(sums.seen for sums in self.pi0_sums)

    def sums(self, pi: FloatArray) -> tuple[Sums, ...]:
        """Of (c, A) distributions over novel actions, which no row shows."""
        return tuple(
            Sums(self.trust * view.average(pi, view.q), 0.0, 0.0, 0.0, 0.0) for view in self.views
        )

    def _sums_of_pi0(self) -> tuple[Sums, ...]:
        return tuple(self._logged_sums(view, np.ones(len(view.context))) for view in self.views)

    def _logged_sums(self, view: PromiseView, weight: FloatArray) -> Sums:
        """The sums from the (m,) weights of a promise's rows."""
        weight = weight / max(float(view.counts_for @ weight), 1.0)  # E[w] <= 1: more is chance
        clipped = np.minimum(weight, self.clip)
        q = view.q[view.context, view.action].astype(np.float64)
        seen, of_pi0 = float(view.counts_for @ (clipped * q)), float(view.counts_for @ q)
        off, error = view.observed_off(clipped)
        believed = max(seen + off - DOUBT * math.sqrt(error), 0.0)  # w is noisy, too: no shrinking
        squares = q * view.kappa
        return Sums(
            value=believed + self.trust * (float(view.counts_for @ (weight * q)) - seen),
            seen=believed,
            observed=seen + off,
            square=float(view.counts_for @ (clipped**2 * squares)) - seen**2,
            cross=float(view.counts_for @ (clipped * squares)) - seen * of_pi0,
        )

    def old_parts(self, keep: float) -> list[Part]:
        """pi0, and shares of it beside tilts of even choices among what was shown."""
        parts = [Part(None, self.pi0_sums)]
        logs = np.log(np.maximum(self._counts, 0.5))
        supported = self._counts > 0
        often = SoftmaxOfScores(
            lambda contexts: np.broadcast_to(logs, (len(contexts), len(logs))), 1.0, supported
        )
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
                    sums = tuple(
                        self._logged_sums(
                            view,
                            share + (1 - share) * g[view.context, view.action] / view.propensity,
                        )
                        for view in self.views
                    )
                    tilt = Tilt(of, strength, CAPS[0], share)
                    parts.append(Part(tilted, sums, tilt, pi0_share=share))
        return parts


def _share_of(own: LoggedData, rows: LoggedData) -> float:
    """Which share of all rows, or units, are a promise's own."""
    if own.unit is not None and rows.unit is not None:
        return len(np.unique(own.unit)) / len(np.unique(rows.unit))
    return len(own) / len(rows)
