"""Numbers with their nouns: 1 item, 2 items."""

from __future__ import annotations


def plural(n: int, one: str, many: str | None = None) -> str:
    """The word for n of them: `one`, or `many`, which is `one` with an s unless it is given."""
    return one if n == 1 else many or f"{one}s"


def counted(n: int, one: str, many: str | None = None) -> str:
    """n and the word for n of them."""
    return f"{n:,} {plural(n, one, many)}"
