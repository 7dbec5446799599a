"""The write path as a state machine: two services, one store, cut links, lost replies, kills.

Whatever happens, in the end the books agree: every answered decision is in the store once, with the
answered propensity; keys have one answer, but for twins that are marked; rewards count once, and
the first one counts.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.serving.model import NEXT, SERVED, SmallService, stored

from depsue.errors import ConfigError
from depsue.serving.messages import Decide, DecisionReply
from depsue.serving.schema import Reward
from depsue.serving.store import StoreGone
from depsue.serving.writing import QueuedCall

MEMORY = Path("/dev/shm")
"""A disk that syncs at once, where there is one."""
SERVICES = st.integers(0, 1)
KEYS = st.sampled_from([None, "a", "b", "c", "d"])
CANDIDATES = st.sampled_from([None, ["i0", "i1"], ["i1", "i2", "i3"]])


def context_of(key: str | None, other: bool) -> dict[str, Any]:
    """Each key has a context of its own; another one is a mistake."""
    return {"x": float(ord(key or "z")) + 0.5 * other}


@st.composite
def requests(draw: st.DrawFn) -> Decide:
    key = draw(KEYS)
    mistaken = draw(st.sampled_from([False] * 9 + [True]))
    candidates: Any = draw(CANDIDATES)
    return Decide(context_of(key, mistaken), candidates=candidates, key=key)


class WritePath(RuleBasedStateMachine):
    """Two services on one store."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None)
        self.now = 1000.0
        self.answered: dict[str, tuple[Decide, DecisionReply, bool]] = {}
        """By id: what was asked, what was answered, whether the store answered."""
        self.sent: dict[tuple[str, float], float] = {}
        """Values of rewards, by decision and time."""
        self.rewarded: dict[str, float] = {}
        """When the first acknowledged reward of a decision was received."""
        self.cut = False

    @initialize()
    def start(self) -> None:
        folder = Path(self.folder.name)
        self.store = folder / "decisions.db"
        self.services = [
            SmallService(folder / name, self.store, self.clock) for name in ("one", "two")
        ]

    def clock(self) -> float:
        self.now += 1.0
        return self.now

    @rule(s=SERVICES, calls=st.lists(st.lists(requests(), min_size=1, max_size=3), max_size=3))
    def ask(self, s: int, calls: list[list[Decide]]) -> None:
        service = self.services[s]
        if calls and len(service.under_way) < 2:
            service.prepare(*(QueuedCall.of(call) for call in calls))

    @rule(s=SERVICES, data=st.data(), value=st.sampled_from([0.0, 0.5, 1.0]))
    @precondition(lambda self: bool(self.answered))
    def reward(self, s: int, data: st.DataObject, value: float) -> None:
        id = data.draw(st.sampled_from(sorted(self.answered)))
        now = self.clock()
        self.sent[id, now] = value
        if len(self.services[s].under_way) < 2:
            self.services[s].prepare(QueuedCall.of(rewards=[Reward(id, "reward", "", value, now)]))

    @rule(s=SERVICES)
    def commit(self, s: int) -> None:
        service = self.services[s]
        if not service.under_way:
            return
        live = service.writer.live
        batch = service.commit()
        for call, answer in zip(batch.calls, batch.answers, strict=True):
            if isinstance(answer, Exception):
                assert isinstance(answer, ConfigError | StoreGone), answer
                continue
            for reward in call.rewards:
                self.rewarded.setdefault(reward.decision, reward.received)
            for asked, reply in zip(call.requests, answer if call.requests else (), strict=True):
                from_store = live and service.writer.live
                if from_store and asked.key is not None:
                    assert service.store.by_key([asked.key])[asked.key].id == reply.decision
                _, before, by_store = self.answered.get(reply.decision, (asked, reply, False))
                assert before == reply
                self.answered[reply.decision] = asked, reply, by_store or from_store

    @rule(s=SERVICES)
    def recover(self, s: int) -> None:
        self.services[s].writer.recover()

    @rule(s=SERVICES, up=st.booleans())
    def link(self, s: int, up: bool) -> None:
        self.services[s].link.up = up
        self.cut |= not up

    @rule(s=SERVICES, lost=st.sampled_from(["reply", "commit"]))
    def lose(self, s: int, lost: Any) -> None:
        self.services[s].link.lost = lost
        self.cut = True

    @rule(s=SERVICES)
    def kill(self, s: int) -> None:
        self.services[s].kill()
        self.services[s].start()

    @rule(s=SERVICES, stopped=st.booleans())
    def stop(self, s: int, stopped: bool) -> None:
        self.services[s].stopped = "stopped" if stopped else ""

    @rule(s=SERVICES)
    def deploy(self, s: int) -> None:
        self.services[s].served = NEXT if self.services[s].served is SERVED else SERVED

    @invariant()
    def keys_have_one_decision(self) -> None:
        if self.store.exists():
            keys = [row["key"] for row in stored(self.store).values() if not row["twin"]]
            keys = [key for key in keys if key is not None]
            assert len(keys) == len(set(keys))

    def teardown(self) -> None:
        try:
            if hasattr(self, "services"):
                self.balance()
        finally:
            self.folder.cleanup()

    def balance(self) -> None:
        """All links up, everything replayed: hold the store against what was answered."""
        for service in self.services:
            service.under_way = []
            service.settle()
        rows = stored(self.store)
        for id, (asked, reply, by_store) in self.answered.items():
            row = rows[id]  # every answered decision, once
            assert row["propensity"] == reply.propensity
            assert row["key"] == asked.key and json.loads(row["context"]) == asked.context
            assert not (row["twin"] and by_store)  # what the store answered stands
        twins = [row for row in rows.values() if row["twin"]]
        assert all(row["id"] in self.answered for row in twins)
        assert self.cut or not twins
        for service in self.services:
            assert service.store.twins() == len(twins)
            for key, row in {row["key"]: row for row in rows.values() if not row["twin"]}.items():
                if key is not None:  # all services agree from now on
                    (reply,) = service.ask(Decide(json.loads(row["context"]), key=key))
                    assert isinstance(reply, DecisionReply) and reply.decision == row["id"]
        _, rewards = self.services[0].store.read(wait=1e9)
        earned = {each.decision: each for each in rewards}
        assert len(earned) == len(rewards)
        for id, received in self.rewarded.items():
            if not rows[id]["twin"]:
                assert earned[id].received <= received
        for each in rewards:
            assert self.sent[each.decision, each.received] == each.value
        for service in self.services:
            service.kill()


TestWritePath = WritePath.TestCase
TestWritePath.settings = settings(
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=50,
    stateful_step_count=40,
    suppress_health_check=list(HealthCheck),
)
