"""The two formats of Open Bandit (Saito et al., 2021): the dataset's CSV, the pipeline's dict.

The dataset's CSV, as its authors publish it, is read like any file; `is_open_bandit` recognises its
columns, so that `depsue check` can guess the mapping. The first column has no name and counts rows.
`propensity_score` is the probability of the item at its position, so the rows of one position are a
log; all three positions are a slate. Those of the policy `bts` are Monte Carlo estimates, multiples
of 1/200,000, which `simulated_draws` recognises. User features are hashed texts. The affinities of
a user to each item are many and mostly 0, so a guess leaves them out; a mapping may name them.

Open Bandit Pipeline hands logs over as a dict, `bandit_feedback`; `rows_of_feedback` turns it into
the arguments of `LoggedData.from_arrays`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from depsue.data.catalogue import Catalogue
from depsue.data.checks import (
    FloatArray,
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


SIMULATED = 200_000
"""Draws that the propensities of `bts` are shares of."""


def simulated_draws(propensities: FloatArray) -> int | None:
    """How many simulated draws propensities are shares of; None where they are no such shares.

    One number for all rows, as `random` has, is exact.
    """
    p = np.asarray(propensities, dtype=np.float64)
    p = p[np.isfinite(p)]
    shares = p * SIMULATED
    even = len(np.unique(p)) <= 1
    return None if even or bool((np.abs(shares - np.rint(shares)) > 1e-6).any()) else SIMULATED


NEEDED = ("n_actions", "context", "action", "reward", "pscore")
NAMES = {"propensity": "pscore"}
"""What depsue calls a column -> what obp calls it."""


def rows_of_feedback(
    feedback: Mapping[str, Any], novel: Sequence[int], position: int | None
) -> tuple[dict[str, Any], IntArray]:
    """contexts, actions, rewards, propensities and the catalogue; and (m,) which rows they are."""
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
    rows = _one_position(feedback.get("position"), position, n)
    return {
        "contexts": columns["context"][rows],
        "actions": columns["action"][rows],
        "rewards": columns["reward"][rows],
        "propensities": columns["pscore"][rows],
        "catalogue": _catalogue(feedback, novel),
    }, rows


def _catalogue(feedback: Mapping[str, Any], novel: Sequence[int]) -> Catalogue:
    size = feedback["n_actions"]
    require(
        is_whole(size) and size > 0,
        "n_actions must be a whole number, at least 1",
        found=short(size),
        cure="pass the number of actions that pi_b could choose from",
    )
    with naming({"features": "action_context"}):
        features = feedback.get("action_context")
        return Catalogue.of(np.arange(size), novel=novel, features=features)


def _one_position(column: Any, wanted: int | None, n: int) -> IntArray:
    """(m,) the rows of one position: depsue judges one choice at a time, not slates."""
    if column is None:
        require(
            wanted is None, "a position needs feedback with positions", found=f"position={wanted}"
        )
        return np.arange(n)
    positions = whole_column(column, "position", below=2**31, cure="count positions from 0")
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
