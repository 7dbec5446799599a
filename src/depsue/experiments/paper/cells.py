"""Cells: the unit of a sweep, and the folder in which finished ones are kept.

A cell is (recipe, level, method, seed). Its result is one JSON object. While a sweep runs, every
finished cell is a file of its own, written atomically; at the end they are gathered into one
file of lines. Both are read back, so a sweep goes on where it was interrupted, and more seeds can
be added to a finished one.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from depsue.errors import FileError
from depsue.experiments.paper.recipe import Recipe

GATHERED = "cells.jsonl"
Result = dict[str, Any]
"""What `run_cell` returns; docs/reproduce.md lists its entries."""


@dataclass(frozen=True, order=True)
class Cell:
    """One run: a method at a level (beta or epsilon) with a seed."""

    seed: int
    level: float
    method: str

    def __str__(self) -> str:
        return f"{self.method} at {self.level:g}, seed {self.seed}"

    @classmethod
    def of(cls, result: Result) -> Cell:
        """The cell that a result is of."""
        return cls(int(result["seed"]), float(result["level"]), str(result["method"]))


def cells_of(recipe: Recipe, seeds: Iterable[int]) -> list[Cell]:
    """All cells, seed after seed, so that a sweep cut short has whole seeds."""
    return [
        Cell(seed, level, method)
        for seed in dict.fromkeys(seeds)
        for level in recipe.levels
        for method in recipe.methods
    ]


class CellStore:
    """Finished cells in a folder.

    Args:
        folder: where; created if need be.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def results(self) -> dict[Cell, Result]:
        """All finished cells; of a cell that is there twice, the one that was not gathered yet."""
        found: dict[Cell, Result] = {}
        gathered = self.folder / GATHERED
        if gathered.exists():
            for line in gathered.read_bytes().splitlines():
                self._add(found, line, gathered)
        for path in sorted((self.folder / "cells").glob("*.json")):
            self._add(found, path.read_bytes(), path)
        return dict(sorted(found.items()))

    def finished(self, recipe: Recipe) -> dict[Cell, Result]:
        """Those that were made with the settings of this recipe."""
        hashes = {method: recipe.hash_of(method) for method in recipe.methods}
        return {c: r for c, r in self.results().items() if r["config"] == hashes.get(c.method)}

    def write(self, result: Result) -> None:
        """Keep a finished cell."""
        cell = Cell.of(result)
        name = f"{cell.method}_{cell.level!r}_seed{cell.seed}.json"
        self._replace(self.folder / "cells" / name, json.dumps(result))

    def gather(self) -> None:
        """Put all finished cells into one file of lines."""
        results = self.results()
        lines = "".join(json.dumps(result) + "\n" for result in results.values())
        self._replace(self.folder / GATHERED, lines)
        for path in (self.folder / "cells").glob("*.json*"):  # and what an interrupt left
            path.unlink()
        if (self.folder / "cells").is_dir():
            (self.folder / "cells").rmdir()

    def _add(self, found: dict[Cell, Result], text: bytes, path: Path) -> None:
        try:
            result = json.loads(text)
            cell, _ = Cell.of(result), result["config"]
            found[cell] = result
        except (ValueError, KeyError, TypeError) as problem:
            raise FileError(
                "a finished cell must be a JSON object with seed, level, method and config",
                found=f"{path}: {type(problem).__name__} {problem}",
                cure="delete it, and the cell is run again",
            ) from problem

    def _replace(self, path: Path, text: str) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
            with temporary.open("w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except OSError as problem:
            raise FileError(
                "the output folder must be writable and have room",
                found=f"{path}: {problem.strerror}",
                cure="choose another with --out; finished cells are kept",
            ) from problem
