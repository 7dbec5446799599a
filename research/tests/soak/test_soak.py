"""The command: parts that are not run again, the report, the exit code; the proxy; a client."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from depsue_research import soak
from depsue_research.cli import app
from depsue_research.soak.actors import brought, with_other_stock
from depsue_research.soak.book import Ask
from depsue_research.soak.closing import Break
from depsue_research.soak.parts import PartResult, PartSettings
from depsue_research.soak.proxy import CutProxy

COUNTS = {"kills of a service": 50, "acknowledged decisions": 1000, "most memory in MB": 300}


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> list[PartSettings]:
    """The parts that are run; that of seed 8 breaks a rule."""
    ran: list[PartSettings] = []

    def run(part: PartSettings, home: Path, folder: Path, **more: Any) -> PartResult:
        ran.append(part)
        folder.mkdir()
        (folder / "client-0.jsonl").write_text("{}")
        broken = (Break("nothing is lost", 2, ("a", "b")),) if part.seed == 8 else ()
        return PartResult(part, COUNTS, broken)

    monkeypatch.setattr(soak, "run_part", run)
    monkeypatch.setattr(soak, "make_campaign", lambda folder, seed: folder)
    return ran


def command(folder: Path, *more: str) -> Any:
    words = ["soak", "--store", "sqlite", "--out", str(folder), "--quiet", *more]
    return CliRunner().invoke(app, words)


def test_finished_parts_are_not_run_again(parts: list[PartSettings], tmp_path: Path) -> None:
    first = command(tmp_path, "--kills", "100")
    assert first.exit_code == 0, first.output
    assert [(part.kills, part.seed) for part in parts] == [(50, 0), (50, 1)]
    more = command(tmp_path, "--kills", "120")
    assert [(part.kills, part.seed) for part in parts[2:]] == [(20, 2)]
    assert "3 parts, seeds 0 to 2" in more.output and "3,000  acknowledged" in more.output
    assert "Every book closes." in more.output
    command(tmp_path, "--kills", "50", "--fresh")
    assert len(parts) == 4


def test_a_book_that_does_not_close_is_shown_and_stays(
    parts: list[PartSettings], tmp_path: Path
) -> None:
    result = command(tmp_path, "--kills", "100", "--seed", "7")
    assert result.exit_code == 1
    assert "Seed 8 (50 kills): a book does not close." in result.output
    assert "not so 2 times: nothing is lost" in result.output
    assert (tmp_path / "sqlite-8" / "client-0.jsonl").exists()
    assert not (tmp_path / "sqlite-7").exists()


@contextmanager
def echo() -> Iterator[tuple[CutProxy, list[bytes]]]:
    """A proxy before a server that answers whatever it hears, and what that has heard."""
    heard: list[bytes] = []
    listener = socket.create_server(("127.0.0.1", 0))

    def answer(connection: socket.socket) -> None:
        with connection:
            while data := connection.recv(100):
                heard.append(data)
                connection.sendall(data)

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    proxy = CutProxy(listener.getsockname()[1])
    try:
        yield proxy, heard
    finally:
        proxy.close()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def asked(proxy: CutProxy, *words: bytes) -> list[bytes]:
    """What comes back for each word; b"" where the connection was cut."""
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=20) as connection:
        answers = []
        for word in words:
            connection.sendall(word)
            answers.append(connection.recv(100))
        return answers


def test_a_commit_is_cut_before_or_after_it_arrived() -> None:
    with echo() as (proxy, heard):
        proxy.arm("before")
        assert asked(proxy, b"SELECT", b"COMMIT") == [b"SELECT", b"COMMIT"]  # it wrote nothing
        assert asked(proxy, b"INSERT 0 1", b"COMMIT") == [b"INSERT 0 1", b""]
        assert heard.count(b"COMMIT") == 1
        proxy.arm("after")
        assert asked(proxy, b"INSERT 0 1", b"COMMIT") == [b"INSERT 0 1", b""]
        assert heard.count(b"COMMIT") == 2 and proxy.cuts == 2 and not proxy.armed
        assert asked(proxy, b"INSERT 0 1", b"COMMIT") == [b"INSERT 0 1", b"COMMIT"]


def test_a_silent_proxy_passes_on_what_came_meanwhile() -> None:
    with echo() as (proxy, heard):
        proxy.silence()
        with socket.create_connection(("127.0.0.1", proxy.port), timeout=20) as connection:
            connection.sendall(b"late")
            assert heard == []
            proxy.speak()
            assert connection.recv(100) == b"late"


def test_a_repeat_with_other_stock_brings_all_that_belongs_to_it() -> None:
    rng, items, new, asks = random.Random(1), tuple(range(20)), {17, 18, 19}, []
    for _ in range(200):
        ask = Ask("0-1", True, {"x0": 0.5}, at=0.0, **brought(rng, items, new))
        again = with_other_stock(ask, rng, items, new)
        assert (again.request, again.context) == (ask.request, ask.context)
        assert again.candidates != ask.candidates
        asks += [ask, again]
    for ask in asks:
        candidates = ask.candidates or []
        if ask.probabilities is not None:
            assert len(ask.probabilities) == len(candidates)
            assert sum(ask.probabilities) == pytest.approx(1.0)
            pairs = zip(candidates, ask.probabilities, strict=True)
            assert all((p == 0) == (item in new) for item, p in pairs)
        assert ask.chosen is None or ask.chosen in set(candidates) - new
    kinds = {(ask.probabilities is None, ask.chosen is None) for ask in asks}
    assert len(kinds) == 4
