"""What a campaign does not forget: debts, what was refuted, and what a rollback serves."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from depsue import SyntheticSettings, World, synthetic_world
from depsue.campaigns import (
    Campaign,
    CampaignSettings,
    create,
    export_campaign,
    load_export,
    open_home,
    story_of,
)
from depsue.campaigns.dry_runs import recompute, rehearse_round
from depsue.campaigns.observing import CANNOT_PAIR
from depsue.campaigns.records import CandidateFacts
from depsue.certificates import Certificate
from depsue.data import LoggedData
from depsue.data.writing import write_items, write_logs
from depsue.errors import ConfigError
from depsue.exploration.settings import ExploreSettings
from depsue.pages.words import sentences
from depsue.policies import BasePolicy, save
from depsue.promises import Floor, Promise
from depsue.rewards import RewardSettings

NOW = datetime(2027, 5, 20, tzinfo=UTC)
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
    logs = world.deploy(world.logging_policy, ROWS, round=0)
    write_logs(timed(logs, "2027-05-01"), folder / "may.parquet")
    assert isinstance(world.logging_policy, BasePolicy)
    save(world.logging_policy, folder / "pi0", catalogue=world.catalogue)
    return folder


def timed(logs: LoggedData, start: str) -> LoggedData:
    """One row a minute from a day on."""
    minutes = np.arange(len(logs)) * np.timedelta64(60, "s")
    return replace(logs, time=np.datetime64(start, "us") + minutes)


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
    logs = replace(logs, reward=np.where(lost, 0.0, logs.reward))
    write_logs(timed(logs, f"2027-{5 + campaign.round:02d}-01"), path)


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
    assert CANNOT_PAIR in campaign.notes
    assert "below the floor" not in str(story_of(campaign))  # of a value that has changed
    failed = play(campaign, world, tmp_path)
    verdict = failed.verdicts[0]
    assert not failed.passed and 0 <= verdict.bound < verdict.need == 0.95 and verdict.ceiling == 1
    assert any("kept no share of pi0" in words for words in failed.assumptions)
    assert recompute(campaign, 3, 1).equal
    assert campaign.choice_of(3, campaign.deployed(3)[-1].policy_hash).what == "certain"
    assert campaign.state().largest == pytest.approx(1 / 0.95)  # rows can be paired again
    campaign.train()  # the newest rows show no drift
    assert CANNOT_PAIR not in campaign.notes
    facts = CandidateFacts.of(campaign.newest_candidate(4))
    assert facts.ceilings == {} and facts.refuted == ("no_drift",)
    assert any("was declared and is refuted" in words for words in facts.assumptions)


def test_a_verdict_reads_what_earlier_rounds_reserved_for_it(
    files: Path, world: World, tmp_path: Path
) -> None:
    explore = replace(EXPLORE, no_drift=True, deployments=3, reserve=0.4)
    campaign = begun(files, tmp_path / "home", explore)
    first = play(campaign, world, tmp_path)
    assert first.strata == () and first.reserve == 0.0
    second = play(campaign, world, tmp_path)
    assert second.strata == () and second.reserve == 0.4
    assert second.verdicts[0].n < first.verdicts[0].n
    assert rehearsed_rows(campaign) > 0.6 * ROWS
    third = Certificate.from_json(campaign.certify().certificate or "")
    assert [stratum.round for stratum in third.strata] == [1, 2]
    assert third.verdicts[0].n == sum(stratum.rows for stratum in third.strata)
    assert all(recompute(campaign, k, 1).equal for k in (1, 2, 3))
    assert "pooled" in third.to_json() and "no_drift, for all items" in str(third)


def test_items_that_change_end_the_pooling(files: Path, world: World, tmp_path: Path) -> None:
    explore = replace(EXPLORE, no_drift=True, deployments=3, reserve=0.4)
    campaign = begun(files, tmp_path / "home", explore)
    for k in (1, 2):
        served(campaign, world, tmp_path / f"{k}.parquet", campaign.rollback().policy_hash)
        if k == 1:
            campaign.observe(tmp_path / "1.parquet")
    items = pl.read_parquet(files / "items.parquet")
    late = items.tail(1).with_columns(pl.lit(99).cast(items["id"].dtype).alias("id"))
    pl.concat([items, late]).write_parquet(tmp_path / "items.parquet")
    campaign.observe(tmp_path / "2.parquet", items=tmp_path / "items.parquet")
    state = campaign.state()
    inputs = state.inputs(ROWS)
    assert inputs.pool is None and inputs.folds.reserve == 0.0
    assert inputs.words_on_unpooled == (
        "fact: no rows of earlier rounds are pooled: the items have changed",
    )
    assert sum(map(len, inputs.earlier)) == 2 * ROWS  # nothing is kept from training


def rehearsed_rows(campaign: Campaign) -> int:
    """How many rows the coming verdict reads, by its rehearsal."""
    campaign.train()
    return rehearse_round(campaign).certifying


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


def test_decisions_of_a_policy_that_was_replaced_are_charged_at_its_worst(
    files: Path, world: World, tmp_path: Path
) -> None:
    """The certified policy serves four fifths of a round, then pi0, whose rows are observed."""
    explore = replace(EXPLORE, promises=(Promise(Floor(0.8)),), safety="cumulative")
    campaign = begun(files, tmp_path / "home", explore)
    campaign.train()
    assert campaign.certify().passed
    novelty = campaign.choice_of(1, campaign.deploy("certified").policy_hash).novelty
    back, rows = campaign.rollback(to=0).policy_hash, ROWS // 5
    served(campaign, world, tmp_path / "1.parquet", back, rows=rows)
    campaign.observe(tmp_path / "1.parquet", decisions=ROWS)
    credit = campaign.state().inputs(ROWS).credits["reward"]
    kept = (1 - novelty) * explore.pi0_share
    assert kept < 0.8
    worst = 0.8 * (0.8 - kept)  # of four fifths of the decisions
    assert credit.value < 0.2 * 0.2 - worst  # V(pi0) <= 1


def test_decisions_that_no_margin_shows_are_said(files: Path, world: World, tmp_path: Path) -> None:
    campaign = begun(files, tmp_path / "home", replace(EXPLORE, safety="cumulative"))
    served(campaign, world, tmp_path / "1.parquet", campaign.rollback().policy_hash)
    campaign.observe(tmp_path / "1.parquet", decisions=10 * ROWS)
    words = str(story_of(campaign))
    assert f"round 1 served {9 * ROWS:,} decisions without a row: no margin shows them" in words


def test_a_rollback_serves_what_holds_without_help(
    files: Path, world: World, tmp_path: Path
) -> None:
    promise = Promise(Floor(None, 0.8 * world.value(world.logging_policy)))
    explore = replace(EXPLORE, promises=(promise,), safety="cumulative")
    campaign = begun(files, tmp_path / "home", explore)
    assert play(campaign, world, tmp_path).passed
    deployed = campaign.deployed(1)[-1].policy_hash
    assert campaign.rollback(to=1).policy_hash == deployed  # there is no debt
    story = story_of(campaign)
    assert campaign.round == 2
    assert "deployed  the certified policy of round 1, after a rollback" in str(story)
    words = sentences(story)
    assert (
        f"Round 2 of {campaign.rounds} was rolled back to the policy of round 1" in words.headline
    )
    assert "The certified policy of round 1 is deployed, after a rollback" in words.deployed
    export_campaign(campaign, tmp_path / "out")
    facts = load_export(tmp_path / "out").facts
    assert (facts.round, facts.made_in, facts.policy) == (2, 1, deployed)
    campaign.train()
    assert campaign.certify().passed
    with pytest.raises(ConfigError, match=r"77 decisions, certified for 4,000 decisions.*created"):
        campaign.deploy("certified", decisions=77)
    with pytest.raises(ConfigError, match=r"until 2027-09-01 00:00:00 UTC, certified for"):
        campaign.deploy("certified", until="2027-09-01")
    assert campaign.deploy("certified").declared == {"decisions": ROWS}


@pytest.fixture(scope="module")
def deployed(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home in which round 1 of a campaign is certified."""
    home = tmp_path_factory.mktemp("home")
    campaign = begun(files, home, EXPLORE)
    campaign.train()
    campaign.certify()
    return home


@pytest.fixture
def campaign(deployed: Path, tmp_path: Path) -> Campaign:
    shutil.copytree(deployed, tmp_path / "home")
    return Campaign(open_home(tmp_path / "home"), tmp_path / "home", "spring", by="ana")


def test_a_warning_names_who_has_read_the_rows(
    campaign: Campaign, files: Path, tmp_path: Path
) -> None:
    home, spring = tmp_path / "home", campaign.name
    may, items, pi0 = (files / name for name in ("may.parquet", "items.parquet", "pi0"))
    for name in ("summer", "autumn"):
        other = create(name, may, items, pi0=pi0, by="ana", home=home)
        warnings = [note for note in other.notes if note.startswith("warning: a verdict of")]
        assert len(warnings) == 1 and f"verdict of {spring} has read these rows" in warnings[0]


def logged(campaign: Campaign, world: World, path: Path, rows: int) -> Path:
    """What the newest deployment logs, from the first of June on."""
    served = campaign.deployed(1)[-1].policy_hash
    logs = world.deploy(campaign.policy(1, served), rows, round=1)
    write_logs(timed(logs, "2027-06-01"), path)
    return path


def logged_more(campaign: Campaign, world: World, folder: Path) -> pl.DataFrame:
    """What it logs two months later."""
    table = pl.read_parquet(logged(campaign, world, folder / "more.parquet", 500))
    return table.with_columns(pl.col("time") + pl.duration(days=60))


def test_the_length_of_a_round_is_declared_and_held_against_its_rows(
    campaign: Campaign, world: World, tmp_path: Path
) -> None:
    record = campaign.deploy(decisions=2500)
    assert record.declared == {"decisions": 2500}
    assert "round 1 is declared to last 2,500 decisions" in str(story_of(campaign))
    source = logged(campaign, world, tmp_path / "june.parquet", 2500)
    as_declared = campaign.preview_observation(source)
    assert (as_declared.ended, as_declared.beyond, as_declared.missing) == ("", 0, 0)
    more = campaign.preview_observation(source, decisions=4000, by_pi0=100)
    assert (more.beyond, more.missing) == (1500, 0)
    assert "4,000 decisions served, 2,500 declared" in more.ended
    assert "1,500 decisions more than declared: charged to the account" in str(more)
    assert campaign.round == 1  # nothing was recorded
    campaign.observe(source, decisions=4000, by_pi0=100)
    summary = campaign.summaries()[1]
    assert (summary.decisions, summary.by_pi0) == (4000, 100)
    state = campaign.state()
    assert not state.inputs(2500).fixed_length
    assert (state.served[0].decisions, state.served[0].by_pi0) == (4000, 100)
    text = str(story_of(campaign))
    assert "round 1 was ended by choice" in text and "1,500 decisions without a row" in text


def test_a_round_that_ends_as_declared_has_a_fixed_length(
    campaign: Campaign, world: World, tmp_path: Path
) -> None:
    assert campaign.deploy().declared == {"decisions": ROWS}  # as many as the newest logs have
    campaign.observe(logged(campaign, world, tmp_path / "june.parquet", ROWS))
    assert campaign.state().inputs(ROWS).fixed_length
    assert "ended by choice" not in str(story_of(campaign))


@pytest.mark.parametrize("by_pi0", [None, 500])
def test_a_round_of_which_rows_are_missing_was_ended_by_choice(
    campaign: Campaign, world: World, tmp_path: Path, by_pi0: int | None
) -> None:
    """All declared decisions were served; how many of them have a row is anybody's choice."""
    campaign.deploy(decisions=2500)
    source = logged(campaign, world, tmp_path / "june.parquet", 2000)
    excused = campaign.preview_observation(source, decisions=2500, by_pi0=by_pi0, excused=500)
    assert excused.ended == ""  # an outage, which no reward has to do with
    seen = campaign.preview_observation(source, decisions=2500, by_pi0=by_pi0)
    assert seen.ended == "500 decisions of 2,500 served have no row here"
    campaign.observe(source, decisions=2500, by_pi0=by_pi0)
    assert not campaign.state().inputs(2500).fixed_length


@pytest.mark.parametrize(
    ("until", "ended"),
    [
        ("2027-06-02T17:40", ""),
        ("2027-06-02T17:40:00+00:00", ""),
        ("2027-06-02", "1,059 rows later than its declared end"),
        ("2027-07-01", "its last row is .* s before that"),
    ],
)
def test_a_round_may_end_at_a_date(
    campaign: Campaign, world: World, tmp_path: Path, until: str, ended: str
) -> None:
    campaign.deploy(until=until, now=NOW)
    source = logged(campaign, world, tmp_path / "june.parquet", 2500)
    found = campaign.preview_observation(source).ended
    assert re.search(ended, found) if ended else not found


def test_a_length_that_cannot_be_declared_is_refused(campaign: Campaign) -> None:
    with pytest.raises(ConfigError, match=r"so many decisions, or until a date.*give one of them"):
        campaign.deploy(decisions=5, until="2027-07-01")
    with pytest.raises(ConfigError, match=r"ISO date or time.*tomorrow.*--until 2027-03-01"):
        campaign.deploy(until="tomorrow")
    with pytest.raises(ConfigError, match=r"ends after it was deployed.*until 2026-06-20"):
        campaign.deploy(until="2026-06-20", now=NOW)
    assert not campaign.deployed(1)


def test_the_length_of_a_round_is_declared_once(campaign: Campaign) -> None:
    first = campaign.deploy(decisions=3000)
    with pytest.raises(ConfigError, match=r"declared once.*77 decisions, declared was 3,000"):
        campaign.deploy(decisions=77)
    assert campaign.deploy() == first == campaign.deploy(decisions=3000)


@pytest.mark.parametrize(
    "changed", [{"deployments": 5}, {"fractions": (0.4, 0.2, 0.4)}, {"no_drift": True}]
)
def test_a_plan_reads_no_row_that_the_campaign_keeps(
    campaign: Campaign, changed: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError, match="splits rows as the campaign does.*of the campaign"):
        campaign.state(replace(EXPLORE, **changed))
    assert campaign.state(replace(EXPLORE, delta=0.2)).settings.delta == 0.2


def test_one_row_does_not_end_a_round(campaign: Campaign, world: World, tmp_path: Path) -> None:
    campaign.deploy()
    few = logged(campaign, world, tmp_path / "one.parquet", 1)
    with pytest.raises(
        ConfigError, match=r"next round's folds need 400 rows.*1 rows: about.*add rows.*together"
    ):
        campaign.observe(few)
    assert campaign.round == 1
    with pytest.raises(ConfigError, match=r"at least as many decisions.*900 decisions, 1,000 rows"):
        campaign.observe(logged(campaign, world, tmp_path / "a.parquet", 1000), decisions=900)
    assert campaign.round == 1


def test_rows_may_be_added_until_the_next_training(
    campaign: Campaign, world: World, tmp_path: Path
) -> None:
    campaign.deploy()
    source = logged(campaign, world, tmp_path / "all.parquet", ROWS)
    table = pl.read_parquet(source)
    table.head(1000).write_parquet(tmp_path / "first.parquet")
    campaign.observe(tmp_path / "first.parquet")
    kept = campaign.state().inputs(ROWS).folds.certify
    table.tail(500).write_parquet(tmp_path / "last.parquet")
    with pytest.raises(ConfigError, match=r"to add rows to round 1, give all of its rows together"):
        campaign.observe(tmp_path / "last.parquet")
    preview = campaign.preview_observation(source)
    assert (preview.round, preview.rows, preview.before) == (1, ROWS, 1000)
    assert "3,000 of them new" in str(preview)
    campaign.observe(source)
    assert campaign.round == 2 and campaign.summaries()[1].rows == ROWS
    inputs = campaign.state().inputs(ROWS)
    assert not inputs.fixed_length  # whatever was looked at in between
    assert kept.time is not None and inputs.folds.certify.time is not None
    assert set(kept.time) <= set(inputs.folds.certify.time)  # rows keep their folds
    campaign.train()
    for rows in (table.head(500), pl.concat([table, logged_more(campaign, world, tmp_path)])):
        rows.write_parquet(tmp_path / "other.parquet")
        with pytest.raises(ConfigError, match=r"until a candidate is trained.*certify and deploy"):
            campaign.observe(tmp_path / "other.parquet")
    logged_more(campaign, world, tmp_path).write_parquet(tmp_path / "later.parquet")
    with pytest.raises(ConfigError, match="after something was deployed in it") as refused:
        campaign.observe(tmp_path / "later.parquet")
    assert "give all of its rows" not in str(refused.value)


def test_no_page_shows_rewards_that_a_coming_verdict_reads(
    campaign: Campaign, world: World, tmp_path: Path
) -> None:
    campaign.deploy()
    source = logged(campaign, world, tmp_path / "june.parquet", ROWS)
    campaign.observe(source)
    inputs, summary = campaign.state().inputs(ROWS), campaign.summaries()[1]
    readable = np.concatenate([inputs.folds.learn.reward, inputs.folds.select.reward])
    assert summary.promises["reward"].mean == pytest.approx(readable.mean())
    assert (summary.rows, summary.read) == (ROWS, len(readable))
    actions = np.concatenate([inputs.folds.learn.action, inputs.folds.select.action])
    novel = world.catalogue.novel[actions]
    assert sum(item.reward for item in summary.items) == pytest.approx(readable[novel].sum())
    assert sum(item.read or 0 for item in summary.items) == novel.sum()
    assert "means over learn and select rows, which no coming verdict reads" in str(
        story_of(campaign)
    )
