"""What the commands' arguments mean, where several share it: seeds, numbers, tables to keep."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import typer

from depsue.errors import ConfigError, require

LARGEST_SEED = 1_000_000
MOST_SEEDS = 10_000


def seeds_of(text: str) -> list[int]:
    """The seeds that "5" (0 to 4), "3-7" or "0,4,9" stand for."""
    try:
        if "," in text:
            numbers = [int(part) for part in text.split(",")]
        elif "-" in text.strip("-"):
            first, last = (int(part) for part in text.split("-"))
            numbers = list(range(first, min(last, first + MOST_SEEDS) + 1))
        else:
            numbers = list(range(min(int(text), MOST_SEEDS + 1)))
    except ValueError:
        numbers = []
    require(
        0 < len(numbers) <= MOST_SEEDS
        and len(set(numbers)) == len(numbers)
        and 0 <= min(numbers) <= max(numbers) <= LARGEST_SEED,
        f"seeds must be a number of them, a range or a list: at most {MOST_SEEDS:,}, "
        f"each at most {LARGEST_SEED:,}",
        found=text,
        cure="for example 5, 3-7, or 0,4,9",
    )
    return numbers


def numbers(text: str | None, what: str = "levels") -> tuple[float, ...] | None:
    if text is None:
        return None
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise ConfigError(
            f"{what} must be numbers with commas between", found=text, cure="for example -8,0,8"
        ) from None


def print_and_keep(lines: Iterable[str], out: Path | None = None) -> None:
    """Print lines as they come, and write them to a file at the end if there is one."""
    shown = []
    for line in lines:
        typer.echo(line)
        shown.append(line + "\n")
    if out is not None:
        out.write_text("".join(shown), encoding="utf-8")
