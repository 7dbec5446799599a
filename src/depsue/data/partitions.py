"""Logs that are read a partition at a time, again and again: for more rows than memory holds."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from depsue.data.catalogue import Catalogue
from depsue.data.checks import (
    Array,
    FloatArray,
    IntArray,
    finite_matrix,
    naming,
    number_column,
    plain_column,
    plain_ids,
    require_rows,
    round_column,
    time_column,
)
from depsue.data.folds import checked_fractions, keys_of_ids
from depsue.data.hashes import HashedRows, Indexed, rows_hash
from depsue.data.identity import (
    IdentityKind,
    LogSketch,
    SketchBuilder,
    identities,
    keyed_folds,
)
from depsue.data.keys import Keys, distinct_ids, distinct_rows, mix64, row_keys
from depsue.data.logs import NOT_AN_ID, ONE_ROW, LoggedData
from depsue.data.mapping import LogMapping
from depsue.data.reading import (
    Source,
    contexts_of,
    logs_of,
    mapped,
    open_source,
    require_one_position,
)
from depsue.data.tables import tried
from depsue.errors import DataError, require, short
from depsue.plural import counted

if TYPE_CHECKING:
    import polars as pl

BATCH = 250_000
"""Rows of a partition."""


@dataclass(frozen=True, eq=False)
class LogStream:
    """Rows of a source through a mapping, in partitions of checked `LoggedData`.

    The files are read several times and must not change meanwhile; that every pass sees the same
    number of rows is checked.

    Args:
        source: where the rows lie.
        mapping: which column is what.
        catalogue: the A actions.
        batch: rows of a partition, in memory at a time; it changes no result.
    """

    source: Source
    mapping: LogMapping
    catalogue: Catalogue
    batch: int = BATCH

    @classmethod
    def open(
        cls, path: str | Path, mapping: LogMapping, catalogue: Catalogue, batch: int = BATCH
    ) -> LogStream:
        """The rows of a file, of the files of a folder, or of those that a pattern matches."""
        return cls(open_source(path), mapping, catalogue, batch)

    def __post_init__(self) -> None:
        require(
            isinstance(self.batch, int) and self.batch > 0,
            "a batch is a positive number of rows",
            found=short(self.batch),
            cure=f"the default is {BATCH:,}",
        )
        require(
            self.mapping.candidates is None,
            "logs with lists of candidates must fit into memory, for now",
            found=f"candidates = {self.mapping.candidates!r} in the mapping of a stream",
            cure="read them with read_mapped; where they are too many, take a sample of the units",
        )
        require_one_position(self.source, self.mapping)

    @property
    def hash(self) -> str:
        """SHA-256 of the rows: that of the same rows in memory."""
        return self.facts.hash

    @cached_property
    def facts(self) -> StreamFacts:
        """What all rows say, each of them checked: a pass for every column, once."""
        return _facts(self)

    @property
    def sketch(self) -> LogSketch:
        """What a ledger knows the rows by."""
        return self.facts.sketch

    def keyed_split(
        self, fractions: Sequence[float], secret: str, kind: IdentityKind
    ) -> tuple[StreamedFold, ...]:
        """Folds by a keyed hash of what names each row, as of the same rows in memory.

        Args:
            fractions: shares that sum to 1.
            secret: the key, 64 hexadecimal digits.
            kind: by what a row is named.
        """
        shares = tuple(checked_fractions(fractions).tolist())
        folds = tuple(StreamedFold(self, shares, secret, kind, k) for k in range(len(shares)))
        seen = np.zeros(len(shares), dtype=np.int64)
        columns = {
            "unit": ["unit"],
            "decision": ["decision"],
            "row": ["action"],
            "time": None,
        }[kind]
        if columns is not None and self.mapping.estimates:
            columns = [*columns, "estimating"]
        for start, table in self.tables(columns):
            which = folds[0].of(table, self.identities(table, start, kind))
            seen += np.bincount(which, minlength=len(shares))
        if not seen.all():
            raise DataError(
                "every fold needs at least one row",
                column=kind,
                found=f"fold {int(seen.argmin())} of {len(shares)} is empty",
                cure="collect more data, or use fewer folds",
            )
        for fold, size in zip(folds, seen.tolist(), strict=True):
            object.__setattr__(fold, "rows", size)
        return folds

    def tables(self, columns: Sequence[str] | None = None) -> Iterator[tuple[int, pl.DataFrame]]:
        """The mapped rows, a partition at a time: the number of the first row, and the table."""
        import polars as pl

        frame = self._frame if columns is None else self._frame.select(list(columns))
        name, start, waiting = self.source.name, 0, list[pl.DataFrame]()
        batches = tried(
            lambda: frame.collect_batches(chunk_size=self.batch, engine="streaming"), name
        )
        while (table := tried(lambda: next(batches, None), name)) is not None:
            waiting.append(table)
            while sum(map(len, waiting)) >= self.batch:
                whole = pl.concat(waiting)
                yield start, whole[: self.batch]
                start, waiting = start + self.batch, [whole[self.batch :]]
        rest = sum(map(len, waiting))
        if rest:
            yield start, pl.concat(waiting)
        known = self.__dict__.get("facts")
        known_rows = start + rest if known is None else known.rows
        require(
            known_rows == start + rest,
            "the files must not change while they are read",
            found=f"{start + rest:,} rows, where there were {known_rows:,}",
            cure="copy them first, and certify on the copy",
        )

    def logs(self, table: pl.DataFrame, rows: IntArray) -> LoggedData:
        """Rows of a partition as checked logs; errors name rows by (n,) their numbers."""
        with naming({}, rows):
            return logs_of(table, self.mapping, self.catalogue)

    def identities(self, table: pl.DataFrame, start: int, kind: IdentityKind) -> Keys:
        """(n,) what names each row of a partition: see `depsue.data.identity`."""
        numbers = np.arange(start, start + len(table))
        if kind == "row":
            return mix64(numbers.astype(np.uint64))
        if kind == "unit" and self.mapping.unit is not None:
            with naming({"unit": self.mapping.unit}, numbers):
                ids, which = distinct_ids(plain_ids(table["unit"], "unit"))
            return mix64(keys_of_ids(ids))[which]
        if kind == "decision" and self.mapping.decision is not None:
            with naming({"decision": self.mapping.decision}, numbers):
                return mix64(keys_of_ids(plain_ids(table["decision"], "decision")))
        return identities(self.logs(table, numbers), kind, start)

    @cached_property
    def _frame(self) -> pl.LazyFrame:
        return mapped(self.source, self.mapping)


@dataclass(frozen=True, eq=False)
class StreamedFold:
    """One fold of a stream.

    Args:
        stream: all rows.
        shares: the shares of all folds.
        secret: what the split hangs on.
        kind: by what a row is named.
        which: which of the folds this is.
        rows: how many rows it has.
    """

    stream: LogStream
    shares: tuple[float, ...]
    secret: str
    kind: IdentityKind
    which: int
    rows: int = field(default=0)

    @property
    def r_max(self) -> float:
        """The largest possible reward, declared in the mapping."""
        return self.stream.mapping.r_max

    @property
    def unit(self) -> str | None:
        """The column of units, where there is one."""
        return self.stream.mapping.unit

    def of(self, table: pl.DataFrame, names: Keys) -> IntArray:
        """(n,) the fold of each row of a partition, by its identity.

        Rows that propensities were estimated on are not of the last fold but of the first.
        """
        which = keyed_folds(names, self.shares, self.secret)
        if "estimating" in table.columns:
            estimating = table["estimating"].to_numpy().astype(bool)
            which[estimating & (which == len(self.shares) - 1)] = 0
        return which

    def partitions(self) -> Iterator[LoggedData]:
        """Its rows, a partition at a time."""
        for start, table in self.stream.tables():
            names = self.stream.identities(table, start, self.kind)
            mine = self.of(table, names) == self.which
            if mine.any():
                yield self.stream.logs(table.filter(mine), start + np.flatnonzero(mine))

    def sample(self, most: int) -> LoggedData:
        """About `most` of its rows in memory, to learn from: all rows of some units, or rows.

        Args:
            most: how many rows, about; all of them if there are fewer.
        """
        import polars as pl

        step = np.uint64(max(1, -(-self.rows // most)))
        tables, rows = [], []
        for start, table in self.stream.tables():
            names = self.stream.identities(table, start, self.kind)
            # a hash without the secret: whether a unit is sampled does not depend on its fold
            mine = (self.of(table, names) == self.which) & (mix64(names) % step == 0)
            tables.append(table.filter(mine))
            rows.append(start + np.flatnonzero(mine))
        return self.stream.logs(pl.concat(tables), np.concatenate(rows))


@dataclass(frozen=True)
class StreamFacts:
    """What all rows of a stream say.

    Args:
        rows: n.
        units: how many units; 0 without.
        rounds: the distinct rounds.
        hash: SHA-256 of the rows.
        sketch: what a ledger knows the rows by.
    """

    rows: int
    units: int
    rounds: tuple[int, ...]
    hash: str
    sketch: LogSketch


def _facts(stream: LogStream) -> StreamFacts:
    """Check every row, count them, and take their hash: each column is read by a pass of its own.

    For contexts and units the 64-bit keys of those that are distinct within their partition are
    kept, 8 bytes each; for decisions those of all rows, until it is known that none is there twice.
    """
    context_keys, n, rounds, sketch = array("Q"), 0, set[int](), SketchBuilder()
    decision_keys = array("Q")
    for start, table in stream.tables():
        logs = stream.logs(table, np.arange(start, start + len(table)))
        context_keys.frombytes(row_keys(logs.contexts).tobytes())
        if logs.decision is not None:
            decision_keys.frombytes(logs.decision.tobytes())
        sketch.add(logs)
        rounds.update(np.unique(np.asarray(logs.round)).tolist())
        n = start + len(table)
    require_rows(n)
    mapping, catalogue = stream.mapping, stream.catalogue
    _require_distinct(decision_keys, mapping)
    del decision_keys

    def contexts() -> Iterator[tuple[Array, IntArray]]:
        names = [f"x:{name}" for name in (*mapping.numeric, *mapping.categorical)] or ["action"]
        for _, table in stream.tables(names):
            yield distinct_rows(finite_matrix(contexts_of(table, mapping), "context"))

    def units() -> Iterator[tuple[Array, IntArray]]:
        return (distinct_ids(ids) for ids in column("unit", lambda v: plain_ids(v, "unit"))())

    def unit_keys() -> array[int]:
        keys = array("Q")
        for ids, _ in units():
            keys.frombytes(keys_of_ids(ids).tobytes())
        return keys

    def column(role: str, read: Callable[[pl.Series], Array]) -> Callable[[], Iterator[Array]]:
        return lambda: (read(table[role]) for _, table in stream.tables([role]))

    def other(name: str) -> Callable[[], Iterator[Array]]:
        return column(f"k:{name}", lambda values: plain_column(values, name))

    held = [context_keys]
    del context_keys  # the hash is to free them as soon as contexts are through
    hashed = rows_hash(
        HashedRows(
            catalogue=catalogue.hash,
            r_max=float(mapping.r_max),
            n=n,
            contexts=Indexed(contexts, held.pop),
            action=column("action", catalogue.index),
            reward=column("reward", lambda v: number_column(v, "reward", flags=True)),
            propensity=column("propensity", lambda v: number_column(v, "propensity")),
            units=None if mapping.unit is None else Indexed(units, unit_keys),
            time=None if mapping.time is None else column("time", time_column),
            decision=None
            if mapping.decision is None
            else column("decision", lambda v: keys_of_ids(plain_ids(v, "decision"))),
            round=column("action", lambda v: np.zeros(len(v)))
            if mapping.round is None
            else column("round", round_column),
            by_pi0=None
            if mapping.by_pi0 is None
            else column("by_pi0", lambda v: number_column(v, "by_pi0")),
            version=None
            if mapping.version is None
            else column("version", lambda v: plain_ids(v, "version")),
            others={name: other(name) for name in {*mapping.other_rewards, *mapping.segments}},
        )
    )
    return StreamFacts(n, hashed.units, tuple(sorted(rounds)), hashed.hash, sketch.sketch())


def _require_distinct(keys: array[int], mapping: LogMapping) -> None:
    """Refuse ids of decisions that are in two partitions; each refused its own repeats before."""
    repeats = len(keys) - len(np.unique(np.frombuffer(keys, dtype=np.uint64)))
    if repeats:
        raise DataError(
            ONE_ROW,
            column=mapping.decision or "decision",
            found=f"{counted(repeats, 'row')} with an id of another",
            cure=NOT_AN_ID,
        )


class UnitNumbers:
    """Units numbered by first appearance over all partitions, with their rows: 20 bytes a unit.

    Args:
        most: how many units there are at most.
    """

    def __init__(self, most: int) -> None:
        self._keys = np.zeros(0, dtype=np.uint64)
        self._number = np.zeros(0, dtype=np.int32)
        self._rows = np.zeros(most)

    def of(self, ids: Array, unit: IntArray) -> IntArray:
        """(v,) the numbers of a partition's distinct ids; (n,) `unit` points rows at these."""
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
