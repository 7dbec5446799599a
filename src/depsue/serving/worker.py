"""The one thread that decides and writes: all requests that wait, in one batch and one commit.

While a commit is under way, requests gather; so the disk is asked once for many of them. Nothing
is answered before it is durable: in the store, or, while that is gone and the user wants it so, in
the spool, decided by pi0.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

import numpy as np
import torch

from depsue.errors import DepsueError, FileError, PolicyError
from depsue.serving.deciding import check_request, decide, digest, require_same_request
from depsue.serving.endpoint import Endpoint
from depsue.serving.live import Live
from depsue.serving.messages import Decide, Decided
from depsue.serving.rows import Decision, Reward
from depsue.serving.spool import Spool
from depsue.serving.store import Store, StoreGone

MOST_AT_ONCE = 512
"""Requests in one batch."""
GATHER, LONGEST = 0.0005, 0.003
"""Seconds for which the next request is waited for, and all together, before a batch begins."""
RETRY = 1.0
"""Seconds between attempts to reach a store that is gone."""
REMEMBERED = 100_000
"""Decisions that are found by their key without the store."""


class Busy(DepsueError):
    """More is asked than can be answered now."""


class Job(NamedTuple):
    """What waits: requests or rewards, and who waits for the answer."""

    requests: Sequence[Decide]
    rewards: Sequence[Reward]
    future: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop


class Worker:
    """Decides and writes.

    Args:
        store: where decisions go.
        spool: where they go while the store is gone.
        live: says what serves now.
        fallback: says why pi0 must decide; "" if nothing does.
        holdout: the share of traffic that stays on pi0.
        on_gone: "pi0" to go on into the spool, "stop" to refuse.
        most_waiting: decisions and rewards that may wait.
        told: is told of what happens, in a word and details.
        own_pi0: the team's own pi0, asked first on fallback.
    """

    def __init__(
        self,
        store: Store,
        spool: Spool,
        live: Callable[[], Live],
        fallback: Callable[[], str],
        *,
        holdout: float,
        on_gone: str,
        most_waiting: int,
        told: Callable[..., None],
        own_pi0: Endpoint | None = None,
    ) -> None:
        self._own_pi0 = own_pi0
        self._store, self._spool, self._live, self._fallback = store, spool, live, fallback
        self._holdout, self._on_gone, self._most = holdout, on_gone, most_waiting
        self._told = told
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        self._waiting = 0
        self._rng = np.random.default_rng()
        self._recent: dict[str, Decision] = {}
        self._tried = -RETRY
        self._thread = threading.Thread(target=self._run, name="depsue-worker", daemon=True)
        self._calls: SimpleQueue[tuple[Callable[[], Any], Any]] = SimpleQueue()
        self.gone = ""
        """Why the store cannot be written to; "" while it can."""

    @property
    def waiting(self) -> int:
        """Requests and rewards that wait."""
        return self._waiting

    def start(self) -> None:
        """Open the store, replay what waits, and begin; a store that is gone is tried again."""
        self._reach()
        self._thread.start()

    def stop(self) -> None:
        """Finish what was accepted, then end."""
        self._queue.put(None)
        self._thread.join()
        self._spool.close()
        self._store.close()

    def decide(self, requests: Sequence[Decide]) -> asyncio.Future[list[Decided]]:
        """Answers when the decisions are durable; `Busy` if too many wait."""
        return self._put(requests, ())

    def reward(self, rewards: Sequence[Reward]) -> asyncio.Future[int]:
        """Answers when the rewards are durable; `Busy` if too many wait."""
        return self._put((), rewards)

    def event(self, kind: str, round: int, policy: str, reason: str, by: str) -> None:
        """Record an event of the monitor from any thread; a StoreGone if it cannot be done now."""
        done: SimpleQueue[Exception | None] = SimpleQueue()
        self._calls.put((lambda: self._store.add_event(kind, round, policy, reason, by), done))
        if not self._thread.is_alive():
            self._serve_calls()
        try:
            problem = done.get(timeout=30)
        except Empty:
            problem = StoreGone("the store must answer within half a minute", found="it did not")
        if problem is not None:
            raise problem

    def _put(self, requests: Sequence[Decide], rewards: Sequence[Reward]) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        size = len(requests) + len(rewards)
        if self._waiting + size > max(self._most, size):
            raise Busy("the service has more to do than it can", cure="try again in a moment")
        self._waiting += size
        future: asyncio.Future[Any] = loop.create_future()
        self._queue.put(Job(requests, rewards, future, loop))
        return future

    def _run(self) -> None:
        torch.set_num_threads(1)  # batches are small: threads would only wait for each other
        while True:
            try:
                first = self._queue.get(timeout=0.2)
            except Empty:
                self._serve_calls()
                if self.gone or self._spool.waiting:
                    self._reach()
                continue
            jobs, ending = self._gathered(first)
            self._serve_calls()
            if self.gone:
                self._reach()
            if jobs:
                self._answer(jobs, self._batch(jobs))
            if ending:
                return

    def _gathered(self, first: Job | None) -> tuple[list[Job], bool]:
        """What waits, and comes within moments; and whether it is time to end.

        A commit costs the disk a few milliseconds, whatever it holds: those who were answered
        together ask again together, and one commit does for all of them.
        """
        jobs: list[Job] = []
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

    def _serve_calls(self) -> None:
        while True:
            try:
                call, done = self._calls.get_nowait()
            except Empty:
                return
            try:
                call()
                done.put(None)
            except Exception as problem:  # whoever asked is told
                done.put(problem)

    def _answer(self, jobs: list[Job], answers: list[Any]) -> None:
        by_loop: dict[asyncio.AbstractEventLoop, list[tuple[Job, Any]]] = {}
        for job, answer in zip(jobs, answers, strict=True):
            by_loop.setdefault(job.loop, []).append((job, answer))
        for loop, mine in by_loop.items():
            loop.call_soon_threadsafe(self._resolve, mine)

    def _resolve(self, answers: list[tuple[Job, Any]]) -> None:
        for job, answer in answers:
            self._waiting -= len(job.requests) + len(job.rewards)
            if job.future.cancelled():  # who asked has gone; the decision stands
                continue
            if isinstance(answer, Exception):
                job.future.set_exception(answer)
            else:
                job.future.set_result(answer)

    def _batch(self, jobs: list[Job]) -> list[Any]:
        """The answers, or the exceptions, of jobs that are done together."""
        try:
            return self._together(jobs)
        except PolicyError as problem:  # a context that the policy cannot answer about
            if len(jobs) == 1:
                return [problem]
            return [answer for job in jobs for answer in self._batch([job])]
        except DepsueError as problem:
            return [problem for _ in jobs]
        except Exception as problem:  # never hang who waits
            self._told("worker failed", error=f"{type(problem).__name__}: {problem}")
            return [problem for _ in jobs]

    def _together(self, jobs: list[Job]) -> list[Any]:
        live, reason = self._live(), self._fallback()
        known = self._known([one for job in jobs for one in job.requests])
        asked = {key: one.asked for key, one in known.items()}
        answers: list[Any] = [None] * len(jobs)
        wanted: list[Decide] = []
        earned: list[Reward] = []
        for place, job in enumerate(jobs):
            try:
                wanted += _new_requests(job.requests, live, asked)
                earned += job.rewards
            except DepsueError as problem:
                answers[place] = problem
        made, known = self._durable(wanted, earned, live, reason, known)
        by_key = {one.key: one for one in made if one.key is not None} | known
        plain = iter([one for one in made if one.key is None])
        for place, job in enumerate(jobs):
            if answers[place] is not None:
                continue
            answers[place] = [
                (next(plain) if one.key is None else by_key[one.key]).reply(live.ids)
                for one in job.requests
            ] or len(job.rewards)
        return answers

    def _known(self, requests: Sequence[Decide]) -> dict[str, Decision]:
        """Decisions that were made before for these keys."""
        keys = [one.key for one in requests if one.key is not None]
        found = {key: self._recent[key] for key in keys if key in self._recent}
        rest = [key for key in keys if key not in found]
        if rest and not self.gone:
            try:
                found |= self._store.by_key(rest)
            except StoreGone as problem:
                self._lost(problem)
        return found

    def _durable(
        self,
        wanted: Sequence[Decide],
        earned: Sequence[Reward],
        live: Live,
        reason: str,
        known: dict[str, Decision],
    ) -> tuple[list[Decision], dict[str, Decision]]:
        """Decide, and make it durable: (what was decided, what was decided for keys before)."""
        instead_of: list[str] = []
        if not self.gone:
            made = self._decided(wanted, live, reason)
            try:
                taken = self._store.write(made, earned)
                self._remember(made)
                return [one for one in made if one.key not in taken], known | taken
            except StoreGone as problem:
                self._lost(problem)
                instead_of = [one.id for one in made]  # perhaps written; nobody was told
        if self._on_gone == "stop":
            raise StoreGone(
                "decisions are made only while they can be stored",
                found=self.gone,
                cure="try again in a moment",
            )
        made = self._decided(wanted, live, reason or "the store of decisions is gone")
        self._spool.add(made, earned, instead_of)
        self._remember(made)
        return made, known

    def _decided(self, wanted: Sequence[Decide], live: Live, reason: str) -> list[Decision]:
        if not wanted:
            return []
        return decide(
            wanted,
            live,
            self._rng,
            holdout=self._holdout,
            fallback=reason,
            own_pi0=self._own_pi0,
        )

    def _remember(self, made: Sequence[Decision]) -> None:
        for one in made:
            if one.key is not None:
                self._recent[one.key] = one
        while len(self._recent) > REMEMBERED:
            self._recent.pop(next(iter(self._recent)))

    def _lost(self, problem: StoreGone) -> None:
        if not self.gone:
            self._told("store gone", found=problem.found)
        self.gone, self._tried = problem.found or "gone", time.monotonic()
        self._store.close()

    def _reach(self) -> None:
        """Try to get at the store, and to replay what was spooled."""
        if time.monotonic() - self._tried < RETRY:
            return
        self._tried = time.monotonic()
        try:
            self._store.open()
            if self._spool.waiting:
                batch = self._spool.read()
                self._store.replay(batch.decisions, batch.rewards, batch.instead_of)
                self._spool.clear()
                self._told(
                    "spool replayed", decisions=len(batch.decisions), rewards=len(batch.rewards)
                )
        except StoreGone as problem:
            self._lost(problem)
            return
        except (FileError, OSError) as problem:
            self._told("spool not replayed", found=str(problem))
            return
        if self.gone:
            self._told("store back")
        self.gone = ""


def _new_requests(
    requests: Sequence[Decide], live: Live, asked: dict[str, str | None]
) -> list[Decide]:
    """The requests of a job that need a decision; keys that they bring are added to `asked`."""
    found: list[Decide] = []
    keys: dict[str, str] = {}
    for one in requests:
        check_request(one, live)
        if one.key is not None:
            before = asked.get(one.key, keys.get(one.key))
            if before is not None:
                require_same_request(one, before)
                continue
            keys[one.key] = digest(one)
        found.append(one)
    asked |= keys
    return found
