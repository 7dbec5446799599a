"""No second throw of the dice: every verdict on the same rows is counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Protocol

from depsue.errors import ConfigError, FileError, require, short
from depsue.files import write_synced


class CountsReads(Protocol):
    """What `certify` asks of whoever counts the verdicts: `Reads`, or a ledger."""

    retries: bool

    def begin(self, data: str) -> int:
        """Count one more read of the rows with this hash; which attempt it is, from 1."""
        ...

    def count(self, data: str) -> int:
        """How often the rows with this hash were read so far."""
        ...

    def delta_of_attempt(self, delta: float, attempt: int) -> float:
        """The delta at which that attempt is tested."""
        ...


class Reads:
    """How often the certifying rows of each data set were read, in memory or in a file.

    Without `retries` a second verdict on the same rows is refused. With them, declared before the
    first verdict, attempt j is tested at delta 2^-j (j = 1, 2, ...), which sums to delta.

    Args:
        path: a JSON file that outlives the process; None counts in memory only.
        retries: whether further attempts are allowed; a file remembers the choice.
    """

    def __init__(self, path: str | Path | None = None, *, retries: bool = False) -> None:
        self._path = None if path is None else Path(path)
        self.retries = retries
        self._counts: dict[str, int] = {}
        self._recall()

    def begin(self, data: str) -> int:
        """Count one more read of the rows with this hash; which attempt it is, from 1.

        The count is on disk before the rows are looked at, so a crash counts as a read.
        """
        attempt = self.count(data) + 1
        if attempt > 1 and not self.retries:
            raise ConfigError(
                "the certifying rows of a data set are read by one verdict",
                found=f"attempt {attempt} on data {data[:12]}",
                cure="certify on new rows; or declare Reads(retries=True) before the first "
                "verdict, which tests attempt j at delta 2^-j",
            )
        self._counts[data] = attempt
        if self._path is not None:
            _write(self._path, self._counts, self.retries)
        return attempt

    def count(self, data: str) -> int:
        """How often the rows with this hash were read so far."""
        self._recall()
        return self._counts.get(data, 0)

    def delta_of_attempt(self, delta: float, attempt: int) -> float:
        """The delta at which that attempt is tested."""
        return delta * 2.0**-attempt if self.retries else delta

    def _recall(self) -> None:
        """Take the counts from the file: others may have written to it since."""
        if self._path is None or not self._path.exists():
            return
        self._counts, remembered = _read(self._path)
        require(
            remembered == self.retries,
            "whether retries are allowed is decided before the first verdict",
            found=f"retries={remembered} in {self._path}, retries={self.retries} now",
            cure=f"go on with retries={remembered}",
        )


def _read(path: Path) -> tuple[dict[str, int], bool]:
    try:
        content = json.loads(path.read_text())
        counts = {str(data): int(count) for data, count in content["reads"].items()}
        return counts, bool(content["retries"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
        raise FileError(
            "the file must hold the reads of a campaign",
            found=f"{path}: {short(str(problem))}",
            cure="restore it from a copy; without it a verdict cannot be counted",
        ) from problem


def _write(path: Path, counts: dict[str, int], retries: bool) -> None:
    write_synced(path, json.dumps({"retries": retries, "reads": counts}, indent=1).encode())
