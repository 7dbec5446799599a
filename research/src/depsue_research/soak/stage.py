"""The stage of a soak: services, their store, what breaks, and in which order.

A scene is one fault with what goes on around it: a service is killed while its store is gone, say,
and comes back before the store does. The seed draws the scenes and their times. What clients do
between them depends on the machine as well, so a seed repeats the plan of a run and not its bytes.
"""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from depsue_research.soak.book import Book, Fault, FaultKind, Health, Intervened, NotAnswered, now
from depsue_research.soak.proxy import CutProxy
from depsue_research.soak.servers import PostgresServer, ServiceProcess, SoakError

LOOK = 0.1
"""Seconds between two looks at how the services are."""
SETTLED = 30.0
"""Seconds in which services must be well again."""
ROOMS = (0, 1 << 14, 1 << 18)
"""Bytes that a file may have while the disk is full: none, few, and enough for a small journal."""
_LOST = (OSError, http.client.HTTPException, ValueError)


class SoakStage:
    """Services of one campaign, and all that can be broken about them.

    Args:
        services: one, or several on one PostgreSQL.
        postgres: their server; None where the store is a file.
        proxies: between each service and PostgreSQL.
        folder: for the books of the stage.
        rng: draws scenes and times.
        life: seconds between two scenes, on average.
    """

    def __init__(
        self,
        services: list[ServiceProcess],
        postgres: PostgresServer | None,
        proxies: list[CutProxy],
        folder: Path,
        rng: random.Random,
        life: float,
    ) -> None:
        self.services, self._postgres, self._proxies = services, postgres, proxies
        self._rng, self._life = rng, life
        self.book = Book(folder / "stage.jsonl")
        self.kills = self.postgres_kills = 0
        self.intervene: Callable[[], None] = lambda: None
        """Stops the policy or resumes it: stops matter most while something is broken."""

    def play(self) -> None:
        """One scene, drawn; it ends with everything mended, and perhaps settled."""
        scenes: dict[Callable[[], None], int] = {
            self._kill: 60,
            self._no_room: 25,
            self._freeze: 5,
            self._end: 5,
        }
        if self._postgres is not None:
            scenes = {
                self._kill: 30,
                self._kill_all: 8,
                self._store_down: 25,
                self._cut: 25,
                self._silence: 12,
                self._freeze: 6,
            }
        time.sleep(self._rng.expovariate(1 / self._life))
        self._rng.choices(list(scenes), list(scenes.values()))[0]()
        if self._rng.random() < 0.3:
            self.settle()

    def settle(self) -> bool:
        """Wait until every service says that it is well; whether they all did."""
        latest = now() + SETTLED
        while now() < latest:
            looks = [self.look(k) for k in range(len(self.services))]
            if all(look is not None and look.well for look in looks):
                return True
            time.sleep(LOOK)
        return False

    def look(self, number: int) -> Health | None:
        """What a service says of itself, written down; None if it says nothing."""
        service, began = self.services[number], now()
        try:
            status, values = service.ask("GET", "/v1/status", timeout=2.0)
        except _LOST:
            return None
        if status != 200:
            return None
        store = values["store"]
        well = not store["gone"] and not store["journalled"]
        stopped = "; ".join(stop["reason"] for stop in values["stops"])
        look = Health(number, began, well, stopped, store["damaged"], service.memory)
        self.book.write(look)
        return look

    def start_all(self) -> None:
        """Start every service, and wait until all answer."""
        for service in self.services:
            service.start()
        for service in self.services:
            service.wait()

    def end_all(self) -> None:
        """Ask every service to end, which nothing accepted may be lost by."""
        for number, service in enumerate(self.services):
            code = service.end()
            if code not in (0, -15):
                self._complain(number, f"ended with {code} when it was asked to")

    def _kill(self) -> None:
        self._strike(self._rng.randrange(len(self.services)))

    def _kill_all(self) -> None:
        for number in range(len(self.services)):
            self._strike(number, wait=False)
        for service in self.services:
            service.wait()

    def _end(self) -> None:
        """An orderly restart."""
        number = self._rng.randrange(len(self.services))
        service = self.services[number]
        if service.end() not in (0, -15):
            self._complain(number, "did not end when it was asked to")
        service.start()
        service.wait()

    def _freeze(self) -> None:
        """A service stands still for a while, and others do not."""
        number = self._rng.randrange(len(self.services))
        fault = self._begin("frozen", number)
        self.services[number].freeze()
        self._perhaps_intervene()
        self._sleep(3.0)
        self.services[number].thaw()
        self._mend(fault)

    def _no_room(self) -> None:
        """The disk is full, for the store and perhaps for the journal; a kill within, perhaps."""
        service, room = self.services[0], self._rng.choice(ROOMS)
        fault = self._begin("no room", 0)
        service.limit(room)
        self._sleep(1.0)
        self._perhaps_intervene()
        if self._rng.random() < 0.5:
            self._strike(0, room=room if self._rng.random() < 0.5 else None)
            self._sleep(0.5)
        service.limit(None)
        if not service.alive:  # it may refuse to start without a disk
            service.start()
            service.wait()
        self._mend(fault)

    def _store_down(self) -> None:
        """PostgreSQL is killed or stopped, and services perhaps with it."""
        postgres = self._postgres
        assert postgres is not None
        fault = self._begin("store down", None)
        how = self._rng.choice(("kill", "immediate", "fast"))
        if how == "kill":
            postgres.kill()
        else:
            postgres.stop(how)
        self.postgres_kills += how != "fast"
        self._sleep(1.0)
        self._perhaps_intervene()
        full = self._rng.choice(self.services) if self._rng.random() < 0.3 else None
        if full is not None:  # no store, and no journal
            full.limit(0)
        waiting = []
        for number, service in enumerate(self.services):
            if self._rng.random() < 0.5:
                self._strike(number, wait=False, start=False)
                if self._rng.random() < 0.7:
                    service.start()
                    service.wait()
                else:
                    waiting.append(service)
        self._sleep(1.0)
        if full is not None:
            full.limit(None)
        postgres.start()
        for service in waiting:
            service.start()
            service.wait()
        self._mend(fault)

    def _cut(self) -> None:
        """A commit whose connection is cut, before or after it succeeded."""
        number = self._rng.randrange(len(self.services))
        proxy = self._proxies[number]
        fault = self._begin("cut", number)
        for _ in range(self._rng.choice((0, 1, 1, 2, 3))):
            proxy.arm(self._rng.choice(("before", "after", "after")))
            latest = now() + 1.5
            while proxy.armed and now() < latest:
                time.sleep(0.002)
        proxy.disarm()
        if self._rng.random() < 0.3:  # also those that do not commit
            proxy.cut()
        if self._rng.random() < 0.4:
            self._sleep(0.3)
            self._strike(number)
        self._mend(fault)

    def _silence(self) -> None:
        """No byte passes between a service and PostgreSQL for a while."""
        number = self._rng.randrange(len(self.services))
        fault = self._begin("silent", number)
        self._proxies[number].silence()
        self._perhaps_intervene()
        self._sleep(2.5)
        killed = self._rng.random() < 0.4
        if killed:
            self._strike(number, wait=False)
            self._sleep(1.0)
        if self._rng.random() < 0.5:
            self._proxies[number].cut()
        self._proxies[number].speak()
        if killed:
            self.services[number].wait()
        self._mend(fault)

    def _strike(
        self, number: int, *, room: int | None = None, wait: bool = True, start: bool = True
    ) -> None:
        """kill -9 of a service, and its next life.

        Args:
            number: which.
            room: bytes that a file of its next life may have; it may then refuse to start.
            wait: whether to wait until it answers.
            start: whether it starts again at once.
        """
        service = self.services[number]
        if not service.alive:
            self._complain(number, "ended by itself")
        fault = self._begin("killed", number)
        service.kill()
        self.kills += 1
        if start:
            service.start(room)
            if wait:
                try:
                    service.wait()
                except SoakError:
                    if room is None:
                        raise
        self._mend(fault)

    def _perhaps_intervene(self) -> None:
        if self._rng.random() < 0.5:
            self.intervene()

    def _begin(self, kind: FaultKind, number: int | None) -> Fault:
        return Fault(kind, number, now())

    def _mend(self, fault: Fault) -> None:
        fault.ended = now()
        self.book.write(fault)

    def _sleep(self, most: float) -> None:
        time.sleep(self._rng.random() * most)

    def _complain(self, number: int, words: str) -> None:
        self.book.write(NotAnswered(number, "process", 500, words, now()))


class Admin(threading.Thread):
    """Stops the policy and resumes it, whatever else goes on.

    Args:
        stage: where.
        folder: for the book.
        seed: of the times.
        gap: seconds between two interventions, on average.
    """

    def __init__(self, stage: SoakStage, folder: Path, seed: int, gap: float) -> None:
        super().__init__(name="admin", daemon=True)
        self._stage, self._gap = stage, gap
        self._rng = random.Random(f"admin {seed}")
        self.book = Book(folder / "admin.jsonl")
        self._turn = threading.Lock()
        self._ending = threading.Event()
        stage.intervene = self.toggle

    def end(self) -> None:
        """Ask it to end."""
        self._ending.set()

    def run(self) -> None:
        """Intervene until it is asked to end."""
        while not self._ending.wait(self._rng.expovariate(1 / self._gap)):
            self.toggle()

    def toggle(self) -> None:
        """Stop the policy at a service that is drawn, or name the stops that it shows."""
        with self._turn:
            self._toggle()

    def _toggle(self) -> None:
        number = self._rng.randrange(len(self._stage.services))
        service = self._stage.services[number]
        reason = f"soak {len(self.book.entries)}"
        body: dict[str, Any] = {"reason": reason, "by": "soak"}
        status, values = 0, None
        try:
            _, values = service.ask("GET", "/v1/status")
            seen = [stop["id"] for stop in values["stops"]]
        except _LOST:
            return
        kind: Literal["stop", "resume"] = "resume" if seen else "stop"
        if seen:
            body["stops"] = seen
        began = now()
        try:
            status, values = service.ask("POST", f"/v1/policy/{kind}", body, timeout=6.0)
        except _LOST:
            status = 0
        if status not in (0, 200, 503):
            words = json.dumps(values)[:300]
            self.book.write(NotAnswered(number, f"/v1/policy/{kind}", status, words, now()))
        durable = status == 200
        if kind == "stop" and status == 200:
            made = [stop for stop in values["stops"] if stop["reason"].startswith(f"{reason} ")]
            seen = [stop["id"] for stop in made]
            # a stop that is durable nowhere says so, and promises nothing after a kill
            durable = bool(made) and all(stop["durable"] != "nowhere" for stop in made)
        self.book.write(Intervened(kind, number, seen, began, now(), durable))
