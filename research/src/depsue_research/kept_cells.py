"""Cells of a study in cells.jsonl, a line each: what is finished is not run again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Cell = dict[str, Any]


class KeptCells:
    """The cells of one folder, known by some of their values.

    Args:
        folder: where cells.jsonl is.
        names: of the values that tell cells apart.
    """

    def __init__(self, folder: Path, *names: str) -> None:
        self._file, self._names = folder / "cells.jsonl", names
        lines = self._file.read_text("utf-8").splitlines() if self._file.exists() else []
        self.cells: list[Cell] = [json.loads(line) for line in lines]
        self._done = {self._key(cell) for cell in self.cells}

    def _key(self, cell: Cell) -> tuple[Any, ...]:
        return tuple(cell[name] for name in self._names)

    def has(self, *values: Any) -> bool:
        """Whether the cell with these values is finished."""
        return values in self._done

    def add(self, cell: Cell) -> Cell:
        """Keep a cell, with six digits; that is what is returned."""
        kept: Cell = rounded(cell)
        with self._file.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(kept) + "\n")
        self.cells.append(kept)
        self._done.add(self._key(kept))
        return kept


def rounded(value: Any) -> Any:
    """JSON values with six digits."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: rounded(inner) for key, inner in value.items()}
    return [rounded(inner) for inner in value] if isinstance(value, list) else value
