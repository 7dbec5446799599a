"""What a campaign does not forget: debts, what was refuted, and what a rollback serves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from depsue import SyntheticSettings, World, synthetic_world
from depsue.campaigns import Campaign, CampaignSettings, create
from depsue.campaigns.records import CandidateFacts
from depsue.certificates import Certificate
from depsue.data.writing import write_items, write_logs
from depsue.errors import ConfigError
from depsue.exploration.settings import ExploreSettings
from depsue.policies import BasePolicy, save
from depsue.promises import Floor, Promise
from depsue.rewards import RewardSettings

ROWS = 4000
EXPLORE = ExploreSettings(
    objective="most novelty", deployments=4, rewards=RewardSettings(members=1, max_epochs=2)
)


@pytest.fixture(scope="module")
def world() -> World:
    return synthetic_world(SyntheticSettings(users=30, supported=8, novel=3, d=2), seed=3)


@pytest.fixture(scope="module")
def files(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Logs of pi0, items, pi0."""
    folder = tmp_path_factory.mktemp("team")
    write_items(world.catalogue, folder / "items.parquet")
    write_logs(world.deploy(world.logging_policy, ROWS, round=0), folder / "may.parquet")
    assert isinstance(world.logging_policy, BasePolicy)
    save(world.logging_policy, folder / "pi0", catalogue=world.catalogue)
    return folder


def begun(files: Path, home: Path, explore: ExploreSettings) -> Campaign:
    may, items, pi0 = (files / name for name in ("may.parquet", "items.parquet", "pi0"))
    settings = CampaignSettings(explore)
    return create("spring", may, items, pi0=pi0, settings=settings, by="ana", home=home)


def play(campaign: Campaign, world: World, folder: Path, *, kept: float = 1.0) -> Certificate:
    """A round: trained, certified, deployed and observed; `kept` of the rewards are there."""
    k = campaign.round
    campaign.train()
    attempt = campaign.certify()
    deployed = campaign.deploy()
    served(campaign, world, folder / f"{k}.parquet", deployed.policy_hash, kept=kept)
    campaign.observe(folder / f"{k}.parquet")
    return Certificate.from_json(attempt.certificate or "")


def served(
    campaign: Campaign, world: World, path: Path, hash: str, *, kept: float = 1.0, rows: int = ROWS
) -> None:
    """What a policy logs; each reward is lost with probability 1 - kept, whatever was shown."""
    logs = world.deploy(campaign.policy(campaign.round, hash), rows, round=campaign.round)
    lost = np.random.default_rng(campaign.round).random(rows) >= kept
    write_logs(replace(logs, reward=np.where(lost, 0.0, logs.reward)), path)


def test_drift_that_was_seen_once_binds_for_good(files: Path, world: World, tmp_path: Path) -> None:
    """pi0 earns 40% less in round 2 than before, and in round 3 what it did at first."""
    campaign = begun(files, tmp_path / "home", replace(EXPLORE, no_drift=True))
    play(campaign, world, tmp_path)
    certificate = play(campaign, world, tmp_path, kept=0.6)
    assert certificate.passed and certificate.verdicts[0].ceiling is not None
    campaign.train()
    assert CandidateFacts.of(campaign.newest_candidate(3)).refuted == ("no_drift",)
    assert any("is refuted" in note for note in campaign.notes)
    with pytest.raises(ConfigError, match=r"round 2: it rests on no_drift, which was refuted"):
        campaign.rollback(to=2)
    play(campaign, world, tmp_path)
    campaign.train()  # the newest rows show no drift
    facts = CandidateFacts.of(campaign.newest_candidate(4))
    assert facts.ceilings == {} and facts.refuted == ("no_drift",)
    assert any("was declared and is refuted" in words for words in facts.assumptions)


def test_a_debt_is_in_the_next_need_and_closes_rollbacks(
    files: Path, world: World, tmp_path: Path
) -> None:
    value = world.value(world.logging_policy)
    promise = Promise(Floor(None, 0.9 * value))
    explore = replace(EXPLORE, promises=(promise,), safety="cumulative")
    campaign = begun(files, tmp_path / "home", explore)
    assert play(campaign, world, tmp_path, kept=0.5).passed  # the shop earns half of what it did
    certificate = play(campaign, world, tmp_path)
    verdict = certificate.verdicts[0]
    assert verdict.credit < -0.2 * value
    assert verdict.need == pytest.approx(0.9 * value - verdict.credit)
    assert certificate.spent.margins == {"reward": 0.0}
    assert any(
        "realised so far plus what is expected" in words for words in certificate.assumptions
    )
    assert any("a round that ends early breaks it" in words for words in certificate.assumptions)
    with pytest.raises(
        ConfigError, match=r"holds without help.*round 1: the account shows a debt.*--to 0"
    ):
        campaign.rollback(to=1)
    assert campaign.rollback(to=0).policy_hash == campaign.terms.pi0


def test_a_rollback_serves_what_holds_without_help(
    files: Path, world: World, tmp_path: Path
) -> None:
    campaign = begun(files, tmp_path / "home", EXPLORE)
    first = campaign.round
    assert play(campaign, world, tmp_path).passed
    deployed = campaign.deployed(first)[-1].policy_hash
    assert campaign.rollback(to=first).policy_hash == deployed
