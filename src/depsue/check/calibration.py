"""Do 1/p and the counts agree? For every action, and for all of them together.

If p is the probability of the action that was shown, and action a can be shown in every context::

    E[ 1{A = a} / p ] = 1,     so the sum of 1/p over a's rows is n, within chance

It is less where a cannot be shown in some contexts. So a sum far above n refutes the propensities;
one far below may mean that they are too large, or just that support is partial. Which actions are
looked at is settled on one half of the rows and the sums are taken over the other: an action that
was shown by luck would otherwise be counted only where luck was good.

z = (sum - n) / sqrt(sum of 1/p^2 - sum^2 / n). Above, z has a lighter tail than a normal variable
(a large 1/p enlarges the divisor too). Below it has a heavier one: an action that is hardly ever
shown in some contexts cannot be told from one that never is. So a sum below n is a note, and a
warning only where propensities do not depend on the context, as far as the rows show.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import NormalDist
from typing import TYPE_CHECKING

from depsue.check.report import Finding

if TYPE_CHECKING:
    import polars as pl

LEVEL = 0.001
"""How often correct propensities are refused, at most; half of it for all actions together."""
EVEN = 0.99
FEWEST = 20
"""Rows of an action in either half below which it is not looked at."""
TOO_LARGE = (
    "if all of these actions can be shown in every context, the propensities are too large: "
)
CURE = (
    "log the probability with which the shown item was drawn, by the policy that drew it, after "
    "all filters; keep rows of every item"
)


def calibration(
    actions: pl.DataFrame, totals: dict[str, float], notes: list[str]
) -> Iterator[Finding]:
    """What refutes the propensities, and what may.

    Args:
        actions: as in `Summary`.
        totals: a dict that receives the figures of the test of all actions together.
        notes: receives what may be an error, or may not.
    """
    import polars as pl

    n = int(actions.filter("test")["count"].sum())
    chosen = actions.filter(~pl.col("test") & (pl.col("count") >= FEWEST)).select("action")
    table = actions.filter("test").join(chosen, on="action", how="semi").sort("action")
    if table.is_empty():
        return
    limit = NormalDist().inv_cdf(1 - LEVEL / 4 / len(table))  # both sides, over all actions
    rows = table.select("action", "count", "inverse", "square").rows()
    found = [(a, count, s, *_z(count, s, q, n, n)) for a, count, s, q in rows]
    high = [one for one in found if one[3] > limit]
    low = [one for one in found if one[4] < -limit]
    count, s, q = (sum(row[k] for row in rows) for k in (1, 2, 3))
    above, below = _z(count, s, q, n, n * len(table))
    whole = NormalDist().inv_cdf(1 - LEVEL / 4)
    totals |= {"n": n, "actions": len(table), "sum": s, "z": above}
    said = f"the sum of 1/p is {s:,.0f} over {n:,} rows, {s / (n * len(table)):.4f} of n x actions"
    if above > whole:
        rule = "the sum of 1/p must not exceed rows times actions"
        yield Finding("propensities-sum", "error", rule, f"{said}, z = {above:+.1f}", CURE)
    if high:
        rule = "no action may be shown more often than its propensities say"
        yield Finding("propensities-actions", "error", rule, _listed(high, n, 3, len(table)), CURE)
    if low or below < -whole:
        value = _listed(low, n, 4, len(table)) if low else f"{said}, z = {below:+.1f}"
        if all(_even(*row[1:]) for row in rows):
            rule = "1/p should sum to the number of rows for each action"
            yield Finding("propensities-low", "warning", rule, value, TOO_LARGE + CURE)
        else:
            notes.append(
                f"1/p sums to less than the number of rows ({value}): these actions are hardly "
                "ever shown in some contexts, or their propensities are too large"
            )


def _z(count: int, s: float, q: float, n: int, mean: float) -> tuple[float, float]:
    """z for sums above the mean, and for sums below."""
    variance = q - s * s / n
    floor = mean * (s / max(count, 1) - mean / n)
    high, low = (max(v, 1e-9 * mean * mean / n, 1e-12) for v in (variance, max(variance, floor)))
    return (s - mean) / math.sqrt(high), (s - mean) / math.sqrt(low)


def _even(count: int, s: float, q: float) -> bool:
    """Whether 1/p is almost the same in all rows."""
    return s * s >= EVEN * count * q


def _listed(found: list[tuple[object, int, float, float, float]], n: int, z: int, of: int) -> str:
    worst = max(found, key=lambda one: abs(float(one[z])))  # type: ignore[arg-type]
    return (
        f"{len(found)} of {of} actions; the worst is {worst[0]!r}: 1/p sums to {worst[2] / n:.3f} "
        f"of the rows over {worst[1]:,} rows of it, z = {worst[z]:+.1f}"
    )
