"""A small deployed campaign, copied for each test; a service on it; a server on loopback."""

from __future__ import annotations

import json
import logging
import random
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.database.conftest import postgres
from tests.serving.asgi import Caller

from depsue import SyntheticSettings, Uniform, synthetic_world
from depsue.campaigns import Campaign, create, open_home
from depsue.data.writing import write_items, write_logs
from depsue.policies.tilted import Tilted
from depsue.rewards import fit_linear
from depsue.serving.access import Access
from depsue.serving.app import App
from depsue.serving.running import JsonLines
from depsue.serving.service import Service
from depsue.serving.settings import ServingSettings

__all__ = ["postgres"]

Serve = Callable[..., Service]


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1_750_000_000.0

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds


class Log(logging.Handler):
    """The log as an operator reads it: lines of JSON."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(JsonLines())
        self.written: list[str] = []
        self._more = threading.Condition()

    def emit(self, record: logging.LogRecord) -> None:
        """Take a line."""
        with self._more:
            self.written.append(self.format(record))
            self._more.notify_all()

    def wait_for(self, event: str) -> None:
        """Wait until an event is logged, in whatever thread."""
        with self._more:
            assert self._more.wait_for(lambda: event in self.events, timeout=60), self.text

    @property
    def text(self) -> str:
        """All of it."""
        return "\n".join(self.written)

    @property
    def lines(self) -> list[dict[str, Any]]:
        """What each line says."""
        return [json.loads(line) for line in self.written]

    @property
    def events(self) -> list[str]:
        """What happened, in order."""
        return [line["event"] for line in self.lines]


@contextmanager
def logged() -> Iterator[Log]:
    """What depsue logs within the block."""
    log, logger = Log(), logging.getLogger("depsue")
    level = logger.level
    logger.addHandler(log)
    logger.setLevel(logging.INFO)
    try:
        yield log
    finally:
        logger.removeHandler(log)
        logger.setLevel(level)


@pytest.fixture(scope="session")
def made_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the campaign `spring`: 15 known items and 5 new ones, round 1 deployed."""
    folder = tmp_path_factory.mktemp("team")
    world = synthetic_world(SyntheticSettings(users=100, supported=15, novel=5, d=4), seed=1)
    known = Uniform(~world.catalogue.novel)
    model = fit_linear(world.deploy(known, 4000, round=0))
    pi0 = Tilted(known, model, strength=1.0, cap=50.0, scale=0.05)  # answers any context
    write_items(world.catalogue, folder / "items.parquet")
    write_logs(world.deploy(pi0, 12_000, round=0), folder / "may.parquet")
    home = folder / "campaigns"
    with pytest.MonkeyPatch.context() as seeded:
        seeded.setattr("secrets.token_bytes", random.Random(1).randbytes)
        spring = create(
            "spring", folder / "may.parquet", folder / "items.parquet", pi0=pi0, by="ana", home=home
        )
    spring.train()
    assert spring.certify().state == "passed"
    spring.deploy()
    return home


@pytest.fixture
def home(made_home: Path, tmp_path: Path) -> Path:
    """The folder of campaigns, the test's own copy."""
    return Path(shutil.copytree(made_home, tmp_path / "campaigns"))


@pytest.fixture
def campaign(home: Path) -> Campaign:
    """The campaign, the test's own copy."""
    return Campaign(open_home(home), home, "spring", by="ana")


@pytest.fixture
def log() -> Iterator[Log]:
    """What this test makes depsue log."""
    with logged() as found:
        yield found


@pytest.fixture
def clock() -> Clock:
    """The time by which the services of this test go."""
    return Clock()


@pytest.fixture
def ticks() -> Clock:
    """The monotonic clock of the services of this test: permits go by it."""
    return Clock()


def seeded_chance(seed: int = 1) -> Callable[[], str]:
    """What requests without a key are drawn by, the same in every run of a test.

    Services of one store share it, or have other seeds: else their decisions have the same ids.
    """
    rng = random.Random(seed)
    return lambda: rng.randbytes(16).hex()


@pytest.fixture
def serve(campaign: Campaign, clock: Clock, ticks: Clock) -> Iterator[Serve]:
    """Starts services with settings by name; each is closed in the end.

    Their watcher rests: a test calls `service.turn()` where it wants one.
    """
    chance = seeded_chance()
    with ExitStack() as ending:

        def started(*, store: str | None = None, **settings: Any) -> Service:
            service = Service(
                campaign,
                ServingSettings(**settings),
                store=store,
                clock=clock,
                ticks=ticks,
                refresh=3600.0,
                chance=chance,
            )
            service.start()
            ending.callback(service.close)
            return service

        yield started


@pytest.fixture
def service(serve: Serve) -> Service:
    """A service that has started; rewards count for a minute."""
    return serve(wait=60.0)


@pytest.fixture
def call(service: Service, home: Path) -> Caller:
    """Calls that service over HTTP in this process; no token is asked for."""
    return Caller(App(service, Access(home, open_to_all=True)))


@contextmanager
def listening(app: Callable[..., Any]) -> Iterator[int]:
    """The port of a real server on loopback that answers with `app`, as `depsue serve` runs it."""
    import uvicorn

    from depsue.serving.running import Protocol, listen

    listener = listen("127.0.0.1", 0)
    config = uvicorn.Config(app, log_config=None, access_log=False, lifespan="on", http=Protocol)
    up = threading.Event()

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            up.set()

    server = Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        assert up.wait(60) and server.started
        yield int(listener.getsockname()[1])
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


@pytest.fixture
def port(campaign: Campaign, home: Path) -> Iterator[int]:
    """The port of a server of the campaign that asks for no token."""
    service = Service(campaign, ServingSettings(wait=60.0), chance=seeded_chance())
    with listening(App(service, Access(home, open_to_all=True))) as found:
        yield found
