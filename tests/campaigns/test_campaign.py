"""A campaign from logs to its end, in Python; the truth is known, so promises can be held."""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from depsue import SyntheticSettings, World, codec, synthetic_world
from depsue.campaigns import (
    Campaign,
    CampaignSettings,
    create,
    export_campaign,
    load_export,
    open_home,
    story_of,
)
from depsue.campaigns.records import CandidateFacts, RoundSummary
from depsue.campaigns.settings import CampaignTerms
from depsue.certificates import Certificate, verify
from depsue.check import guess_mapping
from depsue.data.checks import FloatArray
from depsue.data.reading import open_source
from depsue.data.writing import write_items, write_logs
from depsue.errors import ConfigError, DataError, DepsueError, FileError, PolicyError
from depsue.exploration.settings import ExploreSettings
from depsue.files import write_synced
from depsue.ledger import CampaignRecord, Ledger
from depsue.pages.words import sentences
from depsue.policies import (
    BasePolicy,
    ExternalModel,
    OwnPolicy,
    load,
    naive_safe_exploration,
    save,
)
from depsue.policies.base import whole
from depsue.promises import Floor, Promise
from depsue.rewards import RewardSettings

ROWS = 12_000
EXPLORE = ExploreSettings(
    objective="most novelty", deployments=2, rewards=RewardSettings(members=1, max_epochs=3)
)
SETTINGS = CampaignSettings(EXPLORE)


@pytest.fixture(scope="module")
def world() -> World:
    return synthetic_world(SyntheticSettings(users=150, supported=15, novel=5, d=3), seed=1)


@pytest.fixture(scope="module")
def files(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Logs of pi0, items, pi0."""
    folder = tmp_path_factory.mktemp("team")
    write_items(world.catalogue, folder / "items.parquet")
    write_logs(world.deploy(world.logging_policy, ROWS, round=0), folder / "may.parquet")
    save(_saved(world), folder / "pi0", catalogue=world.catalogue)
    return folder


@pytest.fixture(scope="module")
def begun(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with a campaign whose first candidate is trained and certified."""
    home = tmp_path_factory.mktemp("home")
    campaign = _create(home, files)
    campaign.train()
    campaign.certify()
    return home


@pytest.fixture
def home(begun: Path, tmp_path: Path) -> Path:
    """The same, to be gone on with."""
    shutil.copytree(begun, tmp_path / "home")
    return tmp_path / "home"


def _saved(world: World) -> BasePolicy:
    policy = world.logging_policy
    assert isinstance(policy, BasePolicy)
    return policy


def _create(
    home: Path, files: Path, settings: CampaignSettings = SETTINGS, ledger: Ledger | None = None
) -> Campaign:
    return create(
        "spring",
        files / "may.parquet",
        files / "items.parquet",
        pi0=files / "pi0",
        settings=settings,
        by="ana",
        home=home,
        ledger=ledger,
    )


def _open(home: Path, by: str = "ana") -> Campaign:
    return Campaign(open_home(home), home, "spring", by=by)


def _serve(campaign: Campaign, world: World, path: Path, *, rows: int = ROWS) -> Path:
    """What the deployed policy logs."""
    served = campaign.ledger.deployments("spring")[-1]
    policy = campaign.policy(served.round, served.policy_hash)
    write_logs(world.deploy(policy, rows, round=campaign.round), path)
    return path


def test_two_rounds_keep_the_promise_and_show_new_items(
    home: Path, world: World, tmp_path: Path
) -> None:
    campaign = _open(home)
    seen = []
    for k in (1, 2):
        campaign.train()
        campaign.certify()
        deployed = campaign.deploy()
        policy = campaign.policy(k, deployed.policy_hash)
        seen.append((world.value(policy), world.novelty(policy)))
        campaign.observe(_serve(campaign, world, tmp_path / f"{k}.parquet"))
    assert all(value >= 0.95 * world.value(world.logging_policy) for value, _ in seen)
    assert all(novelty >= 0.05 for _, novelty in seen) and seen[1][1] > seen[0][1]
    found = story_of(campaign)
    assert (found.round, found.rounds) == (3, 2) and found.next == "depsue campaign report spring"
    assert [one.rows for one in found.history] == [ROWS] * 3
    outcome = found.promises[0].outcomes[1]
    assert outcome.margin == pytest.approx(((outcome.mean or 0.0) - outcome.need) * ROWS)
    with pytest.raises(ConfigError, match="a campaign of 2 rounds has 2 deployments"):
        campaign.train()


def test_every_step_again_is_the_same_step(home: Path, files: Path) -> None:
    campaign = _open(home)
    before = campaign.ledger.journal()
    _create(home, files)
    again = _open(home)
    assert again.train() == campaign.newest_candidate(1)
    assert again.certify() == campaign.ledger.attempts("spring")[0]
    assert [one.id for one in again.ledger.journal()] == [one.id for one in before]
    first = again.deploy()
    assert again.deploy() == first and len(again.ledger.deployments("spring")) == 1


def test_the_verdict_is_of_the_saved_files_and_can_be_recomputed(home: Path) -> None:
    campaign = _open(home)
    attempt = campaign.certify()
    assert attempt.certificate is not None and attempt.certified is not None
    certificate = Certificate.from_json(attempt.certificate)
    model = campaign.model(campaign.newest_candidate(1))
    policy = load(campaign.folder_of(1, attempt.certified))
    found = verify(certificate, campaign.logs(0), policy, base=campaign.pi0, model=model)
    assert found.equal, str(found)


def test_a_candidate_whose_files_were_changed_is_refused_and_nothing_is_read(
    files: Path, tmp_path: Path
) -> None:
    campaign = _create(tmp_path / "home", files)
    made = campaign.train()
    folder = campaign.files.candidate(1, made.policy_hash)
    shutil.rmtree(folder / "old")
    save(load(files / "pi0"), folder / "old", catalogue=campaign.files.items(0))
    if CandidateFacts.of(made).old != campaign.terms.pi0:
        with pytest.raises(FileError, match="must be those that were recorded"):
            campaign.certify()
    array = next((folder / "new").glob("*.safetensors"))
    content = bytearray(array.read_bytes())
    content[-1] ^= 1
    array.write_bytes(bytes(content))
    with pytest.raises(FileError):
        campaign.certify()
    assert campaign.ledger.attempts("spring") == ()


@pytest.mark.parametrize("after", [0, 3, 6])
def test_a_full_disk_is_said_and_the_next_try_works(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    campaign = _create(tmp_path / "home", files)
    written = write_synced
    count = iter(range(1000))

    def full(path: Path, content: bytes, **mode: bool) -> None:
        if next(count) >= after:
            raise OSError(errno.ENOSPC, "No space left on device")
        written(path, content, **mode)

    with monkeypatch.context() as patch:
        patch.setattr("depsue.files.write_synced", full)
        with pytest.raises(FileError, match="No space left on device"):
            campaign.train()
    assert campaign.ledger.candidates("spring") == ()
    campaign.train()
    assert campaign.certify().state in ("passed", "failed")


def test_a_policy_with_a_flipped_bit_is_not_deployed(home: Path) -> None:
    campaign = _open(home)
    certified = next(one for one in campaign.choices() if one.what == "certified")
    folder = campaign.folder_of(1, campaign.hash_of_choice(1, certified))
    array = next(folder.glob("*.safetensors"))
    sound = array.read_bytes()
    array.write_bytes(sound[:-1] + bytes([sound[-1] ^ 1]))
    with pytest.raises(FileError, match="damaged"):
        campaign.deploy("certified")
    assert campaign.ledger.deployments("spring") == ()
    array.write_bytes(sound)
    campaign.deploy("certified")


def test_logs_that_changed_since_they_were_observed_are_refused(
    files: Path, tmp_path: Path, world: World
) -> None:
    team = tmp_path / "team"
    shutil.copytree(files, team)
    campaign = _create(tmp_path / "home", team)
    write_logs(world.deploy(world.logging_policy, ROWS, round=7), team / "may.parquet")
    with pytest.raises(FileError, match="must be as they were observed"):
        campaign.train()


def test_rows_of_another_policy_are_refused(home: Path, world: World, tmp_path: Path) -> None:
    campaign = _open(home)
    campaign.deploy("certified")
    logs = world.deploy(world.logging_policy, 3000, round=1)
    write_logs(logs, tmp_path / "wrong.parquet")
    with pytest.raises(DataError, match="propensities must be those of the deployed policy"):
        campaign.observe(tmp_path / "wrong.parquet")
    assert campaign.round == 1


def test_rows_that_pi0s_logs_lost_are_no_matter_of_later_rounds(
    files: Path, world: World, tmp_path: Path
) -> None:
    shutil.copytree(files, tmp_path / "team")
    path = tmp_path / "team" / "may.parquet"
    before = pl.read_parquet(path)  # as a pi0 logged that showed further items in a tenth
    before.with_columns(propensity=0.9 * pl.col("propensity")).write_parquet(path)
    mapping = replace(guess_mapping(open_source(path))[0], kept=0.9)
    campaign = create(
        "spring",
        path,
        files / "items.parquet",
        pi0=files / "pi0",
        mapping=mapping,
        settings=SETTINGS,
        by="ana",
        home=tmp_path / "home",
    )
    campaign.train()
    made = Certificate.from_json(campaign.certify().certificate or "")
    assert any("0.9, was kept" in one for one in made.assumptions)
    campaign.deploy()
    seen = campaign.observe(_serve(campaign, world, tmp_path / "june.parquet", rows=3000))
    assert seen.round == 1 and campaign.files.mapping(1).kept == 1


def test_the_same_rows_are_one_observation_wherever_they_lie(
    home: Path, world: World, tmp_path: Path
) -> None:
    campaign = _open(home)
    campaign.deploy()
    path = _serve(campaign, world, tmp_path / "june.parquet", rows=3000)
    first = campaign.observe(path)
    assert campaign.observe(path) == first
    assert campaign.notes == ("already observed as round 1; nothing was changed",)
    path.rename(tmp_path / "moved.parquet")
    with pytest.raises(FileError, match="the logs of round 1 must be where they were observed"):
        campaign.train()
    assert campaign.observe(tmp_path / "moved.parquet") == first
    assert "from now on they are read at" in campaign.notes[0]
    assert len(campaign.ledger.observations("spring")) == 2
    assert len(campaign.logs(1)) == 3000


def test_rows_of_an_earlier_round_are_not_those_that_are_due(home: Path, files: Path) -> None:
    campaign = _open(home)
    campaign.deploy()
    with pytest.raises(ConfigError, match="round 1 waits for rows of its own"):
        campaign.observe(files / "may.parquet")


def test_an_export_decides_on_a_teams_own_columns(home: Path, world: World, tmp_path: Path) -> None:
    campaign = _open(home)
    deployed = campaign.deploy()
    export_campaign(campaign, tmp_path / "out")
    served = load_export(tmp_path / "out")
    rows = [{"x0": x[0], "x1": x[1], "x2": x[2], "other": 1} for x in world.contexts[:50].tolist()]
    np.testing.assert_allclose(served.contexts(rows), world.contexts[:50], rtol=1e-6)
    items, probabilities = served.decide(rows, np.random.default_rng(0))
    policy = campaign.policy(1, deployed.policy_hash)
    places = [world.catalogue.ids.tolist().index(one) for one in items]
    own = np.exp(policy.log_prob(world.contexts[:50], np.array(places)))
    np.testing.assert_allclose(probabilities, own, rtol=1e-5)
    with pytest.raises(ConfigError, match="row 0 lacks x2"):
        served.decide([{"x0": 0.0, "x1": 0.0}], np.random.default_rng(0))


def test_after_a_rollback_the_rows_of_either_policy_can_be_observed(
    home: Path, world: World, tmp_path: Path
) -> None:
    campaign = _open(home)
    deployed = campaign.deploy("certified")
    path = _serve(campaign, world, tmp_path / "june.parquet", rows=3000)
    back = campaign.rollback()
    assert back.kind == "rollback" and campaign.policy(1, back.policy_hash) is campaign.pi0
    assert "deployed  pi0, after a rollback" in str(story_of(campaign))
    assert RoundSummary.of(campaign.observe(path)).served == deployed.policy_hash


def test_a_failed_certificate_leaves_what_is_certain(files: Path, tmp_path: Path) -> None:
    settings = replace(EXPLORE, promises=(Promise(Floor(None, 0.99)),))
    campaign = _create(tmp_path / "home", files, CampaignSettings(settings))
    campaign.train()
    attempt = campaign.certify()
    assert attempt.passed is False
    assert [one.what for one in campaign.choices()] == ["pi0"]
    with pytest.raises(ConfigError, match="what may be deployed now is one of pi0"):
        campaign.deploy("certified")
    assert campaign.deploy().policy_hash == campaign.terms.pi0


def test_what_is_certain_shows_the_new_items_evenly(home: Path, world: World) -> None:
    campaign = _open(home)
    certain = next(one for one in campaign.choices() if one.what == "certain")
    policy = campaign.policy(1, campaign.hash_of_choice(1, certain))
    own = naive_safe_exploration(world.logging_policy, world.catalogue, certain.novelty)
    requests = world.deploy(world.logging_policy, 20, round=0).contexts
    np.testing.assert_allclose(whole(policy, requests), whole(own, requests), rtol=1e-6)
    assert "beside pi0, even over the new items, is certain" in certain.why
    campaign.deploy("certain")
    story = story_of(campaign)
    assert story.deployed is not None and story.deployed.even
    assert ", even over the new items, since" in str(story)
    assert "evenly among those at hand." in sentences(story).deployed


def test_a_verdict_cannot_be_retried_with_another_candidate(home: Path) -> None:
    with pytest.raises(ConfigError, match="another candidate would be a second try"):
        _open(home).train(seed=5)


def test_declared_retries_are_counted_and_cost_delta(files: Path, tmp_path: Path) -> None:
    campaign = _create(tmp_path / "home", files, replace(SETTINGS, retries=True))
    found = []
    for seed in (None, 5):
        campaign.train(seed=seed)
        attempt = campaign.certify()
        assert attempt.certificate is not None
        found.append((attempt.attempt, json.loads(attempt.certificate)["delta"]))
        assert story_of(campaign).history[1].verdict == attempt.state
    assert found == [(1, 0.025), (2, 0.0125)]


def test_with_retries_what_passed_stays_on_offer(files: Path, tmp_path: Path) -> None:
    campaign = _create(tmp_path / "home", files, replace(SETTINGS, retries=True))
    campaign.train()
    first = campaign.certify()
    assert first.passed
    campaign.deploy("certified")
    second = campaign.train(seed=5)
    assert "deployed  the certified policy of round 1, novelty" in str(story_of(campaign))
    with campaign.ledger.reads("spring", 1, second.policy_hash, by="ana") as reads:
        attempt = reads.begin(first.data_hash)
        failed = replace(
            Certificate.from_json(first.certificate or ""), attempt=attempt, policy="0" * 64
        )
        verdict = replace(failed.verdicts[0], need=9.0)
        reads.finish(replace(failed, verdicts=(verdict,)))
    assert campaign.ledger.attempts("spring")[-1].passed is False
    offered = {one.what: one for one in campaign.choices()}
    assert campaign.hash_of_choice(1, offered["certified"]) == first.certified


def test_another_campaign_on_the_same_rows_is_no_second_throw(home: Path, files: Path) -> None:
    other = create(
        "summer",
        files / "may.parquet",
        files / "items.parquet",
        pi0=files / "pi0",
        settings=SETTINGS,
        by="bo",
        home=home,
        ledger=open_home(home),
    )
    other.train()
    with pytest.raises(ConfigError, match="are read by one verdict"):
        other.certify()


def test_items_that_arrive_are_shown_and_those_withdrawn_are_not(
    home: Path, world: World, tmp_path: Path
) -> None:
    campaign = _open(home)
    campaign.deploy()
    path = _serve(campaign, world, tmp_path / "june.parquet")
    table = pl.read_parquet(campaign.files.round(0) / "items.parquet")
    fresh = table.tail(2).with_columns(id=pl.col("id") + 1000)
    table = pl.concat([fresh, table])  # in any order
    gone = [int(table["id"][-1]), int(table.filter(~pl.col("novel"))["id"][0])]
    table.with_columns(withdrawn=pl.col("id").is_in(gone)).write_parquet(tmp_path / "items.parquet")
    seen = RoundSummary.of(campaign.observe(path, items=tmp_path / "items.parquet"))
    assert len(seen.arrived) == 2
    assert sorted(seen.withdrawn) == sorted(str(one) for one in gone)
    campaign.train()
    attempt = campaign.certify()
    assert attempt.certificate is not None
    said = " ".join(json.loads(attempt.certificate)["assumptions"])
    assert "items that arrived before these rows were certified on: 2;" in said
    assert "items that are withdrawn: 2;" in said
    items = campaign.files.items(1)
    contexts = world.contexts[:20]
    for what in ("certified", "certain", "pi0"):
        if what not in {one.what for one in campaign.choices()}:
            continue
        deployed = campaign.deploy(what)
        pi = campaign.policy(2, deployed.policy_hash)
        shown = np.concatenate([p for _, p in pi.distributions(contexts)])
        assert shown.shape[1] == len(items) == len(world.catalogue) + 2
        assert shown[:, np.isin(items.ids, gone)].max() == 0.0
        assert shown.sum(axis=1) == pytest.approx(1.0)
        new = np.isin(items.ids, [int(one) for one in seen.arrived])
        assert (shown[:, new].min() > 0) == (what != "pi0")


def test_an_items_file_that_forgets_an_item_is_refused(
    home: Path, world: World, tmp_path: Path
) -> None:
    campaign = _open(home)
    campaign.deploy()
    path = _serve(campaign, world, tmp_path / "june.parquet", rows=3000)
    table = pl.read_parquet(campaign.files.round(0) / "items.parquet")
    table.head(len(table) - 1).write_parquet(tmp_path / "items.parquet")
    with pytest.raises(DataError, match="lists every item that the campaign has known"):
        campaign.observe(path, items=tmp_path / "items.parquet")
    assert campaign.round == 1


@pytest.mark.parametrize("name", ["", "../up", "a b", "x" * 65, "-x"])
def test_a_name_that_is_no_folder_is_refused(name: str, files: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="it names a folder"):
        create(name, files / "may.parquet", files / "items.parquet", pi0="uniform", by="ana",
               home=tmp_path)  # fmt: skip


def test_pi0_may_be_a_callable_that_is_named(world: World, files: Path, tmp_path: Path) -> None:
    def ranker(contexts: FloatArray) -> FloatArray:
        return whole(world.logging_policy, contexts)

    home = tmp_path / "home"
    campaign = create(
        "spring",
        files / "may.parquet",
        files / "items.parquet",
        pi0=OwnPolicy(ExternalModel("ranker-7", ranker), len(world.catalogue)),
        settings=SETTINGS,
        by="ana",
        home=home,
    )
    campaign.train()
    with pytest.raises(PolicyError, match="'ranker-7' is not at hand"):
        _open(home).certify()  # the command line cannot call it
    assert campaign.ledger.attempts("spring") == ()
    again = Campaign(open_home(home), home, "spring", by="bo", outside={"ranker-7": ranker})
    attempt = again.certify()
    assert attempt.certificate is not None and "ranker-7" in attempt.certificate
    deployed = again.deploy()
    policy = again.policy(1, deployed.policy_hash)
    assert world.value(policy) > 0.95 * world.value(world.logging_policy)


def test_settings_survive_the_ledger() -> None:
    explore = replace(
        EXPLORE,
        promises=(Promise(), Promise(Floor(None, 0.1), "new", segment=("country", "SE"))),
        objective=0.7,
        safety="cumulative",
    )
    terms = CampaignTerms(CampaignSettings(explore, 3, True, 500), pi0="a" * 64, catalogue="b" * 64)
    values = json.loads(json.dumps(codec.plain(terms)))
    record = CampaignRecord("spring", 2, True, values, datetime.now(UTC), "ana")
    assert CampaignTerms.of(record) == terms
    values["campaign"]["explore"]["unknown"] = 1
    with pytest.raises(FileError, match=r"settings of campaign 'spring'.*explore.unknown"):
        CampaignTerms.of(record)


def test_what_is_not_there_yet_is_said(files: Path, tmp_path: Path) -> None:
    campaign = _create(tmp_path / "home", files)
    for step, words in (
        (campaign.certify, "trained before it is certified"),
        (campaign.deploy, "has a verdict before something is deployed"),
    ):
        with pytest.raises(DepsueError, match=words):
            step()
    with pytest.raises(ConfigError, match="after something was deployed"):
        other = tmp_path / "other.parquet"
        pl.read_parquet(files / "may.parquet").head(500).write_parquet(other)
        campaign.observe(other)


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("DEPSUE_HOME", raising=False)
    yield
