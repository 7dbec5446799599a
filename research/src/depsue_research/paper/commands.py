"""The commands on the paper's experiments: run them, report them, and compare readings of them."""

from __future__ import annotations

import hashlib
import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from depsue.errors import require
from depsue_research.arguments import numbers, print_and_keep, seeds_of

if TYPE_CHECKING:
    from depsue_research.paper.cells import Cell, CellStore, Result
    from depsue_research.paper.recipe import Recipe
    from depsue_research.paper.sweep import OnResult, SweepProgress


class Experiment(StrEnum):
    """The paper's two."""

    movielens = "movielens"
    wiki10 = "wiki10"


class Preset(StrEnum):
    """Simulators of MovieLens."""

    paper = "paper"
    fitted = "fitted"


class EngineName(StrEnum):
    """What runs the cells."""

    processes = "processes"
    ray = "ray"


def reproduce(
    experiment: Annotated[Experiment, typer.Argument(help="Which experiment.")],
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for cells, tables and figures; default results/RECIPE."),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Folder with the data set's files; default below $DEPSUE_DATA."),
    ] = None,
    seeds: Annotated[
        str, typer.Option(help="How many seeds (5 means 0 to 4), or which: 3-7, or 0,4,9.")
    ] = "5",
    preset: Annotated[
        Preset, typer.Option(help="MovieLens simulator: the paper's, or trained to convergence.")
    ] = Preset.paper,
    recipe: Annotated[
        Path | None, typer.Option(help="A recipe of your own instead of the paper's.")
    ] = None,
    levels: Annotated[
        str | None, typer.Option(help="Only these betas (or epsilons), e.g. -8,0,8.")
    ] = None,
    methods: Annotated[
        str | None, typer.Option(help="Only these methods, e.g. opg_mean,depsue_2.")
    ] = None,
    bound_every: Annotated[
        int | None, typer.Option(min=1, help="Steps between bounds; the paper's is 1.")
    ] = None,
    steps: Annotated[
        int | None, typer.Option(min=1, max=1_000_000, help="Gradient steps; the paper's: 10,000.")
    ] = None,
    rows: Annotated[
        int | None, typer.Option(min=100, max=50_000_000, help="Logged rows; the paper's: 500,000.")
    ] = None,
    workers: Annotated[
        int, typer.Option(min=1, max=512, help="Processes, with one thread each.")
    ] = 2,
    engine: Annotated[
        EngineName, typer.Option(help="Run cells in processes here, or on a Ray cluster.")
    ] = EngineName.processes,
    address: Annotated[
        str | None, typer.Option(help="Address of the Ray cluster; default: a local one.")
    ] = None,
    only_report: Annotated[
        bool, typer.Option("--only-report", help="Run nothing; write what finished cells give.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
) -> None:
    """Run one of the paper's experiments and write its tables and figures beside the paper's.

    A cell is one method at one beta (or epsilon) with one seed. Finished cells are kept, so the
    same command goes on where it was interrupted, and more seeds can be added later.
    """
    from depsue.files import writable_folder
    from depsue_research.paper.cells import CellStore, RunRecord
    from depsue_research.paper.outputs.report import summary, write_outputs
    from depsue_research.paper.recipe import load_recipe, recipe_folder
    from depsue_research.paper.sweep import in_processes, sweep

    _refuse_contradictions(experiment, preset, recipe, engine, address)
    suffix = "" if preset is Preset.paper else f"-{preset.value}"
    shipped = f"paper-{experiment.value}{suffix}"
    record = RunRecord(
        command=_command(),
        recipe=shipped if recipe is None else str(recipe.absolute()),
        steps=steps,
        rows=rows,
        bound_every=bound_every,
        levels=numbers(levels),
        methods=tuple(methods.split(",")) if methods else None,
    )
    base = load_recipe(recipe or recipe_folder() / f"{shipped}.toml")
    require(
        base.experiment == experiment.value,
        f"the recipe must be of {experiment.value}",
        found=f"{base.name}.toml is of {base.experiment}",
    )
    chosen = record.load_recipe()
    wanted = seeds_of(seeds)
    folder = writable_folder(out or _default_folder(base, chosen))
    store = CellStore(folder)
    run = in_processes(workers)
    if engine is EngineName.ray:
        from depsue_research.paper.ray_engine import on_ray

        run = on_ray(address, workers=workers if address is None else None)
    interrupted = False
    if not only_report:
        try:
            with _progress(chosen, store, not quiet) as on_result:
                sweep(chosen, wanted, store, run, data=data, on_result=on_result)
            store.gather()
        except KeyboardInterrupt:
            interrupted = True
    finished = store.finished(chosen)
    require(
        len(finished) > 0,
        "there must be a finished cell to report on",
        found=f"none of this recipe in {folder}",
        cure="run the command without --only-report",
    )
    configs = {method: chosen.hash_of(method) for method in chosen.methods}
    store.write_record(replace(record, configs=configs))
    page = write_outputs(chosen, finished, folder, record.command)
    typer.echo(summary(chosen, finished))
    typer.echo(f"\nTables, figures and the paper's claims: {page}  (open it in a browser)")
    if interrupted:
        typer.echo("depsue-research: interrupted; the same command goes on from here", err=True)
        raise typer.Exit(130)


def report(
    folder: Annotated[Path, typer.Argument(help="A folder that `reproduce` wrote.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder for tables and figures; default: the same.")
    ] = None,
) -> None:
    """Make the tables, the figures and the page of a reproduction again, from its cells alone."""
    from depsue_research.paper.outputs.report import report_again

    page = report_again(folder, out or folder)
    typer.echo(f"Tables, figures and the paper's claims: {page}  (open it in a browser)")


def options(
    data: Annotated[
        Path | None, typer.Option(help="Folder with MovieLens-1M; default below $DEPSUE_DATA.")
    ] = None,
    level: Annotated[float, typer.Option(help="beta of the cell.")] = -8.0,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the cell.")] = 0,
    out: Annotated[Path | None, typer.Option(help="File for the table.")] = None,
) -> None:
    """What the options that save time do to a result: one MovieLens cell with each of them."""
    from depsue_research.paper.options import options_table

    print_and_keep(options_table(data, level, seed), out)


def readings(
    file: Annotated[
        Path | None, typer.Option(help="Readings of your own; default: those of MovieLens.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Folder with the data set's files; default $DEPSUE_DATA.")
    ] = None,
    only: Annotated[str | None, typer.Option(help="Only these readings, e.g. weak-q.")] = None,
    seeds: Annotated[
        str, typer.Option(help="Which seeds: 100-102, or 100,103; a number alone says how many.")
    ] = "100-101",
    levels: Annotated[str | None, typer.Option(help="Only these betas, e.g. -24,0,24.")] = None,
    methods: Annotated[
        str | None, typer.Option(help="Only these rows, e.g. opg_mean,depsue_1.")
    ] = None,
    steps: Annotated[
        int | None, typer.Option(min=1, max=1_000_000, help="Gradient steps; the paper's: 10,000.")
    ] = None,
    bound_every: Annotated[int, typer.Option(min=1, help="Steps between bounds.")] = 100,
    workers: Annotated[int, typer.Option(min=1, max=512, help="Processes.")] = 2,
    out: Annotated[
        Path, typer.Option(help="Folder for the cells of each reading, and readings.md.")
    ] = Path("readings"),
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
) -> None:
    """Which reading of the paper comes closest to its tables: the same cells under each.

    Finished cells are kept, so the same command goes on where it was interrupted.
    """
    from depsue.files import writable_folder
    from depsue_research.paper import readings as search
    from depsue_research.paper.recipe import recipe_folder
    from depsue_research.paper.sweep import in_processes, sweep

    path = file or recipe_folder() / "readings" / "movielens.toml"
    chosen = search.only(search.load_readings(path), only.split(",") if only else None)
    chosen = [replace(r, recipe=r.recipe.with_options(steps=steps)) for r in chosen]
    engine, wanted = in_processes(workers), seeds_of(seeds)

    def run(recipe: Recipe, store: CellStore) -> Mapping[Cell, Result]:
        with _progress(recipe, store, not quiet) as on_result:
            return sweep(recipe, wanted, store, engine, data=data, on_result=on_result)

    rows = tuple(methods.split(",")) if methods else tuple(search.CLOSE)
    distances = search.search(
        chosen,
        writable_folder(out),
        run,
        levels=numbers(levels),
        methods=rows,
        bound_every=bound_every,
    )
    print_and_keep(iter(search.table(distances, chosen)), out / "readings.md")


def _refuse_contradictions(
    experiment: Experiment,
    preset: Preset,
    recipe: Path | None,
    engine: EngineName,
    address: str | None,
) -> None:
    require(
        preset is Preset.paper or (experiment is Experiment.movielens and recipe is None),
        "--preset is for movielens without --recipe",
        found=f"--preset {preset.value} with {recipe or experiment.value}",
        cure="leave --preset out; a recipe of your own has a preset in it",
    )
    require(
        address is None or engine is EngineName.ray,
        "--address goes with --engine ray",
        found=f"--address {address}",
        cure="add --engine ray, or leave --address out",
    )


def _default_folder(base: Recipe, chosen: Recipe) -> Path:
    """results/RECIPE; runs that differ from the recipe have folders of their own."""
    if chosen == base:
        return Path("results") / base.name
    hashes = [chosen.hash_of(method) for method in chosen.methods]
    digest = hashlib.sha256(f"{hashes}{chosen.levels}".encode()).hexdigest()
    return Path("results") / f"{base.name}-{digest[:8]}"


def _command() -> str:
    """What was typed, for the page, which others will read: folders by their last name alone."""
    return shlex.join(["depsue-research", *map(_without_folders, sys.argv[1:])])


def _without_folders(word: str) -> str:
    """An absolute path without the folders that it is in."""
    name, equals, value = word.rpartition("=")
    return f"{name}{equals}{Path(value).name}" if Path(value).is_absolute() else word


@contextmanager
def _progress(recipe: Recipe, store: CellStore, show: bool) -> Iterator[OnResult]:
    """One bar over all cells with the time left, a line for each that finishes, and now and then,
    after as many cells as a seed has, a summary of all that are finished."""
    if not show:
        yield lambda progress, result: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    from depsue_research.paper.outputs.report import summary

    columns = (
        TextColumn("{task.percentage:>3.0f}%"),
        BarColumn(bar_width=20),
        TextColumn("{task.fields[cells]} cells, {task.fields[left]}"),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=1.0, cells="", left="reading the data")
        a_seed = len(recipe.levels) * len(recipe.methods)

        def on_result(progress: SweepProgress, result: Result) -> None:
            seconds = progress.seconds_left
            left = "" if seconds is None else f"{timedelta(seconds=round(seconds))} left"
            bar.console.print(_line(recipe, result), highlight=False)
            if progress.done % a_seed == 0 and progress.done < progress.cells:
                bar.console.print(summary(recipe, store.finished(recipe)), highlight=False)
            bar.update(
                task,
                completed=progress.weight_done / progress.weight,
                cells=f"{progress.done:,} of {progress.cells:,}",
                left=left,
            )

        yield on_result


def _line(recipe: Recipe, result: Result) -> str:
    last, pi0 = result["deployments"][-1], result["logging"]
    ratio = last["value_test"] / pi0["value_test"]
    verdict = "" if ratio >= recipe.floor else "  below the floor"
    return (
        f"{recipe.level_name} {result['level']:>5g}  seed {result['seed']:>2}  "
        f"{result['method']:<10}  value {ratio:.3f} of pi0's, novelty {last['novelty_test']:.3f}, "
        f"{sum(result['seconds'].values()):.0f} s{verdict}"
    )
