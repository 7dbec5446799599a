"""Four good rows over five actions, and every door through which logs come in.

A test changes one column, or one cell, and says what the error must name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from depsue.data import Catalogue, LoggedData

GOOD: Mapping[str, tuple[Any, ...]] = {
    "x": (0.5, 1.5, 0.5, 2.5),
    "y": (1.0, 2.0, 1.0, 3.0),
    "action": (10, 20, 30, 10),
    "reward": (0.0, 1.0, 0.5, 1.0),
    "propensity": (0.5, 0.25, 1.0, 0.125),
    "unit": ("u", "v", "u", "w"),
    "time": (1.5, 2.5, 3.5, 4.5),
    "round": (0, 0, 1, 1),
}

IN_FRAMES = {
    "x": "age",
    "y": "tenure",
    "action": "item",
    "reward": "click",
    "propensity": "p",
    "unit": "user",
    "time": "at",
    "round": "wave",
}
"""Frames have names of their own, and errors must use them."""

IN_ARRAYS = {name: name for name in GOOD} | {"x": "context[0]", "y": "context[1]"}


@dataclass(frozen=True)
class Door:
    """One way in: builds logs from columns, and knows by which names errors speak of them."""

    name: str
    build: Callable[[Mapping[str, Any], Catalogue, float], LoggedData]
    names: Mapping[str, str]


def from_arrays(columns: Mapping[str, Any], catalogue: Catalogue, r_max: float) -> LoggedData:
    return LoggedData.from_arrays(
        contexts=list(zip(columns["x"], columns["y"], strict=True)),
        actions=columns["action"],
        rewards=columns["reward"],
        propensities=columns["propensity"],
        units=columns["unit"],
        times=columns["time"],
        rounds=columns["round"],
        catalogue=catalogue,
        r_max=r_max,
    )


def frame_door(name: str, frame_of: Callable[[dict[str, list[Any]]], Any]) -> Door:
    def build(columns: Mapping[str, Any], catalogue: Catalogue, r_max: float) -> LoggedData:
        frame = frame_of({IN_FRAMES[role]: list(values) for role, values in columns.items()})
        return read_frame(frame, catalogue, r_max)

    return Door(name, build, IN_FRAMES)


def read_frame(frame: Any, catalogue: Catalogue, r_max: float) -> LoggedData:
    roles = {role: IN_FRAMES[role] for role in GOOD if role not in "xy"}
    return LoggedData.from_frame(frame, catalogue, r_max=r_max, context=["age", "tenure"], **roles)


def _polars(columns: dict[str, list[Any]]) -> pl.DataFrame:
    return pl.DataFrame(columns, strict=False)


DOORS = [
    Door("lists", from_arrays, IN_ARRAYS),
    Door(
        "numpy",
        lambda columns, *rest: from_arrays(
            {name: np.array(values) for name, values in columns.items()}, *rest
        ),
        IN_ARRAYS,
    ),
    frame_door("dict", lambda columns: columns),
    frame_door("polars", _polars),
    frame_door("polars lazy", lambda columns: _polars(columns).lazy()),
    frame_door("pandas", pd.DataFrame),
    frame_door("pandas object", lambda columns: pd.DataFrame(columns, dtype=object)),
    frame_door("pandas nullable", lambda columns: pd.DataFrame(columns).convert_dtypes()),
    frame_door(
        "pandas arrow",
        lambda columns: pd.DataFrame(columns).convert_dtypes(dtype_backend="pyarrow"),
    ),
    frame_door("arrow table", pa.table),
    frame_door("arrow batch", pa.record_batch),
]


@pytest.fixture(params=DOORS, ids=lambda door: door.name.replace(" ", "-"))
def door(request: pytest.FixtureRequest) -> Door:
    """Each of the doors in turn."""
    chosen: Door = request.param
    return chosen


@pytest.fixture(params=[door for door in DOORS if door.name in ("lists", "dict", "pandas object")])
def object_door(request: pytest.FixtureRequest) -> Door:
    """The doors through which a column of mixed Python objects can come."""
    chosen: Door = request.param
    return chosen


@pytest.fixture
def good() -> dict[str, list[Any]]:
    """The four good rows, to be changed at will."""
    return {name: list(values) for name, values in GOOD.items()}


@pytest.fixture
def in_frames() -> dict[str, list[Any]]:
    """The four good rows by the names of the frames."""
    return {IN_FRAMES[name]: list(values) for name, values in GOOD.items()}


@pytest.fixture
def catalogue() -> Catalogue:
    """Five actions with two features; 50 is novel."""
    features = np.arange(10.0).reshape(5, 2)
    return Catalogue.of([10, 20, 30, 40, 50], novel=[50], features=features)


@pytest.fixture
def read(catalogue: Catalogue) -> Callable[[Any], LoggedData]:
    """Logs from a frame that has the frames' names."""
    return lambda frame: read_frame(frame, catalogue, 1.0)


@pytest.fixture
def build(catalogue: Catalogue, good: dict[str, list[Any]]) -> Callable[..., LoggedData]:
    """Logs from the good rows by `from_arrays`, with some arguments changed."""

    def built(**changed: Any) -> LoggedData:
        arguments = {
            "contexts": np.column_stack([good["x"], good["y"]]),
            "actions": good["action"],
            "rewards": good["reward"],
            "propensities": good["propensity"],
            "catalogue": catalogue,
            "r_max": 1.0,
        }
        return LoggedData.from_arrays(**{**arguments, **changed})

    return built
