"""A table of text cells that is written as Markdown, CSV and HTML."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass

NONE = "-"
"""What stands where there is nothing to show."""


@dataclass(frozen=True)
class Table:
    """A table; numbers are formatted once, when it is made.

    Args:
        name: of its files.
        title: one line.
        headings: one a column.
        rows: cells as text, as many as headings.
        note: how to read it.
    """

    name: str
    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""

    @property
    def numeric(self) -> tuple[bool, ...]:
        """Which columns hold numbers only, and so are aligned to the right."""
        return tuple(
            all(re.fullmatch(r"[-+]?[\d.,/% ]*", row[place]) for row in self.rows)
            for place in range(len(self.headings))
        )

    def markdown(self) -> str:
        """Title, table and note."""
        rule = tuple("---:" if right else "---" for right in self.numeric)
        lines = [_line(row) for row in (self.headings, rule, *self.rows)]
        note = f"\n{self.note}\n" if self.note else ""
        return f"### {self.title}\n\n" + "\n".join(lines) + "\n" + note

    def csv(self) -> str:
        """Headings and rows only."""
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows((self.headings, *self.rows))
        return text.getvalue()


def number(value: float | None, digits: int = 3) -> str:
    """A number as it is shown; "-" for none."""
    return NONE if value is None else f"{value:.{digits}f}"


def signed(value: float | None) -> str:
    """A difference as it is shown."""
    return NONE if value is None else f"{value:+.3f}"


def rate(count: float | None, n: int) -> str:
    """So many of n; "-" of none."""
    return NONE if count is None or n == 0 else f"{count:.0f}/{n}"


def _line(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
