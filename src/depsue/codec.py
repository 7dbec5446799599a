"""The one codec: frozen dataclasses to JSON and back.

`encode` and `decode` go to and from text (files, certificates), `plain` and `typed` to and from
JSON values (columns of the ledger). Numbers come back to the bit. What does not fit the type is
refused: a missing or an unknown key, a value of another type, NaN and infinity.

A layout that changes names an `upgrade`: a function that turns JSON values of the older layout into
those of today, so that files written before still read.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
import numpy as np

from depsue.errors import ConfigError, FileError, short

T = TypeVar("T")
Upgrade = Callable[[Any], Any]
"""JSON values of an older layout to those of today; today's pass through."""


def encode(value: object, *, indent: int | None = None, sort_keys: bool = False) -> str:
    """A dataclass as JSON text; with `sort_keys`, the same value is always the same text."""
    try:
        return json.dumps(plain(value), indent=indent, sort_keys=sort_keys, allow_nan=False)
    except ValueError as problem:
        raise ConfigError(
            "what is written as JSON must hold finite numbers",
            found=short(str(problem)),
            cure="NaN and infinity have no place in JSON: leave the value out (None)",
        ) from problem


def decode(text: str | bytes, kind: type[T], *, what: str, upgrade: Upgrade | None = None) -> T:
    """The dataclass that `encode` wrote.

    Args:
        text: JSON.
        kind: the dataclass.
        what: the text is, in words, for the error: "a certificate".
        upgrade: from older layouts.
    """
    try:
        values = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as problem:
        raise _misfit(what, problem) from problem
    return typed(values, kind, what=what, upgrade=upgrade)


def plain(value: object) -> Any:
    """A dataclass as JSON values: dicts, lists or tuples, strings, numbers, None."""
    return msgspec.to_builtins(value, enc_hook=_of_numpy)


def typed(values: Any, kind: type[T], *, what: str, upgrade: Upgrade | None = None) -> T:
    """The dataclass that `plain` described; arguments as for `decode`.

    Rules of the dataclass itself (its `__post_init__`) speak with their own errors.
    """
    try:
        today = values if upgrade is None else upgrade(values)
        made = msgspec.convert(today, kind)
    except (msgspec.ValidationError, KeyError, TypeError, ValueError, AttributeError) as problem:
        raise _misfit(what, problem) from problem
    # msgspec passes over keys that a dataclass does not have; a misspelt promise must not vanish
    unknown = _unknown_key(today, plain(made))
    if unknown is not None:
        raise _misfit(what, KeyError(f"unknown key {unknown}"))
    return made


def _misfit(what: str, problem: Exception) -> FileError:
    words = str(problem.args[0]) if isinstance(problem, KeyError) else str(problem)
    return FileError(
        f"the text must be {what} as depsue writes it",
        found=f"{type(problem).__name__}, {words[:200]}",
        cure="take it as it was written, with the version of depsue that wrote it or a newer one",
    )


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON number")


def _of_numpy(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} has no JSON form")


def _unknown_key(values: Any, known: Any, at: str = "") -> str | None:
    """The first key of `values` that is not in `known`, the same thing written anew."""
    pairs: list[tuple[str, Any, Any]] = []
    if isinstance(values, dict) and isinstance(known, dict):
        for key, value in values.items():
            if key not in known:
                return f"{at}{key}"
            pairs.append((f"{at}{key}.", value, known[key]))
    elif isinstance(values, list | tuple) and isinstance(known, list | tuple):
        pairs = [(at, *both) for both in zip(values, known, strict=True)]
    deeper = (_unknown_key(value, other, place) for place, value, other in pairs)
    return next((key for key in deeper if key is not None), None)
