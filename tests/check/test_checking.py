"""The whole check: each thing that goes wrong has its finding, and nothing else has."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from depsue.check import CheckReport, check_logs, counting
from depsue.check.checking import counts_test
from depsue.check.counting import count_logs
from depsue.data.mapping import EstimatedPropensities, LogMapping
from depsue.data.reading import Source


def names(report: CheckReport) -> list[str]:
    return [finding.name for finding in report.findings]


def check(table: pl.DataFrame, **options: Any) -> CheckReport:
    return check_logs(table, **options)


def test_good_logs_are_ready(good: pl.DataFrame) -> None:
    report = check(good)
    assert report.verdict == "ready" and report.usable and report.findings == ()
    facts = report.facts
    assert (facts.rows, facts.actions, facts.context_columns) == (8000, 4, 2)
    assert facts.mean_reward == pytest.approx(good["click"].mean())
    assert facts.rewarded_rows == good["click"].sum()
    inverse = 1 / good["propensity"]
    size = float(inverse.sum()) ** 2 / float((inverse**2).sum())
    assert facts.effective_sample_size == pytest.approx(size)
    assert facts.first_time == "2026-03-01 00:00:00.000000"
    assert facts.inverse_propensity_ratio == pytest.approx(1, abs=0.1)
    assert facts.repeated_rows == 0 and facts.missing_values == 0


def spoiled(good: pl.DataFrame, what: str) -> pl.DataFrame:
    n = len(good)
    row, p, click = pl.int_range(n), pl.col("propensity"), pl.col("click")
    late = row >= n // 2
    draw = np.random.default_rng(1)
    tables: dict[str, Any] = {
        "missing-click": {"click": pl.when(row == 7).then(None).otherwise(click)},
        "missing-age": {"age": pl.when(row == 7).then(float("nan")).otherwise(pl.col("age"))},
        "missing-country": {"country": pl.when(row == 7).then(None).otherwise(pl.col("country"))},
        "missing-timestamp": {"timestamp": pl.when(row < 9).then(None).otherwise("timestamp")},
        "reward-range": {"click": click * 3 - 1},
        "rewards-few": {"click": (row < 5).cast(pl.Int64)},
        "propensity-range": {"propensity": pl.when(row == 7).then(1.5).otherwise(p)},
        "deterministic": {"propensity": pl.lit(1.0)},
        "nearly-deterministic": {"propensity": pl.lit(0.995)},
        "propensities-sum": {"propensity": p * 0.8},
        "propensities-wrong": {"propensity": pl.Series(draw.permutation(good["propensity"]))},
        "drift-reward": {"click": pl.when(late).then(0).otherwise(click)},
        "drift-context": {"age": pl.col("age") + late * 1.0},
        "unit-heavy": {"user_id": pl.when(row % 10 == 0).then(-1).otherwise(pl.col("user_id"))},
        "actions": {"item_id": pl.lit(3)},
        "action-ids": {"item_id": pl.col("item_id") + 0.5},
    }
    return good.with_columns(**tables[what])


@pytest.mark.parametrize(
    ("what", "verdict"),
    [
        ("missing-click", "not usable"),
        ("missing-age", "not usable"),
        ("missing-country", "ready, with warnings"),
        ("missing-timestamp", "not usable"),
        ("reward-range", "not usable"),
        ("rewards-few", "ready, with warnings"),
        ("propensity-range", "not usable"),
        ("deterministic", "not usable"),
        ("nearly-deterministic", "ready, with warnings"),
        ("propensities-sum", "not usable"),
        ("propensities-wrong", "not usable"),
        ("drift-reward", "ready, with warnings"),
        ("drift-context", "ready, with warnings"),
        ("unit-heavy", "ready, with warnings"),
        ("actions", "not usable"),
        ("action-ids", "not usable"),
    ],
)
def test_what_is_wrong_is_found(good: pl.DataFrame, what: str, verdict: str) -> None:
    report = check(spoiled(good, what))
    assert what in names(report)
    assert report.verdict == verdict
    finding = next(candidate for candidate in report.findings if candidate.name == what)
    assert finding.rule and finding.value and finding.cure
    assert finding.rule in str(report) and finding.cure in str(report)


def test_rewards_below_and_above_are_counted_apart(good: pl.DataFrame) -> None:
    clicks = good["click"].sum()
    for change, value in (
        (pl.col("click") * 2, f"0 rows below 0, {clicks:,} above r_max"),
        (-pl.col("click"), f"{clicks:,} rows below 0, 0 above r_max"),
    ):
        report = check(good.with_columns(click=change))
        assert names(report) == ["reward-range"]
        assert report.findings[0].value.startswith(value)


def test_repeated_rows(good: pl.DataFrame) -> None:
    report = check(pl.concat([good, good.head(800)]))
    assert report.facts.repeated_rows == pytest.approx(800 / 8800)
    assert "duplicates" in names(report)
    apart = pl.concat([good, good.head(800)]).with_columns(event_id=pl.int_range(8800))
    assert check(apart).facts.repeated_rows == 0


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


def test_positions(good: pl.DataFrame) -> None:
    slates = good.with_columns(position=pl.int_range(len(good)) % 2 + 1)
    report = check(slates)
    assert names(report) == ["positions"] and not report.usable
    assert "not supported yet" in report.findings[0].rule
    first = check(slates, position=1)
    assert first.verdict == "ready" and first.facts.rows == 4000
    assert first.mapping.assumptions == ("only rows with position = 1 are used",)


def test_without_propensities(good: pl.DataFrame) -> None:
    bare = good.drop("propensity")
    report = check(bare)
    assert names(report) == ["propensities-none"]
    assert "--estimate-propensities" in report.findings[0].cure
    estimated = check(bare, estimate=True)
    assert estimated.verdict == "ready, with warnings"
    assert names(estimated) == ["propensities-estimated"]
    assert "propensities were estimated" in str(estimated)
    assert estimated.mapping.estimated == EstimatedPropensities()


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


def test_a_changing_mix_of_rounds_is_no_drift(good: pl.DataFrame) -> None:
    n = len(good)
    late = pl.int_range(n) >= n // 2
    table = good.with_columns(round=late.cast(pl.Int64), age=pl.col("age") + late * 2.0)
    assert "drift-context" not in names(check(table))


def counts_findings(pi: Any, rows: int, seed: int, factor: Any = 1.0, drop: int = -1) -> list[str]:
    """Findings for logs of a policy, (contexts, A), with propensities times a factor per action."""
    draw = np.random.default_rng(seed)
    context = draw.integers(0, len(pi), rows)
    action = (draw.random(rows)[:, None] > pi.cumsum(axis=1)[context]).sum(axis=1)
    action = action.clip(max=pi.shape[1] - 1)
    p = np.clip(pi[context, action] * (np.ones(pi.shape[1]) * factor)[action], 1e-9, 1)
    table = pl.DataFrame({"action": action, "reward": np.zeros(rows), "propensity": p})
    source = Source.of(table.filter(pl.col("action") != drop))
    counts = count_logs(source, source.frame, LogMapping("action", "reward", "propensity"))
    return [finding.name for finding in counts_test(counts.halves).findings]


def softmax(contexts: int, size: int, spread: float, seed: int) -> Any:
    logits = spread * np.random.default_rng(seed).normal(size=(contexts, size))
    return np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)


EVEN = np.full((3, 10), 0.1)


def test_correct_propensities_pass() -> None:
    """Near-uniform, skewed, and with so many actions that most are seen by luck alone."""
    for seed in range(40):
        assert counts_findings(softmax(5, 8, 0.5, seed), 2000, seed) == []
        assert counts_findings(softmax(5, 8, 3.0, seed), 2000, seed) == []
        assert counts_findings(softmax(2, 400, 1.0, seed), 8000, seed) == []


def test_all_too_small_or_rows_dropped() -> None:
    assert "propensities-sum" in counts_findings(EVEN, 4000, 0, factor=0.9)
    assert "propensities-sum" in counts_findings(EVEN, 4000, 0, drop=3)


def test_one_action_too_small() -> None:
    factor = np.ones(10)
    factor[4] = 0.5
    assert "propensities-actions" in counts_findings(softmax(3, 10, 0.5, 0), 8000, 1, factor)


def test_too_large_is_a_warning() -> None:
    assert counts_findings(EVEN, 4000, 0, factor=1.5) == ["propensities-low"]


def test_partial_support_is_not_an_error() -> None:
    half = np.array([[0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 0.5, 0.5]])
    assert counts_findings(half, 4000, 0) == ["propensities-low"]
