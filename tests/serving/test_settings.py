"""What is declared when a campaign is served."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from depsue.campaigns import Campaign
from depsue.data.mapping import LogMapping
from depsue.errors import ConfigError, FileError
from depsue.serving.settings import ServingSettings, declared, settings_of

MAPPING = LogMapping(action="item", reward="click", propensity="p", numeric=("x",), time="at")


def test_what_is_declared_stays_declared(tmp_path: Path) -> None:
    assert declared(tmp_path, {"wait": 5.0}, begun=False).wait == 5.0
    assert declared(tmp_path, {"holdout": 0.2}, begun=True) == ServingSettings(
        wait=5.0, holdout=0.2
    )
    with pytest.raises(ConfigError, match="wait is declared once"):
        declared(tmp_path, {"wait": 6.0}, begun=True)
    (tmp_path / "serving.json").write_text("{")
    with pytest.raises(FileError, match="what was declared for serving"):
        declared(tmp_path, {}, begun=True)


@pytest.mark.parametrize(
    "edited",
    [{"wait": 1.0}, {"default_reward": 1.0}, {"combine": "sum"}],
    ids=lambda edited: next(iter(edited)),
)
def test_what_decides_rewards_is_not_edited_by_hand(
    campaign: Campaign, edited: dict[str, Any]
) -> None:
    """It was held against its own file only, so an edit of the file changed what decisions earn."""
    options = {"wait": 60.0, "default_reward": 0.0, "combine": "first"}
    settings = settings_of(campaign, options, begun=False)
    assert settings_of(campaign, {}, begun=True) == settings
    assert settings_of(campaign, {"holdout": 0.3}, begun=True).holdout == 0.3
    file = campaign.files.folder / "serving.json"
    facts = json.loads(file.read_text())
    file.write_text(json.dumps(facts | edited))
    with pytest.raises(ConfigError, match=r"declared once.*the ledger has others.*restore"):
        settings_of(campaign, {}, begun=True)
    file.write_text(json.dumps(facts))
    assert settings_of(campaign, {}, begun=True).wait == 60.0
    file.unlink()  # nor forgotten by removing the file
    with pytest.raises(ConfigError, match="the ledger has others"):
        settings_of(campaign, edited, begun=False)
    assert not file.exists()


def test_the_window_of_the_mapping_is_what_serving_waits(tmp_path: Path) -> None:
    mapping = replace(MAPPING, window=60.0)
    assert declared(tmp_path, {}, begun=False, mapping=mapping).wait == 60.0
    assert declared(tmp_path, {"wait": 60.0}, begun=True, mapping=mapping).wait == 60.0
    with pytest.raises(ConfigError, match=r"window that the campaign's mapping.*--wait 5.*leave"):
        declared(tmp_path, {"wait": 5.0}, begun=False, mapping=mapping)


@pytest.mark.parametrize(
    ("mapping", "default", "ok"),
    [
        (MAPPING, 1.0, True),
        (MAPPING, 1.5, False),
        (MAPPING, -0.1, False),
        (replace(MAPPING, shift=0.5), -0.5, True),
        (replace(MAPPING, shift=0.5), 0.6, False),
        (replace(MAPPING, cap=1.0), 7.0, True),
    ],
)
def test_a_default_reward_lies_in_the_range_of_rewards(
    tmp_path: Path, mapping: LogMapping, default: float, ok: bool
) -> None:
    options = {"default_reward": default}
    if ok:
        assert declared(tmp_path, options, begun=False, mapping=mapping).default_reward == default
        return
    with pytest.raises(ConfigError, match=r"must lie in \[0, 1\].*Found: --default-reward"):
        declared(tmp_path, options, begun=False, mapping=mapping)
    assert not (tmp_path / "serving.json").exists()


def test_a_default_reward_of_before_is_served_all_the_same(tmp_path: Path) -> None:
    """It cannot be changed any more; the monitor counts it at its worst."""
    declared(tmp_path, {"default_reward": 5.0}, begun=False)
    assert declared(tmp_path, {}, begun=True, mapping=MAPPING).default_reward == 5.0


@pytest.mark.parametrize(
    ("options", "rule"),
    [({"permit": 1.0}, "permit: 2 s to a day"), ({"backlog": 10}, "backlog: 1,000 to")],
)
def test_how_long_nobody_may_look_has_limits(options: dict[str, Any], rule: str) -> None:
    with pytest.raises(ConfigError, match=rule):
        ServingSettings(**options)
