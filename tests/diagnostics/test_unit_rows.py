"""Rows per unit: sessions that go on while the user clicks are found, user types are not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from depsue.data import Catalogue, LoggedData
from depsue.data.checks import FloatArray, IntArray
from depsue.diagnostics import check_unit_rows, require_unit_rows
from depsue.errors import DataError
from depsue.policies import OwnPolicy, ScoreTable

CONTEXTS = np.eye(4, dtype=np.float32)
MOST = 30


def sessions(seed: int, n: int, stays: str) -> tuple[LoggedData, OwnPolicy]:
    """About n rows of users who stay for more by what `stays` says, in no order."""
    draw = np.random.default_rng(seed)
    q = draw.uniform(0.05, 0.6, size=(4, 6))
    pi = 0.9 * draw.dirichlet(np.full(6, 2.0), size=4) + 0.1 / 6
    kind = draw.integers(4, size=n // 2)
    columns: list[list[Any]] = [[], [], [], [], []]
    alive: IntArray = np.arange(len(kind))
    for step in range(MOST):
        x = kind[alive]
        a = (draw.random(len(x))[:, None] > np.cumsum(pi[x], axis=1)).sum(axis=1).clip(max=5)
        r = (draw.random(len(x)) < q[x, a]).astype(float)
        for column, values in zip(columns, (alive, x, a, r, 0 * r + step), strict=True):
            column.append(values)
        chance: FloatArray = {
            "clicked": 0.3 + 0.5 * r,
            "bought": 0.7 - 0.5 * r,
            "type": 0.2 + 0.15 * x,
        }[stays]
        alive = alive[draw.random(len(x)) < chance]
    order = draw.permutation(sum(len(part) for part in columns[0]))[:n]
    u, x, a, r, t = (np.concatenate(column)[order] for column in columns)
    logs = LoggedData.from_arrays(
        contexts=CONTEXTS,
        context_rows=x,
        actions=a,
        rewards=r,
        propensities=pi[x, a],
        catalogue=Catalogue.of(range(6)),
        r_max=1.0,
        units=u,
        times=t,
    )
    return logs, OwnPolicy(ScoreTable(CONTEXTS, pi), 6)


@pytest.mark.parametrize("stays", ["clicked", "bought"])
def test_what_keeps_users_is_found(stays: str) -> None:
    """8,000 rows are what 20,000 leave to learn and to select."""
    refuted = [not check_unit_rows(*sessions(seed, 8000, stays)).ok for seed in range(24)]
    assert np.mean(refuted) >= 0.95


def test_user_types_that_stay_longer_are_no_finding() -> None:
    reports = [check_unit_rows(*sessions(seed, 4000, "type")) for seed in range(60)]
    assert sum(not report.ok for report in reports) <= 1  # 0.06 are to be expected
    z = np.array([report.z for report in reports])
    assert (np.abs(z.mean(axis=0)) < 0.45).all() and (np.abs(z.std(axis=0) - 1) < 0.35).all()


def test_the_cure_is_named() -> None:
    logs, policy = sessions(0, 8000, "clicked")
    with pytest.raises(DataError, match="refuted.*z .* by reward.*--units first-row"):
        require_unit_rows(logs, policy)


def test_there_must_be_something_to_test() -> None:
    logs, policy = sessions(0, 8000, "clicked")
    report = require_unit_rows(logs.first_rows, policy)
    assert report.ok and not report.z and "too few units" in str(report)
    quiet, policy = sessions(0, 8000, "type")
    assert "nothing refutes" in str(require_unit_rows(quiet, policy))
