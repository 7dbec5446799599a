"""Logs with nothing wrong, to be spoiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

from depsue.check import CheckReport, check_logs

PI = np.array([[0.5, 0.3, 0.15, 0.05], [0.1, 0.2, 0.3, 0.4]])


def good_logs(rows: int = 8000, seed: int = 0) -> pl.DataFrame:
    """Two countries, four items, true propensities, times in order."""
    draw = np.random.default_rng(seed)
    country = draw.integers(0, 2, rows)
    action = (draw.random(rows)[:, None] > PI.cumsum(axis=1)[country]).sum(axis=1).clip(max=3)
    start = np.datetime64("2026-03-01T00:00:00", "us")
    return pl.DataFrame(
        {
            "timestamp": start + np.arange(rows).astype("m8[s]"),
            "user_id": draw.integers(0, rows // 2, rows),
            "item_id": action + 10,
            "click": (draw.random(rows) < 0.1 + 0.1 * action).astype(int),
            "propensity": PI[country, action],
            "age": draw.normal(size=rows),
            "country": np.array(["NO", "SE"])[country],
        }
    )


@pytest.fixture(scope="session")
def good() -> pl.DataFrame:
    return good_logs()


@pytest.fixture(scope="session")
def make() -> Any:
    return good_logs


def check(table: pl.DataFrame, **options: Any) -> CheckReport:
    return check_logs(table, **options)


def names(report: CheckReport) -> list[str]:
    return [finding.name for finding in report.findings]
