"""docs/data.md: its code runs as it stands, and its messages are the real ones."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from depsue.data import Catalogue, LoggedData
from depsue.errors import DepsueError

PAGE = (Path(__file__).parents[2] / "docs" / "data.md").read_text(encoding="utf-8")


def test_the_code_runs_from_top_to_bottom() -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    assert len(blocks) >= 6
    exec("\n".join(blocks), {"__name__": "data"})


def logs(catalogue: Catalogue, **changed: Any) -> LoggedData:
    given: dict[str, Any] = {
        "contexts": [[0.2, 1.0], [0.7, 0.0], [0.2, 1.0]],
        "actions": ["tea", "milk", "tea"],
        "rewards": [1, 0, 1],
        "propensities": [0.6, 0.4, 0.6],
        "r_max": 1.0,
    }
    return LoggedData.from_arrays(catalogue=catalogue, **{**given, **changed})


REFUSED: list[Callable[[Catalogue], object]] = [
    lambda c: logs(c, propensities=[0.6, 0.0, -1]),
    lambda c: logs(c, propensities=["0.6", "0.4", "0.6"]),
    lambda c: logs(c, rewards=[1, 0, 5]),
    lambda c: logs(c, rewards=[1, None, 1]),
    lambda c: logs(c, r_max=float("inf")),
    lambda c: logs(c, actions=["tea", "wine", "tea"]),
    lambda c: logs(c, actions=[0, 1, 0]),
    lambda c: logs(c, actions=["tea", "mate", "tea"]),
    lambda c: logs(c, contexts=[[0.2, 1.0], [0.7, np.nan], [0.2, 1.0]]),
    lambda c: logs(c, rewards=[1, 0]),
    lambda c: logs(c, rounds=[0, 0.5, 1]),
    lambda c: logs(c, actions=[]),
    lambda c: Catalogue.of(["tea", "milk", "tea"]),
    lambda c: Catalogue.of(["tea", "milk"], novel=["tea", "milk"]),
    lambda c: logs(c).split([0.5, 0.4], salt="campaign 7"),
]


@pytest.mark.parametrize("call", REFUSED)
def test_the_messages_are_the_real_ones(call: Callable[[Catalogue], object]) -> None:
    catalogue = Catalogue.of(["tea", "milk", "mate"], novel=["mate"])
    with pytest.raises(DepsueError) as caught:
        call(catalogue)
    assert f"`{caught.value}`" in PAGE
