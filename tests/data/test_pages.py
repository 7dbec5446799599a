"""Pages: rows of slots become rows of pages, and what is no page is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from depsue.check import check_logs
from depsue.data import LoggedData
from depsue.data.mapping import LogMapping, PageColumns, mapping_of, read_mapping, write_mapping
from depsue.data.partitions import LogStream
from depsue.data.reading import Source, read_mapped
from depsue.errors import ConfigError, DataError
from depsue.estimators.weights import importance_weights
from depsue.policies import Uniform
from depsue.shop import Shop, ShopSettings

SETTINGS = ShopSettings(
    requests=60, users=20, items=30, new=4, retrieved=9, d=2, slots=3, decided=2, rounds=2
)
SHOP = Shop(SETTINGS, seed=6)
MAPPING = LogMapping(
    action="item",
    reward="clicked",
    propensity="propensity",
    time="time",
    position="position",
    candidates="candidates",
    keep_position=2,
    pages=PageColumns("page", "page_clicks"),
    numeric=("x0", "x1", "e0@1", "e1@1"),
    r_max=3.0,
)


def rows(n: int = 400) -> pl.DataFrame:
    return SHOP.page_rows(SHOP.logging_policy, n, round=0)


def read(table: pl.DataFrame, mapping: LogMapping = MAPPING) -> LoggedData:
    return read_mapped(Source.of(table), mapping, SHOP.catalogue)


@pytest.mark.parametrize("reward", ["page_clicks", None])
def test_rows_of_slots_become_pages(reward: str | None) -> None:
    pages = read(rows(), replace(MAPPING, pages=PageColumns("page", reward)))
    truth = SHOP.deploy(SHOP.logging_policy, 400, round=0)
    assert pages.hash == truth.hash
    assert np.array_equal(pages.column("slot_reward"), truth.column("slot_reward"))
    assert pages.r_max == 3


def test_the_order_of_rows_within_pages_does_not_matter() -> None:
    table = rows(100)
    turned = table.sort("page", "position", descending=[False, True])
    assert read(turned).hash == read(table).hash


def test_a_page_counts_once_with_the_weight_of_its_slot() -> None:
    pages = read(rows(6000))
    even = Uniform(~SHOP.catalogue.novel)
    terms = importance_weights(even, pages) * pages.reward
    assert abs(terms.mean() - SHOP.value(even)) < 4 * terms.std() / np.sqrt(len(terms))


def test_streamed_pages_are_the_same(tmp_path: Path) -> None:
    rows().write_parquet(tmp_path / "rows.parquet")
    mapping = replace(MAPPING, candidates=None, position="position")
    top = replace(mapping, keep_position=1, numeric=("x0", "x1"))
    stream = LogStream.open(tmp_path / "rows.parquet", top, SHOP.catalogue)
    assert stream.hash == read(rows(), top).hash


def test_pages_without_the_decided_slot_are_left_out() -> None:
    table = rows(50)
    short = table.filter((pl.col("page") != 7) | (pl.col("position") == 1))
    assert len(read(short)) == 49


def test_the_mapping_is_a_file(tmp_path: Path) -> None:
    write_mapping(MAPPING, tmp_path / "m.toml")
    assert read_mapping(tmp_path / "m.toml") == MAPPING
    assert "[pages]" in (tmp_path / "m.toml").read_text()
    assert any("a row is a page" in words for words in MAPPING.assumptions)


def test_check_says_whether_pages_are_fit() -> None:
    report = check_logs(rows(4000), mapping=MAPPING)
    assert report.usable, report
    assert report.facts.rows == 4000
    bad = rows(400).with_columns(propensity=pl.lit(0.1))
    report = check_logs(bad, mapping=MAPPING)
    assert not report.usable
    assert "conditional on what is placed already" in str(report)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda t: t.with_columns(propensity=pl.lit(0.2)),
            r"a slate that is drawn as a whole .*400 of 400 pages.*fill the slots one after",
        ),
        (lambda t: pl.concat([t, t.filter(page=3, position=2)]), "one row for each slot"),
        (lambda t: pl.concat([t, t.filter(page=3, position=1)]), "one row for each slot"),
        (
            lambda t: t.filter((pl.col("page") != 3) | (pl.col("position") != 1)),
            "a row for each slot above",
        ),
        (
            lambda t: t.with_columns(page=pl.when(page=3).then(None).otherwise("page")),
            "every row belongs to a page",
        ),
        (
            lambda t: t.with_columns(
                candidates=pl.col("candidates").list.concat(pl.col("item").first().over("page"))
            ),
            "what stands on a page already is no candidate",
        ),
        (lambda t: t.filter(position=1), "the decided slot must occur"),
    ],
)
def test_what_is_no_page_is_refused(change: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read(change(rows()))  # type: ignore[operator]


def test_mappings_that_leave_something_out_are_refused() -> None:
    with pytest.raises(DataError, match="no context of slot 1"):
        read(rows(), replace(MAPPING, numeric=("x0", "x1")))
    with pytest.raises(ConfigError, match="needs its candidates"):
        read(rows(), replace(MAPPING, candidates=None))
    with pytest.raises(ConfigError, match="pages need the position of each row"):
        replace(MAPPING, keep_position=None)
    with pytest.raises(ConfigError, match="is not shifted"):
        replace(MAPPING, shift=1.0)
    with pytest.raises(DataError, match="column 'e9'"):
        read(rows(), replace(MAPPING, numeric=("x0", "e9@1")))
    with pytest.raises(ConfigError, match="names the columns of the page"):
        mapping_of({"columns": {"action": "a", "reward": "r"}, "r_max": 1.0, "pages": {"page": 3}})
