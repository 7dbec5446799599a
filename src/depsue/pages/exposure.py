"""How often each new item was shown, and what it earned: sums over all rounds so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from depsue.campaigns import Campaign
from depsue.campaigns.records import RoundSummary
from depsue.ledger import ObservationRecord

FEWEST = 20
"""Times shown below which no standard error is given: the normal approximation fails there."""


@dataclass(frozen=True)
class Item:
    """One new item.

    Args:
        id: its own.
        shown: how often, over all rounds.
        by_round: how often in each round from 1 on.
        mean: of its reward; None if it was never shown.
        error: its standard error; None where too few were shown to say.
        share: of all that new items were shown.
    """

    id: str
    shown: int
    by_round: tuple[int, ...]
    mean: float | None
    error: float | None
    share: float


@dataclass(frozen=True)
class Exposure:
    """All new items, those shown most first.

    Args:
        items: as far as the ledger keeps them one by one.
        shown: decisions that showed a new item.
        rows: decisions served in the campaign.
        unlisted: items that the ledger does not keep one by one, for they were shown least.
    """

    items: tuple[Item, ...]
    shown: int
    rows: int
    unlisted: int

    @property
    def never(self) -> int:
        """Listed items that were not shown yet."""
        return sum(one.shown == 0 for one in self.items)


def exposure_of(campaign: Campaign, observations: Sequence[ObservationRecord]) -> Exposure:
    """The exposure of new items over the rounds from 1 on.

    A standard error needs the second moment, which is not kept by item. Rewards of 0 or c have
    the variance m (c - m), and c = E[r^2] / E[r] over the whole of a round; so it is exact for
    rewards of 0 or 1, and takes each item's rewards to be spread as all are elsewhere.
    """
    first, rounds = None, []
    if observations:
        first, *rounds = (RoundSummary.of(one) for one in observations)
    shown: dict[str, list[int]] = {}
    earned: dict[str, float] = {}
    for place, summary in enumerate(rounds):
        for item in summary.items:
            counts = shown.setdefault(item.id, [0] * len(rounds))
            counts[place] += item.shown
            earned[item.id] = earned.get(item.id, 0.0) + item.reward
    for item in first.items if first is not None else ():
        shown.setdefault(item.id, [0] * len(rounds))
    scale = _scale(campaign, observations)
    total = sum(summary.novel_rows for summary in rounds)
    found = []
    for id, counts in shown.items():
        n = sum(counts)
        mean = earned.get(id, 0.0) / n if n else None
        found.append(
            Item(id, n, tuple(counts), mean, _error(mean, n, scale), n / total if total else 0.0)
        )
    most = max((RoundSummary.of(one).novel_items for one in observations), default=0)
    return Exposure(
        items=tuple(sorted(found, key=lambda one: -one.shown)),
        shown=total,
        rows=sum(one.rows for one in observations[1:]),
        unlisted=max(most - len(found), 0),
    )


def _scale(campaign: Campaign, observations: Sequence[ObservationRecord]) -> float | None:
    """E[r^2] / E[r] of the logs' own reward, in the newest round that tells."""
    for promise in campaign.settings.explore.promises:
        if promise.reward is not None or promise.segment is not None:
            continue
        for one in reversed(observations):
            seen = RoundSummary.of(one).promises[promise.name]
            if seen.mean > 0:
                return seen.error**2 * seen.rows / seen.mean + seen.mean
    return None


def _error(mean: float | None, n: int, scale: float | None) -> float | None:
    if mean is None or scale is None or n < FEWEST or not 0 < mean < scale:
        return None
    return float((mean * (scale - mean) / n) ** 0.5)
