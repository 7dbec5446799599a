"""Folds from a hash: the id of a unit and the salt alone decide which fold the unit falls into.

Folds are hashed, not drawn, for two reasons: a user's later rows fall into the fold of the earlier
ones, and there is no seed that somebody could try again until a split pleases. Rows without units
are hashed by their position. A fold that is split again needs another salt: with the same salt all
of its units would hash into the same part.

These are splits within what may be read, as for tuning. The three folds of a campaign's round
hang on a secret instead: `depsue.data.identity`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from depsue.data.checks import Array, FloatArray, IntArray
from depsue.data.keys import mix64
from depsue.errors import DataError, require, short

if TYPE_CHECKING:
    from depsue.data.logs import LoggedData


def fold_of(logs: LoggedData, fractions: Sequence[float], *, salt: str) -> IntArray:
    """(n,) the fold of every row, 0 .. len(fractions) - 1.

    Args:
        logs: n rows, with or without units.
        fractions: two or more positive shares that sum to 1.
        salt: the name of the split; another salt gives an independent split.
    """
    shares = checked_fractions(fractions)
    require(
        isinstance(salt, str), "a salt must be a string", found=short(salt), cure="name the split"
    )
    if logs.unit is not None and logs.units is not None:
        kind, keys, index = "unit", keys_of_ids(logs.units), logs.unit
    else:
        kind, keys = "row", np.arange(len(logs), dtype=np.uint64)
        index = np.arange(len(logs))
    which = fold_of_keys(keys, shares, salt)
    sizes = np.bincount(which, minlength=len(shares))
    if not sizes.all():
        empty = int(sizes.argmin())
        raise DataError(
            "every fold needs at least one row",
            column=kind,
            found=f"fold {empty} of {len(shares)} is empty with {len(keys):,} {kind}s",
            cure="collect more data, or use fewer folds",
        )
    folds: IntArray = which[index]
    return folds


def fold_of_keys(keys: Array, shares: FloatArray, salt: str) -> IntArray:
    """(m,) the fold of each 64-bit key."""
    seed = np.frombuffer(hashlib.sha256(salt.encode()).digest()[:8], dtype="<u8")
    # Keys are mixed before the seed is added, so that neighbouring ids are spread under every salt.
    uniform = mix64(mix64(keys) ^ seed).astype(np.float64) / 2.0**64
    folds: IntArray = np.searchsorted(np.cumsum(shares)[:-1], uniform, side="right")
    return folds


def checked_fractions(fractions: Any) -> FloatArray:
    """(k,) shares, checked to be two or more, positive, and to sum to 1."""
    try:
        shares = np.asarray(fractions, dtype=np.float64)
    except (TypeError, ValueError):
        shares = np.zeros(0)
    require(
        shares.ndim == 1
        and len(shares) >= 2
        and bool((shares > 0).all())
        and abs(shares.sum() - 1) < 1e-9,
        "fractions must be two or more positive numbers that sum to 1",
        found=short(fractions),
        cure="use for example [0.5, 0.5]",
    )
    return shares


def keys_of_ids(ids: np.ndarray[Any, Any]) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """(v,) 64-bit keys of integer or string ids."""
    if ids.dtype.kind == "i":
        return ids.astype(np.int64).view(np.uint64)
    texts = (str(id).encode("utf-8", "surrogatepass") for id in ids)
    digests = b"".join(hashlib.blake2b(text, digest_size=8).digest() for text in texts)
    return np.frombuffer(digests, dtype="<u8").astype(np.uint64)
