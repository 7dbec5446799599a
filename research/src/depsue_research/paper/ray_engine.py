"""The engine that runs cells on a Ray cluster: a local one, or many machines.

Every node needs the same version of depsue and the data set's files: below its own DEPSUE_DATA,
or at the path given. It needs no shared disk: results come back to the driver, which keeps them.
"""

from __future__ import annotations

import atexit
import logging
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from shutil import rmtree
from socket import create_connection
from tempfile import mkdtemp
from types import ModuleType
from typing import Any

from depsue._version import __version__
from depsue.errors import ConfigError, DepsueError, is_whole, require, short
from depsue_research.paper.cells import Cell, Result
from depsue_research.paper.recipe import Recipe
from depsue_research.paper.run_cell import run_cell
from depsue_research.paper.sweep import Engine, for_workers, long_first

RETRIES = 5
"""How often a cell is run again when its node or its process dies."""
STORE = 128 << 20
"""Bytes of the local cluster's object store; results are small."""
TOKEN_PATH = "RAY_AUTH_TOKEN_PATH"


def on_ray(address: str | None = None, *, workers: int | None = None) -> Engine:
    """An engine on a Ray cluster: one CPU and one thread for each cell.

    Cells of a node that dies are run again elsewhere. A cluster, or a connection, that was there
    before is left as it is; a connection that this process has already is used.

    Args:
        address: of a cluster that runs ("auto" finds one on this machine); None starts a local
            one and stops it at the end.
        workers: CPUs of the local cluster; None takes all of this machine.
    """
    ray = _ray()
    require(
        address in (None, "auto") or (isinstance(address, str) and _host_and_port(address)[1] > 0),
        "address must be that of a Ray cluster, host:port, or auto",
        found=short(address),
        cure="leave --address out for a local cluster",
    )
    require(
        workers is None or (address is None and is_whole(workers) and 1 <= workers <= 512),
        "workers must be a whole number from 1 to 512, and without an address",
        found=f"{short(workers)}, address {short(address)}",
        cure="leave --workers out: a cluster knows how many CPUs it has",
    )

    def engine(recipe: Recipe, cells: Sequence[Cell], data: Path | None) -> Iterator[Result]:
        if not cells:
            return
        folder = None if data is None else data.absolute()
        with _connected(ray, address, workers):
            task = ray.remote(
                num_cpus=1, max_retries=RETRIES, runtime_env={"env_vars": for_workers.VARIABLES}
            )(run_on_node)
            references = [
                task.options(name=str(cell)).remote(recipe, cell, folder, __version__)
                for cell in long_first(cells)
            ]
            yield from as_finished(ray, references)

    return engine


def run_on_node(recipe: Recipe, cell: Cell, data: Path | None, version: str) -> Result:
    require(
        version == __version__,
        "all nodes must have the same version of depsue",
        found=f"{__version__} on a node, {version} where the sweep was started",
        cure=f"pip install 'depsue[ray]=={version}' on every node",
    )
    return run_cell(recipe, cell, data)


def as_finished(ray: Any, references: list[Any]) -> Iterator[Result]:
    """Results in the order they come; after a failure those that have finished, then the error."""
    waiting, problem = references, None
    try:
        while waiting:
            ready, waiting = ray.wait(waiting, timeout=None if problem is None else 0)
            if not ready:
                break
            try:
                result: Result = ray.get(ready[0])
            except ray.exceptions.RayError as failed:
                problem = problem or failed
            else:
                yield result
        if problem is not None:
            raise _cause(ray, problem) from problem
    finally:
        for reference in reversed(waiting) if ray.is_initialized() else ():
            ray.cancel(reference, force=True)


def _cause(ray: Any, problem: Any) -> BaseException:
    """What went wrong in the cell, as it would have been raised here; or that no node ran it."""
    if isinstance(problem, ray.exceptions.RayTaskError):
        return problem.cause  # type: ignore[no-any-return]
    return DepsueError(
        f"a cell must end on some node of the Ray cluster, in {1 + RETRIES} attempts at most",
        found=f"{type(problem).__name__}: {_first_line(problem)}",
        cure="see that nodes have memory enough for one cell a CPU, and run the same command "
        "again: finished cells are kept",
    )


@contextmanager
def _connected(ray: Any, address: str | None, workers: int | None) -> Iterator[None]:
    """Connected to the cluster in this block; what is started here ends with it."""
    if ray.is_initialized():
        here = ray.get_runtime_context().gcs_address
        require(
            address in (None, "auto", here),
            "this process is connected to another Ray cluster",
            found=f"{here}, where {address} was asked for",
            cure="call ray.shutdown() first",
        )
        yield
        return
    try:
        _start(ray, address, workers)
        yield
    finally:
        ray.shutdown()


def _start(ray: Any, address: str | None, workers: int | None) -> None:
    options: dict[str, Any] = {"address": address}
    if address is None:
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        own_token()
        options = {
            "address": "local",  # None would take any cluster that it finds
            "num_cpus": workers,
            "object_store_memory": STORE,
            "include_dashboard": False,
        }
    try:
        if address not in (None, "auto"):
            create_connection(_host_and_port(address), timeout=10).close()  # Ray tries for minutes
        ray.init(**options, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as problem:
        if address is None:
            rule, cure = "Ray must start here", "see its logs below /tmp/ray, or use no --engine"
        else:
            rule = "the Ray cluster must be reachable"
            cure = "start it with: ray start --head; or leave --address out for a local one"
        found = f"{address or 'a local cluster'}: {_first_line(problem)}"
        raise ConfigError(rule, found=found, cure=cure) from problem


def own_token() -> None:
    """A token without which nobody may run code on the local cluster, where the user has none.

    The cluster listens on all interfaces, so it does need one. Ray would make one that others can
    read, and leave it in the home folder. Ray keeps the first token that it sees until the process
    ends, so this one stays as long.
    """
    has_token = any(os.environ.get(name) for name in ("RAY_AUTH_TOKEN", TOKEN_PATH))
    wanted = os.environ.get("RAY_AUTH_MODE", "token").lower() == "token"
    if wanted and not has_token and not (Path.home() / ".ray" / "auth_token").exists():
        os.environ[TOKEN_PATH] = str(_token_file())


@cache
def _token_file() -> Path:
    folder = Path(mkdtemp(prefix="depsue-"))  # only this user may enter it
    atexit.register(rmtree, folder, ignore_errors=True)
    path = folder / "token"
    path.touch(mode=0o600)
    path.write_text(secrets.token_hex(32), "ascii")
    return path


def _ray() -> ModuleType:
    try:
        import ray
    except ImportError as problem:
        raise ConfigError(
            "the engine ray needs Ray",
            found=str(problem),
            cure="pip install 'depsue[ray]'",
        ) from problem
    return ray


def _host_and_port(address: str) -> tuple[str, int]:
    """Of host:port; port 0 for what is not."""
    host, _, port = address.rpartition(":")
    ok = host and "/" not in host and port.isascii() and port.isdigit() and int(port) < 65_536
    return (host.strip("[]"), int(port)) if ok else ("", 0)


def _first_line(problem: BaseException) -> str:
    return (str(problem).strip().splitlines() or [""])[0]
