"""Makes decisions and rewards durable before they are answered.

One thread, the writer, commits batches one after the other: to the store or, while that is gone, to
the spool, a file on the local disk. It alone writes, so that what is stored has one order. Answers
follow the commit, in the order of the batches. While one batch is committed the worker decides the
next.

The spool is lines of JSON, each synced to disk before its decisions are answered. A torn last line
belongs to a process that died before it answered, and is left out. Once the store is back, all
lines are written to it in one transaction, and then the file is removed; ids make it harmless to
do that twice.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

import msgspec

from depsue.errors import DepsueError, FileError
from depsue.files import sync_folder
from depsue.serving.messages import Decide
from depsue.serving.served import ServedPolicy
from depsue.serving.store import Decision, Reward, Store, StoreGone

log = logging.getLogger(__name__)
RETRY = 1.0
"""Seconds between attempts to reach a store that is gone."""
MOST_RECENT = 100_000
"""Decisions that are found by their key without the store."""


class QueuedCall(NamedTuple):
    """Requests or rewards of one caller, who waits for the answer.

    Args:
        requests, rewards: one of them is empty.
        future: takes the answer, in the event loop `loop`.
    """

    requests: Sequence[Decide]
    rewards: Sequence[Reward]
    future: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop

    @property
    def size(self) -> int:
        """How many decisions and rewards are asked for."""
        return len(self.requests) + len(self.rewards)


@dataclass
class Batch:
    """Calls that are decided together and committed together.

    Args:
        calls: what was asked.
        served: what serves.
        answers: to each call; until the commit None, or an error that refuses the call.
        wanted: requests that need a decision.
        decisions: theirs, not yet durable; none while the store is gone.
        known: decisions of before, by key.
    """

    calls: list[QueuedCall]
    served: ServedPolicy
    answers: list[Any]
    wanted: list[Decide] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    known: dict[str, Decision] = field(default_factory=dict)

    @property
    def rewards(self) -> list[Reward]:
        """The rewards of calls that are not refused."""
        pairs = zip(self.calls, self.answers, strict=True)
        return [reward for call, refusal in pairs if refusal is None for reward in call.rewards]

    def refuse(self, problem: Exception) -> None:
        """Answer all calls that have no answer yet with an error."""
        self.answers = [problem if answer is None else answer for answer in self.answers]


class Writer:
    """Commits batches, one after the other.

    Args:
        store: where decisions go.
        spool: where they go while the store is gone.
        by_pi0: decides anew, by pi0, what a store that has just gone did not take.
        on_gone: "pi0" to go on into the spool, "stop" to refuse.
        answered: is given each batch with its answers.
    """

    def __init__(
        self,
        store: Store,
        spool: Spool,
        *,
        by_pi0: Callable[[Sequence[Decide], ServedPolicy], list[Decision]],
        on_gone: str,
        answered: Callable[[Batch], None],
    ) -> None:
        self._store, self._spool, self._by_pi0 = store, spool, by_pi0
        self._on_gone, self._answered = on_gone, answered
        self._batches: SimpleQueue[Batch | None] = SimpleQueue()
        self._events: SimpleQueue[_QueuedEvent] = SimpleQueue()
        self._tried = -RETRY
        self._thread = threading.Thread(target=self._run, name="depsue-writer", daemon=True)
        self.recent: dict[str, Decision] = {}
        """Decisions that are durable, by key: the newest. The worker reads, the writer writes."""
        self.gone = ""
        """Why the store cannot be written to; "" while it can."""

    def start(self) -> None:
        """Open the store, replay what waits, and begin; a store that is gone is tried again.

        A store that this version cannot use, say of a newer one, is refused.
        """
        self._reach()
        self._thread.start()

    def close(self) -> None:
        """Commit what was given, then end."""
        self._batches.put(None)
        self._thread.join()
        self._spool.close()
        self._store.close()

    def put(self, batch: Batch) -> None:
        """Commit a batch, after those before it."""
        self._batches.put(batch)

    def record(self, write: Callable[[Store], None]) -> None:
        """Have something written to the store, from any thread; a StoreGone if not now."""
        done: SimpleQueue[Exception | None] = SimpleQueue()
        self._events.put(_QueuedEvent(lambda: write(self._store), done))
        if not self._thread.is_alive():
            self._record_events()
        try:
            problem = done.get(timeout=30)
        except Empty:
            problem = StoreGone("the store must answer within half a minute", found="it did not")
        if problem is not None:
            raise problem

    def lost(self, problem: FileError) -> None:
        """The store does not answer: from now on the spool, or nothing."""
        if not self.gone:
            log.warning("store gone", extra={"found": problem.found})
        self.gone, self._tried = problem.found or "gone", time.monotonic()

    def _run(self) -> None:
        while True:
            try:
                batch = self._batches.get(timeout=0.1)
            except Empty:
                self._record_events()
                if self.gone or self._spool.waiting:
                    self._reach_again()
                continue
            self._record_events()
            if self.gone:
                self._reach_again()
            if batch is None:
                return
            try:
                self._commit(batch)
            except DepsueError as problem:
                batch.refuse(problem)
            except Exception as problem:  # callers must not wait for ever
                log.exception("writer failed")
                batch.refuse(problem)
            self._answered(batch)

    def _commit(self, batch: Batch) -> None:
        """Make a batch durable, and fill in its answers."""
        perhaps_written: list[str] = []
        if not self.gone and len(batch.decisions) == len(batch.wanted):
            try:
                batch.known |= self._store.write(batch.decisions, batch.rewards)
                self._reply(batch)
                return
            except StoreGone as problem:
                self._store.close()
                self.lost(problem)
                # the commit may have succeeded although its reply got lost; nobody was answered
                # with these decisions, so pi0's take their place when the spool is replayed
                perhaps_written = [decision.id for decision in batch.decisions]
        if self._on_gone == "stop":
            raise StoreGone(
                "decisions are made only while they can be stored",
                found=self.gone,
                cure="try again in a moment",
            )
        batch.decisions = self._by_pi0(batch.wanted, batch.served)
        self._spool.add(batch.decisions, batch.rewards, perhaps_written)
        self._reply(batch)

    def _reply(self, batch: Batch) -> None:
        """Fill in the answers of a batch that is durable."""
        for decision in batch.decisions:
            if decision.key is not None and decision.key not in batch.known:
                self.recent[decision.key] = decision
        while len(self.recent) > MOST_RECENT:
            self.recent.pop(next(iter(self.recent)))
        without_key = iter([decision for decision in batch.decisions if decision.key is None])
        for place, call in enumerate(batch.calls):
            if batch.answers[place] is not None:
                continue
            decisions = [
                next(without_key) if request.key is None else self._of(request.key, batch)
                for request in call.requests
            ]
            replies = [decision.reply(batch.served.ids) for decision in decisions]
            batch.answers[place] = replies or len(call.rewards)

    def _of(self, key: str, batch: Batch) -> Decision:
        """The decision of a key; another call of this batch, or of the one before, asked for it."""
        decision = batch.known.get(key) or self.recent.get(key)
        if decision is None:  # its own batch was refused just now
            raise StoreGone("decisions are made only while they can be stored", found=self.gone)
        return decision

    def _record_events(self) -> None:
        while True:
            try:
                record, done = self._events.get_nowait()
            except Empty:
                return
            try:
                record()
                done.put(None)
            except Exception as problem:  # raised where the event was asked for
                done.put(problem)

    def _reach_again(self) -> None:
        """Try again to get at a store that is gone, now and then."""
        if time.monotonic() - self._tried < RETRY:
            return
        try:
            self._reach()
        except FileError as problem:  # a newer version has brought the store up to date meanwhile
            self.lost(problem)

    def _reach(self) -> None:
        """Try to get at the store, and to replay what was spooled."""
        self._tried = time.monotonic()
        try:
            self._store.open()
            if self._spool.waiting:
                lines = self._spool.read()
                self._store.replay(lines.decisions, (), lines.rewards)
                self._spool.clear()
                log.info(
                    "spool replayed",
                    extra={"decisions": len(lines.decisions), "rewards": len(lines.rewards)},
                )
        except StoreGone as problem:
            self._store.close()
            self.lost(problem)
            return
        except OSError as problem:
            log.error("spool not replayed", extra={"found": str(problem)})
            return
        was_gone, self.gone = self.gone, ""
        if was_gone:
            log.info("store back")


class _QueuedEvent(NamedTuple):
    """An event to record, and where its outcome goes: None, or what went wrong."""

    record: Callable[[], None]
    done: SimpleQueue[Exception | None]


class SpooledBatch(msgspec.Struct):
    """What one sync made durable, a line of the spool.

    Args:
        decisions, rewards: what was answered.
        instead_of: ids that were perhaps written to the store and never answered.
    """

    decisions: list[Decision]
    rewards: list[Reward]
    instead_of: list[str] = []


class Spool:
    """A folder with one file of lines.

    Args:
        folder: where; made when something is spooled.
    """

    def __init__(self, folder: str | Path) -> None:
        self._path = Path(folder) / "spool.jsonl"
        self._file: int | None = None
        self._encode = msgspec.json.Encoder().encode
        self._decode = msgspec.json.Decoder(SpooledBatch).decode

    @property
    def waiting(self) -> bool:
        """Whether something waits to be replayed."""
        return self._path.exists()

    def add(
        self,
        decisions: Sequence[Decision],
        rewards: Sequence[Reward],
        instead_of: Sequence[str] = (),
    ) -> None:
        """Make these durable; a FileError if even that cannot be done."""
        line = self._encode(SpooledBatch(list(decisions), list(rewards), list(instead_of))) + b"\n"
        try:
            if self._file is None:
                self._open()
            file = self._file
            assert file is not None
            start = os.lseek(file, 0, os.SEEK_END)
            if start and not self._is_whole(start):  # half a line of a process that died
                line = b"\n" + line
            if os.write(file, line) != len(line):
                os.ftruncate(file, start)
                raise OSError("no room for the whole line")
            os.fsync(file)  # only then may the decisions be answered
        except OSError as problem:
            raise FileError(
                "decisions that cannot be stored must at least be spooled",
                found=f"{self._path}: {problem.strerror or problem}",
                cure="make room on the disk",
            ) from problem

    def read(self) -> SpooledBatch:
        """All that waits."""
        together = SpooledBatch([], [])
        if not self.waiting:
            return together
        for line in self._path.read_bytes().split(b"\n"):
            try:
                batch = self._decode(line)
            except msgspec.DecodeError:
                continue
            together.decisions += batch.decisions
            together.rewards += batch.rewards
            together.instead_of += batch.instead_of
        return together

    def clear(self) -> None:
        """Forget what was replayed."""
        self.close()
        self._path.unlink(missing_ok=True)
        sync_folder(self._path.parent)

    def close(self) -> None:
        """Close the file; what waits stays."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _open(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        sync_folder(self._path.parent)

    def _is_whole(self, size: int) -> bool:
        assert self._file is not None
        return os.pread(self._file, 1, size - 1) == b"\n"
