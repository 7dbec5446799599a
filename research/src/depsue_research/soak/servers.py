"""Processes that can be killed: services of a campaign, and a PostgreSQL of the soak's own."""

from __future__ import annotations

import http.client
import json
import multiprocessing
import os
import resource
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from depsue.errors import DepsueError, FileError

PASSWORD = "s3cret-word"
LONGEST_START = 60.0
"""Seconds in which a service must answer after its start."""


class SoakError(DepsueError):
    """The soak itself could not go on."""


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def forked(arguments: Sequence[str], log: Path, room: int | None = None) -> ForkServerProcess:
    """Run `depsue ARGUMENTS` in a process that is forked from one with everything imported.

    Args:
        arguments: of the command line.
        log: the file that takes what it prints.
        room: bytes that a file of the process may have; None for no limit.
    """
    from depsue_research.soak.nursery import run_command

    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["depsue_research.soak.nursery"])
    # by a pipe: a process that may not write to files still has its log
    reading, writing = context.Pipe(duplex=False)
    process = context.Process(
        target=run_command, args=(list(arguments), writing, room), daemon=True
    )
    process.start()
    writing.close()
    threading.Thread(target=_keep_log, args=(reading, log), daemon=True).start()
    return process


def _keep_log(reading: Connection, log: Path) -> None:
    with reading, log.open("ab") as file:
        while data := os.read(reading.fileno(), 1 << 16):
            file.write(data)
            file.flush()


class ServiceProcess:
    """One service on its own port, in life after life.

    Args:
        arguments: of `depsue serve`, without the port.
        log: the file of its log.
    """

    def __init__(self, arguments: Sequence[str], log: Path) -> None:
        self.port, self.log = free_port(), log
        self._arguments = ["serve", *arguments, "--port", str(self.port)]
        self._process: ForkServerProcess | None = None

    def start(self, room: int | None = None) -> None:
        """Begin another life; it does not answer yet."""
        self._process = forked(self._arguments, self.log, room)

    def wait(self) -> None:
        """Wait until it answers."""
        latest = time.monotonic() + LONGEST_START
        while True:
            try:
                if self.ask("GET", "/healthz", timeout=1.0)[0] == 200:
                    return
            except (OSError, http.client.HTTPException):
                pass
            if not self.alive or time.monotonic() > latest:
                raise SoakError(
                    "a service must answer after its start",
                    found="it ended by itself" if not self.alive else "it did not, for a minute",
                    cure=f"its log: {self.log}",
                )
            time.sleep(0.005)

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.is_alive()

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.join()

    def freeze(self) -> None:
        """Stop its clockwork (SIGSTOP), as a machine does that is moved or swaps."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on, as if nothing had happened."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self.alive and self._process is not None and self._process.pid is not None:
            os.kill(self._process.pid, number)

    def end(self) -> int:
        """Ask it to end; its exit code."""
        assert self._process is not None
        self._process.terminate()
        self._process.join(30)
        code = self._process.exitcode
        if code is None:
            self.kill()
        return -1 if code is None else code

    def limit(self, room: int | None) -> None:
        """From now on its files may have so many bytes; None for no limit."""
        if self._process is not None and self._process.pid is not None and self.alive:
            soft = resource.RLIM_INFINITY if room is None else room
            limits = (soft, resource.RLIM_INFINITY)
            resource.prlimit(self._process.pid, resource.RLIMIT_FSIZE, limits)

    @property
    def memory(self) -> int:
        """Bytes of memory that it holds; 0 if it does not run."""
        try:
            assert self._process is not None
            pages = Path(f"/proc/{self._process.pid}/statm").read_text().split()[1]
        except (OSError, AssertionError):
            return 0
        return int(pages) * resource.getpagesize()

    def ask(
        self, method: str, path: str, body: Any = None, timeout: float = 3.0
    ) -> tuple[int, Any]:
        """(status, values) of one request on a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request(method, path, None if body is None else json.dumps(body))
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read() or b"null")
        finally:
            connection.close()


class PostgresServer:
    """A PostgreSQL server on 127.0.0.1 and a free port.

    Args:
        binaries: where its programs are.
        folder: where its data goes; a new one.
    """

    def __init__(self, binaries: Path, folder: Path) -> None:
        self._binaries, self._folder = binaries, folder
        self._user = "postgres" if os.geteuid() == 0 else None
        self._made = 0
        if self._user:
            shutil.chown(folder, self._user)
        secret = folder / "password"
        secret.write_text(PASSWORD)
        secret.chmod(0o644)
        self._run("initdb", "--no-sync", "--encoding=UTF8", "--locale=C", "--auth=scram-sha-256",
                  "--username=depsue", f"--pwfile={secret}")  # fmt: skip
        self.port = free_port()
        self.start()

    def start(self) -> None:
        """Start it, and wait until it answers."""
        # kill -9 ends processes, not the machine: what was written is there without a sync
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -k {self._folder} -c fsync=off"
        log = self._folder / "log"
        for attempt in range(40):  # processes of a killed server may take a moment to end
            try:
                self._run(
                    *("pg_ctl", "start", "--wait", "--silent"),
                    *(f"--log={log}", f"--options={options}"),
                )
                return
            except subprocess.CalledProcessError:
                if attempt == 39:
                    raise
                time.sleep(0.1)

    def stop(self, mode: str = "immediate") -> None:
        """Stop it: at once, as a crash does, or `fast`, in order."""
        self._run("pg_ctl", "stop", "--wait", "--silent", f"--mode={mode}")

    def kill(self) -> None:
        """kill -9 of the server; its other processes end by themselves."""
        pid = int((self._folder / "data" / "postmaster.pid").read_text().split()[0])
        os.kill(pid, signal.SIGKILL)

    def url(self, database: str, port: int | None = None) -> str:
        """Where a database is; through another port, where a proxy listens."""
        return f"postgresql://depsue:{PASSWORD}@127.0.0.1:{port or self.port}/{database}"

    def new_database(self) -> str:
        """Make an empty database; where it is."""
        return self.url(self._make("DATABASE"))

    def new_schema(self) -> str:
        """Make an empty schema, which takes less time; where it is."""
        return f"{self.url('postgres')}?options=-csearch_path%3D{self._make('SCHEMA')}"

    def load(self, dump: Path) -> str:
        """Make a database from the statements of a dump; where it is."""
        address = self.new_database()
        url = sa.make_url(address).set(drivername="postgresql+psycopg")
        engine = sa.create_engine(url)
        with engine.begin() as connection:
            connection.exec_driver_sql(dump.read_text())
        engine.dispose()
        return address

    def _make(self, what: str) -> str:
        self._made += 1
        name = f"ledger_{self._made}"
        url = sa.make_url(self.url("postgres")).set(drivername="postgresql+psycopg")
        engine = sa.create_engine(url, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.exec_driver_sql(f"CREATE {what} {name}")
        engine.dispose()
        return name

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._binaries / program), "-D", str(self._folder / "data"), *arguments]
        with (self._folder / "said").open("w") as said:
            subprocess.run(
                command,
                check=True,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
                user=self._user,
                group=self._user,
                extra_groups=[] if self._user else None,
            )


def postgres_binaries() -> Path:
    """Where PostgreSQL's programs are; a FileError where it is not installed."""
    on_path = shutil.which("initdb")
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if on_path is None and not installed:
        raise FileError(
            "PostgreSQL must be installed",
            found="no initdb",
            cure="apt-get install postgresql",
        )
    return (Path(on_path) if on_path else installed[-1]).resolve().parent


@contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """A server in a folder of its own, which is removed in the end."""
    folder = Path(tempfile.mkdtemp(prefix="depsue-postgres-"))
    try:
        server = PostgresServer(postgres_binaries(), folder)
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
