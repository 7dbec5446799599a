"""Policies in the order in which they are tested."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from depsue.data.checks import FloatArray
from depsue.errors import PolicyError, require
from depsue.policies import BasePolicy, Mixture
from depsue.protocols import Policy


@dataclass(frozen=True, eq=False)
class Levels:
    """Policies in the order in which they are tested, safest first: mixtures of the same parts.

    Args:
        parts: the policies that are mixed; None stands for the policy that logged the rows.
        shares: (L, parts) shares of each level, which sum to 1.
    """

    parts: tuple[Policy | None, ...]
    shares: FloatArray

    def __post_init__(self) -> None:
        shares = np.atleast_2d(np.asarray(self.shares, dtype=np.float64))
        require(
            shares.ndim == 2
            and shares.shape[0] >= 1
            and shares.shape[1] == len(self.parts)
            and bool((shares >= 0).all())
            and bool((np.abs(shares.sum(axis=1) - 1) < 1e-9).all()),
            "levels need one share >= 0 for every part, and shares must sum to 1",
            found=f"shares of shape {shares.shape} for {len(self.parts)} parts",
        )
        object.__setattr__(self, "shares", shares)

    def policy(self, level: int) -> BasePolicy:
        """The policy of one level."""
        if None in self.parts:
            raise PolicyError(
                "a level with a part that only the logs know cannot be built",
                found="the policy that logged the rows is a part, and is not callable",
                cure="serve the other parts with their shares and your own policy with the rest",
            )
        parts = [part for part in self.parts if part is not None]
        kept = [(p, s) for p, s in zip(parts, self.shares[level], strict=True) if s > 0]
        if len(kept) == 1 and isinstance(kept[0][0], BasePolicy):
            return kept[0][0]
        return Mixture([p for p, _ in kept], [s for _, s in kept])
