"""A real PostgreSQL on 127.0.0.1 and a free port, and databases made from dumps."""

from __future__ import annotations

import os
import shutil
import socket
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

PASSWORD = "s3cret-word"


def load_sqlite(dump: Path, path: Path) -> str:
    """Make a file from the statements of a dump; where it is."""
    connection = sqlite3.connect(path)
    connection.executescript(dump.read_text())
    connection.close()
    return str(path)


class Server:
    """A PostgreSQL server of the tests' own."""

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
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.start()

    def start(self) -> None:
        """Start it, and wait until it answers."""
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -k {self._folder} -c fsync=off"
        log = self._folder / "log"
        self._run("pg_ctl", "start", "--wait", "--silent", f"--log={log}", f"--options={options}")

    def stop(self) -> None:
        """Stop it at once, as a crash does."""
        self._run("pg_ctl", "stop", "--wait", "--silent", "--mode=immediate")

    def url(self, database: str) -> str:
        """Where a database is."""
        return f"postgresql://depsue:{PASSWORD}@127.0.0.1:{self.port}/{database}"

    def new_database(self) -> str:
        """Make an empty database; where it is."""
        name = self._make("DATABASE")
        return self.url(name)

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


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A server; skipped only where PostgreSQL is not installed."""
    on_path = shutil.which("initdb")
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if on_path is None and not installed:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    binaries = (Path(on_path) if on_path else installed[-1]).resolve().parent
    folder = Path(tempfile.mkdtemp(prefix="depsue-postgres-"))
    server = Server(binaries, folder)
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder)
