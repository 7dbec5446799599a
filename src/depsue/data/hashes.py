"""Content hashes: the same rows have the same hash, however they were stored or built."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

from depsue.data.keys import compacted

if TYPE_CHECKING:
    from depsue.data.catalogue import ActionCatalogue
    from depsue.data.checks import Array
    from depsue.data.logs import LoggedData


class Content:
    """SHA-256 over named arrays; names, types and shapes count."""

    def __init__(self, kind: str) -> None:
        self._digest = hashlib.sha256(kind.encode())

    def add(self, name: str, array: Array, kind: str) -> None:
        """Absorb `array` as the little-endian type `kind`."""
        self._digest.update(f"\n{name} {kind} {array.shape}\n".encode())
        self._digest.update(array.astype(kind).tobytes())

    def add_ids(self, name: str, ids: Array) -> None:
        """Absorb integer ids, or strings with their lengths."""
        if ids.dtype.kind == "i":
            self.add(name, ids, "<i8")
            return
        texts = [str(one).encode("utf-8", "surrogatepass") for one in ids]
        self.add(name, np.array([len(text) for text in texts]), "<i8")
        self._digest.update(b"".join(texts))

    def hex(self) -> str:
        """The hash so far."""
        return self._digest.hexdigest()


def catalogue_hash(catalogue: ActionCatalogue) -> str:
    """SHA-256 over ids, their order, features, and which actions are novel."""
    content = Content("depsue catalogue 1")
    content.add_ids("id", catalogue.ids)
    content.add("novel", catalogue.novel, "|u1")
    if catalogue.features is not None:
        content.add("features", catalogue.features, "<f4")
    return content.hex()


def logs_hash(logs: LoggedData) -> str:
    """SHA-256 over the catalogue, r_max and every column, the order of rows included.

    Contexts and units enter in order of first appearance, so it does not matter how they
    are numbered.
    """
    content = Content(f"depsue logs 1 {logs.catalogue.hash} {logs.r_max!r}")
    context, used = compacted(logs.context, len(logs.contexts))
    content.add("contexts", logs.contexts[used], "<f4")
    content.add("context", context, "<i4")
    content.add("action", logs.action, "<i4")
    content.add("reward", logs.reward, "<f8")
    content.add("propensity", logs.propensity, "<f8")
    if logs.unit is not None and logs.units is not None:
        unit, used = compacted(logs.unit, len(logs.units))
        content.add_ids("units", logs.units[used])
        content.add("unit", unit, "<i4")
    if logs.time is not None:
        content.add("time", logs.time, "<M8[us]" if logs.time.dtype.kind == "M" else "<f8")
    if logs.round is not None:
        content.add("round", logs.round, "<i2")
    for name in sorted(logs.columns):
        column = logs.columns[name]
        if column.dtype.kind in "fb":
            content.add(f"column {name}", column, "<f8")
        else:
            content.add_ids(f"column {name}", column)
    return content.hex()
