"""Cells: the unit of a sweep, and the folder in which finished ones are kept.

A cell is (recipe, level, method, seed). Its result is one JSON object. While a sweep runs, every
finished cell is a file of its own, written atomically; at the end they are gathered into one
file of lines. Both are read back, so a sweep goes on where it was interrupted, and more seeds can
be added to a finished one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from depsue.errors import FileError
from depsue.files import write_synced
from depsue_research.paper.recipe import Recipe

GATHERED = "cells.jsonl"
ENTRIES = ("seed", "level", "method", "config", "logging", "deployments", "seconds", "peak_mib")
"""What every result has."""
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

    def finished(self, recipe: Recipe) -> dict[Cell, Result]:
        """Those that were made with the settings of this recipe."""
        hashes = {method: recipe.hash_of(method) for method in recipe.methods}
        kept = self._read()[0].values()
        mine = [result for result in kept if result["config"] == hashes.get(result["method"])]
        return dict(sorted((Cell.of(result), result) for result in mine))

    def write(self, result: Result) -> None:
        """Keep a finished cell; one of the same settings is replaced, of others it is not."""
        cell = Cell.of(result)
        name = f"{cell.method}_{cell.level!r}_seed{cell.seed}_{result['config']}.json"
        self._replace(self._folder_of_cells / name, json.dumps(result))

    def gather(self) -> None:
        """Put all finished cells into one file of lines."""
        results, paths = self._read()
        whole = [json.dumps(one, separators=(",", ":")) for _, one in sorted(results.items())]
        lines = "".join(line + "\n" for line in whole)
        self._replace(self.folder / GATHERED, lines)
        leftover = self._folder_of_cells.glob(".*.json.*")  # what an interrupt left
        for path in (*paths, *leftover):
            path.unlink(missing_ok=True)
        with suppress(OSError):  # another run may just be writing there
            self._folder_of_cells.rmdir()

    @property
    def _folder_of_cells(self) -> Path:
        return self.folder / "cells"

    def _read(self) -> tuple[dict[tuple[Cell, str], Result], list[Path]]:
        """All cells by their settings, and the files of their own that they were read from."""
        paths = sorted(self._folder_of_cells.glob("[!.]*.json"))
        found: dict[tuple[Cell, str], Result] = {}
        gathered = self.folder / GATHERED
        try:
            for path in ([gathered] if gathered.exists() else []) + paths:
                lines = path.read_bytes().splitlines() if path is gathered else [path.read_bytes()]
                for line in lines:
                    result = _checked(line, path)
                    found[Cell.of(result), result["config"]] = result
        except OSError as problem:
            raise FileError(
                "finished cells must be readable files",
                found=f"{problem.filename}: {problem.strerror}",
                cure="choose another folder with --out",
            ) from problem
        return found, paths

    def _replace(self, path: Path, text: str) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_synced(path, text.encode())
        except OSError as problem:
            raise FileError(
                "the output folder must be writable and have room",
                found=f"{path}: {problem.strerror}",
                cure="choose another with --out; finished cells are kept",
            ) from problem


def _checked(text: bytes, path: Path) -> Result:
    try:
        result: Result = json.loads(text)
        missing = [name for name in ENTRIES if name not in result]
        Cell.of(result)
        if missing or type(result["config"]) is not str:
            raise ValueError(f"without {', '.join(missing) or 'a config'}")
        return result
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as problem:
        raise FileError(
            f"a finished cell must be a JSON object with {', '.join(ENTRIES)}",
            found=f"{path}: {type(problem).__name__} {problem}",
            cure="delete it, and the cell is run again",
        ) from problem
