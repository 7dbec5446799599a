"""Content hashes: the same rows have the same hash, however they were stored, built or read.

The hash goes through the rows column by column. A column comes in partitions, one after the other:
one in memory, several from files, and the hash does not depend on where they are cut. Contexts and
units enter once each, in order of first appearance, and then as numbers.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from depsue.data.keys import compacted

if TYPE_CHECKING:
    from depsue.data.catalogue import Catalogue
    from depsue.data.checks import Array, IntArray
    from depsue.data.logs import LoggedData

KINDS = {"M": "<M8[us]", "f": "<f8", "b": "<f8", "i": "<i8"}
"""As what a column of times, ids or other values enters; strings are none of these."""
SORTED_AT_ONCE = 1 << 21
"""Keys that are sorted at a time, about."""

Column: TypeAlias = "Callable[[], Iterable[Array]]"
"""Goes through the partitions of a column, from the first one whenever it is called."""


def logs_hash(logs: LoggedData) -> str:
    """SHA-256 over the catalogue, r_max and every column, the order of rows included.

    Contexts and units enter in order of first appearance, so it does not matter how they
    are numbered.
    """

    def column(values: Array) -> Column:
        return lambda: [values]

    def indexed(values: Array, index: IntArray) -> Indexed:
        rows, used = compacted(index, len(values))
        return Indexed(lambda: [(values[used], rows)])

    units = None
    if logs.unit is not None and logs.units is not None:
        units = indexed(logs.units, logs.unit)
    rows = HashedRows(
        catalogue=logs.catalogue.hash,
        r_max=logs.r_max,
        n=len(logs),
        contexts=indexed(logs.contexts, logs.context),
        action=column(logs.action),
        reward=column(logs.reward),
        propensity=column(logs.propensity),
        units=units,
        time=None if logs.time is None else column(_times(logs.time)),
        decision=None if logs.decision is None else column(logs.decision),
        round=None if logs.round is None else column(logs.round),
        others={name: column(values) for name, values in logs.columns.items()},
        sets=_sets(logs),
        by_pi0=None if logs.by_pi0 is None else column(logs.by_pi0),
        version=None if logs.version is None else column(logs.version),
    )
    return rows_hash(rows).hash


def _sets(logs: LoggedData) -> Mapping[str, tuple[str, Array]]:
    """The candidates of the distinct requests in order of first appearance, as flat arrays."""
    if logs.candidates is None:
        return {}
    sets, order = logs.candidates, compacted(logs.context, len(logs.contexts))[1]
    if not np.array_equal(order, np.arange(len(sets))):
        sets = sets.take(order)
    known = {} if sets.pi0 is None else {"candidates' pi0": ("<f8", sets.pi0)}
    return {"candidates": ("<i4", sets.items), "how many": ("<i8", sets.sizes), **known}


def catalogue_hash(catalogue: Catalogue) -> str:
    """SHA-256 over ids, their order, features, and which actions are novel."""
    content = Content("depsue catalogue 1")
    content.add_column("id", len(catalogue.ids), lambda: [catalogue.ids])
    content.add("novel", catalogue.novel, "|u1")
    if catalogue.features is not None:
        content.add("features", catalogue.features, "<f4")
    return content.hex()


@dataclass(frozen=True)
class Indexed:
    """A column of values that repeat, contexts or units, in partitions.

    Args:
        partitions: goes through them: the distinct values of a partition in order of first
            appearance, and (m,) which of them each of its rows has.
        keys: 64-bit keys of the distinct values of all partitions, in a row, handed over once; None
            where there is one partition.
    """

    partitions: Callable[[], Iterable[tuple[Array, IntArray]]]
    keys: Callable[[], array[int]] | None = None

    def ranks(self) -> tuple[Array, int]:
        """For the values of all partitions their number among all; and how many there are."""
        if self.keys is not None:
            return ranked(self.keys())
        ((values, _),) = self.partitions()
        return np.arange(len(values)), len(values)


@dataclass(frozen=True)
class HashedRows:
    """n rows, as columns that the hash goes through one after the other.

    Args:
        catalogue: the hash of the catalogue.
        r_max: the declared largest reward.
        n: how many rows.
        contexts: the (u, d) contexts.
        action, reward, propensity: (n,) each.
        units: the units, if there are any.
        time, decision, round: (n,) each, where known.
        others: further (n,) columns by name.
        sets: what the distinct requests bring, as typed arrays by name: their candidates.
        by_pi0: (n,) pi0's probability of what it chose itself, where that is logged.
        version: (n,) pi0's version, where that is logged.
    """

    catalogue: str
    r_max: float
    n: int
    contexts: Indexed
    action: Column
    reward: Column
    propensity: Column
    units: Indexed | None
    time: Column | None
    decision: Column | None
    round: Column | None
    others: Mapping[str, Column]
    sets: Mapping[str, tuple[str, Array]] = field(default_factory=dict)
    by_pi0: Column | None = None
    version: Column | None = None


@dataclass(frozen=True)
class RowsHash:
    """The hash of rows, and how many units there are among them (0 without)."""

    hash: str
    units: int


def rows_hash(rows: HashedRows) -> RowsHash:
    """SHA-256 of the rows: see `logs_hash`."""
    content, n = Content(f"depsue logs 1 {rows.catalogue} {rows.r_max!r}"), rows.n
    rank, count = rows.contexts.ranks()
    content.add_partitions("contexts", "<f4", count, _firsts(rank, rows.contexts))
    content.add_partitions("context", "<i4", n, _numbers(rank, rows.contexts))
    del rank  # 8 bytes for every context that is distinct within its partition
    content.add_partitions("action", "<i4", n, rows.action())
    content.add_partitions("reward", "<f8", n, rows.reward())
    content.add_partitions("propensity", "<f8", n, rows.propensity())
    units, count = rows.units, 0
    if units is not None:
        of_units, count = units.ranks()
        content.add_column("units", count, lambda: _firsts(of_units, units))
        content.add_partitions("unit", "<i4", n, _numbers(of_units, units))
    if rows.time is not None:
        content.add_column("time", n, rows.time)
    if rows.decision is not None:
        content.add_partitions("decision", "<u8", n, rows.decision())
    if rows.round is not None:
        content.add_partitions("round", "<i2", n, rows.round())
    for name, (kind, values) in rows.sets.items():
        content.add(name, values, kind)
    if rows.by_pi0 is not None:
        content.add_partitions("by pi0", "<f8", n, rows.by_pi0())
    if rows.version is not None:
        content.add_column("version", n, rows.version)
    for name in sorted(rows.others):
        content.add_column(f"column {name}", n, rows.others[name])
    return RowsHash(content.hex(), count)


class Content:
    """SHA-256 over named arrays; names, types and shapes count."""

    def __init__(self, kind: str) -> None:
        self._digest = hashlib.sha256(kind.encode())

    def add(self, name: str, values: Array, kind: str) -> None:
        """Absorb an array as the little-endian type `kind`."""
        self._begin(name, kind, values.shape)
        self._digest.update(np.ascontiguousarray(values, dtype=kind).data)

    def add_partitions(self, name: str, kind: str, n: int, partitions: Iterable[Array]) -> None:
        """Absorb n values that come in partitions, as `add` absorbs them in one array."""
        for place, values in enumerate(partitions):
            if place == 0:
                self._begin(name, kind, (n, *values.shape[1:]))
            self._digest.update(values.astype(kind).tobytes())

    def add_column(self, name: str, n: int, column: Column) -> None:
        """Absorb n times, numbers, integer ids or strings: of strings all lengths, then texts."""
        partitions = iter(column())
        first = next(partitions)
        everything = chain([first], partitions)
        kind = KINDS.get(first.dtype.kind)
        if kind is not None:
            self.add_partitions(name, kind, n, everything)
            return
        lengths = (np.array([len(text) for text in _texts(part)]) for part in everything)
        self.add_partitions(name, "<i8", n, lengths)
        for part in column():
            self._digest.update(b"".join(_texts(part)))

    def hex(self) -> str:
        """The hash so far."""
        return self._digest.hexdigest()

    def _begin(self, name: str, kind: str, shape: tuple[int, ...]) -> None:
        self._digest.update(f"\n{name} {kind} {shape}\n".encode())


def ranked(keys: array[int]) -> tuple[Array, int]:
    """(m,) for each key, the number of its first appearance; and how many there are. In place.

    Equal keys are found in parts of the range of keys, one part sorted at a time, so that hardly
    any memory is needed beside the keys. What is settled becomes small, which is part 0: so part
    0 comes first.
    """
    ranks = np.frombuffer(keys, dtype=np.uint64)
    bits = (len(ranks) // SORTED_AT_ONCE).bit_length()
    for part in range(2**bits):
        low = part << (64 - bits)
        mask = ranks >= np.uint64(low)
        mask &= ranks <= np.uint64(low + (1 << (64 - bits)) - 1)
        at = np.flatnonzero(mask)
        _, first, inverse = np.unique(ranks[at], return_index=True, return_inverse=True)
        ranks[at] = at[first[inverse]]
    count = 0
    for start in range(0, len(ranks), SORTED_AT_ONCE):
        piece = ranks[start : start + SORTED_AT_ONCE]
        place = piece.copy()
        new = place == np.arange(start, start + len(piece), dtype=np.uint64)
        piece[new] = np.arange(count, count + np.count_nonzero(new), dtype=np.uint64)
        count += int(np.count_nonzero(new))
        piece[~new] = ranks[place[~new]]
    return ranks, count


def _firsts(rank: Array, column: Indexed) -> Iterator[Array]:
    """What appears for the first time, partition by partition."""
    place = count = 0
    for distinct, _ in column.partitions():
        new = rank[place : place + len(distinct)] >= count
        yield distinct[new]
        place, count = place + len(distinct), count + int(np.count_nonzero(new))


def _numbers(rank: Array, column: Indexed) -> Iterator[Array]:
    """The number of each row's context or unit, partition by partition."""
    place = 0
    for distinct, which in column.partitions():
        yield rank[place : place + len(distinct)][which]
        place += len(distinct)


def _texts(ids: Array) -> list[bytes]:
    return [str(text).encode("utf-8", "surrogatepass") for text in ids]


def _times(time: Array) -> Array:
    """Dates as they are, anything else as numbers."""
    return time if time.dtype.kind == "M" else time.astype(np.float64)
