"""The secret of a campaign: made once, private, pinned by the ledger, rotated."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.serving.conftest import campaign, home, made_home

from depsue.campaigns import Campaign, export_campaign
from depsue.campaigns.secret import FILE, Secret, rotate_secret, secret_of
from depsue.errors import FileError
from depsue.serving.service import Service
from depsue.serving.settings import ServingSettings

__all__ = ["campaign", "home", "made_home"]


def test_a_secret_is_made_with_the_campaign_and_never_shown(
    campaign: Campaign, tmp_path: Path
) -> None:
    path = campaign.files.folder / FILE
    assert path.stat().st_mode & 0o777 == 0o600
    secret = secret_of(campaign)
    assert secret == secret_of(campaign) and secret.version == 1 and len(secret.value) == 32
    assert secret.value.hex() not in repr(secret)
    export_campaign(campaign, tmp_path / "export")
    exported = [each.read_bytes() for each in (tmp_path / "export").rglob("*") if each.is_file()]
    lines = [str(line) for line in campaign.ledger.journal(campaign.name)]
    assert not any(secret.value.hex().encode() in content for content in exported)
    assert not any(secret.value.hex() in line for line in lines)


def test_a_campaign_of_before_gets_one_when_it_is_first_served(
    campaign: Campaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    (campaign.files.folder / FILE).unlink()
    monkeypatch.setattr(type(campaign.ledger), "pins", lambda self, name: dict(pins))
    pins: dict[tuple[int, str], str] = {}
    monkeypatch.setattr(
        type(campaign.ledger),
        "pin",
        lambda self, name, round, hashes, by: pins.update({(0, k): v for k, v in hashes.items()}),
    )
    first = secret_of(campaign)
    assert secret_of(campaign) == first and list(pins) == [(0, "secret 1")]


@pytest.mark.parametrize("wrong", ["another", "none", "damaged"])
def test_a_service_with_another_secret_does_not_start(campaign: Campaign, wrong: str) -> None:
    path = campaign.files.folder / FILE
    before = path.read_text()
    if wrong == "none":
        path.unlink()
    else:
        path.write_text(before.replace('"secret": "', '"secret": "' + "00" * (wrong == "damaged")))
    if wrong == "another":
        path.write_text(before.replace(secret_of(campaign).value.hex(), "ab" * 32))
    with pytest.raises(FileError, match="depsue campaign rotate-secret spring") as refused:
        Service(campaign, ServingSettings())
    assert before.split('"')[5] not in str(refused.value)


def test_a_rotation_begins_a_new_version(campaign: Campaign) -> None:
    path = campaign.files.folder / FILE
    first, copy = secret_of(campaign), path.with_name("copy")
    shutil.copy(path, copy)
    second = rotate_secret(campaign)
    assert (second.version, secret_of(campaign)) == (2, second) and second.value != first.value
    shutil.copy(copy, path)  # the old one is refused from now on
    with pytest.raises(FileError, match="version 1.*the ledger has version 2"):
        secret_of(campaign)
    assert path.stat().st_mode & 0o777 == 0o600
    assert isinstance(rotate_secret(campaign), Secret) and secret_of(campaign).version == 3
