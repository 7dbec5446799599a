"""Decides for all requests that wait, in batches that are committed together.

While one batch is committed (`writing`), the next gathers and is decided; so the disk is asked once
for many requests. Nothing is answered before it is durable: in the store, or, while that is gone
and the user wants it so, in the spool, decided by pi0.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np
import torch

from depsue.errors import DepsueError, PolicyError
from depsue.serving.deciding import Endpoint, check_request, decide, digest, require_same_request
from depsue.serving.messages import Decide, DecisionReply
from depsue.serving.served import ServedPolicy
from depsue.serving.store import Decision, Reward, Store, StoreGone
from depsue.serving.writing import Batch, QueuedCall, Spool, Writer

log = logging.getLogger(__name__)
MOST_AT_ONCE = 512
"""Requests in one batch."""
UNDER_WAY = 2
"""Batches at once: one that is committed, one that is decided."""
GATHER, LONGEST = 0.0005, 0.003
"""Seconds for which the next request is waited for, and all together, before a batch begins."""


class Busy(DepsueError):
    """More is asked than can be answered now."""


class Worker:
    """Decides, and hands on to the writer.

    Args:
        store: where decisions go.
        reader: the same, for looking up keys.
        spool: where they go while the store is gone.
        served: says what serves now.
        fallback: says why pi0 must decide; "" if nothing does.
        holdout: the share of traffic that stays on pi0.
        on_gone: "pi0" to go on into the spool, "stop" to refuse.
        most_waiting: decisions and rewards that may wait.
        own_pi0: the team's own pi0, asked first on fallback.
    """

    def __init__(
        self,
        store: Store,
        reader: Store,
        spool: Spool,
        served: Callable[[], ServedPolicy],
        fallback: Callable[[], str],
        *,
        holdout: float,
        on_gone: str,
        most_waiting: int,
        own_pi0: Endpoint | None = None,
    ) -> None:
        self._reader, self._served, self._fallback = reader, served, fallback
        self._holdout, self._most, self._own_pi0 = holdout, most_waiting, own_pi0
        self._queue: SimpleQueue[QueuedCall | None] = SimpleQueue()
        self._waiting = 0
        self._rng = np.random.default_rng()
        self._pending: dict[str, str | None] = {}
        self._slots = threading.Semaphore(UNDER_WAY)
        self._thread = threading.Thread(target=self._run, name="depsue-worker", daemon=True)
        self.writer = Writer(
            store,
            spool,
            again=self._again,
            on_gone=on_gone,
            answered=self._answered,
        )
        self.event = self.writer.event

    @property
    def gone(self) -> str:
        """Why the store cannot be written to; "" while it can."""
        return self.writer.gone

    @property
    def waiting(self) -> int:
        """Requests and rewards that wait."""
        return self._waiting

    def start(self) -> None:
        """Open the store, replay what waits, and begin; a store that is gone is tried again."""
        self.writer.start()
        self._thread.start()

    def close(self) -> None:
        """Finish what was accepted, then end."""
        self._queue.put(None)
        self._thread.join()
        self.writer.close()
        self._reader.close()

    def decide(self, requests: Sequence[Decide]) -> asyncio.Future[list[DecisionReply]]:
        """Answers when the decisions are durable; `Busy` if too many wait."""
        return self._put(requests, ())

    def reward(self, rewards: Sequence[Reward]) -> asyncio.Future[int]:
        """Answers when the rewards are durable; `Busy` if too many wait."""
        return self._put((), rewards)

    def _put(self, requests: Sequence[Decide], rewards: Sequence[Reward]) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        size = len(requests) + len(rewards)
        if self._waiting + size > max(self._most, size):
            raise Busy("the service has more to do than it can", cure="try again in a moment")
        self._waiting += size
        future: asyncio.Future[Any] = loop.create_future()
        self._queue.put(QueuedCall(requests, rewards, future, loop))
        return future

    def _run(self) -> None:
        torch.set_num_threads(1)  # batches are small: threads would only wait for each other
        ending = False
        while not ending:
            self._slots.acquire()
            jobs, ending = self._gathered(self._queue.get())
            for place, batch in enumerate(self._batches(jobs) if jobs else ()):
                if place > 0:
                    self._slots.acquire()
                self.writer.put(batch)

    def _gathered(self, first: QueuedCall | None) -> tuple[list[QueuedCall], bool]:
        """What waits, and comes within moments; and whether it is time to end.

        A commit costs the disk a few milliseconds, whatever it holds: those who were answered
        together ask again together, and one commit does for all of them.
        """
        jobs: list[QueuedCall] = []
        size, latest = 0, time.monotonic() + LONGEST
        job = first
        while job is not None:
            jobs.append(job)
            size += len(job.requests) + len(job.rewards)
            if size >= MOST_AT_ONCE or time.monotonic() > latest:
                return jobs, False
            try:
                job = self._queue.get(timeout=GATHER)
            except Empty:
                return jobs, False
        return jobs, True

    def _batches(self, jobs: list[QueuedCall]) -> list[Batch]:
        """The jobs, decided: in one batch, or in one each where a policy cannot answer."""
        served = self._served()
        try:
            return [self._decided(jobs, served)]
        except PolicyError as problem:  # a context that the policy cannot answer about
            if len(jobs) == 1:
                return [Batch(jobs, served, [problem])]
            return [batch for job in jobs for batch in self._batches([job])]
        except Exception as problem:  # never hang who waits
            log.exception("worker failed")
            return [Batch(jobs, served, [problem] * len(jobs))]

    def _decided(self, jobs: list[QueuedCall], served: ServedPolicy) -> Batch:
        batch = Batch(jobs, served, [None] * len(jobs))
        batch.known = self._known([one for job in jobs for one in job.requests])
        asked = {key: one.asked for key, one in batch.known.items()}
        pending = dict(self._pending)
        for place, job in enumerate(jobs):
            try:
                batch.wanted += _new_requests(job.requests, served, asked, pending)
            except DepsueError as problem:
                batch.answers[place] = problem
        if batch.wanted and not self.gone:
            batch.made = self._draw(batch.wanted, served, self._fallback())
        for one in batch.wanted:
            if one.key is not None:
                self._pending[one.key] = digest(one)
        return batch

    def _known(self, requests: Sequence[Decide]) -> dict[str, Decision]:
        """Decisions that were made before for these keys, and are durable."""
        keys = [one.key for one in requests if one.key is not None]
        recent = self.writer.recent
        found = {key: one for key in keys if (one := recent.get(key)) is not None}
        rest = [key for key in keys if key not in found and key not in self._pending]
        if rest and not self.gone:
            try:
                found |= self._reader.by_key(rest)
            except StoreGone as problem:
                self._reader.close()
                self.writer.lost(problem)
        return found

    def _draw(self, wanted: Sequence[Decide], served: ServedPolicy, reason: str) -> list[Decision]:
        return decide(
            wanted,
            served,
            self._rng,
            holdout=self._holdout,
            fallback=reason,
            own_pi0=self._own_pi0,
        )

    def _again(self, wanted: Sequence[Decide], served: ServedPolicy) -> list[Decision]:
        """What pi0 decides while the store is gone; called by the writer."""
        if not wanted:
            return []
        return decide(
            wanted,
            served,
            np.random.default_rng(),
            holdout=self._holdout,
            fallback=self._fallback() or "the store of decisions is gone",
            own_pi0=self._own_pi0,
        )

    def _answered(self, batch: Batch) -> None:
        """Hand the answers of a batch to those who wait; called by the writer."""
        for one in batch.wanted:
            if one.key is not None:
                self._pending.pop(one.key, None)
        self._slots.release()
        by_loop: dict[asyncio.AbstractEventLoop, list[tuple[QueuedCall, Any]]] = {}
        for job, answer in zip(batch.jobs, batch.answers, strict=True):
            by_loop.setdefault(job.loop, []).append((job, answer))
        for loop, mine in by_loop.items():
            loop.call_soon_threadsafe(self._resolve, mine)

    def _resolve(self, answers: list[tuple[QueuedCall, Any]]) -> None:
        for job, answer in answers:
            self._waiting -= len(job.requests) + len(job.rewards)
            if job.future.cancelled():  # who asked has gone; the decision stands
                continue
            if isinstance(answer, Exception):
                job.future.set_exception(answer)
            else:
                job.future.set_result(answer)


def _new_requests(
    requests: Sequence[Decide],
    served: ServedPolicy,
    asked: dict[str, str | None],
    pending: dict[str, str | None],
) -> list[Decide]:
    """The requests of a job that need a decision; keys that they bring are added to `pending`."""
    found: list[Decide] = []
    keys: dict[str, str | None] = {}
    for one in requests:
        check_request(one, served)
        if one.key is not None:
            before = asked.get(one.key) or pending.get(one.key) or keys.get(one.key)
            if before is not None:
                require_same_request(one, before)
                continue
            keys[one.key] = digest(one)
        found.append(one)
    pending |= keys
    return found
