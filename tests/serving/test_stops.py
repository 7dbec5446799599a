"""A stop holds, whatever happens, until a resume names it."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest
from tests.database.conftest import Server
from tests.serving.asgi import batch, caller, context
from tests.serving.conftest import Serve, seeded_chance

from depsue.campaigns import Campaign
from depsue.errors import ConfigError, FileError
from depsue.serving.schema import MonitorEvent
from depsue.serving.served import ServedPolicy
from depsue.serving.service import Service
from depsue.serving.settings import ServingSettings
from depsue.serving.stops import StopFile, Stops, StopSet
from depsue.serving.store import Store, StoreGone


def gone(*_: object) -> NoReturn:
    raise StoreGone("the store of decisions must answer", found="no answer")


def full(*_: object) -> NoReturn:
    raise FileError("a stop is written to disk", found="no space left")


def test_a_stop_holds_over_a_restart_until_a_resume_names_it(
    campaign: Campaign, home: Path
) -> None:
    settings, folder = ServingSettings(wait=60.0, holdout=0.0), campaign.files.folder
    chance = seeded_chance()
    service = Service(campaign, settings, chance=chance)
    service.start()
    call = caller(service, home)
    assert call.post("/v1/decide", {"context": context()}).json["decided_by"] == "policy"
    reply = call.post("/v1/policy/stop", {"reason": "a test", "by": "ana"}).json
    assert (reply["state"], reply["says"]) == ("stopped", "Stopped: current policy serving")
    (stop,) = reply["stops"]
    assert (stop["reason"], stop["by"]) == ("a test (by hand)", "ana")
    assert stop["durable"] == "store"
    assert {one["decided_by"] for one in batch(call, 20)} == {"pi0"}
    service.close()
    for lost in ("stops.jsonl", "decisions.db"):  # either remembers it
        (folder / lost).unlink()
        service = Service(campaign, settings, chance=chance)
        service.start()
        call = caller(service, home)
        assert {one["decided_by"] for one in batch(call, 20)} == {"pi0"}
        assert [one["id"] for one in call.get("/v1/status").json["stops"]] == [stop["id"]]
        if lost == "decisions.db":
            body = {"reason": "healthy", "by": "bo", "stops": [stop["id"]]}
            resumed = call.post("/v1/policy/resume", body)
            assert resumed.status == 200 and resumed.json["stops"] == []
            assert resumed.json["decides"]["who"] == "policy"
            assert {one["decided_by"] for one in batch(call, 20)} == {"policy"}
            assert call.post("/v1/policy/resume", body).status == 200  # its reply got lost
            assert service.status.state == "waiting"
        service.close()
    (folder / "decisions.db").unlink()  # the resume is remembered in both places, too
    service = Service(campaign, settings, chance=chance)
    service.start()
    assert not service.stopped
    service.close()


def test_a_resume_names_the_stops_that_its_author_saw(serve: Serve, home: Path) -> None:
    service = serve()
    call = caller(service, home)
    seen = service.stop_policy("it fell", "the monitor")
    other = service.stop_policy("a complaint", "bo")
    body: dict[str, Any] = {"reason": "mended", "by": "ana"}
    refusal = call.post("/v1/policy/resume", body)
    assert refusal.status == 409 and "GET /v1/status lists" in refusal.json["cure"]
    refusal = call.post("/v1/policy/resume", {**body, "stops": ["stop-of-tomorrow"]})
    assert refusal.status == 409 and "stop-of-tomorrow" in refusal.json["found"]
    assert len(service.status.stops) == 2
    reply = call.post("/v1/policy/resume", {**body, "stops": [seen.id]}).json
    assert [one["id"] for one in reply["stops"]] == [other.id]
    assert reply["decides"] == {"who": "pi0", "why": "a complaint", "fallback": True}
    assert {one["decided_by"] for one in batch(call, 20)} == {"pi0"}


@pytest.mark.parametrize("name", ["tripped.json", "stopped.json"])
@pytest.mark.parametrize("text", ['{"reason": "a test", "by": "bo", "at": 7.0}', "{damaged"])
def test_a_stop_of_an_earlier_version_holds(
    campaign: Campaign, serve: Serve, name: str, text: str
) -> None:
    folder = campaign.files.folder
    (folder / name).write_text(text)
    service = serve()
    (stop,) = service.status.stops
    unread = f"{name} was there, and could not be read"
    assert stop.reason == ("a test" if "test" in text else unread)
    assert not (folder / name).exists() and stop.id in (folder / "stops.jsonl").read_text()
    service.resume_policy([stop.id], "mended", "bo")
    assert not service.stopped


def test_a_stop_that_cannot_be_made_durable_holds_and_says_so(
    serve: Serve, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = serve(holdout=0.0)
    call = caller(service, home)
    with monkeypatch.context() as broken:
        broken.setattr(StopFile, "add", full)
        broken.setattr(Store, "add_events", gone)
        (stop,) = call.post("/v1/policy/stop", {"reason": "a test"}).json["stops"]
        assert stop["durable"] == "nowhere"
        assert {one["decided_by"] for one in batch(call, 20)} == {"pi0"}
    service.turn()
    assert [one.durable for one in service.status.stops] == ["store"]


def test_a_full_disk_leaves_no_half_stop_behind(
    campaign: Campaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a line would stop the policy at the next start, although nobody did."""
    file = StopFile(campaign.files.folder)
    stop = MonitorEvent("stop-1", 7.0, "stop", 1, "", "a test", "ana")
    write = os.write
    with monkeypatch.context() as full_disk:
        full_disk.setattr(os, "write", lambda file, content: write(file, content[:20]))
        with pytest.raises(FileError, match="No space left"):
            file.add([stop])
    assert file.read() == []
    file.add([stop])
    assert StopFile(campaign.files.folder).read() == [stop]


def test_a_line_that_cannot_be_read_counts_as_a_stop(campaign: Campaign, serve: Serve) -> None:
    service = serve()
    first = service.stop_policy("a test", "ana")
    service.resume_policy([first.id], "mended", "ana")
    service.close()
    file = campaign.files.folder / "stops.jsonl"
    with file.open("ab") as lines:
        lines.write(b'\n{"id": "stop-1", "at": 7')  # a process died within it
    service = serve()
    (stop,) = service.status.stops
    assert "cannot be read" in stop.reason and stop.id.startswith("unreadable-")
    service.stop_policy("another", "ana")
    assert json.loads(file.read_bytes().splitlines()[-1])["reason"] == "another"
    service.resume_policy([stop.id], "looked at", "ana")
    assert service.stopped == "another"


def test_a_stop_that_one_place_has_as_a_resume_is_a_stop(campaign: Campaign, serve: Serve) -> None:
    """Whoever edits the line on disk lifts nothing: the store has the stop."""
    service = serve()
    stop = service.stop_policy("a test", "ana")
    service.close()
    file = campaign.files.folder / "stops.jsonl"
    text = file.read_text()
    assert '"kind":"stop"' in text.replace(" ", "")
    file.write_text(text.replace('"stop"', '"resume"', 1))
    service = serve()
    assert [standing.id for standing in service.status.stops] == [stop.id]
    events = [
        MonitorEvent("stop-1", 7.0, "stop", 1, "", "a test", "ana"),
        MonitorEvent("stop-1", 7.0, "resume", 1, "", "edited", "ana", stops=("stop-1",)),
    ]
    assert [e.kind for e in StopSet(events).standing] == ["stop"]
    assert [e.kind for e in StopSet(events[::-1]).standing] == ["stop"]


def test_pi0_decides_until_the_stops_of_before_can_be_read(
    campaign: Campaign, serve: Serve, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(Store, "events", gone)
        service = serve(holdout=0.0)
        call = caller(service, home)
        assert {one["decided_by"] for one in batch(call, 20)} == {"pi0"}
        status = call.get("/v1/status").json
        assert status["says"] == "Not watched: current policy serving"
        assert "stops of before cannot be read" in status["reason"]
    service.turn()
    assert {one["decided_by"] for one in batch(call, 20)} == {"policy"}


class SharedStore:
    """A store of events that two services share; it may be gone, or lose its replies.

    Args:
        mode: "up"; "gone", which neither reads nor writes; or "mute", which writes and does not
            reply.
    """

    def __init__(self) -> None:
        self.events: dict[str, MonitorEvent] = {}
        self.mode = "up"

    def read(self) -> list[MonitorEvent]:
        """As `EventLog.read`."""
        if self.mode != "up":
            gone()
        return list(self.events.values())

    def add(self, events: Sequence[MonitorEvent]) -> None:
        """As `EventLog.add`."""
        if self.mode == "gone":
            gone()
        for event in events:
            self.events.setdefault(event.id, replace(event, seq=len(self.events) + 1))
        if self.mode == "mute":
            gone()


class Disk(StopFile):
    """A file of stops in memory; it may be full."""

    def __init__(self) -> None:
        self.events: list[MonitorEvent] = []
        self.full = False

    def read(self) -> list[MonitorEvent]:
        """As `StopFile.read`."""
        return list(self.events)

    def read_before(self) -> list[MonitorEvent]:
        """There is none."""
        return []

    def remove_before(self) -> None:
        """There is nothing to remove."""

    @property
    def has_changed(self) -> bool:
        """Always read it again."""
        return True

    def add(self, events: Sequence[MonitorEvent]) -> None:
        """As `StopFile.add`."""
        if self.full:
            full()
        self.events += events


class Model:
    """Two services on one store, each with a disk of its own, and the books of an onlooker."""

    def __init__(self, served: ServedPolicy) -> None:
        self._served = served
        self.store, self.disks = SharedStore(), (Disk(), Disk())
        self.services = [self._begun(which) for which in (0, 1)]
        self.count = [0, 0]
        self.acknowledged: set[str] = set()
        """Stops whose author was answered that they are durable."""
        self.named: set[str] = set()
        """Stops that an author asked to resume, whatever the answer."""

    def _begun(self, which: int) -> Stops:
        stops = Stops(self.disks[which], self.store, lambda: self._served, clock=lambda: 0.0)
        stops.read_disk()
        self._settled(stops)
        return stops

    @staticmethod
    def _settled(stops: Stops) -> None:
        try:
            stops.settle()
        except StoreGone:
            return

    def stop(self, which: int) -> None:
        """Somebody, or the monitor, stops the policy."""
        self.count[which] += 1
        stop = self.services[which].stop("why", "ana", id=f"{which}-{self.count[which]}")
        if stop.durable != "nowhere":
            self.acknowledged.add(stop.id)

    def resume(self, which: int) -> None:
        """Somebody resumes the policy, by all stops that this service shows."""
        seen = [stop.id for stop in self.services[which].standing]
        self.named |= set(seen)
        try:
            self.services[which].resume(seen, "why", "bo")
        except (StoreGone, ConfigError):
            return

    def settle(self, which: int) -> None:
        """A turn of the watcher."""
        self._settled(self.services[which])

    def restart(self, which: int) -> None:
        """The process is killed, and another one begins."""
        self.services[which] = self._begun(which)

    def store_is(self, mode: str) -> None:
        """The store goes, comes back, or loses its replies."""
        self.store.mode = mode

    def disk_is_full(self, which: int) -> None:
        """A disk fills up, or has room again."""
        self.disks[which].full = not self.disks[which].full

    def check(self) -> None:
        """What is promised, at any time, and once the store is back."""
        for which, stops in enumerate(self.services):
            own = {id for id in self.acknowledged if id.startswith(f"{which}-")}
            standing = {stop.id for stop in stops.standing}
            assert own - self.named <= standing or stops.unread, "a stop has lifted itself"
        self.store.mode = "up"
        for stops in (*self.services, self.services[0]):
            stops.settle()
        for stops in self.services:
            standing = {stop.id for stop in stops.standing}
            assert self.acknowledged - self.named <= standing, "a stop was forgotten"
            assert not stops.unread

    @property
    def state(self) -> tuple[object, ...]:
        """All that decides what may happen next."""

        def of(events: Sequence[MonitorEvent]) -> frozenset[object]:
            return frozenset(one.stops or one.id for one in events)

        return (
            of(list(self.store.events.values())),
            self.store.mode,
            *(of(disk.events) for disk in self.disks),
            *(disk.full for disk in self.disks),
            *(frozenset((stop.id, stop.durable) for stop in one.standing) for one in self.services),
            *(one.unread for one in self.services),
            frozenset(self.acknowledged),
            frozenset(self.named),
        )


STEPS: tuple[tuple[str, Callable[[Model], None]], ...] = (
    ("A stops", lambda model: model.stop(0)),
    ("B stops", lambda model: model.stop(1)),
    ("A resumes", lambda model: model.resume(0)),
    ("B resumes", lambda model: model.resume(1)),
    ("A settles", lambda model: model.settle(0)),
    ("A restarts", lambda model: model.restart(0)),
    ("B restarts", lambda model: model.restart(1)),
    ("store up", lambda model: model.store_is("up")),
    ("store gone", lambda model: model.store_is("gone")),
    ("store mute", lambda model: model.store_is("mute")),
    ("A's disk", lambda model: model.disk_is_full(0)),
)


def test_no_order_outage_lost_reply_or_restart_lifts_a_stop(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    """Every interleaving of two services, their disks and a store, up to five steps.

    A sequence that leads where another one led is not followed further.
    """
    served = serve().served
    caplog.set_level(logging.CRITICAL, "depsue")  # thousands of stops
    known: set[object] = set()
    paths: list[tuple[int, ...]] = [()]
    for _ in range(5):
        longer: list[tuple[int, ...]] = []
        for path in ((*path, step) for path in paths for step in range(len(STEPS))):
            model = Model(served)
            for step in path:
                STEPS[step][1](model)
            if model.state in known:
                continue
            known.add(model.state)
            longer.append(path)
            try:
                model.check()
            except AssertionError as problem:
                raise AssertionError([STEPS[step][0] for step in path]) from problem
        paths = longer
    assert len(known) > 1000


def test_a_stop_of_an_outage_holds_after_a_restart_and_reaches_other_services(
    campaign: Campaign, home: Path, postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On PostgreSQL: stopped while the store is gone, killed, and back with the store."""
    url, chance = postgres.new_database(), seeded_chance()

    def begun() -> Service:
        settings = ServingSettings(wait=60.0, holdout=0.0)
        service = Service(campaign, settings, store=url, refresh=3600.0, chance=chance)
        service.start()
        return service

    first = begun()
    assert first.status.decides.who == "policy"
    with monkeypatch.context() as broken:
        broken.setattr(Store, "add_events", gone)
        stop = first.stop_policy("it fell", "the monitor")
        assert stop.durable == "disk"
        first.close()
    again = begun()
    try:
        assert [one.id for one in again.status.stops] == [stop.id]
        assert again.status.decides.who == "pi0"
        (campaign.files.folder / "stops.jsonl").unlink()  # as on another machine
        other = begun()
        assert other.stopped == "it fell"
        with monkeypatch.context() as broken:  # one failed connection lifts nothing
            broken.setattr(Store, "events", gone)
            other.turn()
            assert other.status.state == "stopped" and other.status.decides.who == "pi0"
        other.resume_policy([stop.id], "mended", "bo")
        assert again.stopped and not other.stopped  # until it has read the store
        again.turn()
        assert {one.status.decides.who for one in (again, other)} == {"policy"}
        epochs = {service.monitor.run.epoch.id for service in (again, other) if service.monitor.run}
        assert len(epochs) == 1  # both go on with one epoch
        other.close()
    finally:
        again.close()
