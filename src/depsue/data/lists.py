"""Columns of lists: what could be shown in each row, and pi0's probabilities of it.

A list comes from Arrow, polars, pandas, numpy or Python, or as JSON text. Rows are taken some at a
time and their ids found by one join with the catalogue, so that 300,000 rows of 200 candidates need
seconds, and little memory beside what is kept.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from depsue.data.checks import Array, FloatArray, IntArray
from depsue.data.requests import Candidates
from depsue.errors import DataError, short

if TYPE_CHECKING:
    import polars as pl

    from depsue.data.catalogue import Catalogue

GivenAs: TypeAlias = Literal["id", "index"]
"""Candidates are named by their ids, or by their places in the items file, counted from 0."""
AT_ONCE = 1 << 20
"""Candidates that are looked up at a time, about."""
AS_JSON = 'write each row as a list, or as JSON text such as ["tea", "milk"] or [0.75, 0.25]'
ADD_THEM = "add the items to the catalogue: an entry is enough, new items arrive daily"


def candidates_of(
    lists: Any, shares: Any, catalogue: Catalogue, given_as: GivenAs = "id"
) -> Candidates:
    """The candidates of n rows.

    Args:
        lists: (n,) lists of ids, or of places in the catalogue.
        shares: (n,) lists of pi0's probabilities of them, in their order, or None.
        catalogue: the items.
        given_as: what the lists hold.
    """
    of_rows = series_of(lists, "candidates")
    of_pi0 = None if shares is None else series_of(shares, "probabilities")
    return candidates_in([(of_rows, of_pi0)], catalogue, given_as)


def candidates_in(
    batches: Iterable[tuple[pl.Series, pl.Series | None]],
    catalogue: Catalogue,
    given_as: GivenAs = "id",
) -> Candidates:
    """The candidates of rows that come in batches; each batch may be freed before the next."""
    places = ItemPlaces(catalogue, given_as)
    sizes, known = list[IntArray](), False
    items, shares = np.zeros(0, dtype=np.int32), np.zeros(0)
    for piece in pieces(batches):
        sets = piece.sets(places)
        sizes.append(sets.sizes)
        # grown in place: a concatenation would hold everything twice
        items.resize(len(items) + len(sets.items), refcheck=False)
        items[len(items) - len(sets.items) :] = sets.items
        if sets.pi0 is not None:
            known = True
            shares.resize(len(items), refcheck=False)
            shares[len(items) - len(sets.pi0) :] = sets.pi0
    starts = np.concatenate([[0], *(size.astype(np.int64) for size in sizes)]).cumsum()
    return Candidates(starts, items, shares if known else None)


@dataclass(frozen=True, eq=False)
class ListPiece:
    """Some rows' candidates, one list after the other.

    Args:
        start: the number of the first row among all.
        sizes: (c,) how long each list is.
        items: (m,) what the lists hold, as a polars series of whole numbers or text.
        shares: (m,) pi0's probability of each; None where there is no such column.
    """

    start: int
    sizes: IntArray
    items: pl.Series
    shares: FloatArray | None

    def sets(self, places: ItemPlaces) -> Candidates:
        """The sets, checked; errors name the rows by their numbers among all."""
        try:
            found = places.of(self.items, self.sizes)
            return Candidates.of_flat(self.sizes, found, self.shares, ids=places.catalogue.ids)
        except DataError as error:
            row = None if error.row is None else error.row + self.start
            raise error.moved(error.column, row) from None


def pieces(batches: Iterable[tuple[pl.Series, pl.Series | None]]) -> Iterator[ListPiece]:
    """Lists of candidates, and of probabilities, laid flat, some rows at a time."""
    start = 0
    for lists, shares in batches:
        sample = flat(lists[:64], "candidates", start)[0]
        rows = max(1, int(AT_ONCE // max(1.0, float(sample.mean()) if len(sample) else 1.0)))
        for first in range(0, len(lists), rows):
            number = start + first
            sizes, items = flat(lists[first : first + rows], "candidates", number)
            numbers: FloatArray | None = None
            if shares is not None:
                lengths, given = flat(shares[first : first + rows], "probabilities", number)
                _require_aligned(sizes, lengths, number)
                numbers = _numbers(given, sizes, number)
            yield ListPiece(number, sizes, items, numbers)
        start += len(lists)


def series_of(values: Any, column: str) -> pl.Series:
    """A column of lists of any library as a polars series."""
    import polars as pl

    if isinstance(values, pl.Series):
        return values
    try:
        if type(values).__module__.partition(".")[0] == "pyarrow":
            return pl.Series(column, values)
        series = [value.tolist() if hasattr(value, "tolist") else value for value in values]
        return pl.Series(column, series)
    except Exception as problem:  # whatever a foreign column raises
        raise DataError(
            "the column must hold one list in each row",
            column=column,
            found=f"{type(values).__name__} ({short(str(problem))})",
            cure=AS_JSON,
        ) from problem


def flat(lists: pl.Series, column: str, start: int = 0) -> tuple[IntArray, pl.Series]:
    """(c,) how long each list is, and the (m,) values of all lists; nothing may be missing.

    Args:
        lists: (c,) lists, or JSON text.
        column: what errors call them.
        start: the number of the first row among all.
    """
    import polars as pl

    if lists.dtype in (pl.String, pl.Categorical, pl.Enum):
        lists = _decoded(lists.cast(pl.String), column, start)
    elif isinstance(lists.dtype, pl.Array):
        lists = lists.arr.to_list()
    inner = getattr(lists.dtype, "inner", None)
    if not isinstance(lists.dtype, pl.List) or inner is None or inner.is_nested():
        if len(lists) == lists.null_count():  # a column without a value has no type
            lists = lists.cast(pl.List(pl.Int64), strict=False)
        else:
            raise DataError(
                "the column must hold one list in each row",
                column=column,
                found=f"type {lists.dtype}",
                cure=AS_JSON,
            )
    absent = lists.is_null().to_numpy()
    if absent.any():
        raise DataError(
            "every row needs its list",
            column=column,
            row=start + int(absent.argmax()),
            value=None,
            count=int(absent.sum()),
            cure="list all items that could be shown; where that was every item, list them all",
        )
    sizes = lists.list.len().to_numpy().astype(np.int64)
    values = lists.explode(empty_as_null=False)
    if values.null_count():
        entry = values.is_null().to_numpy()
        raise DataError(
            "lists must have no missing values",
            column=column,
            row=start + _row_of(int(entry.argmax()), sizes),
            value=None,
            count=int(entry.sum()),
            cure="leave out what is not known, or correct what writes the lists",
        )
    return sizes, values


def require_places(items: pl.Series) -> None:
    """Refuse text where lists are said to hold places in the items file."""
    import polars as pl

    if len(items) and items.dtype in (pl.String, pl.Categorical, pl.Enum):
        raise DataError(
            "candidates that are given as indices are whole numbers",
            column="candidates",
            found=f"text, such as {short(items[0])}",
            cure="where the lists hold ids, leave [candidates] given_as out of the mapping",
        )


class ItemPlaces:
    """Finds the places of ids in the catalogue, many at a time.

    Args:
        catalogue: the items.
        given_as: whether lists hold ids, or places already.
    """

    def __init__(self, catalogue: Catalogue, given_as: GivenAs = "id") -> None:
        import polars as pl

        self.catalogue, self.given_as = catalogue, given_as
        self._text = catalogue.ids.dtype.kind == "U"
        number = np.arange(len(catalogue), dtype=np.int32)
        self._table = pl.DataFrame({"id": catalogue.ids.tolist(), "place": number})

    def of(self, items: pl.Series, sizes: IntArray) -> IntArray:
        """(m,) positions of what stands in the lists, whose (c,) sizes are given."""
        import polars as pl

        if self.given_as == "index":
            require_places(items)
            places = self._whole(items, sizes).to_numpy()
            outside = (places < 0) | (places >= len(self.catalogue))
            rule = f"indices of candidates lie between 0 and {len(self.catalogue) - 1}"
            self._refuse(outside, items, sizes, rule, "count items from 0, or add the items")
            return np.asarray(places, dtype=np.int32)
        text = items.dtype in (pl.String, pl.Categorical, pl.Enum)
        if len(items) and text != self._text:
            kind = "strings" if self._text else "integers"
            raise DataError(
                f"candidates must be {kind}, as the catalogue's ids are",
                column="candidates",
                row=_row_of(0, sizes),
                value=items[0],
                count=int((sizes > 0).sum()),
                cure=f"write the lists with {kind}; where they hold places in the items file, "
                'declare it in the mapping: [candidates] given_as = "index"',
            )
        wanted = items.cast(pl.String) if text else self._whole(items, sizes)
        found = (
            wanted.alias("id")
            .to_frame()
            .join(self._table, on="id", how="left", maintain_order="left")["place"]
        )
        if found.null_count():
            rule = "every candidate must be in the catalogue"
            self._refuse(found.is_null().to_numpy(), items, sizes, rule, ADD_THEM)
        return np.asarray(found.to_numpy())

    def _whole(self, items: pl.Series, sizes: IntArray) -> pl.Series:
        """Whole numbers; whole floats count as such."""
        import polars as pl

        rule, cure = "candidates must be integers or strings, all of one kind", AS_JSON
        if items.dtype.is_integer() or (not len(items) and items.dtype == pl.Null):
            wide = items.cast(pl.Int64, strict=False)
            self._refuse(wide.is_null().to_numpy(), items, sizes, rule, "use strings")
            return wide
        if items.dtype.is_float():
            values = items.to_numpy()
            with np.errstate(invalid="ignore"):
                broken = ~((values == np.floor(values)) & (np.abs(values) < 2**53))
            self._refuse(broken, items, sizes, rule, cure)
            return items.cast(pl.Int64)
        raise DataError(rule, column="candidates", found=f"lists of type {items.dtype}", cure=cure)

    def _refuse(self, bad: Array, items: pl.Series, sizes: IntArray, rule: str, cure: str) -> None:
        if bad.any():
            at = int(bad.argmax())
            raise DataError(
                rule,
                column="candidates",
                row=_row_of(at, sizes),
                value=items[at],
                count=len(np.unique(_rows_of(np.flatnonzero(bad), sizes))),
                cure=cure,
            )


def _decoded(lists: pl.Series, column: str, start: int) -> pl.Series:
    """Lists out of JSON text: of whole numbers where the first list has these, else of text."""
    import polars as pl

    kind: Any = pl.Float64 if column == "probabilities" else pl.String
    try:
        read = lists.str.json_decode(pl.List(kind))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
        bad = [_is_no_list(text) for text in lists.to_list()]
        row = bad.index(True) if any(bad) else 0
        raise DataError(
            "lists that are text must be JSON",
            column=column,
            row=start + row,
            value=lists[row] if len(lists) else None,
            count=max(1, sum(bad)),
            cure=AS_JSON,
        ) from None
    if column == "probabilities":
        return read
    first = next((text for text in lists.drop_nulls() if text.strip("[] \n\t")), "")
    if '"' in first:
        return read
    return read.cast(pl.List(pl.Int64), strict=False) if _whole_lists(read) else read


def _whole_lists(read: pl.Series) -> bool:
    """Whether every entry is a whole number in text."""
    values = read.explode(empty_as_null=False, keep_nulls=False).drop_nulls()
    return bool(values.str.contains(r"^-?\d{1,18}$").all())


def _is_no_list(text: str | None) -> bool:
    try:
        value = json.loads(text or "null")
    except (ValueError, RecursionError):
        return True
    if not isinstance(value, list):
        return value is not None
    return not all(isinstance(entry, str | int | float) for entry in value)


def _numbers(given: pl.Series, sizes: IntArray, start: int) -> FloatArray:
    """(m,) probabilities as float64; text and lists are refused."""
    import polars as pl

    if not (given.dtype.is_numeric() or (not len(given) and given.dtype == pl.Null)):
        raise DataError(
            "the column must hold lists of numbers",
            column="probabilities",
            row=start + _row_of(0, sizes),
            value=given[0] if len(given) else None,
            count=len(sizes),
            cure="write pi0's probability of each candidate as a number",
        )
    return np.asarray(given.cast(pl.Float64).to_numpy())


def _require_aligned(sizes: IntArray, lengths: IntArray, start: int) -> None:
    off = np.flatnonzero(sizes != lengths)
    if len(off):
        row = int(off[0])
        raise DataError(
            "pi0's probabilities must be as many as the candidates",
            column="probabilities",
            row=start + row,
            value=f"{lengths[row]} for {sizes[row]} candidates",
            count=len(off),
            cure="give one probability for each candidate, 0 for an item that pi0 never shows",
        )


def _rows_of(places: IntArray, sizes: IntArray) -> IntArray:
    """Which lists the given places in the flat values belong to."""
    return np.searchsorted(np.cumsum(sizes), places, side="right")


def _row_of(place: int, sizes: IntArray) -> int:
    return int(_rows_of(np.array([place]), sizes)[0])
