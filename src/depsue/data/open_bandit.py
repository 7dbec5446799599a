"""The CSV layout of the Open Bandit Dataset (Saito et al., 2021), as its authors publish it.

A first column without a name counts the rows. `propensity_score` is the probability of the item at
its position, so one position is a log by itself; three of them are a slate. The user features are
hashed texts. The affinities of a user to each of the items are many and mostly 0: a guess leaves
them out, a mapping may name them.

The `bandit_feedback` dict of Open Bandit Pipeline, as the arguments of `from_arrays`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from depsue.data.catalogue import ActionCatalogue
from depsue.data.checks import (
    IntArray,
    as_array,
    as_column,
    naming,
    require_rows,
    same_length,
    whole_column,
)
from depsue.errors import DataError, is_whole, require, short

ROLES = {
    "action": "item_id",
    "reward": "click",
    "propensity": "propensity_score",
    "time": "timestamp",
    "position": "position",
}
CONTEXT, AFFINITY = "user_feature_", "user-item_affinity_"


def is_open_bandit(names: Sequence[str]) -> bool:
    """Whether the columns are those of the dataset."""
    return set(ROLES.values()) <= set(names) and any(name.startswith(CONTEXT) for name in names)


def left_out(names: Sequence[str]) -> list[str]:
    """The columns that a guess does not read."""
    return [name for name in names if name.startswith(AFFINITY)]


NEEDED = ("n_actions", "context", "action", "reward", "pscore")
NAMES = {"propensity": "pscore"}
"""What depsue calls a column -> what obp calls it."""


def rows_of_feedback(
    feedback: Mapping[str, Any], novel: Sequence[int], position: int | None
) -> tuple[dict[str, Any], IntArray]:
    """contexts, actions, rewards, propensities and the catalogue; and the rows that were kept."""
    require(
        isinstance(feedback, Mapping),
        "bandit feedback must be a dict",
        found=short(feedback),
        cure="pass the dict that obp's obtain_batch_bandit_feedback returns",
    )
    for key in NEEDED:
        if feedback.get(key) is None:
            raise DataError(
                f"bandit feedback needs {', '.join(NEEDED)}",
                column=key,
                found=f"only {', '.join(map(str, feedback))}",
                cure="pass the dict that obp's obtain_batch_bandit_feedback returns",
            )
    columns = {name: as_column(feedback[name], name) for name in ("action", "reward", "pscore")}
    columns["context"] = as_array(feedback["context"], "context")
    n = len(columns["action"])
    require_rows(n)
    for name, values in columns.items():
        same_length(name, len(np.atleast_1d(values)), n)
    if feedback.get("n_rounds") is not None:
        same_length("n_rounds", int(feedback["n_rounds"]), n)
    kept = _one_position(feedback.get("position"), position, n)
    return {
        "contexts": columns["context"][kept],
        "actions": columns["action"][kept],
        "rewards": columns["reward"][kept],
        "propensities": columns["pscore"][kept],
        "catalogue": _catalogue(feedback, novel),
    }, kept


def _catalogue(feedback: Mapping[str, Any], novel: Sequence[int]) -> ActionCatalogue:
    size = feedback["n_actions"]
    require(
        is_whole(size) and size > 0,
        "n_actions must be a whole number, at least 1",
        found=short(size),
        cure="pass the number of actions that pi_b could choose from",
    )
    with naming({"features": "action_context"}):
        features = feedback.get("action_context")
        return ActionCatalogue.of(np.arange(size), novel=novel, features=features)


def _one_position(given: Any, wanted: int | None, n: int) -> IntArray:
    """(m,) the rows of one position: depsue judges one choice at a time, not slates."""
    if given is None:
        require(
            wanted is None, "a position needs feedback with positions", found=f"position={wanted}"
        )
        return np.arange(n)
    positions = whole_column(given, "position", below=2**31, cure="count positions from 0")
    same_length("position", len(positions), n)
    present = np.unique(positions).tolist()
    if wanted is None and len(present) > 1:
        raise DataError(
            "slates are not supported: rows must be of one position",
            column="position",
            found=f"positions {present}",
            cure=f"choose one, for example position={present[0]}",
        )
    if wanted is not None and wanted not in present:
        raise DataError(
            "the position must occur in the feedback",
            column="position",
            found=f"positions {present}, while {short(wanted)} was asked for",
            cure="ask for one of them",
        )
    return np.flatnonzero(positions == (positions[:1] if wanted is None else wanted))
