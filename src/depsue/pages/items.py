"""The new items: how often each was shown and what it earned, in observed rounds and now."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from depsue.pages.exposure import Exposure
from depsue.serving.watching import MonitorRun

MOST = 500
"""New items that a page lists: those shown most."""


@dataclass(frozen=True)
class Shown:
    """One new item.

    Args:
        id: its own.
        shown, mean, error: in the rounds that were observed; the mean reward and its standard
            error where there are enough to say.
        shown_now, mean_now: in the present epoch; 0 and None where it is not served here.
    """

    id: str
    shown: int
    mean: float | None
    error: float | None
    shown_now: int = 0
    mean_now: float | None = None

    @property
    def together(self) -> int:
        """How often in all."""
        return self.shown + self.shown_now


@dataclass(frozen=True)
class NewItems:
    """The new items of a campaign, those shown most first.

    Args:
        items: as many as are listed.
        more: how many are not.
        shown, rows: decisions with a new item, and all, in the rounds that were observed.
        shown_now, rows_now: in the present epoch, those of the policy.
    """

    items: tuple[Shown, ...]
    more: int
    shown: int
    rows: int
    shown_now: int
    rows_now: int


def new_items(exposure: Exposure, watching: MonitorRun | None) -> NewItems:
    """The new items.

    Args:
        exposure: what the ledger knows.
        watching: the present epoch; None where the campaign is not served here.
    """
    found = {one.id: Shown(one.id, one.shown, one.mean, one.error) for one in exposure.items}
    shown_now = rows_now = 0
    if watching is not None:
        shown, earned = watching.shown.copy(), watching.earned.copy()
        novel = np.flatnonzero(watching.served.catalogue.novel)
        shown_now, rows_now = int(shown[novel].sum()), int(shown.sum())
        for place in novel.tolist():
            id, n = str(watching.served.ids[place]), int(shown[place])
            old = found.get(id, Shown(id, 0, None, None))
            mean = float(earned[place]) / n if n else None
            found[id] = Shown(id, old.shown, old.mean, old.error, n, mean)
    every = sorted(found.values(), key=lambda one: -one.together)
    unlisted = exposure.unlisted if watching is None else 0
    return NewItems(
        items=tuple(every[:MOST]),
        more=max(len(every) - MOST, 0) + unlisted,
        shown=exposure.shown,
        rows=exposure.rows,
        shown_now=shown_now,
        rows_now=rows_now,
    )
