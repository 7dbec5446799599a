"""Decides for all requests that wait, in batches that are committed together.

While one batch is committed (`writing`), the next gathers and is decided; so one sync of the disk
does for many requests. An event loop hands on together what it takes in at once: to wake the worker
for each request takes longer than to read it. The worker looks nothing up: what it draws for a key
of before is put right by the store, which answers with the first decision of that key.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from queue import Empty, SimpleQueue
from typing import Any

import torch

from depsue.campaigns.secret import Secret
from depsue.errors import DepsueError
from depsue.serving.deciding import Decider, Drawn, Endpoint, check_request, is_retry
from depsue.serving.journal import Journal
from depsue.serving.messages import Decide, DecisionReply
from depsue.serving.schema import Reward
from depsue.serving.served import ServedPolicy
from depsue.serving.settings import ServingSettings
from depsue.serving.store import Store
from depsue.serving.writing import RETRY, Batch, QueuedCall, Writer, fresh_chance

log = logging.getLogger(__name__)
MOST_AT_ONCE = 512
"""Requests in one batch."""
UNDER_WAY = 2
"""Batches at once: one that is committed, one that is decided."""
GATHER, LONGEST = 0.0002, 0.003
"""Seconds to wait for the next request, and for all together, before a batch begins."""


class Busy(DepsueError):
    """More is asked than can be answered now."""


class Worker:
    """Decides, and hands on to the writer.

    Args:
        store: where decisions go.
        journal: where they go while the store is gone.
        served: says what serves now.
        fallback: says why pi0 must decide; "" if nothing does.
        settings: holdout, what to do while the store is gone, how many may wait, pi0's address.
        secret: of the campaign.
        holdout: says which share of traffic stays on pi0, now; None is that of the settings.
        clock: seconds since 1970.
        retry: seconds between attempts to reach a store that is gone.
        chance: makes what a request without a key is drawn by; never the same twice.
    """

    def __init__(
        self,
        store: Store,
        journal: Journal,
        served: Callable[[], ServedPolicy],
        fallback: Callable[[], str],
        settings: ServingSettings,
        secret: Secret,
        *,
        holdout: Callable[[], float] | None = None,
        clock: Callable[[], float] = time.time,
        retry: float = RETRY,
        chance: Callable[[], str] = fresh_chance,
    ) -> None:
        self._chance = chance
        self._served, self._fallback = served, fallback
        self._most_waiting = settings.most_waiting
        own_pi0 = None if settings.pi0_url is None else Endpoint(settings.pi0_url)
        held = holdout or (lambda: settings.holdout)
        self._decider = Decider(store.campaign, secret, held, own_pi0, clock)
        self._most_candidates = settings.most_candidates
        self._queue: SimpleQueue[list[QueuedCall] | None] = SimpleQueue()
        self._taken_in: dict[asyncio.AbstractEventLoop, list[QueuedCall]] = {}
        """What each loop has taken in, and hands on in a moment."""
        self._waiting = 0
        self._slots = threading.Semaphore(UNDER_WAY)
        self._thread = threading.Thread(target=self._run, name="depsue-worker", daemon=True)
        self.writer = Writer(
            store,
            journal,
            draw=self._draw,
            on_gone=settings.on_gone,
            answered=self._answered,
            retry=retry,
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
        """Read the journal, open the store, and begin; a store that is gone is tried again."""
        self.writer.start()
        self._thread.start()

    def close(self) -> None:
        """Finish what was accepted, then end."""
        self._queue.put(None)
        self._thread.join()
        self.writer.close()

    def decide(self, requests: Sequence[Decide]) -> asyncio.Future[list[DecisionReply]]:
        """Answers when the decisions are durable; `Busy` if too many wait."""
        return self._put(requests, ())

    def reward(self, rewards: Sequence[Reward]) -> asyncio.Future[int]:
        """Answers when the rewards are durable; `Busy` if too many wait."""
        return self._put((), rewards)

    def _put(self, requests: Sequence[Decide], rewards: Sequence[Reward]) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        call = QueuedCall.of(requests, rewards, future, chance=self._chance)
        # a batch larger than the limit is taken when nothing else waits, or it never would be
        if self._waiting + call.size > max(self._most_waiting, call.size):
            raise Busy("the service has more to do than it can", cure="try again in a moment")
        self._waiting += call.size
        if (taken_in := self._taken_in.get(loop)) is None:
            taken_in = self._taken_in[loop] = []
            loop.call_soon(self._hand_on, loop)
        taken_in.append(call)
        return future

    def _hand_on(self, loop: asyncio.AbstractEventLoop) -> None:
        """Give the worker what a loop has taken in, a batch at most at once."""
        together, size = list[QueuedCall](), 0
        for call in self._taken_in.pop(loop):
            together.append(call)
            size += call.size
            if size >= MOST_AT_ONCE:
                self._queue.put(together)
                together, size = [], 0
        if together:
            self._queue.put(together)

    def _run(self) -> None:
        torch.set_num_threads(1)  # batches are small: threads would only wait for each other
        ending = False
        while not ending:
            self._slots.acquire()
            calls, ending = self._gathered(self._queue.get())
            if calls:
                self.writer.put(self.batch(calls))

    def _gathered(self, first: list[QueuedCall] | None) -> tuple[list[QueuedCall], bool]:
        """What waits, and comes within moments; and whether it is time to end.

        A commit costs the disk a few milliseconds, whatever it holds: those who were answered
        together ask again together, and one commit does for all of them.
        """
        calls: list[QueuedCall] = []
        size, latest = 0, time.monotonic() + LONGEST
        more = first
        while more is not None:
            calls += more
            size += sum(call.size for call in more)
            if size >= MOST_AT_ONCE or time.monotonic() > latest:
                return calls, False
            try:
                more = self._queue.get(timeout=GATHER)
            except Empty:
                return calls, False
        return calls, True

    def batch(self, calls: list[QueuedCall]) -> Batch:
        """The calls, decided; nothing is written yet."""
        batch = Batch(calls, self._served())
        try:
            self._decide(batch)
        except Exception as problem:  # callers must not wait for ever
            log.exception("worker failed")
            batch.refuse(problem)
        return batch

    def _decide(self, batch: Batch) -> None:
        recent, asked = self.writer.recent, dict[str, Decide]()
        for call in batch.calls:
            for name, request in zip(call.names, call.requests, strict=True):
                first = asked.setdefault(name, request)
                if first is not request and not is_retry(request, first):
                    batch.disputed.add(name)
                if (decision := recent.get(name)) is not None:
                    batch.known[name] = decision
                    continue
                try:
                    check_request(request, batch.served, self._most_candidates)
                except DepsueError as problem:  # the answer, unless it is a retry
                    batch.drawn.problems[name] = problem
        if self.writer.live:
            batch.drawn |= self._draw(batch.undecided(), batch.served)

    def _draw(
        self, calls: Sequence[Mapping[str, Decide]], served: ServedPolicy, gone: str = ""
    ) -> Drawn:
        """Decide requests by name, call by call; called by the writer, too, in its thread."""
        return self._decider.draw(calls, served, self._fallback() or gone)

    def _answered(self, batch: Batch) -> None:
        """Hand the answers of a batch to those who wait; called by the writer, in its thread."""
        self._slots.release()
        by_loop: dict[asyncio.AbstractEventLoop, list[tuple[QueuedCall, Any]]] = {}
        for call, answer in zip(batch.calls, batch.answers, strict=True):
            if call.future is not None:
                by_loop.setdefault(call.future.get_loop(), []).append((call, answer))
        for loop, answers in by_loop.items():  # one wake-up of a loop for all that waits in it
            loop.call_soon_threadsafe(self._resolve, answers)

    def _resolve(self, answers: list[tuple[QueuedCall, Any]]) -> None:
        for call, answer in answers:
            self._waiting -= call.size
            if call.future is None or call.future.cancelled():  # the decision stands
                continue
            if isinstance(answer, Exception):
                call.future.set_exception(answer)
            else:
                call.future.set_result(answer)
