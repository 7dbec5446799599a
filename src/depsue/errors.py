"""Every error and warning that depsue raises on purpose.

::

    DepsueError
    ├── DataError          a log or a catalogue breaks a rule
    ├── ConfigError        a setting breaks a rule, or two settings contradict
    ├── PolicyError        a policy does not answer as a policy must
    │   └── ModelMissing   it calls a team's own model, which is not at hand
    ├── FileError          a saved policy, a model or a ledger cannot be trusted or read
    │   └── CannotBeSaved  a policy or a model wraps what no file can hold (a PolicyError, too)
    └── NotConservative    terms without a proof that E[term] <= V(pi) met a bound

    DepsueWarning
    └── NovelMassWarning   an estimate rests on actions that the logs never show

A message states the rule, then the value that broke it, then the cure.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any


class DepsueError(Exception):
    """Base of all errors that depsue raises on purpose."""

    def __init__(self, rule: str, *, found: str = "", cure: str = "") -> None:
        self.rule, self.found, self.cure = rule, found, cure
        parts = [rule, f"Found: {found}" if found else "", f"Cure: {cure}" if cure else ""]
        super().__init__(" ".join(part.rstrip(".") + "." for part in parts if part))

    def __reduce__(self) -> tuple[Any, ...]:
        """Errors cross process borders whole, whatever arguments they were made with."""
        return _restored, (type(self), self.args, self.__dict__)


class DataError(DepsueError):
    """A log or a catalogue breaks a rule; names the column and the first offending row.

    Args:
        rule: what must hold.
        column: the column that breaks it.
        row: the first row that breaks it, counted from 0; None if it is not about one row.
        value: the value in that row.
        count: how many rows break it.
        found: what was found, where there is no row to name.
        cure: what to do.
    """

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
        self._detail = found
        where = f"column '{column}'"
        if row is not None:
            more = f" ({count:,} such rows)" if count > 1 else ""
            where, found = f"{where}, row {row}", short(value) + more
        super().__init__(rule, found=f"{where}: {found}" if found else where, cure=cure)

    def moved(self, column: str, row: int | None) -> DataError:
        """The same error by the names of the door that the data came through."""
        return DataError(
            self.rule,
            column=column,
            row=row,
            value=self.value,
            count=self.count,
            found=self._detail,
            cure=self.cure,
        )


class ConfigError(DepsueError):
    """A setting breaks a rule, or two settings contradict each other."""


class PolicyError(DepsueError):
    """A policy does not answer as a policy must."""


class ModelMissing(PolicyError):
    """A policy calls a team's own model, which was not handed in."""


class FileError(DepsueError):
    """A saved policy, a model or a ledger is missing, damaged, or of another version."""


class CannotBeSaved(PolicyError, FileError):
    """A policy or a reward model wraps what no file can hold, such as a callable."""


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


def require_delta(delta: float) -> float:
    """The error budget delta, checked to lie in (0, 1)."""
    ok = is_real(delta) and 0 < delta < 1
    require(ok, "delta must lie in (0, 1)", found=short(delta), cure="use for example 0.05")
    return float(delta)


def is_real(value: object) -> bool:
    """True for a real number of any type; True and False are not numbers."""
    return not isinstance(value, bool) and isinstance(value, Real)


def require_positive(value: object, name: str, cure: str) -> None:
    """Refuse what is not a positive, finite number."""
    ok = isinstance(value, Real) and is_real(value) and 0 < float(value) < math.inf
    require(ok, f"{name} must be a positive number", found=short(value), cure=cure)


def require_settings(settings: object, kind: type) -> None:
    """Refuse settings of another class, before anything is done with them."""
    require(
        isinstance(settings, kind),
        f"settings must be {kind.__name__}",
        found=short(settings),
        cure=f"pass {kind.__name__}(...)",
    )


def require_path(value: object, what: str) -> None:
    """Refuse what is no path, before a file is looked for."""
    require(
        isinstance(value, str | os.PathLike) and not isinstance(value, bytes),
        f"{what} is named by a path",
        found=f"{type(value).__name__} {short(value)}",
        cure="pass text or a pathlib.Path",
    )


def is_whole(value: object) -> bool:
    """True for an integer of any type; True and False are not numbers."""
    return not isinstance(value, bool) and isinstance(value, Integral)


def short(value: object, width: int = 80) -> str:
    """A value as it would be typed, cut to `width` characters."""
    text = repr(value)
    return text if len(text) <= width else text[: width - 3] + "..."


def _restored(kind: type[DepsueError], args: tuple[Any, ...], state: dict[str, Any]) -> DepsueError:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(state)
    return error
