"""The policies that a plan compares, and a rehearsal of them on rows that may be read.

Where pi0 can be called they are its tilts. Where only the propensities of logged actions are known
they are mixtures lambda pi0 + (1 - lambda) pi_q, with pi_q a tilt of an even choice by q-hat: the
weight of a logged row, lambda + (1 - lambda) pi_q / p, needs no more than p.

The rehearsal: learn and select rows are cut into parts; for each part the reward model is fitted
on the others, the candidates are built from it, and the part's rows, which that model has not
seen, say what a certificate would see: w and r of every row. So any reward column and any segment
can be asked for, and a candidate does not look good because q-hat remembers its own rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from depsue import rng
from depsue.data.checks import FloatArray, IntArray, Mask
from depsue.data.logs import LoggedData, joined
from depsue.exploration.forecast import FIRST_NOVEL_STRENGTH
from depsue.exploration.forecast import STRENGTHS as TILTS
from depsue.exploration.headroom import Aim, Moments, moments
from depsue.policies import SoftmaxOfScores, Uniform
from depsue.policies.base import whole
from depsue.policies.tilted import ModelSoftmax, Tilted
from depsue.promises import Promise
from depsue.protocols import Policy, RewardModel

CAPS = (50.0, 400.0)
"""Where tilts of a pi0 that can be called level off."""
SHARES = (0.0, 0.5, 0.8)
"""lambda, the share of pi0, where pi0 cannot be called."""
STRENGTHS = (0.5, 1.0, 2.0)
"""Of the tilt there, in standard deviations of q-hat."""
CAP = 50.0
DOUBT = 0.5
"""Standard errors of the rehearsal that are taken off what a candidate earned in it."""
FEWEST_REWARDS = 20
"""Rows with a reward that a rehearsal takes, at least."""
PARTS, FEWER_PARTS, MANY_ROWS = 4, 2, 200_000
"""Parts of the rows; fewer where rows are many, for then q-hat can spare half of them."""
MOST_ROWS = 500_000
MOST_ENTRIES = 50_000_000
"""Of a rehearsal: rows, and probabilities for one candidate; else rows are drawn."""
AT_ONCE = 4_000_000
"""Probabilities in memory."""
SOME_CONTEXTS = 500
EVEN = 0.1
"""Share of the novel exposure that is spread evenly."""

Fit = Callable[[LoggedData, str], RewardModel]
"""Rows, and what they are called -> q-hat."""


@dataclass(frozen=True, eq=False)
class Part:
    """One pi_old: a share of pi0, and a tilt for the rest.

    Args:
        name: in words.
        tilt: None for pi0 itself.
        kept: the share of pi0.
    """

    name: str
    tilt: Tilted | None = None
    kept: float = 0.0


@dataclass(frozen=True, eq=False)
class Side:
    """What a promise is about, among the rehearsed rows.

    Args:
        rows: (k,) which of the rows.
        reward: (k,) their rewards.
        share: (k,) what each counts for; they sum to 1.
        part: the share of all rows (or units) that these are.
        paired: whether the floor is relative, so that only V(pi_old) - V(pi0) is in doubt.
    """

    rows: IntArray
    reward: FloatArray
    share: FloatArray
    part: float
    paired: bool = True


@dataclass(frozen=True, eq=False)
class Rehearsal:
    """The candidates on rows that the models which built them have not seen.

    Args:
        rows: the m rows.
        predicted: (m,) q-hat of each, by a model that has not seen it.
        weights: (candidates, m) pi_old / p; pi0 first.
        names: of the candidates.
        values: independent values among the rows: their number, or fewer where rows repeat units.
        n: independent values to certify with.
    """

    rows: LoggedData
    predicted: FloatArray
    weights: FloatArray = field(repr=False)
    names: tuple[str, ...]
    values: float
    n: float

    def sides(self, aim: Aim) -> tuple[Side, ...]:
        """One for each promise."""
        return tuple(self.side(promise) for promise in aim.promises)

    def side(self, promise: Promise) -> Side:
        """The rows and rewards of one promise."""
        own, mask = promise.rows(self.rows)
        whole, units = self.rows.unit, own.unit
        part = len(own) / len(mask)
        if whole is not None and units is not None:
            part = len(np.unique(units)) / len(np.unique(whole))
        paired = promise.floor.ratio is not None
        return Side(np.flatnonzero(mask), own.reward, own.row_weights, part, paired)

    def moments(self, candidate: int, side: Side, clip: float) -> Moments:
        """The moments of a candidate's terms for one promise, with its doubt."""
        w = np.minimum(self.weights[candidate, side.rows].astype(np.float64), clip)
        r, values = side.reward, self.values * side.part
        found = moments(side.share, w, (r, r**2, r**4), clip)
        gain = (w - 1) * r if side.paired else w * r
        spread = float(side.share @ (gain - side.share @ gain) ** 2)
        error = DOUBT * math.sqrt(spread / max(values, 1.0))
        return replace(found, error=error, at=self.n, share=side.part)


def parts_of(model: RewardModel, rows: LoggedData, pi0: Policy | None) -> list[Part]:
    """pi0, and what is compared with it.

    Args:
        model: q-hat.
        rows: learn and select rows; their contexts set the scale, their actions what was shown.
        pi0: if it can be called.
    """
    contexts = rows.contexts[:SOME_CONTEXTS]
    q_hat = np.asarray(model.predict(contexts), dtype=np.float64)
    found = [Part("pi0")]
    if pi0 is not None:
        base = whole(pi0, contexts)
        centred = q_hat - np.einsum("ca,ca->c", base, q_hat)[:, None]
        scale = max(math.sqrt(float((base * centred**2).sum(axis=1).mean())), 1e-9)
        for cap in CAPS:
            for strength in TILTS:
                tilt = Tilted(pi0, model, strength=strength, cap=cap, scale=scale)
                found.append(Part(f"pi0 tilted by {strength:g} q-hat, cap {cap:g}", tilt))
        return found
    counts = np.bincount(rows.action, minlength=len(rows.catalogue))
    scale = _spread(q_hat, counts > 0)
    for name, base_policy in _bases(counts):
        for strength in STRENGTHS:
            tilt = Tilted(base_policy, model, strength=strength, cap=CAP, scale=scale)
            for kept in SHARES:
                mixed = f"{kept:g} pi0 + {1 - kept:g} " if kept else ""
                found.append(Part(f"{mixed}{name} tilted by {strength:g} q-hat", tilt, kept))
    return found


def rehearse(
    rows: LoggedData, fit: Fit, pi0: Policy | None, *, values: float, n: float, seed: int
) -> Rehearsal:
    """The candidates on rows that their models have not seen.

    Args:
        rows: learn and select rows.
        fit: fits q-hat.
        pi0: if it can be called.
        values, n: as in `Rehearsal`.
        seed: of the rows that are drawn, where there are too many.
    """
    count = PARTS if len(rows) <= MANY_ROWS else FEWER_PARTS
    cut = rows.split([1 / count] * count, salt="depsue rehearsal")
    held, predicted, weights = [], [], []
    names: tuple[str, ...] = ()
    for k, own in enumerate(cut):
        others = joined([other for j, other in enumerate(cut) if j != k])
        model = fit(others, f"rehearsal {k + 1}/{count}")
        some = _some(own, MOST_ROWS // count, seed)
        compared = parts_of(model, rows, pi0)
        names = tuple(part.name for part in compared)
        held.append(some)
        predicted.append(model.predict_pairs(some.contexts, some.action, some.context))
        weights.append(_weights(compared, model, some))
    together = np.concatenate(weights, axis=1)
    means = together.mean(axis=1, keepdims=True, dtype=np.float64)
    if pi0 is None:  # E[w] <= 1: what exceeds it is chance
        means = np.maximum(means, 1.0)
    together /= means.astype(np.float32)  # where pi0 can be called E[w] = 1
    some_rows = joined(held)
    values *= len(some_rows) / len(rows)
    guesses = np.concatenate(predicted).astype(np.float64)
    return Rehearsal(some_rows, guesses, together, names, values, n)


def novel_choice(model: RewardModel, rows: LoggedData, described: bool) -> Policy:
    """pi_new: by q-hat, partly even; evenly where nothing describes the items."""
    novel = rows.catalogue.novel
    if not described:
        return Uniform(novel)
    q_hat = np.asarray(model.predict(rows.contexts[:SOME_CONTEXTS]), dtype=np.float64)
    scale = _spread(q_hat, novel)
    return ModelSoftmax(model, novel, strength=FIRST_NOVEL_STRENGTH, scale=scale, even=EVEN)


def value_by(
    model: RewardModel, choice: Policy, rows: LoggedData, corrected: Callable[..., FloatArray]
) -> float:
    """The value of a policy as the corrected q-hat sees it, over some of the contexts."""
    contexts, counts = rows.contexts[:SOME_CONTEXTS], rows.context_counts[:SOME_CONTEXTS]
    q = corrected(np.asarray(model.predict(contexts)))
    pi = whole(choice, contexts)
    return float((counts / counts.sum()) @ (pi * q).sum(axis=1))


def _weights(compared: Sequence[Part], model: RewardModel, rows: LoggedData) -> FloatArray:
    """(candidates, m) pi_old / p, a chunk of contexts at a time: q-hat and base are asked once."""
    out = np.ones((len(compared), len(rows)), dtype=np.float32)
    tilts = {id(part.tilt): part.tilt for part in compared if part.tilt is not None}
    bases = {id(tilt.base): tilt.base for tilt in tilts.values()}
    order = np.argsort(rows.context, kind="stable")
    at_once = max(AT_ONCE // len(rows.catalogue), 1)
    for start in range(0, len(rows.contexts), at_once):
        contexts = rows.contexts[start : start + at_once]
        low, high = np.searchsorted(rows.context[order], [start, start + len(contexts)])
        some = order[low:high]
        at = rows.context[some] - start, rows.action[some]
        q_hat = np.asarray(model.predict(contexts), dtype=np.float64)
        tables = {key: whole(base, contexts) for key, base in bases.items()}
        drawn = {
            key: tilt.tilt(tables[id(tilt.base)], q_hat)[at] / rows.propensity[some]
            for key, tilt in tilts.items()
        }
        for place, part in enumerate(compared):
            if part.tilt is not None:
                out[place, some] = part.kept + (1 - part.kept) * drawn[id(part.tilt)]
    return out


def _bases(counts: IntArray) -> tuple[tuple[str, Policy], ...]:
    """Even choices among what was shown: uniform, and as often as it was shown."""
    logs = np.log(np.maximum(counts, 0.5))
    often = SoftmaxOfScores(
        lambda contexts: np.broadcast_to(logs, (len(contexts), len(logs))), 1.0, counts > 0
    )
    return ("uniform", Uniform(counts > 0)), ("frequencies", often)


def _some(rows: LoggedData, most: int, seed: int) -> LoggedData:
    """The rows, or a draw from them where they or their probabilities would be too many."""
    if len(rows.contexts) * len(rows.catalogue) > MOST_ENTRIES // PARTS:
        most = min(most, max(MOST_ENTRIES // PARTS // len(rows.catalogue), 1000))
    if len(rows) <= most:
        return rows
    some = rng.generator(seed, "plan rows").choice(len(rows), most, replace=False)
    return rows.take(np.sort(some))


def _spread(q_hat: FloatArray, actions: Mask) -> float:
    """The standard deviation of (c, A) predictions over these actions within a context."""
    table = q_hat[:, actions]
    return max(float((table - table.mean(axis=1, keepdims=True)).std()), 1e-9)
