"""Exposure of the new items of a campaign: how often each was shown, and what it earned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from depsue.campaigns.records import RoundSummary
from depsue.promises import Promise

FEWEST = 20
"""Times shown below which no standard error is given: the normal approximation fails there."""


@dataclass(frozen=True)
class ItemExposure:
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

    items: tuple[ItemExposure, ...]
    shown: int
    rows: int
    unlisted: int

    @property
    def never(self) -> int:
        """Listed items that were not shown yet."""
        return sum(item.shown == 0 for item in self.items)


def exposure_of(promises: Sequence[Promise], summaries: Sequence[RoundSummary]) -> Exposure:
    """The exposure of new items over the rounds from 1 on.

    A standard error needs the second moment, which is not kept by item. Rewards of 0 or c have
    the variance m (c - m), and c = E[r^2] / E[r] over the whole of a round; so it is exact for
    rewards of 0 or 1, and takes each item's rewards to be spread as all are elsewhere.

    Args:
        promises: of the campaign; one about the logs' own reward gives c.
        summaries: of the rounds that were observed, from round 0.
    """
    rounds = summaries[1:]
    shown: dict[str, list[int]] = {}
    earned: dict[str, float] = {}
    read: dict[str, int] = {}  # rows whose rewards may be looked at
    for place, summary in enumerate(rounds):
        for item in summary.items:
            shown.setdefault(item.id, [0] * len(rounds))[place] += item.shown
            earned[item.id] = earned.get(item.id, 0.0) + item.reward
            seen = item.shown if item.read is None else item.read
            read[item.id] = read.get(item.id, 0) + seen
    for item in summaries[0].items if summaries else ():  # known before the campaign, not shown yet
        shown.setdefault(item.id, [0] * len(rounds))
    scale = _reward_scale(promises, summaries)
    total = sum(summary.novel_rows for summary in rounds)
    items = []
    for id, counts in shown.items():
        n = sum(counts)
        seen = read.get(id, 0)
        mean = earned.get(id, 0.0) / seen if seen else None
        share = n / total if total else 0.0
        error = _item_error(mean, seen, scale)
        items.append(ItemExposure(id, n, tuple(counts), mean, error, share))
    most = max((summary.novel_items for summary in summaries), default=0)
    return Exposure(
        items=tuple(sorted(items, key=lambda item: -item.shown)),
        shown=total,
        rows=sum(summary.rows for summary in rounds),
        unlisted=max(most - len(items), 0),
    )


def _reward_scale(promises: Sequence[Promise], summaries: Sequence[RoundSummary]) -> float | None:
    """E[r^2] / E[r] of the logs' own reward, in the newest round that tells."""
    plain = [promise.name for promise in promises if promise.plain]
    for name in plain:
        for summary in reversed(summaries):
            reward = summary.promises[name]
            if reward.mean > 0:
                n = reward.rows * summary.read_share
                return reward.error**2 * n / reward.mean + reward.mean
    return None


def _item_error(mean: float | None, n: int, scale: float | None) -> float | None:
    if mean is None or scale is None or n < FEWEST or not 0 < mean < scale:
        return None
    return float((mean * (scale - mean) / n) ** 0.5)
