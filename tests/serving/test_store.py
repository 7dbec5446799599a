"""What is durable, on SQLite and on a real PostgreSQL: one suite for both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from depsue.serving.store import Decision, Reward, Store, StoreGone, new_ids
from depsue.serving.writing import Spool


def decision(id: str, **given: Any) -> Decision:
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
    return Decision(**(values | given))


def reward(id: str, value: float = 1.0, received: float = 110.0, **given: Any) -> Reward:
    values: dict[str, Any] = {"name": "reward", "event": ""}
    return Reward(decision=id, value=value, received=received, **(values | given))


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    address = str(tmp_path / "decisions.db")
    if request.param == "postgresql":
        address = request.getfixturevalue("postgres").new_database()
    found = Store(address, "spring", writing=True)
    found.open()
    yield found
    found.close()


def test_decisions_are_read_in_order_and_joined_with_rewards_in_time(store: Store) -> None:
    first, second, third = new_ids(3)
    store.write([decision(first), decision(second, at=101.0)])
    store.write(
        [decision(third, at=500.0)],
        [reward(first), reward(second, received=200.0), reward(first, value=0.5, event="again")],
    )
    rows, earned = store.read(until=400.0, wait=60.0)
    assert [row.id for row in rows] == [first, second]  # the third is still open
    assert sorted((one.decision, one.value) for one in earned) == [(first, 0.5), (first, 1.0)]
    later, _ = store.read(after=rows[-1].seq)
    assert [row.id for row in later] == [third]


def test_the_same_twice_is_once(store: Store) -> None:
    (id,) = new_ids(1)
    for value in (1.0, 0.0):
        store.write([decision(id)], [reward(id, value)])
    rows, earned = store.read(wait=60.0)
    assert len(rows) == 1 and [one.value for one in earned] == [1.0]


def test_a_reward_may_come_before_its_decision(store: Store) -> None:
    (id,) = new_ids(1)
    store.write([], [reward(id, received=99.0)])
    store.write([decision(id)])
    _, earned = store.read(wait=60.0)
    assert [one.value for one in earned] == [1.0]


def test_a_batch_is_written_whole_or_not_at_all(store: Store) -> None:
    good, bad = new_ids(2)
    with pytest.raises(StoreGone, match="must answer"):
        store.write([decision(good), decision(bad, propensity=1.5)])
    store.open()
    assert store.read()[0] == []


def test_what_another_service_decided_for_a_key_is_told(store: Store) -> None:
    first, second = new_ids(2)
    store.write([decision(first, key="k", asked="a")])
    known = store.by_key(["k", "other"])
    assert known["k"].id == first and list(known) == ["k"]
    if not store.is_file:
        taken = store.write([decision(second, key="k", asked="a")])
        assert taken["k"].id == first
        assert [row.id for row in store.read()[0]] == [first]


def test_campaigns_are_apart(store: Store) -> None:
    (id,) = new_ids(1)
    store.write([decision(id)])
    other = Store(store._engine.url.render_as_string(hide_password=False), "autumn")
    if not store.is_file:
        assert other.read()[0] == []
    store.add_event("stop", 1, "p", "why", "ana")
    assert [(one.kind, one.reason, one.after) for one in store.events()] == [("stop", "why", 1)]


def test_replay_keeps_what_was_answered(store: Store, tmp_path: Path) -> None:
    written, lost, spooled, other = new_ids(4)
    store.write([decision(written, key="k"), decision(lost, key="l")])  # "l" was never answered
    spool = Spool(tmp_path / "spool")
    spool.add([decision(spooled, key="l", decided_by="pi0")], [reward(spooled)], [lost])
    spool.add([decision(other, key="k", decided_by="pi0")], [])
    with (tmp_path / "spool" / "spool.jsonl").open("ab") as file:
        file.write(b'{"decisions": [{"id"')  # the process died while writing
    again = Spool(tmp_path / "spool")
    again.add([], [reward(other, 0.0)])  # another takes over
    for _ in range(2):  # twice is harmless
        batch = again.read()
        store.replay(batch.decisions, batch.rewards, batch.instead_of)
    rows, earned = store.read(wait=60.0)
    assert {row.id: row.key for row in rows} == {written: "k", spooled: "l", other: None}
    assert {one.decision for one in earned} == {spooled, other}
    again.clear()
    assert not again.waiting and again.read().decisions == []


def test_only_one_process_writes_to_a_file(tmp_path: Path) -> None:
    store = Store(tmp_path / "decisions.db", "spring", writing=True)
    store.open()
    reader = Store(tmp_path / "decisions.db", "spring")
    with pytest.raises(StoreGone):
        reader.write([decision(new_ids(1)[0])])
    store.close()


def test_ids_grow_with_time_and_do_not_repeat() -> None:
    early, late = new_ids(1000, 1000.0), new_ids(1000, 2000.0)
    assert max(early) < min(late) and len({*early, *late}) == 2000
    assert all(len(id) == 32 and int(id, 16) >= 0 for id in early)
