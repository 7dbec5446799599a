"""Loads a service that is killed again and again, then balances the books.

    python tests/serving/killed.py FOLDER --kills 5

FOLDER holds `campaigns` with the campaign `spring`, deployed. Clients ask with keys, repeat what
was not answered, send rewards early, twice and out of order, and garbage between them. In the end
every answered decision is in the store once, as it was answered; every acknowledged reward counts
once; and nothing else is there but decisions whose answer was lost with the process.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from depsue.client import Client, Refused, ServiceError
from depsue.serving.store import Store

CLIENTS = 4


class Books:
    """What clients were told."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.decided: dict[str, dict[str, Any]] = {}
        self.asked: set[str] = set()
        self.rewarded: dict[str, float] = {}
        self.ending = threading.Event()


def run_client(number: int, port: int, books: Books, seed: int) -> None:
    """Ask, repeat, reward, and send garbage, until it is over."""
    rng = random.Random(seed * 1000 + number)
    client = Client(f"http://127.0.0.1:{port}", timeout=2.0, tries=3)
    count = 0
    while not books.ending.is_set():
        count += 1
        key = f"{number}-{count}"
        context = {f"x{j}": rng.choice([-1.0, 0.5, 2.0]) for j in range(4)}
        with books.lock:
            books.asked.add(key)
        made = None
        while made is None:  # also over restarts
            try:
                made = client.decide(context, key=key)
                again = client.decide(context, key=key) if rng.random() < 0.2 else made
                assert again == made, (again, made)
            except Refused:
                raise
            except ServiceError:
                if books.ending.is_set():
                    return
                time.sleep(0.05)
        with books.lock:
            books.decided[made.decision] = {"key": key, "action": made.action, "p": made.propensity}
        if rng.random() < 0.5:
            value = float(rng.random() < 0.7)
            for _ in range(rng.choice([1, 1, 2])):
                try:
                    client.reward(made.decision, value)
                    with books.lock:
                        books.rewarded.setdefault(made.decision, value)
                except ServiceError:
                    continue
        if rng.random() < 0.1:
            try:
                client.decide({"x0": "garbage"})
                raise AssertionError("garbage was decided")
            except ServiceError:
                continue


def start(folder: Path, port: int) -> subprocess.Popen[bytes]:
    """A service, as a user starts it."""
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "depsue", "serve", "spring", "--home"),
            *(str(folder / "campaigns"), "--no-auth", "--wait", "3600", "--port", str(port)),
        ],
        stderr=(folder / "serve.log").open("ab"),
    )


def ready(port: int, child: subprocess.Popen[bytes]) -> None:
    """Wait until it answers."""
    client = Client(f"http://127.0.0.1:{port}", timeout=1.0, tries=1)
    for _ in range(600):
        try:
            client.status()
            return
        except ServiceError:
            assert child.poll() is None, "the service ended by itself"
            time.sleep(0.1)
    raise AssertionError("the service did not start")


def main() -> None:
    """Kill, restart, balance."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    rng, port, books = random.Random(given.seed), _free_port(), Books()
    child = start(given.folder, port)
    ready(port, child)
    clients = [
        threading.Thread(target=run_client, args=(k, port, books, given.seed), daemon=True)
        for k in range(CLIENTS)
    ]
    for one in clients:
        one.start()
    for _ in range(given.kills):
        before = len(books.decided)
        while len(books.decided) < before + 40:
            time.sleep(0.02)
        time.sleep(rng.random() * 0.3)
        child.send_signal(signal.SIGKILL)
        child.wait()
        child = start(given.folder, port)
        ready(port, child)
    time.sleep(0.5)
    books.ending.set()
    for one in clients:
        one.join()
    child.send_signal(signal.SIGTERM)  # nothing accepted is lost by this, either
    assert child.wait(timeout=30) in (0, -signal.SIGTERM), child.returncode
    last = (given.folder / "serve.log").read_text().splitlines()[-1]
    assert json.loads(last)["event"] == "ended", last
    print(json.dumps(balanced(given.folder, books)))


def balanced(folder: Path, books: Books) -> dict[str, int]:
    """Hold the store against what clients were told."""
    store = Store(folder / "campaigns" / "spring" / "decisions.db", "spring")
    rows, rewards = store.read(wait=3600.0, limit=10**6)
    stored = {row.id: row for row in rows}
    assert len(stored) == len(rows)
    for id, told in books.decided.items():
        row = stored[id]  # every answered decision, once
        assert row.propensity == told["p"] and row.key == told["key"], (row, told)
    unanswered = [row for row in rows if row.id not in books.decided]
    assert all(row.key in books.asked for row in unanswered)
    keys = [row.key for row in rows]
    assert len(set(keys)) == len(keys)  # no request was decided twice
    earned = {one.decision: one.value for one in rewards}
    assert len(earned) == len(rewards)
    for id, value in books.rewarded.items():
        assert earned[id] == value
    return {
        "decided": len(books.decided),
        "rewarded": len(books.rewarded),
        "unanswered": len(unanswered),
    }


def _free_port() -> int:
    import socket

    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"
    main()
