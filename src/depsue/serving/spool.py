"""Decisions and rewards while the store is gone: lines in a local file, fsynced before the reply.

Whatever was begun and not finished, a torn last line, was never answered and is left out. Replay
writes all of it in one transaction and then removes the file; ids make it harmless to do it twice.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from depsue.errors import FileError
from depsue.serving.rows import Decision, Reward


class Batch(msgspec.Struct):
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
        self._decode = msgspec.json.Decoder(Batch).decode

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
        line = self._encode(Batch(list(made), list(earned), list(instead_of))) + b"\n"
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

    def read(self) -> Batch:
        """All that waits."""
        whole = Batch([], [])
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
