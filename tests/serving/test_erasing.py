"""A user's rows are erased from the store, the journal, the logs and the exports."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl
import pytest
import sqlalchemy as sa
from tests.database.conftest import Server
from tests.serving.asgi import Caller, caller
from tests.serving.conftest import Clock, Log, Serve, seeded_chance
from typer.testing import CliRunner

from depsue import SyntheticSettings, Uniform, synthetic_world
from depsue.campaigns import (
    Campaign,
    CampaignSettings,
    create,
    open_home,
    recompute,
    story_of,
)
from depsue.campaigns.records import CandidateFacts
from depsue.campaigns.secret import rotate_secret, secret_of
from depsue.certificates import Certificate, three_folds, verify
from depsue.cli.main import app
from depsue.data.logs import LoggedData
from depsue.data.writing import write_items, write_logs
from depsue.errors import ConfigError, FileError
from depsue.exploration.settings import ExploreSettings
from depsue.policies.tilted import Tilted
from depsue.promises import Floor, Promise
from depsue.rewards import fit_linear
from depsue.serving.account import recent_decisions
from depsue.serving.erasing import Erasure, erase_unit, preview_erasure
from depsue.serving.exporting import export_served
from depsue.serving.journal import Journal, journal_lines
from depsue.serving.schema import decisions, rewards
from depsue.serving.service import Service
from depsue.serving.settings import JOURNAL, ServingSettings, declared
from depsue.serving.store import Store

USER = "visitor-8421-xyzzy"
MARK = 0.123456789012
"""A context that only this user has."""
EARNED = 0.731519
"""And a reward."""
ROWS, USERS = 6000, 2000


def _with_users(logs: LoggedData, first: int = 0) -> LoggedData:
    """Three rows a user, spread over the log."""
    ids = np.array([f"user-{first + k}" for k in range(USERS)])
    return replace(logs, unit=(np.arange(ROWS) % USERS).astype(np.int32), units=ids)


@pytest.fixture(scope="session")
def made_with_users(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A campaign whose rows have users, certified on the team's own file; round 1 is deployed."""
    folder = tmp_path_factory.mktemp("users")
    world = synthetic_world(SyntheticSettings(users=40, supported=6, novel=2, d=3), seed=2)
    known = Uniform(~world.catalogue.novel)
    pi0 = Tilted(known, fit_linear(world.deploy(known, 3000, round=0)), strength=1.0, cap=50.0,
                 scale=0.05)  # fmt: skip
    write_items(world.catalogue, folder / "items.parquet")
    write_logs(_with_users(world.deploy(pi0, ROWS, round=0)), folder / "may.parquet")
    explore = ExploreSettings(
        promises=(Promise(floor=Floor(ratio=0.8)),), deployments=2, units="all rows"
    )
    spring = create("spring", folder / "may.parquet", folder / "items.parquet", pi0=pi0, by="ana",
                    home=folder / "campaigns", settings=CampaignSettings(explore))  # fmt: skip
    spring.train()
    assert spring.certify().state == "passed"
    spring.deploy(decisions=712)
    return folder


@pytest.fixture
def team(made_with_users: Path, tmp_path: Path) -> Path:
    """The folder of the team, the test's own copy."""
    copy = Path(shutil.copytree(made_with_users, tmp_path / "team"))
    _campaign(copy)
    return copy


@pytest.fixture
def home(team: Path) -> Path:
    """Its folder of campaigns."""
    return team / "campaigns"


@pytest.fixture(scope="session")
def made_observed(made_with_users: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same after round 1 was served and observed; nothing serves any more."""
    folder = Path(shutil.copytree(made_with_users, tmp_path_factory.mktemp("observed") / "team"))
    home, clock = folder / "campaigns", Clock()
    campaign = _campaign(folder)
    declared(campaign.files.folder, {"wait": 3.0}, begun=False)
    service = Service(
        campaign,
        ServingSettings(wait=3.0),
        clock=clock,
        refresh=3600.0,
        chance=seeded_chance(),
    )
    service.start()
    call = caller(service, home)
    _serve_users(call)
    clock.advance(4.0)
    service.close()
    written = export_served(campaign, None)
    by_pi0 = written.holdout + written.fallback
    campaign.observe(
        written.path, mapping=written.mapping, decisions=written.decisions, by_pi0=by_pi0
    )
    return folder


@pytest.fixture
def observed(made_observed: Path, tmp_path: Path) -> Campaign:
    """A campaign whose round 1 was served and observed, the test's own copy."""
    return _campaign(Path(shutil.copytree(made_observed, tmp_path / "observed")))


def _campaign(folder: Path) -> Campaign:
    home = folder / "campaigns"
    campaign = Campaign(open_home(home), home, "spring", by="ana")
    campaign.files.save_place(0, str(folder / "may.parquet"))
    if campaign.round > 1:
        campaign.files.save_place(1, str(campaign.files.round(1) / "served.parquet"))
    return campaign


def _asked(user: int | str, key: str) -> dict[str, Any]:
    middle = MARK if user == USER else 1.0
    return {"context": {"x0": 0.0, "x1": middle, "x2": 2.0}, "unit": user, "key": key}


def _decide(call: Caller, users: Sequence[int | str], start: int = 0) -> list[dict[str, Any]]:
    """A decision for each, under a key that names the user and counts."""
    asked = [_asked(user, f"{user!r} order {start + k}") for k, user in enumerate(users)]
    reply = call.post("/v1/decide/batch", {"decisions": asked})
    assert reply.status == 200, reply.text
    made: list[dict[str, Any]] = reply.json["decisions"]
    return made


def _reward(call: Caller, made: Sequence[dict[str, Any]], value: float) -> None:
    body = [{"decision": each["decision"], "reward": value} for each in made]
    assert call.post("/v1/reward/batch", {"rewards": body}).status == 200


def _serve_users(call: Caller) -> None:
    """Decisions of many users, of whom one will be forgotten."""
    _reward(call, _decide(call, [f"user-{k}" for k in range(350)]), 0.5)
    _reward(call, _decide(call, [USER] * 12), EARNED)
    _reward(call, _decide(call, [f"user-{k}" for k in range(350, 700)]), 0.5)


def _users(logs: LoggedData) -> list[str]:
    assert logs.units is not None
    users: list[str] = logs.units.tolist()
    return users


def _traces(folder: Path, *more: str) -> Iterator[str]:
    """Where the user's id, keys, context or reward is still found, in whatever file."""
    texts = [USER.encode(), repr(MARK).encode(), repr(EARNED).encode(), *(m.encode() for m in more)]
    for value in (MARK, EARNED):
        texts += [struct.pack("<d", value), struct.pack(">d", value)]
    for path in sorted(folder.rglob("*")):
        if not path.is_file():
            continue
        content = path.read_bytes()
        yield from (f"{text!r} in {path}" for text in texts if text in content)
        if path.suffix == ".parquet":  # its columns are compressed
            table = pl.read_parquet(path)
            for name in table.columns:
                values = {str(value) for value in table[name].to_list()}
                found = values & {USER, str(MARK), str(EARNED), *more}
                yield from (f"{value} in {name} of {path}" for value in found)


def test_nothing_of_a_user_is_found_afterwards(observed: Campaign) -> None:
    campaign = observed
    team = campaign.files.folder.parent.parent
    elsewhere = team / "june.parquet"
    export_served(campaign, None, elsewhere, round=1)
    assert len(list(_traces(campaign.files.folder))) > 5
    preview = preview_erasure(campaign, USER)
    rows = (preview.rounds or {})[1]
    assert (preview.decisions, preview.rewards) == (12, 12) and 0 < rows <= 12
    assert {file.path.name for file in preview.files} == {"served.parquet", "june.parquet"}
    erased = erase_unit(campaign, USER)
    assert replace(erased, begun="") == replace(preview, begun="")
    assert list(_traces(team)) == []
    store = Store(campaign.files.folder / "decisions.db", "spring")
    assert sum(row.decisions for row in store.erased()) == 12
    assert store.counts()["rewards"] == 700
    logs = campaign.logs(1)
    assert len(logs) == campaign.ledger.observations("spring")[1].rows
    assert USER not in _users(logs) and logs.erased[0].rows == rows
    (record,) = campaign.ledger.erasures("spring")
    assert record.counts == erased.counts and record.finished_by == "ana"
    assert record.unit == secret_of(campaign).hidden("unit", USER) != USER
    assert f"round 1: {rows} rows erased on request of users" in str(story_of(campaign))


def test_the_command_shows_asks_and_erases(observed: Campaign) -> None:
    campaign, home = observed, str(observed.files.folder.parent)
    command = ["erase", "spring", "--unit", USER, "--home", home]
    before = _content(campaign.files.folder)
    asked = CliRunner().invoke(app, command, input="n\n")
    assert asked.exit_code == 1 and "store: 12 decisions and 12 rewards" in asked.output
    assert "This cannot be undone. Erase it?" in asked.output
    assert _content(campaign.files.folder) == before
    done = CliRunner().invoke(app, [*command, "--yes"])
    assert done.exit_code == 0 and done.output.startswith("erased\nstore: 12 decisions")
    assert list(_traces(campaign.files.folder)) == []
    again = CliRunner().invoke(app, command)  # there is nothing to ask about
    assert again.exit_code == 0 and again.output.startswith("nothing was changed\n")
    as_json = json.loads(CliRunner().invoke(app, [*command, "--json"]).output)
    assert as_json["erased"] is False and as_json["decisions"] == 0


def test_pages_do_not_guess_what_a_tombstone_showed(observed: Campaign) -> None:
    campaign = observed
    store = Store(campaign.files.folder / "decisions.db", "spring")
    catalogue = campaign.files.items(0)
    assert catalogue.novel[-1]
    mine = {row.seq for row in store.read(columns=["unit"])[0] if USER in str(row.unit)}
    others = [row for row in store.read(columns=["action"])[0] if row.seq not in mine]
    erase_unit(campaign, USER)
    counts = recent_decisions(store, catalogue, "p", is_pi0=False, most=1000).counts
    assert counts.new == sum(bool(catalogue.novel[row.action]) for row in others)
    assert counts.all == len(others) + 12


def test_it_is_idempotent_and_an_unknown_user_changes_nothing(observed: Campaign) -> None:
    campaign = observed
    before = _content(campaign.files.folder)
    assert erase_unit(campaign, "nobody").is_empty
    assert "no row of this unit" in str(preview_erasure(campaign, "nobody"))
    assert _content(campaign.files.folder) == before and campaign.ledger.erasures("spring") == ()
    erase_unit(campaign, USER)
    after = _content(campaign.files.folder)
    again = erase_unit(campaign, USER)
    assert again.is_empty and "erased before" in str(again)
    assert _content(campaign.files.folder) == after
    assert len(campaign.ledger.erasures("spring")) == 1


def _content(folder: Path) -> dict[str, bytes]:
    return {
        str(path): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.name.endswith(("-shm", "-wal", ".lock"))
    }


@pytest.mark.parametrize("stage", ["store", "journal", "files", "done"])
def test_a_crash_in_the_middle_is_resumed(
    stage: str, observed: Campaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    campaign = observed
    whole = campaign.logs(1)

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as at:
        if stage == "store":
            at.setattr(Store, "erase", killed)
        if stage == "journal":
            at.setattr(Journal, "erase", killed)
        if stage == "files":
            at.setattr("depsue.serving.erasing.write_file", killed)
        if stage == "done":
            at.setattr(campaign.ledger, "finish_erasure", killed)
        with pytest.raises(KeyboardInterrupt):
            erase_unit(campaign, USER)
    # from the first record on the round is without the rows, in whatever state its file is
    logs = campaign.logs(1)
    assert USER in _users(whole) and USER not in _users(logs)
    assert "An erasure was cut short" in str(story_of(campaign))
    assert "was not finished" in str(preview_erasure(campaign, USER))
    erase_unit(campaign, USER)
    assert campaign.logs(1).hash == logs.hash
    assert list(_traces(campaign.files.folder)) == []
    assert all(record.finished_at for record in campaign.ledger.erasures("spring"))
    assert "cut short" not in str(story_of(campaign))


def test_the_team_file_is_named_and_read_without_the_rows(campaign: Campaign, team: Path) -> None:
    may, whole = team / "may.parquet", campaign.logs(0)
    content = may.read_bytes()
    erased = erase_unit(campaign, "user-7")
    (file,) = erased.outside
    assert (file.path, file.rows, file.round) == (may, 3, 0) and erased.files == ()
    assert f"not ours to change: 3 rows of round 0 in {may} (SHA-256 " in str(erased)
    assert may.read_bytes() == content
    left = campaign.logs(0)
    assert len(left) == ROWS - 3 and "user-7" not in _users(left)
    erase_unit(campaign, "user-8")
    assert len(campaign.logs(0)) == ROWS - 6
    assert "user-7" in str(preview_erasure(campaign, "user-7").outside) or erased.outside
    # once the team has deleted them, its file is what is left; in one step or in two
    table = pl.read_parquet(may)
    table.filter(pl.col("unit") != "user-7").write_parquet(may)
    assert len(campaign.logs(0)) == ROWS - 6
    table.filter(~pl.col("unit").is_in(["user-7", "user-8"])).write_parquet(may)
    assert campaign.logs(0).hash == campaign.ledger.observations("spring")[0].data_hash
    assert preview_erasure(campaign, "user-7").outside == ()
    table.filter(pl.col("unit") != "user-9").write_parquet(may)  # nobody asked for that
    with pytest.raises(FileError, match="without the rows that were erased since"):
        campaign.logs(0)
    assert whole.hash == campaign.ledger.attempts("spring")[0].data_hash


def test_folds_of_the_others_do_not_change(campaign: Campaign, team: Path) -> None:
    def folds() -> dict[str, set[str]]:
        logs, registration = campaign.logs(0), campaign.ledger.registration("spring", 0)
        split = three_folds(logs, registration, units="all rows", group=(1, 2))
        parts = {"learn": split.learn, "select": split.select, "certify": split.certify}
        return {name: set(_users(rows)) for name, rows in parts.items()}

    before = folds()
    for user in ("user-11", "user-1200", "user-1999"):
        erase_unit(campaign, user)
    gone = {"user-11", "user-1200", "user-1999"}
    assert folds() == {name: users - gone for name, users in before.items()}


def _users_by_fold(campaign: Campaign) -> dict[str, list[str]]:
    logs, registration = campaign.logs(0), campaign.ledger.registration("spring", 0)
    split = three_folds(logs, registration, units="all rows", group=(1, 2))
    return {"learn": _users(split.learn), "certify": _users(split.certify)}


def test_verify_says_what_is_missing(campaign: Campaign) -> None:
    assert recompute(campaign, 1, 1).equal
    users = _users_by_fold(campaign)
    erase_unit(campaign, users["learn"][0])
    whole = recompute(campaign, 1, 1)
    assert whole.equal and whole.erased == 3
    assert "3 rows erased after the verdict, none of which it had read" in str(whole)
    for user in users["certify"][:2]:
        erase_unit(campaign, user)
    found = recompute(campaign, 1, 1)
    assert not found.equal and found.differences == () and found.erased == 9
    assert "9 rows of round 0 erased after the verdict" in str(found)
    assert "2 of " in str(found) and "on the others the mean is" in str(found)
    assert "differs" not in str(found) and "tamper" not in str(found)


def test_an_erasure_is_no_cover_for_an_edited_certificate(campaign: Campaign) -> None:
    candidate, attempt = campaign.decided(1) or pytest.fail("no verdict")
    certificate = Certificate.from_json(attempt.certificate or "")
    erase_unit(campaign, _users_by_fold(campaign)["certify"][0])
    policy, model = campaign.policy(1, attempt.certified or ""), campaign.model(candidate)
    for change in ({"mean": certificate.verdicts[0].mean + 0.1}, {"n": 10_000}):
        verdicts = tuple(replace(each, **change) for each in certificate.verdicts)
        edited = replace(certificate, verdicts=verdicts)
        found = verify(edited, campaign.logs(0), policy, base=campaign.pi0, model=model)
        assert found.differences


def test_what_is_erased_before_a_verdict_counts_at_its_worst(observed: Campaign) -> None:
    campaign = observed
    state = campaign.state()
    folds = state.inputs(600).folds
    user = _users(folds.certify)[0]
    erase_unit(campaign, user)
    left = campaign.state().inputs(600)
    assert left.folds.erased == 1 and not left.fixed_length
    assert len(_users(left.folds.certify)) == len(_users(folds.certify)) - 1
    assert left.folds.learn.hash == folds.learn.hash
    campaign.train()
    facts = CandidateFacts.of(campaign.newest_candidate(2))
    assert facts.bound in ("betting", "smoothing")
    attempt = campaign.certify()
    certificate = Certificate.from_json(attempt.certificate or "")
    assert certificate.erased == 1 and certificate.verdicts[0].n == len(_users(folds.certify))
    assert "were erased before the verdict" in str(certificate)
    assert recompute(campaign, 2, 1).equal


def test_a_missing_row_is_a_decision_without_a_row(observed: Campaign) -> None:
    campaign = observed
    before = campaign.summaries()[1]
    erased = erase_unit(campaign, USER)
    after = campaign.summaries()[1]
    assert after.rows == before.rows - (erased.rounds or {})[1]
    assert after.decisions == before.rows == 712 and after.by_pi0 == before.by_pi0
    assert campaign.state().served[0].unobserved > 0
    assert campaign.decisions(campaign.state()) == before.rows


def test_decisions_erased_before_they_are_observed_are_counted(
    campaign: Campaign, serve: Serve, home: Path, clock: Clock
) -> None:
    service = serve(wait=3.0)
    _serve_users(caller(service, home))
    declared(campaign.files.folder, {"wait": 3.0}, begun=False)
    clock.advance(4.0)
    service.close()
    whole = export_served(campaign, None, home / "whole.parquet")
    erase_unit(campaign, USER)
    left = export_served(campaign, None)
    assert left.decisions == whole.decisions == 712
    assert (left.holdout, left.fallback) == (whole.holdout, whole.fallback)
    assert left.erased == whole.rows - left.rows > 0
    assert f"{left.erased} that were erased" in str(left)


def test_numbers_and_texts_are_one_unit(
    campaign: Campaign, serve: Serve, home: Path, clock: Clock
) -> None:
    service = serve(wait=3.0)
    call = caller(service, home)
    _decide(call, [42, 42, "42", "042"])
    service.close()
    assert preview_erasure(campaign, 42).decisions == 3
    assert erase_unit(campaign, "42").decisions == 3
    assert preview_erasure(campaign, "042").decisions == 1
    for wrong in ("", " ", True, 4.2):
        with pytest.raises(ConfigError, match="named by its id"):
            preview_erasure(campaign, wrong)  # type: ignore[arg-type]


def test_a_running_service_on_a_file_is_named(
    campaign: Campaign, service: Service, home: Path
) -> None:
    _decide(caller(service, home), [USER] * 2)
    assert preview_erasure(campaign, USER).decisions == 2
    with pytest.raises(ConfigError, match="stop the service, erase, start it again"):
        erase_unit(campaign, USER)
    assert campaign.ledger.erasures("spring") == ()


def test_an_erased_key_is_never_decided_again(
    campaign: Campaign, serve: Serve, home: Path, clock: Clock
) -> None:
    first = serve(wait=60.0)
    made = _decide(caller(first, home), [USER] * 2)
    first.close()
    erase_unit(campaign, USER)
    rotate_secret(campaign)  # what was erased is known by the first version
    service = serve(wait=60.0)
    call = caller(service, home)
    body = _asked(USER, f"{USER!r} order 0")
    reply = call.post("/v1/decide", body)
    assert reply.status == 409 and "was erased" in reply.text and USER not in reply.text
    others = [{**body, "key": f"new {k}", "unit": f"user-{k}"} for k in range(3)]
    refused = call.post("/v1/decide/batch", {"decisions": [body, *others]})
    assert refused.status == 409  # all of a call, or nothing of it
    assert call.post("/v1/decide/batch", {"decisions": others}).status == 200
    assert call.post("/v1/decide", {**body, "key": "again"}).status == 200  # a user may return
    # a reward that comes late is answered, and not kept
    late = {"decision": made[0]["decision"], "reward": EARNED}
    assert call.post("/v1/reward", late).status == 200
    assert service.reader.counts()["rewards"] == 0


def test_what_waits_in_the_journal_is_erased_too(
    campaign: Campaign, serve: Serve, home: Path, log: Log
) -> None:
    service = serve(wait=60.0)
    call = caller(service, home)
    _reward(call, _decide(call, [USER] * 2), EARNED)
    _decide(call, ["user-1"] * 2)
    service.close()
    store = Store(campaign.files.folder / "decisions.db", "spring")
    keys = [f"{user!r} order 0" for user in (USER, "user-1")]
    known = store.by_key(keys)
    waiting = [
        msgspec.structs.replace(known[key], id=id * 32, key=key.replace("0", "9"))
        for key, id in zip(keys, "ab", strict=True)
    ]
    journal = Journal(campaign.files.folder)
    journal.append(journal_lines(waiting, []))
    journal.close()
    folder = campaign.files.folder / JOURNAL
    (folder / "00000007.damaged").write_bytes(b'xx {"unit":"%b"\n' % USER.encode() + b"yy other\n")
    preview = preview_erasure(campaign, USER)
    assert (preview.decisions, preview.journalled) == (2, 1)
    erase_unit(campaign, USER)
    assert list(_traces(campaign.files.folder)) == []
    assert (folder / "00000007.damaged").read_bytes() == b"yy other\n"
    again = serve(wait=60.0)  # takes up what is left of the journal
    log.wait_for("journal replayed")
    assert again.reader.by_key([waiting[1].key or ""])[waiting[1].key or ""].id == "b" * 32
    refused = caller(again, home).post("/v1/decide", _asked(USER, waiting[0].key or ""))
    assert refused.status == 409 and "was erased" in refused.text


def test_evidence_is_never_better_after_an_erasure(
    campaign: Campaign, serve: Serve, home: Path, clock: Clock
) -> None:
    def evidence(service: Service) -> dict[str, float]:
        service.turn()
        run = service.monitor.run
        assert run is not None
        return {part.name: part.log_evidence for part in run.evidence.parts}

    for user, earned in (("user-3", 0.0), (USER, 1.0)):
        service = serve(wait=3.0, cycle=1.0)
        call = caller(service, home)
        _reward(call, _decide(call, [f"{earned} friend {k}" for k in range(100)]), 0.4)
        _reward(call, _decide(call, [user] * 10), earned)
        clock.advance(5.0)
        _decide(call, [f"{earned} later"])
        clock.advance(5.0)
        before = evidence(service)
        n = service.monitor.run.evidence.n  # type: ignore[union-attr]
        service.close()
        erase_unit(campaign, user)
        again = serve(wait=3.0, cycle=1.0)
        after = evidence(again)
        assert again.monitor.run.evidence.n == n  # type: ignore[union-attr]
        for name in before.keys() - {"propensities"}:
            assert after[name] >= before[name] - 1e-9
        findings = {finding.name: str(finding) for finding in again.monitor.findings}
        assert "count at their worst" in findings["erased decisions"]
        again.close()


def test_on_postgres_services_go_on(
    campaign: Campaign, serve: Serve, home: Path, postgres: Server
) -> None:
    address = postgres.new_schema()
    service = serve(store=address, wait=60.0)
    call = caller(service, home)
    made = _decide(call, [USER] * 3)
    _reward(call, made, EARNED)
    _reward(call, _decide(call, ["user-1"] * 2), 0.5)
    erased = erase_unit(campaign, USER, store=address)
    assert (erased.decisions, erased.rewards) == (3, 3)
    service.turn()  # notices, and forgets what it remembers of keys
    assert call.post("/v1/decide", _asked(USER, f"{USER!r} order 0")).status == 409
    _reward(call, made, EARNED)
    with service.reader.database.reading() as connection:
        rows = [
            str(tuple(row))
            for table in (decisions, rewards)
            for row in connection.execute(sa.select(table))
        ]
    assert len(rows) == 3 + 2 + 2
    assert not [row for row in rows if any(t in row for t in (USER, repr(MARK), repr(EARNED)))]
    # a service that was cut off brings a decision of before the erasure
    (known,) = service.reader.by_key(["'user-1' order 0"]).values()
    late = msgspec.structs.replace(known, id="c" * 32, key="x", unit=f'"{USER}"', at=1.0)
    store = Store(address, "spring", writing=True, hidden=secret_of(campaign).hidden)
    store.open()
    store.replay([late], (), [])
    store.close()
    assert store.of_unit(USER).ids == () and sum(row.decisions for row in store.erased()) == 4


def test_an_erasure_says_what_it_did() -> None:
    erasure = Erasure("spring", decisions=1, rewards=2, rounds={1: 3}, notes=("look there",))
    assert erasure.lines() == [
        "store: 1 decision and 2 rewards", "round 1: 3 rows", "look there",
    ]  # fmt: skip
    assert erasure.counts["rows"] == 3 and not erasure.is_empty
