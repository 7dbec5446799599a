"""The CSV layout of the Open Bandit Dataset (Saito et al., 2021), as its authors publish it.

A first column without a name counts the rows. `propensity_score` is the probability of the item at
its position, so one position is a log by itself; three of them are a slate. The user features are
hashed texts. The affinities of a user to each of the items are many and mostly 0: a guess leaves
them out, a mapping may name them.
"""

from __future__ import annotations

from collections.abc import Sequence

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
