"""A folder of small campaigns, a service on one of them, and browsers."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.pages.browser import Browser
from tests.serving.conftest import Clock, seeded_chance

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
    """`spring`, with round 1 deployed; `summer`, in round 2; `winter`, whose test failed; `easter`,
    which has just begun."""
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
        with pytest.MonkeyPatch.context() as seeded:
            seeded.setattr("secrets.token_bytes", random.Random(name).randbytes)
            return create(name, logs, items, pi0=pi0, settings=settings, by=HOSTILE, home=home)

    def tested(name: str, rows: int, settings: CampaignSettings) -> Campaign:
        made = begun(name, rows, settings)
        made.train()
        made.certify()
        return made

    begun("easter", 4000, explore())
    tested("winter", 2000, explore(promises=(Promise(Floor(None, 0.9)),)))
    tested("spring", 8000, explore()).deploy()
    summer = tested("summer", 8001, explore())
    policy = summer.policy(1, summer.deploy().policy_hash)
    write_logs(world.deploy(policy, 8000, round=1), folder / "summer-1.parquet")
    summer.observe(folder / "summer-1.parquet")
    return home


@pytest.fixture
def home(made_home: Path, tmp_path: Path) -> Path:
    """The folder of campaigns, the test's own copy."""
    return Path(shutil.copytree(made_home, tmp_path / "campaigns"))


@pytest.fixture
def clock() -> Clock:
    """The time by which the service goes."""
    return Clock()


@pytest.fixture
def ticks() -> Clock:
    """The monotonic clock of the service: its permit goes by it."""
    return Clock()


@pytest.fixture
def service(home: Path, clock: Clock, ticks: Clock) -> Iterator[Service]:
    """A service of `spring` that decides; its watcher turns when a test says so."""
    made = served(home, "spring", clock, ticks)
    made.start()
    yield made
    made.close()


def served(home: Path, name: str, clock: Clock, ticks: Clock, *, holdout: float = 0.2) -> Service:
    """A service that has not started; rewards count for a minute."""
    campaign = Campaign(open_home(home), home, name, by="ana")
    settings = ServingSettings(wait=60.0, holdout=holdout)
    return Service(
        campaign, settings, clock=clock, ticks=ticks, refresh=3600.0, chance=seeded_chance()
    )


@pytest.fixture
def traffic(service: Service, clock: Clock) -> Traffic:
    """Users of the service."""
    return Traffic(service, clock)


class Traffic:
    """Users whose contexts are those of the first logs; rewards are 0 or 1.

    Args:
        service: that they use.
        clock: of the service.
    """

    def __init__(self, service: Service, clock: Clock) -> None:
        self.service, self.clock = service, clock
        self._rng = np.random.default_rng(7)
        logs = service.campaign.logs(0)
        self.base = logs.mean_reward()
        """What pi0 earned before."""
        names = service.served.mapping.numeric
        self._contexts = [
            dict(zip(names, row.tolist(), strict=True)) for row in logs.contexts[logs.context]
        ]

    def come(self, count: int, *, policy: float = 1.3, pi0: float = 1.0) -> dict[str, float]:
        """Decisions, their rewards, and a turn of the watcher once they have closed.

        Returns the reward of each decision by its id.

        Args:
            count: of decisions.
            policy, pi0: how often a decision of either is rewarded, in parts of pi0's own mean.
        """
        rates = {"policy": policy * self.base, "holdout": pi0 * self.base, "pi0": pi0 * self.base}
        earned = dict[str, float]()

        async def ask() -> None:
            who = self._rng.integers(len(self._contexts), size=count)
            made = await self.service.worker.decide([Decide(self._contexts[k]) for k in who])
            chance = self._rng.random(count)
            for decision, u in zip(made, chance, strict=True):
                earned[decision.decision] = float(u < rates[decision.decided_by])
            reports = [RewardReport(id, reward) for id, reward in earned.items()]
            await self.service.worker.reward(self.service.rewards(reports))

        with ThreadPoolExecutor(1) as thread:  # a browser has a loop in this one
            thread.submit(asyncio.run, ask()).result()
        self.clock.advance(61)
        self.service.turn()
        return earned


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


def decided(service: Service, clock: Clock, count: int, reward: float = 1.0) -> None:
    """Decisions with rewards, which have closed and were counted."""
    context = service.served.reader.example

    async def ask() -> None:
        made = await service.worker.decide([Decide(context) for _ in range(count)])
        given = [RewardReport(one.decision, reward) for one in made]
        await service.worker.reward(service.rewards(given))

    asyncio.run(ask())
    clock.advance(61)
    service.turn()
