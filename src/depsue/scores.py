"""A team's own model, by the numbers that it gives every action: scores, probabilities or rewards.

Policies and reward models ask it alike. It is a callable; one that can be saved is a `ScoreTable`
(numbers computed beforehand), an `OnnxScores` (a model file, `depsue.onnx`) or an `ExternalModel`
(a callable that is saved by its name alone).
"""

from __future__ import annotations

import hashlib
import importlib
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from depsue.data.checks import FloatArray, Mask, finite_matrix
from depsue.data.keys import RowIndex
from depsue.errors import CannotBeSaved, ConfigError, ModelMissing, PolicyError, require, short
from depsue.onnx import OnnxScores
from depsue.plural import counted
from depsue.savable import State, states_of

Scores: TypeAlias = Callable[[FloatArray], Any]
"""(m, d) contexts -> (m, A) numbers; of scores, the higher the better."""


class ScoreTable:
    """Scores (or probabilities) that were computed beforehand for known contexts.

    Args:
        contexts: (u, d) distinct contexts.
        scores: (u, A) a row each.
    """

    def __init__(self, contexts: Any, scores: Any) -> None:
        self.contexts = finite_matrix(contexts, "contexts") + np.float32(0)
        self.scores = np.asarray(scores)
        require(
            self.scores.dtype.kind in "fiub" and bool(np.isfinite(self.scores).all()),
            "scores must be finite numbers",
            found=f"type {self.scores.dtype}"
            + (" with NaN or infinite entries" if self.scores.dtype.kind == "f" else ""),
            cure="score every action for every context",
            error=PolicyError,
        )
        require(
            self.scores.ndim == 2 and len(self.scores) == len(self.contexts),
            "a score table needs one row of A scores per context",
            found=f"scores {self.scores.shape} for {len(self.contexts)} contexts",
            error=PolicyError,
        )
        self._index = RowIndex(self.contexts)
        repeated = self._index.repeated()
        require(
            repeated is None,
            "the contexts of a score table must be distinct",
            found=f"the same context in rows {repeated}",
            error=PolicyError,
        )

    def __call__(self, contexts: FloatArray) -> FloatArray:
        """(m, A) the scores of known contexts."""
        wide, known_wide = np.shape(contexts)[1], self.contexts.shape[1]
        require(
            wide == known_wide,
            "a score table answers only for contexts with the columns that it was made for",
            found=f"contexts of {counted(wide, 'column')}, the table has {known_wide}",
            cure="declare in the mapping which columns are the context, or make the table again",
            error=PolicyError,
        )
        rows, known = self._index.find(contexts)
        unknown = np.flatnonzero(~known)
        require(
            len(unknown) == 0,
            "a score table answers only for the contexts it was made for",
            found=f"{len(unknown):,} of {len(rows):,} contexts are not in it, "
            f"the first at row {unknown[0] if len(unknown) else 0}",
            cure="add their scores, or pass a callable instead of a table",
            error=PolicyError,
        )
        return np.asarray(self.scores[rows])

    def knows(self, contexts: FloatArray) -> Mask:
        """(m,) which contexts are in the table."""
        return self._index.find(contexts)[1]

    def state(self) -> State:
        """What `scores_in` rebuilds it from."""
        return State({}, {"contexts": self.contexts, "scores": self.scores})


class ExternalModel:
    """A team's own callable that is saved by its name alone.

    The file of a policy that uses it holds the name; whoever loads it hands the callable in again:
    `load(folder, outside={name: call})`. Hashes see the name, so another version needs another.

    Args:
        name: of the model and its version.
        call: (m, d) contexts -> (m, A) numbers; None where it is not at hand.
    """

    def __init__(self, name: str, call: Scores | None = None) -> None:
        require(
            isinstance(name, str) and bool(name.strip()) and len(name) <= 200,
            "a model outside the file has a name of 1 to 200 characters",
            found=short(name),
            cure="name it with its version, such as ranker-2027-01",
            error=PolicyError,
        )
        self.name, self.call = name, call

    def __call__(self, contexts: FloatArray) -> Any:
        """What the callable says."""
        if self.call is None:
            raise ModelMissing(
                "a policy that calls a model outside its file needs the model",
                found=f"{self.name!r} is not at hand",
                cure=f"load it with outside={{{self.name!r}: your_callable}}, in Python; commands "
                "take it with --model module:function, or --model NAME=module:function",
            )
        return self.call(contexts)

    def state(self) -> State:
        """The name; no arrays."""
        return State({"outside": self.name}, outside={self.name: self.call} if self.call else {})


PLACE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


def is_place(text: str) -> bool:
    """Whether text names a callable by its place: module:function."""
    return PLACE.fullmatch(text) is not None


def imported(place: str) -> Callable[..., Any]:
    """The callable at a place, module:function; the working folder is looked in first.

    Importing a module runs it: give places that you name yourself, never those that a file names.
    """
    require(
        is_place(place),
        "a model of yours is named by its place in Python",
        found=short(place),
        cure="module:function, such as shop.ranker:scores",
    )
    module, _, name = place.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        call = getattr(importlib.import_module(module), name)
    except Exception as problem:  # whatever a team's module raises
        raise ConfigError(
            "a model of yours must be importable from the working folder, or installed",
            found=f"{place}: {type(problem).__name__}: {short(str(problem))}",
            cure=f"python -c 'from {module} import {name}' shows what is wrong",
        ) from problem
    require(
        callable(call),
        "a model of yours must be a function",
        found=f"{place} is a {type(call).__name__}",
        cure="one that takes (m, d) contexts and returns (m, A) numbers",
    )
    found: Callable[..., Any] = call
    return found


def imported_models(names: Sequence[str]) -> dict[str, Callable[..., Any]]:
    """Callables that policies were saved with by name: module:function, or NAME=module:function."""
    pairs = [text.rpartition("=") for text in names]
    return {name or place: imported(place) for name, _, place in pairs}


def state_over(
    scores: Scores,
    owner: object,
    settings: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray[Any, Any]],
) -> State:
    """The state of a policy or a reward model that asks a team's own model.

    Args:
        scores: the model; a callable that cannot be saved is refused.
        owner: what asks it.
        settings, arrays: the owner's; the model's own stand beside them.
    """
    if not isinstance(scores, ScoreTable | OnnxScores | ExternalModel):
        raise CannotBeSaved(
            f"a {type(owner).__name__} over a callable cannot be saved",
            found=repr(scores),
            cure="give its scores as a ScoreTable over the contexts it will meet, as OnnxScores, "
            "or as ExternalModel(name, callable), which is saved by its name",
        )
    model = scores.state()
    return State({**model.settings, **settings}, {**model.arrays, **arrays}, outside=model.outside)


def scores_in(state: State) -> ScoreTable | OnnxScores | ExternalModel:
    """The model of a state that `state_over` made: a table, an ONNX model, or a named callable."""
    if "outside" in state.settings:
        name = state.settings["outside"]
        return ExternalModel(name, state.outside.get(name))
    if "onnx" in state.arrays:
        return OnnxScores.from_state(state)
    return ScoreTable(state.arrays["contexts"], state.arrays["scores"])


def tables_in(*things: object) -> list[ScoreTable]:
    """The distinct score tables that policies, or parts of them, rest on."""
    tables: dict[bytes, ScoreTable] = {}
    for state in (state for thing in things for state in states_of(thing)):
        if "scores" in state.arrays and "contexts" in state.arrays:
            contexts = state.arrays["contexts"]
            digest = hashlib.sha256(np.ascontiguousarray(contexts).tobytes()).digest()
            if digest not in tables:
                tables[digest] = ScoreTable(contexts, state.arrays["scores"])
    return list(tables.values())


def read_scores(
    scores: Scores, contexts: FloatArray, n_actions: int, what: str = "a score function"
) -> FloatArray:
    """(m, A) finite float64 numbers out of a team's callable, checked."""
    out = np.asarray(scores(contexts), dtype=np.float64)
    require(
        out.shape == (len(contexts), n_actions) and bool(np.isfinite(out).all()),
        f"{what} must return finite numbers of shape ({len(contexts)}, {n_actions})",
        found=f"shape {out.shape}"
        + ("" if np.isfinite(out).all() else " with entries that are NaN or infinite"),
        cure="return one number for every action of the catalogue, for every context",
        error=PolicyError,
    )
    return out
