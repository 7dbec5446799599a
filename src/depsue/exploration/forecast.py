"""What a certificate is likely to say of a candidate, before its rows are read.

A candidate is (1 - nu) pi_old + nu pi_new: pi_old shows supported actions, pi_new novel ones. On
rows that `base` logged, a row of a supported action has the weight (1 - nu) pi_old / base and one
of a novel action nu pi_new / base, or no counterpart in the logs where base does not show it. The
two never meet in one row, so mean and variance of the terms at every nu follow from a few sums,
which a calibrated reward model gives without the noise of rewards, in single precision: tables of
contexts x actions are large, and this is a forecast.
The variance is the one that is left under a control variate: that of w (r - q).

Least and most exposure of each novel action: factors that scale its odds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from depsue import rng
from depsue.data.checks import FloatArray
from depsue.data.logs import LoggedData
from depsue.errors import require
from depsue.exploration.trust import Calibration
from depsue.policies import Mixture
from depsue.policies.base import whole
from depsue.policies.cached import single
from depsue.policies.tilted import ModelSoftmax, Tilted, predicted
from depsue.protocols import Policy, RewardModel

if TYPE_CHECKING:
    from depsue.exploration.settings import ExploreSettings

MOST_CONTEXTS, FEWEST_CONTEXTS, MOST_PAIRS = 2000, 1000, 2_000_000
"""Distinct contexts that candidates are compared on: fewer where actions are many."""
CAPS = (50.0, 400.0, 5e3, 1e6)
STRENGTHS = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""Tilts that are compared: strengths in standard deviations of q-hat, and where they level off."""
FURTHER = (1.0, 2.0, 4.0)
"""Strengths of tilts of what the last round already tilted."""
NOVEL_STRENGTHS = (1.0, 2.0, 4.0, 8.0)
SEEN = 1e-30
"""Actions that base shows more seldom count as never shown: their inverse is out of range."""
FIRST_NOVEL_STRENGTH = 2.0
"""Of the choice among novel actions; the first where nothing is known of them yet."""


@dataclass(frozen=True)
class Sums:
    """Sums over actions of a part pi, averaged over contexts.

    Args:
        value: pi q.
        seen: base min(w, clip) q, with w = pi / base where base shows the action and 0 elsewhere:
            the mean of the terms.
        square: base min(w, clip)^2 v, with v = Var[r] = q (kappa - q): their variance.
        cross: pi0 min(w, clip) v.
    """

    value: float
    seen: float
    square: float
    cross: float


@dataclass(frozen=True, eq=False)
class Candidate:
    """Two parts, and what is anticipated of their mixtures.

    Args:
        old: the part over supported actions.
        new: the part over novel actions.
        old_sums, new_sums: their sums.
    """

    old: Policy
    new: Policy
    old_sums: Sums
    new_sums: Sums

    def value(self, nu: FloatArray) -> FloatArray:
        """V at each novelty nu, as the reward model sees it."""
        return (1 - nu) * self.old_sums.value + nu * self.new_sums.value


class Forecast:
    """The contexts, the calibrated model, and the sums of parts.

    Args:
        select: the select fold.
        model: q-hat.
        logging_policy: pi0.
        base: the policy that logged the rows.
        clip: the largest weight that will count.
        seed: of the choice of contexts.
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
        novel_model: RewardModel | None = None,
        calibrating: LoggedData | None = None,
        trust: float = 1.0,
    ) -> None:
        weights = np.bincount(select.context, select.row_weights, minlength=len(select.contexts))
        some = np.arange(len(weights))
        most = MOST_PAIRS // len(select.catalogue)
        most = min(max(most, FEWEST_CONTEXTS), MOST_CONTEXTS)
        if len(some) > most:
            some = rng.generator(seed, "contexts").choice(len(some), most, replace=False)
        contexts = select.contexts[np.sort(some)]
        self._clip, self.trust = clip, trust
        self._share = weights[np.sort(some)] / weights[np.sort(some)].sum()
        self.novel = select.catalogue.novel
        self.q_hat = single(predicted(model, contexts))
        rows = select if calibrating is None else calibrating
        self.q = single(Calibration.on(model, rows).corrected(self.q_hat, self.novel))
        mean = float(select.reward.mean())
        kappa = float((select.reward**2).mean()) / mean if mean > 0 else select.r_max
        self.variance = np.maximum(self.q * (kappa - self.q), 0.0)
        place = np.full(len(weights), -1)
        place[np.sort(some)] = np.arange(len(some))
        mine = np.flatnonzero(place[select.context] >= 0)
        self._rows = (place[select.context[mine]], select.action[mine])
        self._left = select.reward[mine] - self.q[self._rows]
        self._base, self._at = base, contexts
        self.pi0 = single(whole(logging_policy, contexts))
        self.base = self.pi0 if base is logging_policy else single(whole(base, contexts))
        shows = self.base > SEEN
        self._inverse = np.divide(1, self.base, out=np.zeros_like(self.base), where=shows)
        self.pi0_sums = self.sums(self.pi0)
        self.logging_value = self.average(self.pi0, self.q)
        self.model, self.logging_policy = model, logging_policy
        centred = self.q_hat - np.einsum("ma,ma->m", self.pi0, self.q_hat)[:, None]
        self.spread = self._deviation(centred, self.pi0)
        self.novel_model = model if novel_model is None else novel_model
        self.novel_q = self.q_hat if novel_model is None else predicted(novel_model, contexts)
        fresh = self.novel_q[:, self.novel]
        even = np.full(fresh.shape, 1 / max(fresh.shape[1], 1))
        self.novel_spread = self._deviation(fresh - fresh.mean(axis=1, keepdims=True), even)
        self.shown = bool((self.base[:, self.novel] > 0).any())

    def average(self, one: FloatArray, other: FloatArray) -> float:
        """The mean over contexts of the products of (c, A) entries, summed over actions."""
        return float(self._share @ np.einsum("ca,ca->c", one, other))

    def exposure(self, pi: FloatArray) -> FloatArray:
        """(A,) how often each action is shown under (c, A) distributions."""
        return np.asarray(self._share @ pi)

    def sums(self, pi: FloatArray) -> Sums:
        """The sums of a part's (c, A) distributions.

        What q-hat says of the actions that it prefers is too good on average. The select rows show
        by how much, as far as weights reach; beyond that q-hat is believed as far as `trust` goes.
        """
        weight = np.minimum(pi * self._inverse, self._clip)
        noise = weight * self.variance
        shown = weight * self.base
        seen = self.average(shown, self.q)
        kept = max(1 + self._off(weight[self._rows]) / seen, 0.0) if seen > 0 else 1.0
        return Sums(
            value=seen * kept + self.trust * (self.average(pi, self.q) - seen),
            seen=seen * kept,
            square=self.average(noise, shown),
            cross=self.average(noise, self.pi0),
        )

    def _off(self, weight: FloatArray) -> float:
        """The mean of w (r - q) on select rows; 0 within two standard errors, which are noise."""
        if len(weight) < 2:
            return 0.0
        terms = weight * self._left
        off, noise = float(terms.mean()), float(terms.var()) / len(terms)
        return off * max(1 - 4 * noise / off**2, 0.0) if off else 0.0

    def old_parts(self, keep: float) -> list[tuple[Policy, Sums]]:
        """pi0 and its tilts; the old part of the policy that logged the rows, and tilts of it."""
        found: list[tuple[Policy, Sums]] = [(self.logging_policy, self.pi0_sums)]
        if isinstance(self._base, Mixture):
            last = self._base.parts[0]
            before = single(whole(last, self._at))
            found.append((last, self.sums(before)))
            for strength in FURTHER:
                given = {"strength": strength, "cap": CAPS[-1], "scale": self.spread}
                further = Tilted(last, self.model, **given)
                pi = single(further.tilt(before, self.q_hat))
                if keep == 0:
                    found.append((further, self.sums(pi)))
                    continue
                mixed = Mixture([self.logging_policy, further], [keep, 1 - keep])
                found.append((mixed, self.sums(keep * self.pi0 + (1 - keep) * pi)))
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
                found.append((part, self.sums(part.tilt(self.pi0, self.q_hat))))
        return found

    def new_parts(
        self, *, even: float, limits: Callable[[float], FloatArray | None]
    ) -> list[tuple[Policy, Sums]]:
        """Choices among the novel actions; one if nothing is known of them.

        `limits` gives the factors that keep exposures within limits, for each strength.
        """
        strengths = NOVEL_STRENGTHS if self.shown else (FIRST_NOVEL_STRENGTH,)
        found: list[tuple[Policy, Sums]] = []
        for strength in strengths:
            part = ModelSoftmax(
                self.novel_model,
                self.novel,
                strength=strength,
                scale=self.novel_spread,
                even=even,
                factors=limits(strength),
            )
            found.append((part, self.sums(part.choice(self.novel_q))))
        return found

    def _deviation(self, centred: FloatArray, weights: FloatArray) -> float:
        variance = float(self._share @ (weights * centred**2).sum(axis=1))
        return max(math.sqrt(variance), 1e-9)


def margins(
    candidate: Candidate,
    nu: FloatArray,
    *,
    n: int,
    need: float,
    paired: tuple[float, Forecast] | None,
    deviations: float,
) -> FloatArray:
    """How far above the need the bound is likely to lie, at each novelty nu.

    Args:
        candidate: the parts.
        nu: (L,) novelties.
        n: certifying rows.
        need: what the bound must reach.
        paired: (rho, the anticipation) for paired terms; None for plain ones.
        deviations: how many standard errors the bound costs.
    """
    a, b = candidate.old_sums, candidate.new_sums
    mean = (1 - nu) * a.seen + nu * b.seen
    square = (1 - nu) ** 2 * a.square + nu**2 * b.square
    if paired is not None:
        rho, known = paired
        zero = known.pi0_sums
        mean = mean - rho * zero.seen
        square = square - 2 * rho * ((1 - nu) * a.cross + nu * b.cross) + rho**2 * zero.square
    error = np.sqrt(np.maximum(square, 0.0) / n)
    return np.asarray(mean - deviations * error - need)


ROUNDS = 60


def within_limits(known: Forecast, settings: ExploreSettings, strength: float) -> FloatArray | None:
    """(A,) factors that bring every novel action's share of the novel exposure within limits.

    Iterative scaling: an action whose share over the contexts is above (below) its limit has its
    odds lowered (raised) by the ratio, until none is. They are those of one strength of q-hat.
    """
    novel = known.novel
    count = int(novel.sum())
    if settings.least == 0 and settings.most == 1:
        return None
    require(
        settings.least * count <= 1 <= settings.most * count,
        "the limits of exposure must leave room for all novel actions",
        found=f"least {settings.least:g}, most {settings.most:g} for {count} novel actions",
        cure=f"least at most and most at least {1 / count:.4g}",
    )
    factors = np.ones(len(novel))
    for _ in range(ROUNDS):
        part = ModelSoftmax(
            known.novel_model,
            novel,
            strength=strength,
            scale=known.novel_spread,
            even=settings.even,
            factors=factors,
        )
        shares = known.exposure(part.choice(known.novel_q))[novel]
        wanted = np.clip(shares, settings.least, settings.most)
        if float(np.abs(wanted - shares).max()) < 1e-4 / count:
            break
        factors[novel] *= np.maximum(wanted, 1e-12) / np.maximum(shares, 1e-12)
    return factors
