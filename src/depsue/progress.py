"""Progress of long work: whoever works calls a `Watch`, and `bars` draws what it is told.

This is for a person at a terminal. What a service did goes to `logging`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

Watch: TypeAlias = Callable[[str, int, int, str], None]
"""Called with the task's name, steps done, steps in all, and a few words on how it goes."""


def silent(task: str, done: int, total: int, words: str) -> None:
    """The `Watch` that shows nothing."""


@contextmanager
def bars(show: bool = True) -> Iterator[Watch]:
    """A `Watch` that draws one bar a task on the terminal while the block runs."""
    if not show:
        yield silent
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TextColumn
    from rich.progress import TimeRemainingColumn as Remaining

    columns = (
        TextColumn("{task.description:<23}"),
        BarColumn(bar_width=8),
        TextColumn("{task.percentage:>3.0f}%"),
        Remaining(compact=True, elapsed_when_finished=True),
        TextColumn("{task.fields[words]}"),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        tasks: dict[str, TaskID] = {}

        def watch(task: str, done: int, total: int, words: str) -> None:
            if task not in tasks:
                tasks[task] = progress.add_task(task, total=total, words="")
            progress.update(tasks[task], completed=done, total=total, words=words)

        yield watch
