"""Holding something for as long as a process runs: kill -9 lets go of it."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_HELD: set[str] = set()
_GUARD = threading.Lock()


@contextmanager
def hold_thread(name: str) -> Iterator[bool]:
    """Hold a name within this process; False if another thread does."""
    with _GUARD:
        held = name not in _HELD
        _HELD.add(name)
    try:
        yield held
    finally:
        if held:
            with _GUARD:
                _HELD.discard(name)


@contextmanager
def hold_file(path: str) -> Iterator[bool]:
    """Hold a lock file; False if another process or thread does. It is gone afterwards."""
    descriptor = _locked(path)
    if descriptor is None:
        yield False
        return
    try:
        yield True
    finally:
        with suppress(FileNotFoundError):
            Path(path).unlink()
        os.close(descriptor)


def _locked(path: str) -> int | None:
    import fcntl

    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        with suppress(FileNotFoundError):
            if os.stat(path).st_ino == os.fstat(descriptor).st_ino:
                return descriptor
        os.close(descriptor)  # who held it before has removed this file: take a new one
