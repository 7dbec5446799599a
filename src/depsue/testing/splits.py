"""Folds that come out the same every time, for tests and simulations."""

from __future__ import annotations

from typing import overload

from depsue import rng
from depsue.certificates import (
    FRACTIONS,
    Folds,
    LogStream,
    Reads,
    StreamedFolds,
    UnitRows,
    three_folds,
)
from depsue.data.logs import LoggedData


@overload
def split(
    logs: LoggedData,
    name: str,
    fractions: tuple[float, float, float] = FRACTIONS,
    *,
    units: UnitRows | None = "all rows",
) -> Folds: ...
@overload
def split(
    logs: LogStream,
    name: str,
    fractions: tuple[float, float, float] = FRACTIONS,
    *,
    units: UnitRows | None = "all rows",
) -> StreamedFolds: ...
def split(
    logs: LoggedData | LogStream,
    name: str,
    fractions: tuple[float, float, float] = FRACTIONS,
    *,
    units: UnitRows | None = "all rows",
) -> Folds | StreamedFolds:
    """The three folds under a secret that is made of a name, which a ledger would never allow.

    Args:
        logs: rows of one round.
        name: another name is another split.
        fractions: shares of learn, select and certify.
        units: which rows of a unit the promise is about, where units have several.
    """
    registration = Reads(secret=rng.secret(0, "split", name)).register(logs, fractions)
    return three_folds(logs, registration, campaign=name, units=units)
