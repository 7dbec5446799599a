"""A team's own model as a policy: its scores, or a callable that returns probabilities."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any, TypeAlias

import numpy as np

from depsue.data.checks import FloatArray, finite_matrix
from depsue.data.keys import row_keys
from depsue.errors import PolicyError, require, short
from depsue.policies.base import BasePolicy
from depsue.policies.onnx import OnnxScores

State: TypeAlias = tuple[dict[str, Any], dict[str, np.ndarray[Any, Any]]]
Scores: TypeAlias = Callable[[FloatArray], Any]
"""(m, d) contexts -> (m, A) scores, the higher the better."""


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
        keys = row_keys(self.contexts)
        self._order = np.argsort(keys, kind="stable")
        self._keys = keys[self._order]
        repeated = np.flatnonzero(self._keys[1:] == self._keys[:-1])
        require(
            len(repeated) == 0,
            "the contexts of a score table must be distinct",
            found=f"rows {self._order[repeated[:1]]} and {self._order[repeated[:1] + 1]}",
            error=PolicyError,
        )

    def __call__(self, contexts: FloatArray) -> FloatArray:
        """(m, A) the scores of known contexts."""
        wanted = np.asarray(contexts, dtype=np.float32) + np.float32(0)
        place = np.minimum(np.searchsorted(self._keys, row_keys(wanted)), len(self._keys) - 1)
        rows = self._order[place]
        unknown = np.flatnonzero((self.contexts[rows] != wanted).any(axis=1))
        require(
            len(unknown) == 0,
            "a score table answers only for the contexts it was made for",
            found=f"{len(unknown):,} of {len(wanted):,} contexts are not in it, "
            f"the first at row {unknown[0] if len(unknown) else 0}",
            cure="add their scores, or pass a callable instead of a table",
            error=PolicyError,
        )
        return np.asarray(self.scores[rows])

    def saved_state(self) -> State:
        """Settings (JSON) and arrays from which `rebuilt_scores` rebuilds it."""
        return {}, {"contexts": self.contexts, "scores": self.scores}


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
            raise PolicyError(
                "a policy that calls a model outside its file needs the model",
                found=f"{self.name!r} is not at hand",
                cure=f"load it with outside={{{self.name!r}: your_callable}}, in Python",
            )
        return self.call(contexts)

    def saved_state(self) -> State:
        """The name; no arrays."""
        return {"outside": self.name}, {}


def outside_of(policy: object) -> dict[str, Scores]:
    """The callables that a policy is saved with by name, as `load` takes them."""
    found = getattr(policy, "_call", getattr(policy, "_scores", None))
    if isinstance(found, ExternalModel) and found.call is not None:
        return {found.name: found.call}
    return {}


HANDED_IN: ContextVar[Mapping[str, Scores]] = ContextVar("models outside the file", default={})  # noqa: B039


class OwnPolicy(BasePolicy):
    """A team's own policy: a callable, a table, or an ONNX model, that returns probabilities.

    Args:
        probabilities: (m, d) -> (m, A) distributions; a `ScoreTable` or an `OnnxScores` is saved
            with the policy.
        n_actions: A.
    """

    kind = "own"

    def __init__(self, probabilities: Scores | ScoreTable, n_actions: int) -> None:
        self._call, self._n_actions = probabilities, int(n_actions)

    @property
    def n_actions(self) -> int:
        return self._n_actions

    def probabilities(self, contexts: FloatArray) -> FloatArray:
        out = read_scores(self._call, contexts, self.n_actions, "a policy")
        total = out.sum(axis=1)
        wrong = np.flatnonzero((out < 0).any(axis=1) | (np.abs(total - 1) > 1e-5))
        require(
            len(wrong) == 0,
            "a policy's probabilities must be >= 0 and sum to 1",
            found=f"context {wrong[0]} of the chunk: smallest {out[wrong[0]].min():g}, "
            f"sum {out[wrong[0]].sum():.9g}"
            if len(wrong)
            else "",
            cure="normalise them, or use SoftmaxOfScores for raw scores",
            error=PolicyError,
        )
        return np.asarray(out / total[:, None])

    def state(self) -> State:
        settings, arrays = saved_scores(self._call, self)
        return {"n_actions": self._n_actions, **settings}, arrays

    @classmethod
    def from_state(cls, settings: dict[str, Any], arrays: dict[str, Any]) -> OwnPolicy:
        return cls(rebuilt_scores(settings, arrays), settings["n_actions"])


def saved_scores(scores: Scores, policy: BasePolicy) -> State:
    """Settings (JSON) and arrays of a table or of an ONNX model; another callable is refused."""
    if isinstance(scores, ScoreTable | OnnxScores | ExternalModel):
        return scores.saved_state()
    raise PolicyError(
        f"a {type(policy).__name__} over a callable cannot be saved",
        found=repr(scores),
        cure="give its scores as a ScoreTable over the contexts it will meet, as OnnxScores, or as "
        "Outside(name, callable), which is saved by its name",
    )


def rebuilt_scores(
    settings: dict[str, Any], arrays: dict[str, Any]
) -> ScoreTable | OnnxScores | ExternalModel:
    """The table, the ONNX model, or the name of the callable, that was saved."""
    if "outside" in settings:
        name = settings["outside"]
        return ExternalModel(name, HANDED_IN.get().get(name))
    if "onnx" in arrays:
        return OnnxScores.from_state(settings, arrays)
    return ScoreTable(arrays["contexts"], arrays["scores"])


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
