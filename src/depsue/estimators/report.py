"""From terms to an `Estimate`, with one warning where the policy leaves the logs."""

from __future__ import annotations

import math
import warnings

from depsue.data.terms import Terms
from depsue.errors import NovelMassWarning
from depsue.estimators.weights import Unseen
from depsue.protocols import Estimate

NEGLIGIBLE = 1e-12
"""Mass on unseen actions up to here is rounding: no warning."""


def mean_estimate(name: str, terms: Terms, unseen: Unseen, effect: str) -> Estimate:
    """The mean of the terms, as an estimate.

    To be called by `estimate` itself, so that the warning points at the caller's line.

    Args:
        name: the estimator, as the warning calls it.
        terms: the per-row terms.
        unseen: the policy's mass on novel actions that the logs never show.
        effect: what that mass does to this estimator, with figures.
    """
    notes = unseen_notes(name, unseen, effect, stacklevel=4)
    return Estimate(terms.mean(), standard_error(terms), terms, unseen.mass, notes)


def unseen_notes(name: str, unseen: Unseen, effect: str, *, stacklevel: int) -> tuple[str, ...]:
    """The note on unseen mass, warned of at `stacklevel`; none if the mass is negligible."""
    if unseen.mass <= NEGLIGIBLE:
        return ()
    count = len(unseen.actions)
    note = (
        f"{name}: the policy makes {unseen.mass:.4g} of its choices among {count:,} novel "
        f"action{'s' if count > 1 else ''} that the logs never show; {effect}"
    )
    warnings.warn(note, NovelMassWarning, stacklevel=stacklevel)
    return (note,)


def standard_error(terms: Terms) -> float:
    """Of the mean of the terms (per unit where there are units); inf for a single value."""
    values = terms.per_unit(terms.values)
    if len(values) < 2:
        return math.inf
    return float(values.std(ddof=1)) / math.sqrt(len(values))
