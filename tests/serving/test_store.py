"""What is durable, on SQLite and on a real PostgreSQL: one suite for both."""

from __future__ import annotations

import itertools
import json
import math
import sqlite3
import traceback
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from tests.database.conftest import PASSWORD, Server, load_sqlite

from depsue.database import Unstorable
from depsue.errors import ConfigError, FileError
from depsue.serving.schema import SCHEMA, Decision, MonitorEvent, Reward, decisions, events, rewards
from depsue.serving.stops import StopSet
from depsue.serving.store import Store, StoreGone

DATA = Path(__file__).parent / "data"


_NUMBERS = itertools.count(1000)


def new_ids(count: int) -> list[str]:
    return [f"{next(_NUMBERS):032x}" for _ in range(count)]


def decision(id: str, **changed: Any) -> Decision:
    values: dict[str, Any] = {
        "id": id,
        "at": 100.0,
        "round": 1,
        "policy": "p" * 64,
        "decided_by": "policy",
        "why": "",
        "action": 3,
        "propensity": 0.25,
        "p_policy": 0.25,
        "p_pi0": 0.1,
        "holdout": 0.05,
        "context": "{}",
    }
    return Decision(**(values | changed))


def reward(id: str, value: float = 1.0, received: float = 110.0, **changed: Any) -> Reward:
    values: dict[str, Any] = {"name": "reward", "event": ""}
    return Reward(decision=id, value=value, received=received, **(values | changed))


@pytest.fixture(params=["sqlite", "postgresql"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "decisions.db")
    server: Server = request.getfixturevalue("postgres")
    return server.new_database()


@pytest.fixture
def store(address: str) -> Iterator[Store]:
    store = Store(address, "spring", writing=True)
    store.open()
    yield store
    store.close()


def test_decisions_are_read_in_order_and_joined_with_rewards_in_time(store: Store) -> None:
    first, second, third = new_ids(3)
    store.write([decision(first), decision(second, at=101.0)])
    store.write(
        [decision(third, at=500.0)],
        [reward(first), reward(second, received=200.0), reward(first, value=0.5, event="again")],
    )
    rows, earned = store.read(until=400.0, wait=60.0)
    assert [row.id for row in rows] == [first, second]  # the third is still open
    assert sorted((row.decision, row.value) for row in earned) == [(first, 0.5), (first, 1.0)]
    later, _ = store.read(after=rows[-1].seq)
    assert [row.id for row in later] == [third]


def test_who_goes_on_reading_misses_no_transaction_that_commits_late(postgres: Server) -> None:
    """It took its places first; another one with later places has committed meanwhile."""
    address = postgres.new_database()
    slow, quick = (Store(address, "spring", writing=True) for _ in range(2))
    reader = Store(address, "spring")
    for store in (slow, quick):
        store.open()
    before, late, after = new_ids(3)
    quick.write([decision(before)])

    def meanwhile(first: object) -> None:  # its rows are inserted, and not committed
        quick.write([decision(after)])
        rows, _ = reader.read(until=400.0)
        assert [row.id for row in rows] == [before]
        newest, settled = reader.settled()
        assert newest > settled == rows[-1].seq
        assert len(reader.read()[0]) == 2  # who reads once takes what is there

    slow.write([decision(late)], check=meanwhile)
    rows, _ = reader.read(until=400.0)
    assert [row.id for row in rows] == [before, late, after]
    newest, settled = reader.settled()
    assert newest == settled == rows[-1].seq
    for store in (slow, quick):
        store.close()


def test_the_same_twice_is_once(store: Store) -> None:
    (id,) = new_ids(1)
    for value in (1.0, 0.0):
        store.write([decision(id)], [reward(id, value)])
    rows, earned = store.read(wait=60.0)
    assert len(rows) == 1 and [row.value for row in earned] == [1.0]


def test_a_reward_may_come_before_its_decision(store: Store) -> None:
    (id,) = new_ids(1)
    store.write([], [reward(id, received=99.0)])
    store.write([decision(id)])
    _, earned = store.read(wait=60.0)
    assert [row.value for row in earned] == [1.0]


def test_a_batch_is_written_whole_or_not_at_all(store: Store) -> None:
    good, bad = new_ids(2)
    for wrong in (1.5, math.nan):  # the database refuses the row; it is not gone
        with pytest.raises(Unstorable, match="must be able to hold"):
            store.write([decision(good), decision(bad, propensity=wrong)])
        assert store.read()[0] == []
    store.write([decision(good)])
    assert [row.id for row in store.read()[0]] == [good]


def test_what_another_service_decided_for_a_key_is_told(store: Store) -> None:
    first, second = new_ids(2)
    store.write([decision(first, key="k")])
    known = store.by_key(["k", "other"])
    assert known["k"].id == first and list(known) == ["k"]
    assert store.write([decision(second, key="k")])["k"].id == first
    assert [row.id for row in store.read()[0]] == [first]
    assert store.write([decision(first, key="k")]) == {}  # the same decision again


def test_campaigns_are_apart(store: Store, address: str) -> None:
    (id,) = new_ids(1)
    store.write([decision(id)])
    other = Store(address, "autumn")
    assert other.read()[0] == []
    for _ in range(2):  # an event that is recorded twice is recorded once
        store.add_events([MonitorEvent("s1", 7.0, "stop", 1, "p", "why", "ana")])
    assert [(event.kind, event.reason, event.after) for event in store.events()] == [
        ("stop", "why", 1)
    ]
    assert other.events() == []


def test_a_replayed_decision_is_stored_and_marked_if_its_key_has_another(store: Store) -> None:
    first, outside, alone, doubtful = new_ids(4)
    store.write([decision(first, key="k")])
    waited = [decision(outside, key="k"), decision(alone, key="l"), decision(doubtful, key="k")]
    assert store.replay(waited, {doubtful}, [reward(outside)]) == 1
    assert store.replay(waited, {doubtful}, [reward(outside)]) == 0  # twice is harmless
    with store.database.reading() as connection:
        query = sa.select(decisions.c.id, decisions.c.key, decisions.c.twin).order_by("seq")
        rows = [(id, key, bool(twin)) for id, key, twin in connection.execute(query)]
    assert rows == [(first, "k", False), (alone, "l", False), (outside, "k", True)]
    assert [row.id for row in store.read()[0]] == [first, alone]  # a twin is no evidence
    assert store.by_key(["k"])["k"].id == first
    assert (store.twins(), store.twins(round=2), store.counts()["policy"]) == (1, 0, 2)


@pytest.mark.parametrize("late", [0, 1])
def test_the_reward_that_was_received_first_stays_in_whatever_order(
    store: Store, late: int
) -> None:
    (id,) = new_ids(1)
    both = [reward(id, 1.0, 105.0, shown=3), reward(id, 0.0, 106.0)]
    store.write([decision(id)], [both[late]])
    store.replay([], (), [both[1 - late]])
    _, earned = store.read(wait=60.0)
    assert [(row.value, row.received, row.shown) for row in earned] == [(1.0, 105.0, 3)]


def test_nothing_is_written_where_the_check_refuses(store: Store) -> None:
    first, second, third = new_ids(3)
    store.write([decision(first, key="k")])

    def refuse(known: dict[str, Decision]) -> None:
        assert [row.id for row in known.values()] == [first]
        raise ConfigError("no")

    with pytest.raises(ConfigError):
        store.write([decision(second, key="k"), decision(third)], check=refuse)
    assert [row.id for row in store.read()[0]] == [first]
    store.write([decision(third)])  # the connection is as good as before
    assert len(store.read()[0]) == 2


def test_only_one_process_writes_to_a_file(tmp_path: Path) -> None:
    store = Store(tmp_path / "decisions.db", "spring", writing=True)
    store.open()
    reader = Store(tmp_path / "decisions.db", "spring")
    with pytest.raises(StoreGone):
        reader.write([decision(new_ids(1)[0])])
    store.close()


# versions


@pytest.fixture(params=["sqlite", "postgresql"])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store that was written before stores had a version."""
    dump = DATA / f"store-0.{request.param}.sql"
    if request.param == "sqlite":
        return load_sqlite(dump, tmp_path / "old.db")
    server: Server = request.getfixturevalue("postgres")
    return server.load(dump)


def _content(address: str, campaign: str) -> dict[str, Any]:
    store = Store(address, campaign)
    rows, earned = store.read(wait=60.0)
    return {
        "decisions": [row._asdict() for row in rows],
        "rewards": sorted(([*row] for row in earned), key=str),
        "events": [asdict(event) for event in store.events()],
        "counts": store.counts(),
        "last": store.last_seq(),
    }


@pytest.mark.parametrize("first", ["a service", "a reader"])
def test_an_older_store_opens_with_all_that_it_holds_and_goes_on(old: str, first: str) -> None:
    expected = json.loads((DATA / "store-0.json").read_text())
    for event in expected["spring"]["events"]:
        event["kind"] = {"trip": "stop", "lift": "resume"}.get(event["kind"], event["kind"])
        event["id"] = f"{event['kind']}-{event['seq']}"
        event["stops"] = ("stop-2",) if event["kind"] == "resume" else ()
    if first == "a service":
        store = Store(old, "spring", writing=True)
        store.open()
        store.close()
    for campaign in ("spring", "autumn"):
        expected[campaign]["counts"]["twins"] = 0
        for row in expected[campaign]["decisions"]:
            row["decided_by"], row["twin"] = row.pop("arm"), False
            row["erased"] = None
            row |= dict.fromkeys(("pi0", "chosen", "p_chosen", "version", "would", "p_would"))
            del row["asked"]
        assert _content(old, campaign) == expected[campaign]
    store = Store(old, "spring", writing=True)
    store.open()
    assert store.by_key(["order 3"])["order 3"].id == f"{3:032x}"
    (id,) = new_ids(1)
    store.write([decision(id, key="order 3"), decision(id)], [reward(id), reward(f"{1:032x}", 0.0)])
    assert [stop.id for stop in StopSet(store.events()).standing] == ["stop-5"]
    store.add_events([MonitorEvent("r", 7.0, "resume", 1, "p", "mended", "bo", ("stop-5",))])
    assert not StopSet(store.events()).standing
    rows, earned = store.read(wait=60.0)
    assert [row.seq for row in rows][:5] == [1, 2, 3, 4, 5] and rows[5].id == id and len(rows) == 6
    assert len(earned) == 1 + len(expected["spring"]["rewards"])
    assert (store.events()[-1].seq, store.events()[-1].kind) == (6, "resume")
    store.close()


def test_an_older_store_waits_for_the_service_that_writes_to_it(tmp_path: Path) -> None:
    old = load_sqlite(DATA / "store-0.sqlite.sql", tmp_path / "old.db")
    reader = Store(old, "spring")
    with Store(old, "spring", writing=True).hold() as held:
        assert held
        with pytest.raises(StoreGone, match="while nobody writes to it.*Cure: stop the service"):
            reader.events()
    assert len(reader.events()) == 5


def test_a_newer_store_is_refused_and_not_touched(address: str, tmp_path: Path) -> None:
    store = Store(address, "spring", writing=True)
    store.open()
    store.write([decision(new_ids(1)[0])])
    store.close()
    with store.database.writing() as connection:
        connection.execute(SCHEMA.versions.insert().values(version=99, at="later", depsue="9.0"))
    before = _bytes(tmp_path)
    for use in (Store(address, "spring", writing=True).open, Store(address, "spring").read):
        with pytest.raises(
            FileError, match=rf"knows, {len(SCHEMA.migrations)} or older\. .*version 99 in .*newer"
        ):
            use()
    assert _bytes(tmp_path) == before


def test_a_file_of_something_else_is_refused_and_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "photos.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE photos (name TEXT)")
    connection.close()
    before = _bytes(tmp_path)
    with pytest.raises(FileError, match="file to itself.*holds photos.*another file"):
        Store(path, "spring", writing=True).open()
    assert _bytes(tmp_path) == before


def test_a_reader_makes_no_store(address: str, tmp_path: Path) -> None:
    with pytest.raises(StoreGone):
        Store(address, "spring").read()
    assert list(tmp_path.iterdir()) == []


def test_queries_know_the_columns_that_migrations_make(store: Store, old: str) -> None:
    for use in (store, Store(old, "spring")):
        use.events()
        with use.database.reading() as connection:
            inspector = sa.inspect(connection)
            for table in (decisions, rewards, events, SCHEMA.versions):
                made = [column["name"] for column in inspector.get_columns(table.name)]
                assert made == [column.name for column in table.c]


# settings


def test_each_commit_is_on_disk_before_it_is_answered(postgres: Server, tmp_path: Path) -> None:
    with Store(tmp_path / "decisions.db", "spring").database.reading() as connection:
        names = ("journal_mode", "synchronous", "busy_timeout")
        pragmas = [connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in names]
    assert pragmas == ["wal", 2, 5000]  # 2 is FULL
    lazy = postgres.new_database() + "?options=-csynchronous_commit%3Doff"
    with Store(lazy, "spring").database.reading() as connection:
        assert connection.exec_driver_sql("SHOW synchronous_commit").scalar() == "on"


def test_no_message_shows_a_password(postgres: Server) -> None:
    right = postgres.new_database()
    for address in (
        right.replace(PASSWORD, "wr0ng-word"),
        right.replace(f":{PASSWORD}@", "@") + "?password=wr0ng-word",
        right + "_missing",
    ):
        store = Store(address, "spring", writing=True)
        with pytest.raises(StoreGone, match="must answer.*Cure: check that it runs") as caught:
            store.open()
        said = "".join(traceback.format_exception(caught.value)) + store.name
        assert "wr0ng" not in said and PASSWORD not in said
    wrong = "postgresql://ana:wr0ng-word@host:port/db"
    with pytest.raises(ConfigError, match="address is a path") as refused:
        Store(wrong, "spring")
    assert "wr0ng" not in "".join(traceback.format_exception(refused.value))


def test_a_store_outlives_its_process() -> None:
    with pytest.raises(ConfigError, match="outlives its process. Found: :memory:. Cure: name a"):
        Store(":memory:", "spring")


def _bytes(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix == ".db"}
