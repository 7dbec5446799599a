"""The story of a campaign: one frozen record that every page, table and JSON twin renders.

`story_of` builds it from the ledger alone; no log is read. The rules stand here and nowhere else:

- **required value** (`need`): the floor, the mean reward that the promise asks for. A floor
  that is a share of pi0's value is taken of the mean of pi0's first logs, so it is an estimate.
- **margin**: (mean - need) x decisions of each round that was served and observed, an estimate.
- **against the floor**: above or below by more than two standard errors, else unclear.
- **mood**: bad with a concern or a failed test, good with a passed one or a value above its floor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from typing import Any, Literal

from depsue import codec, defaults
from depsue.campaigns.exposure import (
    Corpus,
    Exposure,
    ExposureForecast,
    corpus_of,
    exposure_of,
    forecasts_of,
)
from depsue.campaigns.recorded import RecordedCampaign, before_planning, next_command
from depsue.campaigns.records import CandidateFacts, CandidateTest, RoundLength, RoundSummary
from depsue.exploration.choices import Choice
from depsue.exploration.rounds import NO_DRIFT
from depsue.exploration.settings import ExploreSettings
from depsue.ledger import (
    DeploymentRecord,
    JournalEntry,
)
from depsue.promises import Promise

Against = Literal["above", "below", "unclear", "not observed"]
"""Where a mean lies against its floor, by two standard errors."""
Mood = Literal["good", "bad", "plain"]
ConcernKind = Literal[
    "round below",
    "together below",
    "paper certificate",
    "estimated certificate",
    "pi0 changed",
    "earlier certificate",
    "erasure unfinished",
]


@dataclass(frozen=True)
class Story:
    """A campaign, from its creation to now.

    Args:
        name: of the campaign.
        created, by: when and by whom it was created.
        as_of: of the newest line in the journal; None without one.
        round, rounds: under way, of K; round K + 1 says that it is over.
        settings: promises, delta and safety, as declared.
        retries: whether further attempts on the same rows were declared.
        next: what to do now, a command.
        before_planning: what must be done before a round can be planned; "" if one can be now.
        mood: good, bad or plain.
        concerns: what a reader must not miss.
        may_deploy: what may be deployed now, the best first.
        history: every round so far, from round 0.
        promises: every promise, round by round.
        tests: every candidate and its test, oldest first.
        deployments: oldest first. The last one is to serve; whether it decides is for a service to
            say, which may have stopped it.
        items: exposure of the new items.
        forecasts: how often new items are forecast to be shown in the round under way: by what is
            deployed, else by what may be, the best first.
        corpus: how many items were shown and rewarded often enough, by round and so far.
        journal: who did what when, oldest first.
    """

    name: str
    created: datetime
    by: str
    as_of: datetime | None
    round: int
    rounds: int
    settings: ExploreSettings
    retries: bool
    next: str
    before_planning: str
    mood: Mood
    concerns: tuple[Concern, ...]
    may_deploy: tuple[Choice, ...]
    history: tuple[RoundStory, ...]
    promises: tuple[PromiseHistory, ...]
    tests: tuple[CandidateTest, ...]
    deployments: tuple[DeployedPolicy, ...]
    items: Exposure
    forecasts: tuple[ExposureForecast, ...]
    corpus: Corpus
    journal: tuple[JournalEntry, ...]

    @property
    def over(self) -> bool:
        """Whether every round was observed."""
        return self.round > self.rounds

    @property
    def begun(self) -> bool:
        """Whether pi0's logs are taken in."""
        return self.history[0].rows is not None

    @property
    def deployed(self) -> DeployedPolicy | None:
        """What is deployed; None if nothing is, and pi0 goes on as before the campaign."""
        return self.deployments[-1] if self.deployments else None

    @property
    def first(self) -> PromiseHistory | None:
        """The first promise, which says what value means; None before anything was observed."""
        return self.promises[0] if self.promises[0].outcomes else None

    @property
    def plain(self) -> PromiseHistory | None:
        """The strictest promise about the logs' own reward over all rows; None if none is."""
        observed = [
            history for history in self.promises if history.outcomes and history.promise.plain
        ]
        return max(observed, key=lambda history: history.outcomes[0].need, default=None)

    def tests_of(self, k: int) -> tuple[CandidateTest, ...]:
        """The candidates of round k, oldest first."""
        return tuple(test for test in self.tests if test.round == k)

    def as_json(self) -> dict[str, Any]:
        """JSON values of all fields."""
        values: dict[str, Any] = codec.plain(self)
        return values

    def __str__(self) -> str:
        from depsue.campaigns.status import status_text

        return status_text(self)


@dataclass(frozen=True)
class Concern:
    """Something that a reader must not miss.

    Args:
        kind: which.
        promise: its name, where it is about one.
        rounds: which rounds it is about.
    """

    kind: ConcernKind
    promise: str = ""
    rounds: tuple[int, ...] = ()

    def __str__(self) -> str:
        rounds = ", ".join(str(k) for k in self.rounds)
        if self.kind == "together below":
            return (
                f"{self.promise}: all deployments together lie below the floor by more than two "
                "standard errors."
            )
        if self.kind == "round below":
            return (
                f"{self.promise}: the mean reward of round {rounds} lies below the floor by more "
                "than two standard errors."
            )
        if self.kind == "paper certificate":
            return f"Round {rounds} has a certificate as published, which has gaps."
        if self.kind == "erasure unfinished":
            return "An erasure was cut short. Run the same depsue erase again."
        if self.kind == "estimated certificate":
            return (
                f"The certificate of round {rounds} rests on estimated propensities. Its delta is "
                "not guaranteed: log propensities from now on."
            )
        if self.kind == "pi0 changed":
            return (
                f"Before round {rounds}, pi0's value was found to have changed, although it was "
                "declared not to: from then on rows are paired with pi0, and earlier certificates "
                "that rest on the declaration are in doubt. Floors and margins in the table are "
                "still taken of pi0's value in the first logs."
            )
        return (
            "The deployed policy was certified in an earlier round, with the margin of that time; "
            "nothing certifies anew that all deployments together stay above the floor."
        )


@dataclass(frozen=True)
class RoundStory:
    """One round, as far as it has come.

    Args:
        round: 0 for what pi0 logged before.
        rows: decisions observed; None before.
        novelty: share of novel items in what was served, by the policy's own probabilities.
        served: what served: pi0, certain, certified; None before.
        verdict: of its newest test: passed, failed, open or abandoned; None without one.
        attempt: which read of the certifying rows that was.
        certified: the certified novelty; None without a certificate that passed.
        arrived: ids of items that came with its rows.
        withdrawn: ids of items that left with its rows, and did not come back.
        declared: how long it was declared to last, in words; "" if nothing was.
        ended: why it did not end as declared, in words; "" if it did, or goes on.
        decisions: served in it, whoever decided; None before.
        read: rows whose rewards are in the means: learn and select rows only, for a page shows no
            reward of rows that a coming verdict reads. None is all.
        erased: rows that were taken out on request of users.
    """

    round: int
    rows: int | None = None
    novelty: float | None = None
    served: str | None = None
    verdict: str | None = None
    attempt: int | None = None
    certified: float | None = None
    arrived: tuple[str, ...] = ()
    withdrawn: tuple[str, ...] = ()
    declared: str = ""
    ended: str = ""
    decisions: int | None = None
    read: int | None = None
    erased: int = 0


@dataclass(frozen=True)
class PromiseOutcome:
    """One promise in one round.

    Args:
        round: which; 0 is what pi0 logged before the campaign.
        rows: decisions that the promise is about; 0 where nothing was observed yet.
        mean, error: of the reward, with its standard error; None where nothing was observed yet.
        need, need_error: the required value and its standard error, 0 where it was declared.
        margin: (mean - need) x rows; None for round 0 and what was not observed.
        certified: what the certificate says that the value is at least, on the same scale; None
            without one that passed.
        counted_on: margin that the certificate counted on, in the same unit as `margin`.
        followed: whether what was certified is what served.
    """

    round: int
    rows: int
    mean: float | None
    error: float | None
    need: float
    need_error: float
    margin: float | None = None
    certified: float | None = None
    counted_on: float = 0.0
    followed: bool = False

    @property
    def against(self) -> Against:
        """Where the mean lies against the floor."""
        if self.mean is None or self.error is None:
            return "not observed"
        return _against(self.mean - self.need, (self.error**2 + self.need_error**2) ** 0.5)


@dataclass(frozen=True)
class PromiseHistory:
    """One promise and its outcomes, from round 0 on; none before pi0's logs are taken in."""

    promise: Promise
    outcomes: tuple[PromiseOutcome, ...]

    @property
    def observed(self) -> tuple[PromiseOutcome, ...]:
        """Of the rounds that were observed."""
        return tuple(outcome for outcome in self.outcomes if outcome.mean is not None)

    @property
    def margin(self) -> float | None:
        """Earned above the floor so far, an estimate; None before a round was observed."""
        earned = [outcome.margin for outcome in self.outcomes if outcome.margin is not None]
        return sum(earned) if earned else None

    @property
    def together(self) -> Against:
        """Where all rounds together lie against the floor."""
        if self.margin is None:
            return "not observed"
        served = self.observed[1:]
        # Rounds are independent of each other, while all share the one estimate of the floor.
        spread = sum((outcome.rows * (outcome.error or 0.0)) ** 2 for outcome in served)
        floor = sum(outcome.rows for outcome in served) * self.outcomes[0].need_error
        return _against(self.margin, (spread + floor**2) ** 0.5)


@dataclass(frozen=True)
class DeployedPolicy:
    """What was put in service.

    Args:
        round, kind, at, by: as recorded; the kind is deploy or rollback.
        policy: its hash.
        what: certified, certain or pi0.
        novelty: of its decisions.
        made_in: the round that it was made for: an earlier one after a rollback; None for pi0.
        even: whether it shows the new items evenly, whatever a model says of them.
    """

    round: int
    kind: str
    at: datetime
    by: str
    policy: str
    what: str
    novelty: float
    made_in: int | None
    even: bool = False


def story_of(
    campaign: RecordedCampaign,
    *,
    impressions: int = defaults.IMPRESSIONS,
    rewards: int = defaults.REWARDS,
) -> Story:
    """The story of a campaign, from the ledger alone.

    Args:
        campaign: whose.
        impressions, rewards: what an item needs to count in the discoverable corpus.
    """
    ledger, name, explore = campaign.ledger, campaign.name, campaign.settings.explore
    summaries, journal = campaign.summaries(), ledger.journal(name)
    records = ledger.deployments(name)
    attempts = {(read.round, read.policy_hash): read for read in ledger.attempts(name)}
    tests = tuple(
        CandidateTest.of(candidate, attempts.get((candidate.round, candidate.policy_hash)))
        for candidate in ledger.candidates(name)
    )
    made_in = cache(campaign.made_in)  # it reads certificates again each time

    def choice_of(k: int, hash: str) -> Choice:
        return made_in(k, hash)[1]

    deployments = tuple(
        _deployed(record, *made_in(record.round, record.policy_hash)) for record in records
    )
    k = campaign.round
    erased = {seen.round: seen.rows_erased for seen in ledger.observations(name)}
    history = tuple(
        replace(
            _round(j, summaries, [t for t in tests if t.round == j], deployments, choice_of),
            declared=str(RoundLength.of([d for d in records if d.round == j]) or ""),
            erased=erased.get(j, 0),
        )
        for j in range(min(k, campaign.rounds) + 1)
    )
    promises = tuple(
        PromiseHistory(promise, tuple(_outcomes(promise, campaign, summaries, deployments, tests)))
        for promise in explore.promises
    )
    concerns = tuple(_concerns(explore, promises, tests, deployments, _drift_found(campaign)))
    if any(record.finished_at is None for record in ledger.erasures(name)):
        concerns = (*concerns, Concern("erasure unfinished"))
    may_deploy = () if k > campaign.rounds or campaign.deployed(k) else campaign.choices(k)
    newest = [test.state for test in tests if test.round == k][-1:]
    return Story(
        name=name,
        created=campaign.record.at,
        by=campaign.record.by,
        as_of=journal[-1].at if journal else None,
        round=k,
        rounds=campaign.rounds,
        settings=explore,
        retries=campaign.settings.retries,
        next=next_command(campaign, k, bool(may_deploy)),
        before_planning=before_planning(campaign),
        mood=_mood(concerns, newest[0] if newest else "", promises),
        concerns=concerns,
        may_deploy=may_deploy,
        history=history,
        promises=promises,
        tests=tests,
        deployments=deployments,
        items=exposure_of(explore.promises, summaries),
        forecasts=forecasts_of(campaign, may_deploy),
        corpus=corpus_of(summaries, impressions=impressions, rewards=rewards),
        journal=journal,
    )


def _against(above: float, error: float) -> Against:
    if abs(above) <= 2 * error:
        return "unclear"
    return "above" if above > 0 else "below"


def _deployed(record: DeploymentRecord, made_in: int, choice: Choice) -> DeployedPolicy:
    return DeployedPolicy(
        round=record.round,
        kind=record.kind,
        at=record.at,
        by=record.by,
        policy=record.policy_hash,
        what=choice.what,
        novelty=choice.novelty,
        made_in=None if choice.what == "pi0" else made_in,
        even=choice.even,
    )


def _round(
    k: int,
    summaries: Sequence[RoundSummary],
    tests: Sequence[CandidateTest],
    deployments: Sequence[DeployedPolicy],
    choice_of: Callable[[int, str], Choice],
) -> RoundStory:
    read = [test for test in tests if test.attempt is not None]
    passed = [test.certified.novelty for test in read if test.certified is not None]
    deployed = [policy.what for policy in deployments if policy.round == k]
    story = RoundStory(
        round=k,
        served=deployed[-1] if deployed else None,
        verdict=read[-1].state if read else None,
        attempt=read[-1].attempt if read else None,
        certified=passed[-1] if passed else None,
    )
    if k >= len(summaries):
        return story
    summary = summaries[k]
    return replace(
        story,
        rows=summary.rows,
        ended=summary.ended,
        decisions=summary.rows if summary.decisions is None else summary.decisions,
        read=summary.read,
        novelty=summary.novelty,
        served=choice_of(k, summary.served).what,
        arrived=summary.arrived,
        withdrawn=_newly_withdrawn(k, summaries),
    )


def _newly_withdrawn(k: int, summaries: Sequence[RoundSummary]) -> tuple[str, ...]:
    """Items that left with round k, and have not come back since."""
    before = {id for summary in summaries[:k] for id in summary.withdrawn}
    gone = set(summaries[-1].withdrawn) - before
    return tuple(id for id in summaries[k].withdrawn if id in gone)


def _outcomes(
    promise: Promise,
    campaign: RecordedCampaign,
    summaries: Sequence[RoundSummary],
    deployments: Sequence[DeployedPolicy],
    tests: Sequence[CandidateTest],
) -> Iterator[PromiseOutcome]:
    """One promise, round by round."""
    if not summaries:
        return
    first = summaries[0].promises[promise.name]
    need = promise.floor.of(first.mean)
    need_error = (promise.floor.ratio or 0.0) * first.error
    for k in range(min(len(summaries), campaign.rounds) + 1):
        served = [deployed.policy for deployed in deployments if deployed.round == k][-1:]
        outcome = PromiseOutcome(k, 0, None, None, need, need_error)
        if k < len(summaries):
            reward = summaries[k].promises[promise.name]
            margin = None if k == 0 else (reward.mean - need) * reward.rows
            outcome = PromiseOutcome(
                k, reward.rows, reward.mean, reward.error, need, need_error, margin
            )
            served = [summaries[k].served]
        passed = [test for test in tests if test.round == k and test.certified is not None]
        if passed:
            verdict, before = passed[-1].verdict(promise.name), summaries[k - 1]
            share = before.promises[promise.name].rows / before.rows
            decisions = (campaign.settings.decisions or before.rows) * share
            outcome = replace(
                outcome,
                certified=verdict.bound + (need if verdict.paired else 0.0),
                counted_on=verdict.credit * decisions,
                followed=served == [passed[-1].policy],
            )
        yield outcome


def _drift_found(campaign: RecordedCampaign) -> int | None:
    """The first round before which pi0's value was found to have changed; None if it was not.

    Where it was declared that pi0's value does not drift, and a floor is relative, a candidate from
    round 2 on has a ceiling on it, unless a test refuted the declaration.
    """
    explore = campaign.settings.explore
    relative = any(promise.floor.ratio is not None for promise in explore.promises)
    if not explore.no_drift:
        return None
    refuted = (
        candidate.round
        for candidate in campaign.ledger.candidates(campaign.name)
        if NO_DRIFT in CandidateFacts.of(candidate).refuted
        or (relative and candidate.round > 1 and not CandidateFacts.of(candidate).ceilings)
    )
    return next(refuted, None)


def _concerns(
    explore: ExploreSettings,
    promises: Sequence[PromiseHistory],
    tests: Sequence[CandidateTest],
    deployments: Sequence[DeployedPolicy],
    drift: int | None,
) -> Iterator[Concern]:
    for history in promises:
        below = tuple(
            outcome.round for outcome in history.observed[1:] if outcome.against == "below"
        )
        if drift is not None and history.promise.floor.ratio is not None:
            continue  # the floor is a share of a value that has changed
        if explore.safety == "each" and below:
            yield Concern("round below", history.promise.name, below)
        if explore.safety == "cumulative" and history.together == "below":
            yield Concern("together below", history.promise.name)
    for test in tests:
        if test.certificate is not None and test.certificate.kind == "paper":
            yield Concern("paper certificate", rounds=(test.round,))
        if test.certificate is not None and test.certificate.kind == "estimated":
            yield Concern("estimated certificate", rounds=(test.round,))
    if drift is not None:
        yield Concern("pi0 changed", rounds=(drift,))
    serves = deployments[-1] if deployments else None
    if serves is None or serves.kind != "rollback" or explore.safety != "cumulative":
        return
    if serves.what == "certified":  # it passed with the margin of another time
        yield Concern("earlier certificate")


def _mood(concerns: Sequence[Concern], state: str, promises: Sequence[PromiseHistory]) -> Mood:
    """The mood of a campaign; `state` is of the newest test in the round under way."""
    if concerns or state in ("failed", "abandoned"):
        return "bad"
    above = any(
        outcome.against == "above" for history in promises for outcome in history.observed[1:]
    )
    return "good" if above or state == "passed" else "plain"
