"""What every reward model shares: a subclass gives `predict`, the rest follows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np

from depsue import artifacts
from depsue.data.checks import FloatArray, IntArray
from depsue.data.logs import LoggedData
from depsue.errors import DataError, FileError, require
from depsue.protocols import RewardModel
from depsue.savable import REWARD_MODEL, Savable, described, rebuilt

AT_ONCE = 1 << 22
"""Predictions held in memory at once, where pairs are taken from whole rows."""


class BaseRewardModel(Savable):
    """q-hat(x, a) over A actions.

    A subclass gives `predict`. To be saved it also gives `kind`, `state` and `from_state`
    (`depsue.savable`).
    """

    family = REWARD_MODEL

    @abstractmethod
    def predict(self, contexts: FloatArray) -> FloatArray:
        """(m, A) predictions for every action."""

    def predict_pairs(
        self, contexts: FloatArray, actions: IntArray, rows: IntArray | None = None
    ) -> FloatArray:
        """(n,) predictions for pairs: `rows` points into the (u, d) contexts."""
        rows = np.arange(len(actions)) if rows is None else rows
        out = np.empty(len(actions))
        if not len(actions):
            return out
        chunk = max(1, AT_ONCE // self.predict(contexts[:1]).shape[1])
        for start in range(0, len(contexts), chunk):
            mine = np.flatnonzero((rows >= start) & (rows < start + chunk))
            predictions = self.predict(contexts[start : start + chunk])
            out[mine] = predictions[rows[mine] - start, actions[mine]]
        return out

    def save(self, folder: str | Path) -> None:
        """Write the model to `folder`, replacing one that is there."""
        save_model(self, folder)

    @classmethod
    def load(cls, folder: str | Path, *, outside: Mapping[str, Any] | None = None) -> Self:
        """The model of this class in `folder`; a damaged one, or one of another kind, is refused.

        Args:
            folder: where it was saved.
            outside: callables that were saved by name (`depsue.scores.ExternalModel`).
        """
        model = rebuilt(REWARD_MODEL, *artifacts.read(folder, family=REWARD_MODEL), outside)
        require(
            isinstance(model, cls),
            f"the folder must hold a {cls.__name__}",
            found=f"a {type(model).__name__} in {folder}",
            error=FileError,
        )
        return model  # type: ignore[no-any-return]


def action_features(logs: LoggedData) -> FloatArray:
    """(A, d_a) the features of the logs' actions; a catalogue without features is refused."""
    features = logs.catalogue.features
    if features is None:
        raise DataError(
            "a reward model needs action features: they carry what is known of novel actions",
            column="features",
            found="a catalogue without features",
            cure="give the catalogue features; a one-hot code will do, but tells nothing of "
            "novel actions",
        )
    return features


def save_model(model: RewardModel, folder: str | Path) -> None:
    """Write any reward model that can be saved to `folder`; of a cached one, what it remembers."""
    kind, settings, arrays = described(model, REWARD_MODEL)
    artifacts.write(folder, family=REWARD_MODEL, kind=kind, settings=settings, arrays=arrays)
