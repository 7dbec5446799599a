"""Files and folders: written whole or not at all, and held by one process at a time.

A lock file is held by the operating system for a process, so kill -9 lets go of it. Windows locks a
byte of a file in place of the whole, cannot sync a folder, and removes no file that is open.
"""

from __future__ import annotations

import errno
import os
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from depsue.errors import FileError

PRIVATE = 0o600
"""The mode of a file that only its owner may read."""
AS_BYTES: int = getattr(os, "O_BINARY", 0)
"""Opens a file as it is; without it Windows would change the ends of lines."""
_FAR = 1 << 30
"""The byte that is locked on Windows: beyond any content, for nobody else may read it."""
_HELD: set[str] = set()
_GUARD = threading.Lock()


def write_file(path: Path, content: bytes, *, private: bool = False) -> None:
    """Write one file, whole or not at all; its folder is made if need be.

    Args:
        path: which.
        content: all of it.
        private: whether only its owner may read it, from the first byte on.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_synced(path, content, private=private)
    except OSError as problem:
        raise FileError(
            "the folder must be writable and have room",
            found=f"{path.parent}: {problem.strerror}",
            cure="choose another folder or free space; what was there before is kept",
        ) from problem


def write_synced(path: Path, content: bytes, *, private: bool = False) -> None:
    """Write, fsync, rename: the file is whole or not there. Its folder must exist."""
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    mode = PRIVATE if private else 0o666
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | AS_BYTES
    try:
        with open(os.open(partial, flags, mode), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    sync_folder(path.parent)


def append_synced(path: Path, content: bytes, *, private: bool = False) -> None:
    """Append and sync, all of it or nothing: half of it, on a full disk, is taken back.

    Several processes may append to one file. An OSError if there is no room.

    Args:
        path: which; it is made if need be.
        content: what follows what is there.
        private: whether only its owner may read it.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | AS_BYTES
    file = os.open(path, flags, PRIVATE if private else 0o666)
    try:
        # whoever holds the lock for longer does not keep others from writing, only from taking back
        until = time.monotonic() + 1.0
        while not (held := lock(file)) and time.monotonic() < until:
            time.sleep(0.005)
        size = os.fstat(file).st_size
        try:
            if os.write(file, content) != len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
            os.fsync(file)
        except OSError:
            if held:
                os.ftruncate(file, size)
            raise
    finally:
        os.close(file)


def sync_folder(folder: Path) -> None:
    """Sync a folder: only then a new file, a rename or a removal in it is durable."""
    if sys.platform == "win32":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def writable_folder(folder: str | Path) -> Path:
    """The folder, made if need be; asked for before the work, so that nothing is lost."""
    target = Path(folder)
    try:
        target.mkdir(parents=True, exist_ok=True)
        (target / ".writable").touch()
        (target / ".writable").unlink()
    except OSError as problem:
        raise FileError(
            "the folder for the report must be writable",
            found=f"{target}: {problem.strerror}",
            cure="choose another folder with --out",
        ) from problem
    return target


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
        remove_held(Path(path), descriptor)


@contextmanager
def take_turn(path: str, wait: float = 10.0) -> Iterator[None]:
    """Hold a lock file, waiting for those who have it; a FileError after `wait` seconds."""
    until = time.monotonic() + wait
    while True:
        with hold_file(path) as held:
            if held:
                yield
                return
        if time.monotonic() > until:
            raise FileError(
                "one process at a time may change a file",
                found=f"another has held {path} for {wait:g} s",
                cure="try again when it is done",
            )
        time.sleep(0.005)


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


def lock(descriptor: int) -> bool:
    """Lock an open file for this process, until it is closed; False if another has it."""
    if sys.platform == "win32":
        import msvcrt

        try:
            os.lseek(descriptor, _FAR, os.SEEK_SET)
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def remove_held(path: Path, descriptor: int) -> None:
    """Remove a file that this process has locked, if it is there, and let go of it."""
    if sys.platform == "win32":  # for a moment somebody else may lock it, and then it stays
        os.close(descriptor)
        with suppress(OSError):
            path.unlink()
        return
    try:
        path.unlink(missing_ok=True)
    finally:
        os.close(descriptor)


def read_at(descriptor: int, size: int, start: int) -> bytes:
    """Bytes of a file from a place on."""
    if sys.platform == "win32":
        os.lseek(descriptor, start, os.SEEK_SET)
        return os.read(descriptor, size)
    return os.pread(descriptor, size, start)


def write_at(descriptor: int, content: bytes, start: int) -> int:
    """Write at a place of a file; how many bytes were written."""
    if sys.platform == "win32":
        os.lseek(descriptor, start, os.SEEK_SET)
        return os.write(descriptor, content)
    return os.pwrite(descriptor, content, start)


def _locked(path: str) -> int | None:
    """The descriptor of the lock file, locked; None if another has it."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        if not lock(descriptor):
            os.close(descriptor)
            return None
        with suppress(FileNotFoundError):
            if os.stat(path).st_ino == os.fstat(descriptor).st_ino:
                return descriptor
        os.close(descriptor)  # who held it before has removed this file: take a new one


def file_id(path: str | Path) -> tuple[int, int] | None:
    """What tells a file from another one of the same name; None if there is none."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def make_private(path: Path) -> None:
    """Let only the owner read a file of decisions; SQLite gives its other files the same mode."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, PRIVATE))
    for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
        with suppress(FileNotFoundError):
            path.with_name(name).chmod(PRIVATE)
