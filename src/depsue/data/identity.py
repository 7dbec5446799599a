"""What names a row: the identity that its fold hangs on, and a sketch that knows rows again.

**Identity.** A row is named by its unit; without units by its time, context, action and
propensity; without times, or where these repeat, by its number in the file. Never by its reward,
and never by anything that a user can choose anew without changing the rows.

**Folds.** A row's fold is a keyed hash of its identity (`keyed_hash`). The key is a secret that a
ledger draws when it first sees the rows, so nobody can try splits until one pleases.

**Sketch.** A ledger must know rows again when they come back with another r_max, catalogue, unit,
feature or column, sorted into a larger file or cut to a smaller one. `LogSketch` keeps a small
sample of keys of each log, in three views: (time, action), 32 actions in a row, and (context,
action, propensity). None has the reward. A view speaks only where its keys hardly repeat. Where
all of them repeat, because contexts are few and times coarse or missing, one more key tells whether
two logs have the same actions with the same propensities equally often: the same rows in another
order.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from depsue.data.checks import IntArray
from depsue.data.folds import checked_fractions, keys_of_ids
from depsue.data.keys import mix64, row_keys

if TYPE_CHECKING:
    from depsue.data.logs import LoggedData

Keys: TypeAlias = "np.ndarray[Any, np.dtype[np.uint64]]"
IdentityKind: TypeAlias = Literal["unit", "time", "row"]

SAMPLE = 1024
"""Distinct keys of a view that a sketch keeps: those with the smallest hashes."""
RUN = 32
"""Actions in a row that make a key."""
DIGITS = 6
"""Propensities are compared by so many digits."""
REPEATS = 0.5
"""A view whose keys repeat more often than this says nothing."""
CONTENT_REPEATS, CONTENT_SHARE = 0.1, 0.5
"""Contexts come back in fresh rows, so this view needs rarer repeats, and more rows in common."""
FEWEST, LEAST, CHANCE = 3, 0.01, 5.0
"""Two samples must have so many keys in common, and more than this share: as much again and again
as keys repeat by chance within a log."""
BAG = "bag"
"""The view of a whole log, whatever its order."""
COINCIDENCE = 30.0
"""Two logs agree in all counts by chance with a probability below exp of minus this, or the view of
the whole is left out."""
TIME_REPEATS = 0.01
"""Where time, context, action and propensity repeat more often than this, rows are numbered."""


def keyed_hash(keys: Keys, secret: str) -> Keys:
    """(n,) SipHash-2-4 of 64-bit keys under a secret of at least 32 hexadecimal digits.

    A pseudo-random function (Aumasson & Bernstein, 2012): who does not have the secret cannot tell
    its values from chance.
    """
    k0, k1 = np.frombuffer(bytes.fromhex(secret)[:16], dtype="<u8")
    message = np.asarray(keys, dtype=np.uint64)
    v0 = np.full(message.shape, k0 ^ np.uint64(0x736F6D6570736575))
    v1 = np.full(message.shape, k1 ^ np.uint64(0x646F72616E646F6D))
    v2 = np.full(message.shape, k0 ^ np.uint64(0x6C7967656E657261))
    v3 = np.full(message.shape, k1 ^ np.uint64(0x7465646279746573))
    for word in (message, np.full(message.shape, np.uint64(8 << 56))):
        v3 = v3 ^ word
        for _ in range(2):
            v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
        v0 = v0 ^ word
    v2 = v2 ^ np.uint64(0xFF)
    for _ in range(4):
        v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
    hashed: Keys = v0 ^ v1 ^ v2 ^ v3
    return hashed


def keyed_folds(identities: Keys, fractions: tuple[float, ...], secret: str) -> IntArray:
    """(n,) the fold of each identity, 0 .. len(fractions) - 1."""
    shares = checked_fractions(fractions)
    uniform = keyed_hash(identities, secret).astype(np.float64) / 2.0**64
    folds: IntArray = np.searchsorted(np.cumsum(shares)[:-1], uniform, side="right")
    return folds


def identities(logs: LoggedData, kind: IdentityKind, start: int = 0) -> Keys:
    """(n,) what names each row.

    Args:
        logs: n rows, perhaps a partition of more.
        kind: by what.
        start: the number of the first row among all.
    """
    if kind == "unit" and logs.unit is not None and logs.units is not None:
        return mix64(keys_of_ids(logs.units))[logs.unit]
    if kind == "time" and logs.time is not None:
        return mix64(_times(logs) ^ _contents(logs))
    return mix64(np.arange(start, start + len(logs), dtype=np.uint64))


@dataclass(frozen=True)
class SketchView:
    """A sample of one kind of key: distinct ones with the smallest hashes, in order.

    Args:
        keys: (k,) the sample.
        repeats: share of the sampled rows whose key had been seen before.
        twice: share of the sampled keys that more than one row has.
        names: by kind of identity, (k,) that of the first row of each key.
    """

    keys: Keys
    repeats: float
    twice: float
    names: Mapping[str, Keys]

    @property
    def reach(self) -> int:
        """The largest hash up to which the sample is complete."""
        full = len(self.keys) >= SAMPLE
        return int(self.keys[-1]) if full else 2**64 - 1

    def common(self, other: SketchView) -> tuple[Keys, float]:
        """Keys in both samples, and which share of the smaller log they stand for."""
        reach = np.uint64(min(self.reach, other.reach))
        mine, theirs = self.keys[self.keys <= reach], other.keys[other.keys <= reach]
        common = np.intersect1d(mine, theirs, assume_unique=True)
        return common, len(common) / max(min(len(mine), len(theirs)), 1)

    def names_of(self, keys: Keys, kind: str) -> Keys:
        """(m,) the identities of some of its keys."""
        return self.names[kind][np.searchsorted(self.keys, keys)]


@dataclass(frozen=True)
class LogSketch:
    """What a ledger keeps of a log to know its rows again: no row, no reward, no id of a user.

    Args:
        rows: how many.
        kind: by what rows are named, unless the rows were named otherwise before.
        views: by name: "time", "run", "content", "bag".
    """

    rows: int
    kind: IdentityKind
    views: Mapping[str, SketchView]

    @classmethod
    def of(cls, logs: LoggedData) -> LogSketch:
        """Of rows in memory."""
        builder = SketchBuilder()
        builder.add(logs)
        return builder.sketch()

    @classmethod
    def of_hash(cls, data: str, rows: int) -> LogSketch:
        """Of rows that are known by their hash alone: the same hash is the same rows."""
        key = np.array([int(data[:16], 16)], dtype=np.uint64)
        return cls(rows, "row", {"hash": SketchView(key, 0.0, 0.0, {"row": key})})

    @property
    def kinds(self) -> frozenset[str]:
        """By what its rows can be named."""
        return frozenset(kind for view in self.views.values() for kind in view.names)

    def overlap(self, other: LogSketch, *, contents: bool = True) -> Overlap:
        """Which rows two logs share, as far as their samples tell.

        Args:
            other: another log.
            contents: whether rows without a time that would tell them apart may be taken for the
                same by their contents.
        """
        common = {
            name: view.common(other.views[name])
            for name, view in self.views.items()
            if name in other.views and self._speaks(name) and other._speaks(name)
        }
        timed = "time" in common
        shared = [
            (share, name, keys)
            for name, (keys, share) in common.items()
            if (
                (name == "content" and contents and not timed and share >= CONTENT_SHARE)
                or (name in ("time", "run") and self._beyond_chance(other, name, keys, share))
                or (name == "hash" and len(keys))
            )
        ]
        if not shared and BAG in common and len(common[BAG][0]):
            return Overlap(1.0, BAG, {})  # the same rows in another order, so named otherwise
        if not shared:
            return Overlap(0.0, "", {})
        share, name, keys = max(shared, key=lambda each: each[0])
        mine, theirs = self.views[name], other.views[name]
        same = {
            kind: bool((mine.names_of(keys, kind) == theirs.names_of(keys, kind)).mean() > 0.99)
            for kind in mine.names.keys() & theirs.names.keys()
        }
        return Overlap(share, name, same)

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "rows": self.rows,
            "kind": self.kind,
            "views": {
                name: {
                    "keys": _text(view.keys),
                    "repeats": view.repeats,
                    "twice": view.twice,
                    "names": {kind: _text(keys) for kind, keys in view.names.items()},
                }
                for name, view in self.views.items()
            },
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> LogSketch:
        """What `to_json` wrote."""
        views = {
            name: SketchView(
                _keys(view["keys"]),
                float(view["repeats"]),
                float(view["twice"]),
                {kind: _keys(text) for kind, text in view["names"].items()},
            )
            for name, view in values["views"].items()
        }
        return cls(int(values["rows"]), values["kind"], views)

    def _beyond_chance(self, other: LogSketch, name: str, keys: Keys, share: float) -> bool:
        twice = max(self.views[name].twice, other.views[name].twice)
        return len(keys) >= FEWEST and share >= LEAST + CHANCE * twice

    def _speaks(self, name: str) -> bool:
        most = CONTENT_REPEATS if name == "content" else REPEATS
        return self.views[name].repeats <= most


@dataclass(frozen=True)
class Overlap:
    """What two logs have in common.

    Args:
        share: of the rows of the smaller one; 0 if nothing.
        view: what showed it; "" if nothing did.
        same: by kind of identity that both have: whether shared rows are named alike.
    """

    share: float
    view: str
    same: Mapping[str, bool]

    def __bool__(self) -> bool:
        return self.share > 0


class SketchBuilder:
    """Builds a sketch from the partitions of a log, in their order."""

    def __init__(self) -> None:
        self._rows = 0
        self._samples: dict[str, _Sample] = {}
        self._tail: Keys = np.zeros(0, dtype=np.uint64)
        self._times, self._pairs = _Sample(), _Sample()
        self._bag = 0  # the sum of all keys, modulo 2^64: no order

    def add(self, logs: LoggedData) -> None:
        """The next partition."""
        kinds: list[IdentityKind] = ["row"]
        kinds += ["unit"] if logs.unit is not None else []
        kinds += ["time"] if logs.time is not None else []
        names = {str(kind): identities(logs, kind, self._rows) for kind in kinds}
        actions = mix64(keys_of_ids(logs.catalogue.ids))[logs.action]
        self._see("content", _contents(logs, DIGITS), names)
        pairs = mix64(actions ^ _propensities(logs, DIGITS))
        self._pairs.add(pairs, {})
        self._bag = (self._bag + int(mix64(pairs).sum(dtype=np.uint64))) % 2**64
        if logs.time is not None:
            self._see("time", mix64(_times(logs) ^ actions), names)
            self._times.add(names["time"], {})
        row = np.concatenate([self._tail, actions])
        if len(row) >= RUN:
            runs = _runs(row)
            self._see("run", runs, {kind: keys[-len(runs) :] for kind, keys in names.items()})
        self._tail = row[-(RUN - 1) :]
        self._rows += len(logs)

    def sketch(self) -> LogSketch:
        """Of all partitions so far."""
        views = {name: sample.view() for name, sample in self._samples.items()}
        if self._pairs.surprise > COINCIDENCE:
            whole = mix64(np.array([self._bag ^ self._rows], dtype=np.uint64))
            views[BAG] = SketchView(whole, 0.0, 0.0, {})
        kind: IdentityKind = "row"
        if any("unit" in view.names for view in views.values()):
            kind = "unit"
        elif "time" in views and self._times.repeats <= TIME_REPEATS:
            kind = "time"
        return LogSketch(self._rows, kind, views)

    def _see(self, name: str, keys: Keys, names: Mapping[str, Keys]) -> None:
        self._samples.setdefault(name, _Sample()).add(keys, names)


@dataclass(eq=False)
class _Sample:
    """The distinct keys with the smallest hashes so far, with how many rows have one of them."""

    keys: Keys = field(default_factory=lambda: np.zeros(0, dtype=np.uint64))
    counts: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    names: dict[str, Keys] = field(default_factory=dict)

    def add(self, keys: Keys, names: Mapping[str, Keys]) -> None:
        """More rows: their keys, and what names them."""
        hashed = mix64(keys)
        if len(self.keys) >= SAMPLE:  # what lies beyond the sample stays out of it
            inside = hashed <= self.keys[-1]
            hashed, names = hashed[inside], {kind: all[inside] for kind, all in names.items()}
        every = np.concatenate([self.keys, hashed])
        weight = np.concatenate([self.counts, np.ones(len(hashed), dtype=np.int64)])
        distinct, first, which = np.unique(every, return_index=True, return_inverse=True)
        counts = np.bincount(which.reshape(-1), weight).astype(np.int64)
        self.names = {
            kind: np.concatenate([self.names.get(kind, np.zeros(0, dtype=np.uint64)), more])[first][
                :SAMPLE
            ]
            for kind, more in names.items()
        }
        self.keys, self.counts = distinct[:SAMPLE], counts[:SAMPLE]

    @property
    def repeats(self) -> float:
        """Share of the sampled rows whose key had been seen before."""
        rows = int(self.counts.sum())
        return 1 - len(self.keys) / rows if rows else 0.0

    @property
    def surprise(self) -> float:
        """How unlikely it is that another log has the same counts: minus the log of its chance.

        A count of c rows is hit by chance about once in sqrt(2 pi c) times; the last is what the
        others leave.
        """
        logs = 0.5 * np.log(2 * np.pi * np.maximum(self.counts, 1))
        return float(logs.sum() - logs.max()) if len(logs) else 0.0

    def view(self) -> SketchView:
        """As it is now."""
        twice = float((self.counts > 1).mean()) if len(self.counts) else 0.0
        return SketchView(self.keys, self.repeats, twice, dict(self.names))


def _contents(logs: LoggedData, digits: int | None = None) -> Keys:
    """(n,) keys of context, action id and propensity; the last to some digits, or to the bit."""
    contexts = row_keys(logs.contexts + np.float32(0))[logs.context]  # -0 is 0
    actions = mix64(keys_of_ids(logs.catalogue.ids))[logs.action]
    return mix64(mix64(contexts ^ actions) ^ _propensities(logs, digits))


def _propensities(logs: LoggedData, digits: int | None) -> Keys:
    """(n,) the bits of the propensities, rounded to some digits."""
    p = logs.propensity
    if digits is not None:
        size = 10.0 ** (np.floor(np.log10(p)) - digits + 1)
        p = np.round(p / size) * size
    return np.asarray(p, dtype=np.float64).view(np.uint64)


def _times(logs: LoggedData) -> Keys:
    time = np.asarray(logs.time)
    plain = time.astype("<M8[us]").astype(np.int64) if time.dtype.kind == "M" else time
    return mix64(np.asarray(plain, dtype=np.float64).view(np.uint64))


def _runs(keys: Keys) -> Keys:
    """(n - RUN + 1,) keys of every RUN keys in a row, in their order."""
    n = len(keys) - RUN + 1
    mixed = np.zeros(n, dtype=np.uint64)
    for place in range(RUN):
        mixed = mix64(mixed ^ keys[place : place + n])
    return mixed


def _sip_round(v0: Keys, v1: Keys, v2: Keys, v3: Keys) -> tuple[Keys, Keys, Keys, Keys]:
    v0 = v0 + v1
    v1 = _rotated(v1, 13) ^ v0
    v0 = _rotated(v0, 32)
    v2 = v2 + v3
    v3 = _rotated(v3, 16) ^ v2
    v0 = v0 + v3
    v3 = _rotated(v3, 21) ^ v0
    v2 = v2 + v1
    v1 = _rotated(v1, 17) ^ v2
    v2 = _rotated(v2, 32)
    return v0, v1, v2, v3


def _rotated(values: Keys, bits: int) -> Keys:
    return (values << np.uint64(bits)) | (values >> np.uint64(64 - bits))


def _text(keys: Keys) -> str:
    return base64.b64encode(keys.astype("<u8").tobytes()).decode("ascii")


def _keys(text: str) -> Keys:
    return np.frombuffer(base64.b64decode(text), dtype="<u8").astype(np.uint64)
