"""Items that arrive: described by text and lists, with values that nobody had before."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from depsue.campaigns import CampaignSettings, create
from depsue.campaigns.files import CampaignFiles
from depsue.campaigns.observing import changed_items
from depsue.data import Candidates
from depsue.data.catalogue import Catalogue
from depsue.data.items import read_items
from depsue.data.mapping import LogMapping
from depsue.data.requests import Requests
from depsue.data.writing import write_items, write_logs
from depsue.errors import ConfigError
from depsue.exploration.settings import ExploreSettings
from depsue.policies import ChosenPolicy, Mixture, OrElse, RestrictedPolicy, Uniform
from depsue.rewards import RewardSettings
from depsue.shop import Shop, ShopSettings

BRANDS = ["acme", "bolt", "acme", "bolt", "acme", "bolt"]


def table(count: int = 6, **more: Any) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "sku": [f"s{k}" for k in range(count)],
            "novel": [k >= 4 for k in range(count)],
            "price": np.arange(count, dtype=float),
            "brand": (BRANDS + ["new brand"] * 9)[:count],
            "emb": [[float(k), -float(k)] for k in range(count)],
        }
    ).with_columns(**more)


@pytest.fixture
def before(tmp_path: Path) -> Catalogue:
    """The catalogue of a round, as its campaign keeps it in a file."""
    files = CampaignFiles(tmp_path, "shop")
    catalogue = read_items(table(), id="sku").catalogue
    mapping = LogMapping("item", "click", "p")
    files.settle(0, files.stage(0, catalogue, mapping))
    kept = files.items(0)
    assert kept.hash == catalogue.hash and kept.feature_names == catalogue.feature_names
    return kept


def test_features_have_the_names_of_their_columns(before: Catalogue) -> None:
    names = ("price", "emb[0]", "emb[1]", "brand=acme", "brand=bolt")
    assert before.feature_names == names
    assert Catalogue(before.ids, before.novel, before.features).hash == before.hash


def test_a_value_that_nobody_had_before_is_none_of_the_known(before: Catalogue) -> None:
    change = changed_items(before, table(8), "sku")
    assert change.arrived == ("s6", "s7")
    features = change.catalogue.features
    assert features is not None and before.features is not None
    assert features[6].tolist() == [6.0, 6.0, -6.0, 0.0, 0.0]
    assert np.array_equal(features[:6], before.features)
    assert change.catalogue.feature_names == before.feature_names


def test_columns_may_change_places_and_none_may_go(before: Catalogue) -> None:
    other = table(7).select("emb", "sku", "brand", "novel", "price")
    features = changed_items(before, other, "sku").catalogue.features
    assert features is not None and before.features is not None
    assert np.array_equal(features[:6], before.features)
    with pytest.raises(ConfigError, match=r"gone: emb\[0\], emb\[1\]; new: a, b"):
        swapped = table(7).drop("emb").with_columns(a=pl.lit(1.0), b=pl.lit(2.0))
        changed_items(before, swapped, "sku")
    with pytest.raises(ConfigError, match="described by the same columns"):
        changed_items(before, table(7).drop("price"), "sku")


def test_files_of_older_versions_go_by_the_number_of_features(before: Catalogue) -> None:
    assert before.features is not None
    old = Catalogue(before.ids, before.novel, before.features, tuple(f"f{k}" for k in range(5)))
    same = pl.DataFrame({"id": before.ids, "novel": before.novel}).hstack(
        pl.DataFrame(before.features, schema=[f"c{k}" for k in range(5)])
    )
    assert changed_items(old, same, None).catalogue.hash == before.hash


def test_items_arrive_where_pi0_is_known_by_what_it_chose(tmp_path: Path) -> None:
    """The next round is trained on policies that know fewer items, and rest on pi0's choice."""
    shop = Shop(
        ShopSettings(requests=80, users=30, items=30, new=4, arrivals=0, retrieved=10, d=3),
        known="chosen",
        seed=2,
    )
    explore = ExploreSettings(deployments=2, rewards=RewardSettings(members=1, max_epochs=1))
    pi0, items = shop.logging_policy, tmp_path / "items.parquet"
    write_logs(shop.deploy(pi0, 6000, round=0), tmp_path / "0.parquet")
    write_items(shop.catalogue, items)
    campaign = create("shop", tmp_path / "0.parquet", items, pi0="chosen", by="ana",
                      settings=CampaignSettings(explore), home=tmp_path / "home")  # fmt: skip
    campaign.train()
    campaign.certify()
    policy = campaign.policy(1, campaign.deploy().policy_hash)
    served = shop.deploy(policy, 6000, round=1)
    write_logs(served, tmp_path / "1.parquet")
    more = pl.read_parquet(items)
    more = pl.concat([more, more.tail(1).with_columns(id=pl.lit("item-of-today"))])
    campaign.observe(tmp_path / "1.parquet", items=more)
    catalogue = campaign.files.items(1)
    assert catalogue.ids[-1] == "item-of-today" and catalogue.novel[-1]
    wider, rows = campaign.widened(policy, catalogue), campaign.logs(1)
    assert wider.rests_on_choice and wider.n_actions == len(catalogue)
    few = replace(rows, catalogue=catalogue).take(slice(0, 500))
    same = served.take(slice(0, 500))
    np.testing.assert_allclose(wider.pi0_share(few.requests), policy.pi0_share(same.requests))
    for name in ("row_probabilities", "drawn_probabilities"):
        np.testing.assert_allclose(getattr(wider, name)(few), getattr(policy, name)(same))
    np.testing.assert_allclose(wider.drawn_probabilities(few), few.propensity)
    campaign.train()
    assert campaign.certify().state in ("passed", "failed")


def test_what_is_withdrawn_is_not_drawn_beside_pi0s_choice() -> None:
    sets = Candidates.of_lists([[0, 1, 2], [1, 2], [2]])
    requests = Requests(np.zeros((3, 1)), sets)
    new = np.array([False, True, True])
    mixed = Mixture([ChosenPolicy(3), OrElse(Uniform(new), ChosenPolicy(3))], [0.5, 0.5])
    left = RestrictedPolicy(mixed, np.array([True, True, False, True]))  # a fourth came
    share, g = left.pi0_share(requests), left.besides_pi0(requests)
    np.testing.assert_allclose(share + g.sum(axis=1), 1.0)
    np.testing.assert_allclose(share, [0.5, 0.5, 1.0])
    np.testing.assert_allclose(g[0], [0.0, 0.5, 0.0])
