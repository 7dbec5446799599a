"""Did rewards or contexts change over time? The first half of a sample against the second.

The limits are those of `certificates.change`, which hold at every number of rows; where there are
units, each is one value. A number is compared by how often it exceeds its median, text by how often
it has each of its most frequent values.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from depsue.check.report import Finding
from depsue.data.mapping import LogMapping

if TYPE_CHECKING:
    import polars as pl

LEVEL = 0.01
MOST_VALUES, MOST_TESTS = 4, 200
"""Values of a text column, and tests in all, at most."""


def changes(sample: pl.DataFrame, mapping: LogMapping, notes: list[str]) -> Iterator[Finding]:
    """What changed from the first to the second half, in time where it is known."""
    from depsue.certificates.change import FEWEST, Side, change_between

    rows = _in_order(sample, notes)
    series = list(_series(rows, mapping))
    if len(series) > MOST_TESTS:
        notes.append(f"drift was looked for in the first {MOST_TESTS} of {len(series)} values")
    series = series[:MOST_TESTS]
    half = len(rows) // 2
    ids = np.unique(rows["unit"].to_numpy(), return_inverse=True)[1] if "unit" in rows else None
    drifted = []
    for what, values in series:
        sides = [
            Side(part, np.ones(len(part)), True, 1.0, 1.0, None if ids is None else ids[place])
            for place in (slice(half), slice(half, len(rows)))
            for part in [values[place]]
        ]
        change = change_between(sides[0], sides[1], LEVEL / len(series) / 2)
        if change is None:
            notes.append(f"fewer than {FEWEST} values in a half: no test of drift")
            return
        if change.low > 0 or change.high < 0:
            drifted.append((what, change))
    for of_reward in (True, False):
        some = [one for one in drifted if (one[0] == "reward") == of_reward]
        if some:
            what, change = max(some, key=lambda one: max(one[1].low, -one[1].high))
            scale = mapping.r_max if of_reward else 1.0
            more = f" (and {len(some) - 1} more)" if len(some) > 1 else ""
            yield Finding(
                "drift-reward" if of_reward else "drift-context",
                "warning",
                f"{'rewards' if of_reward else 'contexts'} should not change over time",
                f"{what}: mean {change.before * scale:.4g} in the first half, "
                f"{change.after * scale:.4g} in the second{more}",
                "use newer logs only, or do not declare no_drift: certificates then compare with "
                "pi0 in the same rows",
            )


def _in_order(sample: pl.DataFrame, notes: list[str]) -> pl.DataFrame:
    import polars as pl

    if "round" in sample:
        first = sample["round"].min()
        sample = sample.filter(pl.col("round") == first)
    if "time" in sample:
        return sample.sort("time", maintain_order=True)
    notes.append("no times: drift was looked for in the order of rows")
    return sample


def _series(rows: pl.DataFrame, mapping: LogMapping) -> Iterator[tuple[str, Any]]:
    """What is compared, and (n,) its values in [0, 1]."""
    yield "reward", rows["reward"].to_numpy() / mapping.r_max
    for name in mapping.numeric:
        x = rows[f"x:{name}"].to_numpy()
        above = (x > np.median(x)).astype(float)
        if above.any():
            yield f"'{name}' above its median", above
    for name in mapping.categorical:
        column = rows[f"x:{name}"].fill_null("")
        common = column.value_counts(sort=True).head(MOST_VALUES)[column.name].to_list()
        for value in common[1:] if len(common) == 2 else common:
            yield f"'{name}' = {value!r}", (column == value).to_numpy().astype(float)
