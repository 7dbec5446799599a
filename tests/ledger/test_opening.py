"""Addresses: which are taken, which refused, and that no password is ever shown."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path

import pytest
from tests.ledger.conftest import PASSWORD, Server

from depsue.errors import ConfigError, DepsueError, FileError
from depsue.ledger import open_ledger
from depsue.testing.ledgers import start


def test_a_path_and_its_url_are_the_same_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    start(open_ledger(Path("ledger.db")))
    for address in ("ledger.db", "sqlite:///ledger.db", f"sqlite:///{tmp_path}/ledger.db"):
        assert len(open_ledger(address, create=False).campaigns()) == 1


def test_a_relative_path_outlives_a_change_of_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ledger = open_ledger("ledger.db")
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    start(ledger)
    with ledger.hold("spring", 1):
        assert list((tmp_path / "below").iterdir()) == []
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["ledger.db"]


@pytest.mark.parametrize("address", [":memory:", "sqlite://", "sqlite:///:memory:"])
def test_memory_is_a_ledger_of_its_own(address: str, tmp_path: Path) -> None:
    first, second = open_ledger(address), open_ledger(address)
    start(first)
    assert second.campaigns() == () and repr(first) == "Ledger('memory')"


@pytest.mark.parametrize("name", ["a b?c#d%20.db", "ünï.db", "postgresql"])
def test_odd_names_of_files(name: str, tmp_path: Path) -> None:
    start(open_ledger(tmp_path / name))
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg"])
def test_schemes_of_postgres(scheme: str, postgres: Server) -> None:
    address = postgres.new_database().replace("postgresql", scheme)
    assert open_ledger(address).campaigns() == ()


@pytest.mark.parametrize(
    "address",
    [
        "mysql://ana:s3cret-word@host/db",
        "postgresql+psycopg2://ana:s3cret-word@host/db",
        "postgresql://ana:s3cret-word/with@host:99999x/db",
        "postgresql://ana:pa:s3cret-word@host:port/db",
        "sqlite://ana:s3cret-word@host/file.db",
        "sqlite:///file.db?key=s3cret-word",
    ],
)
def test_other_addresses_are_refused_without_a_password(address: str) -> None:
    with pytest.raises(ConfigError, match="path, sqlite:///path or postgresql://") as caught:
        open_ledger(address)
    assert "s3cret" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("address", ["", " ", "file:ledger.db?mode=ro", "a\0b"])
def test_no_path_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match="address|plain path"):
        open_ledger(address)


def test_an_error_of_the_server_shows_no_password(postgres: Server) -> None:
    right = postgres.new_database()
    for address in (
        right.replace(PASSWORD, "wr0ng-word"),
        right.replace(f":{PASSWORD}@", "@") + "?password=wr0ng-word",
        right.replace(str(postgres.port), "1"),
        right + "_missing",
    ):
        with pytest.raises(FileError, match="must answer.*Cure: check that it runs") as caught:
            open_ledger(address)
        said = "".join(traceback.format_exception(caught.value))
        assert "wr0ng" not in said and PASSWORD not in said
        assert "depsue:***@" in said or "password=hidden" in said
    assert PASSWORD not in repr(open_ledger(right)) + str(vars(open_ledger(right)))


def test_without_psycopg_the_cure_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ConfigError, match=r"needs psycopg.*pip install 'depsue\[postgres\]'"):
        open_ledger("postgresql://host/db")


def test_wait_is_positive() -> None:
    for wait in (0.0, -1.0, float("nan")):
        with pytest.raises(DepsueError, match="wait must be positive"):
            open_ledger(":memory:", wait=wait)
