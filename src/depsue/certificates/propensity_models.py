"""Models m(x, a) of the logging policy, learned from some rows to test others' propensities."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from depsue.data.checks import FloatArray, IntArray, Mask
from depsue.data.keys import mix64

FIT, CHOOSE = 8, 2
"""Of 20 learning rows so many fit the candidates for m and choose among them; 10 are tested."""
DIRECTIONS = 32
"""The regression looks at so many principal directions of the contexts, at most."""
STEPS, EPOCHS = 500, 10
"""Most steps of the softmax regression, and most readings of each row."""
TRUSTS = (None, 1.0, 0.1, 0.0)
"""How the memory is used: not at all, or with so much trust in the model beside it."""
CHUNK = 1 << 21
"""Probabilities held in memory at once."""


class Rows(NamedTuple):
    """n rows of one round; `part` is 0 where m is fitted, 1 where it is chosen, 2 where tested.

    Args:
        features: (u, f) features of the distinct contexts.
        context, action, propensity, part: (n,) columns.
        allowed: (A,) True for actions that the round may show.
    """

    features: FloatArray
    context: IntArray
    action: IntArray
    propensity: FloatArray
    part: IntArray
    allowed: Mask

    def take(self, part: int) -> Rows:
        """The rows of one part."""
        return self.at(np.flatnonzero(self.part == part))

    def at(self, rows: IntArray) -> Rows:
        """The given rows."""
        return self._replace(
            context=self.context[rows],
            action=self.action[rows],
            propensity=self.propensity[rows],
            part=self.part[rows],
        )


class Logits(NamedTuple):
    """m(a|x), a softmax over actions of `offset[a] + features[x] @ slopes[a]`.

    Args:
        features: (u, f) of every context, float32.
        offset: (A,) -inf for actions that the round may not show.
        slopes: (A, f).
    """

    features: FloatArray
    offset: FloatArray
    slopes: FloatArray

    def chunks(self, contexts: IntArray) -> Iterator[tuple[slice, FloatArray]]:
        """For (c,) contexts, a chunk at a time: slice, and (chunk, A) m."""
        step = max(1, CHUNK // len(self.offset))
        slopes, offset = self.slopes.T.astype(np.float32), self.offset.astype(np.float32)
        for start in range(0, len(contexts), step):
            piece = slice(start, min(start + step, len(contexts)))
            out = self.features[contexts[piece]] @ slopes
            out += offset
            out -= out.max(axis=1, keepdims=True)
            np.exp(out, out=out)
            out /= out.sum(axis=1, keepdims=True) * np.float32(1 + 1e-5)  # at most 1, if rounded
            yield piece, out

    def at(self, context: IntArray, action: IntArray) -> FloatArray:
        """(n,) m(a|x) of pairs."""
        order = np.argsort(context, kind="stable")
        distinct, starts = np.unique(context[order], return_index=True)
        ends = np.append(starts, len(order))
        chosen = np.empty(len(order))
        for piece, m in self.chunks(distinct):
            rows = order[ends[piece.start] : ends[piece.stop]]
            local = np.searchsorted(distinct[piece], context[rows])
            chosen[rows] = m[local, action[rows]]
        return chosen


def principal(contexts: FloatArray) -> FloatArray:
    """(u, f) a constant 1 and the contexts' principal components, scaled to variance 1."""
    centred = contexts - contexts.mean(axis=0, dtype=np.float64)
    values, axes = np.linalg.eigh(centred.T @ centred / len(centred))
    kept = np.flatnonzero(values > 1e-9 * values.max(initial=0.0))[-DIRECTIONS:]
    components = centred @ (axes[:, kept] / np.sqrt(values[kept]))
    return np.column_stack([np.ones(len(contexts)), components]).astype(np.float32)


def frequencies(rows: Rows) -> Logits:
    """m(a) = (count of a + 1/2) / (n + A/2) over the A actions allowed, in every context."""
    count = np.bincount(rows.action, minlength=len(rows.allowed)) + 0.5
    with np.errstate(divide="ignore"):
        offset = np.log(np.where(rows.allowed, count, 0.0) / count[rows.allowed].sum())
    return Logits(rows.features, offset, np.zeros((len(offset), rows.features.shape[1])))


def regression(rows: Rows, start: Logits) -> Logits:
    """Softmax regression of the actions on their contexts' features, by likelihood.

    AdaGrad over batches in a fixed order, from `start`; the slopes are the average over the second
    half of the steps. It does not look at the propensities.
    """
    n = len(rows.action)
    batch = max(32, min(1024, n // 8, CHUNK // 2 // len(start.offset)))
    steps = max(2, min(STEPS, EPOCHS * n // batch))
    order = np.argsort(mix64(np.arange(n)))
    offset, slopes = start.offset.astype(np.float32), start.slopes.astype(np.float32)
    squares, total = np.full_like(slopes, 1e-6), np.zeros_like(slopes)
    for step in range(steps):
        mine = order[np.arange(step * batch, (step + 1) * batch) % n]
        x = rows.features[rows.context[mine]]
        m = x @ slopes.T
        m += offset
        m -= m.max(axis=1, keepdims=True)
        np.exp(m, out=m)
        m /= m.sum(axis=1, keepdims=True)
        m[np.arange(batch), rows.action[mine]] -= 1
        gradient = m.T @ x / np.float32(batch)
        squares += gradient * gradient
        slopes -= gradient / np.sqrt(squares)
        if step >= steps // 2:
            total += slopes
    return start._replace(slopes=total / np.float32(steps - steps // 2))


class Memory(NamedTuple):
    """What the fitting rows showed of each context.

    Args:
        key: (k,) context * A + action, of every pair seen, increasing.
        propensity: (k,) geometric mean of the propensities seen for it.
        total: (u,) their sum in each context.
    """

    key: IntArray
    propensity: FloatArray
    total: FloatArray

    @classmethod
    def of(cls, rows: Rows) -> Memory:
        """The memory of these rows."""
        size = len(rows.allowed)
        pair = rows.context.astype(np.int64) * size + rows.action
        key, which, times = np.unique(pair, return_inverse=True, return_counts=True)
        seen: FloatArray = np.exp(np.bincount(which, np.log(rows.propensity)) / times)
        total: FloatArray = np.zeros(len(rows.features))
        np.add.at(total, key // size, seen)
        return cls(key, seen, total)

    def over(self, model: Logits, rows: Rows) -> Iterator[FloatArray]:
        """(n,) m(x, a) of the rows, for each of TRUSTS.

        With K the sum of what is known in a context, known actions get p / (K + trust (1 - K)),
        and the others share the rest as in the model. Trust 1 takes the model for what the memory
        does not know; trust 0 leaves it out, wherever anything is known; None asks the model only.
        """
        size = len(rows.allowed)
        here = np.isin(self.key // size, rows.context)
        key, seen = self.key[here], self.propensity[here]
        context, action = key // size, key % size
        pairs = np.concatenate([rows.context, context]), np.concatenate([rows.action, action])
        base, of_known = np.split(model.at(*pairs), [len(rows.action)])
        wanted = rows.context.astype(np.int64) * size + rows.action
        known = np.zeros(len(wanted))
        if len(key):
            place = np.minimum(np.searchsorted(key, wanted), len(key) - 1)
            known = np.where(key[place] == wanted, seen[place], 0.0)
        rest = np.maximum(1 - np.bincount(context, of_known, minlength=len(self.total)), 1e-6)
        for trust in TRUSTS:
            if trust is None:
                yield base
                continue
            left = np.maximum(1 - self.total, 0) * np.where(self.total > 0, trust, 1.0)
            m = np.where(known > 0, known, (left / rest)[rows.context] * base)
            yield m / (self.total + left)[rows.context]


def models(rows: Rows) -> Iterator[tuple[str, Logits]]:
    """The models that m is chosen from, fitted on these rows, with a name each."""
    frequent = frequencies(rows)
    flat = frequent._replace(offset=np.where(rows.allowed, 0.0, -np.inf))
    yield "uniform", flat
    yield "frequencies", frequent
    if len(rows.action):
        yield "softmax regression", regression(rows, frequent)


def growth(z: FloatArray) -> float:
    """How fast the capital of a bet on E[z] > 1 grows, per row, with the best of some scales."""
    scales = 4.0 ** np.arange(0, 7)
    return max(float(np.log1p(z / s).mean() - np.log1p(1 / s)) for s in scales)


def tested(rows: Rows) -> tuple[str, FloatArray]:
    """The name of m and (n,) z = m/p of the rows that are tested.

    Of all candidates, m is the one whose bet grows fastest on the rows kept for the choice.
    """
    fit, choice, test = (rows.take(part) for part in range(3))
    memory = Memory.of(fit)
    best = ("uniform", 0, frequencies(fit), -np.inf)
    for name, model in models(fit):
        for use, m in enumerate(memory.over(model, choice)):
            rate = growth(m / choice.propensity) if len(m) else 0.0
            if rate > best[-1]:
                best = (name, use, model, rate)
    name, use, model, _ = best
    words = "" if TRUSTS[use] is None else f", and what was seen in a context ({TRUSTS[use]:g})"
    m = list(memory.over(model, test))[use]
    return name + words, m / test.propensity
