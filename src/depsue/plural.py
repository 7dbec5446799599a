"""Numbers with their nouns: 1 item, 2 items."""

from __future__ import annotations


def plural(n: int, singular: str, plural_form: str | None = None) -> str:
    """The noun for n things: the plural adds an s unless `plural_form` says otherwise."""
    return singular if n == 1 else plural_form or f"{singular}s"


def counted(n: int, singular: str, plural_form: str | None = None) -> str:
    """n and the noun for n things: "1 item", "2,000 items"."""
    return f"{n:,} {plural(n, singular, plural_form)}"
