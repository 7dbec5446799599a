"""1/p against the counts: correct propensities pass, wrong ones do not."""

from typing import Any

import numpy as np
import polars as pl

from depsue.check.checking import counts_test
from depsue.check.counting import count_logs
from depsue.data.mapping import LogMapping
from depsue.data.reading import Source


def findings(pi: Any, rows: int, seed: int, factor: Any = 1.0, drop: int = -1) -> list[str]:
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
        assert findings(softmax(5, 8, 0.5, seed), 2000, seed) == []
        assert findings(softmax(5, 8, 3.0, seed), 2000, seed) == []
        assert findings(softmax(2, 400, 1.0, seed), 8000, seed) == []


def test_all_too_small_or_rows_dropped() -> None:
    assert "propensities-sum" in findings(EVEN, 4000, 0, factor=0.9)
    assert "propensities-sum" in findings(EVEN, 4000, 0, drop=3)


def test_one_action_too_small() -> None:
    factor = np.ones(10)
    factor[4] = 0.5
    assert "propensities-actions" in findings(softmax(3, 10, 0.5, 0), 8000, 1, factor)


def test_too_large_is_a_warning() -> None:
    assert findings(EVEN, 4000, 0, factor=1.5) == ["propensities-low"]


def test_partial_support_is_not_an_error() -> None:
    half = np.array([[0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 0.5, 0.5]])
    assert findings(half, 4000, 0) == ["propensities-low"]
