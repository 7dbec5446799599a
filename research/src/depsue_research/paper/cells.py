"""Cells: the unit of a sweep, and the folder in which finished ones are kept.

A cell is (recipe, level, method, seed). Its result is one JSON object. While a sweep runs, every
finished cell is a file of its own, written atomically; at the end they are gathered into one
file of lines. Both are read back, so a sweep goes on where it was interrupted, and more seeds can
be added to a finished one. A record beside them says which run they are of, so that its tables and
figures can be made again from the folder alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from depsue.errors import FileError
from depsue.files import write_synced
from depsue_research.paper.recipe import Recipe, load_recipe, recipe_folder

GATHERED, RECORD = "cells.jsonl", "run.json"
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


@dataclass(frozen=True)
class RunRecord:
    """Which run the cells of a folder are of.

    Args:
        command: what was typed, for the page.
        recipe: the name of a recipe that comes with this package, or the path of another one.
        steps, rows, bound_every, levels, methods: what was asked for instead of the recipe's; None
            leaves the recipe's.
        configs: by method, the hash of its settings. Cells with another hash are of another run.
    """

    command: str
    recipe: str
    steps: int | None = None
    rows: int | None = None
    bound_every: int | None = None
    levels: tuple[float, ...] | None = None
    methods: tuple[str, ...] | None = None
    configs: dict[str, str] = field(default_factory=dict)

    def load_recipe(self) -> Recipe:
        """The recipe with what was asked for."""
        shipped = recipe_folder() / f"{self.recipe}.toml"
        return load_recipe(shipped if shipped.is_file() else self.recipe).with_options(
            steps=self.steps,
            rows=self.rows,
            bound_every=self.bound_every,
            levels=self.levels,
            methods=self.methods,
        )


class CellStore:
    """Finished cells in a folder.

    Args:
        folder: where; created if need be.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def finished(self, recipe: Recipe) -> dict[Cell, Result]:
        """Those that were made with the settings of this recipe."""
        return self.with_configs({method: recipe.hash_of(method) for method in recipe.methods})

    def with_configs(self, configs: Mapping[str, str]) -> dict[Cell, Result]:
        """Those whose settings have these hashes, by method."""
        results = self._read()[0].values()
        mine = [result for result in results if result["config"] == configs.get(result["method"])]
        return dict(sorted((Cell.of(result), result) for result in mine))

    def record(self) -> RunRecord:
        """Which run the cells are of."""
        path = self.folder / RECORD
        try:
            return msgspec.json.decode(path.read_bytes(), type=RunRecord)
        except (OSError, msgspec.DecodeError) as problem:
            raise FileError(
                "a folder of results must have a record of its run",
                found=f"{path}: {problem}",
                cure="name a folder that `depsue-research reproduce` wrote, or run it again",
            ) from problem

    def write_record(self, record: RunRecord) -> None:
        """Say which run the cells are of."""
        text = msgspec.json.format(msgspec.json.encode(record), indent=2).decode()
        self._replace(self.folder / RECORD, text + "\n")

    def write(self, result: Result) -> None:
        """Keep a finished cell; one of the same settings is replaced, of others it is not."""
        cell = Cell.of(result)
        name = f"{cell.method}_{cell.level!r}_seed{cell.seed}_{result['config']}.json"
        self._replace(self._folder_of_cells / name, json.dumps(result))

    def gather(self) -> None:
        """Put all finished cells into one file of lines."""
        results, paths = self._read()
        ordered = [result for _, result in sorted(results.items())]
        lines = [json.dumps(result, separators=(",", ":")) + "\n" for result in ordered]
        self._replace(self.folder / GATHERED, "".join(lines))
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
        results: dict[tuple[Cell, str], Result] = {}
        gathered = self.folder / GATHERED
        try:
            for path in ([gathered] if gathered.exists() else []) + paths:
                lines = path.read_bytes().splitlines() if path is gathered else [path.read_bytes()]
                for line in lines:
                    result = _checked(line, path)
                    results[Cell.of(result), result["config"]] = result
        except OSError as problem:
            raise FileError(
                "finished cells must be readable files",
                found=f"{problem.filename}: {problem.strerror}",
                cure="choose another folder with --out",
            ) from problem
        return results, paths

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
