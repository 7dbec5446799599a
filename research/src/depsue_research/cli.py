"""`depsue-research`: experiments about the product, each a command that loads, calls and prints.

`reproduce` runs the paper's experiments, resumable, and `report` makes their tables and figures
again; the other commands measure what certificates, tests and the monitor do in simulated worlds.
Modules are imported where they are used, so that --help does not load torch.
"""

from __future__ import annotations

import hashlib
import shlex
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from depsue.errors import ConfigError, DepsueError, require
from depsue_research import real_data

if TYPE_CHECKING:
    from depsue_research.paper.cells import CellStore, Result
    from depsue_research.paper.recipe import Recipe
    from depsue_research.paper.sweep import OnResult, SweepProgress

LARGEST_SEED = 1_000_000
MOST_SEEDS = 10_000
RESULTS = Path("docs/results")
app = typer.Typer(
    name="depsue-research",
    help="The paper's experiments, and simulations that test the product.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Run the command line; bad input ends in one message and exit code 2."""
    try:
        app()
    except DepsueError as problem:
        typer.echo(f"depsue-research: {problem}", err=True)
        sys.exit(2)


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


@app.command()
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
        levels=_numbers(levels),
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


@app.command()
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


@app.command()
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

    _print_and_keep(options_table(data, level, seed), out)


@app.command()
def audit(
    replications: Annotated[int, typer.Option(min=1, help="Of one-shot verdicts.")] = 2000,
    campaigns: Annotated[
        int, typer.Option(min=1, help="Of whole campaigns; of those with files, a tenth.")
    ] = 400,
    only: Annotated[
        str | None, typer.Option(help="Only these trials, with semicolons between.")
    ] = None,
    out: Annotated[
        Path, typer.Option(help="Folder for audit.jsonl, audit.md and audit.png.")
    ] = RESULTS,
    fresh: Annotated[bool, typer.Option("--fresh", help="Forget what is finished.")] = False,
) -> None:
    """Every kind of certificate in every hostile world: how often it is wrong.

    Finished replications are lines of audit.jsonl and are not run again; after a change of the
    code, --fresh starts anew. An interrupt writes the page of what is finished.
    """
    from depsue.files import writable_folder
    from depsue.progress import bars
    from depsue_research.audit import GROUPS, gather, page, sweep, tallies

    folder = writable_folder(out)
    path = folder / "audit.jsonl"
    if fresh:
        path.unlink(missing_ok=True)
    chosen = None if only is None else [name.strip() for name in only.split(";")]
    try:
        with bars() as watch:
            sweep(replications, campaigns, path, only=chosen, watch=watch)
    except KeyboardInterrupt:
        typer.echo("depsue-research: interrupted; the same command goes on from here", err=True)
    gather(path)
    every = tallies(path)
    for group in GROUPS:
        typer.echo("\n".join(["", group, *page.table(every, group)]))
    typer.echo(f"\n{page.verdict(every)}")
    page.write(every, folder, (replications, campaigns))


app.command()(real_data.upworthy)
app.command("upworthy-study")(real_data.upworthy_study)
app.command()(real_data.routers)


@app.command()
def forecasts(
    rows: Annotated[int, typer.Option(min=100, help="Rows of the logs.")] = 12_000,
    seeds: Annotated[int, typer.Option(min=1, help="Worlds of each kind.")] = 20,
    first_seed: Annotated[int, typer.Option(min=0, help="Of the first.")] = 9000,
    workers: Annotated[int, typer.Option(min=1, max=512, help="Processes.")] = 1,
    networks: Annotated[
        bool, typer.Option("--networks", help="Blend networks into q-hat, and ask `explore`, too.")
    ] = False,
    out: Annotated[Path, typer.Option(help="Folder for plan.md and plan.png.")] = RESULTS,
    kept: Annotated[Path, typer.Option(help="File of finished runs, not run again.")] = Path(
        "plan-runs.jsonl"
    ),
) -> None:
    """What `depsue plan` forecasts of certificates to come, against the certificates."""
    from depsue.files import writable_folder
    from depsue_research.forecasts import WORLDS, all_runs, write

    folder = writable_folder(out)
    tasks = [
        (name, seed, rows, networks)
        for seed in range(first_seed, first_seed + seeds)
        for name in WORLDS
    ]
    runs = all_runs(tasks, kept, workers, typer.echo)
    command = f"depsue-research forecasts --rows {rows} --seeds {seeds} --first-seed {first_seed}"
    write(runs, folder, command + (" --networks" if networks else ""))


@app.command()
def monitor(
    replications: Annotated[
        int, typer.Option(min=1, help="Lives without a fault; of others, a twentieth.")
    ] = 400,
    decisions: Annotated[int, typer.Option(min=1, help="How long each is watched.")] = 60_000,
    late: Annotated[int, typer.Option(min=10, help="Decisions before the latest fault.")] = 100_000,
    out: Annotated[
        Path | None, typer.Option(help="File for the page; its figure goes beside it.")
    ] = None,
) -> None:
    """How often the safety monitor stops without cause, and how soon with one."""
    from depsue_research.monitor import monitor_page

    command = f"depsue-research monitor --replications {replications} --decisions {decisions}"
    command += f" --late {late}" + ("" if out is None else f" --out {out}")
    figure = None if out is None else out.with_suffix(".png")
    lines = monitor_page(replications, decisions, command, late=late, figure=figure)
    _print_and_keep(lines, out)


@app.command()
def propensities(
    rows: Annotated[int, typer.Option(min=100, help="Rows of the logs.")] = 500_000,
    runs: Annotated[
        int, typer.Option(min=0, help="For correct ones, and 20% wrong by a factor of 2.")
    ] = 20,
    other_runs: Annotated[int, typer.Option(min=0, help="For the other errors.")] = 3,
    only: Annotated[str, typer.Option(help="Only worlds whose name contains this.")] = "",
) -> None:
    """How often the test of the propensities refuses correct ones, and wrong ones of all kinds."""
    from depsue_research.propensities import propensity_tables

    _print_and_keep(propensity_tables(rows, runs, other_runs, only))


@app.command()
def drift(
    rows: Annotated[int, typer.Option(min=100, help="Rows of each round.")] = 50_000,
    runs: Annotated[int, typer.Option(min=1, help="Of each case.")] = 20,
    shifts: Annotated[
        str | None, typer.Option(help="Changes of all mean rewards, e.g. 0,-0.05; 0 is no drift.")
    ] = None,
) -> None:
    """How often the test of drift refuses: where V(pi0) stays the same, and where it changes."""
    from depsue_research.drift import SHIFTS, drift_table

    _print_and_keep(drift_table(rows, runs, _numbers(shifts, "shifts") or SHIFTS))


@app.command()
def concept(
    deployments: Annotated[int, typer.Option(min=1, help="K.")] = 4,
    rows: Annotated[int, typer.Option(min=100, help="Logged rows in all.")] = 80_000,
    seed: Annotated[int, typer.Option(min=0, help="Of the shop and of what happens.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for concept.png.")] = Path("docs/images"),
) -> None:
    """The idea in a picture: need, bound, value, margin and novelty over a campaign."""
    from depsue.files import writable_folder
    from depsue_research.concept import campaign, figure, table

    folder = writable_folder(out)
    stages = campaign(deployments, rows, seed)
    typer.echo(table(stages))
    figure(stages).savefig(folder / "concept.png", dpi=130)


@app.command()
def power(
    before: Annotated[Path, typer.Option(help="Folder with cells of the older code.")],
    after: Annotated[Path, typer.Option(help="Folder with cells of the newer code.")],
    out: Annotated[
        Path | None, typer.Option(help="Page whose table is written anew, e.g. power.md.")
    ] = None,
    table: Annotated[str, typer.Option(help="Which of the page's tables, e.g. wiki10.")] = "",
) -> None:
    """Certified novelty before and after a change, from two folders that `reproduce` wrote."""
    from depsue_research.power import cells_in, table_lines, with_table

    lines = "\n".join(table_lines(cells_in(before), cells_in(after)))
    typer.echo(lines)
    if out is not None:
        page = out.read_text("utf-8") if out.exists() else ""
        out.write_text(with_table(page, lines, table), encoding="utf-8")


@app.command("power-trials")
def power_trials(
    blocks: Annotated[int, typer.Option(min=0, help="Worlds of the trial of blocks.")] = 12,
    rows: Annotated[str, typer.Option(help="Rows of its logs, e.g. 10000,40000.")] = "10000,40000",
    deployments: Annotated[int, typer.Option(min=2, help="K of the trial of pooling.")] = 5,
    levels: Annotated[str, typer.Option(help="Its betas, e.g. 16,24.")] = "16,24",
    seeds: Annotated[str, typer.Option(help="Its seeds; 0 leaves it out.")] = "100-101",
    data: Annotated[
        Path | None, typer.Option(help="Folder with MovieLens-1M; default below $DEPSUE_DATA.")
    ] = None,
) -> None:
    """What policies learned block by block, and pooled rows of earlier rounds, would certify."""
    from depsue_research.paper.recipe import load_recipe, recipe_folder
    from depsue_research.power_trials import block_lines, pooling_lines

    if blocks:
        sizes = [int(number) for number in _numbers(rows, "rows") or ()]
        _print_and_keep(block_lines(sizes, blocks))
    if seeds != "0":
        recipe = load_recipe(recipe_folder() / "paper-movielens.toml")
        betas = _numbers(levels) or ()
        _print_and_keep(pooling_lines(recipe, betas, seeds_of(seeds), deployments, data))


class StoreName(StrEnum):
    """What decisions are stored in."""

    sqlite = "sqlite"
    postgresql = "postgresql"


@app.command()
def soak(
    store: Annotated[StoreName, typer.Option(help="What decisions are stored in.")],
    kills: Annotated[
        int, typer.Option(min=1, max=1_000_000, help="kill -9 of services and of PostgreSQL.")
    ] = 100,
    seed: Annotated[int, typer.Option(min=0, help="Of the first part; the next has the next.")] = 0,
    out: Annotated[
        Path, typer.Option(help="Folder for soak.jsonl, and for parts whose books do not close.")
    ] = Path("soak"),
    decisions: Annotated[
        int,
        typer.Option(min=0, help="Also watch the memory of one service over so many decisions."),
    ] = 0,
    fresh: Annotated[bool, typer.Option("--fresh", help="Forget what is finished.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
) -> None:
    """Kill the decision service again and again, and hold its clients' books against its store.

    The soak runs in parts of 50 kills, each with a seed of its own. Finished parts are lines of
    soak.jsonl and are not run again. Exit code 1 says that a book did not close; the folder of that
    part has the books, the store and the services' logs.
    """
    from depsue.files import writable_folder
    from depsue.progress import bars
    from depsue_research.soak import memory, memory_report
    from depsue_research.soak import report as soak_report
    from depsue_research.soak import soak as run_soak

    folder = writable_folder(out)
    if fresh:
        (folder / "soak.jsonl").unlink(missing_ok=True)
    with bars(not quiet) as watch:
        results = run_soak(store.value, kills, seed, folder, watch=watch)
        watched = [memory(decisions, seed, folder, watch=watch)] if decisions else []
    _print_and_keep(soak_report(results))
    for result in watched:
        _print_and_keep(memory_report(result))
    if any(result.breaks for result in [*results, *watched]):
        raise typer.Exit(1)


def _print_and_keep(lines: Iterable[str], out: Path | None = None) -> None:
    """Print lines as they come, and write them to a file at the end if there is one."""
    shown = []
    for line in lines:
        typer.echo(line)
        shown.append(line + "\n")
    if out is not None:
        out.write_text("".join(shown), encoding="utf-8")


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


def _numbers(text: str | None, what: str = "levels") -> tuple[float, ...] | None:
    if text is None:
        return None
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise ConfigError(
            f"{what} must be numbers with commas between", found=text, cure="for example -8,0,8"
        ) from None


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
