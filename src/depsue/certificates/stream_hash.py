"""The content hash of rows that are read in batches: the same as `LoggedData.hash`.

The hash goes through the rows column by column, so every column is read by a pass of its own.
Contexts and units enter once each, in order of first appearance, and then as numbers: for that the
64-bit keys of the distinct ones of each batch are kept, 8 bytes each (`ranked`).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from depsue.data.checks import (
    Array,
    IntArray,
    finite_matrix,
    number_column,
    plain_column,
    plain_ids,
    require_rows,
    round_column,
    time_column,
)
from depsue.data.folds import keys_of_ids
from depsue.data.hashes import Content
from depsue.data.keys import distinct_ids, distinct_rows, row_keys
from depsue.data.reading import contexts_of

if TYPE_CHECKING:
    import polars as pl

    from depsue.certificates.stream import LogStream

KINDS = {"M": "<M8[us]", "f": "<f8", "b": "<f8", "i": "<i8"}
"""As what a column of times, ids or other values enters; strings are none of these."""
PIECE = 1 << 21
"""Keys that are sorted at a time, about."""


class Facts(NamedTuple):
    """What all rows of a stream say.

    Args:
        rows: n.
        units: how many units; 0 without.
        rounds: the distinct rounds.
        hash: SHA-256 of the rows.
    """

    rows: int
    units: int
    rounds: IntArray
    hash: str


class Pieces(Content):
    """A content hash that takes an array in pieces."""

    def take(self, name: str, kind: str, shape: tuple[int, ...], pieces: Iterable[Array]) -> None:
        """Absorb what is `Content.add` of the whole array."""
        self._digest.update(f"\n{name} {kind} {shape}\n".encode())
        for piece in pieces:
            self._digest.update(piece.astype(kind).tobytes())

    def take_any(self, name: str, n: int, pieces: Callable[[], Iterator[Array]]) -> None:
        """Absorb n times, numbers, integer ids or strings; `pieces` goes through them anew.

        Strings are what `Content.add_ids` makes of them: all lengths, then all texts.
        """
        found = pieces()
        first = next(found)
        found = chain([first], found)
        kind = KINDS.get(first.dtype.kind)
        if kind is not None:
            self.take(name, kind, (n,), found)
            return
        self.take(name, "<i8", (n,), (np.array([len(t) for t in _texts(p)]) for p in found))
        for piece in pieces():
            self._digest.update(b"".join(_texts(piece)))


def facts_of(stream: LogStream) -> Facts:
    """Check every row, count them, and take their hash, as `depsue.data.hashes.logs_hash` does."""
    keys, n, rounds = array("Q"), 0, set[int]()
    for start, table in stream.tables():
        logs = stream.logs(table, np.arange(start, start + len(table)))
        keys.frombytes(row_keys(logs.contexts).tobytes())
        rounds.update(np.unique(np.asarray(logs.round)).tolist())
        n, width = start + len(table), logs.contexts.shape[1]
    require_rows(n)
    mapping, catalogue = stream.mapping, stream.catalogue
    content = Pieces(f"depsue logs 1 {catalogue.hash} {float(mapping.r_max)!r}")

    def matrices() -> Iterator[tuple[Array, IntArray]]:
        names = [f"x:{name}" for name in (*mapping.numeric, *mapping.categorical)] or ["action"]
        for _, table in stream.tables(names):
            yield distinct_rows(finite_matrix(contexts_of(table, mapping), "context"))

    rank, count = ranked(keys)
    content.take("contexts", "<f4", (count, width), _firsts(rank, matrices()))
    content.take("context", "<i4", (n,), _numbers(rank, matrices()))
    del rank, keys

    def column(role: str, read: Callable[[pl.Series], Array]) -> Iterator[Array]:
        return (read(table[role]) for _, table in stream.tables([role]))

    content.take("action", "<i4", (n,), column("action", catalogue.index))
    flags = column("reward", lambda values: number_column(values, "reward", flags=True))
    content.take("reward", "<f8", (n,), flags)
    drawn = column("propensity", lambda values: number_column(values, "propensity"))
    content.take("propensity", "<f8", (n,), drawn)
    units = 0
    if mapping.unit is not None:

        def ids() -> Iterator[tuple[Array, IntArray]]:
            return (distinct_ids(one) for one in column("unit", lambda v: plain_ids(v, "unit")))

        keys = array("Q")
        for some, _ in ids():
            keys.frombytes(keys_of_ids(some).tobytes())
        rank, units = ranked(keys)
        content.take_any("units", units, lambda: _firsts(rank, ids()))
        content.take("unit", "<i4", (n,), _numbers(rank, ids()))
    if mapping.time is not None:
        content.take_any("time", n, lambda: column("time", time_column))
    if mapping.round is not None:
        content.take("round", "<i2", (n,), column("round", round_column))
    else:
        content.take("round", "<i2", (n,), (np.zeros(len(t)) for _, t in stream.tables(["action"])))
    for name in sorted({*mapping.other_rewards, *mapping.segments}):

        def others(name: str = name) -> Iterator[Array]:
            return column(f"k:{name}", lambda values: plain_column(values, name))

        content.take_any(f"column {name}", n, others)
    return Facts(n, units, np.array(sorted(rounds)), content.hex())


def ranked(keys: array[int]) -> tuple[Array, int]:
    """(m,) for each key, the number of its first appearance; and how many there are. In place.

    Equal keys are found in parts of the range of keys, one part sorted at a time, so that hardly
    any memory is needed beside the keys. What is settled becomes small, which is part 0: so part
    0 comes first.
    """
    found = np.frombuffer(keys, dtype=np.uint64)
    bits = (len(found) // PIECE).bit_length()
    for part in range(2**bits):
        low = part << (64 - bits)
        mask = found >= np.uint64(low)
        mask &= found <= np.uint64(low + (1 << (64 - bits)) - 1)
        at = np.flatnonzero(mask)
        _, first, inverse = np.unique(found[at], return_index=True, return_inverse=True)
        found[at] = at[first[inverse]]
    count = 0
    for start in range(0, len(found), PIECE):
        piece = found[start : start + PIECE]
        place = piece.copy()
        new = place == np.arange(start, start + len(piece), dtype=np.uint64)
        piece[new] = np.arange(count, count + np.count_nonzero(new), dtype=np.uint64)
        count += int(np.count_nonzero(new))
        piece[~new] = found[place[~new]]
    return found, count


def _firsts(rank: Array, batches: Iterator[tuple[Array, IntArray]]) -> Iterator[Array]:
    """What appears for the first time, batch by batch."""
    place = count = 0
    for distinct, _ in batches:
        new = rank[place : place + len(distinct)] >= count
        yield distinct[new]
        place, count = place + len(distinct), count + int(np.count_nonzero(new))


def _numbers(rank: Array, batches: Iterator[tuple[Array, IntArray]]) -> Iterator[Array]:
    """The number of each row's context or unit, batch by batch."""
    place = 0
    for distinct, which in batches:
        yield rank[place : place + len(distinct)][which]
        place += len(distinct)


def _texts(ids: Array) -> list[bytes]:
    return [str(one).encode("utf-8", "surrogatepass") for one in ids]
