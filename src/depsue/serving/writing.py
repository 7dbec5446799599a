"""The thread that makes decisions durable: in the store, or in the spool while that is gone.

It alone writes. One batch is committed while the next is decided; answers follow the commit, in
the order of the batches.

Decisions and rewards while the store is gone: lines in a local file, fsynced before the reply.

Whatever was begun and not finished, a torn last line, was never answered and is left out. Replay
writes all of it in one transaction and then removes the file; ids make it harmless to do it twice.
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
from depsue.serving.messages import Decide
from depsue.serving.served import ServedPolicy
from depsue.serving.store import Decision, EventKind, Reward, Store, StoreGone

log = logging.getLogger(__name__)


class SpooledBatch(msgspec.Struct):
    """What one fsync made durable."""

    decisions: list[Decision]
    rewards: list[Reward]
    instead_of: list[str] = []


class Spool:
    """A folder of one file of lines.

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
        made: Sequence[Decision],
        earned: Sequence[Reward],
        instead_of: Sequence[str] = (),
    ) -> None:
        """Make these durable; a FileError if even that cannot be done."""
        line = self._encode(SpooledBatch(list(made), list(earned), list(instead_of))) + b"\n"
        try:
            if self._file is None:
                self._open()
            file = self._file
            assert file is not None
            start = os.lseek(file, 0, os.SEEK_END)
            if start and not self._whole(start):  # half a line of a process that died
                line = b"\n" + line
            if os.write(file, line) != len(line):
                os.ftruncate(file, start)
                raise OSError("no room for the whole line")
            os.fsync(file)
        except OSError as problem:
            raise FileError(
                "decisions that cannot be stored must at least be spooled",
                found=f"{self._path}: {problem.strerror or problem}",
                cure="make room on the disk",
            ) from problem

    def read(self) -> SpooledBatch:
        """All that waits."""
        whole = SpooledBatch([], [])
        if not self.waiting:
            return whole
        for line in self._path.read_bytes().split(b"\n"):
            try:
                found = self._decode(line)
            except msgspec.DecodeError:
                continue
            whole.decisions += found.decisions
            whole.rewards += found.rewards
            whole.instead_of += found.instead_of
        return whole

    def clear(self) -> None:
        """Forget what was replayed."""
        self.close()
        self._path.unlink(missing_ok=True)
        _sync_folder(self._path.parent)

    def close(self) -> None:
        """Close the file; what waits stays."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _open(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        _sync_folder(self._path.parent)

    def _whole(self, size: int) -> bool:
        assert self._file is not None
        return os.pread(self._file, 1, size - 1) == b"\n"


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


RETRY = 1.0
"""Seconds between attempts to reach a store that is gone."""
REMEMBERED = 100_000
"""Decisions that are found by their key without the store."""


class QueuedCall(NamedTuple):
    """What waits: requests or rewards, and who waits for the answer."""

    requests: Sequence[Decide]
    rewards: Sequence[Reward]
    future: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop


@dataclass
class Batch:
    """Jobs that are decided together and committed together.

    Args:
        jobs: what was asked.
        served: what serves.
        answers: to each job; so far only why one is refused, else None.
        wanted: requests that need a decision.
        made: their decisions, not yet durable; none while the store is gone.
        known: decisions of before, by key.
    """

    jobs: list[QueuedCall]
    served: ServedPolicy
    answers: list[Any]
    wanted: list[Decide] = field(default_factory=list)
    made: list[Decision] = field(default_factory=list)
    known: dict[str, Decision] = field(default_factory=dict)

    @property
    def earned(self) -> list[Reward]:
        """The rewards of jobs that are not refused."""
        pairs = zip(self.jobs, self.answers, strict=True)
        return [one for job, refused in pairs if refused is None for one in job.rewards]


class Writer:
    """Commits batches, one after the other.

    Args:
        store: where decisions go.
        spool: where they go while the store is gone.
        again: decides anew, by pi0, what a store that has just gone did not take.
        on_gone: "pi0" to go on into the spool, "stop" to refuse.
        answered: is given each batch with its answers.
    """

    def __init__(
        self,
        store: Store,
        spool: Spool,
        *,
        again: Callable[[Sequence[Decide], ServedPolicy], list[Decision]],
        on_gone: str,
        answered: Callable[[Batch], None],
    ) -> None:
        self._store, self._spool, self._again = store, spool, again
        self._on_gone, self._answered = on_gone, answered
        self._queue: SimpleQueue[Batch | None] = SimpleQueue()
        self._calls: SimpleQueue[tuple[Callable[[], Any], Any]] = SimpleQueue()
        self._tried = -RETRY
        self._thread = threading.Thread(target=self._run, name="depsue-writer", daemon=True)
        self.recent: dict[str, Decision] = {}
        """Decisions that are durable, by key: the newest."""
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
        self._queue.put(None)
        self._thread.join()
        self._spool.close()
        self._store.close()

    def put(self, batch: Batch) -> None:
        """Commit a batch, after those before it."""
        self._queue.put(batch)

    def event(self, kind: EventKind, round: int, policy: str, reason: str, by: str) -> None:
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

    def lost(self, problem: FileError) -> None:
        """The store does not answer: from now on the spool, or nothing."""
        if not self.gone:
            log.warning("store gone", extra={"found": problem.found})
        self.gone, self._tried = problem.found or "gone", time.monotonic()

    def _run(self) -> None:
        while True:
            try:
                batch = self._queue.get(timeout=0.1)
            except Empty:
                self._serve_calls()
                if self.gone or self._spool.waiting:
                    self._reach_again()
                continue
            self._serve_calls()
            if self.gone:
                self._reach_again()
            if batch is None:
                return
            try:
                self._commit(batch)
            except DepsueError as problem:
                self._refuse(batch, problem)
            except Exception as problem:  # never hang who waits
                log.exception("writer failed")
                self._refuse(batch, problem)
            self._answered(batch)

    def _commit(self, batch: Batch) -> None:
        """Make a batch durable, and fill in its answers."""
        instead_of: list[str] = []
        if not self.gone and len(batch.made) == len(batch.wanted):
            try:
                batch.known |= self._store.write(batch.made, batch.earned)
                self._reply(batch)
                return
            except StoreGone as problem:
                self._store.close()
                self.lost(problem)
                instead_of = [one.id for one in batch.made]  # perhaps written; nobody was told
        if self._on_gone == "stop":
            raise StoreGone(
                "decisions are made only while they can be stored",
                found=self.gone,
                cure="try again in a moment",
            )
        batch.made = self._again(batch.wanted, batch.served)
        self._spool.add(batch.made, batch.earned, instead_of)
        self._reply(batch)

    def _reply(self, batch: Batch) -> None:
        for one in batch.made:
            if one.key is not None and one.key not in batch.known:
                self.recent[one.key] = one
        while len(self.recent) > REMEMBERED:
            self.recent.pop(next(iter(self.recent)))
        plain = iter([one for one in batch.made if one.key is None])
        for place, job in enumerate(batch.jobs):
            if batch.answers[place] is not None:
                continue
            found = [
                next(plain) if one.key is None else batch.known.get(one.key) or self._of(one.key)
                for one in job.requests
            ]
            batch.answers[place] = [one.reply(batch.served.ids) for one in found] or len(
                job.rewards
            )

    def _of(self, key: str) -> Decision:
        found = self.recent.get(key)
        if found is None:  # its own batch was refused just now
            raise StoreGone("decisions are made only while they can be stored", found=self.gone)
        return found

    @staticmethod
    def _refuse(batch: Batch, problem: Exception) -> None:
        batch.answers = [problem if one is None else one for one in batch.answers]

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
                batch = self._spool.read()
                self._store.replay(batch.decisions, batch.rewards, batch.instead_of)
                self._spool.clear()
                log.info(
                    "spool replayed",
                    extra={"decisions": len(batch.decisions), "rewards": len(batch.rewards)},
                )
        except StoreGone as problem:
            self._store.close()
            self.lost(problem)
            return
        except OSError as problem:
            log.error("spool not replayed", extra={"found": str(problem)})
            return
        if self.gone:
            log.info("store back")
        self.gone = ""
