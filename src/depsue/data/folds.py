"""Folds from a hash: which fold a unit falls into depends on its id and the salt alone.

So a user's later rows fall where the earlier ones did, and no seed can be tried until a split
pleases. Rows without units are hashed by their position.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from depsue.data.checks import IntArray, mix64
from depsue.errors import ConfigError, DataError, require

if TYPE_CHECKING:
    from depsue.data.logs import LoggedData


def fold_of(logs: LoggedData, fractions: Sequence[float], *, salt: str) -> IntArray:
    """(n,) the fold of every row, 0 .. len(fractions) - 1."""
    shares = np.asarray(fractions, dtype=np.float64)
    require(
        len(shares) >= 2 and bool((shares > 0).all()) and abs(shares.sum() - 1) < 1e-9,
        "fractions must be two or more positive numbers that sum to 1",
        found=list(fractions),
        error=ConfigError,
    )
    if logs.unit is not None and logs.units is not None:
        keys, index = keys_of_ids(logs.units), logs.unit
    else:
        keys, index = np.arange(len(logs), dtype=np.uint64), np.arange(len(logs))
    seed = np.frombuffer(hashlib.sha256(salt.encode()).digest()[:8], dtype="<u8")
    uniform = mix64(mix64(keys) ^ seed).astype(np.float64) / 2.0**64
    which = np.searchsorted(np.cumsum(shares)[:-1], uniform, side="right").astype(np.int8)
    empty = sorted(set(range(len(shares))) - set(np.unique(which).tolist()))
    if empty:
        raise DataError(
            "every fold needs at least one row",
            column="unit" if logs.unit is not None else "row",
            found=f"fold {empty[0]} of {len(shares)} is empty with {len(keys):,} "
            + ("units" if logs.unit is not None else "rows"),
            cure="collect more data, or use fewer folds",
        )
    folds: IntArray = which[index]
    return folds


def keys_of_ids(ids: np.ndarray[Any, Any]) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """(v,) 64-bit keys of integer or string ids."""
    if ids.dtype.kind == "i":
        return ids.astype(np.int64).view(np.uint64)
    digests = [hashlib.blake2b(str(i).encode(), digest_size=8).digest() for i in ids]
    return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64)
