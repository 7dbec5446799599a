"""A team's own model as a policy: its scores, or a callable that returns probabilities."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from depsue.data.checks import FloatArray, finite_matrix
from depsue.data.keys import row_keys
from depsue.errors import PolicyError, require
from depsue.policies.base import BasePolicy

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

    def arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """What is saved."""
        return {"contexts": self.contexts, "scores": self.scores}


class OwnPolicy(BasePolicy):
    """A team's own policy: a callable, or a table, that returns probabilities.

    Args:
        probabilities: (m, d) -> (m, A) distributions, or a `ScoreTable` that holds them.
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

    def state(self) -> tuple[dict[str, Any], dict[str, np.ndarray[Any, Any]]]:
        if not isinstance(self._call, ScoreTable):
            return super().state()
        return {"n_actions": self._n_actions}, self._call.arrays()

    @classmethod
    def from_state(cls, settings: dict[str, Any], arrays: dict[str, Any]) -> OwnPolicy:
        return cls(ScoreTable(arrays["contexts"], arrays["scores"]), settings["n_actions"])


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
