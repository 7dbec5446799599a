"""The monitor stops the policy when live decisions give it reason to; nobody explores unwatched."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, NoReturn

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.serving.asgi import Caller, batch, caller, context, rewarded
from tests.serving.conftest import Clock, Serve

from depsue import Catalogue, SyntheticSettings, Uniform, synthetic_world
from depsue.certificates import Registration, three_folds
from depsue.data.mapping import LogMapping
from depsue.promises import Floor, Promise
from depsue.serving import monitor
from depsue.serving.account import RoundAccount
from depsue.serving.evidence import EpochEvidence, FloorPart
from depsue.serving.monitor import MonitorEpoch, MonitorRun
from depsue.serving.served import ServedPolicy
from depsue.serving.settings import ServingSettings
from depsue.serving.store import Store, StoreGone


def test_the_monitor_stops_the_policy_when_what_is_served_earns_too_little(
    serve: Serve, home: Path, clock: Clock
) -> None:
    service = serve(wait=2.0, holdout=0.2)
    call = caller(service, home)
    for _ in range(6):
        made = batch(call, 1000)
        rewarded(call, made, lambda one: 0.05 if one["decided_by"] == "policy" else 0.5)
        clock.advance(2.1)
        service.turn()
        if service.stopped:
            break
    assert "by holdout" in service.stopped
    assert call.post("/v1/decide", {"context": context()}).json["decided_by"] == "pi0"
    assert [event.kind for event in service.store.events()] == ["watch", "stop"]


def test_a_holdout_that_begins_live_is_evidence_from_its_first_decision(
    serve: Serve, home: Path, clock: Clock
) -> None:
    """The share at the start is not the share for ever: it was asked once, and never again."""
    service = serve(wait=2.0, holdout=0.0)
    call = caller(service, home)
    batch(call, 200)
    service.change_share(0.8, "a holdout after all", "ana")
    for _ in range(6):
        made = batch(call, 1000)
        rewarded(call, made, lambda one: 0.05 if one["decided_by"] == "policy" else 0.5)
        clock.advance(2.1)
        service.turn()
        if service.stopped:
            break
    assert "by holdout" in service.stopped


def test_wrong_propensities_stop_the_policy_at_once(
    serve: Serve, home: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = serve(wait=0.2, holdout=0.0)
    call = caller(service, home)
    assert service.state == "waiting"
    batch(call, 50)
    clock.advance(1.0)
    service.turn()
    assert service.monitor.run is not None and service.monitor.run.after >= 50
    assert service.state == "waiting" and "50 decisions" in service.status.reason

    def by_pi0(served: ServedPolicy, contexts: Any) -> Any:
        base = served.pi0.probabilities(contexts)
        return base, base

    monkeypatch.setattr(ServedPolicy, "cached", by_pi0)  # decides otherwise than it says
    batch(call, 50)
    clock.advance(1.0)
    service.turn()
    assert "another probability" in service.stopped


def test_rewards_outside_their_range_are_counted_and_poison_nothing(
    serve: Serve, home: Path, clock: Clock
) -> None:
    """Rewards that add up to more than r_max count at their worst, and the monitor says so."""
    service = serve(wait=2.0, holdout=0.2, combine="sum")
    call = caller(service, home)
    made = batch(call, 200)
    for event in ("first", "again"):
        given = [{"decision": one["decision"], "reward": 1.0, "event": event} for one in made[:50]]
        assert call.post("/v1/reward/batch", {"rewards": given}).status == 200
    clock.advance(2.1)
    service.turn()
    run = service.monitor.run
    assert run is not None and run.unusable == service.status.monitor.unusable == 50
    assert run.unjudged == 0 and run.evidence.n >= 100
    by_name = {finding.name: finding for finding in service.monitor.findings}
    assert by_name["unusable rewards"].state == "watch"
    assert "50 rewards are outside their range" in str(by_name["unusable rewards"])
    assert all(math.isfinite(part.log_evidence) for part in run.evidence.parts)
    assert service.state in ("watch", "stopped")


def test_absolute_floors_and_units_are_judged_by_whole_cycles(
    serve: Serve, home: Path, clock: Clock
) -> None:
    """A run over the store's decisions: nothing before a cycle ends, one value a unit after it."""
    service = serve(wait=2.0, holdout=0.0, cycle=60.0)
    served, promise = service.served, Promise(Floor(None, absolute=0.9))
    by_users = replace(served, mapping=replace(served.mapping, unit="user"))
    runs = [
        MonitorRun(MonitorEpoch(what, 1, 0), service.settings, (promise,), rounds=1)
        for what in (served, by_users)
    ]
    call = caller(service, home)
    for cycle in range(2):
        for user in ("ana", "bo"):
            rewarded(call, batch(call, 200, unit=user), lambda one: 0.05)
        clock.advance(30.0)
        for run in runs:
            while run.step(service.store, clock.now):
                pass
            assert ([finding.state for finding in run.grave] != []) is (
                cycle == 1 and run is runs[0]
            )
            assert cycle == 1 or run.evidence.first_cycle == 60.0  # what the state's reason says
        clock.advance(30.0)
    rows, units = (run.evidence.parts[0] for run in runs)
    assert rows.refuted and "400 decisions in whole cycles" in rows.words
    assert units.log_evidence > 0 and "2 values of units in whole cycles" in units.words


def deciders(call: Caller, n: int = 20) -> set[str]:
    """Who decides now, by asking for decisions."""
    return {one["decided_by"] for one in batch(call, n)}


def test_the_policy_explores_only_while_looks_are_completed(
    serve: Serve, home: Path, ticks: Clock
) -> None:
    service = serve(wait=60.0, holdout=0.0, permit=30.0)
    call = caller(service, home)
    ticks.advance(29.0)
    assert deciders(call) == {"policy"}
    until = service.status.monitor.permit.until
    assert until is not None and call.get("/v1/status").json["monitor"]["permit"]["until"] == until
    ticks.advance(2.0)  # no look since
    assert deciders(call) == {"pi0"}
    status = service.status
    assert (status.state, status.says) == ("not_watched", "Not watched: current policy serving")
    assert status.decides.who == "pi0" and status.decides.fallback
    assert "no look of the monitor was completed within 30 s" in status.reason
    assert status.monitor.permit.until is None and status.ready
    service.turn()
    assert deciders(call) == {"policy"} and service.state == "waiting"


def test_a_transaction_that_does_not_end_ends_the_exploration(
    serve: Serve, home: Path, ticks: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decisions after it are not judged; only what was judged extends the permit."""
    service = serve(wait=1.0, holdout=0.0, permit=30.0)
    call = caller(service, home)
    for settled, newest, left in ((5, 10, 22.0), (9, 30, 14.0), (10, 40, 14.0), (39, 50, 6.0)):
        ticks.advance(8.0)
        monkeypatch.setattr(Store, "settled", lambda store, at=(newest, settled): at)
        service.turn()
        assert service.monitor.permit.left == left
    assert deciders(call) == {"policy"}
    ticks.advance(8.0)
    service.turn()
    assert deciders(call) == {"pi0"} and service.state == "not_watched"
    assert "a transaction that does not end holds decisions back" in service.status.reason
    monkeypatch.undo()
    service.turn()
    assert deciders(call) == {"policy"}


def raises(problem: Exception) -> Callable[..., NoReturn]:
    """A function that raises."""

    def broken(*_: object, **__: object) -> NoReturn:
        raise problem

    return broken


@pytest.mark.parametrize(
    ("owner", "name", "problem"),
    [
        (Store, "read", StoreGone("the store must answer", found="no answer")),
        (Store, "events", OSError(24, "Too many open files")),
        (EpochEvidence, "add", RuntimeError("a mistake")),
    ],
)
def test_a_monitor_that_cannot_look_ends_the_exploration(
    serve: Serve,
    home: Path,
    clock: Clock,
    ticks: Clock,
    monkeypatch: pytest.MonkeyPatch,
    owner: type,
    name: str,
    problem: Exception,
) -> None:
    """A store that cannot be read, descriptors that have run out, a mistake in the code."""
    service = serve(wait=1.0, holdout=0.0, permit=30.0)
    call = caller(service, home)
    assert deciders(call) == {"policy"}
    clock.advance(2.0)
    with monkeypatch.context() as broken:
        broken.setattr(owner, name, raises(problem))
        service.turn()
        assert deciders(call) == {"policy"}  # a hiccup ends nothing
        ticks.advance(31.0)
        service.turn()
        assert deciders(call) == {"pi0"} and service.state == "not_watched"
        assert str(problem).split(". ")[0] in service.status.reason
        assert call.get("/readyz").json == {
            "ready": True, "round": 1, "state": "not_watched", "decides": "pi0",
        }  # fmt: skip
    service.turn()
    assert deciders(call) == {"policy"}


def test_evidence_that_is_not_a_number_ends_the_exploration(
    serve: Serve, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = serve(wait=1.0, holdout=0.0)
    call = caller(service, home)
    monkeypatch.setattr(FloorPart, "log_evidence", property(lambda part: math.nan))
    service.turn()
    assert deciders(call) == {"pi0"} and "evidence is not a number" in service.status.reason


def test_a_backlog_ends_the_exploration_until_the_monitor_has_caught_up(
    serve: Serve, home: Path, clock: Clock
) -> None:
    service = serve(wait=1.0, holdout=0.0, backlog=1000)
    call = caller(service, home)
    batch(call, 2500)
    clock.advance(2.0)
    for judged in (1000, 2000):
        service.turn()
        status = service.status
        assert "more than 1,000 decisions wait to be judged" in status.reason
        assert status.state == "not_watched" and status.monitor.behind >= 1000
        assert judged <= status.monitor.judged < judged + 1000
        assert deciders(call) == {"pi0"}
    service.turn()
    assert service.status.monitor.behind == 0 and service.status.monitor.judged == 2500
    assert deciders(call) == {"policy"}


def test_a_decision_stamped_a_day_ahead_blocks_no_other(
    serve: Serve, home: Path, clock: Clock
) -> None:
    declared: dict[str, Any] = {"wait": 2.0, "holdout": 0.2}
    service = serve(**declared)
    call = caller(service, home)
    rewarded(call, batch(call, 100), lambda one: 0.5)
    clock.advance(86400.0)
    rewarded(call, batch(call, 3), lambda one: 0.5)
    clock.advance(-86400.0)
    rewarded(call, batch(call, 400), lambda one: 0.5)
    clock.advance(3.0)
    service.turn()
    status = service.status
    assert (status.monitor.judged, status.monitor.set_aside) == (500, 3)
    assert "3 decisions are stamped ahead of the clock" in str(status.monitor.tests)
    assert status.decides.who == "policy"
    assert service.monitor.run is not None
    evidence = [part.log_evidence for part in service.monitor.run.evidence.parts]
    service.close()
    clock.advance(2 * 86400.0)  # their time has come; a restart judges the same rows
    again = serve(**declared)
    assert (again.status.monitor.judged, again.status.monitor.set_aside) == (500, 3)
    assert again.monitor.run is not None
    assert [part.log_evidence for part in again.monitor.run.evidence.parts] == evidence
    assert [event.kind for event in again.events] == ["watch"]  # and spends no delta again


def test_where_most_decisions_are_stamped_ahead_the_policy_is_not_watched(
    serve: Serve, home: Path, clock: Clock
) -> None:
    service = serve(wait=2.0, holdout=0.0)
    call = caller(service, home)
    clock.advance(86400.0)
    batch(call, 200)
    clock.advance(-86400.0)
    service.turn()
    assert deciders(call) == {"pi0"}
    assert "200 of 200 decisions cannot be judged" in service.status.reason
    stop = service.stop_policy("a clock", "ana")
    service.resume_policy([stop.id], "set right", "ana")
    assert deciders(call) == {"policy"}


def test_a_mean_below_the_floor_is_to_be_watched(serve: Serve, home: Path, clock: Clock) -> None:
    """Long before the evidence is enough, and although the fault began late."""
    service = serve(wait=2.0, holdout=0.2)
    call = caller(service, home)
    base = service.campaign.summaries()[0].promises["reward"].mean
    rewarded(call, batch(call, 3000), lambda one: 1.2 * base)
    clock.advance(3.0)
    service.turn()
    (before,) = service.status.served.promises
    assert service.state == "healthy" and not before.below
    assert before.margin is not None and before.margin > 0
    later = {"policy": 0.85 * base, "holdout": base}
    for _ in range(4):
        rewarded(call, batch(call, 1000), lambda one: later[one["decided_by"]])
        clock.advance(3.0)
        service.turn()
    status = service.status
    assert status.state == "watch" and not status.stops and status.decides.who == "policy"
    (value,) = status.served.promises
    assert value.below and value.floor is not None and value.recent is not None
    assert value.recent < value.floor == pytest.approx(0.95 * base)
    assert value.margin is not None and value.served == 7000
    assert "below its floor" in status.reason


def test_a_stop_of_the_monitor_is_one_stop_whichever_service_raises_it(
    serve: Serve, home: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = serve(wait=0.2, holdout=0.0)
    call = caller(service, home)
    batch(call, 50)
    clock.advance(1.0)
    with monkeypatch.context() as broken:
        broken.setattr(monitor, "TOLERANCE", -1.0)  # every propensity is another
        service.turn()
        (stop,) = service.status.stops
        assert stop.by == "the monitor" and stop.id.startswith("monitor-watch-")
        service.close()
        again = serve(wait=0.2, holdout=0.0)  # reads the same evidence
        assert [one.id for one in again.status.stops] == [stop.id]
    again.resume_policy([stop.id], "mended", "ana")
    assert deciders(caller(again, home)) == {"policy"}
    assert [event.reason for event in again.events if event.kind == "watch"] == [
        "epoch 1", "epoch 2",
    ]  # fmt: skip


def stored(seq: int, **changed: Any) -> SimpleNamespace:
    """A decision as `Store.read` gives it."""
    row = {
        "seq": seq, "id": f"{seq:032x}", "at": 100.0, "round": 1, "policy": "p",
        "decided_by": "policy", "action": 2, "propensity": 1 / 3, "p_policy": 1 / 3, "p_pi0": 0.0,
        "holdout": 0.0, "context": '{"x": 0}', "unit": None, "candidates": None,
        "set_aside": False, "erased": None, "pi0": None, "p_chosen": None,
        "why": "", "version": None,
    }  # fmt: skip
    return SimpleNamespace(**(row | changed))


def test_means_are_of_units_that_no_verdict_will_read() -> None:
    """The monitor judges all decisions; what pages show is of learn and select rows."""
    n = 300
    logs = synthetic_world(SyntheticSettings(users=n, supported=2, novel=1, d=2), seed=1).deploy(
        Uniform(np.array([True, True, False])), n, round=0
    )
    logs = replace(logs, unit=np.arange(n), units=np.arange(1000, 1000 + n))
    registration = Registration("ledger", "ab" * 32, "unit", (0.35, 0.05, 0.6), "family")
    folds = three_folds(logs, registration)
    assert folds.certify.units is not None
    unread = set(folds.certify.units.tolist())
    rows = [stored(k + 1, unit=str(1000 + k)) for k in range(n)]
    # units that a verdict will read earn everything, the others nothing
    rewards = [Report(row.id, "click", 1.0, 0.0, None) for row in rows if int(row.unit) in unread]
    rule = ServingSettings(wait=10.0, holdout=0.0)
    served, promises = served_by_hand(), (Promise(),)
    run = MonitorRun(MonitorEpoch(served, 1, 0), rule, promises, rounds=1)
    run.step(StoredRows(rows, rewards), 500.0)  # type: ignore[arg-type]
    account = RoundAccount(served, rule, promises, {"reward": 0.5}, registration)
    account.take_in(StoredRows(rows, rewards), 500.0)  # type: ignore[arg-type]
    (promise,) = account.promises
    assert (promise.value, promise.read, promise.served) == (0.0, n - len(unread), n)
    assert promise.margin == -0.5 * n
    limits = account.points[-1].policy
    assert limits is not None and limits[0] == 0.0 and account.earned.sum() == 0
    assert run.evidence.n == account.shown.sum() == n and len(unread) > n / 2


class Report(NamedTuple):
    """A reward as `Store.read` gives it."""

    decision: str
    name: str
    value: float
    received: float
    shown: int | None


@dataclass
class StoredRows:
    """A store that gives rows as they are, once."""

    rows: list[Any]
    rewards: list[Report]

    def read(self, **_: object) -> tuple[list[Any], list[Report]]:
        """As `Store.read`."""
        rows, self.rows = self.rows, []
        return rows, self.rewards

    def twins(self, round: int) -> int:
        """As `Store.twins`."""
        return 0


def served_by_hand() -> ServedPolicy:
    """A policy over three items, of which one is new."""
    return ServedPolicy(
        round=1,
        hash="p",
        what="certified",
        novelty=0.3,
        policy=Uniform(np.ones(3, dtype=bool)),
        pi0=Uniform(np.array([True, True, False])),
        catalogue=Catalogue(np.arange(3), np.array([False, False, True])),
        mapping=LogMapping(
            action="item",
            reward="click",
            propensity="p",
            numeric=("x",),
            other_rewards={"stay": 2.0},
        ),  # fmt: skip
    )


any_number = st.floats() | st.sampled_from([0.0, 0.5, 1.0, 1e-300, 5e-324])
in_unit = st.floats(0, 1)


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_evidence_is_finite_whatever_is_stored(data: st.DataObject) -> None:
    """Probabilities, rewards and times of any kind, over promises of each kind."""
    n = data.draw(st.integers(1, 12))
    held = data.draw(st.sampled_from([0.0, 0.2]))
    served = served_by_hand()
    rows = [
        SimpleNamespace(
            seq=k + 1,
            id=f"{k:032x}",
            at=data.draw(st.floats(0, 200) | any_number),
            round=1,
            policy="p",
            decided_by=data.draw(st.sampled_from(["policy", "holdout", "pi0"])),
            action=data.draw(st.integers(0, 2)),
            propensity=data.draw(in_unit | any_number),
            p_policy=data.draw(in_unit | any_number),
            p_pi0=data.draw(in_unit | any_number),
            holdout=held,
            erased=None,
            context=data.draw(st.sampled_from(['{"x": 0}', '{"x": 1.5}'])),
            unit=data.draw(st.sampled_from([None, '"ana"', "7"])),
            candidates=None,
            pi0=None,
            p_chosen=None,
            why="",
            version=None,
            set_aside=data.draw(st.booleans()),
        )
        for k in range(n)
    ]
    reports = [
        (row.id, data.draw(st.sampled_from(["click", "stay"])), data.draw(any_number), 0.0, None)
        for row in rows
        for _ in range(data.draw(st.integers(0, 2)))
    ]
    rewards = [Report(*report) for report in reports]
    store = StoredRows(list(rows), rewards)
    combine = data.draw(st.sampled_from(["first", "largest", "sum"]))
    rule = ServingSettings(
        wait=10.0, holdout=held, combine=combine, cycle=60.0,
        default_reward=data.draw(st.sampled_from([0.0, -3.0, 1e200])),
    )  # fmt: skip
    promises = (
        Promise(),
        Promise(Floor(None, absolute=0.5), name="absolute"),
        Promise(reward="stay", r_max=2.0, name="stay"),
    )
    run = MonitorRun(MonitorEpoch(served, 1, 0), rule, promises, rounds=1)
    while run.step(store, 500.0):  # type: ignore[arg-type]
        pass
    assert all(math.isfinite(part.log_evidence) for part in run.evidence.parts)
    registration = Registration("ledger", "ab" * 32, "decision", (0.35, 0.05, 0.6), "family")
    floors = {promise.name: 0.5 for promise in promises}
    account = RoundAccount(served, rule, promises, floors, registration)
    account.take_in(StoredRows(rows, rewards), 500.0)  # type: ignore[arg-type]
    shown = [promise.margin for promise in account.promises]
    assert all(margin is None or math.isfinite(margin) for margin in shown)
    assert account.counts.all + account.left_out == len(rows)
    counted = [row for row in rows if row.decided_by != "pi0"]
    assert run.evidence.n + run.set_aside == len(counted)
    assert str(run.findings) and run.state
