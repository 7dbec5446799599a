"""The journal: what the store could not take, in files on this machine's disk.

A line is a decision or a reward as JSON, with a checksum. Lines are appended and synced; then they
may be answered (`writing`). All keys of the journal are indexed in memory by the place of their
line. Once the store has taken the lines of a file, the file is removed.

**Several services** of one folder have a file each, locked while they live. A service that starts
takes over the files of those that ended, oldest first, and appends to a new one.

**Damage.** Half a line at the end of a file belongs to a process that died before it answered, and
is left out. Any other line that cannot be read is copied to a file of its own, `NUMBER.damaged`.
The log tells its place, and the service's status counts it. Nothing is skipped silently.

The first version had one file, `spool/spool.jsonl`, with a batch in a line and without checksums.
It is read like any other.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import zlib
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import msgspec

from depsue.database import Unstorable
from depsue.errors import FileError, require
from depsue.files import (
    AS_BYTES,
    PRIVATE,
    append_synced,
    lock,
    read_at,
    remove_held,
    sync_folder,
    write_at,
    write_file,
)
from depsue.serving.schema import Decision, Reward
from depsue.serving.settings import JOURNAL, SPOOL

log = logging.getLogger(__name__)
DAMAGED = ".damaged"


class JournalLine(msgspec.Struct, omit_defaults=True):
    """One line of the journal: a decision or a reward; in older files, a batch of them.

    Args:
        decisions, rewards: what is to be stored.
        in_doubt: perhaps it is in the store, and nobody was answered with it.
    """

    decisions: list[Decision] = []
    rewards: list[Reward] = []
    in_doubt: bool = False

    @property
    def size(self) -> int:
        """How many decisions and rewards it holds."""
        return len(self.decisions) + len(self.rewards)


def journal_lines(
    decisions: Sequence[Decision], rewards: Sequence[Reward], *, in_doubt: bool = False
) -> list[JournalLine]:
    """A line for each, so that damage to one harms no other."""
    return [
        *(JournalLine(decisions=[each], in_doubt=in_doubt) for each in decisions),
        *(JournalLine(rewards=[each], in_doubt=in_doubt) for each in rewards),
    ]


class Journalled(NamedTuple):
    """What the journal has for a key."""

    decision: Decision
    in_doubt: bool


class JournalChunk(NamedTuple):
    """The oldest lines of the journal, up to byte `end` of a file."""

    segment: _Segment
    end: int
    lines: list[JournalLine]


@dataclass(eq=False)
class _Segment:
    """One file of the journal, which this process has locked.

    Args:
        path: where.
        file: its descriptor.
        checked: whether its lines have checksums; those of the first version had none.
        size: bytes that are lines, whole and synced.
        done: bytes that are in the store.
        damaged: lines that cannot be read, by their place.
    """

    path: Path
    file: int
    checked: bool
    size: int = 0
    done: int = 0
    damaged: dict[int, bytes] = field(default_factory=dict)

    @property
    def aside(self) -> Path:
        """The file for damaged lines."""
        return self.path.with_suffix(DAMAGED)


class _Place(NamedTuple):
    segment: _Segment
    start: int
    end: int


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(JournalLine).decode


class Journal:
    """What the store could not take, in files on this machine's disk; one writer uses it.

    Args:
        folder: of the campaign.
    """

    def __init__(self, folder: str | Path) -> None:
        self._folder, self._before = Path(folder) / JOURNAL, Path(folder) / SPOOL
        self._segments: list[_Segment] = []
        self._newest: _Segment | None = None
        self._places: dict[str, _Place] = {}
        self.waiting = 0
        """Decisions and rewards that wait for the store."""
        self.damaged = 0
        """Lines that could not be read, and are in files of their own."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing in the folder that waits, whoever wrote it."""
        return not any(path.stat().st_size for path in self._paths())

    def open(self) -> None:
        """Take over what waits from services that ended; a FileError if it cannot be read."""
        try:
            for path in self._paths():
                segment = _locked(path, checked=path.parent == self._folder)
                if segment is None:
                    continue
                self._segments.append(segment)
                os.fsync(segment.file)  # what is answered from now on is on disk
                before = self.waiting
                for start, end, line in self._read(segment, 0):
                    segment.size = end
                    if line is not None:
                        self._index(segment, start, end, line)
                if self.waiting == before:
                    self._remove(segment)
            self._count_damaged()
        except OSError as problem:
            raise FileError(
                "the journal must be readable before decisions are made",
                found=f"{self._folder}: {problem.strerror or problem}",
                cure="check the folder and its rights",
            ) from problem

    def close(self) -> None:
        """Let go of the files; what waits stays."""
        for segment in self._segments:
            os.close(segment.file)
        self._segments, self._newest, self._places, self.waiting = [], None, {}, 0

    def append(self, lines: Sequence[JournalLine]) -> None:
        """Make lines durable, all or none; a FileError if that cannot be done.

        `Unstorable`, before anything is written, if one could not be read back.
        """
        coded = [_with_checksum(_encode(line)) for line in lines]
        for text in coded:
            require(
                _decoded(text, checked=True) is not None,
                "the journal takes what it can read back",
                cure="send other values; nothing was written",
                error=Unstorable,
            )
        content = b"".join(coded)
        try:
            for each in self._segments:
                self._restore(each)
            segment = self._begun() if self._newest is None else self._newest
            # what stands after the last whole line was never synced, and never answered
            if os.fstat(segment.file).st_size != segment.size:
                os.ftruncate(segment.file, segment.size)
            if write_at(segment.file, content, segment.size) != len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(segment.file)  # only then may the decisions be answered
        except OSError as problem:
            raise FileError(
                "decisions that the store cannot take go to the journal, which cannot be written: "
                f"{problem.strerror or problem}",
                found=f"{self._folder}: {problem.strerror or problem}",
                cure=_CURES.get(problem.errno or 0, "mend the disk"),
            ) from problem
        for line, text in zip(lines, coded, strict=True):
            start, segment.size = segment.size, segment.size + len(text)
            self._index(segment, start, segment.size, line)

    def find(self, key: str) -> Journalled | None:
        """What is there for a key."""
        place = self._places.get(key)
        if place is None:
            return None
        segment, start, end = place
        line = _decoded(read_at(segment.file, end - start, start), checked=segment.checked)
        for decision in () if line is None else line.decisions:
            if line is not None and decision.key == key:
                return Journalled(decision, line.in_doubt)
        raise FileError(
            "the journal must be readable",
            found=f"{segment.path}, byte {start}: damaged while the service ran",
            cure="start the service again: it sets the line aside",
        )

    def chunk(self, limit: int) -> JournalChunk | None:
        """The oldest lines that wait, with about so many decisions and rewards; None without."""
        for segment in self._segments:
            if segment.done < segment.size:
                self._restore(segment)
                lines: list[JournalLine] = []
                stop = segment.done
                size = 0
                for _, end, line in self._read(segment, segment.done, segment.size):
                    stop = end
                    if line is not None:
                        lines.append(line)
                        size += line.size
                    if size >= limit:
                        break
                return JournalChunk(segment, stop, lines)
        return None

    def forget(self, chunk: JournalChunk) -> None:
        """The lines are in the store: they wait no more."""
        segment = chunk.segment
        segment.done = chunk.end
        for line in chunk.lines:
            self.waiting -= line.size
            for decision in line.decisions:
                place = self._places.get(decision.key or "")
                if place is not None and place.segment is segment and place.start < chunk.end:
                    del self._places[decision.key or ""]
        if segment.done >= segment.size:
            self._remove(segment)
        if not self._segments:  # a line that was damaged meanwhile was counted, too
            self.waiting = 0

    def set_aside(self, line: JournalLine, why: str) -> None:
        """Keep a line that the store cannot hold, for a person to look at."""
        aside = self._folder / f"refused{DAMAGED}"
        text = _encode(line) + b"\n"
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not aside.exists() or text not in aside.read_bytes():
            append_synced(aside, text, private=True)
        self._count_damaged()
        log.error("journal line refused", extra={"found": why, "copy": str(aside)})

    def of_unit(self, units: Collection[str]) -> JournalLine:
        """What waits of a unit, whoever wrote it; of all files together.

        Args:
            units: the unit, as requests may have named it (`unit_texts`).
        """
        lines = [line for path in self._paths() for line in self._lines_in(path) if line]
        decisions = [each for line in lines for each in line.decisions if each.unit in units]
        ids = {each.id for each in decisions}
        rewards = [each for line in lines for each in line.rewards if each.decision in ids]
        return JournalLine(decisions, rewards)

    def erase(self, units: Collection[str], ids: Collection[str]) -> int:
        """Rewrite the files without a unit's decisions and rewards; how many files could not be.

        Those are of services that run. What they replay is erased as it comes into the store.

        Args:
            units: as for `of_unit`.
            ids: of decisions whose rewards go, too.
        """
        gone = {*ids, *(each.id for each in self.of_unit(units).decisions)}
        in_use = 0
        for path in self._paths():
            segment = _locked(path, checked=path.parent == self._folder)
            if segment is None:
                in_use += 1
                continue
            try:
                _rewrite(path, b"".join(_without(path, segment.checked, units, gone)))
            finally:
                os.close(segment.file)
        for folder in (self._folder, self._before):
            for path in folder.glob(f"*{DAMAGED}"):  # no line of these can be read
                named = [f'"unit":{unit}'.encode() for unit in units]
                named += [id.encode() for id in gone]
                lines = path.read_bytes().splitlines(keepends=True)
                rest = [line for line in lines if not any(name in line for name in named)]
                if len(rest) < len(lines):
                    _rewrite(path, b"".join(rest))
        return in_use

    def lost(self, round: int) -> int:
        """How many decisions and rewards stand in damaged lines that may be of a round.

        What a line held is counted by what can still be read of it; each held one at least. Where
        it names another round it is not of this one.
        """
        lost = 0
        for path in (*self._folder.glob(f"*{DAMAGED}"), *self._before.glob(f"*{DAMAGED}")):
            for line in path.read_bytes().splitlines():
                rounds = [int(number) for number in _ROUND.findall(line)]
                if line.strip() and (not rounds or round in rounds):
                    lost += max(1, line.count(b'"propensity":') + line.count(b'"received":'))
        return lost

    def _lines_in(self, path: Path) -> Iterator[JournalLine | None]:
        """The whole lines of a file; None for a damaged one."""
        checked = path.parent == self._folder
        for text in path.read_bytes().splitlines(keepends=True):
            if text.endswith(b"\n"):
                yield _decoded(text, checked=checked)

    def _paths(self) -> list[Path]:
        """All files with lines, oldest first; those of the first version are older than any."""
        before = self._before / "spool.jsonl"
        return [*([before] if before.exists() else []), *sorted(self._folder.glob("*.jsonl"))]

    def _read(
        self, segment: _Segment, start: int, stop: int | None = None
    ) -> Iterator[tuple[int, int, JournalLine | None]]:
        """(start, end, line) of the whole lines from `start` on; None for a damaged one."""
        with segment.path.open("rb") as file:
            file.seek(start)
            for text in file:
                if (stop is not None and start >= stop) or not text.endswith(b"\n"):
                    return
                line = _decoded(text, checked=segment.checked)
                if line is None and start not in segment.damaged:
                    self._set_aside(segment, start, text)
                yield start, start + len(text), line
                start += len(text)

    def _index(self, segment: _Segment, start: int, end: int, line: JournalLine) -> None:
        self.waiting += line.size
        for decision in line.decisions:
            if decision.key is not None:
                self._places.setdefault(decision.key, _Place(segment, start, end))

    def _begun(self) -> _Segment:
        """A new file to append to."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        sync_folder(self._folder.parent)
        names = [path.stem for path in self._folder.iterdir() if path.stem.isdigit()]
        number = max(map(int, names), default=0)
        segment = None
        while segment is None:  # another service may take the same number at the same time
            number += 1
            path = self._folder / f"{number:08d}.jsonl"
            with suppress(FileExistsError):
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, PRIVATE))
                segment = _locked(path, checked=True)
        sync_folder(self._folder)
        self._segments.append(segment)
        self._newest = segment
        return segment

    def _restore(self, segment: _Segment) -> None:
        """Write a file that somebody removed anew: what waits in it was answered.

        It is open here, so its content is still there; with this process it would be gone.
        """
        if os.fstat(segment.file).st_nlink > 0:
            return
        content = read_at(segment.file, segment.size, 0)
        segment.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = os.open(segment.path, os.O_CREAT | os.O_EXCL | os.O_RDWR | AS_BYTES, PRIVATE)
        if not lock(file) or write_at(file, content, 0) != len(content):
            os.close(file)
            segment.path.unlink(missing_ok=True)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(file)
        sync_folder(segment.path.parent)
        os.close(segment.file)
        segment.file = file
        log.error("journal was removed", extra={"found": str(segment.path), "bytes": len(content)})

    def _remove(self, segment: _Segment) -> None:
        """Remove a file whose lines are all in the store."""
        self._segments.remove(segment)
        if self._newest is segment:
            self._newest = None
        remove_held(segment.path, segment.file)
        sync_folder(segment.path.parent)

    def _set_aside(self, segment: _Segment, start: int, text: bytes) -> None:
        """Keep a line that cannot be read, for a person to look at."""
        segment.damaged[start] = text
        write_file(segment.aside, b"".join(segment.damaged.values()), private=True)
        self._count_damaged()
        place = f"{segment.path}, byte {start}"
        log.error("journal line damaged", extra={"found": place, "copy": str(segment.aside)})

    def _count_damaged(self) -> None:
        paths = [*self._folder.glob(f"*{DAMAGED}"), *self._before.glob(f"*{DAMAGED}")]
        self.damaged = sum(path.read_bytes().count(b"\n") for path in paths)


_ROUND = re.compile(rb'"round":([0-9]{1,9})[,}]')
_CURES = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "make room on the disk"),
    **dict.fromkeys(
        (errno.EACCES, errno.EPERM, errno.EROFS), "let the service write to the folder"
    ),
}


def _locked(path: Path, *, checked: bool) -> _Segment | None:
    """A file of the journal, locked for this process; None if another has it, or removed it."""
    try:
        file = os.open(path, os.O_RDWR | AS_BYTES)
    except FileNotFoundError:
        return None
    if not lock(file) or os.fstat(file).st_nlink == 0:
        os.close(file)
        return None
    return _Segment(path, file, checked)


def _without(
    path: Path, checked: bool, units: Collection[str], ids: Collection[str]
) -> Iterator[bytes]:
    """The lines of a file, as bytes, without a unit's decisions and rewards."""
    for text in path.read_bytes().splitlines(keepends=True):
        line = _decoded(text, checked=checked)
        if line is None or not text.endswith(b"\n"):
            # damaged, or never answered; set aside when a service starts, if it is not the unit's
            named = (f'"unit":{unit}'.encode() for unit in units)
            if text.endswith(b"\n") and not any(name in text for name in named):
                yield text
            continue
        decisions = [each for each in line.decisions if each.unit not in units]
        decisions = [each for each in decisions if each.id not in ids]
        rewards = [each for each in line.rewards if each.decision not in ids]
        if (len(decisions), len(rewards)) == (len(line.decisions), len(line.rewards)):
            yield text
        elif decisions or rewards:
            left = _encode(JournalLine(decisions, rewards, line.in_doubt))
            yield _with_checksum(left) if checked else left + b"\n"


def _rewrite(path: Path, content: bytes) -> None:
    """Put other content in place of a file's; a file without content is removed."""
    if content:
        write_file(path, content, private=True)
    else:
        path.unlink(missing_ok=True)
        sync_folder(path.parent)


def _with_checksum(text: bytes) -> bytes:
    return b"%08x %b\n" % (zlib.crc32(text), text)


def _decoded(text: bytes, *, checked: bool) -> JournalLine | None:
    """A line; None if it is damaged."""
    body = text.rstrip(b"\n")
    if checked:
        body = body[9:]
        if _with_checksum(body) != text:
            return None
    try:
        line = _decode(body)
    except msgspec.DecodeError:
        return None
    return line if all(0 < each.propensity <= 1 for each in line.decisions) else None
