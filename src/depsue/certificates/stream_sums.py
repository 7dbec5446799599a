"""What is kept of the terms of one level and promise while their rows go by."""

from __future__ import annotations

import numpy as np

from depsue.bounds.passes import Pass, Passes, passes_of
from depsue.certificates.terms import bound_for
from depsue.data.checks import Array, FloatArray, IntArray
from depsue.data.folds import keys_of_ids
from depsue.data.terms import ConservativeTerms, WeightedTerms
from depsue.protocols import BoundValue


class RowSums:
    """Sums over rows, pass after pass.

    Args:
        bound: its name.
        n: how many rows there are.
        delta: the level of the bound.
    """

    def __init__(self, bound: str, n: int, delta: float) -> None:
        self._name, self._n, self._delta = bound, n, delta
        self._passes: Passes | None = None
        self._see: Pass | None = None
        self._place = 0
        self.found: BoundValue | None = None
        self.proof = ""

    def add(self, terms: ConservativeTerms, upper: float) -> None:
        """See a piece of the terms, none of which can exceed `upper`."""
        if self._passes is None:
            bound = bound_for(self._name, upper=upper)
            self._passes = passes_of(bound, terms, self._n, self._delta)
            self._see, self.proof = next(self._passes), terms.proof
        if self._see is not None:
            self._see(terms, self._place)
            self._place += len(terms.values)

    def end(self) -> None:
        """All pieces went by: ask for the next pass, or take the bound."""
        if self._passes is None or self.found is not None:
            return
        try:
            self._see, self._place = next(self._passes), 0
        except StopIteration as done:
            self._see, self.found = None, done.value


class UnitNumbers:
    """Units numbered by first appearance, with the rows of each: 20 bytes a unit.

    Args:
        most: how many units there are at most.
    """

    def __init__(self, most: int) -> None:
        self._keys = np.zeros(0, dtype=np.uint64)
        self._number = np.zeros(0, dtype=np.int32)
        self._rows = np.zeros(most)

    def of(self, ids: Array, unit: IntArray) -> IntArray:
        """(v,) the numbers of a batch's distinct ids; (n,) `unit` says which of them a row has."""
        keys = keys_of_ids(ids)
        place = np.searchsorted(self._keys, keys)
        known = np.zeros(len(keys), dtype=bool)
        inside = place < len(self._keys)
        known[inside] = self._keys[place[inside]] == keys[inside]
        numbers = np.empty(len(keys), dtype=np.int32)
        numbers[known] = self._number[place[known]]
        new = np.flatnonzero(~known)
        numbers[new] = np.arange(len(self._keys), len(self._keys) + len(new))
        order = new[np.argsort(keys[new])]
        self._number = np.insert(self._number, place[order], numbers[order])
        self._keys = np.insert(self._keys, place[order], keys[order])
        self._rows[numbers] += np.bincount(unit, minlength=len(ids))
        return numbers

    @property
    def rows(self) -> FloatArray:
        """(v,) how many rows each unit has."""
        return self._rows[: len(self._keys)]


class UnitSums:
    """One sum for each unit; the bound is then that of the means, in memory.

    Args:
        bound: its name.
        units: how many units there are at most.
        delta: the level of the bound.
    """

    def __init__(self, bound: str, units: int, delta: float) -> None:
        self._name, self._delta = bound, delta
        self._sums = np.zeros(units)
        self._like: ConservativeTerms | None = None
        self._upper = 0.0
        self.found: BoundValue | None = None
        self.proof = ""

    def add(self, terms: ConservativeTerms, upper: float, numbers: IntArray) -> None:
        """See a piece of the terms; (v,) `numbers` are those of its units."""
        unit = np.asarray(terms.unit)
        self._sums[numbers] += np.bincount(unit, weights=terms.values, minlength=len(numbers))
        self._like, self._upper, self.proof = terms, upper, terms.proof

    def end(self, rows: FloatArray) -> None:
        """All pieces went by; (v,) `rows` is how many each unit had."""
        if self._like is None:
            return
        means = self._sums[: len(rows)] / rows
        terms = _means_like(self._like, means)
        self.found = bound_for(self._name, upper=self._upper).lower(terms, self._delta)
        self._sums = np.zeros(0)


def _means_like(like: ConservativeTerms, means: FloatArray) -> ConservativeTerms:
    """(v,) means of units as terms that declare what `like` does."""
    unit = np.arange(len(means))
    if not isinstance(like, WeightedTerms):
        return ConservativeTerms(means, like.lower, unit=unit, proof=like.proof)
    rewards = np.full(len(means), like.r_max)
    return WeightedTerms.of(means / like.r_max, rewards, r_max=like.r_max, unit=unit)
