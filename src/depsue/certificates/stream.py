"""Logs that are read a batch at a time, again and again: for more rows than memory holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from depsue.certificates.folds import FRACTIONS, three_folds
from depsue.certificates.stream_hash import Facts, facts_of
from depsue.data.catalogue import ActionCatalogue
from depsue.data.checks import Array, IntArray, naming, plain_ids
from depsue.data.folds import checked_fractions, fold_of_keys, keys_of_ids
from depsue.data.keys import distinct_ids, mix64
from depsue.data.logs import LoggedData
from depsue.data.mapping import LogMapping
from depsue.data.reading import Source, logs_of, mapped, open_source, require_one_position
from depsue.data.tables import tried
from depsue.errors import DataError, require, short

if TYPE_CHECKING:
    import polars as pl

BATCH = 250_000


@dataclass(frozen=True, eq=False)
class LogStream:
    """Rows of a source through a mapping, in batches of checked `LoggedData`.

    The files are read several times and must not change meanwhile; that every pass sees the same
    number of rows is checked.

    Args:
        source: where the rows lie.
        mapping: which column is what.
        catalogue: the A actions.
        batch: rows in memory at a time; it changes no result.
    """

    source: Source
    mapping: LogMapping
    catalogue: ActionCatalogue
    batch: int = BATCH

    @classmethod
    def open(
        cls, path: str | Path, mapping: LogMapping, catalogue: ActionCatalogue, batch: int = BATCH
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
        require_one_position(self.source, self.mapping)

    def folds(
        self, campaign: str, fractions: tuple[float, float, float] = FRACTIONS
    ) -> StreamedFolds:
        """The three folds that `three_folds` makes of the same rows in memory."""
        made = three_folds(cast(LoggedData, self), campaign, fractions)  # asks round, split, hash
        learn, select, certify = (
            cast(StreamedFold, fold) for fold in (made.learn, made.select, made.certify)
        )
        return StreamedFolds(
            learn, select, certify, made.data, made.campaign, made.fractions, made.round
        )

    @property
    def hash(self) -> str:
        """SHA-256 of the rows: that of the same rows in memory."""
        return self.facts.hash

    @property
    def round(self) -> IntArray:
        """The distinct rounds."""
        return self.facts.rounds

    @cached_property
    def facts(self) -> Facts:
        """What all rows say, each of them checked: a pass for every column, once."""
        return facts_of(self)

    def split(self, fractions: Sequence[float], *, salt: str) -> tuple[StreamedFold, ...]:
        """Folds as `LoggedData.split` makes them, by unit where there is one, else by row."""
        shares = tuple(checked_fractions(fractions).tolist())
        folds = tuple(StreamedFold(self, shares, salt, which) for which in range(len(shares)))
        seen = np.zeros(len(shares), dtype=np.int64)
        columns = ["unit"] if self.mapping.unit else ["action"]
        for start, table in self.tables(columns):
            which = folds[0].of(self.keys(table, start))
            seen += np.bincount(which, minlength=len(shares))
        if not seen.all():
            kind = "row" if self.mapping.unit is None else "unit"
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
        """The mapped rows, a batch at a time: the number of the first row, and the table."""
        import polars as pl

        frame = self._frame if columns is None else self._frame.select(list(columns))
        name, start, waiting = self.source.name, 0, list[pl.DataFrame]()
        found = tried(
            lambda: frame.collect_batches(chunk_size=self.batch, engine="streaming"), name
        )
        while (table := tried(lambda: next(found, None), name)) is not None:
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
        """Rows of a batch as checked logs; errors name rows by (n,) their numbers."""
        with naming({}, rows):
            return logs_of(table, self.mapping, self.catalogue)

    def keys(self, table: pl.DataFrame, start: int) -> Array:
        """(n,) what a row's fold depends on: the key of its unit, or its number."""
        if self.mapping.unit is None:
            return np.arange(start, start + len(table), dtype=np.uint64)
        with naming({"unit": self.mapping.unit}, np.arange(start, start + len(table))):
            ids, which = distinct_ids(plain_ids(table["unit"], "unit"))
        return keys_of_ids(ids)[which]

    @cached_property
    def _frame(self) -> pl.LazyFrame:
        return mapped(self.source, self.mapping)


@dataclass(frozen=True, eq=False)
class StreamedFold:
    """One fold of a stream.

    Args:
        stream: all rows.
        shares: the shares of all folds.
        salt: the name of the split.
        which: which of them this is.
        rows: how many rows it has.
    """

    stream: LogStream
    shares: tuple[float, ...]
    salt: str
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

    def of(self, keys: Array) -> IntArray:
        """(n,) the fold of each key, as in `depsue.data.folds`."""
        return fold_of_keys(keys, np.asarray(self.shares), self.salt)

    def pieces(self) -> Iterator[LoggedData]:
        """Its rows, a batch at a time."""
        for start, table in self.stream.tables():
            mine = self.of(self.stream.keys(table, start)) == self.which
            if mine.any():
                yield self.stream.logs(table.filter(mine), start + np.flatnonzero(mine))

    def sample(self, most: int) -> LoggedData:
        """About `most` of its rows in memory, to learn from: all rows of some units, or rows.

        Args:
            most: how many rows, about; all of them if there are fewer.
        """
        import polars as pl

        step = np.uint64(max(1, -(-self.rows // most)))
        found, rows = [], []
        for start, table in self.stream.tables():
            keys = self.stream.keys(table, start)
            mine = (self.of(keys) == self.which) & (mix64(mix64(keys)) % step == 0)
            found.append(table.filter(mine))
            rows.append(start + np.flatnonzero(mine))
        return self.stream.logs(pl.concat(found), np.concatenate(rows))


class StreamedFolds(NamedTuple):
    """The three folds of one round's logs; see `Folds`."""

    learn: StreamedFold
    select: StreamedFold
    certify: StreamedFold
    data: str
    campaign: str
    fractions: tuple[float, float, float]
    round: int
