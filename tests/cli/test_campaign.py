"""`depsue campaign` as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner, Result

from depsue import SyntheticSettings, World, synthetic_world
from depsue.campaigns import Campaign, open_home
from depsue.cli.main import app
from depsue.data.writing import write_items, write_logs
from depsue.errors import ConfigError, DepsueError
from depsue.policies import BasePolicy, load, save

ROWS = 6000


@pytest.fixture(scope="module")
def world() -> World:
    return synthetic_world(SyntheticSettings(users=100, supported=10, novel=4, d=3), seed=2)


@pytest.fixture
def team(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_items(world.catalogue, tmp_path / "items.parquet")
    write_logs(world.deploy(world.logging_policy, ROWS, round=0), tmp_path / "may.parquet")
    assert isinstance(world.logging_policy, BasePolicy)
    save(world.logging_policy, tmp_path / "pi0", catalogue=world.catalogue)
    monkeypatch.chdir(tmp_path)
    for name in ("DEPSUE_HOME", "DEPSUE_LEDGER", "DEPSUE_BY"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def run(*arguments: object, answer: str | None = None) -> Result:
    return CliRunner().invoke(app, ["campaign", *(str(one) for one in arguments)], input=answer)


def ok(*arguments: object) -> Any:
    found = run(*arguments, "--json")
    assert found.exit_code == 0, (found.output, found.exception)
    return json.loads(found.output)


def refused(*arguments: object) -> str:
    found = run(*arguments)
    assert isinstance(found.exception, DepsueError), found.output
    return str(found.exception)


CREATE = ("create", "spring", "may.parquet", "items.parquet", "--pi0", "pi0", "--rounds", 2)


def test_a_round_as_the_page_tells_it(team: Path, world: World) -> None:
    assert ok(*CREATE, "--by", "ana")["status"]["next"] == "depsue campaign train spring"
    assert ok("train", "spring")["status"]["next"] == "depsue campaign certify spring"
    verdict = run("certify", "spring", "--quiet")
    assert verdict.exit_code == 0 and "strict certificate" in verdict.output
    declined = run("deploy", "spring", answer="n\n")
    assert declined.exit_code == 1 and "nothing was changed" in declined.output
    assert "Users will see it" in declined.output
    assert ok("status", "spring")["deployments"] == []
    accepted = run("deploy", "spring", "--by", "bo", answer="y\n")
    assert accepted.exit_code == 0 and "by bo" in accepted.output
    written = ok("export", "spring", "--out", "serving")
    facts = {"items.parquet", "mapping.toml", "certificate.json", "export.json"}
    assert set(written["files"]) == {"policy", "scoring.py", "scoring.json", *facts}
    policy = load("serving/policy")
    write_logs(world.deploy(policy, ROWS, round=1), "june.parquet")
    assert f"declared to last {ROWS:,} decisions" in run("status", "spring").output
    message = refused("observe", "spring", "june.parquet", "--json")
    assert "--json does not ask" in message
    declined = run("observe", "spring", "june.parquet", answer="n\n")
    assert declined.exit_code == 1 and "nothing was changed" in declined.output
    assert f"round 1: {ROWS:,} rows" in declined.output and "folds: about" in declined.output
    assert ok("status", "spring")["round"] == 1
    found = ok("observe", "spring", "june.parquet", "--yes")["status"]
    assert (found["round"], found["history"][1]["rows"]) == (2, ROWS)
    assert "campaign spring: round 2 of 2" in run("status").output
    report, story = ok("report", "spring", "--out", "report.html"), ok("status", "spring")
    assert report["page"] == "report.html" and report["report"]["story"] == story
    assert report["report"]["words"]["headline"] in Path("report.html").read_text()
    assert run("rollback", "spring", answer="\n").exit_code == 1
    assert ok("rollback", "spring", "--yes")["status"]["deployments"][-1]["what"] == "pi0"
    assert "deployed  pi0, after a rollback, since" in run("status", "spring").output


def test_reserved_rows_are_pooled_by_a_later_verdict(team: Path, world: World) -> None:
    message = refused(*CREATE, "--reserve", 1.5)
    assert "reserve" in message and "1.5" in message
    ok(*CREATE[:-1], 3, "--no-drift", "--reserve", 0.4)
    for k in (1, 2):
        ok("train", "spring")
        alone = run("certify", "spring", "--quiet")
        assert alone.exit_code == 0 and "pooled" not in alone.output
        ok("deploy", "spring", "--yes")
        ok("export", "spring", "--out", f"serving{k}")
        write_logs(world.deploy(load(f"serving{k}/policy"), ROWS, round=k), f"{k}.parquet")
        ok("observe", "spring", f"{k}.parquet", "--yes")
    ok("train", "spring")
    pooled = run("certify", "spring", "--quiet").output
    assert "reserved are pooled" in " ".join(pooled.split())
    assert "round 3, attempt 1: equal" in run("verify", "spring", "--quiet").output
    assert ok("verify", "spring", "--round", 1)["equal"]
    message = refused("verify", "spring", "--round", 4)
    assert "none of round 4; there is round 1 attempt 1, round 2 attempt 1" in message


def test_a_failed_certificate_has_its_own_exit_code_and_stays_failed(team: Path) -> None:
    ok(*CREATE, "--floor-value", 0.999)
    ok("train", "spring")
    first = run("certify", "spring", "--quiet")
    again = run("certify", "spring", "--quiet", "--json")
    assert (first.exit_code, again.exit_code) == (4, 4)
    assert "failed" in first.output
    assert json.loads(again.output)["status"]["history"][1]["attempt"] == 1
    message = refused("train", "spring", "--seed", 9)
    assert "another candidate would be a second try" in message
    assert "deploy    pi0" in run("status", "spring").output


def test_mistakes_are_one_message_each(team: Path) -> None:
    assert "there must be a ledger" in refused("status", "spring")
    assert "pi0 must be named in a known way" in refused(*CREATE[:4], "--pi0", "nowhere")
    ok(*CREATE)
    assert "there is 'spring'. Cure: check the name" in refused("train", "summer")
    assert "did you mean 'spring'?" in refused("train", "sprnig")
    assert "did you mean 'spring'?" in refused("status", "SPRING")
    assert "promises" in refused(*CREATE, "--floor", 0.9)
    assert "must be one of" in refused(*CREATE[:1], "other", *CREATE[2:], "--safety", "mostly")
    assert "trained before it is certified" in refused("certify", "spring")
    assert "has a verdict before" in refused("deploy", "spring", "--yes")


def test_logs_that_are_not_usable_begin_no_campaign(team: Path) -> None:
    table = pl.read_parquet("may.parquet").with_columns(propensity=pl.lit(1.7))
    table.write_parquet("may.parquet")
    assert "propensit" in refused(*CREATE)
    assert not Path("campaigns/spring").exists()


def test_two_at_once_and_one_hears_who_was_first(team: Path) -> None:
    ok(*CREATE)
    ok("train", "spring")
    campaign = Campaign(open_home("campaigns"), "campaigns", "spring", by="ana")
    candidate = campaign.newest_candidate(1)
    with campaign.ledger.reads("spring", 1, candidate.policy_hash, by="ana") as reads:
        reads.begin(campaign.logs(0).hash)
        with pytest.raises(ConfigError, match="another does so for round 1"):
            CliRunner().invoke(
                app, ["campaign", "certify", "spring", "--by", "bo"], catch_exceptions=False
            )
    after = run("certify", "spring", "--by", "bo", "--quiet")
    assert after.exit_code in (0, 4)
    assert [one.by for one in campaign.ledger.attempts("spring")] == ["ana"]


@pytest.mark.parametrize("step", ["train", "certify"])
def test_an_interrupted_step_goes_on(
    team: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    ok(*CREATE)
    if step == "certify":
        ok("train", "spring")
    where = {"train": "save_candidate", "certify": "certify_round"}[step]

    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(f"depsue.campaigns.campaign.{where}", stop)
        found = run(step, "spring", "--quiet")
    assert found.exit_code == 130 and "the same command goes on" in found.output
    assert run(step, "spring", "--quiet").exit_code in (0, 4)


def test_pi0_may_be_a_word_or_a_table_by_item_and_ids_any_column(team: Path) -> None:
    table = pl.read_parquet("may.parquet")
    supported = pl.read_parquet("items.parquet").filter(~pl.col("novel"))["id"]
    table = table.with_columns(
        action=pl.Series(supported.to_numpy()[pl.int_range(ROWS, eager=True).to_numpy() % 10]),
        propensity=pl.lit(0.1),
    ).sample(fraction=1.0, shuffle=True, seed=0)
    table.write_parquet("may.parquet")
    said = ok(*CREATE[:4], "--pi0", "uniform")["said"]
    assert any("each of the 10 supported items" in one for one in said)
    items = pl.read_parquet("items.parquet").rename({"id": "sku"})
    items.write_csv("items.csv")
    shares = items.filter(~pl.col("novel")).select("sku", probability=pl.lit(0.1))
    shares.rename({"sku": "item"}).write_csv("pi0.csv")
    given = ("may.parquet", "items.csv", "--id", "sku", "--pi0", "pi0.csv")
    said = ok("create", "other", *given)["said"]
    assert any("pi0.csv: one probability per item" in one for one in said)
    assert "--json without --yes" in refused("rollback", "other", "--json")
    shares.rename({"sku": "item"}).with_columns(probability=pl.lit(0.2)).write_csv("pi0.csv")
    assert "sum" in refused("create", "third", *given)


def test_units_and_windows_are_declared_at_creation(team: Path) -> None:
    assert "--units is all-rows or first-row" in refused(*CREATE, "--units", "some")
    assert "a number with s, m, h or d" in refused(*CREATE, "--window", "week")
    assert "a reward window needs the time" in refused(*CREATE, "--window", "7d")
    status = ok(*CREATE, "--units", "first-row")["status"]
    assert status["settings"]["units"] == "first row"
