"""What may enter a ledger, checked at the door."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from depsue.errors import is_whole, require, short

LARGEST_TEXT = 1 << 20
"""Characters of a JSON value: a ledger holds sums, not rows."""

_HASH = re.compile(r"[0-9a-f]{64}")


def checked_name(value: str, what: str) -> str:
    """A name of a campaign, a file or a person: printable, and short."""
    require(
        isinstance(value, str) and bool(value.strip()) and value.isprintable(),
        f"{what} must be a name of printable characters",
        found=short(value),
        cure="name it in plain letters",
    )
    require(len(value) <= 1000, f"{what} must have at most 1000 characters", found=len(value))
    return value


def checked_hash(value: str, what: str) -> str:
    """A SHA-256 in lower-case hexadecimal digits."""
    require(
        isinstance(value, str) and _HASH.fullmatch(value) is not None,
        f"{what} must be a SHA-256, 64 hexadecimal digits",
        found=short(value),
        cure="logs.hash, policy_hash(policy) and certificates carry it",
    )
    return value


def checked_count(value: int, what: str, least: int, most: int = 1 << 53) -> int:
    """A whole number between two limits."""
    require(
        is_whole(value) and least <= value <= most,
        f"{what} must be a whole number from {least} to {most}",
        found=short(value),
    )
    return int(value)


def checked_json(value: Mapping[str, Any] | Sequence[str], what: str) -> str:
    """The one text of a JSON value: the same value is always the same text."""
    try:
        plain = dict(value) if isinstance(value, Mapping) else list(value)
        text = json.dumps(plain, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as problem:
        require(False, f"{what} must be JSON values", found=short(str(problem)))
        raise
    return checked_text(text, what)


def checked_text(text: str, what: str) -> str:
    """A text that is not too long."""
    require(
        len(text) <= LARGEST_TEXT,
        f"{what} must have at most {LARGEST_TEXT:,} characters as JSON",
        found=f"{len(text):,}",
        cure="keep counts and sums: a ledger holds no rows",
    )
    return text
