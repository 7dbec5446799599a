"""The rules on what was counted: what is found, and in which words."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from tests.check.conftest import check, names

from depsue.check import check_logs
from depsue.data.mapping import LogMapping


def test_rewards_below_and_above_are_counted_apart(good: pl.DataFrame) -> None:
    clicks = good["click"].sum()
    for change, value in (
        (pl.col("click") * 2, f"0 rows below 0, {clicks:,} above r_max"),
        (-pl.col("click"), f"{clicks:,} rows below 0, 0 above r_max"),
    ):
        report = check(good.with_columns(click=change))
        assert names(report) == ["reward-range"]
        assert report.findings[0].value.startswith(value)


def test_propensities_in_percent(good: pl.DataFrame) -> None:
    report = check(good.with_columns(pl.col("propensity") * 100))
    assert names(report) == ["propensity-percent"] and not report.usable
    finding = report.findings[0]
    assert finding.value == "8,000 of 8,000 rows are above 1, none above 100: as in per cent"
    assert finding.cure.startswith("divide column 'propensity' by 100")
    rare = pl.when(pl.int_range(len(good)) < 9).then(0.5).otherwise(pl.col("propensity") * 100)
    assert names(check(good.with_columns(propensity=rare))) == ["propensity-percent"]
    for times in (3, 250):
        wrong = good.with_columns(pl.col("propensity") * times)
        assert names(check(wrong))[0] == "propensity-range"


def test_one_row_is_singular(good: pl.DataFrame) -> None:
    row = pl.int_range(len(good))
    wrong = good.with_columns(propensity=pl.when(row == 7).then(1.5).otherwise("propensity"))
    assert check(wrong).findings[0].value == "1 of 8,000 rows is outside"
    low = good.with_columns(click=pl.when(row == 7).then(-1).otherwise("click"))
    assert check(low).findings[0].value.startswith("1 row below 0, 0 above r_max")


def test_propensities_too_small_to_divide_by(good: pl.DataFrame) -> None:
    tiny = good.with_columns(propensity=pl.lit(5e-324))
    assert names(check(tiny)) == ["propensity-range"]


def test_other_rewards_and_types(good: pl.DataFrame) -> None:
    mapping = LogMapping("item_id", "click", "propensity", other_rewards={"age": 1.0})
    assert "other-reward" in names(check(good, mapping=mapping))
    text = good.with_columns(pl.col("propensity").cast(pl.String))
    report = check(text, mapping=LogMapping("item_id", "click", "propensity"))
    assert names(report) == ["columns"] and "must hold numbers" in report.findings[0].rule


def test_bad_lines_of_dsjson(tmp_path: Path) -> None:
    line = '{"_label_cost": -1, "_label_probability": 0.5, "_labelIndex": %d}\n'
    text = "".join(line % (k % 2) for k in range(2000))
    (tmp_path / "a.dsjson").write_text(text + "{\n")
    (tmp_path / "b.dsjson").write_text(text + "{\n" * 100)
    few, many = (check_logs(tmp_path / f"{name}.dsjson") for name in "ab")
    assert few.usable and "a.dsjson, line 2001: not JSON" in few.findings[0].value
    assert not many.usable and many.findings[0].name == "lines"


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ({"id": [10, 11, 12, 13, 99]}, []),
        ({"id": [10, 11, 12, 13, 99], "novel": [0, 0, 0, 0, 1]}, []),
        ({"id": [10, 11, 12, 13]}, ["novel-none"]),
        ({"id": [10, 11, 12, 99]}, ["items-missing"]),
        ({"id": [10, 11, 12, 13, 99], "novel": [1, 0, 0, 0, 1]}, ["novel-logged"]),
        ({"id": [10, 11, 12, 13, 13, 99]}, ["items-repeated"]),
        ({"id": ["10", "11", "12", "13", "x"]}, ["items-type"]),
        ({"name": ["a"]}, ["items"]),
    ],
)
def test_items(good: pl.DataFrame, tmp_path: Path, items: Any, expected: list[str]) -> None:
    pl.DataFrame(items).write_parquet(tmp_path / "items.parquet")
    report = check(good, items=tmp_path / "items.parquet")
    assert names(report) == expected
    if not expected:
        assert report.facts.items_never_logged == 1
