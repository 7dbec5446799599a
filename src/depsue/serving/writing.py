"""Makes decisions and rewards durable before they are answered: the write path.

**Append, then answer; never take back.** A decision is written once, to the store or, while that is
gone, to the journal on this machine's disk. It is synced, and only then answered. Nothing that may
have been written is deleted, and nothing that may have been written is decided again.

**What is known where.** The store has all decisions and rewards, and knows the decision of every
key: the first that reached it. The journal has what the store could not take, and all its keys are
indexed in memory. `recent` has the newest decisions of keys that are in the store; nothing rests
on it. One thread, the writer, commits batches one after the other, so that what one service writes
has one order. While one batch is committed the worker decides the next.

**States.** A writer is in one of three.

- *Live*: the store answers, and the journal is empty. A batch goes to the store in one transaction,
  which also reads the first decision of every key that was there before. That one is answered.
- *Cut off*: the store does not answer. pi0 decides, into the journal. A key that is in the journal,
  or in `recent`, gets the decision that is there.
- *Catching up*: the store answers again, and the journal is not empty. Between two batches a chunk
  of the journal, oldest lines first, is written to the store. A chunk is larger than a batch, so
  this ends, however steady the traffic is. Batches go to the journal meanwhile, so that no later
  reward overtakes an earlier one. The decisions of their keys are looked up in the store first.

**In doubt.** A commit that got no reply was done, or it was not. Its callers get 503. The same rows
go to the journal, marked in doubt, and are offered to the store again like all that is there. Until
it takes them nobody answers for their keys: requests with these get 503. Decisions without a key
are not offered again, because nobody can ask for them.

**Twins.** A key may be decided in the store and, by a service that is cut off, in a journal. Both
were answered, so both are stored; `Store.replay` marks the later one as a twin. From then on every
service answers with the first.

**A restart** reads all of the journal before it accepts a request, whether the store answers or
not. Replaying twice is harmless: what is in the store stays as it is.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

from depsue.database import Unstorable
from depsue.errors import DepsueError, FileError
from depsue.serving.deciding import Drawn, another_request, answers
from depsue.serving.journal import Journal, JournalLine, journal_lines
from depsue.serving.messages import Decide
from depsue.serving.schema import Decision, Reward
from depsue.serving.served import ServedPolicy
from depsue.serving.store import InDoubt, Store, StoreGone
from depsue.serving.tombstones import KeyErased

log = logging.getLogger(__name__)
RETRY = 1.0
"""Seconds between attempts to reach a store that is gone."""
MOST_RECENT = 20_000
"""Stored decisions that are known by their key without asking the store."""
CHUNK = 2000
"""Decisions and rewards that are replayed between two batches: more than a batch holds."""


_FRESH: deque[str] = deque()
"""Chances that nobody has been given yet."""
if hasattr(os, "register_at_fork"):  # two processes must never be given the same
    os.register_at_fork(after_in_child=_FRESH.clear)


def fresh_chance() -> str:
    """What a request without a key is drawn by: nobody else has it, or can foresee it.

    Many are made at once: to ask the system lets other threads go first, and they take their time.
    """
    while True:
        with suppress(IndexError):
            return _FRESH.popleft()
        many = os.urandom(16 * 256).hex()
        _FRESH.extend(many[start : start + 32] for start in range(0, len(many), 32))


class QueuedCall(NamedTuple):
    """Requests or rewards of one caller, who waits for the answer.

    Args:
        requests, rewards: one of them is empty.
        names: of the requests: their keys, or names that nobody else has.
        future: takes the answer, in its event loop; None where nobody waits.
    """

    requests: Sequence[Decide]
    rewards: Sequence[Reward]
    names: Sequence[str]
    future: asyncio.Future[Any] | None = None

    @classmethod
    def of(
        cls,
        requests: Sequence[Decide] = (),
        rewards: Sequence[Reward] = (),
        future: asyncio.Future[Any] | None = None,
        *,
        chance: Callable[[], str] = fresh_chance,
    ) -> QueuedCall:
        """A call; requests without a key are named by chance. A key has no NUL."""
        names = [request.name or f"\0{chance()}" for request in requests]
        return cls(requests, rewards, names, future)

    @property
    def size(self) -> int:
        """How many decisions and rewards are asked for."""
        return len(self.requests) + len(self.rewards)


@dataclass
class Batch:
    """Calls that are decided together and committed together; all of a call, or nothing of it.

    Args:
        calls: what was asked.
        served: what serves.
        known: decisions of before, by key: stored, or in the journal.
        disputed: keys that calls of this batch use for different requests.
        drawn: decisions that are not yet durable, and problems of requests without one, by name.
    """

    calls: list[QueuedCall]
    served: ServedPolicy
    known: dict[str, Decision] = field(default_factory=dict)
    disputed: set[str] = field(default_factory=set)
    drawn: Drawn = field(default_factory=lambda: Drawn({}, {}))

    def __post_init__(self) -> None:
        self.answers: list[Any] = [None] * len(self.calls)
        """To each call; until the commit None, or an error that refuses the call."""

    @property
    def open(self) -> list[tuple[int, QueuedCall]]:
        """Calls that have no answer yet, with their places."""
        return [(k, call) for k, call in enumerate(self.calls) if self.answers[k] is None]

    @property
    def rewards(self) -> list[Reward]:
        """The rewards of calls that are not refused."""
        return [reward for _, call in self.open for reward in call.rewards]

    @property
    def made(self) -> list[Decision]:
        """What is to be written: decisions of open calls, but for keys that have one."""
        names = {name: None for _, call in self.open for name in call.names}
        return [self.drawn.decisions[name] for name in names if name not in self.known]

    def unknown_keys(self) -> list[str]:
        """Keys of which no decision is known."""
        requests = (request for _, call in self.open for request in call.requests)
        keys = {request.name: None for request in requests if request.name is not None}
        return [key for key in keys if key not in self.known]

    def undecided(self) -> list[dict[str, Decide]]:
        """Requests by name, call by call, that have neither a decision nor a problem.

        Of several with one key it is the first.
        """
        settled = {*self.known, *self.drawn.decisions, *self.drawn.problems}
        undecided = []
        for _, call in self.open:
            pairs = zip(call.names, call.requests, strict=True)
            wanted: dict[str, Decide] = {}
            for name, request in pairs:
                if name not in settled:
                    wanted[name] = request
                    settled.add(name)
            undecided.append(wanted)
        return undecided

    def problems(self, known: Mapping[str, Decision]) -> dict[int, DepsueError]:
        """Why calls must be refused, by their places, if these decisions are known."""
        problems: dict[int, DepsueError] = {}
        for place, call in self.open:
            for name, request in zip(call.names, call.requests, strict=True):
                decision = known.get(name)
                if decision is None and name in self.disputed:
                    decision = self.drawn.decisions.get(name)
                if decision is not None:
                    if not answers(decision, request):
                        problems.setdefault(place, another_request(request))
                elif name in self.drawn.problems:
                    problems.setdefault(place, self.drawn.problems[name])
        return problems

    def refuse(self, problem: Exception) -> None:
        """Answer all open calls with an error."""
        for place, _ in self.open:
            self.answers[place] = problem

    def refuse_erased(self, problem: KeyErased) -> None:
        """Refuse the open calls that have a key whose decision was erased."""
        for place, call in self.open:
            if not problem.keys.isdisjoint(call.names):
                self.answers[place] = problem

    def refuse_impossible(self) -> None:
        """Refuse the calls that cannot be answered, by what is known."""
        for place, problem in self.problems(self.known).items():
            self.answers[place] = problem

    def reply(self) -> None:
        """Fill in the answers; all that was made is durable."""
        for place, call in self.open:
            decisions = [self.known.get(name) or self.drawn.decisions[name] for name in call.names]
            replies = [decision.reply(self.served.ids) for decision in decisions]
            self.answers[place] = replies or len(call.rewards)


class Writer:
    """Commits batches, one after the other.

    Args:
        store: where decisions go.
        journal: where they go while the store is gone.
        draw: decides requests by name, call by call; is told why pi0 must decide, or "".
        on_gone: "pi0" to go on into the journal, "stop" to refuse.
        answered: is given each batch with its answers.
        retry: seconds between attempts to reach a store that is gone.
    """

    def __init__(
        self,
        store: Store,
        journal: Journal,
        *,
        draw: Callable[[Sequence[Mapping[str, Decide]], ServedPolicy, str], Drawn],
        on_gone: str,
        answered: Callable[[Batch], None],
        retry: float = RETRY,
    ) -> None:
        self._store, self._journal, self._draw = store, journal, draw
        self._on_gone, self._answered, self._retry = on_gone, answered, retry
        self._batches: SimpleQueue[Batch | None] = SimpleQueue()
        self._events: SimpleQueue[_QueuedEvent] = SimpleQueue()
        self._next_try = 0.0
        self._unwritten: list[JournalLine] = []
        """Lines in doubt that the journal could not take yet, either."""
        self._replayed = _Replayed()
        self._thread = threading.Thread(target=self._run, name="depsue-writer", daemon=True)
        self.recent: dict[str, Decision] = {}
        """Decisions that are in the store, by key: the newest. The worker reads, the writer
        writes."""
        self.gone = ""
        """Why the store does not answer; "" while it does."""
        self.twins = 0
        """Twins in the store, as they were last counted."""

    @property
    def live(self) -> bool:
        """Whether batches go to the store."""
        return not self.gone and not self._journal.waiting and not self._unwritten

    def open(self) -> None:
        """Read the journal and reach for the store; one that is gone is tried again later.

        A store that this version cannot use, say of a newer one, is refused.
        """
        self._journal.open()
        self._reach()

    def start(self) -> None:
        """`open`, and commit from now on what is put, in a thread."""
        self.open()
        self._thread.start()

    def close(self) -> None:
        """Commit what was given, then end."""
        if self._thread.is_alive():
            self._batches.put(None)
            self._thread.join()
        self._journal.close()
        self._store.close()

    def forget_recent(self) -> None:
        """Ask the store again for every key: decisions were erased. From any thread."""
        self.recent = {}

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

    def commit(self, batch: Batch) -> None:
        """Make a batch durable, and fill in its answers."""
        try:
            if self.live:
                try:
                    self._call_by_call(batch, self._to_store)
                    return
                except InDoubt as problem:
                    self._lost(problem)
                    raise _try_again("a commit got no reply", problem.found) from problem
                except StoreGone as problem:  # nothing was written
                    self._lost(problem)
            self._call_by_call(batch, self._to_journal)
        except DepsueError as problem:
            batch.refuse(problem)
        except Exception as problem:  # callers must not wait for ever
            log.exception("writer failed")
            batch.refuse(problem)

    def recover(self) -> None:
        """One step back to the store, if it is time: reach it, or replay a chunk of the journal."""
        if self.live or time.monotonic() < self._next_try:
            return
        if self.gone:
            try:
                self._reach()
            except FileError as problem:  # a newer version has brought it up to date meanwhile
                self._lost(problem)
        elif self._replay():
            self._back()

    def _run(self) -> None:
        while True:
            self._record_events()
            self.recover()
            waits = self.live or time.monotonic() < self._next_try
            try:
                batch = self._batches.get(block=waits, timeout=0.1)
            except Empty:
                continue
            if batch is None:
                return
            self.commit(batch)
            self._answered(batch)

    def _call_by_call(self, batch: Batch, write: Callable[[Batch], None]) -> None:
        """Write a batch; a call with what cannot be stored is refused, the others are written."""
        try:
            write(batch)
        except Unstorable as problem:
            if len(batch.calls) == 1:
                log.error("call refused", extra={"found": str(problem)})
                batch.refuse(problem)
                return
            for place, call in batch.open:
                alone = Batch([call], batch.served, batch.known, batch.disputed, batch.drawn)
                self._call_by_call(alone, write)
                batch.answers[place] = alone.answers[0]

    def _to_store(self, batch: Batch) -> None:
        """Commit a batch to the store; what the store has for a key is the answer."""
        # only the store can tell which of these is a retry
        unsure = batch.disputed | batch.drawn.problems.keys()
        batch.known |= self._store.by_key([key for key in batch.unknown_keys() if key in unsure])
        if any(batch.undecided()):  # the store was gone when the worker came to it
            batch.drawn |= self._draw(batch.undecided(), batch.served, "")
        while True:
            batch.refuse_impossible()
            made, rewards = batch.made, batch.rewards

            def check(first: dict[str, Decision]) -> None:
                if batch.problems(batch.known | first):
                    raise _Refused(first)

            try:
                if made or rewards:
                    batch.known |= self._store.write(made, rewards, check=check)
                break
            except _Refused as refused:  # nothing was written: again, without calls it refuses
                batch.known |= refused.first
            except KeyErased as problem:  # nor was it here
                batch.refuse_erased(problem)
            except InDoubt:
                keyed = [decision for decision in made if decision.key is not None]
                self._unwritten += journal_lines(keyed, rewards, in_doubt=True)
                with suppress(FileError):  # it was logged; tried again with all that follows
                    self._append([])
                raise
        self._remember(made, batch.known)
        batch.reply()

    def _to_journal(self, batch: Batch) -> None:
        """Commit a batch to the journal, decided by pi0."""
        if self._on_gone == "stop":
            raise _try_again("decisions are made only while they can be stored", self._why)
        for key in batch.unknown_keys():
            if (decision := self.recent.get(key)) is not None:
                batch.known[key] = decision
        if not self.gone:
            try:
                batch.known |= self._store.by_key(batch.unknown_keys())
                batch.refuse_erased(KeyErased(self._store.erased_keys(batch.unknown_keys())))
            except StoreGone as problem:
                self._lost(problem)
        unwritten = {each.key for line in self._unwritten for each in line.decisions}
        problems = dict(batch.drawn.problems)
        for key in batch.unknown_keys():
            try:
                entry = self._journal.find(key)
            except FileError as problem:
                problems[key] = problem
                continue
            if entry is not None and not entry.in_doubt:
                batch.known[key] = entry.decision
            elif entry is not None or key in unwritten:
                problems[key] = _try_again("a key in doubt waits for the store", self._why)
        batch.drawn = Drawn({}, problems)
        batch.drawn |= self._draw(batch.undecided(), batch.served, self._why)
        batch.refuse_impossible()
        self._append(journal_lines(batch.made, batch.rewards))
        batch.reply()

    @property
    def _why(self) -> str:
        """Why batches do not go to the store."""
        if self.gone:
            return "the store of decisions is gone"
        return "decisions in the journal wait for the store"

    def _append(self, lines: list[JournalLine]) -> None:
        """Make lines durable, after those that could not be before."""
        try:
            if self._unwritten or lines:
                self._journal.append([*self._unwritten, *lines])
            self._unwritten = []
        except FileError as problem:
            log.error("journal not written", extra={"found": str(problem)})
            raise

    def _remember(self, made: Sequence[Decision], known: Mapping[str, Decision]) -> None:
        """Note decisions that are in the store."""
        for decision in (*made, *known.values()):
            if decision.key is not None:
                self.recent[decision.key] = known.get(decision.key, decision)
        while len(self.recent) > MOST_RECENT:
            self.recent.pop(next(iter(self.recent)))

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

    def _lost(self, problem: FileError) -> None:
        """The store does not answer: from now on the journal, or nothing."""
        self._store.close()
        if not self.gone:
            log.warning("store gone", extra={"found": problem.found})
        self.gone = problem.found or "gone"
        self._next_try = time.monotonic() + self._retry

    def _reach(self) -> None:
        """Try to get at the store."""
        was_gone = self.gone
        try:
            self._store.open()
            self.twins = self._store.twins()
        except StoreGone as problem:
            self._lost(problem)
            return
        self.gone = ""
        if was_gone and self.live:
            self._back()

    def _replay(self) -> bool:
        """Write a chunk of what waits to the store; whether nothing waits any more."""
        try:
            chunk = self._journal.chunk(CHUNK)
            lines = self._unwritten if chunk is None else chunk.lines
            self._offer(lines)
            decisions = [each for line in lines for each in line.decisions]
            rewards = [each for line in lines for each in line.rewards]
            # the journal forgets these keys; they are known here if the store is lost again
            keys = [each.key for each in decisions if each.key is not None]
            self._remember((), self._store.by_key(keys))
            self._replayed.decisions += len(decisions)
            self._replayed.rewards += len(rewards)
            if chunk is None:
                self._unwritten = []
            else:
                self._journal.forget(chunk)
            if self.live:
                self.twins = self._store.twins()
        except StoreGone as problem:
            self._lost(problem)
        except (OSError, FileError) as problem:
            log.error("journal not replayed", extra={"found": str(problem)})
            self._next_try = time.monotonic() + self._retry
        return self.live

    def _offer(self, lines: Sequence[JournalLine]) -> None:
        """Write lines of the journal to the store; one that it cannot hold is set aside."""
        decisions = [each for line in lines for each in line.decisions]
        doubtful = {each.id for line in lines if line.in_doubt for each in line.decisions}
        try:
            rewards = [each for line in lines for each in line.rewards]
            self._store.replay(decisions, doubtful, rewards)
        except Unstorable as problem:
            half = len(lines) // 2
            if not half:
                self._journal.set_aside(lines[0], problem.found)
                return
            self._offer(lines[:half])
            self._offer(lines[half:])

    def _back(self) -> None:
        """The store answers, and nothing waits."""
        if self._replayed != _Replayed():
            counts = {"decisions": self._replayed.decisions, "rewards": self._replayed.rewards}
            log.info("journal replayed", extra={**counts, "twins": self.twins})
            self._replayed = _Replayed()
        log.info("store back")


@dataclass
class _Replayed:
    """How many decisions and rewards were replayed since the store was live."""

    decisions: int = 0
    rewards: int = 0


class _Refused(Exception):
    """Calls use keys that other requests had; nothing was written."""

    def __init__(self, first: dict[str, Decision]) -> None:
        super().__init__()
        self.first = first


class _QueuedEvent(NamedTuple):
    """An event to record, and where its outcome goes: None, or what went wrong."""

    record: Callable[[], None]
    done: SimpleQueue[Exception | None]


def _try_again(rule: str, found: str) -> StoreGone:
    return StoreGone(rule, found=found, cure="try again in a moment, with the same key")
