"""The policies that a plan compares, and what is known of them without the certifying rows.

Where pi0 can be called they are its tilts, and the reward model gives their moments over whole
distributions. Where only the propensities of logged actions are known they are mixtures
lambda pi0 + (1 - lambda) pi_q, with pi_q a softmax of q-hat over what was shown: the weight of a
logged row, lambda + (1 - lambda) pi_q / p, needs no more than p. Rewards enter through a calibrated
q-hat, so that few rewards do not make a candidate look good by luck. Where weights depend on p, so
must the calibration: pi0 may know what q-hat does not, and then what it rarely shows earns less
than q-hat says. What is left of that is corrected by the rows' own rewards, after q-hat's slope on
these very rows has been taken out: along q-hat only the select fold, which did not fit it, counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from depsue import rng
from depsue.data.checks import FloatArray, IntArray, Mask
from depsue.data.joined import joined
from depsue.data.logs import LoggedData
from depsue.estimators.weights import importance_weights
from depsue.learners.anticipate import FIRST_NOVEL_STRENGTH, Anticipation
from depsue.learners.room import Moments, clip_for, moments
from depsue.policies import SoftmaxOfScores, Uniform
from depsue.policies.tilted import ByModel, Tilted
from depsue.protocols import Policy, RewardModel

SHARES = (0.0, 0.5, 0.8)
"""lambda, the share of pi0, where pi0 cannot be called."""
STRENGTHS = (0.5, 1.0, 2.0)
"""Of the softmax, in standard deviations of q-hat."""
CAP = 50.0
FEWEST_REWARDS = 10
"""Select rows with a reward that a slope takes, at least."""
MOST_ENTRIES = 50_000_000
"""Probabilities that are computed for a candidate, at most; then rows are drawn from the logs."""
SOME_CONTEXTS = 500
EVEN = 0.1
"""Share of the novel exposure that is spread evenly."""


@dataclass(frozen=True, eq=False)
class Option:
    """One pi_old, with what is anticipated of it.

    Args:
        name: in words.
        value: V(pi_old), as the calibrated reward model sees it.
        moments: for a clip, the moments of its terms.
        policy: the policy that pi0 is mixed with; None for pi0 itself.
        kept: the share of pi0.
    """

    name: str
    value: float
    moments: Callable[[float], Moments] = field(repr=False)
    policy: Policy | None = None
    kept: float = 0.0


@dataclass(frozen=True)
class Calibration:
    """reward = level + slope (q-hat - centre): what the select fold says of q-hat.

    Args:
        slope: of rewards on predictions.
        error: its standard error.
        level: the mean reward of learn and select rows.
        centre: the mean prediction there.
        r_max: the largest possible reward.
        used: the slope that is used: less one standard error, within [0, 1]; 0 unless `told`.
        told: whether FEWEST_REWARDS select rows have a reward, without which no slope can be told.
    """

    slope: float
    error: float
    level: float
    centre: float
    r_max: float
    used: float
    told: bool = True

    @classmethod
    def of(cls, model: RewardModel, learn: LoggedData, select: LoggedData) -> Calibration:
        """From the select fold's slope, and the mean of both folds."""
        both = joined([learn, select])
        every = _on_rows(model, both)
        x, y = _on_rows(model, select), select.reward
        variance = float(x.var())
        slope = error = 0.0
        if variance > 1e-12:
            slope = _slope(x, y)
            error = float(y.std()) / math.sqrt(variance * len(y))
        told = int((y > 0).sum()) >= FEWEST_REWARDS
        used = min(max(slope - error, 0.0), 1.0) if told else 0.0
        level = max(float(both.reward.mean()), 0.5 * both.r_max / len(both))  # never quite 0
        return cls(slope, error, level, float(every.mean()), both.r_max, used, told)

    def __call__(self, q_hat: FloatArray) -> FloatArray:
        """Predictions, corrected."""
        wide = np.asarray(q_hat, dtype=np.float64)
        return np.asarray(np.clip(self.level + self.used * (wide - self.centre), 0.0, self.r_max))


@dataclass(frozen=True, eq=False)
class Options:
    """All that is compared.

    Args:
        logging_value: V(pi0), by the same reckoning.
        novel_value: the value of pi_new, as q-hat sees it; 0 where nothing is known of it.
        options: pi0 first.
    """

    logging_value: float
    novel_value: float
    options: tuple[Option, ...]


def tilts(
    known: Anticipation, calibration: Calibration, kappas: tuple[float, float], *, described: bool
) -> Options:
    """pi0 and its tilts, where pi0 can be called.

    Args:
        known: the contexts, pi0 and q-hat on them.
        calibration: of q-hat.
        kappas: E[r^2] / E[r] and E[r^4] / E[r].
        described: whether features say anything of the novel actions.
    """
    q = calibration(known.q_hat)
    value_now = known.average(known.pi0 * q)
    share = known.pi0 * _context_shares(known)[:, None]
    shown = share > 0
    options = []
    for part, _ in known.old_parts(0.0):
        table = part.tilt(known.pi0, known.q_hat) if isinstance(part, Tilted) else known.pi0
        w = (table[shown] / known.pi0[shown]).astype(np.float32)
        name = "pi0"
        if isinstance(part, Tilted):
            name = f"pi0 tilted by {part.strength:g} q-hat, cap {part.cap:g}"
        value = known.average(table * q)
        own = part if isinstance(part, Tilted) else None
        options.append(Option(name, value, _over(share[shown], w, q[shown], kappas), own))
    new, _ = known.new_parts(even=EVEN if described else 1.0, factors=None)[0]
    fresh = known.average(_choice(new, known) * q) if described else 0.0
    return Options(value_now, fresh, tuple(options))


def mixtures(
    rows: LoggedData,
    model: RewardModel,
    calibration: Calibration,
    *,
    n: float,
    described: bool,
    seed: int,
) -> Options:
    """pi0 and its mixtures with softmaxes of q-hat, where only propensities are known.

    Args:
        rows: learn and select rows.
        model: q-hat.
        calibration: of it.
        n: certifying rows; they set the largest weight that counts.
        described: as for `tilts`.
        seed: of the rows that are drawn, where there are too many.
    """
    rows, clip = _some(rows, seed), clip_for(n)
    kappas, q_hat = reward_ratios(rows), _on_rows(model, rows)
    fitted = replace(calibration, used=_slope(q_hat, rows.reward))(q_hat)
    rarity = np.log(rows.propensity)
    steep = _slope(rarity, rows.reward - fitted) if calibration.told else 0.0
    bend = steep * (rarity - rarity.mean())
    q = np.clip(calibration(q_hat) + bend, 0.0, rows.r_max)
    missed = rows.reward - np.clip(fitted + bend, 0.0, rows.r_max)
    share, value = rows.row_weights, float(rows.row_weights @ q)
    options = [Option("pi0", value, _over(share, np.ones(len(q)), q, kappas))]
    counts = np.bincount(rows.action, minlength=len(rows.catalogue))
    spread = _spread(model, rows, counts > 0)
    bases: tuple[tuple[str, Policy], ...] = (
        ("uniform", Uniform(counts > 0)),
        ("frequencies", _frequencies(counts)),
    )
    for name, base in bases:
        for strength in STRENGTHS:
            pi_q = Tilted(base, model, strength=strength, cap=CAP, scale=spread)
            v = np.minimum(importance_weights(pi_q, rows), clip)
            v = v / max(float(share @ v), 1.0)  # E[w] <= 1: what exceeds it is chance
            off, error = _mean(v * missed, share)
            for kept in SHARES:
                w = kept + (1 - kept) * v
                gain, noise = _mean((w - 1) * q, share)
                down, doubt = (1 - kept) * off, math.hypot((1 - kept) * error, noise)
                if not calibration.told:
                    down, doubt = min(down - doubt, 0.0), 0.0
                parts = f"{kept:g} pi0 + {1 - kept:g} " if kept else ""
                words = f"{parts}{name} tilted by {strength:g} q-hat"
                found = _over(share, w, q, kappas, (down, doubt, n))
                options.append(Option(words, value + gain + down - doubt, found, pi_q, kept))
    fresh = _novel_value(rows, model, calibration) if described else 0.0
    return Options(value, fresh, tuple(options))


def reward_ratios(rows: LoggedData) -> tuple[float, float]:
    """E[r^2] / E[r] and E[r^4] / E[r]; 1 and 1 for rewards that are 0 or 1."""
    mean = float(rows.reward.mean())
    if mean <= 0:
        return rows.r_max, rows.r_max**3
    return float((rows.reward**2).mean()) / mean, float((rows.reward**4).mean()) / mean


def _some(rows: LoggedData, seed: int) -> LoggedData:
    """The rows, or a draw from them where their probabilities would be too many."""
    most = max(MOST_ENTRIES // len(rows.catalogue), 1000)
    if len(rows) <= most:
        return rows
    some = rng.generator(seed, "plan rows").choice(len(rows), most, replace=False)
    return rows.take(np.sort(some))


def _slope(x: FloatArray, y: FloatArray) -> float:
    """Of y on x, by least squares; 0 where x does not vary."""
    variance = float(x.var())
    return float(((x - x.mean()) * y).mean()) / variance if variance > 1e-12 else 0.0


def _mean(values: FloatArray, share: FloatArray) -> tuple[float, float]:
    """The mean of (n,) values, and its standard error."""
    mean = float(share @ values)
    return mean, math.sqrt(float(share @ (values - mean) ** 2) / len(values))


def _over(
    share: FloatArray,
    w: FloatArray,
    q: FloatArray,
    kappas: tuple[float, float],
    corrected: tuple[float, float, float] = (0.0, 0.0, 1.0),
) -> Callable[[float], Moments]:
    """The moments for a clip; E[w r] moved by a correction, with its error at so many rows."""
    rewards = (q, q * kappas[0], q * kappas[1])
    by, error, at = corrected

    def of(clip: float) -> Moments:
        found = moments(share, w, rewards, clip)
        return replace(found, first=found.first + np.array([0.0, by]), error=error, at=at)

    return of


def _novel_value(rows: LoggedData, model: RewardModel, calibration: Calibration) -> float:
    """The value of pi_new by q-hat, over some of the contexts."""
    novel, contexts = rows.catalogue.novel, rows.contexts[:SOME_CONTEXTS]
    spread = _spread(model, rows, novel)
    new = ByModel(model, novel, strength=FIRST_NOVEL_STRENGTH, scale=spread, even=EVEN)
    q_hat = np.asarray(model.predict(contexts))
    weights = rows.context_counts[:SOME_CONTEXTS] / rows.context_counts[:SOME_CONTEXTS].sum()
    return float(weights @ (new.choice(q_hat) * calibration(q_hat)).sum(axis=1))


def _spread(model: RewardModel, rows: LoggedData, actions: Mask) -> float:
    """The standard deviation of q-hat over these actions within a context."""
    table = np.asarray(model.predict(rows.contexts[:SOME_CONTEXTS]), dtype=np.float64)[:, actions]
    return max(float((table - table.mean(axis=1, keepdims=True)).std()), 1e-9)


def _choice(new: Policy, known: Anticipation) -> FloatArray:
    return new.choice(known.novel_q) if isinstance(new, ByModel) else np.zeros_like(known.q_hat)


def _context_shares(known: Anticipation) -> FloatArray:
    """(c,) what each of the anticipation's contexts counts for."""
    return known.exposure(np.eye(len(known.pi0)))


def _frequencies(counts: IntArray) -> Policy:
    logs = np.log(np.maximum(counts, 0.5))
    return SoftmaxOfScores(
        lambda contexts: np.broadcast_to(logs, (len(contexts), len(logs))), 1.0, counts > 0
    )


def _on_rows(model: RewardModel, rows: LoggedData) -> FloatArray:
    found = model.predict_pairs(rows.contexts, rows.action, rows.context)
    return np.asarray(found, dtype=np.float64)
