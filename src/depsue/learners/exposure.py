"""Least and most exposure of each novel action: factors that scale its odds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from depsue.data.checks import FloatArray
from depsue.errors import require
from depsue.policies.tilted import ByModel

if TYPE_CHECKING:
    from depsue.learners.anticipate import Anticipation
    from depsue.learners.explore_settings import ExploreSettings

ROUNDS = 60


def within_limits(
    known: Anticipation, settings: ExploreSettings, strength: float
) -> FloatArray | None:
    """(A,) factors that bring every novel action's share of the novel exposure within limits.

    Iterative scaling: an action whose share over the contexts is above (below) its limit has its
    odds lowered (raised) by the ratio, until none is. They are those of one strength of q-hat.
    """
    novel = known.novel
    count = int(novel.sum())
    if settings.least == 0 and settings.most == 1:
        return None
    require(
        settings.least * count <= 1 <= settings.most * count,
        "the limits of exposure must leave room for all novel actions",
        found=f"least {settings.least:g}, most {settings.most:g} for {count} novel actions",
        cure=f"least at most and most at least {1 / count:.4g}",
    )
    factors = np.ones(len(novel))
    for _ in range(ROUNDS):
        part = ByModel(
            known.novel_model,
            novel,
            strength=strength,
            scale=known.novel_spread,
            even=settings.even,
            factors=factors,
        )
        shares = known.exposure(part.choice(known.novel_q))[novel]
        wanted = np.clip(shares, settings.least, settings.most)
        if float(np.abs(wanted - shares).max()) < 1e-4 / count:
            break
        factors[novel] *= np.maximum(wanted, 1e-12) / np.maximum(shares, 1e-12)
    return factors
