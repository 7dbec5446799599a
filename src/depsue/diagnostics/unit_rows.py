"""Does the number of rows of a unit depend on what it was shown? The test of "all rows".

A mean over units is the value of a policy only if a unit has as many rows whatever it is shown.
Sessions that go on while the user clicks break that. The action of a row was drawn with known
probabilities, given its context: so whatever comes after that row, the number of later rows L of
its unit among them, has nothing to do with the draw unless it depends on what was shown. For a
score c(x, a) that was fixed on other units, and a guess m of L that does not know the action::

    V_unit = sum over its rows of (c(x, a) - sum over a' of pi(a'|x) c(x, a')) (L - m)

has mean zero, and units are independent. Two scores are tried: how many later rows an action had on
other units, and what it earned there. Units fall into blocks by a hash, and each block is scored by
what the blocks before it taught, so the sum over blocks is a martingale. (Two halves that score
each other are not: both then hold the same product of errors, and their sum varies twice as much.)
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from depsue.data.checks import FloatArray, IntArray, Mask
from depsue.data.folds import fold_of_keys, keys_of_ids
from depsue.data.logs import LoggedData
from depsue.errors import DataError, require, require_delta
from depsue.plural import counted
from depsue.protocols import Policy

DELTA = 0.001
"""How often a number of rows that depends on nothing shown is refuted, at most."""
FEWEST_UNITS = 100
"""Units with later rows: with fewer nothing can be shown."""
BLOCKS, SALT = 8, "depsue rows per unit"
"""Into which units fall, and the name of that split."""
LONGEST = 0.99
"""Later rows count up to this quantile of those in the blocks before."""
STEADY = 20.0
"""Rows for which the prior counts in the mean of an action, and of an action in a context."""
DIRECTIONS = 8
"""Principal directions of contexts and of item features that scores look at, at most."""
RIDGE = 30.0
"""Penalty on each coefficient, in rows."""
PLACES = 10
"""Rows of a unit that have a guess of their own for what comes after them."""
MOST_PAIRS = 4_000_000
"""Contexts x actions that are scored, at most."""
SCORES = ("later rows", "reward")


@dataclass(frozen=True)
class UnitRowsReport:
    """Whether the number of rows of a unit may be taken as independent of what it was shown.

    Args:
        ok: True if nothing refutes it.
        rows: that were looked at.
        units: that they belong to.
        z: the standardised mean of V_unit by score; () where hardly a unit has a second row.
        limits: what each z may reach.
        delta: the share of worlds without such a dependence that are refuted, at most.
    """

    ok: bool
    rows: int
    units: int
    z: tuple[float, ...]
    limits: tuple[float, ...]
    delta: float

    def __str__(self) -> str:
        if not self.z:
            return "too few units with a second row to test how many rows a unit has"
        head = "nothing refutes that" if self.ok else "refuted:"
        scores = ", ".join(
            f"z {z:.1f} by {name} (limit {limit:.1f})"
            for name, z, limit in zip(SCORES, self.z, self.limits, strict=True)
        )
        return (
            f"{head} the number of rows of a unit does not depend on what it was shown: {scores}, "
            f"on {self.rows:,} rows of {counted(self.units, 'unit')}, at delta {self.delta:g}"
        )


def require_testable(policy: Policy) -> None:
    """Refuse all rows of units where the claim that they rest on cannot be tested."""
    require(
        not getattr(policy, "rests_on_choice", False),
        "whether the number of rows of a unit depends on what it was shown is tested by pi0's "
        "probabilities of all candidates",
        found="a pi0 of which only the chosen items' are known",
        cure="promise the first row of each unit (--units first-row, units='first row')",
    )


def check_unit_rows(rows: LoggedData, policy: Policy, *, delta: float = DELTA) -> UnitRowsReport:
    """Test that the number of rows of a unit does not depend on what it was shown.

    Args:
        rows: n rows with units, none of which a coming verdict will read.
        policy: what drew them.
        delta: how often a true claim is refuted, at most.
    """
    require_delta(delta)
    if rows.unit is None or rows.units is None:
        return UnitRowsReport(True, len(rows), len(rows), (), (), delta)
    require_testable(policy)
    rows = _fewer(rows)
    unit, units = np.asarray(rows.unit), np.asarray(rows.units)
    place = rows.place_in_unit
    later = np.bincount(unit)[unit] - 1 - place
    block = fold_of_keys(keys_of_ids(units), np.full(BLOCKS, 1 / BLOCKS), SALT)[unit]
    if len(np.unique(unit[later > 0])) < FEWEST_UNITS or not (block == 0).any():
        return UnitRowsReport(True, len(rows), len(units), (), (), delta)
    inputs, rewards = _Inputs(rows, policy), np.asarray(rows.reward)
    sums = np.zeros((len(SCORES), len(units)))
    for number in range(1, BLOCKS):
        before, mine = block < number, block == number
        longest = float(np.quantile(later[before], LONGEST, method="higher"))
        capped = np.minimum(later, max(longest, 1.0))
        left = capped - inputs.guess(capped, place, before)
        for score, target in enumerate((left, rewards)):
            values = inputs.centred(target, before, mine) * left[mine]
            sums[score] += np.bincount(unit[mine], values, minlength=len(units))
    by_rows, by_reward = (
        float(values.sum()) / max(float((values**2).sum()), 1e-300) ** 0.5 for values in sums
    )
    # an action that had more later rows should have more again; what it earned may go either way
    limits = (NormalDist().inv_cdf(1 - delta / 2), NormalDist().inv_cdf(1 - delta / 4))
    ok = by_rows <= limits[0] and abs(by_reward) <= limits[1]
    return UnitRowsReport(ok, len(rows), len(units), (by_rows, by_reward), limits, delta)


def require_unit_rows(rows: LoggedData, policy: Policy, *, delta: float = DELTA) -> UnitRowsReport:
    """Refuse rows whose number in a unit depends on what it was shown; arguments as above."""
    report = check_unit_rows(rows, policy, delta=delta)
    if not report.ok:
        raise DataError(
            "units='all rows' declares that the number of rows of a unit does not depend on what "
            "it was shown",
            column="unit",
            found=str(report),
            cure="begin a campaign that promises the first row of each unit (--units first-row, "
            "units='first row'); or give one row for each unit, such as a whole session",
        )
    return report


def _fewer(rows: LoggedData) -> LoggedData:
    """All rows of some units, where contexts x actions would be too many."""
    most = max(1, MOST_PAIRS // rows.requests.width(len(rows.catalogue)))
    if len(rows.contexts) <= most or rows.units is None or rows.unit is None:
        return rows
    share = max(most / len(rows.contexts), 1e-6)
    shares = np.array([share, 1 - share])
    chosen = fold_of_keys(keys_of_ids(rows.units), shares, "depsue fewer units") == 0
    return rows.take(np.flatnonzero(chosen[rows.unit])) if chosen.any() else rows


class _Inputs:
    """What scores are made of: directions of contexts and items, and what the policy shows.

    Args:
        rows: all of them.
        policy: what drew them.
    """

    def __init__(self, rows: LoggedData, policy: Policy) -> None:
        self._rows, features = rows, rows.catalogue.features
        size = len(rows.catalogue)
        self._pi = np.zeros((len(rows.contexts), rows.requests.width(size)))
        for piece, pi in policy.distributions(rows.requests):
            self._pi[piece, : pi.shape[1]] = pi
        self._pi = self._pi / self._pi.sum(axis=1, keepdims=True)
        self._items = rows.requests.places(size).items
        self._place = rows.requests.place(rows.action, rows.context)
        self._x = _directions(rows.contexts)
        self._e = np.zeros((size, 0)) if features is None else _directions(features)
        cells = rows.context.astype(np.int64) * self._pi.shape[1] + self._place
        self._cells, self._cell = np.unique(cells, return_inverse=True)

    def guess(self, later: FloatArray, place: IntArray, learn: Mask) -> FloatArray:
        """(n,) how many rows follow, by a row's place in its unit and its context."""
        bucket = np.minimum(place, PLACES)
        x = self._x[self._rows.context]
        inputs = np.concatenate([np.eye(PLACES + 1)[bucket], x], axis=1)
        return np.asarray(inputs @ _ridge(inputs[learn], later[learn]))

    def centred(self, target: FloatArray, learn: Mask, scored: Mask) -> FloatArray:
        """(m,) c(x, a) of some rows less its mean over the policy's actions at x.

        c is learned from the rows `learn`.

        c has three parts: a ridge regression on directions of the item and their products with
        those of the context; what is left of the target by action; and by action and context.
        """
        rows, size = self._rows, len(self._rows.catalogue)
        context, action = rows.context[learn], rows.action[learn]
        x, e = self._x[context], self._e[action]
        products = (x[:, :, None] * e[:, None, :]).reshape(len(x), -1)
        inputs = np.concatenate([np.ones((len(x), 1)), x, e, products], axis=1)
        model = _ridge(inputs, target[learn])
        left = target[learn] - inputs @ model
        by_action = _shrunk(action, left, size)
        by_cell = _shrunk(self._cell[learn], left - by_action[action], len(self._cells))
        d, width = self._x.shape[1], self._e.shape[1]
        of_item = model[1 + d : 1 + d + width]
        of_both = model[1 + d + width :].reshape(d, width)
        directions = of_item + self._x @ of_both
        if rows.candidates is None:
            score = by_action + directions @ self._e.T
        else:
            products = np.einsum("uk,ulk->ul", directions, self._e[self._items])
            score = by_action[self._items] + products
        score.reshape(-1)[self._cells] += by_cell
        mean = (self._pi * score).sum(axis=1)
        context, place = rows.context[scored], self._place[scored]
        return np.asarray(score[context, place] - mean[context])


def _directions(values: FloatArray) -> FloatArray:
    """(m, k) the principal directions of (m, d) features, each with deviation 1."""
    wide = np.asarray(values, dtype=np.float64)
    wide = wide - wide.mean(axis=0)
    scale = wide.std(axis=0)
    wide = wide[:, scale > 1e-8] / scale[scale > 1e-8]
    if not wide.shape[1]:
        return np.zeros((len(wide), 0))
    strength, axes = np.linalg.eigh(wide.T @ wide / len(wide))
    best = np.argsort(-strength)[:DIRECTIONS]
    best = best[strength[best] > 1e-9]
    return np.asarray(wide @ axes[:, best] / np.sqrt(strength[best]))


def _ridge(inputs: FloatArray, target: FloatArray) -> FloatArray:
    """(k,) the coefficients of a ridge regression; constants are penalised too, which is mild."""
    penalty = RIDGE * np.eye(inputs.shape[1])
    penalty[0, 0] = 1e-6
    return np.asarray(np.linalg.solve(inputs.T @ inputs + penalty, inputs.T @ target))


def _shrunk(which: IntArray, values: FloatArray, size: int) -> FloatArray:
    """(size,) sums of values by index, divided by their number and `STEADY` more."""
    sums = np.bincount(which, values, minlength=size)
    return np.asarray(sums / (np.bincount(which, minlength=size) + STEADY))
