"""Pages: a log with one row for each slot becomes one with one row for each page.

A page shows several items. One slot of it is decided here, the reward is the page's, and what
stands in the slots above is part of the context: of their rows, the column NAME of the slot at
position J is called NAME@J, and a mapping names it like any other context::

    position = 2                       # the slot that is decided

    [columns]
    position = "slot"
    candidates = "left"                # what could be shown there: not what stands above

    [pages]
    page = "page_id"                   # which rows form a page
    reward = "page_clicks"             # the page's; without it the sum over its rows

    [contexts]
    numeric = ["age", "price@1"]       # of the user, and of what stands in slot 1

The slot's own reward is kept as `slot_reward`: the spill-over test asks for it. Propensities must
be conditional on all that is placed already. The marginal probability of an item overstates its
weight by A / (A - 2) at the third of A even slots, and a slate that is drawn as a whole has one
probability for all of its items: both show as equal propensities on a page, and are refused.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from depsue.data.mapping import SLOT_REWARD, LogMapping
from depsue.data.tables import exact, is_numeric, require_columns
from depsue.errors import DataError, require

if TYPE_CHECKING:
    import polars as pl

    from depsue.data.reading import Source

MOST_EQUAL, FEWEST_PAGES = 0.99, 20
"""Pages of which so large a share has one propensity for all rows are no conditional draws."""
CURE_OF_SLATES = (
    "fill the slots one after the other, let one of them explore, and log the probability of its "
    "item given what stands above it (docs: requests, pages)"
)


def as_pages(source: Source, mapping: LogMapping) -> Source:
    """The source with one row for each page, of those that have the decided slot.

    Args:
        source: one row for each slot; one that has pages already is returned as it is.
        mapping: which rows form a page; without `pages` the source is returned as it is.
    """
    import polars as pl

    if mapping.pages is None or source.pages:
        return source
    above, plain = above_columns(mapping)
    pages, raw = mapping.pages, [name for names in above.values() for name in names]
    needed = [pages.page, str(mapping.position), mapping.action, mapping.reward, *plain, *raw]
    needed += [pages.reward] if pages.reward else []
    require_columns(list(dict.fromkeys(needed)), list(source.names), source.name, "the mapping")
    _require_no_slates(source, mapping)
    decided = int(str(mapping.keep_position))
    frame = source.frame.with_columns(
        exact(pages.page).alias("@page"),
        exact(str(mapping.position)).cast(pl.Int64, strict=False).alias("@slot"),
    )
    higher = _slots_above(source, frame, mapping, decided)
    mine = frame.filter(pl.col("@slot") == decided)
    if pages.reward is None:
        sums = frame.group_by("@page").agg(_sum(mapping.reward).alias("@reward"))
        mine = mine.join(sums, on="@page", how="left", maintain_order="left")
    else:
        mine = mine.with_columns(exact(pages.reward).alias("@reward"))
    for slot in higher:
        theirs = frame.filter(pl.col("@slot") == slot).select(
            "@page",
            exact(mapping.action).alias(f"@item {slot}"),
            *[exact(name).alias(f"{name}@{slot}") for name in above.get(slot, [])],
        )
        mine = mine.join(theirs, on="@page", how="left", maintain_order="left")
    _require_whole(source, mine, mapping, higher)
    mine = mine.with_columns(
        exact(mapping.reward).cast(pl.Float64).alias(SLOT_REWARD)
    ).with_columns(pl.col("@reward").alias(mapping.reward))
    names = [name for name in source.names if name != SLOT_REWARD] + [SLOT_REWARD]
    names += [f"{name}@{slot}" for slot in higher for name in above.get(slot, [])]
    shown = mine.select(exact(name) for name in names)
    return replace(source, frame=shown, names=tuple(names), pages=True)


def _sum(column: str) -> pl.Expr:
    """The sum over a page, in one order: another would have other bits, and logs another hash."""
    return exact(column).sort().sum()


def above_columns(mapping: LogMapping) -> tuple[dict[int, list[str]], list[str]]:
    """Columns of the slots above, by position; and the others that the mapping names."""
    above: dict[int, list[str]] = {}
    plain = []
    for name in mapping.columns:
        column, _, slot = name.rpartition("@")
        if column and slot.lstrip("-").isdecimal():
            above.setdefault(int(slot), []).append(column)
        elif name != SLOT_REWARD:
            plain.append(name)
    return above, plain


def _slots_above(
    source: Source, frame: pl.LazyFrame, mapping: LogMapping, decided: int
) -> list[int]:
    """The positions above the decided slot; each must be part of the context."""
    import polars as pl

    table = source.collect(frame.select(pl.col("@slot").unique()))
    slots = sorted(slot for slot in table["@slot"].to_list() if slot is not None)
    if decided not in slots:
        raise DataError(
            "the decided slot must occur in the logs",
            column=str(mapping.position),
            found=f"positions {slots[:8]}, and position = {decided}",
            cure="position is the slot that policies decide, in the mapping",
        )
    higher = [slot for slot in slots if slot < decided]
    missing = [slot for slot in higher if slot not in above_columns(mapping)[0]]
    if missing:
        raise DataError(
            "what stands above the decided slot is part of the context",
            column=str(mapping.position),
            found=f"no context of slot {missing[0]}",
            cure=f'name a column of it in [contexts], such as numeric = ["price@{missing[0]}"]',
        )
    require(
        not higher or mapping.candidates is not None,
        "a slot below others needs its candidates: what stands above cannot be shown again",
        found="no column of candidates in the mapping",
        cure='candidates = "..." in [columns]: the items that were left for the decided slot',
    )
    return higher


def _require_no_slates(source: Source, mapping: LogMapping) -> None:
    """Refuse pages with one propensity for all of their rows."""
    import polars as pl

    if mapping.propensity is None or mapping.pages is None:
        return
    head = source.collect(source.frame.select(exact(mapping.propensity)).head(0))
    if not is_numeric(head.to_series()):
        return  # refused with the other columns
    p = pl.col("p")
    each = (
        source.frame.select(page=exact(mapping.pages.page), p=exact(mapping.propensity))
        .group_by("page")
        .agg(rows=pl.len(), equal=p.min() == p.max(), certain=p.min() == 1)
        .filter(pl.col("rows") > 1)
        .select(pl.len(), equal=(pl.col("equal") & ~pl.col("certain")).sum())
    )
    pages, equal = source.collect(each).row(0)
    if pages >= FEWEST_PAGES and equal >= MOST_EQUAL * pages:
        raise DataError(
            "propensities on a page must be conditional on what is placed already; a slate that is "
            "drawn as a whole is not supported",
            column=mapping.propensity,
            found=f"one propensity for all rows in {equal:,} of {pages:,} pages",
            cure=CURE_OF_SLATES,
        )


def _require_whole(
    source: Source, pages: pl.LazyFrame, mapping: LogMapping, higher: list[int]
) -> None:
    """Refuse pages with a slot twice or with a hole above, and candidates that stand above."""
    import polars as pl

    wrong: dict[str, pl.Expr] = {
        "twice": pl.len() - pl.col("@page").n_unique(),
        "holes": pl.any_horizontal([pl.col(f"@item {slot}").is_null() for slot in higher]).sum()
        if higher
        else pl.lit(0),
        "nothing": pl.col("@page").is_null().sum(),
    }
    kind = pages.collect_schema()
    lists = mapping.candidates is not None and isinstance(kind.get(mapping.candidates), pl.List)
    if lists and higher and mapping.given_as == "id":
        again = [
            pl.col(str(mapping.candidates)).list.contains(pl.col(f"@item {slot}"))
            for slot in higher
        ]
        wrong["again"] = pl.any_horizontal(again).sum()
    counts = source.collect(pages.select(**wrong)).row(0, named=True)
    rules = {
        "nothing": ("every row belongs to a page", "rows without one", "name its page in each row"),
        "twice": (
            "a page has one row for each slot",
            "the decided slot, or one above it, has several rows on a page",
            "keep one row for each page and position",
        ),
        "holes": (
            "a page has a row for each slot above the decided one",
            "pages without one",
            "log what stands above, also where nobody looked at it",
        ),
        "again": (
            "what stands on a page already is no candidate of a lower slot",
            "candidates that stand above",
            "log the candidates that were left for the decided slot",
        ),
    }
    for name, (rule, found, cure) in rules.items():
        if counts.get(name, 0):
            raise DataError(
                rule,
                column="page" if mapping.pages is None else mapping.pages.page,
                found=found,
                count=int(counts[name]),
                cure=cure,
            )
