"""The cells of a Ray cluster are those of one process, whatever dies; nothing stays behind."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias, cast

import pytest

from depsue.errors import ConfigError, DepsueError, FileError
from depsue_research.paper import ray_engine
from depsue_research.paper.cells import Cell, CellStore, Result, cells_of
from depsue_research.paper.ray_engine import on_ray
from depsue_research.paper.recipe import Recipe
from depsue_research.paper.sweep import SweepProgress, for_workers, in_processes, sweep

ray: Any = import_module("ray")
Cluster: Any = import_module("ray.cluster_utils").Cluster
FAILING = Cell(9, 8.0, "depsue_0")
"""There is no such method, which is refused, and seed 9 comes last."""
Results: TypeAlias = Generator[Result, None, None]
TOKEN = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")


@pytest.fixture(scope="module")
def longer(small_recipe: Recipe) -> Recipe:
    """Seven cells; those of DEPSUE take a second or more."""
    return small_recipe.with_options(levels=(8.0,), steps=1_000)


@pytest.fixture(scope="module")
def quick(small_recipe: Recipe) -> Recipe:
    return small_recipe.with_options(levels=(8.0,), methods=("naive_safe", "depsue_1"))


@pytest.fixture(scope="module")
def in_one_process(
    longer: Recipe, movielens_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[Cell, Result]:
    store = CellStore(tmp_path_factory.mktemp("one process"))
    return sweep(longer, [0], store, in_processes(1), data=movielens_folder)


@pytest.fixture(scope="module", autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A home folder without a token of Ray's, and no variables of Ray's."""
    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(folder))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        for name in for_workers.VARIABLES:
            if name.endswith("THREADS"):
                patch.setenv(name, "2")  # as on machines where nobody thought of it
        for name in (*TOKEN, "RAY_ADDRESS"):
            patch.delenv(name, raising=False)
        yield folder


@pytest.fixture
def unused_port() -> int:
    with socket.socket() as own:
        own.bind(("127.0.0.1", 0))
        return int(own.getsockname()[1])


@pytest.fixture(scope="module")
def cluster(home: Path) -> Iterator[Any]:
    """A cluster of one node with one CPU, which this process is not connected to."""
    options = {"include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=options)
    yield cluster
    cluster.shutdown()


def test_a_killed_node_loses_nothing_and_repeats_nothing(
    cluster: Any,
    in_one_process: dict[Cell, Result],
    longer: Recipe,
    movielens_folder: Path,
    tmp_path: Path,
) -> None:
    node = cluster.add_node()
    engine = on_ray(cluster.address)
    yielded: list[Cell] = []
    killed: list[str] = []
    processes: set[int] = set()

    def noted(recipe: Recipe, cells: Sequence[Cell], data: Path | None) -> Iterator[Result]:
        for result in engine(recipe, cells, data):
            yielded.append(Cell.of(result))
            yield result

    def kill(progress: SweepProgress, result: Result) -> None:
        if progress.done == 1:
            wait_until(lambda: bool(cells_on(node)))
            killed.extend(cells_on(node))
            processes.update([raylet_of(node), *below(raylet_of(node))])
            cluster.remove_node(node, allow_graceful=False)

    store = CellStore(tmp_path)
    results = sweep(longer, [0], store, noted, data=movielens_folder, on_result=kill)
    assert len(killed) == 1
    assert killed[0] in {f"ray::{cell}" for cell in results}
    assert sorted(yielded) == sorted(cells_of(longer, [0]))
    assert store.finished(longer) == dict(sorted(results.items()))
    assert timeless(results) == timeless(in_one_process)
    assert len(processes) >= 2
    wait_until(lambda: not processes & set(running()))


def test_a_cluster_that_was_there_stays(
    cluster: Any, quick: Recipe, movielens_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = cells_of(quick, [0])
    # the data is read on the node; its error comes through as it was raised
    with pytest.raises(FileError, match="no users.dat.* in .*nowhere") as caught:
        list(on_ray(cluster.address)(quick, cells, Path("nowhere")))
    assert type(caught.value) is FileError
    assert not ray.is_initialized()
    # an interrupt ends the cells that wait and the one that runs
    endless = quick.with_options(steps=100_000_000, methods=("depsue_1", "naive_safe"))
    engine = on_ray(cluster.address)
    results = cast(Results, engine(endless, cells_of(endless, [0, 1]), movielens_folder))
    assert next(results)["method"] == "naive_safe"
    wait_until(lambda: bool(cells_on(cluster.head_node)))
    with pytest.raises(KeyboardInterrupt):
        results.throw(KeyboardInterrupt)
    assert not ray.is_initialized()
    wait_until(lambda: not cells_on(cluster.head_node))
    # a connection of the caller's is used, and kept; a relative path is as seen from here
    ray.init(address=cluster.address, log_to_driver=False)
    try:
        monkeypatch.chdir(movielens_folder)
        for address in (None, cluster.address):
            assert len(list(on_ray(address)(quick, cells, Path(".")))) == len(cells)
            assert ray.is_initialized()
        with pytest.raises(ConfigError, match="connected to another Ray cluster"):
            list(on_ray("127.0.0.1:1")(quick, cells, movielens_folder))
    finally:
        ray.shutdown()


def test_every_cell_has_one_thread(
    cluster: Any, quick: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    def threads(*arguments: object) -> Result:
        names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
        return {name: os.environ.get(name) for name in names}

    monkeypatch.setattr(ray_engine, "run_on_node", threads)
    for result in on_ray(cluster.address)(quick, cells_of(quick, [0]), None):
        assert list(result.values()) == ["1", "1", "1"]


def test_a_local_cluster_is_private_and_ends_with_the_sweep(
    quick: Recipe, home: Path, movielens_folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = set(below(os.getpid()))
    processes: set[int] = set()
    results: list[Result] = []
    with pytest.raises(ConfigError, match="methods must be one of") as caught:
        for result in on_ray(workers=1)(quick, [FAILING, *cells_of(quick, [0])], movielens_folder):
            results.append(result)
            processes |= set(below(os.getpid())) - before
            token = Path(os.environ["RAY_AUTH_TOKEN_PATH"])
            assert (token.stat().st_mode, token.parent.stat().st_mode) == (0o100600, 0o40700)
            assert ray.cluster_resources()["CPU"] == 1
    assert type(caught.value) is ConfigError
    assert "run_cell.py" in str(caught.value.__cause__)  # the node's traceback, for who looks
    assert {Cell.of(result) for result in results} == set(cells_of(quick, [0]))
    assert not ray.is_initialized()
    assert not (home / ".ray").exists()
    assert len(processes) >= 3
    wait_until(lambda: not processes & set(running()))
    written = "".join(capfd.readouterr())
    assert written == ""


class ScriptedRay:
    """As much of Ray as `as_finished` calls; `finished` are there, the rest never will be."""

    def __init__(self, *finished: str) -> None:
        self.exceptions = ray.exceptions
        self.finished, self.cancelled = list(finished), list[str]()

    def is_initialized(self) -> bool:
        return True

    def wait(self, references: list[str], timeout: float | None) -> tuple[list[str], list[str]]:
        ready = self.finished[:1]
        del self.finished[:1]
        assert ready or timeout == 0, "this would wait for ever"
        return ready, [reference for reference in references if reference not in ready]

    def get(self, reference: str) -> Result:
        if reference.startswith("bad"):
            cause = FileError("a rule", found=reference)
            raise self.exceptions.RayTaskError("f", "Traceback", cause, "ray::f", 1, "127.0.0.1")
        if reference.startswith("dead"):
            raise self.exceptions.WorkerCrashedError
        return {"cell": reference}

    def cancel(self, reference: str, force: bool) -> None:
        assert force
        self.cancelled.append(reference)


def test_what_has_finished_comes_before_the_error() -> None:
    ray = ScriptedRay("a", "bad", "b", "dead", "c")
    results = ray_engine.as_finished(ray, ["a", "bad", "b", "c", "dead", "d", "e"])
    assert [next(results)["cell"] for _ in range(3)] == ["a", "b", "c"]
    with pytest.raises(FileError, match="a rule. Found: bad"):
        next(results)
    assert ray.cancelled == ["e", "d"]  # what waits longest first, or it would be started


def test_a_cell_that_no_node_ends_is_said_to_be() -> None:
    with pytest.raises(DepsueError, match="(?s)in 6 attempts.*WorkerCrashedError.*are kept"):
        list(ray_engine.as_finished(ScriptedRay("dead"), ["dead"]))


def test_nodes_of_another_version_are_refused(quick: Recipe, movielens_folder: Path) -> None:
    cell = cells_of(quick, [0])[0]
    with pytest.raises(ConfigError, match="(?s)same version.*pip install 'depsue.ray.==0.0.0'"):
        ray_engine.run_on_node(quick, cell, movielens_folder, "0.0.0")


def test_without_ray_the_cure_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"pip install 'depsue\[ray\]'"):
        on_ray(None)


@pytest.mark.parametrize(
    "address", ["", "local", "host", "host:", ":1", "ray://host:1", "h:70000", 7]
)
def test_addresses_are_checked(address: Any) -> None:
    with pytest.raises(ConfigError, match="host:port, or auto"):
        on_ray(address)


@pytest.mark.parametrize(("address", "workers"), [(None, 0), (None, True), ("auto", 1)])
def test_workers_are_checked(address: str | None, workers: int) -> None:
    with pytest.raises(ConfigError, match="(?s)from 1 to 512, and without an address"):
        on_ray(address, workers=workers)


def test_a_cluster_that_is_not_there_is_said_at_once(quick: Recipe, unused_port: int) -> None:
    cells = cells_of(quick, [0])
    with pytest.raises(ConfigError, match="(?s)must be reachable.*refused.*ray start --head"):
        list(on_ray(f"127.0.0.1:{unused_port}")(quick, cells, None))


def test_nothing_is_started_for_no_cells(quick: Recipe) -> None:
    assert list(on_ray("127.0.0.1:1")(quick, [], None)) == []


@pytest.mark.parametrize(
    "given",
    [
        {"RAY_AUTH_TOKEN": "of the user"},
        {"RAY_AUTH_TOKEN_PATH": "a/file"},
        {"RAY_AUTH_MODE": "disabled"},
        {"HOME": "with a token"},
    ],
    ids=lambda given: next(iter(given)),
)
def test_what_the_user_set_is_left_alone(
    given: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in TOKEN:
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "with a token" / ".ray").mkdir(parents=True)
    (tmp_path / "with a token" / ".ray" / "auth_token").touch()
    monkeypatch.chdir(tmp_path)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    ray_engine.own_token()
    assert {name: os.environ[name] for name in TOKEN if name in os.environ} == {
        name: value for name, value in given.items() if name in TOKEN
    }


def timeless(results: dict[Cell, Result]) -> dict[Cell, str]:
    """Results as text, to the bit, without what differs from run to run."""
    changing = ("seconds", "peak_mib")
    return {
        cell: json.dumps({name: v for name, v in result.items() if name not in changing})
        for cell, result in results.items()
    }


def wait_until(true: Callable[[], bool]) -> None:
    """Give other processes time to start or end."""
    for _ in range(600):
        if true():
            return
        time.sleep(0.1)
    pytest.fail("waited a minute in vain")


def running() -> dict[int, tuple[int, str]]:
    """Process -> its parent and command line, of all that run."""
    columns = ["ps", "-A", "-o", "pid=,ppid=,stat=,args="]
    lines = subprocess.run(columns, capture_output=True, text=True, check=True).stdout
    processes = {}
    for line in lines.splitlines():
        pid, parent, state, *words = line.split(maxsplit=3)
        if not state.startswith("Z"):
            processes[int(pid)] = (int(parent), "".join(words))
    return processes


def below(top: int) -> list[int]:
    """All processes that a process started, and those that they started; itself not."""
    children = [pid for pid, (parent, _) in running().items() if parent == top]
    return children + [pid for child in children for pid in below(child)]


def raylet_of(node: Any) -> int:
    """The process that all workers of a node are started by."""
    return int(node.all_processes["raylet"][0].process.pid)


def cells_on(node: Any) -> list[str]:
    """Titles of the workers of a node that run a cell."""
    raylet = raylet_of(node)
    titles = [title for parent, title in running().values() if parent == raylet]
    return [title for title in titles if title.startswith("ray::") and " seed " in title]
