"""Decisions per second of the service, against VW behind the same server with the same durability.

    pip install vowpalwabbit
    python benchmarks/serving.py --out docs/results/serving.md

Both are our server, one worker, 16 connections, 1,000 actions, each decision on disk (SQLite,
synchronous FULL) before the reply; what draws the action is the certified policy of a campaign, or
`cb_explore_adf` of Vowpal Wabbit, which predicts only, with one feature for each action, and is
spared the monitor. "New contexts" never repeat; "returning" are 2,000 users who come again and
again. "Candidates": each request brings 200 of a catalogue of 1,000,000 items, with pi0's
probabilities of them; a tilt of these by a linear reward model decides, with some new items. Then
the latency at half the load, and a million rewards joined.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from depsue import SyntheticSettings, synthetic_world
from depsue.campaigns import Campaign, create, open_home
from depsue.data.catalogue import Catalogue
from depsue.data.checks import FloatArray
from depsue.data.writing import write_items, write_logs
from depsue.policies import BasePolicy, BroughtPolicy, Mixture, OrElse, Uniform
from depsue.policies.tilted import ModelSoftmax, Tilted
from depsue.rewards import fit_linear
from depsue.rewards.linear import LinearRewardModel
from depsue.serving.exporting import export_logs
from depsue.serving.journal import Journal
from depsue.serving.schema import Decision, Reward
from depsue.serving.served import ServedPolicy
from depsue.serving.settings import ServingSettings
from depsue.serving.store import Store

D, CONNECTIONS, MILLION = 10, 16, 1_000_000
CANDIDATES, NEW = 200, 10
"""Of a request with candidates, and how many of them are new."""


class VwPolicy(BasePolicy):
    """`cb_explore_adf` over A actions, asked for one context after another."""

    kind = "vw"

    def __init__(self, n_actions: int) -> None:
        from vowpalwabbit import Workspace

        self._vw = Workspace("--cb_explore_adf --epsilon 0.1 -q ua --quiet")
        self._lines = [f"|a i{k}" for k in range(n_actions)]

    @property
    def n_actions(self) -> int:
        return len(self._lines)

    def probabilities(self, contexts: FloatArray) -> FloatArray:
        return np.array([self._one(row) for row in contexts.tolist()])

    def _one(self, row: list[float]) -> list[float]:
        shared = "shared |u " + " ".join(f"x{j}:{value:.5g}" for j, value in enumerate(row))
        probabilities: list[float] = self._vw.predict([shared, *self._lines])
        return probabilities


def make_campaign(folder: Path) -> None:
    """A campaign of 800 known items and 200 new ones, its first policy deployed."""
    world = synthetic_world(SyntheticSettings(users=2000, supported=800, novel=200, d=D), seed=1)
    known = Uniform(~world.catalogue.novel)
    model = fit_linear(world.deploy(known, 20_000, round=0))
    pi0 = Tilted(known, model, strength=1.0, cap=50.0, scale=0.05)
    write_items(world.catalogue, folder / "items.parquet")
    write_logs(world.deploy(pi0, 200_000, round=0), folder / "logs.parquet")
    made = create(
        "bench",
        folder / "logs.parquet",
        folder / "items.parquet",
        pi0=pi0,
        by="bench",
        home=folder / "campaigns",
    )
    made.train()
    if not made.certify().passed:
        raise SystemExit("the campaign's certificate did not pass")
    made.deploy()


def overlay(served: ServedPolicy) -> ServedPolicy:
    """A policy on requests that bring candidates of a million items, and pi0 on them."""
    novel = np.zeros(MILLION, dtype=bool)
    novel[-MILLION // 20 :] = True
    rng = np.random.default_rng(5)
    model = LinearRewardModel(0.3, rng.normal(size=D) / 50, rng.normal(size=MILLION) / 50, 1.0)
    pi0 = BroughtPolicy(MILLION)
    tilt = Tilted(pi0, model, strength=1.0, cap=20.0, scale=0.05)
    new = OrElse(ModelSoftmax(model, novel, strength=1.0, scale=0.05), tilt)
    return replace(
        served,
        policy=Mixture([tilt, new], [0.9, 0.1]),
        pi0=pi0,
        catalogue=Catalogue(np.arange(MILLION), novel),
        what="certified",
        brings=True,
    )


def serve(what: str, folder: Path, port: int) -> None:
    """Run the server, with our policy or with VW's in its place."""
    import uvicorn

    from depsue.serving.access import Access
    from depsue.serving.app import App
    from depsue.serving.service import Service

    home = folder / "campaigns"
    campaign = Campaign(open_home(home), home, "bench", by="bench")
    store = folder / f"{what}.db"
    service = Service(campaign, ServingSettings(wait=3600.0), store=str(store))
    if what == "vw":
        vw = VwPolicy(len(service.served.catalogue))
        service.served = replace(service.served, policy=vw, pi0=vw, what="pi0")
        service.look = lambda now=None: None  # type: ignore[method-assign]
    if what == "overlay":
        service.served = overlay(service.served)
        service.look = lambda now=None: None  # type: ignore[method-assign]
        service.count = lambda now=None: None  # type: ignore[method-assign]
        service.take_up = lambda: None  # type: ignore[method-assign]
        service.monitor.refusal = lambda served: ""  # type: ignore[method-assign]
    sys.setswitchinterval(0.0001)
    app = App(service, Access(home, open_to_all=True))
    uvicorn.run(app, port=port, log_level="error", access_log=False, lifespan="on")


@dataclass
class Load:
    """What a load measured."""

    per_second: float
    latencies: list[float]

    def quantile(self, share: float) -> float:
        """In milliseconds."""
        return float(np.quantile(self.latencies, share)) * 1e3


def bodies(kind: str, count: int, seed: int) -> list[bytes]:
    """Requests, ready to be sent."""
    rng = np.random.default_rng(seed)
    distinct = count if kind == "new" else 2000
    rows = rng.normal(size=(distinct, D)).tolist()
    requests = []
    for k in range(count):
        asked = {"context": {f"x{j}": value for j, value in enumerate(rows[k % distinct])}}
        text = json.dumps(asked | (brought(rng) if kind == "candidates" else {})).encode()
        head = f"POST /v1/decide HTTP/1.1\r\nhost: x\r\ncontent-length: {len(text)}\r\n\r\n"
        requests.append(head.encode() + text)
    return requests


def brought(rng: np.random.Generator) -> dict[str, list[float]]:
    """Candidates and pi0's probabilities of them."""
    known = MILLION - MILLION // 20
    old = rng.choice(known, CANDIDATES - NEW, replace=False)
    new = known + rng.choice(MILLION - known, NEW, replace=False)
    shares = rng.dirichlet(np.ones(len(old)))
    return {
        "candidates": [*old.tolist(), *new.tolist()],
        "probabilities": [*shares.round(6).tolist(), *[0.0] * NEW],
    }


async def load(port: int, requests: list[bytes], seconds: float, rate: float | None) -> Load:
    """16 connections, as fast as they are answered, or at a rate."""
    left = iter(requests)
    took: list[float] = []
    began = time.perf_counter()
    slot = iter(range(10**9))

    async def connection() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while time.perf_counter() - began < seconds:
            if rate is not None:
                due = began + next(slot) / rate
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
            request = next(left, None)
            if request is None:
                break
            sent = time.perf_counter()
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            if not head.startswith(b"HTTP/1.1 200"):
                raise SystemExit(head.decode())
            size = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
            await reader.readexactly(size)
            took.append(time.perf_counter() - sent)
        writer.close()

    await asyncio.gather(*(connection() for _ in range(CONNECTIONS)))
    return Load(len(took) / (time.perf_counter() - began), took)


def in_rounds(folder: Path, seconds: float, rounds: int) -> dict[str, Load]:
    """Ours and VW's in turns, so that whatever else the machine does troubles both alike.

    What is answered in a second is the median over the rounds; latencies are of all of them.
    """
    run, most = asyncio.run, int(12_000 * seconds)
    loads: dict[str, list[Load]] = {}
    with server("ours", folder) as ours, server("vw", folder) as vw:
        for port in (ours, vw):
            run(load(port, bodies("new", 500, 9), 5.0, None))  # warm
        for k in range(rounds):
            now = {"vw": run(load(vw, bodies("new", most // 8, 10 + k), seconds, None))}
            for kind, seed in (("new", 30 + k), ("returning", 2)):
                if kind == "returning":  # they have come before
                    run(load(ours, bodies(kind, 2000, seed), 60.0, None))
                now[kind] = run(load(ours, bodies(kind, most, seed), seconds, None))
                requests = bodies(kind, most, 50 + k if kind == "new" else seed)
                half = now[kind].per_second / 2
                now[f"half, {kind}"] = run(load(ours, requests, seconds, half))
            for kind, each in now.items():
                loads.setdefault(kind, []).append(each)
    return {
        kind: Load(
            float(np.median([each.per_second for each in several])),
            [seconds for each in several for seconds in each.latencies],
        )
        for kind, several in loads.items()
    }


def with_candidates(folder: Path, seconds: float) -> Load:
    """Requests that bring candidates."""
    with server("overlay", folder) as port:
        asyncio.run(load(port, bodies("candidates", 500, 9), 5.0, None))  # warm
        requests = bodies("candidates", int(2500 * seconds), 1)
        return asyncio.run(load(port, requests, seconds, None))


@contextmanager
def server(what: str, folder: Path) -> Iterator[int]:
    """The port of a server in a process of its own."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, __file__, "--serve", what, "--folder", str(folder)]
    child = subprocess.Popen([*command, "--port", str(port)])
    try:
        _wait_for(port)
        yield port
    finally:
        child.terminate()
        child.wait()


def _wait_for(port: int) -> None:
    for _ in range(300):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.1)
    raise SystemExit("the server did not start")


def joined(folder: Path) -> dict[str, float]:
    """Seconds to store a million rewards, and to join them with their decisions into Parquet."""
    home = folder / "campaigns"
    campaign = Campaign(open_home(home), home, "bench", by="bench")
    store = Store(folder / "join.db", "bench", writing=True)
    store.open()
    hash = campaign.ledger.deployments("bench")[-1].policy_hash
    context = json.dumps({f"x{j}": 0.5 for j in range(D)})
    ids: list[str] = []
    for _ in range(0, MILLION, 10_000):
        mine = [os.urandom(16).hex() for _ in range(10_000)]
        ids += mine
        store.write([
            Decision(id=id, at=1000.0, round=1, policy=hash, decided_by="policy", why="",
                     action=k % 1000, propensity=0.5, p_policy=0.5, p_pi0=0.4,
                     holdout=0.0, context=context)
            for k, id in enumerate(mine)
        ])  # fmt: skip
    order = np.random.default_rng(0).permutation(MILLION)  # rewards come in any order
    began = time.perf_counter()
    for start in range(0, MILLION, 1000):
        chunk = [ids[k] for k in order[start : start + 1000].tolist()]
        store.write([], [Reward(id, "reward", "", 1.0, 1001.0) for id in chunk])
    stored = time.perf_counter()
    out = export_logs(
        campaign, Store(folder / "join.db", "bench"), Journal(folder / "none"),
        ServingSettings(wait=60.0), folder / "joined.parquet", now=5000.0,
    )  # fmt: skip
    done = time.perf_counter()
    assert out.rows == MILLION
    store.close()
    return {"stored": stored - began, "joined": done - stored}


def main() -> None:
    """Measure, print, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serve", choices=("ours", "vw", "overlay"))
    parser.add_argument("--folder", type=Path, help="of the campaign; made where it is not")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve, options.folder, options.port)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "team"
        if options.folder is None:
            folder.mkdir()
            make_campaign(folder)
        else:  # made before, so that a quiet machine is needed for less time
            if not (options.folder / "campaigns").exists():
                options.folder.mkdir(parents=True, exist_ok=True)
                make_campaign(options.folder)
            shutil.copytree(options.folder, folder)
        loads = in_rounds(folder, options.seconds, options.rounds)
        sets = with_candidates(folder, options.seconds)
        rewards = joined(folder)
    table = report(loads, sets, rewards, options.rounds)
    print(table)
    if options.out is not None:
        options.out.write_text(table)


def report(loads: dict[str, Load], sets: Load, rewards: dict[str, float], rounds: int) -> str:
    """The table, in Markdown."""
    lines = [
        "# The service: decisions per second",
        "",
        "Made by `python benchmarks/serving.py --out docs/results/serving.md` on "
        f"{os.cpu_count()} cores ({platform.machine()}), server and load on the same machine: one "
        f"worker, {CONNECTIONS} connections, 1,000 actions, each decision on disk (SQLite, "
        f"synchronous FULL) before its reply. Ours and VW's took turns, {rounds} rounds; rates are "
        "medians of the rounds, p99 is of all requests.",
        "",
        "| contexts | ours, per second | p99 | VW in the same server, per second | ratio | p99 at "
        "half the load |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    b = loads["vw"]  # it does not matter to VW whether it has seen a context before
    for kind in ("new", "returning"):
        a, half = loads[kind], loads[f"half, {kind}"]
        lines.append(
            f"| {kind} | {a.per_second:,.0f} | {a.quantile(0.99):.1f} ms | {b.per_second:,.0f} | "
            f"{a.per_second / b.per_second:.1f} | {half.quantile(0.99):.1f} ms |"
        )
    lines += [
        "",
        f"Requests with {CANDIDATES} candidates of {MILLION:,} items, and pi0's probabilities of "
        f"them: {sets.per_second:,.0f} per second, p99 {sets.quantile(0.99):.1f} ms; "
        f"{sets.per_second / loads['new'].per_second:.1f} times new contexts over 1,000 items.",
        "",
        f"A million rewards, in random order, in batches of 1,000: stored in "
        f"{rewards['stored']:.1f} s, joined with their decisions into Parquet in "
        f"{rewards['joined']:.1f} s.",
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
