"""`depsue-research`: the experiments that stand beside the product."""

from __future__ import annotations

import sys

import typer

from depsue.errors import DepsueError
from depsue_research.reproduce import reproduce

app = typer.Typer(
    name="depsue-research",
    help="The paper's experiments, beside the product.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@app.callback()
def options() -> None:
    """The paper's experiments, beside the product."""


def main() -> None:
    """Run the command line; bad input ends in one message and exit code 2."""
    try:
        app()
    except DepsueError as problem:
        typer.echo(f"depsue-research: {problem}", err=True)
        sys.exit(2)


app.command()(reproduce)
