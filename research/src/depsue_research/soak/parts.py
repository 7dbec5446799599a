"""A soak in parts: each part is a campaign of its own, some kills, and books that are closed.

Finished parts are lines of a file, so that the same command goes on where it was interrupted. The
folder of a part whose books do not close stays, with its books, its store and the services' logs.
"""

from __future__ import annotations

import random
import shutil
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec
import sqlalchemy as sa

from depsue import SyntheticSettings, Uniform, synthetic_world
from depsue.campaigns import Campaign, create, open_home
from depsue.data.writing import write_items, write_logs
from depsue.policies.tilted import Tilted
from depsue.progress import Watch, silent
from depsue.rewards import fit_linear
from depsue.serving.served import load_served
from depsue_research.soak.actors import SoakClient, Surroundings
from depsue_research.soak.book import (
    Books,
    Fault,
    Health,
    Intervened,
    NotAnswered,
    RewardSent,
    now,
)
from depsue_research.soak.closing import NOTICE, Break, Closing, Kept
from depsue_research.soak.proxy import CutProxy
from depsue_research.soak.servers import PostgresServer, ServiceProcess, SoakError, forked
from depsue_research.soak.stage import LOOK, Admin, SoakStage

NAME = "spring"
HOLDOUT = 0.1
GROWTH = 16 << 20
"""Bytes that a service may hold more, later."""
MEMORY = "most memory in MB"
AGAIN = 400
"""Keys that each client repeats when everything is up again."""
StoreKind = Literal["sqlite", "postgresql"]


@dataclass(frozen=True)
class PartSettings:
    """One part of a soak.

    Args:
        store: what decisions are stored in.
        kills: of services and of PostgreSQL together.
        seed: of everything that is drawn.
        clients: how many.
        life: seconds between two faults, on average.
        pause: seconds between two turns of a client, on average.
        wait: seconds in which rewards count.
    """

    store: StoreKind
    kills: int
    seed: int
    clients: int = 4
    life: float = 0.7
    pause: float = 0.01
    wait: float = 2.0


@dataclass(frozen=True)
class PartResult:
    """What came of a part.

    Args:
        settings: of the part.
        counts: by what was counted.
        breaks: rules that did not hold.
    """

    settings: PartSettings
    counts: dict[str, int]
    breaks: tuple[Break, ...]


def make_campaign(folder: Path, seed: int) -> Path:
    """A small campaign with its first round deployed; the home that it is in.

    Args:
        folder: a new one.
        seed: of its world.
    """
    folder.mkdir(parents=True)
    world = synthetic_world(SyntheticSettings(users=100, supported=15, novel=5, d=4), seed=seed)
    known = Uniform(~world.catalogue.novel)
    model = fit_linear(world.deploy(known, 4000, round=0))
    pi0 = Tilted(known, model, strength=1.0, cap=50.0, scale=0.05)  # answers any context
    write_items(world.catalogue, folder / "items.parquet")
    write_logs(world.deploy(pi0, 12_000, round=0), folder / "logs.parquet")
    home = folder / "campaigns"
    logs, items = folder / "logs.parquet", folder / "items.parquet"
    campaign = create(NAME, logs, items, pi0=pi0, by="soak", home=home)
    campaign.train()
    certificate = campaign.certify()
    if certificate.state != "passed":
        raise SoakError(
            "the campaign of a soak must be certified",
            found=f"{certificate.state} with seed {seed}",
            cure="another seed",
        )
    campaign.deploy()
    return home


def run_part(
    settings: PartSettings,
    home: Path,
    folder: Path,
    *,
    postgres: PostgresServer | None = None,
    watch: Watch = silent,
) -> PartResult:
    """Start services, let clients ask and things break, and close the books.

    Args:
        settings: of the part.
        home: a home of campaigns with `NAME` in it, deployed; it is copied.
        folder: for copies, books and logs; a new one.
        postgres: the server; needed where the store is PostgreSQL.
        watch: is told of the progress.
    """
    began, rng = now(), random.Random(f"stage {settings.seed}")
    folder.mkdir(parents=True)
    combine = rng.choice(("first", "largest", "sum"))
    with ExitStack() as ending:
        direct: str | None = None
        proxies: list[CutProxy] = []
        if settings.store == "postgresql":
            assert postgres is not None
            direct = postgres.new_database()
            proxies = [CutProxy(postgres.port) for _ in range(2)]
        services, homes = [], [Path(shutil.copytree(home, folder / "home-0"))]
        if proxies and rng.random() < 0.5:  # else both services share one folder
            homes.append(Path(shutil.copytree(home, folder / "home-1")))
        for number in range(max(len(proxies), 1)):
            own = homes[number % len(homes)]
            arguments = [NAME, "--home", str(own), "--no-auth", "--wait", f"{settings.wait:g}"]
            arguments += ["--combine", combine, "--holdout", str(HOLDOUT), "--delta", "0.000001"]
            if direct is not None and postgres is not None:
                port = proxies[number].port
                arguments += ["--store", direct.replace(f":{postgres.port}/", f":{port}/")]
            services.append(ServiceProcess(arguments, folder / f"service-{number}.log"))
        for proxy in proxies:
            ending.callback(proxy.close)
        for service in services:
            ending.callback(service.kill)
        stage = SoakStage(services, postgres, proxies, folder, rng, settings.life)
        stage.start_all()
        campaign = Campaign(open_home(folder / "home-0"), folder / "home-0", NAME, by="soak")
        served = load_served(campaign)
        around = Surroundings(
            ports=tuple(service.port for service in services),
            columns=tuple(served.reader.example),
            items=tuple(served.ids),
            new=frozenset(served.new_ids),
            wait=settings.wait,
            events=combine != "first",
        )
        clients = [
            SoakClient(number, around, folder, settings.seed, settings.pause)
            for number in range(settings.clients)
        ]
        admin = Admin(stage, folder, settings.seed, gap=1.5)
        _play(stage, clients, admin, settings, watch)
        stage.end_all()
        ended = now()
        actors = [stage.book, admin.book, *(client.book for client in clients)]
        for book in actors:
            book.close()
        books = Books(actors, len(services))
        time.sleep(max(0.0, ended + settings.wait + 0.1 - now()))  # the last decisions close
        decisions, rewards = _stored(direct or str(folder / "home-0" / NAME / "decisions.db"))
        for name, rows in (("decisions", decisions), ("rewards", rewards)):
            lines = b"".join(msgspec.json.encode(row) + b"\n" for row in rows)
            (folder / f"stored-{name}.jsonl").write_bytes(lines)
        kept = Kept(
            decisions,
            rewards,
            _exported(folder, direct),
            served,
            HOLDOUT,
            settings.wait,
            combine,
        )
    closing = Closing(books, kept)
    breaks = closing.breaks()
    counts = _counts(closing, stage, proxies) | {"seconds": round(now() - began)}
    return PartResult(settings, counts, tuple(breaks))


def watch_memory(
    decisions: int, seed: int, home: Path, folder: Path, *, watch: Watch = silent
) -> PartResult:
    """Send decisions to one service on SQLite that nobody kills; its memory must not grow.

    Caches fill in the first half. In the second half the mean of the last quarter may exceed that
    of the third by `GROWTH`.

    Args:
        decisions: how many, in batches of 1,000.
        seed: of the contexts.
        home: a home of campaigns with `NAME` in it, deployed; it is copied.
        folder: for the copy and the log; a new one.
        watch: is told of the progress.
    """
    began, rng = now(), random.Random(f"memory {seed}")
    folder.mkdir(parents=True)
    own = Path(shutil.copytree(home, folder / "home-0"))
    arguments = [NAME, "--home", str(own), "--no-auth", "--wait", "2", "--rate", "1000000"]
    service = ServiceProcess(arguments, folder / "service-0.log")
    held: list[int] = []
    try:
        service.start()
        service.wait()
        _, example = service.ask("GET", "/v1/context")
        for sent in range(0, decisions, 1000):
            watch("memory", sent, decisions, f"{service.memory >> 20} MB")
            body = [
                {
                    # users who come back
                    "context": {name: rng.randrange(6) / 3 - 1 for name in example["context"]},
                    "key": f"{sent + k}",
                }
                for k in range(1000)
            ]
            status, values = service.ask("POST", "/v1/decide/batch", {"decisions": body}, 60.0)
            if status != 200:
                raise SoakError("a batch must be decided", found=f"{status} {str(values)[:300]}")
            rewards = [
                {"decision": reply["decision"], "reward": 0.5}
                for reply in values["decisions"][:300]
            ]
            service.ask("POST", "/v1/reward/batch", {"rewards": rewards}, 60.0)
            held.append(service.memory)
        watch("memory", decisions, decisions, f"{service.memory >> 20} MB")
    finally:
        service.kill()
    quarter = max(1, len(held) // 4)
    third, last = (
        sum(part) // quarter for part in (held[-2 * quarter : -quarter], held[-quarter:])
    )
    breaks: tuple[Break, ...] = ()
    if last - third > GROWTH:
        words = f"{third >> 20} MB in the third quarter, {last >> 20} MB in the last"
        breaks = (Break("the memory of a service does not grow", 1, (words,)),)
    counts = {
        "acknowledged decisions": len(held) * 1000,
        MEMORY: max(held) >> 20,
        "seconds": round(now() - began),
    }
    return PartResult(PartSettings("sqlite", 0, seed), counts, breaks)


def _play(
    stage: SoakStage,
    clients: list[SoakClient],
    admin: Admin,
    settings: PartSettings,
    watch: Watch,
) -> None:
    """Scenes, until enough was killed; then all is up, and clients repeat what they asked."""
    ending = threading.Event()
    looking = threading.Thread(target=_look, args=(stage, ending), daemon=True)
    for thread in (*clients, admin, looking):
        thread.start()
    task = f"{settings.store}, seed {settings.seed}"
    while (kills := stage.kills + stage.postgres_kills) < settings.kills:
        asked = sum(len(client.book.entries) for client in clients)
        watch(task, kills, settings.kills, f"{asked:,} entries")
        stage.play()
    stage.settle()
    admin.end()
    admin.join()
    for client in clients:
        client.end()
    for client in clients:
        client.join()
        if client.problem is not None:
            raise client.problem
    for client in clients:
        client.ask_all_again(AGAIN)
        client.close()
    time.sleep(NOTICE)  # a last look counts only after that
    stage.settle()
    ending.set()
    looking.join()
    watch(task, settings.kills, settings.kills, "the books are closed")


def _look(stage: SoakStage, ending: threading.Event) -> None:
    while not ending.wait(LOOK):
        for number in range(len(stage.services)):
            stage.look(number)


def _stored(address: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """(decisions, rewards), read from the database itself."""
    url = sa.make_url(address if "://" in address else f"sqlite:///{address}")
    if url.drivername == "postgresql":
        url = url.set(drivername="postgresql+psycopg")
    engine = sa.create_engine(url)
    try:
        with engine.connect() as connection:
            decisions, rewards = (
                [dict(row) for row in connection.execute(sa.text(query)).mappings()]
                for query in (
                    "SELECT * FROM serving_decisions ORDER BY seq",
                    "SELECT * FROM serving_rewards",
                )
            )
            return decisions, rewards
    finally:
        engine.dispose()


def _exported(folder: Path, store: str | None) -> list[dict[str, Any]]:
    """What `depsue campaign served` writes."""
    import polars as pl

    out, log = folder / "served.parquet", folder / "served.log"
    arguments = ["campaign", "served", NAME, "--home", str(folder / "home-0"), "--out", str(out)]
    process = forked([*arguments, *(["--store", store] if store is not None else [])], log)
    process.join()
    if process.exitcode != 0:
        raise SoakError(
            "what was served must be exported",
            found=log.read_text()[-500:],
            cure=f"look into {folder}",
        )
    return pl.read_parquet(out).to_dicts()


def _counts(closing: Closing, stage: SoakStage, proxies: list[CutProxy]) -> dict[str, int]:
    books = closing.books
    faults = [fault.kind for fault in books.of(Fault)]
    refused = [refused.status for refused in books.of(NotAnswered)]
    interventions = [each.kind for each in books.of(Intervened) if each.acknowledged]
    deciders = [answer.decided_by for answer in closing.first.values()]
    answered = {answer.request for answer in closing.answers}
    return {
        "kills of a service": stage.kills,
        "kills of PostgreSQL": stage.postgres_kills,
        "cut commits": sum(proxy.cuts for proxy in proxies),
        "silences": faults.count("silent"),
        "frozen services": faults.count("frozen"),
        "full disks": faults.count("no room"),
        "stops": interventions.count("stop"),
        "resumptions": interventions.count("resume"),
        "requests": len(closing.asks),
        "keys": sum(ask.keyed for ask in closing.asks.values()),
        "acknowledged decisions": len(closing.first),
        "by the policy": deciders.count("policy"),
        "repeats answered": len(closing.answers) - len(answered),
        "answers in an outage": sum(map(closing.in_outage, closing.answers)),
        "stored decisions": len(closing.rows),
        "twins": len(closing.twins),
        "lost": len(closing.first.keys() - closing.rows.keys()),
        "rewards acknowledged": sum(reward.acknowledged for reward in books.of(RewardSent)),
        "exported rows": len(closing.kept.exported),
        "answers 503": refused.count(503),
        "requests without an answer": refused.count(0),
        MEMORY: max((h.memory for h in books.of(Health)), default=0) >> 20,
    }
