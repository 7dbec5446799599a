"""A small service in this process, on a store whose link can be cut: no threads, no HTTP.

A test prepares a batch (the worker's part), commits it (the writer's part) and lets the writer
recover, step by step, in whatever order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np

from depsue.campaigns.secret import Secret
from depsue.data.catalogue import Catalogue
from depsue.data.mapping import LogMapping
from depsue.policies.simple import ByItem
from depsue.serving.journal import Journal
from depsue.serving.messages import Decide, DecisionReply
from depsue.serving.schema import Decision, Reward
from depsue.serving.served import ServedPolicy
from depsue.serving.settings import ServingSettings
from depsue.serving.store import InDoubt, Store, StoreGone
from depsue.serving.worker import Worker
from depsue.serving.writing import Batch, QueuedCall

T = TypeVar("T")
MAPPING = LogMapping(action="item", reward="reward", propensity="p", numeric=("x",))
SERVED = ServedPolicy(
    round=1,
    hash="a" * 64,
    what="certified",
    novelty=0.5,
    policy=ByItem([0.1, 0.2, 0.3, 0.4]),
    pi0=ByItem([0.6, 0.4, 0.0, 0.0]),
    catalogue=Catalogue(np.array(["i0", "i1", "i2", "i3"]), np.array([False, False, True, True])),
    mapping=MAPPING,
)
NEXT = replace(SERVED, round=2, hash="b" * 64, policy=ByItem([0.4, 0.3, 0.2, 0.1]))


@dataclass
class Link:
    """The way to the store.

    Args:
        up: whether the store can be reached.
        lost: what becomes of the next commit: its reply is lost, or it is.
    """

    up: bool = True
    lost: Literal["", "reply", "commit"] = ""


class LinkedStore(Store):
    """A real store behind a link."""

    def __init__(self, path: Path, link: Link, reports_within: float = 0.0) -> None:
        super().__init__(path, "spring", writing=True, reports_within=reports_within)
        self._link = link

    def open(self) -> None:
        """As the store does."""
        self._reach()
        super().open()

    def write(
        self,
        made: Sequence[Decision] = (),
        earned: Sequence[Reward] = (),
        *,
        check: Callable[[dict[str, Decision]], None] | None = None,
    ) -> dict[str, Decision]:
        """As the store does."""
        return self._committed(lambda: super(LinkedStore, self).write(made, earned, check=check))

    def replay(self, made: Sequence[Decision], in_doubt: Any, earned: Sequence[Reward]) -> int:
        """As the store does."""
        return self._committed(lambda: super(LinkedStore, self).replay(made, in_doubt, earned))

    def by_key(self, keys: Sequence[str]) -> dict[str, Decision]:
        """As the store does."""
        self._reach()
        return super().by_key(keys)

    def _committed(self, commit: Callable[[], T]) -> T:
        self._reach()
        lost, self._link.lost = self._link.lost, ""
        outcome = None if lost == "commit" else commit()
        if lost:
            self._link.up = False
            raise InDoubt("a commit must be answered", found="the link was cut")
        assert outcome is not None
        return outcome

    def _reach(self) -> None:
        if not self._link.up:
            raise StoreGone("the store must answer", found="the link is cut")


class SmallService:
    """A service without threads.

    Args:
        folder: for its journal.
        path: of the store.
        clock: seconds since 1970.
    """

    def __init__(
        self,
        folder: Path,
        path: Path,
        clock: Callable[[], float] = lambda: 100.0,
        link: Link | None = None,
        **settings: Any,
    ) -> None:
        self._folder, self._path, self._clock = folder, path, clock
        self._settings = ServingSettings(**{"holdout": 0.2} | settings)
        self.link = Link() if link is None else link
        self.served, self.stopped = SERVED, ""
        self.under_way: list[Batch] = []
        self.start()

    def start(self) -> None:
        """Start, or start again after `kill`."""
        self.store = LinkedStore(self._path, self.link, self._settings.wait)
        self.journal = Journal(self._folder)
        self.worker = Worker(
            self.store,
            self.journal,
            lambda: self.served,
            lambda: self.stopped,
            self._settings,
            Secret(1, b"s" * 32),
            clock=self._clock,
            retry=0.0,
        )
        self.writer = self.worker.writer
        self.writer.open()

    def kill(self) -> None:
        """End at once: what was under way is nobody's; files and connections are let go."""
        self.under_way = []
        self.journal.close()
        self.store.close()

    def prepare(self, *calls: QueuedCall) -> Batch:
        """What the worker does: the calls of one batch, decided."""
        batch = self.worker.batch(list(calls))
        self.under_way.append(batch)
        return batch

    def commit(self) -> Batch:
        """What the writer does: the oldest batch under way, written and answered."""
        batch = self.under_way.pop(0)
        self.writer.commit(batch)
        return batch

    def ask(self, *requests: Decide) -> list[Any]:
        """Answers to requests that arrive together, each from a caller of its own."""
        self.prepare(*(QueuedCall.of([request]) for request in requests))
        return [one_reply(answer) for answer in self.commit().answers]

    def reward(self, *rewards: Reward) -> Any:
        """The answer to rewards."""
        self.prepare(QueuedCall.of(rewards=rewards))
        return self.commit().answers[0]

    def settle(self) -> None:
        """Recover until the store is live again."""
        self.link.up, self.link.lost = True, ""
        for _ in range(100):
            self.writer.recover()
            if self.writer.live:
                return
        raise AssertionError("the journal was not emptied")


def one_reply(answer: Any) -> DecisionReply | Exception:
    """The reply to a call of one request, or why there is none."""
    if isinstance(answer, Exception):
        return answer
    (reply,) = answer
    assert isinstance(reply, DecisionReply)
    return reply


def request(key: str | None = None, x: float = 0.0, **more: Any) -> Decide:
    """A request of the small service."""
    return Decide({"x": x}, key=key, **more)


def stored(path: Path) -> dict[str, Any]:
    """All rows of the store by id, twins among them."""
    import sqlite3

    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    connection.row_factory = sqlite3.Row
    rows = connection.execute("SELECT * FROM serving_decisions ORDER BY seq").fetchall()
    connection.close()
    by_id = {row["id"]: row for row in rows}
    assert len(by_id) == len(rows)
    return by_id
