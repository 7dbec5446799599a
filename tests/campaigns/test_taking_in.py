"""What a campaign takes in: which rows of a unit, which are old enough, what their weights are."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from depsue.campaigns import Campaign, CampaignSettings, create, story_of
from depsue.campaigns.dry_runs import recompute
from depsue.certificates import Certificate
from depsue.data.checks import FloatArray, IntArray
from depsue.data.logs import LoggedData
from depsue.data.mapping import EstimatedPropensities, LogMapping
from depsue.errors import ConfigError, DataError
from depsue.exploration.settings import ExploreSettings
from depsue.pages.words import guarantee
from depsue.rewards import RewardSettings

NOON = datetime(2026, 11, 18, 12, tzinfo=UTC)
ITEMS = 6
MAPPING = LogMapping("item", "click", "p", unit="who", time="at", numeric=("x",))
Stays = Callable[[FloatArray], FloatArray]


def sessions(seed: int, users: int, stays: Stays, *, day: int = 0) -> pl.DataFrame:
    """Rows of pi0, which shows six items alike, a minute apart, ending a day before `NOON`."""
    draw = np.random.default_rng(seed)
    kind = np.random.default_rng(0).integers(2, size=users)
    rows, alive, step = [], np.asarray(np.arange(users)), 0
    while len(alive) and step < 30:
        item: IntArray = draw.integers(ITEMS, size=len(alive))
        click = (draw.random(len(alive)) < 0.1 + 0.1 * item).astype(float)
        table = {"who": alive, "item": [f"i{k}" for k in item], "click": click}
        at = NOON + timedelta(days=day - 1, minutes=step)
        rows.append(pl.DataFrame({**table, "x": kind[alive].astype(float)}).with_columns(at=at))
        alive, step = alive[draw.random(len(alive)) < stays(click)], step + 1
    return pl.concat(rows).with_columns(p=1 / ITEMS)


def known(rows: LoggedData) -> set[Any]:
    return set(np.asarray(rows.units).tolist())


def even(click: FloatArray) -> FloatArray:
    return np.full(len(click), 0.4)


def clicked(click: FloatArray) -> FloatArray:
    return 0.8 * click


def begin(folder: Path, logs: pl.DataFrame, mapping: LogMapping = MAPPING, **more: Any) -> Campaign:
    folder.mkdir(exist_ok=True)
    names = [f"i{k}" for k in range(ITEMS + 2)]
    features = np.random.default_rng(0).normal(size=ITEMS + 2)
    novel = [k >= ITEMS for k in range(ITEMS + 2)]
    pl.DataFrame({"id": names, "novel": novel, "e": features}).write_parquet(
        folder / "items.parquet"
    )
    logs.write_parquet(folder / "may.parquet")
    explore = {"deployments": more.pop("rounds", 2), "units": more.pop("units", None)}
    rewards = RewardSettings(members=1, max_epochs=1)
    return create(
        "spring",
        folder / "may.parquet",
        folder / "items.parquet",
        pi0=more.pop("pi0", "uniform"),
        mapping=mapping,
        settings=CampaignSettings(ExploreSettings(rewards=rewards, **explore)),
        by="ana",
        home=folder / "home",
        **more,
    )


def test_units_with_several_rows_must_be_declared(tmp_path: Path) -> None:
    logs = sessions(1, 300, even)
    with pytest.raises(ConfigError, match="--units first-row.*--units all-rows"):
        begin(tmp_path / "a", logs)
    single = begin(tmp_path / "b", logs.unique("who", keep="first", maintain_order=True))
    single.rollback()
    logs.write_parquet(tmp_path / "june.parquet")
    with pytest.raises(ConfigError, match="which of them the promise is about"):
        single.observe(tmp_path / "june.parquet")
    first = begin(tmp_path / "c", logs, units="first row")
    notes = " ".join(first.notes)
    assert f"first row: 300 of {len(logs):,} rows count, one for each unit" in notes
    assert "15 to select by, and 90 for each of 2 verdicts" in notes
    assert "a depsue plan that was made on these rows before now" in notes
    state = first.state()
    folds = state.inputs(100).folds
    assert folds.units == "first row" and len(state.newest) == len(logs)
    assert all(not part.repeats_units for part in (folds.learn, folds.select, folds.certify))
    assert any("first row of each unit" in line for line in guarantee(story_of(first)).says)
    summary = first.summaries()[0]
    assert (summary.rows, summary.promises["reward"].rows) == (len(logs), 300)


def test_sessions_that_go_on_while_the_user_clicks_are_refused_every_time(tmp_path: Path) -> None:
    campaign = begin(tmp_path, sessions(1, 6000, clicked), units="all rows")
    for _ in range(2):  # what was refuted stays refuted
        with pytest.raises(DataError, match="refuted: the number of rows of a unit.*first-row"):
            campaign.train()
    assert not campaign.candidates(1)


def test_users_who_come_back_certify_in_one_round(tmp_path: Path) -> None:
    campaign = begin(tmp_path, sessions(1, 900, even), units="first row")
    first = campaign.state().inputs(100).folds
    campaign.rollback()
    sessions(2, 900, even, day=1).write_parquet(tmp_path / "june.parquet")
    campaign.observe(tmp_path / "june.parquet")
    inputs = campaign.state().inputs(100)
    second = inputs.folds
    assert (first.group, second.group) == ((1, 2), (2, 2))
    read, to_come = known(first.certify), known(second.certify)
    assert read and to_come and not read & to_come
    assert read <= known(second.learn)  # what was read teaches from now on
    assert all(not to_come & known(rows) for rows in inputs.earlier)
    assert not to_come & (known(first.learn) | known(first.select))


def test_rows_younger_than_the_window_are_left_out_of_every_round(tmp_path: Path) -> None:
    logs = sessions(1, 400, even)  # the last rows are a day old
    week, late = 86400.0 - 60, NOON + timedelta(days=9)
    campaign = begin(tmp_path, logs, units="all rows", window=week, now=NOON)
    young = int((logs["at"] > NOON - timedelta(seconds=week)).sum())
    assert young > 0 and len(campaign.logs(0)) == len(logs) - young
    assert any(f"{young} rows younger than the reward window" in note for note in campaign.notes)
    with pytest.raises(ConfigError, match="some rows must be older than the reward window"):
        begin(
            tmp_path / "early", logs, units="all rows", window=week, now=NOON - timedelta(days=60)
        )
    again = begin(tmp_path, logs, units="all rows", window=week, now=late)
    assert len(again.logs(0)) == len(logs) - young  # as they were taken in
    again.rollback()
    june = sessions(2, 400, even, day=1)
    june.write_parquet(tmp_path / "june.parquet")
    shown = again.preview_observation(tmp_path / "june.parquet", now=NOON + timedelta(days=1))
    assert shown.ended  # the day on which they are looked at is anybody's choice
    seen = again.observe(tmp_path / "june.parquet", now=NOON + timedelta(days=1))
    assert seen.rows < len(june) and "younger than the reward window" in again.notes[0]
    assert again.observe(tmp_path / "june.parquet", now=late) == seen  # and nothing is added
    assert len(again.logs(1)) == seen.rows
    again.rollback()
    other = LogMapping(**{**vars(MAPPING), "window": 60.0})
    sessions(3, 400, even, day=2).write_parquet(tmp_path / "july.parquet")
    with pytest.raises(ConfigError, match="the reward window is declared once"):
        again.observe(tmp_path / "july.parquet", mapping=other, now=late)


def test_estimated_propensities_make_another_kind_of_certificate(tmp_path: Path) -> None:
    mapping = LogMapping("item", "click", estimated=EstimatedPropensities(), numeric=("x",))
    logs = sessions(1, 4000, even).drop("who", "at", "p")
    campaign = begin(tmp_path, logs, mapping, pi0="logged", rounds=1)
    folds = campaign.state().inputs(100).folds
    assert folds.certify.estimating is not None and not folds.certify.estimating.any()
    campaign.train()
    attempt = campaign.certify()
    certificate = Certificate.from_json(attempt.certificate or "")
    assert certificate.kind == "estimated"
    assert "estimated certificate" in str(certificate)
    assert "is not guaranteed: propensities were estimated" in str(certificate)
    assert any("no strict certificate" in words for words in certificate.assumptions)
    assert recompute(campaign, 1, attempt.attempt).equal
    story = story_of(campaign)
    assert "estimated certificate" in {concern.kind for concern in story.concerns}
    certain = next(choice for choice in campaign.choices() if choice.what == "certain")
    assert "the table that was estimated" in certain.why
