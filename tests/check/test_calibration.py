"""1/p against the counts: correct propensities pass, wrong ones do not."""

from typing import Any

import numpy as np
import polars as pl

from depsue.check.checking import calibration
from depsue.check.rules import summarize
from depsue.data.mapping import LogMapping
from depsue.data.reading import Source


def found(pi: Any, rows: int, seed: int, factor: Any = 1.0, drop: int = -1) -> list[str]:
    """Findings for logs of a policy, (contexts, A), with propensities times a factor per action."""
    draw = np.random.default_rng(seed)
    context = draw.integers(0, len(pi), rows)
    action = (draw.random(rows)[:, None] > pi.cumsum(axis=1)[context]).sum(axis=1)
    action = action.clip(max=pi.shape[1] - 1)
    p = np.clip(pi[context, action] * (np.ones(pi.shape[1]) * factor)[action], 1e-9, 1)
    table = pl.DataFrame({"action": action, "reward": np.zeros(rows), "propensity": p})
    source = Source.of(table.filter(pl.col("action") != drop))
    summary = summarize(source, source.frame, LogMapping("action", "reward", "propensity"))
    return [one.name for one in calibration(summary.actions, {}, [])]


def softmax(contexts: int, size: int, spread: float, seed: int) -> Any:
    logits = spread * np.random.default_rng(seed).normal(size=(contexts, size))
    return np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)


EVEN = np.full((3, 10), 0.1)


def test_correct_propensities_pass() -> None:
    """Near-uniform, skewed, and with so many actions that most are seen by luck alone."""
    for seed in range(40):
        assert found(softmax(5, 8, 0.5, seed), 2000, seed) == []
        assert found(softmax(5, 8, 3.0, seed), 2000, seed) == []
        assert found(softmax(2, 400, 1.0, seed), 8000, seed) == []


def test_all_too_small_or_rows_dropped() -> None:
    assert "propensities-sum" in found(EVEN, 4000, 0, factor=0.9)
    assert "propensities-sum" in found(EVEN, 4000, 0, drop=3)


def test_one_action_too_small() -> None:
    factor = np.ones(10)
    factor[4] = 0.5
    assert "propensities-actions" in found(softmax(3, 10, 0.5, 0), 8000, 1, factor)


def test_too_large_is_a_warning() -> None:
    assert found(EVEN, 4000, 0, factor=1.5) == ["propensities-low"]


def test_partial_support_is_not_an_error() -> None:
    half = np.array([[0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 0.5, 0.5]])
    assert found(half, 4000, 0) == ["propensities-low"]
