"""What is best among policies that are safe: more novelty, more value, or some of both."""

from __future__ import annotations

import numpy as np

from depsue.data.checks import FloatArray
from depsue.errors import is_real, require, short

MOST_NOVELTY, MOST_VALUE, BALANCED = "most novelty", "most value", "balanced"
NAMED = (MOST_NOVELTY, MOST_VALUE, BALANCED)
DOUBLING, FIRST = 0.04, 0.01
POWERS = (3, 24)
"""Weight of log(1 + novelty / FIRST) beside the sum of (1 - (V(pi0) / value)^p) / p over POWERS:
the first novelty and the first gain in value count most. Who earns as much as pi0 gives up some
1.2% of it for twice the novelty, who earns 5% more some 2%, who earns a quarter more some 5%."""


def require_objective(objective: object) -> None:
    """Refuse what is neither a named objective nor a weight."""
    weight = not isinstance(objective, str) and is_real(objective)
    require(
        objective in NAMED or (weight and 0 <= float(objective) < np.inf),  # type: ignore[arg-type]
        f"the objective must be {', '.join(NAMED)}, or a weight >= 0 of novelty",
        found=short(objective),
        cure="0.5 says that a point of novelty is worth half a point of value",
    )


def worth(objective: str | float, value: FloatArray, novelty: FloatArray) -> FloatArray:
    """What an objective says of policies, from their value / V(pi0) and novelty."""
    if objective == MOST_NOVELTY:
        return np.asarray(novelty)
    if objective == BALANCED:
        some = np.maximum(value, 0.5)  # far below any floor that is kept
        gain = sum((1 - some ** -float(p)) / p for p in POWERS)
        return np.asarray(gain + DOUBLING * np.log1p(novelty / FIRST))
    weight = 0.0 if isinstance(objective, str) else float(objective)
    return np.asarray(value + weight * novelty)


def in_words(objective: str | float) -> str:
    """What is sought."""
    if objective == BALANCED:
        gain = " + ".join(f"(1 - (V(pi0) / value)^{p}) / {p}" for p in POWERS)
        return f"the most of {gain} + {DOUBLING:g} log(1 + novelty / {FIRST:g})"
    if isinstance(objective, str):
        return f"the {objective}"
    return f"the most of value + {objective:g} x novelty"
