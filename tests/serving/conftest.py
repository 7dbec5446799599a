"""A small deployed campaign, copied for each test; a service on it; a server on loopback."""

from __future__ import annotations

import io
import json
import logging
import shutil
import threading
import time
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


class Log:
    """The log as an operator reads it: lines of JSON."""

    def __init__(self) -> None:
        self.stream = io.StringIO()

    @property
    def text(self) -> str:
        """All of it."""
        return self.stream.getvalue()

    @property
    def lines(self) -> list[dict[str, Any]]:
        """What each line says."""
        return [json.loads(line) for line in self.text.splitlines()]

    @property
    def events(self) -> list[str]:
        """What happened, in order."""
        return [line["event"] for line in self.lines]


@contextmanager
def logged() -> Iterator[Log]:
    """What depsue logs within the block."""
    log, logger = Log(), logging.getLogger("depsue")
    handler, level = logging.StreamHandler(log.stream), logger.level
    handler.setFormatter(JsonLines())
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield log
    finally:
        logger.removeHandler(handler)
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
def serve(campaign: Campaign) -> Iterator[Serve]:
    """Starts services with settings by name; each is stopped in the end."""
    with ExitStack() as ending:

        def started(*, store: str | None = None, **settings: Any) -> Service:
            service = Service(campaign, ServingSettings(**settings), store=store)
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
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        while not server.started and thread.is_alive():
            time.sleep(0.01)
        assert server.started
        yield int(listener.getsockname()[1])
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


@pytest.fixture
def port(campaign: Campaign, home: Path) -> Iterator[int]:
    """The port of a server of the campaign that asks for no token."""
    service = Service(campaign, ServingSettings(wait=60.0))
    with listening(App(service, Access(home, open_to_all=True))) as found:
        yield found
