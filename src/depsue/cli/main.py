"""The command line: each command loads, calls and prints; the work is in the library."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from depsue._version import __version__
from depsue.cli.campaign import app as campaign
from depsue.cli.logs import check, pages, plan
from depsue.cli.options import Quiet, interruptible
from depsue.cli.serve import erase, serve, token
from depsue.errors import DepsueError

app = typer.Typer(
    name="depsue",
    help="Show new items and keep the metric above a floor: policies from logged data.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=True,
)


def main() -> None:
    """Run the command line; bad input ends in one message and exit code 2."""
    try:
        app()
    except DepsueError as problem:
        typer.echo(f"depsue: {problem}", err=True)
        sys.exit(2)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"depsue {__version__}")
        raise typer.Exit()


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Show new items and keep the metric above a floor: policies from logged data."""


@app.command()
def demo(
    out: Annotated[
        Path, typer.Option(help="Folder for report.html, overview.png and demo.json.")
    ] = Path("demo-report"),
    seed: Annotated[int, typer.Option(help="Seed of the world and of all training.")] = 0,
    rows: Annotated[
        int, typer.Option(min=3000, max=2_000_000, help="Logged rows in all.")
    ] = 90_000,
    steps: Annotated[
        int, typer.Option(min=1, max=100_000, help="Gradient steps of each policy.")
    ] = 3000,
    quiet: Quiet = False,
) -> None:
    """OPG, Safe OPG and DEPSUE side by side in a simulated world whose truth is known.

    Builds the world, collects logs, learns with each method, prints one table (truth beside
    estimate) and writes a self-contained HTML report; then a campaign that can be served. About a
    minute on a laptop.
    """
    from dataclasses import replace

    from depsue.cli.tables import demo_table, show
    from depsue.demo.demo import DemoSettings, make_demo_campaign, run_demo
    from depsue.demo.report import write_report
    from depsue.files import writable_folder
    from depsue.progress import bars

    writable_folder(out)
    base = DemoSettings()
    settings = replace(
        base,
        rows=rows,
        naive=replace(base.naive, steps=steps),
        safe=replace(base.safe, steps=steps),
    )
    try:
        with bars(not quiet) as watch:
            result = run_demo(settings, seed=seed, watch=watch)
    except KeyboardInterrupt:
        typer.echo("depsue: interrupted; no report was written", err=True)
        raise typer.Exit(130) from None
    page = write_report(result, out)
    show(demo_table(result))
    typer.echo(f"\nThe report with the plots: {page}  (open it in a browser)")
    with interruptible(), bars(not quiet) as watch:
        example = make_demo_campaign(out, seed=seed, watch=watch)
    typer.echo(
        f"A campaign is ready to be served; see it live at http://127.0.0.1:8470/ with\n"
        f"  {_command()} serve {example.name} --home {example.files.folder.parent} --no-auth"
        " --wait 30"
    )


def _command() -> str:
    """What to type for depsue here: its name where it is on the path, else where it is."""
    beside = Path(sys.executable).with_name("depsue")
    if shutil.which("depsue") or not beside.exists():
        return "depsue"
    return str(beside.relative_to(Path.cwd()) if beside.is_relative_to(Path.cwd()) else beside)


app.add_typer(campaign)
app.add_typer(token)
app.command()(check)
app.command()(plan)
app.command()(pages)
app.command()(serve)
app.command()(erase)
