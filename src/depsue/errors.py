"""Every error and warning that depsue raises on purpose.

::

    DepsueError
    ├── DataError          a log or a catalogue breaks a rule
    ├── ConfigError        a setting breaks a rule, or two settings contradict
    ├── PolicyError        a policy does not answer as a policy must
    ├── FileError          a saved policy or model cannot be trusted or read
    └── NotConservative    terms without a proof that E[term] <= V(pi) met a bound

    DepsueWarning
    └── NovelMassWarning   an estimate rests on actions that the logs never show

A message states the rule, then the value that broke it, then the cure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class DepsueError(Exception):
    """Base of all errors that depsue raises on purpose."""

    def __init__(self, rule: str, *, found: str = "", cure: str = "") -> None:
        self.rule, self.found, self.cure = rule, found, cure
        parts = [rule, f"Found: {found}" if found else "", f"Cure: {cure}" if cure else ""]
        super().__init__(" ".join(part.rstrip(".") + "." for part in parts if part))


class DataError(DepsueError):
    """A log or a catalogue breaks a rule; names the column and the first offending row."""

    def __init__(
        self,
        rule: str,
        *,
        column: str,
        row: int | None = None,
        value: Any = None,
        count: int = 1,
        found: str = "",
        cure: str = "",
    ) -> None:
        self.column, self.row, self.value, self.count = column, row, value, count
        if row is not None:
            more = f" ({count:,} such rows)" if count > 1 else ""
            found = f"column '{column}', row {row}: {value!s}{more}"
        super().__init__(rule, found=found or f"column '{column}'", cure=cure)


class ConfigError(DepsueError):
    """A setting breaks a rule, or two settings contradict each other."""


class PolicyError(DepsueError):
    """A policy does not answer as a policy must."""


class FileError(DepsueError):
    """A saved policy or model is missing, damaged, or of another version."""


class NotConservative(DepsueError):
    """Terms without a proof that E[term] <= V(pi) were handed to a bound."""


class DepsueWarning(UserWarning):
    """Base of all warnings that depsue raises on purpose."""


class NovelMassWarning(DepsueWarning):
    """An estimate rests on actions that the logs never show."""


def require(
    ok: bool,
    rule: str,
    *,
    found: object = "",
    cure: str = "",
    error: Callable[..., DepsueError] = ConfigError,
) -> None:
    """Raise `error` with the rule, the value and the cure unless `ok`."""
    if not ok:
        raise error(rule, found=str(found), cure=cure)


def require_level(delta: float) -> float:
    """The level delta of a bound, checked to lie in (0, 1)."""
    require(0 < delta < 1, "delta must lie in (0, 1)", found=delta, cure="use for example 0.05")
    return float(delta)
