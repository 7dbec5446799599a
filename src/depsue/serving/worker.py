"""Decides for all requests that wait, in batches that are committed together.

While one batch is committed (`writing`), the next gathers and is decided; so one sync of the disk
does for many requests. Nothing is answered before it is durable: in the store, or, while that is
gone and the settings allow it, in the spool, decided by pi0.
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
from depsue.serving.deciding import (
    Endpoint,
    check_request,
    decide,
    digest,
    digest_of,
    require_same_request,
)
from depsue.serving.messages import Decide, DecisionReply
from depsue.serving.served import ServedPolicy
from depsue.serving.settings import ServingSettings
from depsue.serving.store import Decision, Reward, Store, StoreGone
from depsue.serving.writing import Batch, QueuedCall, Spool, Writer

log = logging.getLogger(__name__)
MOST_AT_ONCE = 512
"""Requests in one batch."""
UNDER_WAY = 2
"""Batches at once: one that is committed, one that is decided."""
GATHER, LONGEST = 0.0005, 0.003
"""Seconds to wait for the next request, and for all together, before a batch begins."""


class Busy(DepsueError):
    """More is asked than can be answered now."""


class Worker:
    """Decides, and hands on to the writer.

    Args:
        store: where decisions go.
        reader: the same store, for looking up keys.
        spool: where decisions go while the store is gone.
        served: says what serves now.
        fallback: says why pi0 must decide; "" if nothing does.
        settings: holdout, what to do while the store is gone, how many may wait, pi0's address.
        clock: seconds since 1970.
    """

    def __init__(
        self,
        store: Store,
        reader: Store,
        spool: Spool,
        served: Callable[[], ServedPolicy],
        fallback: Callable[[], str],
        settings: ServingSettings,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._reader, self._served, self._fallback = reader, served, fallback
        self._holdout, self._most_waiting = settings.holdout, settings.most_waiting
        self._own_pi0 = None if settings.pi0_url is None else Endpoint(settings.pi0_url)
        self._clock = clock
        self._queue: SimpleQueue[QueuedCall | None] = SimpleQueue()
        self._waiting = 0
        self._rng = np.random.default_rng()
        self._pending: dict[str, str] = {}
        """Digests of requests that are decided and not yet durable, by key."""
        self._slots = threading.Semaphore(UNDER_WAY)
        self._thread = threading.Thread(target=self._run, name="depsue-worker", daemon=True)
        self.writer = Writer(
            store,
            spool,
            by_pi0=self._by_pi0,
            on_gone=settings.on_gone,
            answered=self._answered,
        )

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
        future: asyncio.Future[Any] = loop.create_future()
        call = QueuedCall(requests, rewards, future, loop)
        # a batch larger than the limit is taken when nothing else waits, or it never would be
        if self._waiting + call.size > max(self._most_waiting, call.size):
            raise Busy("the service has more to do than it can", cure="try again in a moment")
        self._waiting += call.size
        self._queue.put(call)
        return future

    def _run(self) -> None:
        torch.set_num_threads(1)  # batches are small: threads would only wait for each other
        ending = False
        while not ending:
            self._slots.acquire()
            calls, ending = self._gathered(self._queue.get())
            for place, batch in enumerate(self._batches(calls) if calls else ()):
                if place > 0:
                    self._slots.acquire()
                self.writer.put(batch)

    def _gathered(self, first: QueuedCall | None) -> tuple[list[QueuedCall], bool]:
        """What waits, and comes within moments; and whether it is time to end.

        A commit costs the disk a few milliseconds, whatever it holds: those who were answered
        together ask again together, and one commit does for all of them.
        """
        calls: list[QueuedCall] = []
        size, latest = 0, time.monotonic() + LONGEST
        call = first
        while call is not None:
            calls.append(call)
            size += call.size
            if size >= MOST_AT_ONCE or time.monotonic() > latest:
                return calls, False
            try:
                call = self._queue.get(timeout=GATHER)
            except Empty:
                return calls, False
        return calls, True

    def _batches(self, calls: list[QueuedCall]) -> list[Batch]:
        """The calls, decided: in one batch, or in one each where a policy cannot answer."""
        served = self._served()
        try:
            return [self._decided(calls, served)]
        except PolicyError as problem:  # a context that the policy cannot answer about
            if len(calls) == 1:
                return [Batch(calls, served, [problem])]
            return [batch for call in calls for batch in self._batches([call])]
        except Exception as problem:  # callers must not wait for ever
            log.exception("worker failed")
            return [Batch(calls, served, [problem] * len(calls))]

    def _decided(self, calls: list[QueuedCall], served: ServedPolicy) -> Batch:
        batch = Batch(calls, served, [None] * len(calls))
        batch.known = self._known([request for call in calls for request in call.requests])
        asked = {key: digest_of(known) for key, known in batch.known.items()}
        pending = dict(self._pending)
        for place, call in enumerate(calls):
            try:
                batch.wanted += _new_requests(call.requests, served, asked, pending)
            except DepsueError as problem:
                batch.answers[place] = problem
        if batch.wanted and not self.gone:
            batch.decisions = self._draw(batch.wanted, served, self._rng, self._fallback())
        for request in batch.wanted:
            if request.key is not None:
                self._pending[request.key] = digest(request)
        return batch

    def _known(self, requests: Sequence[Decide]) -> dict[str, Decision]:
        """Decisions that were made before for these keys, and are durable."""
        keys = [request.key for request in requests if request.key is not None]
        recent = self.writer.recent
        known = {key: decision for key in keys if (decision := recent.get(key)) is not None}
        rest = [key for key in keys if key not in known and key not in self._pending]
        if rest and not self.gone:
            try:
                known |= self._reader.by_key(rest)
            except StoreGone as problem:
                self._reader.close()
                self.writer.lost(problem)
        return known

    def _draw(
        self,
        wanted: Sequence[Decide],
        served: ServedPolicy,
        rng: np.random.Generator,
        fallback: str,
    ) -> list[Decision]:
        return decide(
            wanted,
            served,
            rng,
            now=self._clock(),
            holdout=self._holdout,
            fallback=fallback,
            own_pi0=self._own_pi0,
        )

    def _by_pi0(self, wanted: Sequence[Decide], served: ServedPolicy) -> list[Decision]:
        """What pi0 decides while the store is gone; called by the writer, in its thread."""
        if not wanted:
            return []
        fallback = self._fallback() or "the store of decisions is gone"
        rng = np.random.default_rng()  # the worker's own is no other thread's to use
        return self._draw(wanted, served, rng, fallback)

    def _answered(self, batch: Batch) -> None:
        """Hand the answers of a batch to those who wait; called by the writer, in its thread."""
        for request in batch.wanted:
            if request.key is not None:
                self._pending.pop(request.key, None)
        self._slots.release()
        by_loop: dict[asyncio.AbstractEventLoop, list[tuple[QueuedCall, Any]]] = {}
        for call, answer in zip(batch.calls, batch.answers, strict=True):
            by_loop.setdefault(call.loop, []).append((call, answer))
        for loop, answers in by_loop.items():  # one wake-up of a loop for all that waits in it
            loop.call_soon_threadsafe(self._resolve, answers)

    def _resolve(self, answers: list[tuple[QueuedCall, Any]]) -> None:
        for call, answer in answers:
            self._waiting -= call.size
            if call.future.cancelled():  # the caller has gone; the decision stands
                continue
            if isinstance(answer, Exception):
                call.future.set_exception(answer)
            else:
                call.future.set_result(answer)


def _new_requests(
    requests: Sequence[Decide],
    served: ServedPolicy,
    asked: dict[str, str],
    pending: dict[str, str],
) -> list[Decide]:
    """The requests of a call that need a decision; keys that they bring are added to `pending`."""
    new: list[Decide] = []
    keys: dict[str, str] = {}
    for request in requests:
        check_request(request, served)
        if request.key is not None:
            before = asked.get(request.key) or pending.get(request.key) or keys.get(request.key)
            if before is not None:
                require_same_request(request, before)
                continue
            keys[request.key] = digest(request)
        new.append(request)
    pending |= keys
    return new
