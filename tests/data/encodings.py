"""Rows of a world, and ways to bring the same rows back in another file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from depsue.data import Catalogue, LoggedData

ACTIONS = 20


def columns(
    n: int = 2000,
    seed: int = 0,
    *,
    distinct: int | None = None,
    peak: float = 0.2,
    timed: bool = False,
    units: int | None = None,
    ids: bool = False,
) -> dict[str, Any]:
    """Arrays of n rows.

    Args:
        n: how many.
        seed: of what is drawn.
        distinct: contexts in the world; None draws each anew.
        peak: probability of the action that the policy prefers in a context.
        timed: whether rows have times.
        units: how many, at most; None gives rows no unit.
        ids: whether decisions have ids.
    """
    draw = np.random.default_rng(seed)
    contexts = draw.normal(size=(n, 2))
    if distinct is not None:
        contexts = np.random.default_rng(99).normal(size=(distinct, 2))[
            draw.integers(0, distinct, n)
        ]
    preferred = np.abs(contexts[:, 0] * 7).astype(int) % ACTIONS
    other = (preferred + draw.integers(1, ACTIONS, n)) % ACTIONS
    follows = draw.random(n) < peak
    given: dict[str, Any] = {
        "contexts": contexts,
        "actions": np.where(follows, preferred, other),
        "rewards": (draw.random(n) < 0.5).astype(float),
        "propensities": np.where(follows, peak, (1 - peak) / (ACTIONS - 1)),
        "catalogue": Catalogue.of(range(ACTIONS + 1), novel=[ACTIONS]),
        "r_max": 1.0,
    }
    if timed:
        given["times"] = np.round(1e6 * seed + np.cumsum(draw.exponential(10.0, n)), 3)
    if units is not None:
        given["units"] = draw.integers(0, units, n) + 1_000_000 * seed
    if ids:
        given["decisions"] = np.array([f"{seed} {number}" for number in range(n)], dtype=object)
    return given


def rows(*args: Any, **more: Any) -> LoggedData:
    """The same as logs."""
    return LoggedData.from_arrays(**columns(*args, **more))


def _taken(given: dict[str, Any], which: Any) -> dict[str, Any]:
    per_row = ("contexts", "actions", "rewards", "propensities", "times", "units", "decisions")
    return {name: value[which] if name in per_row else value for name, value in given.items()}


def _appended(given: dict[str, Any]) -> dict[str, Any]:
    n = len(given["actions"])
    timed, ids = "times" in given, "decisions" in given
    more = columns(n // 4, 77, timed=timed, units=50 if "units" in given else None, ids=ids)
    same = ("catalogue", "r_max")
    return {
        name: value if name in same else np.concatenate([value, more[name]])
        for name, value in given.items()
    }


def _moved(given: dict[str, Any]) -> dict[str, Any]:
    return {**given, "contexts": given["contexts"] + [1e-6, 0.0]}


ENCODINGS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "r_max": lambda given: {**given, "r_max": 1.0000001},
    "a feature": _moved,
    "an unshown item": lambda given: {
        **given,
        "catalogue": Catalogue.of(range(ACTIONS + 2), novel=[ACTIONS, ACTIONS + 1]),
    },
    "a column": lambda given: {**given, "columns": {"more": given["rewards"]}},
    "a row id as unit": lambda given: {**given, "units": np.arange(len(given["actions"]))},
    "appended rows": _appended,
    "a tenth of the rows": lambda given: _taken(given, slice(None, None, 10)),
    "sorted": lambda given: _taken(given, np.argsort(given["contexts"][:, 0])),
    "a row id as decision": lambda given: {**given, "decisions": np.arange(len(given["actions"]))},
    "without ids": lambda given: {name: v for name, v in given.items() if name != "decisions"},
    "without units": lambda given: {name: v for name, v in given.items() if name != "units"},
}


def encoded(given: dict[str, Any], how: str) -> LoggedData:
    """The same rows, another file."""
    return LoggedData.from_arrays(**ENCODINGS[how](given))
