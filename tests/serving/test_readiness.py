"""Whether decisions can be made; contexts outside pi0's table are decided, and set apart."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.serving.asgi import Caller
from tests.serving.conftest import Clock, Log, seeded_chance
from tests.serving.test_deciding import own_pi0

from depsue import SyntheticSettings, World, synthetic_world
from depsue.campaigns import Campaign, create, open_home
from depsue.data.writing import write_items, write_logs
from depsue.policies import BasePolicy, ExternalModel, Mixture, OwnPolicy, Uniform
from depsue.scores import ScoreTable
from depsue.serving.access import Access
from depsue.serving.app import App
from depsue.serving.exporting import export_served
from depsue.serving.served import OUTSIDE, load_served
from depsue.serving.service import Service
from depsue.serving.settings import ServingSettings


@dataclass(frozen=True)
class Shop:
    """A team's files, and the probabilities of its own policy."""

    world: World
    folder: Path
    shares: np.ndarray[Any, Any]

    def begun(self, pi0: BasePolicy) -> Path:
        """The home of a campaign whose first round pi0 serves."""
        home = self.folder / "campaigns"
        create(
            "spring",
            self.folder / "may.parquet",
            self.folder / "items.parquet",
            pi0=pi0,
            by="ana",
            home=home,
        ).rollback()
        return home

    def contexts(self, rows: int, *, moved: float = 0.0) -> list[dict[str, float]]:
        """Contexts of the table, or beside them."""
        return [
            {f"x{j}": float(x) + moved for j, x in enumerate(row)}
            for row in self.world.contexts[:rows]
        ]


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    world = synthetic_world(SyntheticSettings(users=20, supported=4, novel=2, d=2), seed=1)
    shares = np.zeros((20, 6))
    shares[:, ~world.catalogue.novel] = np.random.default_rng(0).dirichlet(np.ones(4), 20) / 2
    shares[:, ~world.catalogue.novel] += 0.125
    pi0 = OwnPolicy(ScoreTable(world.contexts, shares), 6)
    write_items(world.catalogue, tmp_path / "items.parquet")
    write_logs(world.deploy(pi0, 2000, round=0), tmp_path / "may.parquet")
    return Shop(world, tmp_path, shares)


def opened(home: Path) -> Campaign:
    return Campaign(open_home(home), home, "spring", by="ana")


@contextmanager
def serving(home: Path, clock: Clock, **settings: Any) -> Iterator[tuple[Service, Caller]]:
    declared = ServingSettings(**{"wait": 60.0} | settings)
    service = Service(opened(home), declared, clock=clock, refresh=3600.0, chance=seeded_chance())
    service.start()
    try:
        yield service, Caller(App(service, Access(home, open_to_all=True)))
    finally:
        service.close()


def test_a_model_that_is_not_at_hand_is_not_ready_and_says_why(
    shop: Shop, clock: Clock, log: Log
) -> None:
    table = ScoreTable(shop.world.contexts, shop.shares)
    home = shop.begun(OwnPolicy(ExternalModel("ranker-7", table), 6))
    with serving(home, clock) as (_, call):
        reply = call.get("/readyz")
        assert reply.status == 503 and not reply.json["ready"]
        assert "'ranker-7' is not at hand" in reply.json["why"]
        decision = call.post("/v1/decide", {"context": shop.contexts(1)[0]})
        assert decision.status == 422 and "needs the model" in decision.json["error"]
    assert "not ready" in log.events


def test_a_context_outside_the_table_is_decided_by_the_average_and_left_out(
    shop: Shop, clock: Clock
) -> None:
    home = shop.begun(OwnPolicy(ScoreTable(shop.world.contexts, shop.shares), 6))
    with serving(home, clock) as (service, call):
        assert call.get("/readyz").status == 200
        asked = [*shop.contexts(20), *shop.contexts(10, moved=0.5)]
        reply = call.post("/v1/decide/batch", {"decisions": [{"context": x} for x in asked]})
        assert reply.status == 200
        known, outside = reply.json["decisions"][:20], reply.json["decisions"][20:]
        assert {each["decided_by"] for each in known} == {"policy"}
        assert {each["decided_by"] for each in outside} == {"pi0"}
        places = [service.served.places[each["action"]] for each in outside]
        average = shop.shares.mean(axis=0)
        np.testing.assert_allclose([each["propensity"] for each in outside], average[places])
        rows, _ = service.reader.read(columns=["why"])
        assert [row.why for row in rows] == [""] * 20 + [OUTSIDE] * 10
        clock.advance(61.0)
    written = export_served(opened(home), None)
    assert (written.rows, written.restricted, written.fallback) == (20, 10, 0)
    assert "with a context that pi0 does not know" in str(written)


def test_a_teams_own_pi0_is_asked_outside_the_table(shop: Shop, clock: Clock) -> None:
    home = shop.begun(OwnPolicy(ScoreTable(shop.world.contexts, shop.shares), 6))
    with own_pi0() as (url, server), serving(home, clock, pi0_url=url) as (service, call):
        server.item = service.served.ids[2]  # type: ignore[attr-defined]
        contexts = [*shop.contexts(5), *[{"x0": 70.0, "x1": 0.5}] * 5]
        asked = {"decisions": [{"context": each} for each in contexts]}
        decisions = call.post("/v1/decide/batch", asked).json["decisions"]
        assert {each["decided_by"] for each in decisions[:5]} == {"policy"}
        assert 0.7 not in {each["propensity"] for each in decisions[:5]}
        answered = {(each["action"], each["propensity"]) for each in decisions[5:]}
        assert answered == {(service.served.ids[2], 0.7)}
        rows, _ = service.reader.read(columns=["why", "decided_by"])
        assert {(row.why, row.decided_by) for row in rows[5:]} == {(OUTSIDE, "pi0")}


def test_a_certified_policy_does_not_decide_outside_the_table(shop: Shop) -> None:
    pi0 = OwnPolicy(ScoreTable(shop.world.contexts, shop.shares), 6)
    served = load_served(opened(shop.begun(pi0)))
    bold = Mixture([pi0, Uniform(shop.world.catalogue.novel)], [0.5, 0.5])
    served = replace(served, policy=bold, what="certified")
    inside, beside = shop.world.contexts[:2], shop.world.contexts[:2] + 0.5
    contexts = np.concatenate([inside, beside]).astype(np.float32)
    assert served.outside(contexts).tolist() == [False, False, True, True]
    own, base = served.distributions(contexts)
    assert own[:2, shop.world.catalogue.novel].sum() == pytest.approx(1.0)
    np.testing.assert_array_equal(own[2:], base[2:])
    np.testing.assert_allclose(base[3], shop.shares.mean(axis=0))
