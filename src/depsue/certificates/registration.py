"""Rows are registered before anybody splits or reads them: secrets, families, counted verdicts.

A second throw of the dice is refused or paid for. There are two ways to throw again, and a
registry closes both:

- **Another split.** The registry draws a secret when it first sees rows, and folds hang on that
  secret and on the rows' identity (`depsue.data.identity`), never on a name that a user chooses.
  Rows that come back keep their folds, in whatever campaign and whatever larger or smaller file.
  Rows that come back with other folds (another unit, another order, other shares) are another
  encoding, which counts as an attempt even if no verdict has read a row.
- **Another verdict.** Verdicts that share rows are one family with one delta. Without retries there
  is one verdict. With retries, declared before the first one, attempt j is tested at delta 2^-j.

`Reads` is a registry in memory or in a file; a ledger is one with campaigns. Neither can see what
another registry did, so a certificate names its registry and says that it assumes none.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, overload

from depsue import codec
from depsue.certificates.folds import (
    FRACTIONS,
    Folds,
    Registration,
    StreamedFolds,
    UnitRows,
    checked_shares,
    three_folds,
)
from depsue.data.identity import COUNTED, DRAWN, LogSketch, Overlap
from depsue.data.logs import LoggedData
from depsue.data.partitions import LogStream
from depsue.errors import ConfigError, FileError, require, short
from depsue.files import write_synced


def draw_secret() -> str:
    """64 hexadecimal digits that nobody can guess or choose."""
    return secrets.token_hex(32)


@dataclass(frozen=True)
class KnownLog:
    """A log that a registry has seen before.

    Args:
        registration: what it was given.
        sketch: what its rows are known by.
        name: what to call it in a message.
        retries: whether its campaign declared retries.
        may_return: whether contexts of these rows are expected to come back in fresh rows, so that
            contents do not tell: where the user declared it, or rows are of a later round.
    """

    registration: Registration
    sketch: LogSketch
    name: str
    retries: bool = False
    may_return: bool = False


def placed(
    sketch: LogSketch,
    fractions: tuple[float, float, float],
    known: Sequence[KnownLog],
    *,
    ledger: str,
    family: str,
    retries: bool = False,
    fresh: bool = False,
    secret: str | None = None,
    first: Registration | None = None,
    ahead: str | None = None,
    extends: Registration | None = None,
) -> Registration:
    """The registration of a log: a new one, or that of the rows it shares with known logs.

    Args:
        sketch: what its rows are known by.
        fractions: wanted shares of learn, select and certify.
        known: all logs that the registry has seen, oldest first.
        ledger: the registry's id.
        family: the name of a family of its own, if the rows are new.
        retries: whether its campaign declared retries.
        fresh: the user declares that no row was registered before, where only contents (no times)
            could tell; the certificate says so.
        secret: one that is given instead of drawn, for rows that are new.
        first: of the campaign's first logs; rows that are named by their unit take its secret, so
            that a user's later rows fall into the fold of the earlier ones.
        ahead: the secret that the registry drew for the round before it had a row; rows that are
            named by the ids of their decisions take it, for the service gave them these ids.
        extends: of the rows that these are said to contain; taken where no view knows them again.
    """
    shared = []
    for log in known:
        overlap = sketch.overlap(log.sketch, contents=not log.may_return, declared_fresh=fresh)
        if overlap:
            shared.append((log, overlap))
    if not shared and extends is not None:
        return extends
    if not shared:
        _require_told_apart(sketch, known, fresh=fresh)
        drawn, own = secret is None, draw_secret() if secret is None else secret
        if first is not None and first.kind == sketch.kind == "unit":
            drawn, own = first.drawn, first.secret
        elif ahead is not None and sketch.kind == "decision":
            drawn, own = True, ahead
        return Registration(
            ledger=ledger,
            secret=own,
            kind=sketch.kind,
            fractions=fractions,
            family=family,
            drawn=drawn,
            declared_fresh=fresh,
        )
    families = list(dict.fromkeys(log.registration.family for log, _ in shared))
    members = [log for log in known if log.registration.family in families]
    earliest = members[0].registration
    inherited = replace(
        earliest,
        ledger=ledger,
        fractions=fractions,
        encodings=max(log.registration.encodings for log in members),
        declared_fresh=fresh or earliest.declared_fresh,
    )
    kinds_agree = all(
        log.registration.kind == earliest.kind and overlap.same.get(earliest.kind, False)
        for log, overlap in shared
    )
    newest = shared[-1][0].registration
    if len(families) == 1 and kinds_agree and newest.fractions == fractions:
        return inherited
    log, overlap = max(shared, key=lambda pair: pair[1].share)
    if retries and len(families) == 1 and all(member.retries for member in members):
        kind = earliest.kind if earliest.kind in sketch.kinds else sketch.kind
        return replace(inherited, kind=kind, encodings=inherited.encodings + 1)
    raise ConfigError(
        "rows keep the folds that they were registered with: another unit, another order, other "
        "shares or a mixture of logs would be another throw of the dice",
        found=_difference(fractions, log, overlap, len(families)),
        cure="declare unit, decision, time and shares as they were then; or give only rows that "
        "were logged since; or declare retries when every campaign on these rows is created, which "
        "makes this another attempt, the j-th at delta 2^-j"
        + (
            "; if the rows are new although they look alike, declare it (fresh)"
            if overlap.view in (*COUNTED, DRAWN) and not log.may_return
            else ""
        ),
    )


def _require_told_apart(sketch: LogSketch, known: Sequence[KnownLog], *, fresh: bool) -> None:
    """Refuse rows of which nothing could tell that they are known, unless declared to be new."""
    if fresh:
        return
    alike = next((log for log in known if not log.may_return and sketch.may_be(log.sketch)), None)
    if alike is not None:
        raise ConfigError(
            "rows without times, of few different contents, are declared new: nothing would tell "
            "them from known rows that were sorted anew, with other ids",
            found=f"contents that occur as often as in {alike.name}, by chance or not",
            cure="name the column of times; or, if no row was registered before, declare it "
            "(fresh, --fresh): certificates then list it as an assumption",
        )


WAYS = {
    "decision": "the ids of their decisions",
    "time": "their times and actions",
    "moment": "their times and contents",
    "tick": "their times and propensities",
    "run": "their actions, in order",
    "pattern": "which actions in a row are equal, whatever they are called",
    "content": "how often contexts, actions and propensities occur",
    "shape": "how often contexts and propensities occur",
    DRAWN: "which actions and propensities the same contexts have",
    "bag": "how often actions and propensities occur, in any order",
    "hash": "their hash",
}
"""What a view of a sketch knows rows by."""


def _difference(
    fractions: tuple[float, float, float], log: KnownLog, overlap: Overlap, families: int
) -> str:
    """Which known rows these are, and in what they differ from how they were registered."""
    if families > 1:
        why = f"they are in {families} logs that were registered apart"
    elif log.registration.fractions != fractions:
        why = f"shares {fractions}, registered with {log.registration.fractions}"
    else:
        why = f"rows were named by {log.registration.kind} then, and are not named so now"
    share, by = f"about {overlap.share:.0%} of the rows", WAYS[overlap.view]
    return f"{share} are those of {log.name}, by {by}; {why}"


class CountsReads(Protocol):
    """What `certify` asks of whoever counts the verdicts: `Reads`, or a ledger."""

    retries: bool

    def begin(self, data: str) -> int:
        """Count one more read of the rows with this hash; which attempt it is, from 1."""
        ...

    def count(self, data: str) -> int:
        """How often rows of their family were read so far."""
        ...

    def delta_of_attempt(self, delta: float, attempt: int) -> float:
        """The delta at which that attempt is tested."""
        ...


class Reads:
    """A registry of logs and of the verdicts on them, in memory or in a file.

    ::

        reads = Reads("reads.json")
        folds = reads.folds(logs)
        certificate = certify(levels, folds, rules, reads)

    Args:
        path: a JSON file that outlives the process; None remembers in memory only.
        retries: whether further attempts are allowed; a file remembers the choice.
        secret: 64 hexadecimal digits, instead of drawing a secret for each log: for simulations
            that must come out the same. A certificate says that the secret was given.
    """

    def __init__(
        self, path: str | Path | None = None, *, retries: bool = False, secret: str | None = None
    ) -> None:
        self._path = None if path is None else Path(path)
        self.retries = retries
        self._secret = secret
        self._state = _State(f"reads {secrets.token_hex(8)}" if path else "reads in memory")
        self._recall()

    @overload
    def folds(
        self,
        logs: LoggedData,
        fractions: tuple[float, float, float] = FRACTIONS,
        *,
        campaign: str = "",
        fresh: bool = False,
        units: UnitRows | None = None,
    ) -> Folds: ...
    @overload
    def folds(
        self,
        logs: LogStream,
        fractions: tuple[float, float, float] = FRACTIONS,
        *,
        campaign: str = "",
        fresh: bool = False,
        units: UnitRows | None = None,
    ) -> StreamedFolds: ...
    def folds(
        self,
        logs: LoggedData | LogStream,
        fractions: tuple[float, float, float] = FRACTIONS,
        *,
        campaign: str = "",
        fresh: bool = False,
        units: UnitRows | None = None,
    ) -> Folds | StreamedFolds:
        """Register the logs, and split them: `Folds`, or `StreamedFolds` of a stream.

        Args:
            logs: rows of one round.
            fractions: shares of learn, select and certify.
            campaign: a label for the certificate.
            fresh: as for `register`.
            units: as for `three_folds`.
        """
        registration = self.register(logs, fractions, fresh=fresh)
        return three_folds(logs, registration, campaign=campaign, units=units)

    def register(
        self,
        logs: LoggedData | LogStream,
        fractions: tuple[float, float, float] = FRACTIONS,
        *,
        fresh: bool = False,
        first: Registration | None = None,
    ) -> Registration:
        """What the rows' folds hang on: drawn now, or inherited from rows that were seen before.

        Args:
            logs: rows of one round.
            fractions: shares of learn, select and certify.
            fresh: declare that no row was registered before, where only contents could tell.
            first: of the first logs of a campaign whose later round this is.
        """
        self._recall()
        for entry in self._state.logs:
            if entry.data == logs.hash and entry.registration.fractions == tuple(fractions):
                return entry.registration
        sketch = logs.sketch
        registration = placed(
            sketch,
            checked_shares(fractions),
            [entry.known(self.retries, fresh or first is not None) for entry in self._state.logs],
            ledger=self._state.ledger,
            family=f"log {len(self._state.logs) + 1}",
            retries=self.retries,
            fresh=fresh,
            secret=self._secret,
            first=first,
        )
        self._state.logs.append(_Entry(logs.hash, registration, sketch))
        self._write()
        return registration

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
        self._state.reads.append(self._family(data))
        self._write()
        return attempt

    def count(self, data: str) -> int:
        """How often rows of their family were read so far; other encodings of them count too."""
        self._recall()
        family = self._family(data)
        encodings = max(
            (
                entry.registration.encodings
                for entry in self._state.logs
                if entry.registration.family == family
            ),
            default=0,
        )
        return self._state.reads.count(family) + encodings

    def delta_of_attempt(self, delta: float, attempt: int) -> float:
        """The delta at which that attempt is tested."""
        return delta * 2.0**-attempt if self.retries else delta

    def _family(self, data: str) -> str:
        """The family of these rows; rows that another registry split are known by their hash."""
        for entry in self._state.logs:
            if entry.data == data:
                return entry.registration.family
        return data

    def _recall(self) -> None:
        """Take what is known from the file: others may have written to it since."""
        if self._path is None or not self._path.exists():
            return
        remembered, self._state = _read(self._path)
        require(
            remembered == self.retries,
            "whether retries are allowed is decided before the first verdict",
            found=f"retries={remembered} in {self._path}, retries={self.retries} now",
            cure=f"go on with retries={remembered}",
        )

    def _write(self) -> None:
        if self._path is not None:
            values = {
                "retries": self.retries,
                "ledger": self._state.ledger,
                "logs": [entry.to_json() for entry in self._state.logs],
                "reads": self._state.reads,
            }
            write_synced(self._path, json.dumps(values, indent=1).encode())


@dataclass(frozen=True)
class _Entry:
    """A registered log."""

    data: str
    registration: Registration
    sketch: LogSketch

    def known(self, retries: bool, may_return: bool) -> KnownLog:
        name = f"data {self.data[:12]}"
        return KnownLog(self.registration, self.sketch, name, retries, may_return)

    def to_json(self) -> dict[str, Any]:
        registration = codec.plain(self.registration)
        return {"data": self.data, "registration": registration, "sketch": self.sketch.to_json()}


class _State:
    """What a registry remembers."""

    def __init__(self, ledger: str) -> None:
        self.ledger = ledger
        self.logs: list[_Entry] = []
        self.reads: list[str] = []


def _read(path: Path) -> tuple[bool, _State]:
    try:
        content = json.loads(path.read_text())
        state = _State(str(content["ledger"]))
        state.reads = [str(family) for family in content["reads"]]
        for entry in content["logs"]:
            registration = codec.typed(entry["registration"], Registration, what="a registration")
            sketch = LogSketch.from_json(entry["sketch"])
            state.logs.append(_Entry(str(entry["data"]), registration, sketch))
        return bool(content["retries"]), state
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
        raise FileError(
            "the file must hold the reads of a campaign",
            found=f"{path}: {short(str(problem))}",
            cure="restore it from a copy; without it a verdict cannot be counted. A file from "
            "before version 0.2 knew rows by their hash alone: keep it, and certify new rows "
            "with another",
        ) from problem
