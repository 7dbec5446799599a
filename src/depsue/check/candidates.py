"""Lists of candidates, held against the rows: one pass, some rows at a time.

Nothing is refused here. What breaks a rule is counted (`BrokenRows`), and `rules.py` says it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from depsue.data.checks import IntArray
from depsue.data.lists import ListPiece, pieces, require_places
from depsue.data.mapping import LISTS, LogMapping
from depsue.data.reading import Source, in_batches
from depsue.data.requests import SUM_SLACK
from depsue.data.tables import is_text
from depsue.errors import DataError

if TYPE_CHECKING:
    import polars as pl


BREAKS = ("empty", "repeated", "shown", "range", "sum", "unlike")
"""Rules of lists of candidates, as `CandidateCounts.broken` names them."""
UNLIKE = 2e-3
"""A propensity may differ from pi0's probability of the item by so large a share."""
TOGETHER = 16
"""Tables of items that are kept before they become one."""


@dataclass(frozen=True)
class BrokenRows:
    """Rows that break a rule.

    Args:
        count: how many.
        row: the number of the first.
        value: what is wrong there, in words.
    """

    count: int = 0
    row: int = 0
    value: str = ""

    def with_more(self, bad: Any, start: int, value: Callable[[int], str]) -> BrokenRows:
        """With the rows that `bad` marks, the first of which is number `start`."""
        count = int(bad.sum())
        if not count or self.count:
            return replace(self, count=self.count + count)
        first = int(bad.argmax())
        return BrokenRows(count, start + first, value(first))


@dataclass(frozen=True, eq=False)
class CandidateCounts:
    """Lists of candidates, held against the rows.

    Args:
        sizes: (n,) candidates of each row.
        broken: rows that break a rule, by its name.
        items: one row for each item, in their order: item, rows (where it is a candidate, and pi0
            may show it), test (those of them in the half of the rows that is tested), expected
            (how often pi0 should have shown it; 0 where pi0's probabilities are not known).
        with_new: rows with a new candidate; None where it is not known which items are new.
        unreadable: why the lists could not be read; None if they could.
    """

    sizes: IntArray
    broken: Mapping[str, BrokenRows]
    items: pl.DataFrame
    with_new: int | None
    unreadable: DataError | None = None


@dataclass(frozen=True, eq=False)
class KnownItems:
    """The ids of a catalogue.

    Args:
        ids: (A,) of all items, in their order.
        novel: (A,) which are marked as new; None without such marks.
    """

    ids: pl.Series
    novel: Any = None


def count_candidates(
    source: Source, numbered: pl.LazyFrame, mapping: LogMapping, known: KnownItems | None
) -> CandidateCounts:
    """One pass over lists of candidates, some rows at a time."""
    import polars as pl

    names = [
        "row",
        "action",
        *(
            role
            for role in (*LISTS, "propensity", "round")
            if role in numbered.collect_schema().names()
        ),
    ]
    frame = numbered.select(names).with_columns(test=pl.col("row").hash(1) % 2 == 0)
    counter = _CandidateCounter(mapping, known)
    try:
        for batch in in_batches(source, frame):
            shares = batch["probabilities"] if mapping.probabilities else None
            at = 0
            for piece in pieces([(batch["candidates"], shares)]):
                rows = batch[at : at + len(piece.sizes)]
                counter.add(piece, rows)
                at += len(rows)
    except DataError as problem:
        names_ = {role: getattr(mapping, role) or role for role in LISTS}
        moved = problem.moved(names_.get(problem.column, problem.column), problem.row)
        return counter.counts(moved)
    return counter.counts(None)


class _CandidateCounter:
    """Adds up what lists of candidates hold.

    Args:
        mapping: which column is what.
        known: the catalogue beside the logs, where there is one.
    """

    def __init__(self, mapping: LogMapping, known: KnownItems | None) -> None:
        self._mapping, self._known = mapping, known
        self._sizes = list[IntArray]()
        self._items: list[pl.DataFrame] = []
        self._broken = dict.fromkeys(BREAKS, BrokenRows())
        self._with_new = 0
        marked = known is not None and known.novel is not None
        self._new = known.ids.filter(list(known.novel)) if known is not None and marked else None
        # pi0's probabilities are not those of the rows where another policy may have drawn
        plain = mapping.by_pi0 is None and not mapping.holdout
        self._comparable = mapping.probabilities is not None and plain

    def add(self, piece: ListPiece, rows: pl.DataFrame) -> None:
        """Some rows, and their lists laid flat."""

        sizes, start = piece.sizes, int(rows["row"][0]) if len(rows) else 0
        self._sizes.append(sizes)
        self._note("empty", sizes == 0, start, lambda row: "an empty list")
        row = np.repeat(np.arange(len(sizes)), sizes)
        ends = np.cumsum(sizes)
        items = self._named(piece.items)
        if items is None:
            self._sums(piece, sizes, start)
            return
        hashed = np.asarray(items.hash().to_numpy())
        keys = np.sort((row.astype(np.uint64) << np.uint64(40)) | (hashed >> np.uint64(24)))
        twice = np.zeros(len(sizes), dtype=bool)
        suspect = np.unique((keys[1:][keys[1:] == keys[:-1]] >> np.uint64(40)).astype(np.int64))
        for at in suspect.tolist():  # a few rows, in which hashes may agree by chance
            own = items[int(ends[at] - sizes[at]) : int(ends[at])]
            twice[at] = own.n_unique() < len(own)
        self._note(
            "repeated",
            twice,
            start,
            lambda at: repr(_first_repeat(items[int(ends[at] - sizes[at]) : int(ends[at])])),
        )
        shown = _alike(rows["action"], items)
        is_shown = np.asarray((items == shown.gather(row)).fill_null(False).to_numpy())
        times = np.bincount(row[is_shown], minlength=len(sizes))
        self._note("shown", (times == 0) & (sizes > 0), start, lambda at: repr(shown[at]))
        if piece.shares is not None:
            of_shown = np.bincount(
                row[is_shown], weights=piece.shares[is_shown], minlength=len(sizes)
            )
            self._against(rows, of_shown, times, start)
            self._sums(piece, sizes, start)
        if self._new is not None:
            new = np.asarray(items.is_in(_alike(self._new, items).implode()).to_numpy())
            self._with_new += int((np.bincount(row[new], minlength=len(sizes)) > 0).sum())
        self._count(items, rows["test"].gather(row), piece.shares)

    def counts(self, unreadable: DataError | None) -> CandidateCounts:
        """All that was added up."""
        import polars as pl

        self._gather()
        none = pl.DataFrame(
            schema={"item": pl.String, "rows": pl.UInt32, "test": pl.UInt32, "expected": pl.Float64}
        )
        return CandidateCounts(
            sizes=np.concatenate([np.zeros(0, dtype=np.int64), *self._sizes]),
            broken=self._broken,
            items=self._items[0].sort("item") if self._items else none,
            with_new=None if self._new is None else self._with_new,
            unreadable=unreadable,
        )

    def _named(self, items: pl.Series) -> pl.Series | None:
        """The ids of the items; None where lists hold places of items that are not known."""
        import polars as pl

        if items.dtype.is_float():
            whole = items.cast(pl.Int64, strict=False)
            items = whole if (whole == items).all() else items.cast(pl.String)
        if items.dtype.is_nested() or not (items.dtype.is_integer() or is_text(items)):
            items = items.cast(pl.String, strict=False)
        if self._mapping.given_as == "id":
            return items
        require_places(items)
        if self._known is None or not items.dtype.is_integer():
            return None
        places = items.cast(pl.Int64)
        inside = (places >= 0) & (places < len(self._known.ids))
        return self._known.ids.gather(places.zip_with(inside, pl.Series([None], dtype=pl.Int64)))

    def _note(self, rule: str, bad: Any, start: int, value: Callable[[int], str]) -> None:
        self._broken[rule] = self._broken[rule].with_more(bad, start, value)

    def _sums(self, piece: ListPiece, sizes: IntArray, start: int) -> None:
        """Whether pi0's probabilities lie in [0, 1] and sum to 1."""
        shares = piece.shares
        if shares is None:
            return
        row = np.repeat(np.arange(len(sizes)), sizes)
        outside = np.bincount(row[~((shares >= 0) & (shares <= 1))], minlength=len(sizes)) > 0
        total = np.bincount(row, weights=np.nan_to_num(shares), minlength=len(sizes))
        self._note("range", outside, start, lambda at: "a probability outside [0, 1]")
        off = (np.abs(total - 1) > SUM_SLACK) & ~outside & (sizes > 0)
        self._note("sum", off, start, lambda at: f"they sum to {total[at]:.6g}")

    def _against(self, rows: pl.DataFrame, of_shown: Any, times: Any, start: int) -> None:
        """Whether the propensity is what pi0's probabilities say of the item that was shown."""
        if not self._comparable or "propensity" not in rows.columns:
            return
        p = rows["propensity"].fill_null(np.nan).to_numpy() * self._mapping.kept
        first = np.ones(len(p), dtype=bool)
        if "round" in rows.columns:
            first = np.asarray((rows["round"] == 0).fill_null(False).to_numpy())
        off = (np.abs(p - of_shown) > UNLIKE * np.maximum(p, of_shown)) & (times > 0) & first
        self._note("unlike", off, start, lambda at: f"{p[at]:.6g} and {of_shown[at]:.6g}")

    def _count(self, items: pl.Series, test: pl.Series, shares: Any) -> None:
        import polars as pl

        table = pl.DataFrame({"item": items, "test": test})
        table = table.with_columns(share=pl.lit(0.0) if shares is None else pl.Series(shares))
        possible = pl.lit(True) if shares is None else pl.col("share") > 0
        self._items.append(
            table.group_by("item").agg(
                rows=possible.sum() if shares is not None else pl.len(),
                test=(pl.col("test") & possible).sum(),
                expected=pl.col("share").fill_nan(0).sum(),
            )
        )
        if len(self._items) >= TOGETHER:
            self._gather()

    def _gather(self) -> None:
        """One table of the items for the tables of all pieces."""
        import polars as pl

        if not self._items:
            return
        kinds = {table["item"].dtype for table in self._items}
        tables = self._items
        if len(kinds) > 1:
            tables = [table.with_columns(pl.col("item").cast(pl.String)) for table in tables]
        tables = [table.with_columns(pl.col("rows", "test").cast(pl.Int64)) for table in tables]
        self._items = [pl.concat(tables).group_by("item").agg(pl.all().sum())]


def _alike(values: pl.Series, items: pl.Series) -> pl.Series:
    """Ids as the type of others, so that they can be compared."""
    import polars as pl

    if values.dtype.is_float():
        values = values.cast(pl.Int64, strict=False)
    return values.cast(items.dtype, strict=False)


def _first_repeat(items: pl.Series) -> Any:
    return items.filter(items.is_duplicated())[0]
