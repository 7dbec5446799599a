"""What is answered is durable, is answered the same again, and is never taken back."""

from __future__ import annotations

import errno
import json
import logging
import math
import os
import shutil
import sqlite3
import stat
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.serving.asgi import caller, context
from tests.serving.conftest import Log, Serve
from tests.serving.model import SERVED, SmallService, request, stored

from depsue.campaigns import Campaign
from depsue.database import Unstorable
from depsue.errors import ConfigError, FileError
from depsue.serving.journal import Journal
from depsue.serving.messages import DecisionReply
from depsue.serving.schema import Reward
from depsue.serving.service import Service, StoreStatus
from depsue.serving.settings import require_store, settings_of
from depsue.serving.store import StoreGone
from depsue.serving.writing import CHUNK, QueuedCall


@pytest.fixture
def small(tmp_path: Path) -> SmallService:
    """A service without threads, on a store of its own."""
    return SmallService(tmp_path / "one", tmp_path / "decisions.db")


def other(small: SmallService, tmp_path: Path) -> SmallService:
    """A second service on the same store."""
    return SmallService(tmp_path / "two", tmp_path / "decisions.db")


def reply(answer: Any) -> DecisionReply:
    """An answer that is no refusal."""
    assert isinstance(answer, DecisionReply), answer
    return answer


def lines_of(journal: Path) -> Path:
    """The one file of lines in a journal's folder."""
    (path,) = (journal / "journal").glob("*.jsonl")
    return path


# the same key again


def test_a_key_that_is_under_way_twice_has_one_decision(
    small: SmallService, tmp_path: Path
) -> None:
    """Decided before the first one is stored, answered after it."""
    asked = [QueuedCall.of([request("k", candidates=each)]) for each in (None, ["i3"], ["i0"])]
    for call in asked:
        small.prepare(call, *(QueuedCall.of([request()]) for _ in range(5)))
    answers = [small.commit().answers[0] for _ in asked]
    assert answers[0] == answers[1] == answers[2]
    assert sum(row["key"] == "k" for row in stored(tmp_path / "decisions.db").values()) == 1


def test_the_store_answers_for_a_key_whoever_decided_it(
    small: SmallService, tmp_path: Path
) -> None:
    first = reply(small.ask(request("k"))[0])
    second = other(small, tmp_path)
    assert second.ask(request("k", candidates=["i3"])) == [first]  # stock may have changed
    second.kill()
    second.start()  # it remembers nothing
    assert second.ask(request("k")) == [first]


def test_retries_agree_without_the_store_until_the_epoch_ends(tmp_path: Path) -> None:
    names = ("one", "two", "three")
    services = [SmallService(tmp_path / name, tmp_path / f"{name}.db") for name in names]
    services[2].served = replace(SERVED, round=2)
    requests = [request(f"k{k}") for k in range(50)]
    one, two, three = (service.ask(*requests) for service in services)
    assert one == two and len({reply(each).decision for each in one}) == 50
    assert not {reply(each).decision for each in three} & {reply(each).decision for each in one}
    assert [reply(each).action for each in three] != [reply(each).action for each in one]


def test_a_retry_is_known_whatever_the_caller_sends_again(small: SmallService) -> None:
    first = reply(small.ask(request("k", candidates=["i0", "i1"]))[0])
    small.kill()
    small.start()
    assert small.ask(request("k", candidates=["gone from the catalogue"])) == [first]
    (unknown,) = small.ask(request("new", candidates=["gone from the catalogue"]))
    assert "items of the campaign" in str(unknown)
    for another in (request("k", x=1.0), request("k", unit=7)):
        (refused,) = small.ask(another)
        assert isinstance(refused, ConfigError) and "another context or unit" in refused.found


def test_a_call_is_written_whole_or_not_at_all(small: SmallService, tmp_path: Path) -> None:
    small.ask(request("k"))
    small.kill()
    small.start()  # it does not remember the key, so only the store can refuse it
    small.prepare(QueuedCall.of([request("new"), request("k", x=1.0)]), QueuedCall.of([request()]))
    refused, good = small.commit().answers
    assert isinstance(refused, ConfigError) and len(good) == 1
    assert [row["key"] for row in stored(tmp_path / "decisions.db").values()] == ["k", None]


def test_of_two_uses_of_a_key_the_one_that_is_stored_is_the_retry(small: SmallService) -> None:
    first = reply(small.ask(request("k", x=2.0))[0])
    small.kill()
    small.start()
    mistaken, retried = small.ask(request("k", x=1.0), request("k", x=2.0))
    assert isinstance(mistaken, ConfigError) and retried == first
    right, wrong = small.ask(request("l", x=1.0), request("l", x=2.0))
    assert isinstance(wrong, ConfigError) and reply(right).decision


def test_what_was_replayed_is_known_when_the_store_is_lost_again(
    small: SmallService, tmp_path: Path
) -> None:
    """Its key is in the journal no more, and in the store, which cannot be asked."""
    small.link.up = False
    first = reply(small.ask(request("k"))[0])
    small.link.up = True
    small.settle()
    assert small.journal.is_empty
    small.link.up = False
    assert small.ask(request("k", candidates=["i3"])) == [first]


# a commit without a reply


@pytest.mark.parametrize("lost", ["reply", "commit"])
def test_in_doubt_is_said_and_not_decided_again(
    small: SmallService, tmp_path: Path, lost: Any
) -> None:
    """Row 3 of the attack: the other service answers with a decision, which must stay."""
    second = other(small, tmp_path)
    small.link.lost = lost
    answers = small.ask(request("k"), request())
    assert all(isinstance(each, StoreGone) and "same key" in each.cure for each in answers)
    by_second = reply(second.ask(request("k", candidates=["i3"]))[0])
    (waits,) = small.ask(request("k"))  # the store is gone: nobody here may answer for it
    assert isinstance(waits, StoreGone)
    assert reply(small.ask(request("other"))[0]).decided_by == "pi0"
    small.kill()
    small.start()  # a restart knows it, too
    (waits,) = small.ask(request("k"))
    assert isinstance(waits, StoreGone)
    small.settle()
    for service in (small, second):
        assert service.ask(request("k")) == [by_second]
    rows = stored(tmp_path / "decisions.db")
    assert [id for id, row in rows.items() if row["key"] == "k"] == [by_second.decision]
    assert small.store.twins() == 0
    # without a key nobody can ask for it again, so it is not offered again
    assert sum(row["key"] is None for row in rows.values()) == (lost == "reply")


def test_in_doubt_survives_a_journal_that_cannot_be_written(
    small: SmallService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = other(small, tmp_path)
    with monkeypatch.context() as broken:
        broken.setattr(os, "pwrite", _full)
        small.link.lost = "commit"
        small.ask(request("k"))
        (full,) = small.ask(request("other"))
        assert isinstance(full, FileError) and full.cure == "make room on the disk"
    (waits,) = small.ask(request("k"))
    assert isinstance(waits, StoreGone)
    assert isinstance(small.ask(request("other"))[0], DecisionReply)
    small.settle()
    assert small.ask(request("k")) == second.ask(request("k"))


# the store is gone


def test_a_restart_without_the_store_knows_what_was_answered(
    small: SmallService, tmp_path: Path
) -> None:
    """Row 2 of the attack: repeated keys got another decision, and one of the two was lost."""
    before = reply(small.ask(request("before"))[0])
    small.link.up = False
    first = reply(small.ask(request("k"))[0])
    assert small.ask(request("before")) == [before]  # stored moments ago
    for _ in range(2):
        small.kill()
        small.start()
        assert small.ask(request("k", candidates=["i1"])) == [first]
        (refused,) = small.ask(request("k", x=1.0))
        assert isinstance(refused, ConfigError)
    more = [reply(each) for each in small.ask(request("l"), request())]
    small.settle()
    answered = [before, first, *more]
    rows = stored(tmp_path / "decisions.db")
    assert {id: row["propensity"] for id, row in rows.items()} == {
        each.decision: each.propensity for each in answered
    }
    assert small.ask(request("k"), request("l")) == [first, more[0]]
    assert not list((tmp_path / "one" / "journal").glob("*.jsonl"))


def test_a_restart_knows_what_a_stop_and_an_outage_made_together(small: SmallService) -> None:
    """Stopped, cut off, killed: a key of the journal is answered from there, stopped or not."""
    small.link.up, small.stopped = False, "stopped by hand"
    keys = [f"k{k}" for k in range(20)]
    first = {key: small.ask(request(key))[0].decision for key in keys}
    for stopped in ("", "stopped by hand", ""):
        small.kill()
        small.stopped = stopped
        small.start()
        again = {key: small.ask(request(key, candidates=["i0"]))[0].decision for key in keys}
        assert again == first
    small.settle()
    assert {key: small.ask(request(key))[0].decision for key in keys} == first
    assert small.store.twins() == 0


def test_a_key_decided_on_both_sides_leaves_a_twin_that_is_marked(
    small: SmallService, tmp_path: Path
) -> None:
    second = other(small, tmp_path)
    small.link.up = False
    outside = reply(small.ask(request("k"))[0])
    inside = reply(second.ask(request("k"))[0])
    assert outside != inside
    small.settle()
    assert small.ask(request("k")) == second.ask(request("k")) == [inside]
    rows = stored(tmp_path / "decisions.db")
    assert {id: bool(row["twin"]) for id, row in rows.items()} == {
        inside.decision: False,
        outside.decision: True,
    }
    assert rows[outside.decision]["propensity"] == outside.propensity
    assert [row.id for row in small.store.read()[0]] == [inside.decision]  # no evidence
    assert small.writer.twins == small.store.counts()["twins"] == 1


def test_two_services_that_are_cut_off_both_keep_their_word(
    small: SmallService, tmp_path: Path
) -> None:
    """What was drawn is part of the id: else one of two answers had no place in the store."""
    second = other(small, tmp_path)
    small.link.up = second.link.up = False
    answers = [
        reply(service.ask(request("k", candidates=[item]))[0])
        for service, item in ((small, "i0"), (second, "i1"))
    ]
    same = [reply(service.ask(request("same"))[0]) for service in (small, second)]
    assert same[0] == same[1]
    small.settle()
    second.settle()
    rows = stored(tmp_path / "decisions.db")
    assert {id: row["propensity"] for id, row in rows.items()} == {
        each.decision: each.propensity for each in (*answers, *same)
    }
    assert [bool(rows[each.decision]["twin"]) for each in (*answers, same[0])] == [0, 1, 0]


def test_the_journal_empties_under_steady_traffic_in_order(
    small: SmallService, tmp_path: Path
) -> None:
    """Row 5 of the attack: it did not, and a later reward overtook an acknowledged one."""
    decision = reply(small.ask(request("k"))[0]).decision
    small.link.up = False
    assert small.reward(Reward(decision, "reward", "", 1.0, 110.0)) == 1
    backlog = 3 * CHUNK
    small.prepare(QueuedCall.of([request() for _ in range(backlog)]))
    small.commit()
    small.link.up = True
    turns = 0
    while not small.writer.live:  # a batch before every step
        small.ask(*(request(f"{turns} {k}") for k in range(600)))
        small.writer.recover()
        turns += 1
        assert turns < 10
    assert small.reward(Reward(decision, "reward", "", 0.0, 120.0)) == 1
    rows, rewards = small.store.read(wait=60.0, limit=10**6)
    assert len(rows) == 1 + backlog + 600 * turns
    assert [(each.value, each.received) for each in rewards] == [(1.0, 110.0)]
    seen = [int(row.key.split()[0]) for row in rows if row.key not in (None, "k")]
    assert seen == sorted(seen)


def test_a_store_that_is_gone_means_pi0_and_a_journal(
    serve: Serve, home: Path, postgres: Any, log: Log
) -> None:
    address = postgres.new_database()
    service = serve(wait=60.0, holdout=0.0, store=address)
    call = caller(service, home)
    first = call.post("/v1/decide", {"context": context(), "key": "a"}).json
    postgres.stop()
    try:
        again = call.post("/v1/decide", {"context": context(), "key": "a"})
        assert again.json == first  # known keys are remembered
        made = [
            call.post("/v1/decide", {"context": context(), "key": f"b{k}"}).json for k in range(3)
        ]
        assert {each["decided_by"] for each in made} == {"pi0"}
        reward = call.post("/v1/reward", {"decision": made[0]["decision"], "reward": 1.0})
        assert reward.status == 200 and call.get("/readyz").status == 200
        assert call.get("/v1/status").json["store"]["journalled"] == 4
        service.close()
        service = serve(wait=60.0, holdout=0.0, store=address)  # while the store is gone
        call = caller(service, home)
        assert call.post("/v1/decide", {"context": context(), "key": "b1"}).json == made[1]
    finally:
        postgres.start()
    log.wait_for("store back")
    assert service.status.store == StoreStatus(gone="", journalled=0, damaged=0, twins=0)
    assert call.post("/v1/decide", {"context": context(), "key": "b1"}).json == made[1]
    service.turn()
    assert call.post("/v1/decide", {"context": context()}).json["decided_by"] == "policy"
    rows, earned = service.reader.read(wait=60.0)
    assert Counter(row.decided_by for row in rows) == {"policy": 2, "pi0": 3}
    assert [each.decision for each in earned] == [made[0]["decision"]]
    assert {"store gone", "store back", "journal replayed"} <= set(log.events)


def test_or_it_means_stop(serve: Serve, home: Path, postgres: Any, log: Log) -> None:
    service = serve(wait=60.0, on_gone="stop", store=postgres.new_database())
    call = caller(service, home)
    postgres.stop()
    try:
        refused = call.post("/v1/decide", {"context": context()})
        assert refused.status == 503 and refused.headers["retry-after"]
        assert call.get("/readyz").status == 503
        assert not service.journal.waiting
    finally:
        postgres.start()
    log.wait_for("store back")
    assert call.post("/v1/decide", {"context": context()}).status == 200
    assert len(service.reader.read()[0]) == 1


# the journal's files


def test_a_damaged_line_is_set_aside_and_told(
    small: SmallService, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    small.link.up = False
    answers = [reply(each) for each in small.ask(*(request(f"k{k}") for k in range(4)))]
    small.kill()
    path = lines_of(tmp_path / "one")
    lines = path.read_bytes().splitlines(keepends=True)
    edited = lines[1].replace(b'"propensity":', b'"propensity":0')
    path.write_bytes(lines[0] + edited + lines[2] + b"\xff\n" + lines[3] + lines[0][:30])
    for _ in range(2):  # a second restart counts the same lines
        small.start()
        assert small.journal.damaged == 2 and small.journal.waiting == 3
        small.kill()
    aside = path.with_suffix(".damaged")
    assert aside.read_bytes() == edited + b"\xff\n"
    places = [vars(each)["found"] for each in caplog.records if each.msg == "journal line damaged"]
    assert places[0] == f"{path}, byte {len(lines[0])}" and len(places) == 4
    assert {each.levelno for each in caplog.records if "damaged" in each.msg} == {logging.ERROR}
    small.start()
    small.settle()
    assert set(stored(tmp_path / "decisions.db")) == {answers[k].decision for k in (0, 2, 3)}
    assert not path.exists() and aside.exists() and small.journal.damaged == 2
    small.link.up = False
    small.ask(request("more"))
    assert lines_of(tmp_path / "one").stem > path.stem  # never the name of a damaged file


def test_a_journal_of_the_first_version_is_read(tmp_path: Path) -> None:
    """It was called a spool, had no checksums, and said `arm` for who decided."""
    decision = {"id": "0" * 32, "at": 1.0, "round": 1, "policy": "p", "arm": "pi0", "why": "gone",
                "action": 2, "propensity": 0.5, "p_policy": 0.1, "p_pi0": 0.5, "holdout": 0.0,
                "context": '{"x":0.0}', "key": "k", "asked": "b" * 32}  # fmt: skip
    line = json.dumps({"decisions": [decision], "rewards": [], "instead_of": ["1" * 32]})
    (tmp_path / "spool").mkdir()
    (tmp_path / "spool" / "spool.jsonl").write_text(line + "\n" + line[:40])  # the last is torn
    assert not Journal(tmp_path).is_empty
    small = SmallService(tmp_path, tmp_path / "decisions.db")
    small.link.up = True
    assert reply(small.ask(request("k"))[0]).decision == "0" * 32
    small.settle()
    assert list(stored(tmp_path / "decisions.db")) == ["0" * 32] and Journal(tmp_path).is_empty


def test_services_of_one_folder_have_a_journal_each(tmp_path: Path) -> None:
    one, two = (SmallService(tmp_path, tmp_path / "decisions.db") for _ in range(2))
    one.link.up = two.link.up = False
    answers = [reply(service.ask(request(key))[0]) for service, key in ((one, "a"), (two, "b"))]
    one.settle()  # it must not touch the other's lines
    two.kill()
    third = SmallService(tmp_path, tmp_path / "decisions.db")  # takes over from the dead one
    third.settle()
    assert set(stored(tmp_path / "decisions.db")) == {each.decision for each in answers}


def test_a_damaged_line_counts_for_all_that_it_held(tmp_path: Path) -> None:
    """Decisions and rewards together, of the rounds that it names; one at least."""
    folder = tmp_path / "journal"
    folder.mkdir()
    batch = (
        b'{"round":1,"propensity":0.1},{"round":1,"propensity":0.2}],"rewards":[{"received":7.5}]}'
    )
    (folder / "00000001.damaged").write_bytes(b"?" + batch + b"\n?nothing can be read\n")
    journal = Journal(tmp_path)
    assert journal.lost(1) == 4 and journal.lost(2) == 1


def test_a_journal_that_is_removed_is_written_anew(small: SmallService, tmp_path: Path) -> None:
    """What waits in it was answered; the process has it open, and would take it to its end."""
    small.link.up = False
    answers = [reply(small.ask(request(key))[0]) for key in ("a", "b")]
    shutil.rmtree(tmp_path / "one" / "journal")
    answers.append(reply(small.ask(request("c"))[0]))
    assert reply(small.ask(request("a"))[0]).decision == answers[0].decision
    small.kill()
    small.start()
    small.settle()
    assert set(stored(tmp_path / "decisions.db")) == {each.decision for each in answers}


def test_a_journal_that_is_removed_before_the_store_is_back(
    small: SmallService, tmp_path: Path
) -> None:
    small.link.up = False
    answer = reply(small.ask(request("a"))[0])
    lines_of(tmp_path / "one").unlink()
    small.link.up = True
    small.settle()
    assert set(stored(tmp_path / "decisions.db")) == {answer.decision}


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_a_file_of_decisions_that_is_taken_away_is_gone(
    campaign: Campaign, serve: Serve, home: Path, how: str
) -> None:
    """SQLite goes on writing to a file without a name, which ends with the process."""
    service = serve(wait=60.0)
    call = caller(service, home)
    before = call.post("/v1/decide", {"context": context(), "key": "a"}).json["decision"]
    path = campaign.files.folder / "decisions.db"
    aside = path.with_name("aside.db")
    path.rename(aside)
    if how == "replaced":
        shutil.copy(aside, path)
    answers = [
        call.post("/v1/decide", {"context": context(), "key": key}).json for key in ("b", "c")
    ]
    assert {each["decided_by"] for each in answers} == {"pi0"}
    gone = service.status.store.gone
    assert f"was {how}" in gone
    assert how == "replaced" or not path.exists()  # no empty one was made in its place
    if how == "removed":
        aside.rename(path)
    service.close()
    again = serve(wait=60.0)
    again.turn()
    kept = {row.id for row in again.reader.read()[0]}
    assert {before, *(each["decision"] for each in answers)} <= kept


def test_a_store_that_is_missing_at_the_start_is_not_begun_anew(campaign: Campaign) -> None:
    address = str(campaign.files.folder / "decisions.db")
    require_store(campaign, address)  # it was never served
    settings_of(campaign, {}, begun=False)
    with pytest.raises(FileError, match=r"must be there.*restore the file.*empty file"):
        require_store(campaign, address)
    require_store(campaign, "postgresql://127.0.0.1/other")
    Path(address).touch()
    require_store(campaign, address)


_pwrite = os.pwrite


def _full(file: int, content: bytes, place: int) -> int:
    """A disk on which half a line has room."""
    return _pwrite(file, content[: len(content) // 2], place)


def test_a_line_without_room_was_never_answered(
    small: SmallService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small.link.up = False
    first = reply(small.ask(request("a"))[0])
    with monkeypatch.context() as broken:
        broken.setattr(os, "pwrite", _full)
        (refused,) = small.ask(request("b"))
        assert isinstance(refused, FileError) and "No space left" in refused.rule
    second = reply(small.ask(request("c"))[0])
    small.kill()
    small.start()
    small.settle()
    assert set(stored(tmp_path / "decisions.db")) == {first.decision, second.decision}
    assert small.journal.damaged == 0


def test_a_folder_that_cannot_be_written_is_named_with_its_cause(
    serve: Serve, home: Path, postgres: Any, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = serve(wait=60.0, store=postgres.new_database())
    call = caller(service, home)
    real = os.open

    def read_only(path: Any, flags: int, *more: Any, **options: Any) -> int:
        if flags & os.O_CREAT:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return real(path, flags, *more, **options)

    postgres.stop()
    try:
        with monkeypatch.context() as broken:
            broken.setattr(os, "open", read_only)
            refused = call.post("/v1/decide", {"context": context()})
        assert refused.status == 503
        assert "Read-only file system" in refused.json["error"]
        assert refused.json["cure"] == "let the service write to the folder"
        (line,) = [line for line in log.lines if line["event"] == "journal not written"]
        assert "Read-only file system" in line["found"] and "journal" in line["found"]
    finally:
        postgres.start()


def test_only_the_owner_reads_what_a_service_writes(
    service: Service, home: Path, small: SmallService, tmp_path: Path
) -> None:
    caller(service, home).post("/v1/decide", {"context": context()})
    small.link.up = False
    small.ask(request("k"))
    folder = home / "spring"
    paths = [*folder.glob("decisions.db*"), folder / "secret.json", lines_of(tmp_path / "one")]
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in paths}
    modes.pop("decisions.db.lock", None)
    assert len(modes) == 5 and set(modes.values()) == {0o600}, modes


# what cannot be stored


def reward_of(decision: str, value: float) -> Reward:
    """A reward as it is stored."""
    return Reward(decision, "reward", "", value, 100.0)


@pytest.mark.parametrize("up", [True, False])
def test_what_cannot_be_stored_is_refused_alone(
    small: SmallService, tmp_path: Path, up: bool
) -> None:
    """A store that refuses a row is not gone, and a journal takes what it can read back."""
    made = reply(small.ask(request("first"))[0])
    small.link.up = up
    calls = [
        QueuedCall.of([request("a")]),
        QueuedCall.of(rewards=[reward_of(made.decision, value) for value in (1.0, math.nan)]),
        QueuedCall.of([request("b")]),
    ]
    small.prepare(*calls)
    one, refused, two = small.commit().answers
    assert isinstance(refused, Unstorable) and not isinstance(refused, StoreGone)
    assert small.writer.gone == ("" if up else small.writer.gone)
    small.settle()
    rows = stored(tmp_path / "decisions.db")
    assert {made.decision, one[0].decision, two[0].decision} == set(rows)
    assert small.journal.damaged == 0 and small.store.counts()["rewards"] == 0
    assert small.reward(reward_of(made.decision, 1.0)) == 1


def test_a_journal_line_that_the_store_refuses_is_set_aside_and_blocks_no_other(
    small: SmallService, tmp_path: Path
) -> None:
    small.link.up = False
    made = [reply(each) for each in small.ask(*(request(f"k{k}") for k in range(5)))]
    with sqlite3.connect(tmp_path / "decisions.db") as database:
        database.execute(
            "CREATE TRIGGER refuses BEFORE INSERT ON serving_decisions WHEN NEW.key = 'k3' "
            "BEGIN SELECT RAISE(ABORT, 'no'); END"
        )
    small.settle()
    kept = {each.decision for k, each in enumerate(made) if k != 3}
    assert set(stored(tmp_path / "decisions.db")) == kept and small.journal.damaged == 1
    assert small.journal.lost(1) == 1 and small.journal.lost(2) == 0


@pytest.mark.parametrize("known", [True, False])
def test_a_retry_may_write_the_same_values_in_another_way(small: SmallService, known: bool) -> None:
    """1 or 1.0, 7 or "7": within a batch, in the next one, and after a restart."""
    first, again = small.ask(request("k", x=1, unit=7), request("k", x=1.0, unit="7"))
    assert reply(first) == reply(again)
    if not known:
        small.kill()
        small.start()
    assert small.ask(request("k", x=1.0, unit="7")) == [first]
    for another in (request("k", x=1.5, unit=7), request("k", x=1, unit=8), request("k", x=1)):
        (refused,) = small.ask(another)
        assert isinstance(refused, ConfigError)
