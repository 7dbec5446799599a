"""Running the cells of an experiment: in processes of this machine, resumable, with progress."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from depsue.errors import DepsueError, is_whole, require, short
from depsue_research.paper.cells import Cell, CellStore, Result, cells_of
from depsue_research.paper.recipe import Recipe, method_of
from depsue_research.paper.run_cell import run_cell
from depsue_research.paper.worlds import check_data

Engine: TypeAlias = Callable[[Recipe, Sequence[Cell], Path | None], Iterator[Result]]
"""Yields the results of the cells as they finish, in any order."""
OnResult: TypeAlias = Callable[["SweepProgress", Result], None]


@dataclass
class SweepProgress:
    """How far a sweep is; a cell's weight is the gradient steps it takes."""

    cells: int
    done: int
    weight: float
    weight_done: float = 0.0
    weight_new: float = 0.0
    began: float = 0.0

    @property
    def seconds_left(self) -> float | None:
        """By the pace so far; None before the first cell."""
        if not self.weight_new:
            return None
        pace = (time.monotonic() - self.began) / self.weight_new
        return pace * (self.weight - self.weight_done)


def sweep(
    recipe: Recipe,
    seeds: Iterable[int],
    store: CellStore,
    engine: Engine,
    *,
    data: Path | None = None,
    on_result: OnResult = lambda progress, result: None,
) -> dict[Cell, Result]:
    """Run the cells that are not in the store yet, keep each as it finishes, and return all.

    Args:
        recipe: the experiment.
        seeds: one set of cells each.
        store: where finished cells are kept.
        engine: what runs them.
        data: the folder with the data set's files; None looks below DEPSUE_DATA.
        on_result: called with each cell that finishes.
    """
    wanted = cells_of(recipe, seeds)
    finished = store.finished(recipe)
    missing = [cell for cell in wanted if cell not in finished]
    weights = {cell: _weight(recipe, cell) for cell in wanted}
    progress = SweepProgress(
        cells=len(wanted),
        done=len(wanted) - len(missing),
        weight=sum(weights.values()),
        weight_done=sum(weights.values()) - sum(weights[cell] for cell in missing),
        began=time.monotonic(),
    )
    if missing:
        _require_same_data(finished.values(), check_data(recipe, data), store)
    for result in engine(recipe, missing, data):
        cell = Cell.of(result)
        if cell in finished:
            continue  # a cell that an engine ran twice counts once
        store.write(result)
        finished[cell] = result
        progress.done += 1
        progress.weight_done += weights[cell]
        progress.weight_new += weights[cell]
        on_result(progress, result)
    return {cell: finished[cell] for cell in wanted}


def in_processes(workers: int) -> Engine:
    """An engine of this machine: `workers` processes with one thread each."""
    require(
        is_whole(workers) and 1 <= workers <= 512,
        "workers must be a whole number from 1 to 512",
        found=short(workers),
        cure="one per core is best",
    )

    def engine(recipe: Recipe, cells: Sequence[Cell], data: Path | None) -> Iterator[Result]:
        if not cells:
            return
        context = multiprocessing.get_context("spawn")
        with (
            for_workers(),
            ProcessPoolExecutor(
                min(workers, len(cells)), mp_context=context, initializer=_end_with_parent
            ) as pool,
        ):
            futures = [pool.submit(run_cell, recipe, cell, data) for cell in long_first(cells)]
            problem: Exception | None = None
            try:
                for future in as_completed(futures):
                    try:
                        yield future.result()
                    except BrokenProcessPool as broken:
                        raise DepsueError(
                            "a worker must live until its cell is done",
                            found="one that was killed, for want of memory perhaps",
                            cure="use fewer --workers; finished cells are kept",
                        ) from broken
                    except Exception as failed:  # the other cells are run all the same
                        problem = problem or failed
            except BaseException:  # an interrupt: do not start the rest
                pool.shutdown(wait=False, cancel_futures=True)
                raise
            if problem is not None:
                raise problem

    return engine


def _require_same_data(
    finished: Iterable[Result], data: dict[str, object], store: CellStore
) -> None:
    """Cells of one folder are of one data set."""
    others = [result for result in finished if result.get("data", data) != data]
    require(
        not others,
        "all cells of a folder must be of the same data",
        found=f"{len(others):,} finished cells of other data in {store.folder}",
        cure="choose another folder with --out",
    )


def _end_with_parent() -> None:
    """Let a worker end at once when the process that started it is gone, killed for example."""
    parent = multiprocessing.parent_process()

    def wait() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


class for_workers:
    """Processes started in this block use one thread, and keep the memory that they free.

    Tables of contexts x actions come and go; where a fresh page is dear (a virtual machine), to
    give each back to the system takes longer than the sums. Only glibc knows the last two.
    """

    VARIABLES = {
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
        "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
    }

    def __enter__(self) -> None:
        self._before = {name: os.environ.get(name) for name in self.VARIABLES}
        os.environ.update(self.VARIABLES)

    def __exit__(self, *exc: object) -> None:
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _weight(recipe: Recipe, cell: Cell) -> float:
    """Gradient steps, about: what the time left is estimated from."""
    method = method_of(cell.method)
    match method.learner:
        case "naive_safe":
            return 0.1 * recipe.opg.steps
        case "opg":
            return 2.0 * recipe.opg.steps  # the reward model is fitted on all rows
        case "explore":
            return (2.0 + method.deployments) * recipe.opg.steps / 5  # no gradient steps
        case "depsue":
            return 3.0 * recipe.safe_opg.steps * method.deployments


def long_first(cells: Sequence[Cell]) -> list[Cell]:
    """Within a seed and level the longest cell first, so that workers end together."""
    order = {cell: place for place, cell in enumerate(cells)}
    return sorted(cells, key=lambda cell: (cell.seed, cell.level, -order[cell]))
