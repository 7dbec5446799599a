"""Terms without a declared lower limit: an estimate can be made of them, a bound cannot."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from depsue.data.terms import Terms


@dataclass(frozen=True, eq=False)
class UnboundedTerms(Terms):
    """Terms for which no finite lower limit can be declared: `lower` is -inf.

    Args:
        values: (n,) the terms.
        unit: (n,) unit of each row, 0 .. v - 1; None if rows stand for themselves.
    """

    lower: float = field(default=-math.inf, init=False)

    def __post_init__(self) -> None:
        checked = Terms(self.values, -np.finfo(np.float64).max, unit=self.unit)
        object.__setattr__(self, "values", checked.values)
        object.__setattr__(self, "unit", checked.unit)
