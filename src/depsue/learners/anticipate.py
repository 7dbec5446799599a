"""What a certificate is likely to say of a candidate, before its rows are read.

A candidate is (1 - nu) pi_old + nu pi_new: pi_old shows supported actions, pi_new novel ones. On
rows that `base` logged, a row of a supported action has the weight (1 - nu) pi_old / base and one
of a novel action nu pi_new / base, or no counterpart in the logs where base does not show it. The
two never meet in one row, so mean and variance of the terms at every nu follow from a few sums,
which a calibrated reward model gives without the noise of rewards. The select fold calibrates it.
The variance is the one that is left under a control variate: that of w (r - q).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from depsue import rng
from depsue.data.checks import FloatArray
from depsue.data.logs import LoggedData
from depsue.policies import Mixture
from depsue.policies.base import whole
from depsue.policies.tilted import ByModel, Tilted, predicted
from depsue.protocols import Policy, RewardModel

CONTEXTS = 1000
"""Distinct contexts that candidates are compared on, at most."""
STEADY = 50
"""Rows for which the common calibration counts in that of novel, or of supported, actions."""
CAPS = (50.0, 400.0)
STRENGTHS = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""Tilts that are compared: strengths in standard deviations of q-hat, and where they level off."""
NOVEL_STRENGTHS = (1.0, 2.0, 4.0, 8.0)
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


class Anticipation:
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
    ) -> None:
        weights = np.bincount(select.context, select.row_weights, minlength=len(select.contexts))
        some = np.arange(len(weights))
        if len(some) > CONTEXTS:
            some = rng.generator(seed, "contexts").choice(len(some), CONTEXTS, replace=False)
        contexts = select.contexts[np.sort(some)]
        self._clip = clip
        self._share = weights[np.sort(some)] / weights[np.sort(some)].sum()
        self.novel = select.catalogue.novel
        self.q_hat = predicted(model, contexts)
        self.q = _calibrated(self.q_hat, model, select if calibrating is None else calibrating)
        mean = float(select.reward.mean())
        kappa = float((select.reward**2).mean()) / mean if mean > 0 else select.r_max
        self.variance = np.maximum(self.q * (kappa - self.q), 0.0)
        self._base, self._at = base, contexts
        self.pi0 = whole(logging_policy, contexts)
        self.base = self.pi0 if base is logging_policy else whole(base, contexts)
        self.logging_value = self.average(self.pi0 * self.q)
        self.model, self.logging_policy = model, logging_policy
        centred = self.q_hat - np.einsum("ma,ma->m", self.pi0, self.q_hat)[:, None]
        self.spread = self._deviation(centred, self.pi0)
        self.novel_model = model if novel_model is None else novel_model
        self.novel_q = self.q_hat if novel_model is None else predicted(novel_model, contexts)
        fresh = self.novel_q[:, self.novel]
        even = np.full(fresh.shape, 1 / max(fresh.shape[1], 1))
        self.novel_spread = self._deviation(fresh - fresh.mean(axis=1, keepdims=True), even)
        self.shown = bool((self.base[:, self.novel] > 0).any())

    def average(self, table: FloatArray) -> float:
        """The mean over contexts of (c, A) entries summed over actions."""
        return float(self._share @ table.sum(axis=1))

    def exposure(self, pi: FloatArray) -> FloatArray:
        """(A,) how often each action is shown under (c, A) distributions."""
        return np.asarray(self._share @ pi)

    @property
    def first_strength(self) -> float:
        """Of the choice among novel actions before anything is known of them."""
        return FIRST_NOVEL_STRENGTH

    def sums(self, pi: FloatArray) -> Sums:
        """The sums of a part's (c, A) distributions."""
        with np.errstate(divide="ignore", invalid="ignore"):
            weight = np.where(self.base > 0, pi / self.base, 0.0)
        weight = np.minimum(weight, self._clip)
        noise = weight * self.variance
        return Sums(
            value=self.average(pi * self.q),
            seen=self.average(weight * self.q * self.base),
            square=self.average(weight * noise * self.base),
            cross=self.average(noise * self.pi0),
        )

    def old_parts(self, keep: float) -> list[tuple[Policy, Sums]]:
        """pi0, its tilts, and the old part of the policy that logged the rows."""
        found: list[tuple[Policy, Sums]] = [(self.logging_policy, self.sums(self.pi0))]
        if isinstance(self._base, Mixture):
            found.append((self._base.parts[0], self.sums(whole(self._base.parts[0], self._at))))
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

    def new_parts(self, *, even: float, factors: FloatArray | None) -> list[tuple[Policy, Sums]]:
        """Choices among the novel actions; one if nothing is known of them."""
        strengths = NOVEL_STRENGTHS if self.shown else (FIRST_NOVEL_STRENGTH,)
        found: list[tuple[Policy, Sums]] = []
        for strength in strengths:
            part = ByModel(
                self.novel_model,
                self.novel,
                strength=strength,
                scale=self.novel_spread,
                even=even,
                factors=factors,
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
    paired: tuple[float, Anticipation] | None,
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
        zero = known.sums(known.pi0)
        mean = mean - rho * zero.seen
        square = square - 2 * rho * ((1 - nu) * a.cross + nu * b.cross) + rho**2 * zero.square
    error = np.sqrt(np.maximum(square, 0.0) / n)
    return np.asarray(mean - deviations * error - need)


def _calibrated(q_hat: FloatArray, model: RewardModel, rows: LoggedData) -> FloatArray:
    """(c, A) q-hat with level and slope corrected on held-out rows, novel actions apart."""
    given = model.predict_pairs(rows.contexts, rows.action, rows.context)
    novel = rows.catalogue.novel
    of_novel = novel[rows.action]
    x, y = float(given.mean()), float(rows.reward.mean())
    slope = _slope(given, rows.reward)
    out = y + slope * (np.asarray(q_hat, dtype=np.float64) - x)
    for mine, actions in ((of_novel, novel), (~of_novel, ~novel)):
        n = int(mine.sum())
        if n:
            off = float((rows.reward[mine] - y - slope * (given[mine] - x)).mean())
            out[:, actions] += off * n / (n + STEADY)
    return np.asarray(np.clip(out, 0.0, rows.r_max))


def _slope(given: FloatArray, reward: FloatArray) -> float:
    """Of the reward by its prediction, less its standard error, kept within [0, 1]."""
    x, y = float(given.mean()), float(reward.mean())
    variance = float(((given - x) ** 2).mean())
    if variance <= 0:
        return 0.0
    together = float(((given - x) * (reward - y)).mean())
    error = float(reward.std()) / math.sqrt(variance * len(reward))
    return min(max(together / variance - error, 0.0), 1.0)
