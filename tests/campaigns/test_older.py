"""A campaign that version 0.1 left in its second round is read and rolled back, as it was.

It is not certified further: its folds hung on its name.

The files of the fixture `older` were written by that version.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from depsue.campaigns import Campaign, CampaignSettings, create, open_home, story_of
from depsue.campaigns.exporting import export_campaign
from depsue.campaigns.records import CandidateFacts
from depsue.certificates import Certificate
from depsue.errors import ConfigError
from depsue.pages.report import report_of
from depsue.promises import Floor, Promise
from depsue.serving.settings import ServingSettings, declared


@pytest.fixture
def campaign(older: Path) -> Campaign:
    opened = Campaign(open_home(older / "home"), older / "home", "spring", by="ana")
    for k in (0, 1):  # the team's logs have moved
        opened.files.save_place(k, str(older / f"round-{k}.parquet"))
    return opened


def facts_in(folder: Path) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads((folder / "facts.json").read_text())
    return facts


def test_its_settings_are_as_they_were_declared(campaign: Campaign) -> None:
    explore = campaign.settings.explore
    assert explore.promises == (Promise(), Promise(Floor(None, 0.001), "always"))
    assert (explore.safety, explore.deployments, explore.fractions) == (
        "cumulative",
        3,
        (0.3, 0.2, 0.5),
    )
    assert explore.rewards.hidden == (4,)
    assert campaign.settings.retries and campaign.settings.decisions == 500


def test_its_rounds_are_told(campaign: Campaign) -> None:
    status = story_of(campaign)
    assert (status.round, status.rounds, status.next) == (2, 3, "depsue campaign certify spring")
    assert [past.rows for past in status.history] == [2500, 2500, None]
    assert status.history[1].verdict == "passed" and status.history[1].certified == 0.082
    first, second = campaign.summaries()
    assert first.served == campaign.terms.pi0 and not first.withdrawn
    assert len(second.arrived) == 1 and len(second.withdrawn) == 1 and second.first is None
    facts = CandidateFacts.of(campaign.newest_candidate(2))
    assert facts.certain_policy is None and facts.pi0_policy != campaign.terms.pi0
    assert set(facts.ceilings) <= {"reward"} and set(facts.credits) == {"reward", "always"}


def test_it_is_not_certified_further_and_says_what_to_do(campaign: Campaign) -> None:
    before = campaign.ledger.journal()
    cure = r"older rules.*never registered.*read and rolled back; begin a new campaign"
    for step in (campaign.certify, lambda: campaign.train(seed=9)):
        with pytest.raises(ConfigError, match=cure):
            step()
    assert campaign.ledger.journal() == before


def test_it_is_rolled_back_told_and_exported(campaign: Campaign, older: Path) -> None:
    with pytest.raises(ConfigError, match=r"holds without help.*never registered.*--to 0"):
        campaign.rollback(to=1)  # the sum counts there, and cannot be counted any more
    back = campaign.rollback()
    assert back.kind == "rollback" and back.declared == {"decisions": 500}
    assert story_of(campaign).round == 2 and report_of(story_of(campaign))
    assert export_campaign(campaign, older / "out", round=1)
    certificate = Certificate.from_json(facts_in(older)["certificate"])
    assert (certificate.rules, certificate.registration) == (1, None)


def test_creating_it_again_finds_it(campaign: Campaign, older: Path) -> None:
    def again(settings: CampaignSettings) -> Campaign:
        logs, items, pi0 = (older / name for name in ("round-0.parquet", "items.parquet", "pi0"))
        home = older / "home"
        return create("spring", logs, items, pi0=pi0, settings=settings, by="ana", home=home)

    assert again(campaign.settings).terms == campaign.terms
    explore = campaign.settings.explore
    with pytest.raises(ConfigError, match=r"stays fixed.*decisions 600, while 'spring' has 500"):
        again(CampaignSettings(explore, 3, True, 600))


def test_what_was_declared_for_serving_still_holds(campaign: Campaign) -> None:
    settings = declared(campaign.files.folder, {}, begun=True)
    assert settings == ServingSettings(wait=60.0, holdout=0.1)
