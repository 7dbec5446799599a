"""The whole check: each thing that goes wrong has its finding, and nothing else has."""

from typing import Any

import numpy as np
import polars as pl
import pytest
from tests.check.conftest import check, names

from depsue.check.checking import counts_test
from depsue.check.counting import count_logs
from depsue.data.mapping import EstimatedPropensities, LogMapping
from depsue.data.reading import Source


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
