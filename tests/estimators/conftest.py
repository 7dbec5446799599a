"""Four rows, two contexts, three actions (c is novel): small enough for sums by hand.

row  x  a  r    p     pi    w    q
0    0  a  1    .50   .250  .5   .50
1    0  b  .5   .50   .250  .5   .50
2    1  a  .5   .25   .500  2    .25
3    1  b  1    .75   .375  .5   .75
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from depsue.data import Catalogue, LoggedData
from depsue.policies import OwnPolicy, ScoreTable
from depsue.testing.estimators import TableModel

CONTEXTS = np.array([[0.0], [1.0]])


@dataclass(frozen=True)
class ByHand:
    catalogue: Catalogue
    logs: LoggedData
    pi0: OwnPolicy
    pi: OwnPolicy
    model: TableModel
    model_of: Callable[[Any], TableModel]
    logs_with: Callable[..., LoggedData]
    policy: Callable[[Any], OwnPolicy]


@pytest.fixture
def by_hand() -> ByHand:
    catalogue = Catalogue.of(["a", "b", "c"], novel=["c"])

    def logs_with(**columns: Any) -> LoggedData:
        given: dict[str, Any] = {
            "contexts": CONTEXTS,
            "context_rows": [0, 0, 1, 1],
            "actions": ["a", "b", "a", "b"],
            "rewards": [1, 0.5, 0.5, 1],
            "propensities": [0.5, 0.5, 0.25, 0.75],
            "catalogue": catalogue,
            "r_max": 2.0,
        }
        return LoggedData.from_arrays(**{**given, **columns})

    def policy(table: Any) -> OwnPolicy:
        return OwnPolicy(ScoreTable(CONTEXTS, table), np.shape(table)[1])

    def model_of(table: Any) -> TableModel:
        where = ScoreTable(CONTEXTS, np.arange(len(CONTEXTS))[:, None])
        return TableModel(lambda x: np.asarray(table, dtype=float)[where(x)[:, 0]])

    return ByHand(
        catalogue=catalogue,
        logs=logs_with(),
        pi0=policy([[0.5, 0.5, 0], [0.25, 0.75, 0]]),
        pi=policy([[0.25, 0.25, 0.5], [0.5, 0.375, 0.125]]),
        model=model_of([[0.5, 0.5, 1], [0.25, 0.75, 0.5]]),
        model_of=model_of,
        logs_with=logs_with,
        policy=policy,
    )
