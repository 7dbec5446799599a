"""Commands on real data sets, which others hold: each loads, calls and prints.

Modules are imported where they are used, so that --help does not load torch.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from depsue_research.arguments import seeds_of

SEEDS = typer.Option(help="How many seeds (5 means 0 to 4), or which: 3-7, or 0,4,9.")


def upworthy(
    data: Annotated[
        Path | None,
        typer.Option(help="The archive's file, or its folder; default below $DEPSUE_DATA."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for logs.parquet and items.parquet.")] = Path(
        "upworthy"
    ),
    each: Annotated[int, typer.Option(min=1, help="Impressions of a test in these logs.")] = 1000,
    rows: Annotated[int, typer.Option(min=0, help="Decisions of a round; 0 for no rounds.")] = (
        400_000
    ),
    seed: Annotated[int, typer.Option(help="Of all draws.")] = 0,
) -> None:
    """The Upworthy headline tests: which weeks were broken, and a campaign of three rounds."""
    from depsue.files import writable_folder
    from depsue_research.data_files import data_folder
    from depsue_research.upworthy import read_upworthy, story

    tests = read_upworthy(data_folder("upworthy", data))
    for line in story(tests, writable_folder(out), each, rows, seed):
        typer.echo(line)


def upworthy_study(
    data: Annotated[
        Path | None,
        typer.Option(help="The archive's file, or its folder; default below $DEPSUE_DATA."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for cells, tables and figures.")] = Path(
        "docs/results/upworthy"
    ),
    final: Annotated[
        bool, typer.Option("--final", help="The tests that were kept for the end.")
    ] = False,
    seeds: Annotated[str, SEEDS] = "100-101",
    rows: Annotated[int, typer.Option(min=1000, help="Decisions of a round.")] = 400_000,
    size: Annotated[int, typer.Option(min=10, help="Tests of a block of weeks, at least.")] = 240,
    only_report: Annotated[
        bool, typer.Option("--only-report", help="Tables and figures of finished cells.")
    ] = False,
) -> None:
    """Certified exploration and its rivals on headline tests, judged by the clicks of others.

    Finished cells are lines of cells.jsonl and are not run again.
    """
    from depsue.files import writable_folder
    from depsue_research.data_files import data_folder
    from depsue_research.rivals import RivalSettings
    from depsue_research.upworthy import read_upworthy
    from depsue_research.upworthy_study import study, write_page

    tests = read_upworthy(data_folder("upworthy", data))
    folder, settings = writable_folder(out), RivalSettings(rows=rows)
    wanted = [] if only_report else seeds_of(seeds)
    cells = study(
        tests, settings, final=final, seeds=wanted, size=size, folder=folder, say=typer.echo
    )
    command = f"depsue-research upworthy-study{' --final' if final else ''} --seeds {seeds}"
    write_page(cells, folder, settings, f"{command} --rows {rows} --size {size}")


def routers(
    data: Annotated[
        Path | None, typer.Option(help="Folder of the tables; default below $DEPSUE_DATA.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for cells, tables and figures.")] = Path(
        "docs/results/routers"
    ),
    final: Annotated[
        bool, typer.Option("--final", help="The prompts that were kept for the end.")
    ] = False,
    seeds: Annotated[str, SEEDS] = "100-101",
    rows: Annotated[int, typer.Option(min=1000, help="Requests of a round.")] = 60_000,
    floor: Annotated[float, typer.Option(help="Share of pi0's quality that is kept.")] = 0.97,
    only_report: Annotated[
        bool, typer.Option("--only-report", help="Tables and figures of finished cells.")
    ] = False,
) -> None:
    """A new language model joins a router: certified exploration and its rivals.

    Finished cells are lines of cells.jsonl and are not run again.
    """
    from depsue.files import writable_folder
    from depsue_research.data_files import data_folder
    from depsue_research.rivals import RivalSettings
    from depsue_research.routing import study, write_page

    folder = writable_folder(out)
    settings = RivalSettings(rows=rows, floor=floor, products=True, dimensions=2)
    wanted = [] if only_report else seeds_of(seeds)
    place = data_folder("routing", data)
    cells = study(folder, place, settings, final=final, seeds=wanted, say=typer.echo)
    command = f"depsue-research routers{' --final' if final else ''} --seeds {seeds}"
    write_page(cells, folder, settings, f"{command} --rows {rows} --floor {floor:g}")
