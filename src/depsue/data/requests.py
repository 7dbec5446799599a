"""Requests: what a decision is made on.

A request is a context x, the candidates that could be shown for it, and what is known of the
current policy (pi0) on them. Distinct requests are kept once and rows point at them, so that a
policy answers u requests instead of n rows. `Candidates` holds sets of any sizes the way sparse
matrices do; a policy answers about them in tables of L places a request, where L is the size of the
largest set asked about. Where all actions are candidates, place a is action a and L = A.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from depsue.data.checks import Array, FloatArray, IntArray, Mask, read_only
from depsue.data.keys import mix64, row_keys
from depsue.errors import DataError, require, short

AT_ONCE = 1 << 22
"""Candidates that are worked on at a time, where there are many: what bounds memory."""
SUM_SLACK = 1e-3
"""pi0's probabilities of the candidates of a request may differ from 1, together, by so much."""


@dataclass(frozen=True, eq=False, repr=False)
class Candidates:
    """The candidates of u requests: those of request i are items[starts[i] : starts[i + 1]].

    Within a request items are distinct and in ascending order (`of_lists` and `of_flat` see to it),
    so that the order in which a ranker wrote them down changes nothing.

    Args:
        starts: (u + 1,) where the candidates of each request begin, and the end.
        items: (m,) positions in the catalogue.
        pi0: (m,) pi0's probability of each candidate; None where it is not known. An item that pi0
            has never shown is a candidate with probability 0.
    """

    starts: IntArray
    items: IntArray
    pi0: FloatArray | None = None

    def __post_init__(self) -> None:
        for name in ("starts", "items", "pi0"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, read_only(getattr(self, name)))

    @classmethod
    def of_flat(cls, sizes: Any, items: Any, pi0: Any = None, *, ids: Any = None) -> Candidates:
        """From the size of each set and all sets one after the other; checked.

        Args:
            sizes: (u,) how many candidates each request has.
            items: (m,) positions in the catalogue, in any order within a request.
            pi0: (m,) pi0's probability of each, or None.
            ids: (A,) what errors call the items; None for their positions.
        """
        counts = np.asarray(sizes, dtype=np.int64)
        starts = np.concatenate([[0], np.cumsum(counts)])
        listed: IntArray = np.asarray(items, dtype=np.int32)
        shares: FloatArray | None = None if pi0 is None else np.asarray(pi0, dtype=np.float64)
        _require_filled(counts, listed, shares)
        listed, shares = _in_order(starts, listed, shares, ids)
        if shares is not None:
            shares = _checked_shares(shares, starts)
        return cls(starts, listed, shares)

    @classmethod
    def of_lists(cls, lists: Sequence[Any], pi0: Sequence[Any] | None = None) -> Candidates:
        """From one list of positions for each request, and perhaps one list of probabilities."""
        sizes = [len(items) for items in lists]
        none = np.zeros(0)
        flat = np.concatenate([none, *(np.asarray(items) for items in lists)])
        if pi0 is None:
            return cls.of_flat(sizes, flat)
        require(
            [len(shares) for shares in pi0] == sizes,
            "pi0's probabilities must be as many as the candidates",
            found="lists of other lengths",
            cure="give one probability for each candidate, 0 for an item that pi0 never shows",
        )
        shares = np.concatenate([none, *(np.asarray(p, dtype=np.float64) for p in pi0)])
        return cls.of_flat(sizes, flat, shares)

    def __repr__(self) -> str:
        known = ", pi0 known" if self.pi0 is not None else ""
        return f"Candidates({len(self):,} requests, {len(self.items):,} candidates{known})"

    def __len__(self) -> int:
        return len(self.starts) - 1

    @cached_property
    def sizes(self) -> IntArray:
        """(u,) how many candidates each request has."""
        return np.diff(self.starts)

    @cached_property
    def request(self) -> IntArray:
        """(m,) which request each candidate belongs to."""
        return np.repeat(np.arange(len(self), dtype=np.int32), self.sizes)

    @cached_property
    def keys(self) -> np.ndarray[Any, np.dtype[np.uint64]]:
        """(u,) 64-bit hashes of the sets, and of pi0's probabilities of them."""
        together = [np.zeros(0, np.uint64)]
        for first, last in _pieces(self.starts):
            begin, end = self.starts[first], self.starts[last]
            entry = mix64(self.items[begin:end].astype(np.uint64))
            if self.pi0 is not None:
                entry = mix64(entry ^ self.pi0[begin:end].astype(np.float64).view(np.uint64))
            sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(entry, dtype=np.uint64)])
            starts = self.starts[first : last + 1] - begin
            together.append(sums[starts[1:]] - sums[starts[:-1]])
        return mix64(np.concatenate(together) ^ self.sizes.astype(np.uint64))

    def __getitem__(self, piece: slice) -> Candidates:
        """Some of the requests, which follow one another."""
        first, last, _ = piece.indices(len(self))
        starts = self.starts[first : last + 1]
        inside = slice(starts[0], starts[-1])
        pi0 = None if self.pi0 is None else self.pi0[inside]
        return Candidates(starts - starts[0], self.items[inside], pi0)

    def take(self, requests: IntArray) -> Candidates:
        """The given requests, in that order; one may be taken several times."""
        if np.array_equal(requests, np.arange(len(self))):
            return self
        sizes = self.sizes[requests]
        starts = np.concatenate([[0], np.cumsum(sizes)])
        moved = self.starts[requests] - starts[:-1]
        items = np.empty(starts[-1], dtype=self.items.dtype)
        pi0 = None if self.pi0 is None else np.empty(starts[-1], dtype=self.pi0.dtype)
        for first, last in _pieces(starts):
            begin, end = int(starts[first]), int(starts[last])
            at = np.arange(begin, end) + np.repeat(moved[first:last], sizes[first:last])
            items[begin:end] = self.items[at]
            if self.pi0 is not None and pi0 is not None:
                pi0[begin:end] = self.pi0[at]
        return Candidates(starts, items, pi0)

    def only(self, kept: Mask) -> Candidates:
        """Some of the candidates; a request may lose all of its own.

        Args:
            kept: (m,) which.
        """
        sizes = np.bincount(self.request[kept], minlength=len(self))
        starts = np.concatenate([[0], np.cumsum(sizes)])
        return Candidates(starts, self.items[kept], None if self.pi0 is None else self.pi0[kept])

    def entry(self, requests: IntArray, actions: IntArray) -> IntArray:
        """(n,) where the action is among all candidates; -1 if it is none of its request's."""
        low, end = self.starts[requests], self.starts[np.asarray(requests) + 1]
        high = end.copy()
        wanted = np.asarray(actions)
        while bool((low < high).any()):  # a binary search in all rows at once
            middle = (low + high) // 2
            open_ = low < high
            below = open_ & (self.items[np.minimum(middle, len(self.items) - 1)] < wanted)
            low = np.where(below, middle + 1, low)
            high = np.where(open_ & ~below, middle, high)
        there = (low < end) & (self.items[np.minimum(low, len(self.items) - 1)] == wanted)
        return np.where(there, low, -1)

    @staticmethod
    def joined(parts: Sequence[Candidates]) -> Candidates:
        """The requests of all parts, one after the other; pi0 is known if every part knows it."""
        starts = np.cumsum([0, *(len(part.items) for part in parts)])
        moved = [part.starts[1:] + start for part, start in zip(parts, starts, strict=False)]
        pi0 = [part.pi0 for part in parts if part.pi0 is not None]
        return Candidates(
            np.concatenate([[0], *moved]),
            np.concatenate([part.items for part in parts]),
            np.concatenate(pi0) if len(pi0) == len(parts) else None,
        )


def _require_filled(sizes: IntArray, items: IntArray, pi0: FloatArray | None) -> None:
    """Refuse empty sets, and columns of other lengths."""
    empty = np.flatnonzero(sizes <= 0)
    if len(empty):
        raise DataError(
            "every request needs a candidate",
            column="candidates",
            row=int(empty[0]),
            value=int(sizes[empty[0]]),
            count=len(empty),
            cure="leave out requests for which nothing could be shown",
        )
    lengths = [len(items), *([] if pi0 is None else [len(pi0)])]
    require(
        lengths == [int(sizes.sum())] * len(lengths),
        "there must be as many candidates, and probabilities of pi0, as the sizes say",
        found=f"{lengths}, and sizes that sum to {int(sizes.sum())}",
    )


def _pieces(starts: IntArray) -> list[tuple[int, int]]:
    """Requests, from one to before another, with not much more than so many candidates."""
    u = len(starts) - 1
    step = np.arange(0, starts[-1] + AT_ONCE, AT_ONCE)
    cuts = np.unique(np.append(np.searchsorted(starts, step), [0, u]))
    cuts = np.minimum(cuts, u)
    return [(a, b) for a, b in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True) if a < b]


def _in_order(
    starts: IntArray, items: IntArray, pi0: FloatArray | None, ids: Any
) -> tuple[IntArray, FloatArray | None]:
    """(m,) and (m,) the candidates of each request in ascending order; repeated ones are refused.

    What is in order already is handed back as it came.
    """
    given, repeated, row, item = items, 0, 0, 0
    for first, last in _pieces(starts):
        begin, end = int(starts[first]), int(starts[last])
        bounds, mine = starts[first : last + 1] - begin, items[begin:end]
        inside = np.ones(len(mine) - 1, dtype=bool)  # a candidate and the next, of one request
        inside[bounds[1:-1] - 1] = False
        if bool((inside & (mine[1:] < mine[:-1])).any()):
            if items is given:
                items, pi0 = items.copy(), None if pi0 is None else pi0.copy()
            request = np.repeat(np.arange(last - first), np.diff(bounds))
            order = np.argsort((request << 32) | mine.astype(np.int64))
            mine = items[begin:end] = mine[order]
            if pi0 is not None:
                pi0[begin:end] = pi0[begin:end][order]
        again = np.flatnonzero(inside & (mine[1:] == mine[:-1]))
        if len(again) and not repeated:
            row = first + int(np.searchsorted(bounds, again[0], side="right")) - 1
            item = int(mine[again[0]])
        repeated += len(again)
    if repeated:
        raise DataError(
            "the candidates of a request must be distinct",
            column="candidates",
            row=row,
            value=item if ids is None else ids[item].item(),
            count=repeated,
            cure="list each item once; where pi0 has it in several places, add up its "
            "probabilities",
        )
    return items, pi0


def _checked_shares(shares: FloatArray, starts: IntArray) -> FloatArray:
    """(m,) pi0's probabilities, made to sum to 1 in each request; others are refused."""
    bad = ~((shares >= 0) & (shares <= 1))  # NaN fails too
    if bool(bad.any()):
        wrong = np.flatnonzero(bad)
        raise DataError(
            "pi0's probabilities of the candidates must lie in [0, 1]",
            column="probabilities",
            row=int(np.searchsorted(starts, wrong[0], side="right")) - 1,
            value=float(shares[wrong[0]]),
            count=len(wrong),
            cure="log the probability with which pi0 would show each candidate",
        )
    total = np.add.reduceat(shares, starts[:-1])
    off = np.flatnonzero(np.abs(total - 1) > SUM_SLACK)
    if len(off):
        raise DataError(
            "pi0's probabilities of the candidates of a request must sum to 1",
            column="probabilities",
            row=int(off[0]),
            value=float(total[off[0]]),
            count=len(off),
            cure="log all candidates with their probabilities; if some were left out, say which "
            "items were kept with --kept",
        )
    out = np.empty(len(shares))
    for first, last in _pieces(starts):
        begin, end = starts[first], starts[last]
        of_each = np.repeat(total[first:last], np.diff(starts[first : last + 1]))
        np.divide(shares[begin:end], of_each, out=out[begin:end])
    return out


@dataclass(frozen=True, eq=False)
class Places:
    """Which item stands at each of the L places of c requests.

    Args:
        items: (c, L) positions in the catalogue; (1, A) where all actions are candidates.
        there: (c, L) which places hold a candidate; None where all do. Other places hold item 0.
    """

    items: IntArray
    there: Mask | None

    def pick(self, by_item: Array, empty: Any = 0) -> Array:
        """(c, L), or (1, A): the value of each place's item, out of (A,) values by item."""
        values = np.asarray(by_item)[self.items]
        return values if self.there is None else np.where(self.there, values, empty)


@dataclass(frozen=True, eq=False)
class Requests:
    """u requests.

    Args:
        contexts: (u, d) the context of each request.
        candidates: the actions that could be shown; "all" is the whole catalogue, for every
            request, which is the dense case: a distribution then has A entries.
        within: the requests that these are a piece of, and which piece: so that what was worked
            out for the whole is found again.
    """

    contexts: FloatArray
    candidates: Literal["all"] | Candidates = "all"
    within: tuple[Requests, slice] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.candidates, str):
            require(
                len(self.candidates) == len(self.contexts),
                "every request has a context and a set of candidates",
                found=f"{len(self.contexts)} contexts, {short(self.candidates)}",
            )

    def __len__(self) -> int:
        return len(self.contexts)

    def __getitem__(self, piece: slice) -> Requests:
        """Some of the requests, which follow one another."""
        first, last, _ = piece.indices(len(self))
        whole, start = (self, 0) if self.within is None else (self.within[0], self.within[1].start)
        inside = slice(start + first, start + max(first, last))
        return Requests(self.contexts[piece], self._of(lambda sets: sets[piece]), (whole, inside))

    def take(self, requests: IntArray) -> Requests:
        """The given requests, in that order."""
        return Requests(self.contexts[requests], self._of(lambda sets: sets.take(requests)))

    def _of(self, change: Any) -> Literal["all"] | Candidates:
        return "all" if isinstance(self.candidates, str) else change(self.candidates)

    @property
    def sets(self) -> Candidates | None:
        """The candidates where each request has its own; None in the dense case."""
        return None if isinstance(self.candidates, str) else self.candidates

    @cached_property
    def keys(self) -> np.ndarray[Any, np.dtype[np.uint64]]:
        """(u,) 64-bit hashes of the requests."""
        keys = row_keys(self.contexts)
        return keys if self.sets is None else mix64(keys ^ self.sets.keys)

    def width(self, n_actions: int) -> int:
        """L: how many places a table over these requests has."""
        sets = self.sets
        if sets is None:
            return n_actions
        return int(sets.sizes.max(initial=1))

    def places(self, n_actions: int) -> Places:
        """Which item stands where in a table over these requests."""
        sets = self.sets
        if sets is None:
            return Places(np.arange(n_actions, dtype=np.int32)[None], None)
        there = np.arange(self.width(n_actions)) < sets.sizes[:, None]
        items = np.zeros(there.shape, dtype=np.int32)
        items[there] = sets.items
        return Places(items, there)

    def table(self, values: Array, n_actions: int) -> Array:
        """(u, L) values that come one for each candidate; other places hold 0."""
        sets = self.sets
        if sets is None:
            return np.asarray(values).reshape(len(self), n_actions)
        there = np.arange(self.width(n_actions)) < sets.sizes[:, None]
        out = np.zeros(there.shape, dtype=np.asarray(values).dtype)
        out[there] = values
        return out

    def place(self, actions: IntArray, rows: IntArray) -> IntArray:
        """(n,) at which place of its request an action stands; -1 if it is no candidate there."""
        sets = self.sets
        if sets is None:
            return np.asarray(actions)
        entry = sets.entry(rows, actions)
        return np.where(entry < 0, -1, entry - sets.starts[rows])

    def chunks(self, n_actions: int, entries: int) -> list[slice]:
        """Pieces of the requests whose tables have at most so many entries, or one request."""
        sets = self.sets
        if sets is None:
            each = max(1, entries // n_actions)
            return [slice(k, min(k + each, len(self))) for k in range(0, len(self), each)]
        pieces, first, sizes = [], 0, sets.sizes
        while first < len(self):
            ahead = np.maximum.accumulate(sizes[first : first + entries // sizes[first] + 1])
            tables = ahead * np.arange(1, len(ahead) + 1)
            last = first + max(1, int(np.searchsorted(tables, entries, side="right")))
            pieces.append(slice(first, last))
            first = last
        return pieces


def as_requests(requests: Requests | FloatArray) -> Requests:
    """Requests as they are; a plain (u, d) array of contexts with the whole catalogue for each."""
    return requests if isinstance(requests, Requests) else Requests(requests)


def distinct_requests(requests: Requests) -> tuple[IntArray, IntArray]:
    """Places of the distinct requests, in order of first appearance; (n,) which each one is.

    Requests are compared by 64-bit hashes first, and then checked.
    """
    _, first, which = np.unique(requests.keys, return_index=True, return_inverse=True)
    if len(first) < len(requests) and not _equal(requests, first[which]):
        raise RuntimeError("two different requests have the same 64-bit hash")
    order = np.argsort(first)
    rank = np.empty(len(order), dtype=np.int32)
    rank[order] = np.arange(len(order))
    return first[order], rank[which.reshape(-1)]


def _equal(requests: Requests, others: IntArray) -> bool:
    """Whether each request is what stands at the other place."""
    differ = np.flatnonzero(others != np.arange(len(requests)))
    sets = requests.sets
    most = 1 if sets is None else int(sets.sizes.max(initial=1))
    step = max(1, AT_ONCE // most)
    pieces = [differ[k : k + step] for k in range(0, len(differ), step)]
    return all(_alike(requests.take(piece), requests.take(others[piece])) for piece in pieces)


def _alike(mine: Requests, theirs: Requests) -> bool:
    """Whether requests are the same, one by one."""
    if not np.array_equal(mine.contexts, theirs.contexts):
        return False
    a, b = mine.sets, theirs.sets
    if a is None or b is None:
        return True
    same = np.array_equal(a.starts, b.starts) and np.array_equal(a.items, b.items)
    return same and (a.pi0 is None or b.pi0 is None or np.array_equal(a.pi0, b.pi0))


@dataclass(frozen=True)
class PolicyVersion:
    """Rows that were logged while one version of pi0 was in production.

    Args:
        version: its name; "" where the rows do not say.
        rows: how many.
        first, last: times of the first and the last of them, as text; None without times.
    """

    version: str
    rows: int
    first: str | None = None
    last: str | None = None


def versions_of(version: Array, time: Array | None) -> tuple[PolicyVersion, ...]:
    """The versions of some rows, the oldest first; without times in the order of the rows.

    Args:
        version: (n,) the version that logged each row.
        time: (n,) times of the rows, or None.
    """
    names, first, which = np.unique(version, return_index=True, return_inverse=True)
    rows = np.bincount(which)
    times: list[tuple[Any, Any]] = [(place, None) for place in first.tolist()]
    if time is not None:
        order = np.argsort(which, kind="stable")
        spans = [time[part] for part in np.split(order, np.cumsum(rows)[:-1])]
        times = [(span.min(), span.max()) for span in spans]
    found = [
        (
            start,
            PolicyVersion(name, count)
            if end is None
            else PolicyVersion(name, count, str(start), str(end)),
        )
        for name, count, (start, end) in zip(names.tolist(), rows.tolist(), times, strict=True)
    ]
    return tuple(version for _, version in sorted(found, key=lambda pair: pair[0]))
