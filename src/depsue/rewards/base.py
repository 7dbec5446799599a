"""What every reward model shares: a subclass gives `predict`, the rest follows; the settings."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np

from depsue import artifacts
from depsue.data.checks import FloatArray, IntArray
from depsue.data.logs import LoggedData
from depsue.errors import (
    DataError,
    FileError,
    is_real,
    is_whole,
    require,
    require_positive,
    short,
)
from depsue.protocols import RewardModel
from depsue.savable import REWARD_MODEL, Savable, described, rebuilt

Combine = Literal["mean", "min", "optimistic"]
PREDICTIONS = 1 << 22
"""Predictions held in memory at once, where pairs are taken from whole rows."""
AT_ONCE = 1 << 17
"""Rows, or items, whose features are held at once in double precision."""


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
        chunk = max(1, PREDICTIONS // self.predict(contexts[:1]).shape[1])
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


def mean_and_scale(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The means of the columns, and what brings their deviations to 1."""
    mean = values.mean(axis=0, dtype=np.float64)
    squares = np.zeros(len(mean))
    for start in range(0, len(values), AT_ONCE):
        squares += np.square(values[start : start + AT_ONCE] - mean).sum(axis=0)
    deviation = np.sqrt(squares / len(values))
    return mean, 1 / np.where(deviation > 1e-8, deviation, 1.0)


def save_model(model: RewardModel, folder: str | Path) -> None:
    """Write any reward model that can be saved to `folder`; of a cached one, what it remembers."""
    kind, settings, arrays = described(model, REWARD_MODEL)
    artifacts.write(folder, family=REWARD_MODEL, kind=kind, settings=settings, arrays=arrays)


@dataclass(frozen=True)
class RewardSettings:
    """How a reward model is fitted."""

    members: int = 5
    """B: MLPs, each on its own bootstrap sample (one member takes the rows as they are)."""
    combine: Combine = "mean"
    """How members are combined; the paper names both mean and min."""
    conservatism: float = 0.0
    """CQL's alpha; 0 is the plain model."""
    hidden: tuple[int, ...] = (100, 10)
    """Widths of the hidden layers."""
    rate: float = 1e-3
    """The step size."""
    optimiser: Literal["adam", "sgd"] = "adam"
    """Adam, or plain gradient steps; the paper does not say which."""
    batch: int = 1024
    """Rows per step and member at most; fewer where an epoch would have under 100 steps."""
    max_epochs: int = 20
    """Passes over the rows at most."""
    patience: int = 2
    """Passes without a better held-out loss before stopping."""
    heldout: float = 0.1
    """Share of the rows (or units) held out."""

    def __post_init__(self) -> None:
        for name in ("members", "batch", "max_epochs", "patience"):
            value = getattr(self, name)
            require(
                is_whole(value) and value >= 1,
                f"{name} must be a whole number, at least 1",
                found=short(value),
            )
        require_positive(self.rate, "rate", "0.001 is a good start")
        require(
            self.optimiser in ("adam", "sgd"),
            "optimiser must be 'adam' or 'sgd'",
            found=short(self.optimiser),
        )
        require(
            len(self.hidden) >= 1 and all(is_whole(h) and h >= 1 for h in self.hidden),
            "hidden must be the widths of at least one layer",
            found=short(self.hidden),
            cure="the paper's are (100, 10)",
        )
        require(
            is_real(self.heldout) and 0 < self.heldout < 1,
            "heldout must lie in (0, 1)",
            found=short(self.heldout),
        )
        require(
            is_real(self.conservatism) and 0 <= self.conservatism < math.inf,
            "conservatism must be a finite number >= 0",
            found=short(self.conservatism),
        )


CQL = RewardSettings(members=1, conservatism=2.0)
"""The paper's conservative model: one MLP, alpha = 2."""
