"""A campaign whose pi0 and reward model are functions of the team's own, and logs in frames."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from typer.testing import CliRunner

from depsue import plan
from depsue.campaigns import CampaignSettings, create, load_export, open_home
from depsue.check import check_logs
from depsue.cli.main import app
from depsue.data.writing import write_items, write_logs
from depsue.errors import ConfigError, DepsueError, ModelMissing
from depsue.exploration.settings import ExploreSettings
from depsue.policies import load
from depsue.rewards import RewardSettings
from depsue.scores import imported, tables_in
from depsue.shop import Shop, ShopSettings

SHOP = ShopSettings(requests=80, users=30, items=30, new=4, arrivals=0, retrieved=10, d=3, rate=0.3)
FAST = ExploreSettings(deployments=2, rewards=RewardSettings(members=1, max_epochs=1))
MODULE = '''
"""A shop's own ranker, and a reward model of its own."""
import numpy as np
from depsue.rewards import OwnRewardModel
from depsue.scores import ExternalModel

USERS, TABLE = np.load("users.npy"), np.load("scores.npy")

def scores(contexts):
    users, table = USERS, TABLE
    return table[((contexts[:, None] - users[None]) ** 2).sum(axis=2).argmin(axis=1)]

def predicted(contexts):
    return 1 / (1 + np.exp(-scores(contexts)))

def fit(rows):
    return OwnRewardModel(ExternalModel("own_ranker:predicted", predicted), len(rows.catalogue))

NUMBER = 3
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Logs, items and a module of the shop's ranker, in the working folder."""
    shop = Shop(SHOP, seed=3)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "own_ranker", raising=False)
    write_logs(shop.deploy(shop.logging_policy, 6000, round=0), "logs.parquet")
    write_items(shop.catalogue, "items.parquet")
    (known,) = tables_in(shop.ranker)
    np.save("users.npy", known.contexts)
    np.save("scores.npy", SHOP.beta * known.scores)
    Path("own_ranker.py").write_text(MODULE)
    return tmp_path


def run(*words: str) -> str:
    result = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_a_ranker_of_ones_own_from_create_to_observe(folder: Path) -> None:
    run("campaign", "create", "shop", "logs.parquet", "items.parquet", "--pi0",
        "scores:own_ranker:scores", "--rounds", "2", "--by", "ana")  # fmt: skip
    model = ("--model", "own_ranker:scores", "--model", "own_ranker:predicted")
    run("campaign", "train", "shop", "--quiet", *model, "--reward-model", "own_ranker:fit")
    result = CliRunner().invoke(app, ["campaign", "certify", "shop", "--quiet", *model])
    assert result.exit_code in (0, 4), result.output
    assert "own_ranker:scores" in result.output  # the certificate says what it rests on
    run("campaign", "deploy", "shop", "--yes")
    assert "equal" in run("campaign", "verify", "shop", *model)
    saved = json.loads((folder / "campaigns/shop/pi0/manifest.json").read_text())
    assert "own_ranker:scores" in json.dumps(saved)
    # without the function nothing is guessed
    with pytest.raises(ModelMissing, match="--model"):
        run("campaign", "verify", "shop")


@pytest.mark.parametrize(
    ("place", "found"),
    [
        ("own_ranker", "own_ranker"),
        ("os.system('x'):y", "os.system"),
        ("own_ranker:missing", "AttributeError"),
        ("no_such_module:f", "ModuleNotFoundError"),
        ("own_ranker:NUMBER", "is a int"),
    ],
)
def test_a_place_that_is_no_function(folder: Path, place: str, found: str) -> None:
    with pytest.raises(ConfigError, match="model of yours") as problem:
        imported(place)
    assert found in str(problem.value)


def frames(table: pl.DataFrame) -> list[Any]:
    return [table, pd.DataFrame(table.to_dict(as_series=False)), table.to_arrow()]


def test_frames_everywhere(folder: Path) -> None:
    logs, items = pl.read_parquet("logs.parquet"), pl.read_parquet("items.parquet")
    pairs = zip(frames(logs), frames(items), strict=True)
    assert len({str(check_logs(rows, of_items).verdict) for rows, of_items in pairs}) == 1
    picks = {plan(rows, FAST, items=items, seed=1).pick for rows in frames(logs)[:2]}
    assert len(picks) == 1
    pi0 = Shop(SHOP, seed=3).logging_policy
    campaign = create("frames", frames(logs)[1], frames(items)[2], pi0=pi0,
                      settings=CampaignSettings(FAST), by="ana")  # fmt: skip
    again = create("frames", frames(logs)[1], items, pi0=pi0,
                   settings=CampaignSettings(FAST), by="ana")  # fmt: skip
    assert len(list((folder / "campaigns/frames/round-0").glob("logs-*.parquet"))) == 1
    campaign.train()
    assert again.round == 1 and len(campaign.logs(0)) == 6000
    campaign.certify()
    policy = campaign.policy(1, campaign.deploy().policy_hash)
    served = folder / "served.parquet"
    write_logs(Shop(SHOP, seed=3).deploy(policy, 6000, round=1), served)
    table = pl.read_parquet(served)
    assert campaign.preview_observation(table).rows == 6000
    assert campaign.observe(table).rows == 6000


@pytest.mark.parametrize("wrong", [3, None, "text", [1, 2], object(), b"x", {"a": 1}])
def test_what_is_no_frame_is_refused_with_a_cure(folder: Path, wrong: Any) -> None:
    items = pl.read_parquet("items.parquet")
    other: Any = 0 if wrong is None else wrong
    for call in (
        lambda: plan(wrong, FAST, items=items),
        lambda: plan("logs.parquet", FAST, items=wrong),
        lambda: check_logs(wrong, items),
        lambda: create("x", wrong, items, pi0="logged", by="ana"),
        lambda: create("x", "logs.parquet", wrong, pi0="logged", by="ana"),
        lambda: plan("logs.parquet", FAST, items=items, mapping=other),
        lambda: plan("logs.parquet", FAST, items=items, logging_policy=other),
        lambda: plan("logs.parquet", FAST, items=items, fit=other),
        lambda: create("x", "logs.parquet", items, pi0=other, by="ana"),
        lambda: create("x", "logs.parquet", items, pi0="logged", by="ana", settings=other),
        lambda: create("x", "logs.parquet", items, pi0="logged", by="ana", novel=other),
        lambda: open_home(wrong),
        lambda: load(wrong),
        lambda: load_export(wrong),
    ):
        with pytest.raises(DepsueError) as problem:  # never a raw exception
            call()
        assert problem.value.cure or problem.value.found
