"""Long work in the background: one piece at a time, with its progress and what came of it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from depsue.errors import DepsueError, require
from depsue.progress import Watch

log = logging.getLogger(__name__)
MOST_JOBS = 50
"""Results; beyond it the oldest is forgotten."""


@dataclass(frozen=True)
class Task:
    """A part of a piece of work: what, the share of it that is done, how it goes."""

    what: str
    share: float
    words: str


class Job:
    """One piece of work.

    Args:
        what: in words.
        form: what it was asked for with.
    """

    def __init__(self, what: str, form: Any) -> None:
        self.what, self.form, self.began = what, form, time.time()
        self.ended: float | None = None
        self._tasks: dict[str, Task] = {}
        self.result: Any = None
        self.problem = ""
        self.done = threading.Event()

    @property
    def running(self) -> bool:
        """Whether it is under way."""
        return not self.done.is_set()

    def watch(self, task: str, done: int, total: int, words: str) -> None:
        """Takes note of progress."""
        self._tasks[task] = Task(task, done / max(total, 1), words)

    @property
    def tasks(self) -> tuple[Task, ...]:
        """Its parts so far, as they began."""
        return tuple(self._tasks.values())


class Jobs:
    """Work of one kind."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, Job] = {}

    def of(self, key: str) -> Job | None:
        """The newest of that key."""
        return self._known.get(key)

    @property
    def running(self) -> Job | None:
        """What is under way."""
        return next((job for job in list(self._known.values()) if job.running), None)

    def start(self, key: str, what: str, form: Any, work: Callable[[Watch], Any]) -> Job:
        """Begin; refused while another is under way."""
        with self._lock:
            other = self.running
            require(
                other is None,
                "one at a time, for decisions are made beside it",
                found=f"under way: {other.what if other else ''}",
                cure="wait until it is done",
            )
            job = Job(what, form)
            self._known.pop(key, None)
            self._known[key] = job
            while len(self._known) > MOST_JOBS:
                del self._known[next(iter(self._known))]
        thread = threading.Thread(
            target=self._run, args=(job, work), name="depsue-job", daemon=True
        )
        thread.start()
        return job

    def _run(self, job: Job, work: Callable[[Watch], Any]) -> None:
        try:
            job.result = work(job.watch)
        except DepsueError as problem:
            job.problem = str(problem)
        except Exception:  # it must not die without a word
            log.exception("job failed", extra={"what": job.what})
            job.problem = "something went wrong here; the service's log says what"
        finally:
            job.ended = time.time()
            job.done.set()
