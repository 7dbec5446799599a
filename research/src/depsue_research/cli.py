"""`depsue-research`: experiments about the product, each a command that loads, calls and prints.

`reproduce` runs the paper's experiments, resumable, and `report` makes their tables and figures
again; the other commands measure what certificates, tests and the monitor do in simulated worlds.
Modules are imported where they are used, so that --help does not load torch.
"""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from depsue.errors import DepsueError
from depsue_research import real_data
from depsue_research.arguments import numbers, print_and_keep, seeds_of
from depsue_research.paper import commands

RESULTS = Path("docs/results")
app = typer.Typer(
    name="depsue-research",
    help="The paper's experiments, and simulations that test the product.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


for command in (commands.reproduce, commands.report, commands.options, commands.readings):
    app.command()(command)
for study in (real_data.upworthy, real_data.upworthy_study, real_data.routers):
    app.command()(study)


def main() -> None:
    """Run the command line; bad input ends in one message and exit code 2."""
    try:
        app()
    except DepsueError as problem:
        typer.echo(f"depsue-research: {problem}", err=True)
        sys.exit(2)


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


@app.command()
def pona(
    seeds: Annotated[str, typer.Option(help="Worlds: how many, or which seeds.")] = "100-109",
    rows: Annotated[int, typer.Option(min=1000, help="Logged rows of each.")] = 30_000,
    out: Annotated[Path, typer.Option(help="Folder for cells, table and figure.")] = RESULTS
    / "baselines",
) -> None:
    """PONA against its published shape: what kappa does to new actions and to value."""
    from depsue.files import writable_folder
    from depsue_research.pona_shape import shape, write_page

    folder = writable_folder(out)
    cells = shape(folder, seeds_of(seeds), rows, typer.echo)
    write_page(cells, folder, f"depsue-research pona --seeds {seeds} --rows {rows}")


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
    print_and_keep(lines, out)


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

    print_and_keep(propensity_tables(rows, runs, other_runs, only))


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

    print_and_keep(drift_table(rows, runs, numbers(shifts, "shifts") or SHIFTS))


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
        sizes = [int(number) for number in numbers(rows, "rows") or ()]
        print_and_keep(block_lines(sizes, blocks))
    if seeds != "0":
        recipe = load_recipe(recipe_folder() / "paper-movielens.toml")
        betas = numbers(levels) or ()
        print_and_keep(pooling_lines(recipe, betas, seeds_of(seeds), deployments, data))


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
    print_and_keep(soak_report(results))
    for result in watched:
        print_and_keep(memory_report(result))
    if any(result.breaks for result in [*results, *watched]):
        raise typer.Exit(1)


@app.command()
def ladder(
    recipe: Annotated[
        str, typer.Option(help="paper-movielens, paper-movielens-fitted, or paper-wiki10.")
    ] = "paper-movielens",
    levels: Annotated[
        str | None, typer.Option(help="With commas between; default: the recipe's.")
    ] = None,
    seeds: Annotated[str, typer.Option(help="How many, or which: 200-229.")] = "200-229",
    edges: Annotated[
        int, typer.Option(min=0, help="Worlds at the edge of each rung; 0 runs none.")
    ] = 0,
    data: Annotated[Path | None, typer.Option(help="Folder with the data set's files.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for ladder.jsonl and ladder.md.")] = RESULTS,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bars.")] = False,
) -> None:
    """The ladder of assumptions: certified novelty rung by rung, or errors at each rung's edge.

    Finished cells are kept in ladder.jsonl: the same command goes on where it was cut short.
    """
    from depsue.progress import bars
    from depsue_research import ladder as measured
    from depsue_research.paper.recipe import load_recipe, recipe_folder

    if edges:
        table = measured.edges_table(measured.edges(edges), edges)
        print_and_keep(table.splitlines(), out / "ladder-edges.md")
        return
    own = load_recipe(recipe_folder() / f"{recipe}.toml")
    wanted = numbers(levels) or tuple(own.levels)
    with bars(not quiet) as watch:
        cells = measured.run_cells(own, wanted, seeds_of(seeds), out / "ladder.jsonl", data, watch)
    print_and_keep(measured.cells_table(cells).splitlines(), out / "ladder.md")
