"""Exposure of the items of a campaign: what is forecast, what was shown, what can be discovered.

`forecast_of` says how often each new item will be shown, `exposure_of` how often each was and what
it earned, `corpus_of` how many items were shown and rewarded often enough to count as discovered.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from depsue import defaults
from depsue.campaigns.recorded import RecordedCampaign
from depsue.campaigns.records import CandidateFacts, RoundLength, RoundSummary
from depsue.data.checks import IntArray, Mask
from depsue.errors import is_whole, require, short
from depsue.exploration.choices import Choice
from depsue.plural import counted, plural
from depsue.promises import Promise

FEWEST = 20
"""Times shown below which no standard error is given: the normal approximation fails there."""
MOST_OF_IT = 0.5
"""Share of what new items are shown above which one item gets most of it."""
HARDLY = 0.2
"""Share of an even share below which an item is hardly shown."""


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


# What is forecast -------------------------------------------------------------------------------

Stage = Literal["candidate", "may be deployed", "deployed"]
"""How far it has come: before a verdict the level is the boldest that is likely to pass."""


@dataclass(frozen=True)
class ItemForecast:
    """One new item.

    Args:
        id: its own.
        shown: how often it is forecast to be shown.
        share: of all that new items are shown.
    """

    id: str
    shown: float
    share: float


@dataclass(frozen=True)
class ExposureForecast:
    """How often each new item is forecast to be shown in a round, at one level of novelty.

    It is of the requests that the candidate was trained on, and of decisions of the policy: a
    holdout on pi0 shows no new item.

    Args:
        round: which.
        stage: how far what shows them has come.
        what: certified or certain.
        novelty: the share of decisions that are to show a new item.
        even: whether it shows them evenly, whatever a model says of them.
        decisions: over how many decisions.
        declared: whether so many are declared; else as many as the newest logs have are assumed.
        shown: how often new items are forecast to be shown, all together.
        items: those shown most first, as far as the ledger keeps them one by one.
        others: how many more there are.
        others_shown: how often these are forecast to be shown, all together.
        warnings: what a reader must know before it is deployed, in sentences.
    """

    round: int
    stage: Stage
    what: str
    novelty: float
    even: bool
    decisions: int
    declared: bool
    shown: float
    items: tuple[ItemForecast, ...]
    others: int
    others_shown: float
    warnings: tuple[str, ...]

    @property
    def policy(self) -> str:
        """What would show the new items, or does."""
        if self.what == "certain":
            return "what needs no certificate"
        if self.stage == "candidate":
            return "the boldest level that is likely to pass"
        return "the certified policy"

    @property
    def sentence(self) -> str:
        """What is forecast."""
        verb = "shows" if self.stage == "deployed" else "would show"
        evenly = ", evenly among the new items of each request" * self.even
        if self.even and self._equal:
            evenly = ", each equally often"
        about = "" if self.declared else ", as many as in the newest logs"
        over = f"Over the {counted(self.decisions, 'decision')} of round {self.round}{about}"
        return (
            f"{over}, {self.policy} (novelty {self.novelty:.3f}) {verb} new items about "
            f"{self.shown:,.0f} times{evenly}."
        )

    def lines(self, most: int = 8) -> Iterator[str]:
        """Items with their numbers, as many as there is room for."""
        count = len(self.items) + self.others
        if self.items and not self.others and self._equal:
            each = self.items[0]
            yield f"each of {counted(count, 'new item')}: {each.shown:,.0f} ({each.share:.1%})"
            return
        top = self.items if count <= most + 1 else self.items[:most]
        width = min(max((len(item.id) for item in top), default=0), 40)
        for item in top:
            yield f"{_cut(item.id):<{width}} {item.shown:>9,.0f} {item.share:>6.1%}"
        if count > len(top):
            rest = self.others_shown + sum(item.shown for item in self.items[len(top) :])
            share = rest / self.shown if self.shown else 0.0
            yield f"{count - len(top):,} more together: {rest:,.0f} ({share:.1%})"

    def __str__(self) -> str:
        warnings = (f"warning: {words}" for words in self.warnings)
        return "\n  ".join([self.sentence, *self.lines(), *warnings])

    @property
    def _equal(self) -> bool:
        return self.items[0].shown - self.items[-1].shown <= 0.005 * self.items[0].shown


def forecast_of(
    campaign: RecordedCampaign,
    k: int,
    choice: Choice,
    stage: Stage,
    *,
    made_in: int | None = None,
    length: RoundLength | None = None,
) -> ExposureForecast | None:
    """How often new items are forecast to be shown; None where nothing is known of that.

    Args:
        campaign: whose; only its ledger is read.
        k: the round.
        choice: what shows them.
        stage: how far that has come.
        made_in: the round that made it; None is round k.
        length: how long the round is to last; None as it is declared, or would be.
    """
    made_in = k if made_in is None else made_in
    candidates = campaign.candidates(made_in)
    decided = campaign.decided(made_in)
    if choice.what == "pi0" or not candidates:
        return None
    facts = CandidateFacts.of(candidates[-1] if decided is None else decided[0])
    if facts.exposure is None:
        return None
    decisions, declared = _decisions_ahead(campaign, k, length)
    of_items = [
        (item.id, item.even if choice.even else item.learned) for item in facts.exposure.items
    ]
    others = facts.exposure.others
    rest = facts.exposure.others_even if choice.even else facts.exposure.others_learned
    total = sum(share for _, share in of_items) + rest
    times = choice.novelty * decisions
    items = tuple(
        ItemForecast(id, share * times, share / total if total else 0.0)
        for id, share in sorted(of_items, key=lambda item: -item[1])
    )
    return ExposureForecast(
        round=k,
        stage=stage,
        what=choice.what,
        novelty=choice.novelty,
        even=choice.even,
        decisions=decisions,
        declared=declared,
        shown=total * times,
        items=items,
        others=others,
        others_shown=rest * times,
        warnings=tuple(_warnings(items, others, rest * times, total * times)),
    )


def forecasts_of(
    campaign: RecordedCampaign, may_deploy: Sequence[Choice]
) -> tuple[ExposureForecast, ...]:
    """What is forecast for the round under way: of what is deployed, else of what may be.

    Before a verdict it is of the boldest level that is likely to pass, and of what needs none.

    Args:
        campaign: whose; only its ledger is read.
        may_deploy: what may be deployed now, the best first.
    """
    k = campaign.round
    if not 0 < k <= campaign.rounds:
        return ()
    deployed = campaign.deployed(k)
    if deployed:
        made_in, choice = campaign.made_in(k, deployed[-1].policy_hash)
        made = [forecast_of(campaign, k, choice, "deployed", made_in=made_in)]
    elif may_deploy:
        made = [forecast_of(campaign, k, choice, "may be deployed") for choice in may_deploy]
    else:
        made = [forecast_of(campaign, k, choice, "candidate") for choice in _likely(campaign, k)]
    return tuple(forecast for forecast in made if forecast is not None)


def _likely(campaign: RecordedCampaign, k: int) -> Iterator[Choice]:
    """What the newest candidate is likely to bring, before its verdict."""
    candidates = campaign.candidates(k)
    facts = CandidateFacts.of(candidates[-1]) if candidates else None
    if facts is None or facts.exposure is None:
        return
    nu, certain = facts.exposure.likely, campaign.settings.explore.certain
    if nu is not None and nu > 0:
        yield Choice("certified", nu, facts.expected.value(nu), "")
    if certain > 0:
        value = facts.expected.value(certain, naive=True)
        yield Choice("certain", certain, value, "", even=facts.expected.even is not None)


def _decisions_ahead(
    campaign: RecordedCampaign, k: int, length: RoundLength | None
) -> tuple[int, bool]:
    """How many decisions round k is to serve, and whether that is declared."""
    length = RoundLength.of(campaign.deployed(k)) if length is None else length
    seen = campaign.ledger.observations(campaign.name)[k - 1]
    rows = campaign.settings.decisions or seen.rows + seen.rows_erased
    if length is None:
        return rows, True  # what `deploy` declares where nothing is said
    return (rows, False) if length.decisions is None else (length.decisions, True)


def _warnings(
    items: Sequence[ItemForecast], others: int, others_shown: float, shown: float
) -> Iterator[str]:
    """What a reader must know: one item gets most of it, or some get nearly none."""
    count = len(items) + others
    if not items or shown <= 0:
        return
    first = items[0]
    if first.share > max(MOST_OF_IT, 1.5 / count):
        yield (
            f"{_cut(first.id)} is forecast to get {first.share:.0%} of all that "
            f"{counted(count, 'new item')} {plural(count, 'is', 'are')} shown: the reward model "
            "prefers it, perhaps by luck. deploy --what certain shows all evenly; create --most "
            "limits each item's share"
        )
    fewest = max(HARDLY * shown / count, FEWEST)
    few = [item for item in items if item.shown < fewest]
    unlisted = others if others and others_shown / others < fewest else 0
    if few or unlisted:
        named = ", ".join(f"{_cut(item.id)} ({item.shown:,.0f} times)" for item in few[-3:][::-1])
        named = f", such as {named}" if named else ""
        n = len(few) + unlisted
        yield (
            f"{n:,} of {counted(count, 'new item')} {plural(n, 'is', 'are')} forecast to be shown "
            f"hardly at all: fewer than {fewest:,.0f} times{named}. "
            + (
                "A longer round or more novelty shows them more"
                if fewest <= FEWEST
                else "create --least gives each item a least share"
            )
        )


def _cut(id: str) -> str:
    return id if len(id) <= 40 else f"{id[:37]}..."


# What can be discovered -------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ItemCounts:
    """Of every item of the catalogue, by its place there, which stays the same for a campaign.

    Args:
        new: (A,) which are new.
        shown: (A,) in how many rows of a round each was shown.
        rewarded: (A,) in how many of those rows that may be looked at it earned a reward.
    """

    new: Mask
    shown: IntArray
    rewarded: IntArray

    def packed(self) -> str:
        """As text for the ledger: a catalogue may have a million items, most of them at 0."""
        columns = np.stack([self.new, self.shown, self.rewarded]).astype("<i8")
        return base64.b64encode(zlib.compress(columns.tobytes())).decode("ascii")

    @classmethod
    def unpacked(cls, text: str) -> ItemCounts:
        """What `packed` wrote."""
        columns = np.frombuffer(zlib.decompress(base64.b64decode(text)), dtype="<i8")
        new, shown, rewarded = columns.reshape(3, -1)
        return cls(new.astype(bool), shown, rewarded)


@dataclass(frozen=True)
class CorpusCount:
    """How many of some items were shown, and rewarded, often enough.

    Args:
        items: how many there are.
        shown: at least as often as the corpus asks.
        rewarded: of these, how many also earned at least as many rewards as it asks, in rows that
            may be looked at; None where an older version took the round in.
    """

    items: int
    shown: int
    rewarded: int | None

    def __str__(self) -> str:
        rewarded = "" if self.rewarded is None else f" ({self.rewarded:,})"
        return f"{self.shown:,}{rewarded} of {self.items:,}"


@dataclass(frozen=True)
class CorpusRound:
    """One round that was observed; round 0 is what pi0 logged before.

    Args:
        round: which.
        new, every: of the new items, and of all, in this round.
        new_so_far, every_so_far: the same from round 0 to this one, counts added up.

    None is what an older version, which took a round in, did not count.
    """

    round: int
    new: CorpusCount
    every: CorpusCount | None
    new_so_far: CorpusCount | None
    every_so_far: CorpusCount | None


@dataclass(frozen=True)
class Corpus:
    """The discoverable corpus: items that were shown and rewarded often enough to be known.

    Impressions count all rows, rewards the learn and select rows only: no page shows rewards of
    rows that a coming verdict reads.

    Args:
        impressions: how often an item must be shown.
        rewards: how many rows of it must have a reward above 0.
        rounds: those that were observed, from round 0.
    """

    impressions: int
    rewards: int
    rounds: tuple[CorpusRound, ...]

    @property
    def rule(self) -> str:
        """What counts, in words."""
        return (
            f"items shown at least {counted(self.impressions, 'time')}; in brackets those of them "
            f"with at least {counted(self.rewards, 'reward')} in learn and select rows"
        )

    @property
    def headings(self) -> tuple[str, ...]:
        """Of its table."""
        return ("round", "new items", "new, so far", "all items", "all, so far")

    @property
    def cells(self) -> tuple[tuple[str, ...], ...]:
        """A row for each round."""
        return tuple(
            (
                str(past.round),
                *(
                    "-" if count is None else str(count)
                    for count in (past.new, past.new_so_far, past.every, past.every_so_far)
                ),
            )
            for past in self.rounds
        )


def corpus_of(
    summaries: Sequence[RoundSummary],
    *,
    impressions: int = defaults.IMPRESSIONS,
    rewards: int = defaults.REWARDS,
) -> Corpus:
    """The discoverable corpus by round, and so far.

    Args:
        summaries: of the rounds that were observed, from round 0.
        impressions: how often an item must be shown, at least 1.
        rewards: how many rewards it must have earned.
    """
    for name, value, least in (("impressions", impressions, 1), ("rewards", rewards, 0)):
        require(
            is_whole(value) and value >= least,
            f"{name} of the discoverable corpus must be a whole number >= {least}",
            found=short(value),
        )

    def count(of: Mask, shown: IntArray, rewarded: IntArray) -> CorpusCount:
        enough = of & (shown >= impressions)
        both = enough & (rewarded >= rewards)
        return CorpusCount(int(of.sum()), int(enough.sum()), int(both.sum()))

    rounds: list[CorpusRound] = []
    new: IntArray = np.zeros(0, dtype=np.int64)
    shown = rewarded = new
    complete = True
    for k, summary in enumerate(summaries):
        if not summary.counts:
            complete = False
            listed = sum(item.shown >= impressions for item in summary.items)
            of_new = CorpusCount(summary.novel_items, listed, None)
            rounds.append(CorpusRound(k, of_new, None, None, None))
            continue
        own = ItemCounts.unpacked(summary.counts)
        new, shown, rewarded = (
            _added(before, now)
            for before, now in ((new, own.new), (shown, own.shown), (rewarded, own.rewarded))
        )
        every = np.ones(len(shown), dtype=bool)
        rounds.append(
            CorpusRound(
                round=k,
                new=count(own.new, own.shown, own.rewarded),
                every=count(np.ones_like(own.new), own.shown, own.rewarded),
                new_so_far=count(new > 0, shown, rewarded) if complete else None,
                every_so_far=count(every, shown, rewarded) if complete else None,
            )
        )
    return Corpus(impressions, rewards, tuple(rounds))


def _added(before: IntArray, now: IntArray | Mask) -> IntArray:
    """(A,) sums by place; items that arrived later have places at the end."""
    total = np.zeros(max(len(before), len(now)), dtype=np.int64)
    total[: len(before)] += before
    total[: len(now)] += now
    return total
