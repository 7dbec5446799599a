"""Where services are born: a process that has imported all that they need, and is forked.

`depsue serve` takes seconds to start, most of them for importing torch. A soak kills a thousand
services, so `multiprocessing`'s fork server imports this module once, and each service is a fork of
it that runs the command line as a user would. Nothing may use a thread before a fork, so this
module imports and does nothing else.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import os
import resource
import signal
from collections.abc import Sequence
from multiprocessing.connection import Connection

from typer.main import get_command

from depsue.cli.main import app
from depsue.errors import DepsueError

NEEDED = (
    "depsue.pages.dashboard",
    "depsue.policies.network",
    "depsue.serving.joining",
    "depsue.serving.running",
    "numpy.ma",
    "polars",
    "psycopg",
    "safetensors.numpy",
    "sqlalchemy.dialects.postgresql.psycopg",
    "sqlalchemy.dialects.sqlite",
    "uvicorn.lifespan.on",
    "uvicorn.loops.uvloop",
    "uvicorn.protocols.http.httptools_impl",
)
"""What commands import when they run."""
for _name in NEEDED:
    importlib.import_module(_name)
_PR_SET_PDEATHSIG = 1
_COMMAND = get_command(app)
# reading the arguments loads a library of its own
_COMMAND.commands["serve"].make_context("serve", ["x", "--wait", "1"])  # type: ignore[attr-defined]
gc.collect()
gc.freeze()  # a fork then copies no page only because its garbage was looked for


def run_command(arguments: Sequence[str], log: Connection, room: int | None) -> None:
    """Run `depsue ARGUMENTS` in this process, which is a fork.

    Args:
        arguments: of the command line.
        log: takes what it prints, also its errors.
        room: bytes that a file may have; None for no limit.
    """
    # a soak that is killed leaves no service behind
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    os.dup2(log.fileno(), 1)
    os.dup2(log.fileno(), 2)
    if room is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))
    try:
        _COMMAND.main(list(arguments), prog_name="depsue", standalone_mode=False)
    except DepsueError as problem:
        print(f"depsue: {problem}", flush=True)
        raise SystemExit(2) from None
