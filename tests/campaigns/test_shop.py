"""Campaigns on the simulated shop, from plan to the last round, in each way pi0 may be known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from depsue import plan
from depsue.campaigns import CampaignSettings, create, plan_next_round, recompute, story_of
from depsue.check import check_logs, guess_mapping
from depsue.data.reading import open_source
from depsue.data.writing import write_items, write_logs
from depsue.errors import ConfigError
from depsue.exploration.settings import ExploreSettings
from depsue.policies import BasePolicy
from depsue.rewards import RewardSettings
from depsue.shop import KNOWN, Known, Shop, ShopSettings

SHOP = ShopSettings(
    requests=120, users=40, items=40, new=6, arrivals=1, retrieved=12, d=3, rate=0.3
)
EXPLORE = ExploreSettings(
    objective="most novelty", deployments=3, rewards=RewardSettings(members=1, max_epochs=2)
)
ROWS = 8000


@pytest.mark.parametrize("known", KNOWN)
def test_three_rounds_from_files(known: Known, tmp_path: Path) -> None:
    shop = Shop(SHOP, known=known, seed=5)
    pi0 = shop.logging_policy
    assert isinstance(pi0, BasePolicy)
    logs, items = tmp_path / "0.parquet", tmp_path / "items.parquet"
    rows = shop.deploy(pi0, ROWS, round=0)
    write_logs(rows, logs)
    write_items(shop.catalogue, items)
    report = check_logs(open_source(logs), items)
    assert report.usable, report
    expected = plan(rows, EXPLORE, logging_policy=pi0, seed=1)
    assert expected.pick.novelty > 0.04
    home = tmp_path / "campaigns"
    named = pi0 if known == "called" else known
    campaign = create(
        "shop", logs, items, pi0=named, settings=CampaignSettings(EXPLORE), by="ana", home=home
    )
    shown = []
    for k in (1, 2, 3):
        campaign.train()
        campaign.certify()
        deployed = campaign.deploy()
        policy = campaign.policy(k, deployed.policy_hash)
        # what is deployed keeps the floor, by the truth, and shows new items
        assert shop.value(policy, round=k) > 0.95 * shop.value(pi0, round=k)
        shown.append(shop.novelty(policy, round=k))
        served = tmp_path / f"{k}.parquet"
        write_logs(shop.deploy(policy, ROWS, round=k), served)
        campaign.observe(served)
    assert min(shown) > 0.04
    assert max(shown) > 0.06
    assert story_of(campaign).over


def test_items_may_arrive_and_go_where_pi0_is_known_by_its_choice(tmp_path: Path) -> None:
    shop = Shop(SHOP, known="chosen", seed=5)
    write_logs(shop.deploy(shop.logging_policy, 4000, round=0), tmp_path / "0.parquet")
    write_items(shop.catalogue, tmp_path / "items.parquet")
    explore = replace(EXPLORE, deployments=2)
    campaign = create("shop", tmp_path / "0.parquet", tmp_path / "items.parquet", pi0="chosen",
                      settings=CampaignSettings(explore), by="ana", home=tmp_path)  # fmt: skip
    # a plan of the same rows is the campaign's own, whether or not it is told how pi0 is known
    rows, registration = campaign.logs(0), campaign.ledger.registration("shop", 0)
    planned = plan(rows, explore, registration=registration, campaign="shop")
    assert planned.frontier == plan_next_round(campaign, explore).frontier
    campaign.train()
    campaign.certify()
    policy = campaign.policy(1, campaign.deploy().policy_hash)
    write_logs(shop.deploy(policy, 4000, round=1), tmp_path / "1.parquet")
    items = pl.read_parquet(tmp_path / "items.parquet")
    gone = pl.Series([k == 0 for k in range(len(items))] + [False])
    late = items.tail(1).with_columns(pl.lit("late").alias("id"))
    pl.concat([items, late]).with_columns(gone.alias("withdrawn")).write_parquet(
        tmp_path / "later.parquet"
    )
    campaign.observe(tmp_path / "1.parquet", items=tmp_path / "later.parquet")
    campaign.train()
    campaign.certify()
    assert campaign.policy(2, campaign.deploy().policy_hash).n_actions == len(items) + 1
    assert recompute(campaign, 2, 1).equal


def test_all_rows_of_units_are_refused_before_anything_is_declared(tmp_path: Path) -> None:
    logs = Shop(SHOP, known="chosen", seed=5)
    rows = pl.DataFrame({"user": [k % 50 for k in range(400)]})
    write_logs(logs.deploy(logs.logging_policy, 400, round=0), tmp_path / "0.parquet")
    rows = pl.concat([pl.read_parquet(tmp_path / "0.parquet"), rows], how="horizontal")
    rows.write_parquet(tmp_path / "0.parquet")
    write_items(logs.catalogue, tmp_path / "items.parquet")
    mapping = replace(guess_mapping(open_source(tmp_path / "0.parquet"))[0], unit="user")
    settings = CampaignSettings(replace(EXPLORE, units="all rows"))
    with pytest.raises(ConfigError, match="--units first-row"):
        create("shop", tmp_path / "0.parquet", tmp_path / "items.parquet", pi0="chosen",
               mapping=mapping, settings=settings, by="ana", home=tmp_path / "c")  # fmt: skip
    with pytest.raises(ConfigError, match="--units first-row"):
        plan(pl.read_parquet(tmp_path / "0.parquet"), settings.explore, mapping=mapping,
             items=tmp_path / "items.parquet")  # fmt: skip
