"""Tables on the terminal: `show` prints one; the demo's table is built here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from depsue.demo.demo import DemoResult


def demo_table(result: DemoResult) -> Table:
    """The demo's table: what each method believes and promises beside the truth."""
    from depsue.demo.report import HEADINGS, row_cells

    table = Table(
        title=f"All values relative to the true value of pi0. Floor {result.settings.floor:g}.",
        caption="safe: true average over deployments >= floor; believed: the method's own "
        "estimate; bound: from logs, before deploying; need: floor less margin",
    )
    for place, heading in enumerate(HEADINGS):
        table.add_column(heading, justify="left" if place == 0 else "right")
    for row in result.rows:
        table.add_row(*row_cells(row), style="" if row.safe else "red")
    return table


def show(table: Table) -> None:
    """Print a table, as wide as it needs where output is not a terminal."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=110)
    console.print(table)
