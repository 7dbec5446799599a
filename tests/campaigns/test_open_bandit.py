"""Open Bandit's `bts`, on rows made in its shape: pi0 is chosen, by Monte Carlo estimates of p."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from depsue.campaigns import CampaignSettings, create
from depsue.certificates import Certificate
from depsue.check import check_logs, guess_mapping
from depsue.data.items import read_items
from depsue.data.mapping import LogMapping, read_mapping, write_mapping
from depsue.data.open_bandit import simulated_draws
from depsue.data.partitions import LogStream
from depsue.data.reading import open_source, read_from
from depsue.errors import ConfigError
from depsue.exploration.settings import ExploreSettings
from depsue.rewards import RewardSettings

ITEMS, NEW, ROWS, DRAWS = 10, 2, 6000, 200_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy that changes from day to day; its propensities are shares of simulated draws."""
    out, draw = tmp_path_factory.mktemp("bts"), np.random.default_rng(2)
    day = np.repeat(np.arange(6), ROWS // 6)
    shares = draw.dirichlet(np.full(ITEMS, 2.0), size=6)
    item = (draw.random(ROWS)[:, None] > np.cumsum(shares[day], axis=1)).sum(axis=1)
    simulated = draw.multinomial(DRAWS, shares) / DRAWS
    start = np.datetime64("2019-11-24", "us")
    pl.DataFrame(
        {
            "": np.arange(ROWS),
            "timestamp": [f"{start + np.timedelta64(60 * i, 's')}+00:00" for i in range(ROWS)],
            "item_id": item,
            "position": np.ones(ROWS, dtype=int),
            "click": (draw.random(ROWS) < 0.1 + 0.04 * (item % 5)).astype(int),
            "propensity_score": simulated[day, item],
            "user_feature_0": draw.choice(["a", "b"], ROWS),
            "user-item_affinity_0": np.zeros(ROWS),
        }
    ).write_csv(out / "all.csv")
    features = draw.normal(size=ITEMS + NEW)
    pl.DataFrame(
        {
            "item_id": np.arange(ITEMS + NEW),
            "item_feature_0": features,
            "novel": np.arange(ITEMS + NEW) >= ITEMS,
        }
    ).write_csv(out / "items.csv")
    return out


def test_monte_carlo_propensities_are_recognised(folder: Path, tmp_path: Path) -> None:
    mapping, notes = guess_mapping(open_source(folder / "all.csv"))
    assert mapping.simulated == DRAWS
    assert any("multiples of 1/200,000" in note for note in notes)
    write_mapping(mapping, tmp_path / "m.toml")
    assert read_mapping(tmp_path / "m.toml") == mapping
    report = check_logs(open_source(folder / "all.csv"), folder / "items.csv", mapping)
    assert report.usable, report
    assert "propensities-simulated" in {finding.name for finding in report.findings}
    assert report.facts.propensities == "estimated"
    assert "certificates are of the kind estimated" in str(report)


def test_exact_ones_are_not_taken_for_simulated() -> None:
    assert simulated_draws(np.full(10, 1 / 80)) is None  # 2,500 of 200,000, as `random` has it
    assert simulated_draws(np.array([0.3, 1 / 3])) is None
    assert simulated_draws(np.array([0.3, 1 / 200_000])) == DRAWS
    with pytest.raises(ConfigError, match="number of draws behind each"):
        LogMapping("a", "r", "p", simulated=0)
    with pytest.raises(ConfigError, match="number of draws behind each"):
        LogMapping("a", "r", simulated=10)


def test_streamed_rows_are_of_the_same_kind(folder: Path) -> None:
    mapping, _ = guess_mapping(open_source(folder / "all.csv"))
    catalogue = read_items(folder / "items.csv").catalogue
    rows = read_from(folder / "all.csv", mapping, catalogue)
    assert rows.estimating is not None
    assert not rows.estimating.any()
    assert LogStream.open(folder / "all.csv", mapping, catalogue).hash == rows.hash


def test_the_certificate_is_of_the_kind_for_estimated_propensities(
    folder: Path, tmp_path: Path
) -> None:
    rewards = RewardSettings(members=1, max_epochs=2)
    explore = ExploreSettings(objective="most novelty", deployments=1, rewards=rewards)
    campaign = create(
        "bts",
        folder / "all.csv",
        folder / "items.csv",
        pi0="chosen",
        mapping=guess_mapping(open_source(folder / "all.csv"))[0],
        settings=CampaignSettings(explore),
        by="ana",
        home=tmp_path,
    )
    campaign.train()
    certificate = Certificate.from_json(campaign.certify().certificate or "")
    assert certificate.kind == "estimated"
    assert any("shares of 200,000 simulated draws" in words for words in certificate.assumptions)
    assert any("this is no strict certificate" in words for words in certificate.assumptions)
    campaign.deploy()


def test_without_the_declaration_it_would_be_strict(folder: Path) -> None:
    mapping, _ = guess_mapping(open_source(folder / "all.csv"))
    catalogue = read_items(folder / "items.csv").catalogue
    exact = read_from(folder / "all.csv", replace(mapping, simulated=None), catalogue)
    assert exact.estimating is None
