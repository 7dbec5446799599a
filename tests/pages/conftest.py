"""A folder of small campaigns, a service on one of them, and browsers."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.pages.browser import Browser

from depsue import RewardSettings, SyntheticSettings, Uniform, synthetic_world
from depsue.campaigns import Campaign, CampaignSettings, create, open_home
from depsue.data.writing import write_items, write_logs
from depsue.exploration.settings import ExploreSettings
from depsue.pages.dashboard import Dashboard
from depsue.policies.tilted import Tilted
from depsue.promises import Floor, Promise
from depsue.rewards import fit_linear
from depsue.serving.access import Access
from depsue.serving.app import App
from depsue.serving.messages import Decide, RewardReport
from depsue.serving.service import Service
from depsue.serving.settings import ServingSettings

HOSTILE = "<script>alert('ana & co')</script>"


def explore(**more: Any) -> CampaignSettings:
    """Settings of a campaign that learns fast."""
    fast = RewardSettings(members=1, max_epochs=3)
    settings: dict[str, Any] = {"objective": "most novelty", "deployments": 2, "rewards": fast}
    settings |= more
    return CampaignSettings(ExploreSettings(**settings))


@pytest.fixture(scope="session")
def made_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`spring`, with round 1 deployed; `summer`, in round 2; `winter`, whose test failed."""
    folder = tmp_path_factory.mktemp("team")
    home, items = folder / "campaigns", folder / "items.parquet"
    world = synthetic_world(SyntheticSettings(users=80, supported=12, novel=4, d=3), seed=1)
    known = Uniform(~world.catalogue.novel)
    model = fit_linear(world.deploy(known, 4000, round=0))
    pi0 = Tilted(known, model, strength=1.0, cap=50.0, scale=0.05)  # answers any context
    write_items(world.catalogue, items)

    def begun(name: str, rows: int, settings: CampaignSettings) -> Campaign:
        logs = folder / f"{name}-0.parquet"
        drawn = world.deploy(pi0, rows, round=rows)  # of another stream for each number of rows
        write_logs(replace(drawn, round=np.zeros(rows, dtype=np.int16)), logs)
        made = create(name, logs, items, pi0=pi0, settings=settings, by=HOSTILE, home=home)
        made.train()
        made.certify()
        return made

    begun("winter", 2000, explore(promises=(Promise(Floor(None, 0.9)),)))
    begun("spring", 8000, explore()).deploy()
    summer = begun("summer", 8001, explore())
    policy = summer.policy(1, summer.deploy().policy_hash)
    write_logs(world.deploy(policy, 8000, round=1), folder / "summer-1.parquet")
    summer.observe(folder / "summer-1.parquet")
    return home


@pytest.fixture
def home(made_home: Path, tmp_path: Path) -> Path:
    """The folder of campaigns, the test's own copy."""
    return Path(shutil.copytree(made_home, tmp_path / "campaigns"))


@pytest.fixture
def service(home: Path) -> Iterator[Service]:
    """A service of `spring` that decides; its monitor looks when a test says so."""
    campaign = Campaign(open_home(home), home, "spring", by="ana")
    made = Service(
        campaign, ServingSettings(wait=60.0, holdout=0.2), ticks=lambda: 0.0, refresh=3600.0
    )
    made.start()
    yield made
    made.close()


@pytest.fixture
def pages(service: Service, home: Path) -> Dashboard:
    """The pages; no token is asked for."""
    return Dashboard(service, Access(home, open_to_all=True))


@pytest.fixture
def app(service: Service, home: Path, pages: Dashboard) -> App:
    """The application; no token is asked for."""
    return App(service, Access(home, open_to_all=True), pages=pages)


@pytest.fixture
def visit(app: App) -> Browser:
    """A browser that needs no token."""
    return Browser(app)


@pytest.fixture
def access(home: Path) -> Access:
    """Whose tokens count where one is asked for."""
    return Access(home)


@pytest.fixture
def guarded(service: Service, access: Access) -> tuple[App, str]:
    """The application that asks for tokens, and an admin's."""
    token = access.add("admin", "ana")
    return App(service, access, pages=Dashboard(service, access)), token


def decided(service: Service, count: int, reward: float = 1.0) -> None:
    """Decisions with rewards, which the monitor has seen."""
    service.look()
    context = service.served.reader.example

    async def ask() -> None:
        made = await service.worker.decide([Decide(context) for _ in range(count)])
        given = [RewardReport(one.decision, reward) for one in made]
        await service.worker.reward(service.rewards(given))

    asyncio.run(ask())
    service.look(time.time() + 61)
