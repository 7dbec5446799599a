"""`depsue check`: are these logs fit for use, and which column is what?"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

NOT_USABLE = 3


def check(
    logs: Annotated[
        str,
        typer.Argument(
            help="A file, a folder, or a pattern in quotes: Parquet, CSV, Arrow, dsjson."
        ),
    ],
    items: Annotated[
        Path | None, typer.Argument(help="Parquet, CSV or Arrow: one row per item.")
    ] = None,
    mapping: Annotated[
        Path | None, typer.Option(help="TOML: which column is what; default: a guess.")
    ] = None,
    write_mapping: Annotated[
        Path | None, typer.Option(help="Write the mapping that was used to this file.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite that file.")] = False,
    position: Annotated[
        str | None, typer.Option(help="Keep the rows of one position, where there are several.")
    ] = None,
    r_max: Annotated[
        float | None,
        typer.Option(help="The largest possible reward; default: the mapping's, or 1."),
    ] = None,
    estimate_propensities: Annotated[
        bool,
        typer.Option("--estimate-propensities", help="Where none were logged: take frequencies."),
    ] = False,
    kept: Annotated[
        float | None,
        typer.Option(help="Share of decisions kept, where the rows of some items were dropped."),
    ] = None,
    id: Annotated[
        str | None, typer.Option(help="Column of the items' ids; default id, action or item_id.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Are these logs fit for use? Says what they hold, what is wrong, and how to mend it.

    The verdict is `ready`, `ready, with warnings` (exit code 0 for both) or `not usable` (exit code
    3). Bad usage, and files that cannot be read, end with exit code 2.
    """
    from depsue.check import check_logs, guess_mapping
    from depsue.data.mapping import read_mapping
    from depsue.data.mapping import write_mapping as write_toml
    from depsue.data.reading import open_source

    source = open_source(logs)
    guesses: tuple[str, ...] = ()
    if mapping is not None:
        columns = read_mapping(mapping)
    else:
        columns, guesses = guess_mapping(source, r_max)
    if r_max is not None:
        columns = replace(columns, r_max=r_max)
    if kept is not None:
        columns = replace(columns, kept=kept)
    whole = position is not None and position.lstrip("-").isdecimal()
    report = check_logs(
        source,
        items,
        columns,
        position=int(position) if position is not None and whole else position,
        estimate=estimate_propensities,
        id=id,
    )
    report = replace(report, notes=(*guesses, *report.notes))
    if write_mapping is not None:
        write_toml(report.mapping, write_mapping, force=force)
        report = replace(
            report, notes=(*report.notes, f"the mapping was written to {write_mapping}")
        )
    typer.echo(json.dumps(report.as_json(), indent=1) if as_json else str(report))
    if not report.usable:
        raise typer.Exit(NOT_USABLE)
