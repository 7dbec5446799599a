"""What names a row: the identity that its fold hangs on, and a sketch that knows rows again.

**Identity.** A row is named by its unit; without units by the id of its decision; without ids by
its time, context, action and propensity; without times, or where these repeat, by its number in the
file (as it was before rows were erased). Never by its reward. Ids can be made anew without changing
the rows: such rows are known by the sketch as far as contexts, actions and propensities tell.

**Folds.** A row's fold is a keyed hash of its identity (`keyed_hash`). The key is a secret that a
ledger draws when it first sees the rows, so nobody can try splits until one pleases.

**Sketch.** A ledger must know rows again when they come back with another r_max, catalogue, unit,
feature or column, sorted into a larger file or cut to a smaller one. `LogSketch` keeps a small
sample of keys of each log, in several views, none of which has the reward:

- `ORDERED`: the id of the decision with the action; the time with the action, with all else, or
  with the propensity; 32 actions in a row, by their ids, and by which of them are equal, which no
  renaming changes. Two logs share rows if they share more of these keys than chance explains.
  Chance is how often a row has a partner with its key within a log, and how often the part beside
  the time or the id agrees: ids may count from 0 in every log.
- `COUNTED`: how often each (context, action, propensity) and each (context, propensity) occurs.
  Counts of two independent logs differ as two Poisson counts do. Counts of the same rows, sorted,
  shifted in time or thinned, differ far less. Where contexts are expected to come back (a later
  round meets the same users) counts are held against those of fresh draws in the same contexts.
- `DRAWN`: what was drawn in each context. Where a context has one row in each of two logs, fresh
  draws agree in action and propensity with that propensity; the same rows agree always, whatever
  their order and ids, and however few of them came back.
- One key of the whole log, whatever its order, where there are too few cells to count.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from depsue.data.checks import FloatArray, IntArray
from depsue.data.folds import checked_fractions, keys_of_ids
from depsue.data.keys import Keys, keyed_hash, mix64, row_keys

if TYPE_CHECKING:
    from depsue.data.logs import LoggedData

IdentityKind: TypeAlias = Literal["unit", "decision", "time", "row"]

SAMPLE = 512
"""Distinct keys of a view that a sketch keeps: those with the smallest hashes."""
SPARSE = 16
"""Where rows are so many times as many as a sample holds, most of them are passed over unsorted."""
RUN = 32
"""Actions in a row that make a key."""
DIGITS = 6
"""Propensities are compared by so many digits."""
ORDERED = ("decision", "time", "moment", "tick", "run", "pattern")
COUNTED = ("content", "shape")
DRAWN = "drawn"
TIMED = ("time", "moment", "tick")
FEWEST, LEAST, ERRORS, MOST_CHANCE = 3, 0.02, 5.0, 0.9
"""Of ordered keys two samples must have so many in common, and a share that exceeds chance by this
much and by so many standard errors. Where chance explains more than that, a view is silent."""
RARE, MOST_ROWS, MOST_ROWS_TIMED = 0.1, 0.5, 0.95
"""Where contents are rarer than this, so large a share of the smaller log in common is enough;
larger where times say that the rows are others, for contexts come back."""
ALIKE, ALIKE_TIMED = 0.4, 0.2
"""How much counts of two logs may differ, over what independent ones do, and count as the same
rows: half of them at least, or two thirds where times say that they are others."""
REPLAYED = 0.5
"""How much counts of two logs may differ, over what fresh draws in the very same contexts do, and
count as the same rows where contexts are expected to come back: two fifths of them at least."""
CONTEXT_BITS, CHANCE_BITS = 40, 8
"""Of a key of `DRAWN`: its first bits are of the context, the next ones its propensity."""
BAG = "bag"
"""The view of a whole log, whatever its order."""
COINCIDENCE = 30.0
"""Two logs agree in all counts by chance with a probability below exp of minus this, or the view of
the whole is left out."""
TIME_REPEATS = 0.01
"""Where time, context, action and propensity repeat more often than this, rows are numbered."""


def keyed_folds(identities: Keys, fractions: tuple[float, ...], secret: str) -> IntArray:
    """(n,) the fold of each identity, 0 .. len(fractions) - 1."""
    shares = checked_fractions(fractions)
    uniform = keyed_hash(identities, secret).astype(np.float64) / 2.0**64
    folds: IntArray = np.searchsorted(np.cumsum(shares)[:-1], uniform, side="right")
    return folds


def id_identities(keys: Keys) -> Keys:
    """(v,) what names the rows of units, or of decisions, by the keys of their ids."""
    return mix64(keys)


def identities(logs: LoggedData, kind: IdentityKind, start: int = 0) -> Keys:
    """(n,) what names each row.

    Args:
        logs: n rows, perhaps a partition of more.
        kind: by what.
        start: the number of the first row among all.
    """
    if kind == "unit" and logs.unit is not None and logs.units is not None:
        return id_identities(keys_of_ids(logs.units))[logs.unit]
    if kind == "decision" and logs.decision is not None:
        return id_identities(logs.decision)
    if kind == "time" and logs.time is not None:
        return mix64(_times(logs) ^ _contents(logs))
    return mix64(start + logs.numbers.astype(np.uint64))


@dataclass(frozen=True)
class SketchView:
    """A sample of one kind of key: distinct ones with the smallest hashes, in order.

    Args:
        keys: (k,) the sample.
        counts: (k,) rows with each of them.
        names: by kind of identity, (k,) that of the first row of each key.
        agreement: how often two rows agree in the part of the key beside the time; of contents, how
            often two rows of one context have the same action.
    """

    keys: Keys
    counts: IntArray
    names: Mapping[str, Keys]
    agreement: float = 0.0

    @property
    def chance(self) -> float:
        """How often a row of another log has its key here by chance: as often as one of its own."""
        rows = int(self.counts.sum())
        paired = int(self.counts[self.counts > 1].sum())
        return max(paired / rows if rows else 0.0, self.agreement)

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

    def __len__(self) -> int:
        return len(self.keys)

    def counts_of(self, keys: Keys) -> FloatArray:
        """(m,) how many rows have each key; 0 for those that are not in the sample."""
        place = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[place] == keys, self.counts[place], 0).astype(np.float64)

    def names_of(self, keys: Keys, kind: str) -> Keys:
        """(m,) the identities of some of its keys."""
        return self.names[kind][np.searchsorted(self.keys, keys)]


@dataclass(frozen=True)
class LogSketch:
    """What a ledger keeps of a log to know its rows again: no row, no reward, no id of a user.

    Args:
        rows: how many.
        kind: by what rows are named, unless the rows were named otherwise before.
        views: by name: those of `ORDERED` and `COUNTED` that the rows allow, and "bag".
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
        return cls(rows, "row", {"hash": SketchView(key, np.ones(1, dtype=np.int64), {"row": key})})

    @property
    def kinds(self) -> frozenset[str]:
        """By what its rows can be named."""
        return frozenset(kind for view in self.views.values() for kind in view.names)

    def overlap(
        self, other: LogSketch, *, contents: bool = True, declared_fresh: bool = False
    ) -> Overlap:
        """Which rows two logs share, as far as their samples tell.

        Args:
            other: another log.
            contents: whether rows without a time that would tell them apart may be taken for the
                same by their contents. If not, contexts are expected to come back, and contents
                tell only where they agree more than fresh draws in the same contexts do.
            declared_fresh: whether not even that is asked, for the user declared the rows new.
        """
        both = [name for name in self.views if name in other.views]
        shared = list[tuple[float, str, Keys]]()
        timed = False
        for name in both:
            mine, theirs = self.views[name], other.views[name]
            keys, share = mine.common(theirs)
            if name in ORDERED:
                chance = max(mine.chance, theirs.chance)
                timed = timed or (name in TIMED and chance <= MOST_CHANCE)
                error = math.sqrt(chance * (1 - chance) / max(min(len(mine), len(theirs)), 1))
                beyond = chance + max(LEAST, ERRORS * error)
                if len(keys) >= FEWEST and chance <= MOST_CHANCE and share >= beyond:
                    shared.append((share, name, keys))
            elif name == "hash" and len(keys):
                shared.append((share, name, keys))
        if not shared and contents:
            most = ALIKE_TIMED if timed else ALIKE
            for name in (name for name in both if name in COUNTED):
                mine, theirs = self.views[name], other.views[name]
                keys, share = mine.common(theirs)
                rare = name == "content" and max(mine.chance, theirs.chance) <= RARE
                enough = rare and share >= (MOST_ROWS_TIMED if timed else MOST_ROWS)
                if enough or self._alike(other, name, most):
                    shared.append((max(share, LEAST), name, keys))
        if not shared and not contents and not declared_fresh and "content" in both:
            mine, theirs = self.views["content"], other.views["content"]
            fresh = 1 - max(mine.agreement, theirs.agreement)
            if fresh >= 1 - MOST_CHANCE and self._alike(other, "content", REPLAYED, fresh):
                keys, share = mine.common(theirs)
                shared.append((max(share, LEAST), "content", keys))
        drawn = DRAWN in both and not declared_fresh and not (contents and timed)
        if not shared and drawn and self._drawn_alike(other):
            keys, share = self.views[DRAWN].common(other.views[DRAWN])
            shared.append((max(share, LEAST), DRAWN, keys))
        if not shared and BAG in both and len(self.views[BAG].common(other.views[BAG])[0]):
            return Overlap(1.0, BAG, {})  # the same rows in another order, so named otherwise
        if not shared:
            return Overlap(0.0, "", {})
        # those that tell how rows were named first
        share, name, keys = max(shared, key=lambda each: (bool(self.views[each[1]].names), each[0]))
        mine, theirs = self.views[name], other.views[name]
        same = {
            kind: bool((mine.names_of(keys, kind) == theirs.names_of(keys, kind)).mean() > 0.99)
            for kind in mine.names.keys() & theirs.names.keys()
        }
        return Overlap(share, name, same)

    def may_be(self, other: LogSketch) -> bool:
        """Whether nothing would tell if these were rows of another log, sorted anew and thinned.

        That is so where times are not in both, and contents are so few that counts of half of the
        rows could agree by chance: three banners without a context, say. Ids can be made anew.

        Args:
            other: a log that these do not overlap with, as far as samples tell.
        """
        both = [name for name in self.views if name in other.views]
        named = self.kind == other.kind == "unit" or any(
            max(self.views[name].chance, other.views[name].chance) <= MOST_CHANCE
            for name in both
            if name in TIMED
        )
        if named or "content" not in both:
            return False
        free, differ, _ = self._differ(other, "content")
        if free / 2 * (ALIKE - 1 - math.log(ALIKE)) >= COINCIDENCE:
            return False  # half of them would have been known again
        return differ <= 1 + ERRORS * math.sqrt(2 / max(free, 1))

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "rows": self.rows,
            "kind": self.kind,
            "views": {
                name: {
                    "keys": _text(view.keys),
                    "counts": view.counts.tolist(),
                    "agreement": view.agreement,
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
                np.array(view["counts"], dtype=np.int64),
                {kind: _keys(text) for kind, text in view["names"].items()},
                float(view["agreement"]),
            )
            for name, view in values["views"].items()
        }
        return cls(int(values["rows"]), values["kind"], views)

    def _alike(self, other: LogSketch, name: str, most: float, fresh: float = 1.0) -> bool:
        """Whether counts agree more than those of independent logs can, by far.

        Args:
            other: another log.
            name: which view.
            most: how much they may differ, over what independent logs do.
            fresh: how much those do: 1 if contexts and actions are drawn anew. If only actions
                are, a count of m rows in a context where the action has probability p varies by
                m p (1 - p): as much as 1 - p, over the rows.

        With a and b counts of a cell and s the ratio of rows, (s a - b)^2 is s^2 a + b on average
        if both are Poisson. A log thinned to a share f of its rows differs (1 - f) / (1 + f) as
        much from the whole.
        """
        free, differ, evenly = self._differ(other, name)
        differ, evenly = differ / fresh, evenly / fresh
        # independent counts differ so little with a probability of exp of minus this (Chernoff)
        unlikely = free / 2 * (differ - 1 - math.log(max(differ, 1e-300)))
        return differ <= most and evenly <= (1 + most) / 2 and unlikely >= COINCIDENCE

    def _differ(self, other: LogSketch, name: str) -> tuple[int, float, float]:
        """How much counts of a view differ over what those of independent logs do.

        Returns degrees of freedom (one cell has none: its count is that of the rows), how much
        over all rows, and how much in a cell, on average: of the first a few large cells decide.
        """
        mine, theirs = self.views[name], other.views[name]
        reach = np.uint64(min(mine.reach, theirs.reach))
        cells = np.union1d(mine.keys[mine.keys <= reach], theirs.keys[theirs.keys <= reach])
        a, b = mine.counts_of(cells), theirs.counts_of(cells)
        ratio = other.rows / self.rows
        squares, expected = (ratio * a - b) ** 2, ratio**2 * a + b
        differ = float(squares.sum() / max(expected.sum(), 1e-300))
        return max(len(cells) - 1, 0), differ, float((squares / expected).mean())

    def _drawn_alike(self, other: LogSketch) -> bool:
        """Whether contexts with one row in each log agree more than fresh draws in them can.

        Given the rows of one log, a fresh row in the same context agrees with a probability of its
        propensity. So many agree by chance with one of exp of minus `COINCIDENCE` (Chernoff).
        """
        mine, theirs = self.views[DRAWN], other.views[DRAWN]
        complete = np.uint64(min(mine.reach, theirs.reach) >> (64 - CONTEXT_BITS))
        contexts, own = _alone(mine, complete)
        others, their = _alone(theirs, complete)
        _, at, there = np.intersect1d(contexts, others, assume_unique=True, return_indices=True)
        if len(at) < FEWEST:
            return False
        agree = float((own[at] == their[there]).mean())
        chance = max(_chances(own[at]), _chances(their[there]))
        if agree <= chance:
            return False
        surprise = agree * math.log(agree / chance)
        surprise += (1 - agree) * math.log((1 - agree) / (1 - chance)) if agree < 1 else 0.0
        return len(at) * surprise >= COINCIDENCE


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
        self._samples = {DRAWN: _Sample(mixed=True)}
        self._tail: Keys = np.zeros(0, dtype=np.uint64)
        self._times, self._pairs = _Sample(), _Sample()
        self._parts = {name: _Sample() for name in ("time", "tick")}  # beside the time or the id
        self._propensities = 0.0  # their sum
        self._bag = 0  # the sum of all keys, modulo 2^64: no order

    def add(self, logs: LoggedData) -> None:
        """The next partition."""
        kinds: list[IdentityKind] = ["row"]
        kinds += ["unit"] if logs.unit is not None else []
        kinds += ["decision"] if logs.decision is not None else []
        kinds += ["time"] if logs.time is not None else []
        names = {str(kind): identities(logs, kind, self._rows) for kind in kinds}
        actions = mix64(keys_of_ids(logs.catalogue.ids))[logs.action]
        content, propensity = _contents(logs, DIGITS), mix64(_propensities(logs, DIGITS))
        self._see("content", content, names)
        self._see(DRAWN, _drawn(logs, content), names)
        self._propensities += float(logs.propensity.sum())
        self._see("shape", mix64(_contexts(logs) ^ propensity), {})
        pairs = mix64(actions ^ propensity)
        self._pairs.add(pairs, {})
        self._parts["time"].add(actions, {})
        self._parts["tick"].add(propensity, {})
        self._bag = (self._bag + int(mix64(pairs).sum(dtype=np.uint64))) % 2**64
        if logs.decision is not None:
            self._see("decision", mix64(mix64(logs.decision) ^ actions), names)
        if logs.time is not None:
            times = _times(logs)
            self._see("time", mix64(times ^ actions), names)
            self._see("moment", mix64(times ^ content), names)
            self._see("tick", mix64(times ^ propensity), {})
            self._times.add(names["time"], {})
        row = np.concatenate([self._tail, actions])
        if len(row) >= RUN:
            runs = _runs(row)
            self._see("run", runs, {kind: keys[-len(runs) :] for kind, keys in names.items()})
            self._see("pattern", _patterns(row), {})
        self._tail = row[-(RUN - 1) :]
        self._rows += len(logs)

    def sketch(self) -> LogSketch:
        """Of all partitions so far."""
        beside_id = self._parts["time"]  # the action
        parts = {**self._parts, "decision": beside_id, "moment": self._samples["content"]}
        agreements = {name: part.agreement for name, part in parts.items()}
        agreements["content"] = round(self._propensities / self._rows, DIGITS)
        views = {
            name: sample.view(agreements.get(name, 0.0)) for name, sample in self._samples.items()
        }
        if self._pairs.surprise > COINCIDENCE:
            whole = mix64(np.array([self._bag ^ self._rows], dtype=np.uint64))
            views[BAG] = SketchView(whole, np.ones(1, dtype=np.int64), {})
        kind: IdentityKind = "row"
        if any("unit" in view.names for view in views.values()):
            kind = "unit"
        elif "decision" in views:
            kind = "decision"
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
    rows: int = 0
    mixed: bool = False

    def add(self, keys: Keys, names: Mapping[str, Keys]) -> None:
        """More rows: their keys, spread evenly already or not, and what names them."""
        self.rows += len(keys)
        hashed = keys if self.mixed else mix64(keys)
        if len(self.keys) < SAMPLE and len(hashed) > SPARSE * SAMPLE:
            # most likely the smallest alone fill the sample, and the rest need not be sorted
            near = hashed[hashed <= np.uint64(2**64 * SPARSE // 2 * SAMPLE // len(hashed))]
            smallest = np.unique(near)
            most = smallest[SAMPLE - 1] if len(smallest) >= SAMPLE else np.uint64(2**64 - 1)
        else:
            most = self.keys[-1] if len(self.keys) >= SAMPLE else np.uint64(2**64 - 1)
        inside = np.flatnonzero(hashed <= most)  # what lies beyond the sample stays out of it
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

    @property
    def agreement(self) -> float:
        """How often two rows have the same key."""
        rows = int(self.counts.sum())
        return float((self.counts.astype(float) ** 2).sum() / rows / self.rows) if rows else 0.0

    def view(self, agreement: float) -> SketchView:
        """As it is now."""
        return SketchView(self.keys, self.counts, dict(self.names), agreement)


def _contents(logs: LoggedData, digits: int | None = None) -> Keys:
    """(n,) keys of context, action id and propensity; the last to some digits, or to the bit."""
    contexts = _contexts(logs)
    actions = mix64(keys_of_ids(logs.catalogue.ids))[logs.action]
    return mix64(mix64(contexts ^ actions) ^ _propensities(logs, digits))


def _drawn(logs: LoggedData, contents: Keys) -> Keys:
    """(n,) keys that sort by context: its hash, the propensity rounded up, the content's hash."""
    contexts = mix64(_contexts(logs)) >> np.uint64(64 - CONTEXT_BITS)
    most = 2**CHANCE_BITS - 1
    chances = np.ceil(np.round(logs.propensity * most, 3)).clip(1, most).astype(np.uint64)
    rest = np.uint64(64 - CONTEXT_BITS - CHANCE_BITS)
    keys = contexts << np.uint64(CHANCE_BITS) | chances
    drawn: Keys = keys << rest | mix64(contents) >> np.uint64(64) - rest
    return drawn


def _chances(drawn: Keys) -> float:
    """The mean propensity of keys of `DRAWN`."""
    most = 2**CHANCE_BITS - 1
    chances: Keys = drawn >> np.uint64(64 - CONTEXT_BITS - CHANCE_BITS) & np.uint64(most)
    return float(chances.astype(np.float64).mean() / most)


def _alone(view: SketchView, complete: np.uint64) -> tuple[Keys, Keys]:
    """Contexts below a limit that have one row each, and the keys of these rows."""
    of = view.keys >> np.uint64(64 - CONTEXT_BITS)
    contexts, first, which = np.unique(of, return_index=True, return_inverse=True)
    alone = (np.bincount(which, view.counts) == 1) & (contexts < complete)
    return contexts[alone], view.keys[first[alone]]


def _contexts(logs: LoggedData) -> Keys:
    return row_keys(logs.contexts + np.float32(0))[logs.context]  # -0 is 0


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


def _patterns(keys: Keys) -> Keys:
    """(n - RUN + 1,) keys of which of every RUN in a row are equal: no renaming changes them."""
    order = np.argsort(keys, kind="stable")
    gap = np.full(len(keys), len(keys), dtype=np.int64)
    equal = keys[order[1:]] == keys[order[:-1]]
    gap[order[1:][equal]] = (order[1:] - order[:-1])[equal]  # back to the same key before
    n = len(keys) - RUN + 1
    mixed = np.zeros(n, dtype=np.uint64)
    for place in range(RUN):
        back = gap[place : place + n]
        mixed = mix64(mixed ^ np.where(back <= place, back, 0).astype(np.uint64))
    return mixed


def _text(keys: Keys) -> str:
    return base64.b64encode(keys.astype("<u8").tobytes()).decode("ascii")


def _keys(text: str) -> Keys:
    return np.frombuffer(base64.b64decode(text), dtype="<u8").astype(np.uint64)
