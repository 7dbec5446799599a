"""A sweep runs every cell once, keeps each as it finishes, and goes on where it stopped."""

import json
import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from depsue.errors import ConfigError, DepsueError, FileError
from depsue_research.paper.cells import GATHERED, Cell, CellStore, Result, cells_of
from depsue_research.paper.recipe import Recipe, deployments_of
from depsue_research.paper.run_cell import run_cell
from depsue_research.paper.sweep import SweepProgress, in_processes, sweep

Results = dict[Cell, Result]


@pytest.fixture(scope="module")
def whole(
    small_recipe: Recipe, movielens_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Results:
    """All cells of one seed, by one process."""
    store = CellStore(tmp_path_factory.mktemp("whole"))
    return sweep(small_recipe, [0], store, in_processes(1), data=movielens_folder)


@pytest.fixture
def full_store(whole: Results, tmp_path: Path) -> CellStore:
    """A store with all cells of one seed."""
    store = CellStore(tmp_path / "kept")
    for result in whole.values():
        store.write(result)
    return store


class Here:
    """An engine in this process that remembers what it was asked for."""

    def __init__(self) -> None:
        self.ran: list[Cell] = []

    def __call__(
        self, recipe: Recipe, cells: Sequence[Cell], data: Path | None
    ) -> Iterator[Result]:
        for cell in cells:
            self.ran.append(cell)
            yield run_cell(recipe, cell, data)


def timeless(results: Results) -> dict[Cell, str]:
    """Results as text, to the bit, without what differs from run to run."""
    changing = ("seconds", "peak_mib")
    return {
        cell: json.dumps({name: v for name, v in result.items() if name not in changing})
        for cell, result in results.items()
    }


def test_all_cells_are_run_and_kept(
    whole: Results, full_store: CellStore, small_recipe: Recipe, movielens_folder: Path
) -> None:
    assert list(whole) == cells_of(small_recipe, [0])
    assert len(whole) == 24
    for cell, result in whole.items():
        assert Cell.of(result) == cell
        assert result["config"] == small_recipe.hash_of(cell.method)
        assert len(result["deployments"]) == deployments_of(cell.method)
    engine = Here()
    assert sweep(small_recipe, [0], full_store, engine, data=movielens_folder) == whole
    assert engine.ran == []


def test_two_workers_find_the_same_to_the_bit(
    whole: Results, small_recipe: Recipe, movielens_folder: Path, tmp_path: Path
) -> None:
    results = sweep(small_recipe, [0], CellStore(tmp_path), in_processes(2), data=movielens_folder)
    assert timeless(results) == timeless(whole)
    cell = Cell(0, 8.0, "depsue_2")
    other = run_cell(small_recipe, replace(cell, seed=1), movielens_folder)
    assert timeless({cell: other}) != timeless({cell: whole[cell]})  # so the comparison can fail


def test_an_interrupted_sweep_goes_on_where_it_stopped(
    whole: Results, small_recipe: Recipe, movielens_folder: Path, tmp_path: Path
) -> None:
    def stop(progress: SweepProgress, result: Result) -> None:
        if progress.done == 3:
            raise KeyboardInterrupt

    store = CellStore(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        sweep(small_recipe, [0], store, in_processes(1), data=movielens_folder, on_result=stop)
    finished = store.finished(small_recipe)
    assert len(finished) == 3
    lost = next(iter(finished))
    next((tmp_path / "cells").glob(f"{lost.method}_{lost.level!r}_*.json")).unlink()

    engine = Here()
    results = sweep(small_recipe, [0], store, engine, data=movielens_folder)
    assert set(engine.ran) == set(whole) - set(finished) | {lost}
    assert timeless(results) == timeless(whole)


def test_an_error_outside_the_engine_ends_the_engine(
    whole: Results, small_recipe: Recipe, movielens_folder: Path, tmp_path: Path
) -> None:
    ended: list[bool] = []

    def engine(recipe: Recipe, cells: Sequence[Cell], data: Path | None) -> Iterator[Result]:
        try:
            for cell in cells:
                yield whole[cell]
        finally:
            ended.append(True)

    def fail(progress: SweepProgress, result: Result) -> None:
        raise FileError("no room is left")

    store = CellStore(tmp_path)
    with pytest.raises(FileError, match="no room") as caught:
        sweep(small_recipe, [0], store, engine, data=movielens_folder, on_result=fail)
    assert ended == [True]  # though the error, with its frames, is still there
    assert caught.tb is not None


def test_more_seeds_join_a_finished_sweep(
    full_store: CellStore, small_recipe: Recipe, movielens_folder: Path
) -> None:
    quick = small_recipe.with_options(methods=("naive_safe",))
    engine = Here()
    results = sweep(quick, [0, 1], full_store, engine, data=movielens_folder)
    assert engine.ran == cells_of(quick, [1])
    assert list(results) == cells_of(quick, [0, 1])


@pytest.mark.parametrize(
    ("change", "methods"),
    [
        (lambda r: replace(r, explore=0.2), {"naive_safe"}),
        (lambda r: replace(r, cql=replace(r.cql, conservatism=1.0)), {"opg_cql"}),
        (lambda r: replace(r, opg=replace(r.opg, steps=5)), {"opg_mean", "opg_min", "opg_cql"}),
        (lambda r: r.with_options(bound_every=20), {"depsue_1", "depsue_2", "depsue_5"}),
        (lambda r: replace(r, name="renamed"), set()),
    ],
    ids=["explore", "cql", "opg", "safe_opg", "name"],
)
def test_changed_settings_run_again_only_what_they_touch(
    change: Callable[[Recipe], Recipe],
    methods: set[str],
    whole: Results,
    full_store: CellStore,
    small_recipe: Recipe,
    movielens_folder: Path,
) -> None:
    changed = change(small_recipe)
    engine = Here()
    results = sweep(changed, [0], full_store, engine, data=movielens_folder)
    assert engine.ran == [cell for cell in cells_of(changed, [0]) if cell.method in methods]
    assert all(result["config"] == changed.hash_of(cell.method) for cell, result in results.items())
    assert full_store.finished(changed) == dict(sorted(results.items()))
    for _ in range(2):  # what was there before is there still, also when gathered
        assert full_store.finished(small_recipe) == dict(sorted(whole.items()))
        full_store.gather()


def test_a_cell_that_comes_twice_counts_once(
    whole: Results, small_recipe: Recipe, movielens_folder: Path, tmp_path: Path
) -> None:
    def twice(recipe: Recipe, cells: Sequence[Cell], data: Path | None) -> Iterator[Result]:
        for cell in cells:
            yield whole[cell]
            yield {**whole[cell], "on_policy": "of the second time"}

    calls: list[tuple[int, Cell]] = []
    results = sweep(
        small_recipe,
        [0],
        CellStore(tmp_path),
        twice,
        data=movielens_folder,
        on_result=lambda progress, result: calls.append((progress.done, Cell.of(result))),
    )
    assert results == whole
    assert calls == list(enumerate(cells_of(small_recipe, [0]), start=1))
    assert CellStore(tmp_path).finished(small_recipe) == dict(sorted(whole.items()))


def test_a_half_written_cell_is_never_seen(
    whole: Results, small_recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, *_ = whole.values()
    store = CellStore(tmp_path)
    store.write(first)

    def interrupted(file: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    for result in (second, {**first, "on_policy": "half of a new one"}):
        with pytest.raises(KeyboardInterrupt):
            store.write(result)
    assert store.finished(small_recipe) == {Cell.of(first): first}
    monkeypatch.undo()
    store.gather()
    assert [path.name for path in tmp_path.iterdir()] == [GATHERED]
    assert store.finished(small_recipe) == {Cell.of(first): first}


def test_gathered_cells_are_read_back_and_newer_ones_win(
    whole: Results, full_store: CellStore, small_recipe: Recipe
) -> None:
    full_store.gather()
    assert [path.name for path in full_store.folder.iterdir()] == [GATHERED]
    assert len((full_store.folder / GATHERED).read_text().splitlines()) == len(whole)
    assert full_store.finished(small_recipe) == dict(sorted(whole.items()))
    cell, result = next(iter(whole.items()))
    full_store.write({**result, "version": "newer"})
    for _ in range(2):  # from a file of its own, then gathered
        assert full_store.finished(small_recipe)[cell]["version"] == "newer"
        assert len(full_store.finished(small_recipe)) == len(whole)
        full_store.gather()


@pytest.mark.parametrize(
    "text",
    [
        b"\x00",
        b"\xff",
        b'{"seed": 0, "lev',
        b"[]",
        b'{"seed": 0, "level": "a", "method": "depsue_5", "config": ""}',
        b'{"seed": 0, "level": 8, "method": "depsue_5"}',
        b'{"seed": 1e400, "level": 8, "method": "depsue_5", "config": ""}',
    ],
)
def test_a_damaged_cell_is_named(full_store: CellStore, small_recipe: Recipe, text: bytes) -> None:
    (path,) = (full_store.folder / "cells").glob("depsue_5_8.0_seed0_*.json")
    path.write_bytes(text)
    with pytest.raises(FileError, match="(?s)JSON.*depsue_5_8.0_seed0_.*json.*delete it"):
        sweep(small_recipe, [0], full_store, Here())
    path.unlink()
    (full_store.folder / GATHERED).write_bytes(text + b"\n")
    with pytest.raises(FileError, match=GATHERED):
        full_store.finished(small_recipe)


def test_missing_data_is_said_before_any_work(
    full_store: CellStore, whole: Results, small_recipe: Recipe, tmp_path: Path
) -> None:
    engine = Here()
    with pytest.raises(FileError, match="no users.dat, movies.dat, ratings.dat in .*nothing"):
        sweep(small_recipe, [0], CellStore(tmp_path), engine, data=tmp_path / "nothing")
    assert engine.ran == []
    # and where nothing is left to do, nobody needs it
    assert sweep(small_recipe, [0], full_store, engine, data=tmp_path / "nothing") == whole


def test_an_unwritable_folder_is_named(whole: Results, tmp_path: Path) -> None:
    (tmp_path / "cells").write_text("a file, not a folder")
    with pytest.raises(FileError, match="(?s)must be writable.*cells.*--out"):
        CellStore(tmp_path).write(next(iter(whole.values())))


def test_progress_counts_cells_and_tells_the_time_left(
    full_store: CellStore,
    small_recipe: Recipe,
    movielens_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = iter(range(100))
    ticking = SimpleNamespace(monotonic=lambda: float(next(clock)))
    monkeypatch.setattr("depsue_research.paper.sweep.time", ticking)
    for path in (full_store.folder / "cells").glob("opg_*"):
        path.unlink()
    calls: list[tuple[int, int, float | None]] = []
    sweep(
        small_recipe,
        [0],
        full_store,
        Here(),
        data=movielens_folder,
        on_result=lambda p, result: calls.append((p.cells, p.done, p.seconds_left)),
    )
    # of 24 cells 18 were there; one second for each of six cells of equal weight
    assert [(cells, done) for cells, done, _ in calls] == [(24, done) for done in range(19, 25)]
    assert [left for *_, left in calls] == pytest.approx([5, 4, 3, 2, 1, 0])
    assert SweepProgress(cells=14, done=8, weight=10.0, weight_done=5.0).seconds_left is None


@pytest.mark.parametrize("workers", [0, 513, 1.5, True])
def test_workers_are_checked(workers: int) -> None:
    with pytest.raises(ConfigError, match="whole number from 1 to 512"):
        in_processes(workers)


def test_cells_of_other_data_are_refused(
    full_store: CellStore, whole: Results, small_recipe: Recipe, movielens_folder: Path
) -> None:
    result = next(iter(whole.values()))
    full_store.write({**result, "data": {"sha256": "of something else"}})
    with pytest.raises(ConfigError, match="1 finished cells of other data"):
        sweep(small_recipe, [1], full_store, Here(), data=movielens_folder)


def test_a_cell_that_fails_does_not_stop_the_others(
    small_recipe: Recipe, movielens_folder: Path, tmp_path: Path
) -> None:
    few = replace(small_recipe, methods=("naive_safe", "opg_mean"))
    broken = replace(few, opg=replace(few.opg, rate=1e30))
    store = CellStore(tmp_path)
    with pytest.raises(DepsueError, match="training must not diverge"):
        sweep(broken, [0], store, in_processes(1), data=movielens_folder)
    assert {cell.method for cell in store.finished(broken)} == {"naive_safe"}
    assert len(store.finished(broken)) == 2


def test_a_killed_worker_is_one_message(
    small_recipe: Recipe, movielens_folder: Path, tmp_path: Path
) -> None:
    def kill(progress: SweepProgress, result: Result) -> None:
        for child in multiprocessing.active_children():
            child.kill()

    with pytest.raises(DepsueError, match="a worker must live.*fewer --workers"):
        sweep(
            small_recipe,
            [0],
            CellStore(tmp_path),
            in_processes(1),
            data=movielens_folder,
            on_result=kill,
        )
    assert len(CellStore(tmp_path).finished(small_recipe)) >= 1
