"""Which rows and ids are equal: the distinct values, and an index from each row into them.

Logs keep each distinct context and unit once (`LoggedData`), so a policy is evaluated once for each
of u contexts, not for each of n rows.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from depsue.data.checks import Array, FloatArray, IntArray, Mask

Keys: TypeAlias = "np.ndarray[Any, np.dtype[np.uint64]]"


def distinct_rows(matrix: FloatArray) -> tuple[FloatArray, IntArray]:
    """The u distinct rows of an (n, d) float32 matrix, and (n,) which of them each row is.

    Rows are compared by a 64-bit hash of their bits first (and then checked), which is several
    times faster than sorting whole rows. They stay in order of first appearance.
    """
    _, first, which = np.unique(row_keys(matrix), return_index=True, return_inverse=True)
    if not np.array_equal(matrix[first][which], matrix):  # two rows share a hash
        _, first, which = np.unique(matrix, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty(len(order), dtype=np.int32)
    rank[order] = np.arange(len(order))
    return matrix[first[order]], rank[which.reshape(-1)]


class RowIndex:
    """Finds rows of a table by their content, as float32; -0 and 0 are the same.

    Args:
        rows: (u, d) distinct rows.
    """

    def __init__(self, rows: FloatArray) -> None:
        self.rows = _without_minus_zero(rows)
        keys = row_keys(self.rows)
        self._order = np.argsort(keys, kind="stable")
        self._keys = keys[self._order]

    def find(self, wanted: FloatArray) -> tuple[IntArray, Mask]:
        """(m,) where each of (m, d) rows is in the table, and (m,) whether it is there at all."""
        rows = _without_minus_zero(wanted)
        place = np.minimum(np.searchsorted(self._keys, row_keys(rows)), len(self._keys) - 1)
        at = self._order[place]
        return at, (self.rows[at] == rows).all(axis=1)

    def repeated(self) -> tuple[int, int] | None:
        """The first two places that hold the same row; None if all are distinct."""
        same = np.flatnonzero(self._keys[1:] == self._keys[:-1])
        if not len(same):
            return None
        return int(self._order[same[0]]), int(self._order[same[0] + 1])


def _without_minus_zero(rows: FloatArray) -> FloatArray:
    return np.asarray(rows, dtype=np.float32) + np.float32(0)  # -0 + 0 is 0


def distinct_ids(ids: Array) -> tuple[Array, IntArray]:
    """The v distinct ids in order of first appearance, and (n,) which of them each row has."""
    if ids.dtype.kind == "i":
        _, first, rank = np.unique(ids, return_index=True, return_inverse=True)
        order = np.argsort(first)
        number = np.empty(len(order), dtype=np.int32)
        number[order] = np.arange(len(order))
        return ids[first[order]], number[rank.reshape(-1)]
    place: dict[Any, int] = {}
    which = [place.setdefault(id, len(place)) for id in ids.tolist()]
    return np.array(list(place), dtype=ids.dtype), np.array(which, dtype=np.int32)


def compacted(index: IntArray, size: int) -> tuple[IntArray, IntArray]:
    """(n,) an index into `size` values, renumbered by first appearance; and the values used."""
    first = np.full(size, len(index))
    np.minimum.at(first, index, np.arange(len(index)))
    used = np.argsort(first, kind="stable")[: np.count_nonzero(first < len(index))]
    rank = np.empty(size, dtype=np.int32)
    rank[used] = np.arange(len(used))
    return rank[index], used


def row_keys(matrix: FloatArray) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """(m,) 64-bit hashes of the rows of an (m, d) float32 matrix."""
    bits = np.ascontiguousarray(matrix, dtype=np.float32).view(np.uint32)
    mixed = np.zeros(len(bits), dtype=np.uint64)
    for place in range(bits.shape[1]):
        mixed = mix64(mixed ^ bits[:, place])
    return mixed


def mix64(values: Any) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """splitmix64's finaliser: spreads 64-bit keys evenly (Steele et al., 2014)."""
    x = np.asarray(values, dtype=np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


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
