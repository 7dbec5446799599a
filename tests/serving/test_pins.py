"""What a served or exported policy rests on is pinned: what was edited by hand is refused."""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path

import polars as pl
import pytest
from tests.serving.conftest import Log

from depsue.campaigns import Campaign, export_campaign, load_export, open_home, story_of
from depsue.errors import FileError
from depsue.serving.served import load_served

ROUND_0 = Path("spring") / "round-0"


def opened(home: Path) -> Campaign:
    return Campaign(open_home(home), home, "spring", by="ana")


def reverse_ids(path: Path) -> None:
    items = pl.read_parquet(path)
    items.with_columns(id=items["id"].reverse()).write_parquet(path)


def raise_r_max(path: Path) -> None:
    text = path.read_text()
    assert "r_max = 1.0" in text
    path.write_text(text.replace("r_max = 1.0", "r_max = 100.0"))


EDITS = {"items.parquet": reverse_ids, "mapping.toml": raise_r_max}


@pytest.mark.parametrize("name", EDITS)
def test_an_edited_file_is_neither_served_nor_exported(
    home: Path, tmp_path: Path, name: str
) -> None:
    EDITS[name](home / ROUND_0 / name)
    with pytest.raises(FileError, match=f"{name} was edited"):
        load_served(opened(home))
    with pytest.raises(FileError, match=f"{name} was edited"):
        export_campaign(opened(home), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_file_that_is_gone_is_named(home: Path) -> None:
    (home / ROUND_0 / "items.parquet").unlink()
    with pytest.raises(FileError, match=r"items\.parquet is not there"):
        load_served(opened(home))


def edit_certificate(home: Path) -> None:
    """As somebody with the file and a tool would: the triggers are no lock."""
    database = sqlite3.connect(home / "ledger.db")
    database.execute("DROP TRIGGER depsue_outcomes_update")
    (text,) = database.execute("SELECT certificate FROM depsue_outcomes").fetchone()
    words = json.loads(text)
    words["novelty"] = 0.99
    database.execute("UPDATE depsue_outcomes SET certificate = ?", [json.dumps(words)])
    database.commit()
    database.close()


def test_an_edited_certificate_is_not_exported_shown_or_served(home: Path, tmp_path: Path) -> None:
    edit_certificate(home)
    campaign = opened(home)
    for use in (
        lambda: export_campaign(campaign, tmp_path / "out"),
        lambda: story_of(campaign),
        lambda: load_served(campaign),
    ):
        with pytest.raises(FileError, match=r"certificate of attempt 1 in round 1.*was edited"):
            use()


def test_pi0_serves_whatever_became_of_the_certificate(home: Path) -> None:
    edit_certificate(home)
    campaign = opened(home)
    campaign.rollback()
    assert load_served(campaign).is_pi0


def test_a_verdict_that_was_turned_is_refused(home: Path) -> None:
    database = sqlite3.connect(home / "ledger.db")
    database.execute("DROP TRIGGER depsue_outcomes_update")
    database.execute("UPDATE depsue_outcomes SET certified = ?", ["0" * 64])
    database.commit()
    database.close()
    with pytest.raises(FileError, match="was edited"):
        opened(home).choices(1)


@pytest.mark.parametrize(
    "name", ["items.parquet", "mapping.toml", "certificate.json", "policy/manifest.json"]
)
def test_an_edited_export_is_refused(campaign: Campaign, tmp_path: Path, name: str) -> None:
    export_campaign(campaign, tmp_path / "out")
    path = tmp_path / "out" / name
    path.write_bytes(path.read_bytes() + b"\n")
    with pytest.raises(FileError, match=f"{name} was edited"):
        load_export(tmp_path / "out")


def test_the_facts_of_an_export_are_pinned_too(campaign: Campaign, tmp_path: Path) -> None:
    export_campaign(campaign, tmp_path / "out")
    path = tmp_path / "out" / "export.json"
    path.write_text(path.read_text().replace('"certified"', '"pi0"'))
    with pytest.raises(FileError, match=r"export\.json was edited"):
        load_export(tmp_path / "out")


def test_an_export_knows_which_items_are_new(campaign: Campaign, tmp_path: Path) -> None:
    export_campaign(campaign, tmp_path / "out")
    catalogue = campaign.files.items(0)
    assert catalogue.novel.sum() == 5
    assert load_export(tmp_path / "out").catalogue.novel.tolist() == catalogue.novel.tolist()


def test_a_campaign_of_before_is_pinned_when_it_is_opened(older: Path, log: Log) -> None:
    home = older / "home"
    campaign = opened(home)
    pinned = [line for line in log.lines if line["event"].startswith("pinned")]
    assert {line["round"] for line in pinned} == {0, 1}
    assert all(set(line["files"]) >= {"items.parquet", "mapping.toml"} for line in pinned)
    journal = campaign.ledger.journal("spring")
    opened(home)
    assert campaign.ledger.journal("spring") == journal, "once"
    raise_r_max(home / ROUND_0 / "mapping.toml")
    with pytest.raises(FileError, match=r"mapping\.toml was edited"):
        campaign.files.mapping(0)


def test_what_was_staged_and_pinned_is_moved_into_place(home: Path) -> None:
    campaign = opened(home)
    path = home / ROUND_0 / "mapping.toml"
    staged = campaign.files.stage(0, campaign.files.items(0), campaign.files.mapping(0))
    shutil.copy(home / ROUND_0 / "items.parquet", path)  # as if the old one still lay there
    assert campaign.files.mapping(0).r_max == 1.0
    campaign.files.settle(0, staged)
    assert sorted(file.name for file in (home / ROUND_0).iterdir()) == [
        "items.parquet",
        "mapping.toml",
    ]
