"""The `bandit_feedback` dict of Open Bandit Pipeline, as the arguments of `from_arrays`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from depsue.data.catalogue import ActionCatalogue
from depsue.errors import DataError

NEEDED = ("n_actions", "context", "action", "reward", "pscore")


def rows_of_feedback(
    feedback: Mapping[str, Any], novel: Sequence[int], position: int | None
) -> dict[str, Any]:
    """contexts, actions, rewards, propensities and the catalogue of a feedback dict."""
    for key in NEEDED:
        if feedback.get(key) is None:
            raise DataError(
                f"bandit feedback needs {', '.join(NEEDED)}",
                column=key,
                found=f"no '{key}' among {', '.join(map(str, feedback))}",
                cure="pass the dict that obp's obtain_batch_bandit_feedback returns",
            )
    columns = {name: np.asarray(feedback[name]) for name in NEEDED[1:]}
    n = len(columns["action"])
    for name, values in columns.items():
        if len(values) != n:
            raise DataError(
                "all columns must have the same length",
                column=name,
                found=f"'{name}' has {len(values):,} rows, 'action' has {n:,}",
            )
    keep = _one_position(feedback.get("position"), position, n)
    return {
        "contexts": columns["context"][keep],
        "actions": columns["action"][keep],
        "rewards": columns["reward"][keep],
        "propensities": columns["pscore"][keep],
        "catalogue": ActionCatalogue.of(
            np.arange(int(feedback["n_actions"])),
            novel=novel,
            features=feedback.get("action_context"),
        ),
    }


def _one_position(given: Any, wanted: int | None, n: int) -> Any:
    """The rows of one position: depsue judges one choice at a time, not slates."""
    if given is None:
        return slice(None)
    positions = np.asarray(given)
    if len(positions) != n:
        raise DataError(
            "all columns must have the same length",
            column="position",
            found=f"'position' has {len(positions):,} rows, 'action' has {n:,}",
        )
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
            found=f"{wanted}, while there are {present}",
        )
    return positions == (present[0] if wanted is None else wanted)
