"""What is counted: repeated rows, and a sample of large logs."""

import polars as pl
import pytest
from tests.check.conftest import check, names

from depsue.check import counting
from depsue.data.mapping import LogMapping
from depsue.data.reading import Source


def test_repeated_rows(good: pl.DataFrame) -> None:
    report = check(pl.concat([good, good.head(800)]))
    assert report.facts.repeated_rows == pytest.approx(800 / 8800)
    assert "duplicates" in names(report)
    apart = pl.concat([good, good.head(800)]).with_columns(event_id=pl.int_range(8800))
    assert check(apart).facts.repeated_rows == 0


def test_large_logs_are_sampled(good: pl.DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "SAMPLE", 1000)
    monkeypatch.setattr(counting, "DISTINCT", 1000)
    report = check(pl.concat([good, good.sample(fraction=1.0, shuffle=True, seed=0)]))
    assert report.facts.repeated_rows == 0.5
    assert report.facts.rows == 16000
    source = Source.of(good)
    mapping = LogMapping("item_id", "click", "propensity")
    frame = source.frame.rename({"item_id": "action", "click": "reward"})
    assert 800 < len(counting.count_logs(source, frame, mapping).sample) < 1200
