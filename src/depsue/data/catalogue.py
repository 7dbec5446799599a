"""The catalogue: the actions, their ids and features, and which of them are novel (not in A0)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from depsue.data.checks import (
    Array,
    FloatArray,
    IntArray,
    as_column,
    finite_matrix,
    first_bad,
    naming,
    plain_ids,
    read_only,
)
from depsue.data.frames import columns_of, feature_matrix, flag_column
from depsue.data.hashes import catalogue_hash
from depsue.data.keys import distinct_ids
from depsue.errors import DataError, require, short


@dataclass(frozen=True, eq=False, repr=False)
class Catalogue:
    """The A actions a policy may choose from.

    Novel actions are those outside A0, the support of the first logging policy. Novelty stays
    relative to A0 for a whole campaign, also after novel actions have been shown.

    Args:
        ids: (A,) distinct action ids, integers or strings.
        novel: (A,) True where the action is novel.
        features: (A, d) features e_a; reward models need them, policies do not.
        feature_names: (d,) what they are called, where they came from a file: the name of the
            column, its place in a list (`emb[0]`), or the value that it stands for (`brand=acme`).
            No part of the hash.
        labels: by column, (A,) text that declared assumptions speak of: strata, groups, ids of
            proxies; "" where an action has none. No part of the hash.
    """

    ids: np.ndarray[Any, Any]
    novel: np.ndarray[Any, np.dtype[np.bool_]]
    features: FloatArray | None = None
    feature_names: tuple[str, ...] = ()
    labels: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        ids = plain_ids(self.ids, "id")
        if len(ids) == 0:
            raise DataError("a catalogue needs at least one action", column="id", found="none")
        _, which = distinct_ids(ids)
        repeated = np.ones(len(ids), dtype=bool)
        repeated[np.unique(which, return_index=True)[1]] = False
        first_bad(repeated, ids, "action ids must be distinct", "id", "keep one row per action")
        novel = as_column(self.novel, "novel")
        if novel.dtype != bool or len(novel) != len(ids):
            raise DataError(
                "novel must be one True or False per action",
                column="novel",
                found=f"{novel.dtype} of length {len(novel)} for {len(ids)} actions",
                cure="pass a boolean mask, or use Catalogue.of(ids, novel=[ids])",
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
        text = ids.dtype == object
        object.__setattr__(self, "ids", read_only(ids.astype(str) if text else ids))
        object.__setattr__(self, "novel", read_only(novel.copy()))
        object.__setattr__(self, "features", features)
        labels = {name: np.asarray(values, dtype=str) for name, values in self.labels.items()}
        for name, values in labels.items():
            if values.shape != self.ids.shape:
                raise DataError(
                    "a label is one text per action",
                    column=name,
                    found=f"shape {values.shape} for {len(self.ids)} actions",
                    cure="give one for each action, empty where there is none",
                )
        object.__setattr__(self, "labels", {k: read_only(v) for k, v in labels.items()})

    @classmethod
    def of(cls, ids: Any, *, novel: Iterable[Any] = (), features: Any = None) -> Catalogue:
        """A catalogue from all ids and the ids of the novel ones."""
        require(
            not isinstance(novel, str),
            "novel must be a list of ids",
            found=short(novel),
            cure=f"novel=[{novel!r}]",
        )
        distinct = plain_ids(ids, "id")
        known = cls(distinct, np.zeros(len(distinct), dtype=bool), features)
        mask = np.zeros(len(known), dtype=bool)
        listed = isinstance(novel, Iterable) and not hasattr(novel, "__array__")
        places = known.index(list(novel) if listed else novel, column="novel")
        require(
            len(np.unique(places)) == len(places),
            "novel must name each novel action once: it is a list of ids, not a mask",
            found=short(list(novel)),
            cure="for a mask use Catalogue(ids, mask)",
        )
        mask[places] = True
        return cls(known.ids, mask, known.features)

    @classmethod
    def from_frame(
        cls, frame: Any, *, id: str = "id", novel: str = "novel", features: Sequence[str] = ()
    ) -> Catalogue:
        """A catalogue from a polars, pandas or Arrow frame, or a dict; one row per action.

        Args:
            frame: the actions; columns that are not named below are not read.
            id: the column of ids.
            novel: the column of True and False, or of 1 and 0.
            features: the feature columns; a column of lists counts as several.
        """
        named = [features] if isinstance(features, str) else list(features)
        columns = columns_of(frame, [id, novel, *named])
        matrix = feature_matrix({name: columns[name] for name in named}) if named else None
        with naming({"id": id, "novel": novel}):
            return cls(columns[id], flag_column(columns[novel], "novel"), matrix)

    def __repr__(self) -> str:
        features = 0 if self.features is None else self.features.shape[1]
        return (
            f"Catalogue({len(self):,} actions, {int(self.novel.sum()):,} of them novel, "
            f"{features} features)"
        )

    def __len__(self) -> int:
        return len(self.ids)

    def label(self, column: str) -> np.ndarray[Any, Any]:
        """(A,) the labels of one column, which a declared assumption speaks of."""
        if column not in self.labels:
            raise DataError(
                "a declared assumption speaks of a column of the items",
                column=column,
                found=f"labels {sorted(self.labels)}",
                cure="the items file needs that column; in Python: Catalogue(..., labels={...})",
            )
        return np.asarray(self.labels[column])

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
        return catalogue_hash(self)

    @cached_property
    def _places(self) -> dict[Any, int]:
        """The position of each id that is a string."""
        return {id: place for place, id in enumerate(self.ids.tolist())}

    @cached_property
    def _in_order(self) -> tuple[IntArray, IntArray]:
        """(A,) integer ids in ascending order, and (A,) their positions."""
        order = np.argsort(self.ids)
        return self.ids[order], order

    def _find(self, wanted: Array) -> IntArray:
        """(n,) the position of each id; -1 where there is none."""
        if self.ids.dtype.kind == "U":
            return np.array([self._places.get(id, -1) for id in wanted.tolist()], dtype=np.int64)
        ids, positions = self._in_order
        at = np.minimum(np.searchsorted(ids, wanted.astype(np.int64)), len(ids) - 1)
        return np.where(ids[at] == wanted, positions[at], -1)

    def index(self, ids: Any, *, column: str = "action") -> IntArray:
        """(n,) positions of the given ids; an unknown id is an error."""
        wanted = plain_ids(ids, column)
        text = self.ids.dtype.kind == "U"
        if text != (wanted.dtype == object) and len(wanted):
            kind = "strings" if text else "integers"
            raise DataError(
                f"actions must be {kind}, as the catalogue's ids are",
                column=column,
                row=0,
                value=wanted.tolist()[0],
                count=len(wanted),
                cure=f"cast the column to {kind}",
            )
        places = self._find(wanted)
        first_bad(
            places < 0,
            wanted,
            "every action must be in the catalogue",
            column,
            "add the action to the catalogue, or remove these rows knowingly",
        )
        return places
