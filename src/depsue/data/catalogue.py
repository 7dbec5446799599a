"""The actions: ids, features, and which of them are novel."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from depsue.data.checks import FloatArray, IntArray, finite_matrix, plain_ids, read_only
from depsue.errors import DataError


@dataclass(frozen=True, eq=False)
class ActionCatalogue:
    """The A actions a policy may choose from.

    Novel actions are those outside A0, the support of the first logging policy. Novelty stays
    relative to A0 for a whole campaign, also after novel actions have been shown.

    Args:
        ids: (A,) distinct action ids, integers or strings.
        novel: (A,) True where the action is novel.
        features: (A, d) features e_a; reward models need them, policies do not.
    """

    ids: np.ndarray[Any, Any]
    novel: np.ndarray[Any, np.dtype[np.bool_]]
    features: FloatArray | None = None

    def __post_init__(self) -> None:
        ids = plain_ids(self.ids, "id")
        if len(ids) == 0:
            raise DataError("a catalogue needs at least one action", column="id", found="none")
        _, first, count = np.unique(ids, return_index=True, return_counts=True)
        if (count > 1).any():
            repeated = np.setdiff1d(np.arange(len(ids)), first)
            raise DataError(
                "action ids must be distinct",
                column="id",
                row=int(repeated[0]),
                value=ids[repeated[0]],
                count=len(repeated),
                cure="keep one row per action",
            )
        novel = np.asarray(self.novel)
        if novel.dtype != bool or novel.shape != ids.shape:
            raise DataError(
                "novel must be one True or False per action",
                column="novel",
                found=f"{novel.dtype} of shape {novel.shape} for {len(ids)} actions",
                cure="pass a boolean mask, or use ActionCatalogue.of(ids, novel=[ids])",
            )
        if novel.all():
            raise DataError(
                "at least one action must be supported (not novel)",
                column="novel",
                found=f"all {len(ids)} actions are novel",
                cure="mark only the actions that the logging policy has never shown",
            )
        features = self.features
        if features is not None:
            features = read_only(finite_matrix(features, "features", rows=len(ids), of="actions"))
        object.__setattr__(self, "ids", read_only(ids))
        object.__setattr__(self, "novel", read_only(novel))
        object.__setattr__(self, "features", features)

    @classmethod
    def of(cls, ids: Any, *, novel: Iterable[Any] = (), features: Any = None) -> ActionCatalogue:
        """A catalogue from all ids and the ids of the novel ones."""
        known = cls(np.asarray(ids), np.zeros(len(ids), dtype=bool), features)
        novel_ids = list(novel)
        mask = np.zeros(len(known), dtype=bool)
        if novel_ids:
            mask[known.index(novel_ids, column="novel")] = True
        return cls(known.ids, mask, known.features)

    @classmethod
    def from_frame(
        cls, frame: Any, *, id: str = "id", novel: str = "novel", features: Sequence[str] = ()
    ) -> ActionCatalogue:
        """A catalogue from a polars, pandas or Arrow frame, one row per action."""
        from depsue.data.frames import Frame

        source = Frame(frame)
        return cls(
            source.column(id),
            source.flags(novel),
            source.matrix(features) if features else None,
        )

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def supported_actions(self) -> IntArray:
        """(A0,) positions of the supported actions."""
        return np.flatnonzero(~self.novel)

    @cached_property
    def novel_actions(self) -> IntArray:
        """Positions of the novel actions."""
        return np.flatnonzero(self.novel)

    @cached_property
    def hash(self) -> str:
        """SHA-256 over ids, features and which actions are novel."""
        digest = hashlib.sha256(b"depsue-catalogue-1")
        kind = self.ids.dtype.kind
        digest.update(f"{kind}{len(self)}".encode())
        digest.update(self.ids.astype("<i8").tobytes() if kind == "i" else _text(self.ids))
        digest.update(self.novel.tobytes())
        if self.features is not None:
            digest.update(str(self.features.shape).encode() + self.features.tobytes())
        return digest.hexdigest()

    @cached_property
    def _order(self) -> IntArray:
        return np.argsort(self.ids, kind="stable")

    def index(self, ids: Any, *, column: str = "action") -> IntArray:
        """(n,) positions of the given ids; an unknown id is an error."""
        given = plain_ids(ids, column)
        if given.dtype.kind != self.ids.dtype.kind and len(given):
            names = {"i": "integers", "U": "strings"}
            raise DataError(
                "actions must have the catalogue's type of id",
                column=column,
                row=0,
                value=f"{given[0]!r}, while the catalogue's ids are {names[self.ids.dtype.kind]}",
                cure=f"cast the column to {names[self.ids.dtype.kind]}",
            )
        ordered = self.ids[self._order]
        place = np.minimum(np.searchsorted(ordered, given), len(ordered) - 1)
        unknown = np.flatnonzero(ordered[place] != given)
        if len(unknown):
            raise DataError(
                "every action must be in the catalogue",
                column=column,
                row=int(unknown[0]),
                value=given[unknown[0]],
                count=len(unknown),
                cure="add the action to the catalogue, or remove these rows knowingly",
            )
        found: IntArray = self._order[place]
        return found


def _text(ids: np.ndarray[Any, Any]) -> bytes:
    return b"".join(len(e := str(i).encode()).to_bytes(4, "little") + e for i in ids)
