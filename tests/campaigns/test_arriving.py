"""Items that arrive: described by text and lists, with values that nobody had before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from depsue.campaigns.files import CampaignFiles
from depsue.campaigns.observing import changed_items
from depsue.data.catalogue import Catalogue
from depsue.data.items import read_items
from depsue.data.mapping import LogMapping
from depsue.errors import ConfigError

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
